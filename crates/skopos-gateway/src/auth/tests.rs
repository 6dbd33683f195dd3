use std::net::SocketAddr;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::authz::ask::AskError;
use crate::config::{Authentication, ClientCertificates, TokenReview};
use crate::testing::Script;

fn peer(address: &str) -> Peer {
    let address: SocketAddr = address.parse().unwrap();
    Peer::new(address, true, CancellationToken::new())
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
}

fn bearer(token: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Bearer {token}"))])
}

fn reviewing(audiences: &[&str], script: &Script) -> Authenticator {
    sharing(false, audiences, script)
}

fn sharing(shared_accounts: bool, audiences: &[&str], script: &Script) -> Authenticator {
    let audiences = audiences.iter().map(|audience| (*audience).to_owned()).collect();
    let cluster = "home".into();
    let token_review = Some(TokenReview { cluster, audiences, shared_accounts, only_jwt: false });
    let authentication = Authentication { token_review, ..Authentication::default() };
    let config = Config { authentication, ..Config::default() };
    Authenticator::new(&config, script.arc()).unwrap()
}

fn jane() -> Script {
    Script::reviewing(|_, spec| match spec["token"].as_str() {
        Some("good") => json!({
            "authenticated": true,
            "audiences": ["skopos"],
            "user": {"username": "jane", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["a"]}},
        }),
        _ => json!({"authenticated": false, "error": "unknown token"}),
    })
}

const CLIENT: &str = "10.0.0.9:1234";

#[tokio::test(start_paused = true)]
async fn token_review_yields_complete_identity() {
    let script = jane();
    let who = reviewing(&[], &script).identify(&peer(CLIENT), &bearer("good")).await.unwrap();
    assert_eq!((who.user.as_str(), who.uid.as_str()), ("jane", "7"));
    assert_eq!(who.groups, ["dev", "system:authenticated"]);
    assert_eq!(who.extra["scopes"], ["a"]);
    let (cluster, question) = script.asked().remove(0);
    assert_eq!((cluster.as_str(), &question["spec"]), ("home", &json!({"token": "good"})));
}

#[tokio::test(start_paused = true)]
async fn system_accounts_stay_in_home_cluster_unless_shared() {
    let who = async |shared: bool, user: &'static str, groups: &'static [&str]| {
        let user = json!({"username": user, "groups": groups, "home": "b"});
        let script = Script::reviewing(move |_, _| json!({"authenticated": true, "user": user}));
        sharing(shared, &[], &script).identify(&peer(CLIENT), &bearer("good")).await.unwrap()
    };
    for (user, groups) in [
        ("system:serviceaccount:ci:deployer", &["system:serviceaccounts", "system:serviceaccounts:ci"][..]),
        ("system:node:n1", &["system:nodes"]),
        ("system:bootstrap:abcdef", &[]),
        ("jane", &["dev", "system:masters"]),
    ] {
        let own = who(false, user, groups).await;
        assert!(own.is_known_in("home") && !own.is_known_in("b"), "{own:?}");
        let shared = who(true, user, groups).await;
        assert!(shared.is_known_in("home") && shared.is_known_in("b"), "{shared:?}");
    }
    let jane = who(false, "jane", &["dev", "system:authenticated"]).await;
    assert!(jane.is_known_in("home") && jane.is_known_in("b"), "{jane:?}");
}

#[tokio::test(start_paused = true)]
async fn rejects_missing_or_invalid_credentials() {
    let script = jane();
    let authenticator = reviewing(&[], &script);
    for sent in [headers(&[]), bearer("bad"), headers(&[("authorization", "Basic good")]), bearer("")] {
        for address in [CLIENT, "127.0.0.1:1"] {
            let error = authenticator.identify(&peer(address), &sent).await.unwrap_err();
            assert_eq!(Status::from(error), Status::unauthorized(), "{sent:?}");
        }
    }
    // Headers of a front proxy, and names without proof, do not authenticate.
    let forged = headers(&[("x-remote-user", "jane"), ("impersonate-user", "jane")]);
    assert_eq!(authenticator.identify(&peer(CLIENT), &forged).await, Err(AuthError::Nothing));
}

