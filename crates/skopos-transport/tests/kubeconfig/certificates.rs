//! Tests of the trust in servers.

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use crate::world::{Identity, Outcome, World, asked_by, base64, self_signed};

fn in_lines(text: &str) -> String {
    let text = base64(text);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    lines.join("\n      ")
}

#[tokio::test]
async fn base64_may_be_broken_into_lines() {
    let world = World::start().await;
    let me = world.issue(|_| {});
    let text = format!(
        "current-context: main\ncontexts: [{{name: main, context: {{cluster: c, user: u}}}}]\nclusters:\n- name: c\n  \
         cluster:\n    server: {}\n    certificate-authority-data: |\n      {}\nusers:\n- name: u\n  user:\n    \
         client-certificate-data: |\n      {}\n    client-key-data: |\n      {}\n",
        world.https,
        in_lines(&world.ca()),
        in_lines(&me.certificate),
        in_lines(&me.key)
    );
    let path = world.write("config", text);
    let given = crate::world::Given::File(path);
    world.check_given(&given, &crate::world::asked_with_certificate()).await;
}

#[tokio::test]
async fn a_ca_that_is_no_certificate_is_an_error() {
    let world = World::start().await;
    for data in ["hello", "-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n"] {
        let cluster = format!("server: '{}', certificate-authority-data: {}", world.https, base64(data));
        world.check(&cluster, "token: t", &Outcome::Refused).await;
        world.write("ca.crt", data);
        let cluster = format!("server: '{}', certificate-authority: ca.crt", world.https);
        world.check(&cluster, "token: t", &Outcome::Refused).await;
    }
    let cluster = format!("server: '{}', certificate-authority: none.crt", world.https);
    world.check(&cluster, "token: t", &Outcome::Refused).await;
    let cluster = format!("server: '{}', certificate-authority-data: '%%%'", world.https);
    world.check(&cluster, "token: t", &Outcome::Refused).await;
}

#[tokio::test]
async fn one_good_certificate_of_a_bundle_is_enough() {
    let world = World::start().await;
    let bundle = format!("-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n{}", world.ca());
    let cluster = format!("server: '{}', certificate-authority-data: {}", world.https, base64(bundle));
    world.check(&cluster, "token: t", &asked_by("Bearer t")).await;
}

#[tokio::test]
async fn a_ca_is_given_once() {
    let world = World::start().await;
    world.write("ca.crt", world.ca());
    let twice = format!("{}, certificate-authority: ca.crt", world.cluster());
    world.check(&twice, "token: t", &Outcome::Refused).await;
    // Tools leave empty fields.
    let empty = format!("{}, certificate-authority: ''", world.cluster());
    world.check(&empty, "token: t", &asked_by("Bearer t")).await;
}

#[tokio::test]
async fn insecure_excludes_a_ca() {
    let world = World::start().await;
    let both = format!("{}, insecure-skip-tls-verify: true", world.cluster());
    world.check(&both, "token: t", &Outcome::Refused).await;
    let alone = format!("server: '{}', insecure-skip-tls-verify: true", world.https);
    world.check(&alone, "token: t", &asked_by("Bearer t")).await;
    let neither = format!("server: '{}', insecure-skip-tls-verify: false", world.https);
    world.check(&neither, "token: t", &Outcome::Refused).await;
}

#[tokio::test]
async fn tls_server_name_must_match_certificate() {
    let world = World::start().await;
    for (name, expected) in [
        ("server.test", asked_by("Bearer t")),
        ("127.0.0.1", asked_by("Bearer t")),
        ("''", asked_by("Bearer t")),
        ("other.test", Outcome::Refused),
    ] {
        let cluster = format!("{}, tls-server-name: {name}", world.cluster());
        world.check(&cluster, "token: t", &expected).await;
    }
}

/// Checks a server with this certificate against a bundle that holds the certificate itself.
async fn check_itself(identity: &Identity, expected: &Outcome) {
    let mut world = World::start().await;
    let server = world.tls(identity).await;
    let cluster =
        format!("server: '{server}', certificate-authority-data: {}", base64(&identity.certificate));
    world.check(&cluster, "token: t", expected).await;
}

#[tokio::test]
async fn trusts_server_certificate_in_ca_bundle() {
    let good = asked_by("Bearer t");
    check_itself(&self_signed(|_| {}), &good).await;
    check_itself(&self_signed(|params| params.is_ca = IsCa::ExplicitNoCa), &good).await;
    check_itself(&self_signed(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)), &good)
        .await;
    // Also one that another CA signed, which is not in the bundle.
    check_itself(&World::start().await.issue(|_| {}), &good).await;
}

#[tokio::test]
async fn checks_name_time_and_usage_of_bundled_certificate() {
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    check_itself(&self_signed(expired), &Outcome::Refused).await;
    let future = |params: &mut CertificateParams| params.not_before = date_time_ymd(2990, 1, 1);
    check_itself(&self_signed(future), &Outcome::Refused).await;
    let other = CertificateParams::new(["other.test".to_owned()]).unwrap();
    check_itself(&self_signed(|params| *params = other), &Outcome::Refused).await;
    let client = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    check_itself(&self_signed(client), &Outcome::Refused).await;
    let server = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    check_itself(&self_signed(server), &asked_by("Bearer t")).await;
}

#[tokio::test]
async fn rejects_issuer_without_signing_rights() {
    for (change, expected) in [
        ((|_| {}) as fn(&mut CertificateParams), Outcome::Refused),
        (|params| params.is_ca = IsCa::ExplicitNoCa, Outcome::Refused),
        (
            |params| {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            },
            Outcome::Refused,
        ),
        (|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained), asked_by("Bearer t")),
    ] {
        let mut world = World::start().await;
        let mut params = CertificateParams::new(["signer.test".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let signer = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let leaf = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let leaf_key = KeyPair::generate().unwrap();
        let signed = leaf.signed_by(&leaf_key, &issuer).unwrap();
        let server = world.tls(&Identity { certificate: signed.pem(), key: leaf_key.serialize_pem() }).await;
        let cluster = format!("server: '{server}', certificate-authority-data: {}", base64(signer.pem()));
        world.check(&cluster, "token: t", &expected).await;
    }
}

#[tokio::test]
async fn a_certificate_of_another_server_vouches_for_none() {
    let mut world = World::start().await;
    let (one, other) = (self_signed(|_| {}), self_signed(|_| {}));
    let server = world.tls(&one).await;
    let cluster = format!("server: '{server}', certificate-authority-data: {}", base64(other.certificate));
    world.check(&cluster, "token: t", &Outcome::Refused).await;
}
