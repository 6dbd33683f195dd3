use std::io::{self, Read as _};
use std::time::Duration;

use object_store::CredentialProvider as _;
use skopos_fleet::checkpoint::{Bucket, Content, FileName, Store as _};

use super::testing::{BUCKET, Mood, S3};
use super::*;
use crate::config::BucketCredentials;
use crate::testing::Certificate;

/// Texts that must appear nowhere.
const SECRETS: [&str; 2] = ["hunter2", "hunter3"];

fn nothing() -> Environment<'static> {
    Environment::new(&|_| None)
}

fn file(name: &str) -> FileName {
    FileName::checked("=41", name).unwrap()
}

async fn read(bucket: &Bucket, name: &str) -> io::Result<String> {
    let mut text = String::new();
    bucket.read(&file(name)).await?.read_to_string(&mut text)?;
    Ok(text)
}

async fn write(bucket: &Bucket, name: &str, content: &'static str) -> io::Result<u64> {
    bucket.write(&file(name), Content::Bytes(content.into())).await
}

#[tokio::test]
async fn objects_are_written_listed_read_moved_and_removed() {
    let (s3, keys) = (S3::start().await, tempfile::tempdir().unwrap());
    let bucket = open(&s3.source(keys.path()), nothing()).unwrap();
    assert_eq!(read(&bucket, "one").await.unwrap_err().kind(), io::ErrorKind::NotFound);
    for name in ["one", "two", "three", "four", "five", "six", "seven"] {
        assert_eq!(write(&bucket, name, "content").await.unwrap(), 7);
    }
    s3.put("elsewhere/=41/x", b"of somebody else");
    assert_eq!(bucket.list().await.unwrap().len(), 7, "of all pages");
    assert_eq!(read(&bucket, "one").await.unwrap(), "content");
    bucket.rename(&file("one"), &file("one.refused")).await.unwrap();
    bucket.remove(&file("two")).await.unwrap();
    bucket.remove(&file("two")).await.unwrap();
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
    let (s3, keys) = (S3::start().await, tempfile::tempdir().unwrap());
    let source = s3.source(keys.path());
    write(&open(&source, nothing()).unwrap(), "one", "some content that is there").await.unwrap();
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
        let bucket = open(&source, nothing()).unwrap();
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
    let gone = open(&source, nothing()).unwrap();
    assert!(read(&gone, "one").await.is_err());
    assert!(write(&gone, "one", "content").await.is_err());
}

#[tokio::test]
async fn tls_trusts_only_configured_ca() {
    let keys = tempfile::tempdir().unwrap();
    let certificate = Certificate::new();
    let s3 = S3::over(Some(certificate.acceptor(&[]))).await;
    let mut source = s3.source(keys.path());
    let error = write(&open(&source, nothing()).unwrap(), "one", "x").await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
    let ca = keys.path().join("ca.pem");
    std::fs::write(&ca, certificate.pem()).unwrap();
    source.ca = Some(ca.clone());
    write(&open(&source, nothing()).unwrap(), "one", "x").await.unwrap();
    std::fs::write(&ca, "no certificate").unwrap();
    assert!(open(&source, nothing()).unwrap_err().contains("ca.pem"));
}

#[tokio::test]
async fn takes_only_credentials_and_region_from_environment() {
    let (s3, keys) = (S3::start().await, tempfile::tempdir().unwrap());
    let source = BucketSource { credentials: None, region: None, ..s3.source(keys.path()) };
    let set = |name: &str| match name {
        "AWS_ACCESS_KEY_ID" => Some("AKID".to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some("hunter2".to_owned()),
        "AWS_REGION" => Some("mars-north-1".to_owned()),
        "AWS_SKIP_SIGNATURE" => Some("true".to_owned()),
        "AWS_ENDPOINT_URL" => Some("https://elsewhere.example.com".to_owned()),
        _ => None,
    };
    write(&open(&source, Environment::new(&set)).unwrap(), "one", "x").await.unwrap();
    let (_, _, headers) = s3.requests().pop().unwrap();
    assert!(headers["authorization"].to_str().unwrap().contains("/mars-north-1/s3/"), "{headers:?}");
    // A key ID without its secret is no credential.
    let half = |name: &str| set(name).filter(|_| name != "AWS_SECRET_ACCESS_KEY");
    assert!(open(&source, Environment::new(&half)).is_err());
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