#[tokio::test(start_paused = true)]
async fn revoked_token_expires_within_ten_seconds() {
    let script = jane();
    let authenticator = reviewing(&[], &script);
    let all = futures::future::join_all(
        (0..50).map(|_| async { authenticator.identify(&peer(CLIENT), &bearer("good")).await.is_ok() }),
    );
    assert!(all.await.into_iter().all(|known| known));
    assert_eq!(script.asked().len(), 1, "many at once ask once");
    script.answers(|_, _| Ok((201, json!({"status": {"authenticated": false}}))));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(authenticator.identify(&peer(CLIENT), &bearer("good")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_token_for_another_audience_is_refused() {
    let known = |audiences: &'static [&str]| async move {
        reviewing(audiences, &jane()).identify(&peer(CLIENT), &bearer("good")).await.is_ok()
    };
    assert!(known(&["skopos"]).await && known(&["other", "skopos"]).await);
    assert!(!known(&["other"]).await);
    // A cluster that returns no audiences has not checked any.
    let silent = Script::reviewing(|_, _| json!({"authenticated": true, "user": {"username": "jane"}}));
    assert!(reviewing(&["skopos"], &silent).identify(&peer(CLIENT), &bearer("good")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn rejects_review_without_authenticated_user() {
    for status in [
        json!({}),
        json!({"authenticated": true}),
        json!({"authenticated": true, "user": {"username": ""}}),
        json!({"authenticated": true, "error": "but", "user": {"username": "jane"}}),
        json!({"user": {"username": "jane"}}),
    ] {
        let text = status.to_string();
        let script = Script::reviewing(move |_, _| status.clone());
        assert!(reviewing(&[], &script).identify(&peer(CLIENT), &bearer("good")).await.is_err(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_reviewer_yields_503_not_401() {
    let script = Script::new(|_, _| Err(AskError::Down("refused".into())));
    let error = reviewing(&[], &script).identify(&peer(CLIENT), &bearer("good")).await.unwrap_err();
    assert_eq!(Status::from(error).code, 503);
    // The cluster is asked again soon.
    script
        .answers(|_, _| Ok((201, json!({"status": {"authenticated": true, "user": {"username": "jane"}}}))));
    let authenticator = reviewing(&[], &script);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(authenticator.identify(&peer(CLIENT), &bearer("good")).await.is_ok());

    let slow = jane();
    slow.takes(Duration::from_secs(3600));
    let before = tokio::time::Instant::now();
    let error = reviewing(&[], &slow).identify(&peer(CLIENT), &bearer("good")).await.unwrap_err();
    assert!(matches!(error, AuthError::Unavailable(_)) && before.elapsed() <= AUTHENTICATION_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn flood_of_unknown_tokens_causes_few_reviews() {
    let script = jane();
    script.takes(Duration::from_secs(3600));
    let authenticator = reviewing(&[], &script);
    let tokens: Vec<HeaderMap> = (0..500).map(|n| bearer(&format!("made-up-{n}"))).collect();
    let peer = peer(CLIENT);
    let answers = tokens.iter().map(|token| authenticator.identify(&peer, token));
    let answers = futures::future::join_all(answers).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(AuthError::Unavailable(_)))));
    assert!(script.asked().len() <= 2 * 18, "{}", script.asked().len());
}

/// Makes a cluster that reviews in 300 ms and accepts tokens that begin with `good`.
fn slow() -> Script {
    let script = Script::reviewing(|_, spec| {
        let is_good = spec["token"].as_str().unwrap().starts_with("good");
        json!({"authenticated": is_good, "user": {"username": "jane"}})
    });
    script.takes(Duration::from_millis(300));
    script
}

/// Sends made-up tokens on a connection, one after another, without end.
async fn flood(authenticator: &Authenticator, address: &str, connection: usize) {
    let peer = peer(address);
    for n in 0.. {
        let token = bearer(&format!("made-up-{connection}-{n}"));
        assert!(authenticator.identify(&peer, &token).await.is_err());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Sends good tokens while 500 connections of `flooding` send made-up ones; returns the time of the slowest answer.
async fn beside_a_flood(flooding: &str, good: impl AsyncFnOnce(&Authenticator) -> Duration) -> Duration {
    let authenticator = reviewing(&[], &slow());
    let floods = futures::future::join_all((0..500).map(|n| flood(&authenticator, flooding, n)));
    tokio::select! {
        // In this order, so that all runs are the same.
        biased;
        slowest = good(&authenticator) => slowest,
        _ = floods => unreachable!("it goes on"),
    }
}

/// Uses a token several times on one connection; returns the time of the slowest answer.
async fn use_token(authenticator: &Authenticator, address: &str, token: &str, times: usize) -> Duration {
    let (peer, token) = (peer(address), bearer(token));
    let mut slowest = Duration::ZERO;
    for _ in 0..times {
        let begun = tokio::time::Instant::now();
        authenticator.identify(&peer, &token).await.unwrap();
        slowest = slowest.max(begun.elapsed());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    slowest
}

#[tokio::test(start_paused = true)]
async fn good_tokens_pass_beside_a_flood_of_another_network() {
    let slowest = beside_a_flood("10.6.6.6:1", async |authenticator| {
        let all = (0..20).map(async |n: usize| {
            tokio::time::sleep(Duration::from_millis(50 * n as u64)).await;
            use_token(authenticator, CLIENT, &format!("good-{n}"), 1).await
        });
        futures::future::join_all(all).await.into_iter().max().unwrap()
    });
    assert!(slowest.await <= Duration::from_secs(1));
}

/// Checks the case of one proxy: a connection with a refused token waits behind those without.
#[tokio::test(start_paused = true)]
async fn valid_tokens_pass_during_flood_from_same_network() {
    let slowest = beside_a_flood(CLIENT, async |authenticator| {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let all = (0..20).map(async |n| use_token(authenticator, CLIENT, &format!("good-{n}"), 1).await);
        futures::future::join_all(all).await.into_iter().max().unwrap()
    });
    assert!(slowest.await <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn tokens_in_use_are_reviewed_apart_from_new_ones() {
    let slowest = beside_a_flood(CLIENT, async |authenticator| {
        let first = use_token(authenticator, CLIENT, "good", 1).await;
        assert!(first <= Duration::from_secs(5), "{first:?}");
        use_token(authenticator, CLIENT, "good", 15).await
    });
    assert_eq!(slowest.await, Duration::from_millis(300));
}

#[tokio::test(start_paused = true)]
async fn only_jwts_are_reviewed_if_that_is_configured() {
    let script = Script::reviewing(|_, _| json!({"authenticated": true, "user": {"username": "jane"}}));
    let token_review =
        TokenReview { cluster: "home".into(), audiences: Vec::new(), shared_accounts: false, only_jwt: true };
    let authentication = Authentication { token_review: Some(token_review), ..Authentication::default() };
    let config = Config { authentication, ..Config::default() };
    let authenticator = Authenticator::new(&config, script.arc()).unwrap();
    assert!(authenticator.identify(&peer(CLIENT), &bearer("made-up")).await.is_err());
    assert!(script.asked().is_empty());
    let jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln";
    assert!(authenticator.identify(&peer(CLIENT), &bearer(jwt)).await.is_ok());
}

#[tokio::test]
async fn nothing_configured_is_for_this_machine_alone() {
    let open = Authenticator::new(&Config::default(), jane().arc()).unwrap();
    let who = |address: &'static str, lines: &'static [(&'static str, &'static str)]| {
        let open = open.clone();
        async move { open.identify(&peer(address), &headers(lines)).await.map(|who| who.user.clone()) }
    };
    let local = &[("host", "localhost:8001")];
    for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(who(address, local).await.unwrap(), "skopos:loopback-anonymous", "{address}");
    }
    assert!(who(CLIENT, local).await.is_err());
    for host in [&[("host", "localhost:8001")], &[("host", "127.0.0.1:8001")], &[("host", "[::1]:8001")]] {
        assert!(who("127.0.0.1:1", host).await.is_ok(), "{host:?}");
    }
    // A browser page whose own name resolves to this machine, and a request without a host.
    for page in [
        &[("host", "evil.example:8001")][..],
        &[("host", "127.0.0.1.evil.example")],
        &[("host", "10.0.0.1")],
        &[],
    ] {
        assert!(who("127.0.0.1:1", page).await.is_err(), "{page:?}");
    }
}

#[tokio::test]
async fn certificate_counts_only_when_configured() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
    let shown = Peer { certificate: Some(params.self_signed(&key).unwrap().der().clone()), ..peer(CLIENT) };

    let client_certificates = Some(ClientCertificates::new("ca.pem"));
    let authentication = Authentication { client_certificates, ..Authentication::default() };
    let config = Config { authentication, ..Config::default() };
    let by_certificate = Authenticator::new(&config, jane().arc()).unwrap();
    assert_eq!(by_certificate.identify(&shown, &bearer("good")).await.unwrap().user, "jane");
    assert_eq!(by_certificate.identify(&peer(CLIENT), &headers(&[])).await, Err(AuthError::Nothing));
    assert!(by_certificate.identify(&peer(CLIENT), &bearer("good")).await.is_err());

    assert_eq!(reviewing(&[], &jane()).identify(&shown, &headers(&[])).await, Err(AuthError::Nothing));
}
