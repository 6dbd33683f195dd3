//! Answers that depend on the caller are never the gateway's own view.

use http::{Method, Request};
use serde_json::{Value, json};

use crate::config::{Config, LoopbackTrust};
use crate::testing::{Echo, Lab, Told, told};

const PROJECTS: &str = "/apis/project.openshift.io/v1/projects";
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

fn project(name: &str) -> Value {
    json!({"apiVersion": "project.openshift.io/v1", "kind": "Project", "metadata": {"name": name, "resourceVersion": "1"}})
}

/// Answers like a member that shows each caller its own projects, and all of them to the gateway. Reviews allow
/// everything.
fn openshift(request: &Request<()>, defines: bool) -> Option<Value> {
    let who = request.headers().get("impersonate-user").map(|user| user.to_str().unwrap().to_owned());
    let resource = json!({"resource": "projects", "responseKind": {"kind": "Project"}, "scope": "Cluster",
        "verbs": ["get", "list", "watch"]});
    let accept = request.headers().get("accept").map_or("", |accept| accept.to_str().unwrap());
    let is_table = accept.contains("as=Table");
    let table = |rows: &[&[&str]]| {
        let rows: Vec<Value> = rows.iter().map(|cells| json!({"cells": cells})).collect();
        json!({"kind": "Table", "columnDefinitions": [{"name": "Name"}, {"name": "Service"}], "rows": rows})
    };
    Some(match request.uri().path() {
        "/apis" => {
            json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "project.openshift.io"},
            "versions": [{"version": "v1", "resources": [resource]}]}]})
        }
        "/apis/project.openshift.io/v1" => json!({"kind": "APIResourceList", "of": who}),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" => match (is_table, defines) {
            (true, true) => table(&[&["projects.project.openshift.io"]]),
            (true, false) => table(&[]),
            (false, _) => {
                let metadata =
                    json!({"name": "projects.project.openshift.io", "resourceVersion": "1", "uid": "1"});
                let items: Vec<Value> = defines.then(|| json!({"metadata": metadata})).into_iter().collect();
                json!({"kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1",
                    "metadata": {"resourceVersion": "1"}, "items": items})
            }
        },
        "/apis/apiregistration.k8s.io/v1/apiservices" => {
            table(&[&["v1.", "Local"], &["v1.project.openshift.io", "openshift/api"]])
        }
        PROJECTS => {
            let items = match who.as_deref() {
                None => vec![project("everybody-s-secret-project"), project("jane-s")],
                Some(who) => vec![project(&format!("{who}-s"))],
            };
            json!({"kind": "ProjectList", "apiVersion": "project.openshift.io/v1",
                "metadata": {"resourceVersion": "1"}, "items": items})
        }
        "/apis/user.openshift.io/v1/users/~" => {
            json!({"kind": "User", "metadata": {"name": who.unwrap_or("gateway".into())}})
        }
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => json!({"status": {"allowed": true}}),
        _ => return None,
    })
}

/// Returns the paths requested in the gateway's own name, except discovery, definitions and reviews.
fn asked_as_gateway(echo: &Echo) -> Vec<String> {
    let seen = echo.seen();
    let own = seen.iter().filter(|(request, _)| !request.headers().contains_key("impersonate-user"));
    let paths = own.map(|(request, _)| request.uri().path().to_owned());
    paths
        .filter(|path| {
            !["apiextensions", "apiregistration", "subjectaccessreviews"].iter().any(|own| path.contains(own))
        })
        .collect()
}

fn lab(defines: bool, change: impl FnOnce(&mut Config)) -> (Lab, Echo) {
    let lab = Lab::guarded(&["a"], change);
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|_| true);
    let os = lab.add_echo("os");
    os.scripted(move |request| openshift(request, defines));
    (lab, os)
}

