use std::io;
use std::sync::Arc;
use std::time::Duration;

use object_store::CredentialProvider as _;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

use super::credentials::{Environment, FileCredentials};
use super::testing::{BUCKET, Mood, S3};
use super::*;

/// Texts that must appear nowhere.
const SECRETS: [&str; 2] = ["hunter2", "hunter3"];

fn nothing() -> Environment<'static> {
    Environment::new(&|_| None)
}

async fn read(bucket: &Bucket, name: &str) -> io::Result<String> {
    let (bytes, _) = bucket.get_object(&format!("=41/{name}")).await?;
    Ok(String::from_utf8(bytes).unwrap())
}

async fn write(bucket: &Bucket, name: &str, content: &'static str) -> io::Result<()> {
    bucket.put_object(&format!("=41/{name}"), content.into()).await
}

#[tokio::test]
async fn objects_are_written_listed_read_moved_and_removed() {
    let (s3, keys) = (S3::start().await.unwrap(), tempfile::tempdir().unwrap());
    let bucket = s3.config(keys.path()).unwrap().open_in(nothing()).unwrap();
    assert_eq!(read(&bucket, "one").await.unwrap_err().kind(), io::ErrorKind::NotFound);
    for name in ["one", "two", "three", "four", "five", "six", "seven"] {
        write(&bucket, name, "content").await.unwrap();
    }
    s3.put("elsewhere/=41/x", b"of somebody else");
    assert_eq!(bucket.list_objects().await.unwrap().len(), 7, "of all pages");
    assert_eq!(read(&bucket, "one").await.unwrap(), "content");
    bucket.rename_object("=41/one", "=41/one.refused").await.unwrap();
    bucket.delete_object("=41/two").await.unwrap();
    bucket.delete_object("=41/two").await.unwrap();
    let names = s3.names();
    assert!(names.contains(&"some/prefix/=41/one.refused".into()) && names.len() == 7, "{names:?}");
    for (method, path, headers) in s3.requests() {
        assert!(path.starts_with(&format!("/{BUCKET}")), "{method} {path}");
        assert_eq!(headers["x-amz-security-token"], "hunter3");
        assert!(!format!("{path} {headers:?}").contains("hunter2"), "{method} {path}");
    }
}

#[tokio::test]
async fn whatever_is_wrong_ends_soon_and_tells_no_secret() {
    let (s3, keys) = (S3::start().await.unwrap(), tempfile::tempdir().unwrap());
    let source = s3.config(keys.path()).unwrap();
    write(&source.open_in(nothing()).unwrap(), "one", "some content that is there").await.unwrap();
    let cases = [
        (Mood::Hang, io::ErrorKind::TimedOut),
        (Mood::Stall, io::ErrorKind::Other),
        (Mood::Torn, io::ErrorKind::Other),
        (Mood::Elsewhere, io::ErrorKind::Other),
        (Mood::Refuse(403), io::ErrorKind::PermissionDenied),
        (Mood::Refuse(401), io::ErrorKind::PermissionDenied),
        (Mood::Refuse(500), io::ErrorKind::Other),
        (Mood::Refuse(404), io::ErrorKind::NotFound),
    ];
    for (mood, kind) in cases {
        // A bucket without any errors so far.
        let bucket = source.open_in(nothing()).unwrap();
        s3.feels(mood);
        let asking = tokio::time::timeout(Duration::from_secs(30), read(&bucket, "one"));
        let error = asking.await.expect("it ends within its bounds").unwrap_err();
        let said = format!("{error} {error:?} {bucket:?}");
        assert!(
            error.kind() == kind || mood == Mood::Stall && error.kind() == io::ErrorKind::TimedOut,
            "{mood:?}: {said}"
        );
        assert!(SECRETS.iter().all(|secret| !said.contains(secret)), "{mood:?}: {said}");
        if let Mood::Refuse(403 | 500) = mood {
            assert!(said.contains("SomeCode"), "what it is called is told: {said}");
        }
    }
    s3.feels(Mood::Well);
    drop(s3);
    let gone = source.open_in(nothing()).unwrap();
    assert!(read(&gone, "one").await.is_err());
    assert!(write(&gone, "one", "content").await.is_err());
}

#[tokio::test]
async fn same_problem_has_same_text() {
    let (s3, keys) = (S3::start().await.unwrap(), tempfile::tempdir().unwrap());
    let source = s3.config(keys.path()).unwrap();
    s3.feels(Mood::Refuse(500));
    let mut texts = Vec::new();
    for _ in 0..2 {
        texts.push(read(&source.open_in(nothing()).unwrap(), "one").await.unwrap_err().to_string());
    }
    drop(s3);
    for _ in 0..2 {
        texts.push(read(&source.open_in(nothing()).unwrap(), "one").await.unwrap_err().to_string());
    }
    assert!(texts[0] == texts[1] && texts[2] == texts[3] && texts[1] != texts[2], "{texts:#?}");
}

