//! Credentials.

use crate::world::{
    Caller, Given, Outcome, World, asked_anonymously, asked_by, asked_with_certificate, base64, kubeconfig,
};

#[tokio::test]
async fn trims_token_read_from_file() {
    let world = World::start().await;
    for content in ["t", "t\n", " \n t\r\n\n"] {
        world.write("token", content);
        world.check(&world.cluster(), "tokenFile: token", &asked_by("Bearer t")).await;
    }
    world.write("token", " \n");
    world.check(&world.cluster(), "tokenFile: token", &Outcome::Refused).await;
}

#[tokio::test]
async fn token_file_overrides_inline_token() {
    let world = World::start().await;
    world.write("token", "of-the-file\n");
    world.check(&world.cluster(), "token: beside, tokenFile: token", &asked_by("Bearer of-the-file")).await;
    world.check(&world.cluster(), "token: beside, tokenFile: none", &asked_by("Bearer beside")).await;
    world.check(&world.cluster(), "tokenFile: none", &Outcome::Refused).await;
}

#[tokio::test]
async fn an_empty_token_is_none() {
    let world = World::start().await;
    world.write("token", "t");
    world.check(&world.cluster(), "token: '', tokenFile: token", &asked_by("Bearer t")).await;
    world.check(&world.cluster(), "token: t, tokenFile: ''", &asked_by("Bearer t")).await;
    world.check_skopos(&world.cluster(), "token: ''", &asked_anonymously()).await;
}

#[tokio::test]
async fn username_and_password_are_sent() {
    let world = World::start().await;
    let basic = |text: &str| asked_by(&format!("Basic {}", base64(text)));
    world.check(&world.cluster(), "username: me, password: secret", &basic("me:secret")).await;
    world.check(&world.cluster(), "username: me", &basic("me:")).await;
}

#[tokio::test]
async fn a_token_and_a_password_exclude_each_other() {
    let world = World::start().await;
    world.write("token", "t");
    for user in
        ["token: t, username: me, password: p", "token: t, password: p", "tokenFile: token, username: me"]
    {
        world.check(&world.cluster(), user, &Outcome::Refused).await;
    }
}

#[tokio::test]
async fn a_client_certificate_is_shown() {
    let world = World::start().await;
    let me = world.issue(|_| {});
    let data =
        format!("client-certificate-data: {}, client-key-data: {}", base64(&me.certificate), base64(&me.key));
    world.check(&world.cluster(), &data, &asked_with_certificate()).await;
    world.write("me.crt", &me.certificate);
    // Neither file ends with a newline.
    world.write("me.key", me.key.trim_end());
    world
        .check(&world.cluster(), "client-certificate: me.crt, client-key: me.key", &asked_with_certificate())
        .await;
    let mixed = format!("client-certificate: me.crt, client-key-data: {}", base64(me.key.trim_end()));
    world.check(&world.cluster(), &mixed, &asked_with_certificate()).await;
    let both = Caller {
        authorization: Some("Bearer t".into()),
        certificate: true,
        path: "/version".into(),
        ..Caller::default()
    };
    world.check(&world.cluster(), &format!("{data}, token: t"), &Outcome::Asked(both)).await;
}

#[tokio::test]
async fn rejects_ambiguous_or_keyless_client_certificate() {
    let world = World::start().await;
    let me = world.issue(|_| {});
    world.write("me.crt", &me.certificate);
    world.write("me.key", &me.key);
    let (certificate, key) = (base64(&me.certificate), base64(&me.key));
    for user in [
        format!("client-certificate-data: {certificate}"),
        "client-certificate: me.crt".to_owned(),
        format!("client-certificate: me.crt, client-certificate-data: {certificate}, client-key: me.key"),
        format!("client-certificate: me.crt, client-key: me.key, client-key-data: {key}"),
        "client-certificate: me.crt, client-key: none.key".to_owned(),
        "client-certificate: none.crt, client-key: me.key".to_owned(),
    ] {
        world.check(&world.cluster(), &user, &Outcome::Refused).await;
    }
    // A key alone counts as none.
    let key = format!("client-key-data: {key}, token: t");
    world.check(&world.cluster(), &key, &asked_by("Bearer t")).await;
}

#[tokio::test]
async fn impersonation_needs_a_user() {
    let world = World::start().await;
    let as_me = Caller {
        authorization: Some("Bearer t".into()),
        impersonated: Some("me".into()),
        path: "/version".into(),
        ..Caller::default()
    };
    world.check(&world.cluster(), "token: t, as: me, as-groups: [a]", &Outcome::Asked(as_me)).await;
    for user in ["as-groups: [a]", "as-uid: '7'", "as-user-extra: {a: [b]}"] {
        world.check(&world.cluster(), &format!("token: t, {user}"), &Outcome::Refused).await;
    }
}

#[tokio::test]
async fn ignores_broken_entries_of_other_users() {
    let world = World::start().await;
    let broken = "users: [{name: v, user: {exec: {interactiveMode: Sometimes}, token: t, password: p}}, ";
    let text = kubeconfig(&world.cluster(), "token: t").replace("users: [", broken);
    let path = world.write("config", text);
    world.check_given(&Given::File(path), &asked_by("Bearer t")).await;
}
