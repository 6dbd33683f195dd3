//! `kubectl --as` through the gateway.

use http::Method;
use serde_json::json;
use skopos_testserver::AccessQuestion;
use tokio::time::{Duration, timeout};

use crate::config::LoopbackTrust;
use crate::testing::{Lab, Seen, Told, told};

const MAPS: &str = "/clusters/a/api/v1/namespaces/shop/configmaps";

/// Returns whether the policy allows it: alice may impersonate joe, the group `dev`, the scope `view`, the uid 7 and the
/// service account `web`; joe may read the objects in `shop`.
fn policy(question: &AccessQuestion) -> bool {
    let AccessQuestion { user, verb, resource, subresource, namespace, name, .. } = question;
    match (user.as_str(), verb.as_str()) {
        ("alice", "impersonate") => [
            ("users", "", "", "joe"),
            ("groups", "", "", "dev"),
            ("userextras", "scopes", "", "view"),
            ("uids", "", "", "7"),
            ("serviceaccounts", "", "shop", "web"),
        ]
        .contains(&(resource, subresource, namespace, name)),
        ("joe" | "system:serviceaccount:shop:web", "get" | "list" | "watch") => {
            resource == "configmaps" && namespace == "shop"
        }
        _ => false,
    }
}

fn lab() -> Lab {
    let lab = Lab::guarded(&["a", "b"], |config| config.outbound.impersonate = true);
    for token in ["alice", "mallory", "joe"] {
        lab.admit(token, token);
    }
    for name in ["a", "b"] {
        let member = lab.member(name);
        member.auth().answer_reviews(policy);
        member
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
            .unwrap();
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "shop"}});
        member.create(map).unwrap();
    }
    // No caller may impersonate in the other cluster.
    lab.member("b").auth().answer_reviews(|question| question.verb != "impersonate" && policy(question));
    lab
}

async fn read(lab: &Lab, token: &str, path: &str, more: &[(&str, &str)]) -> Told {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("authorization", &*bearer)];
    headers.extend_from_slice(more);
    lab.get(path, &headers).await
}

const JOE: (&str, &str) = ("Impersonate-User", "joe");