fn names(answer: &Told) -> Vec<String> {
    let items = answer.json()["items"].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn caller_dependent_paths_require_impersonation() {
    for defines in [false, true] {
        let (lab, os) = lab(defines, |_| {});
        for path in [
            PROJECTS,
            "/apis/project.openshift.io/v1/projects/jane-s",
            "/apis/project.openshift.io/v1/projects?watch=1",
            "/apis/project.openshift.io/v1",
            "/apis/user.openshift.io/v1/users/~",
            "/whoami",
            "/apis/project.openshift.io/v1/more/than/that/is",
        ] {
            let told = lab.get_as("t-jane", &format!("/clusters/os{path}")).await;
            assert_eq!(told.code, 403, "{path}: {told:?}");
            assert!(told.message().contains("outbound.impersonate"), "{path}: {}", told.message());
        }
        for path in ["/version", "/healthz", "/api", "/apis", "/apis/project.openshift.io", "/api/v1/pods"] {
            assert_eq!(lab.get_as("t-jane", &format!("/clusters/os{path}")).await.code, 200, "{path}");
        }
        let dependent = ["project.openshift.io/v1", "users", "whoami"];
        let asked = asked_as_gateway(&os);
        assert!(asked.iter().all(|path| !dependent.iter().any(|part| path.contains(part))), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn caller_dependent_answers_pass_with_impersonation() {
    let (lab, os) = lab(false, |config| config.outbound.impersonate = true);
    for _ in 0..2 {
        let told = lab.get_as("t-jane", &format!("/clusters/os{PROJECTS}")).await;
        assert_eq!((names(&told), told.header("skopos-source")), (vec!["jane-s".to_owned()], "member"));
    }
    let me = lab.get_as("t-jane", "/clusters/os/apis/user.openshift.io/v1/users/~").await;
    assert_eq!(me.json()["metadata"]["name"], "jane");
    let discovery = lab.get_as("t-jane", "/clusters/os/apis/project.openshift.io/v1").await;
    assert_eq!(discovery.json()["of"], "jane");
    assert!(asked_as_gateway(&os).is_empty());
}

#[tokio::test(start_paused = true)]
async fn aggregated_kinds_are_not_merged() {
    for (defines, impersonate) in [(false, false), (false, true), (true, false), (true, true)] {
        let (lab, os) = lab(defines, |config| config.outbound.impersonate = impersonate);
        let refused = lab.get_as("t-jane", &format!("/fleet{PROJECTS}")).await;
        assert_eq!(refused.code, 403, "{refused:?}");
        assert!(refused.message().contains("/clusters/NAME"), "{}", refused.message());
        let bearer = [("authorization", "Bearer t-jane"), ("accept", AGGREGATED)];
        let groups = lab.get("/fleet/apis", &bearer).await;
        assert!(groups.code == 200 && !names(&groups).contains(&"project.openshift.io".to_owned()));
        assert_eq!(groups.header("warning"), "");
        assert!(asked_as_gateway(&os).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn trusted_callers_see_gateway_view() {
    let lab = Lab::with(&["a"], |config| config.authorization.loopback = LoopbackTrust::Trusted);
    let os = lab.add_echo("os");
    os.scripted(|request| openshift(request, false));
    let told = lab.get(&format!("/clusters/os{PROJECTS}"), &[]).await;
    assert_eq!(names(&told), ["everybody-s-secret-project", "jane-s"]);
    assert_eq!(lab.get(&format!("/fleet{PROJECTS}"), &[]).await.code, 403);
}

/// Checks that reviews of the caller count as writes.
#[tokio::test(start_paused = true)]
async fn self_reviews_require_impersonation() {
    for impersonate in [false, true] {
        let (lab, os) = lab(false, |config| config.outbound.impersonate = impersonate);
        for path in [
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            "/api/v1/namespaces/shop/serviceaccounts/x/token",
        ] {
            let headers = [("authorization", "Bearer t-jane"), ("content-type", "application/json")];
            let answer = lab.send(Method::POST, &format!("/clusters/os{path}"), &headers, "{}").await;
            assert_eq!(told(answer).await.code, if impersonate { 200 } else { 403 }, "{path}");
        }
        assert!(asked_as_gateway(&os).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn defined_kinds_are_cached() {
    let lab = Lab::guarded(&["a"], |_| {});
    lab.admit("t-jane", "jane");
    lab.member("a").auth().answer_reviews(|_| true);
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let define = |plural: &str, kind: &str| {
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.sea.example")},
            "spec": {"group": "sea.example", "scope": "Namespaced", "versions": [version],
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind}}});
        lab.member("a").create(definition).unwrap();
    };
    define("boats", "Boat");
    for path in ["/clusters/a/apis/sea.example/v1/boats", "/clusters/a/apis/sea.example/v1"] {
        let told = lab.get_as("t-jane", path).await;
        assert_eq!((told.code, told.header("skopos-source")), (200, "memory"), "{path}: {told:?}");
    }
    assert_eq!(lab.get_as("t-jane", "/fleet/apis/sea.example/v1/boats").await.code, 200);
    // Immediately after a definition, too.
    define("ships", "Ship");
    let told = lab.get_as("t-jane", "/clusters/a/apis/sea.example/v1/ships").await;
    assert_eq!((told.code, told.header("skopos-source")), (200, "memory"), "{told:?}");
}
