//! Discovery and OpenAPI through the gateway follow the member's changes at once.

use http::Method;
use serde_json::{Value, json};

use crate::testing::{Lab, told};

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

const CRDS: &str = "/clusters/a/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(group: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

/// Returns, for each document, whether it has the group: discovery in both forms and the index of OpenAPI, of the cluster
/// and of the fleet.
async fn documents_with(lab: &Lab, group: &str) -> Vec<bool> {
    let mut found = Vec::new();
    for (path, accept) in [
        ("/clusters/a/apis", "application/json"),
        ("/clusters/a/apis", AGGREGATED),
        ("/clusters/a/openapi/v3", "application/json"),
        ("/fleet/apis", "application/json"),
        ("/fleet/apis", AGGREGATED),
        ("/fleet/openapi/v3", "application/json"),
    ] {
        let document = lab.get(path, &[("accept", accept)]).await;
        assert_eq!(document.code, 200, "{path}: {document:?}");
        found.push(String::from_utf8_lossy(&document.body).contains(group));
    }
    found
}

#[tokio::test(start_paused = true)]
async fn discovery_lists_kind_exactly_while_served() {
    let lab = Lab::trusting(&["a"]);
    for round in 0..3 {
        let group = format!("x{round}.example");
        assert_eq!(documents_with(&lab, &group).await, [false; 6]);
        let create = definition(&group).to_string();
        let json = [("content-type", "application/json")];
        // Through the gateway, or directly at the member.
        match round {
            0 => assert_eq!(lab.send(Method::POST, CRDS, &json, create).await.status(), 201),
            _ => drop(lab.member("a").create(definition(&group)).unwrap()),
        }
        assert_eq!(documents_with(&lab, &group).await, [true; 6], "{group}");
        let thing = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "t"}});
        let things = format!("/clusters/a/apis/{group}/v1/namespaces/default/things");
        assert_eq!(lab.send(Method::POST, &things, &json, thing.to_string()).await.status(), 201);
        assert_eq!(lab.get(&things, &[]).await.code, 200);
        assert_eq!(lab.get(&format!("/fleet/apis/{group}/v1/things"), &[]).await.code, 200);
        let path = format!("{CRDS}/things.{group}");
        assert_eq!(told(lab.send(Method::DELETE, &path, &[], "").await).await.code, 200);
        assert_eq!(documents_with(&lab, &group).await, [false; 6], "{group} is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_that_has_not_changed_is_not_sent_again() {
    let lab = Lab::trusting(&["a"]);
    let first = lab.get("/clusters/a/apis", &[("accept", AGGREGATED)]).await;
    lab.member("a").clear_requests();
    let asked = (0..50).map(|_| lab.get("/clusters/a/apis", &[("accept", AGGREGATED)]));
    for answer in futures::future::join_all(asked).await {
        assert_eq!(answer.body, first.body);
    }
    let requests = lab.member("a").requests();
    assert!(requests.len() <= 2, "one for all who ask at the same time: {}", requests.len());
    // While the member does not answer, the last answer remains.
    lab.member("a").pause().await;
    let begun = tokio::time::Instant::now();
    assert_eq!(lab.get("/clusters/a/apis", &[("accept", AGGREGATED)]).await.body, first.body);
    assert!(begun.elapsed() <= std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
}