#[tokio::test(start_paused = true)]
async fn impersonates_where_member_permits_it() {
    let lab = lab();
    assert_eq!(read(&lab, "alice", MAPS, &[]).await.code, 403);
    for headers in [
        vec![JOE],
        vec![
            JOE,
            ("Impersonate-Group", "dev"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Scopes", "view"),
        ],
        vec![("Impersonate-User", "system:serviceaccount:shop:web")],
    ] {
        let told = read(&lab, "alice", MAPS, &headers).await;
        assert_eq!((told.code, told.header("skopos-source")), (200, "memory"), "{headers:?}: {told:?}");
    }
    // Alice as joe may not do what joe may not do.
    let secrets = read(&lab, "alice", "/clusters/a/api/v1/namespaces/shop/secrets", &[JOE]).await;
    assert_eq!(secrets.code, 403);
    assert!(
        secrets.message().contains(r#"User "joe" cannot list resource "secrets""#),
        "{}",
        secrets.message()
    );
}

#[tokio::test(start_paused = true)]
async fn impersonation_refusal_matches_member_message() {
    let lab = lab();
    for (token, headers, refused) in [
        (
            "mallory",
            vec![JOE],
            r#"users "joe" is forbidden: User "mallory" cannot impersonate resource "users" in API group "" at the cluster scope"#,
        ),
        (
            "alice",
            vec![("Impersonate-User", "root")],
            r#"users "root" is forbidden: User "alice" cannot impersonate resource "users""#,
        ),
        (
            "alice",
            vec![JOE, ("Impersonate-Group", "dev"), ("Impersonate-Group", "system:masters")],
            r#"groups "system:masters" is forbidden"#,
        ),
        (
            "alice",
            vec![JOE, ("Impersonate-Uid", "8")],
            r#"cannot impersonate resource "uids" in API group "authentication.k8s.io""#,
        ),
        (
            "alice",
            vec![JOE, ("Impersonate-Extra-Scopes", "write")],
            r#"cannot impersonate resource "userextras/scopes""#,
        ),
        (
            "alice",
            vec![JOE, ("Impersonate-Extra-Other", "view")],
            r#"cannot impersonate resource "userextras/other""#,
        ),
        (
            "alice",
            vec![("Impersonate-User", "system:serviceaccount:other:web")],
            r#"cannot impersonate resource "serviceaccounts" in API group "" in the namespace "other""#,
        ),
        // The gateway's own callers are no users of a member.
        (
            "alice",
            vec![
                ("Impersonate-User", "skopos:loopback-anonymous"),
                ("Impersonate-Group", "system:unauthenticated"),
            ],
            "forbidden",
        ),
    ] {
        let told = read(&lab, token, MAPS, &headers).await;
        assert_eq!(told.code, 403, "{headers:?}");
        assert!(told.message().contains(refused), "{headers:?}: {}", told.message());
    }
}

#[tokio::test(start_paused = true)]
async fn unusable_headers_of_impersonation_are_refused() {
    let lab = lab();
    let echo = lab.add_echo("echo");
    for (header, code) in [
        (("Impersonate_User", "joe"), 403),
        (("impersonate_group", "dev"), 403),
        (("Impersonate-Anything", "x"), 403),
        (("Impersonate-Group", "dev"), 400),
        (("Impersonate-Uid", "7"), 400),
        (("Connection", "Impersonate-User"), 400),
    ] {
        let told = read(&lab, "alice", "/clusters/echo/api/v1/pods", &[header]).await;
        assert_eq!(told.code, code, "{header:?}");
    }
    for path in ["/metrics", "/api/v1/status"] {
        let told = read(&lab, "alice", path, &[JOE]).await;
        assert_eq!(told.code, 403, "{path}");
        assert!(told.message().contains("/clusters and /fleet only"), "{}", told.message());
    }
    assert!(echo.seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn revoked_impersonation_right_ends_watch() {
    let lab = lab();
    read(&lab, "alice", MAPS, &[JOE]).await;
    let headers = [("authorization", "Bearer alice"), JOE];
    let answer = lab.send(Method::GET, &format!("{MAPS}?watch=1"), &headers, "").await;
    assert_eq!(answer.status(), 200);
    lab.member("a").auth().answer_reviews(|question| question.verb != "impersonate" && policy(question));
    let ended = timeout(Duration::from_secs(61), told(answer)).await;
    assert!(ended.is_ok(), "the watch goes on");
}

#[tokio::test(start_paused = true)]
async fn merged_view_omits_clusters_denying_impersonation() {
    let lab = lab();
    let path = "/fleet/api/v1/namespaces/shop/configmaps";
    assert_eq!(read(&lab, "joe", path, &[]).await.json()["items"].as_array().unwrap().len(), 2);
    let told = read(&lab, "alice", path, &[JOE]).await;
    let list = told.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    let refused = read(&lab, "mallory", path, &[JOE]).await;
    assert_eq!(refused.code, 403);
    assert!(refused.message().contains(r#"User "mallory" cannot impersonate"#), "{}", refused.message());
}

#[tokio::test(start_paused = true)]
async fn impersonated_requests_count_against_real_caller() {
    let lab = Lab::guarded(&["a"], |config| {
        config.outbound.impersonate = true;
        config.listen.limits.watches_per_user = 1;
    });
    lab.admit("alice", "alice");
    let headers = |user| [("authorization", "Bearer alice"), ("Impersonate-User", user)];
    read(&lab, "alice", MAPS, &[]).await;
    let first = lab.send(Method::GET, &format!("{MAPS}?watch=1"), &headers("joe"), "").await;
    let second = told(lab.send(Method::GET, &format!("{MAPS}?watch=1"), &headers("jim"), "").await).await;
    assert_eq!((first.status().as_u16(), second.code), (200, 429));
    assert!(second.message().starts_with("alice has 1"), "{}", second.message());
    let echo = lab.add_echo("echo");
    let path = "/clusters/echo/api/v1/namespaces/shop/configmaps";
    let headers = [
        ("authorization", "Bearer alice"),
        ("content-type", "application/json"),
        JOE,
        ("Impersonate-Extra-Scopes", "view"),
    ];
    echo.answers(201, &[], r#"{"status": {"allowed": true}}"#);
    lab.send(Method::POST, path, &headers, "{}").await;
    assert_eq!(echo.seen().last().map(impersonated).unwrap(), ["joe", "", "system:authenticated", "view"]);
}

#[tokio::test(start_paused = true)]
async fn member_decides_impersonation_of_trusted_caller() {
    let lab = Lab::with(&[], |config| config.authorization.loopback = LoopbackTrust::Trusted);
    let echo = lab.add_echo("echo");
    let told =
        lab.get("/clusters/echo/api/v1/namespaces/shop/configmaps", &[JOE, ("Impersonate-Uid", "7")]).await;
    assert_eq!((told.code, told.header("skopos-source")), (200, "member"));
    let seen: Vec<_> = echo.seen().iter().map(impersonated).collect();
    assert_eq!(seen, [["joe", "7", "system:authenticated", ""]], "no review of the gateway's own");
}

/// Returns user, uid, groups and scopes of a request.
fn impersonated((request, _): &Seen) -> [String; 4] {
    ["impersonate-user", "impersonate-uid", "impersonate-group", "impersonate-extra-scopes"].map(|name| {
        let values = request.headers().get_all(name).iter().map(|value| value.to_str().unwrap());
        values.collect::<Vec<_>>().join(",")
    })
}