#[tokio::test]
async fn tls_trusts_only_configured_ca() {
    let keys = tempfile::tempdir().unwrap();
    let certificate = generate_simple_self_signed(["127.0.0.1".into()]).unwrap();
    let s3 = S3::over(Some(acceptor(&certificate))).await.unwrap();
    let mut source = s3.config(keys.path()).unwrap();
    let error = write(&source.open_in(nothing()).unwrap(), "one", "x").await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    let ca = keys.path().join("ca.pem");
    std::fs::write(&ca, certificate.cert.pem()).unwrap();
    source.ca = Some(ca.clone());
    write(&source.open_in(nothing()).unwrap(), "one", "x").await.unwrap();
    std::fs::write(&ca, "no certificate").unwrap();
    assert!(source.open_in(nothing()).unwrap_err().contains("ca.pem"));
}

#[tokio::test]
async fn takes_only_credentials_and_region_from_environment() {
    let (s3, keys) = (S3::start().await.unwrap(), tempfile::tempdir().unwrap());
    let source = BucketConfig { credentials: None, region: None, ..s3.config(keys.path()).unwrap() };
    let set = |name: &str| match name {
        "AWS_ACCESS_KEY_ID" => Some("AKID".to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some("hunter2".to_owned()),
        "AWS_REGION" => Some("mars-north-1".to_owned()),
        "AWS_SKIP_SIGNATURE" => Some("true".to_owned()),
        "AWS_ENDPOINT_URL" => Some("https://elsewhere.example.com".to_owned()),
        _ => None,
    };
    write(&source.open_in(Environment::new(&set)).unwrap(), "one", "x").await.unwrap();
    let (_, _, headers) = s3.requests().pop().unwrap();
    assert!(headers["authorization"].to_str().unwrap().contains("/mars-north-1/s3/"), "{headers:?}");
    // A key ID without its secret is no credential.
    let half = |name: &str| set(name).filter(|_| name != "AWS_SECRET_ACCESS_KEY");
    assert!(source.open_in(Environment::new(&half)).is_err());
}

#[tokio::test(start_paused = true)]
async fn rereads_changed_keys_and_hides_bad_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("access"), "first\n").unwrap();
    std::fs::write(path("secret"), "hunter2").unwrap();
    let files =
        BucketCredentials { access_key: path("access"), secret_key: path("secret"), session_token: None };
    let credentials = FileCredentials::new(&files);
    assert_eq!(credentials.get_credential().await.unwrap().key_id, "first");
    std::fs::write(path("access"), "second").unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(credentials.get_credential().await.unwrap().key_id, "second");
    for wrong in ["", "hunter2 hunter3", "hunter2\nhunter3"] {
        std::fs::write(path("secret"), wrong).unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let error = credentials.get_credential().await.unwrap_err();
        let said = format!("{error} {error:?} {credentials:?}");
        assert!(said.contains("secret") && SECRETS.iter().all(|secret| !said.contains(secret)), "{said}");
    }
}

#[tokio::test]
async fn a_write_on_a_condition_is_refused_if_another_was_first() {
    let (s3, keys) = (S3::start().await.unwrap(), tempfile::tempdir().unwrap());
    let bucket = s3.config(keys.path()).unwrap().open_in(nothing()).unwrap();
    let first = bucket.put_object_if("head", "1".into(), None).await.unwrap().expect("there was none");
    assert_eq!(bucket.put_object_if("head", "x".into(), None).await.unwrap(), None);
    assert_eq!(bucket.get_object("head").await.unwrap(), (b"1".to_vec(), first.clone()));
    let second =
        bucket.put_object_if("head", "2".into(), Some(&first)).await.unwrap().expect("it is as it was");
    assert_eq!(bucket.put_object_if("head", "x".into(), Some(&first)).await.unwrap(), None);
    // The answer to a write is lost, and with it its version.
    s3.feels(Mood::Mute);
    bucket.put_object_if("head", "3".into(), Some(&second)).await.unwrap_err();
    s3.feels(Mood::Well);
    let again = s3.config(keys.path()).unwrap().open_in(nothing()).unwrap();
    assert_eq!(again.put_object_if("head", "x".into(), Some(&second)).await.unwrap(), None);
    assert_eq!(again.get_object("head").await.unwrap().0, b"3");
    again.delete_object("head").await.unwrap();
    assert_eq!(again.put_object_if("head", "x".into(), Some(&second)).await.unwrap(), None);
    assert!(s3.names().is_empty());
}

fn acceptor(certificate: &CertifiedKey<rcgen::KeyPair>) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
