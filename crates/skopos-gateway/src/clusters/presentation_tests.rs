//! Tables have the member's columns, and answers its deprecation warnings.

use std::time::Duration;

use serde_json::{Value, json};
use skopos_testserver::{Fault, Match};
use tokio::time::sleep;

use crate::testing::{Lab, Told};

const ACCOUNTS: &str = "/clusters/a/api/v1/namespaces/default/serviceaccounts";
const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");

fn warnings(told: &Told) -> Vec<&str> {
    told.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
}

fn source(told: &Told) -> &str {
    told.headers["skopos-source"].to_str().unwrap()
}

/// Makes a member of another version: its answer to the request for its presentation of a resource.
fn presents(
    lab: &Lab,
    resource: &str,
    columns: &[&str],
    warning: Option<&str>,
) -> skopos_testserver::FaultGuard {
    let column =
        |name: &&str| json!({"name": name, "type": "string", "format": "", "description": "", "priority": 0});
    let columns: Vec<Value> = columns.iter().map(column).collect();
    let table =
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": columns, "rows": []});
    let mut headers = vec![(http::header::CONTENT_TYPE, "application/json".to_owned())];
    headers.extend(warning.map(|text| (http::header::WARNING, format!("299 - \"{text}\""))));
    let answer = Fault::Answer { code: 200, headers, body: table.to_string() };
    let asked = Match::list().resource(resource).query("includeObject", "None");
    lab.member("a").faults().inject(answer).on(asked)
}

#[tokio::test(start_paused = true)]
async fn tables_with_other_columns_come_from_member() {
    let lab = Lab::trusting(&["a"]);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"namespace": "default", "name": "robot"}});
    lab.member("a").create(account).unwrap();
    let asked = presents(&lab, "serviceaccounts", &["Name", "Secrets", "Age"], None);
    for _ in 0..3 {
        assert_eq!(source(&lab.get(ACCOUNTS, &[TABLE]).await), "member");
        assert_eq!(source(&lab.get(&format!("{ACCOUNTS}/robot"), &[TABLE]).await), "member");
        assert_eq!(source(&lab.get(ACCOUNTS, &[]).await), "memory", "but for tables memory does");
    }
    assert_eq!(asked.hits(), 1, "it is asked once");
    // While the member does not answer, the gateway's columns are better than none, with a warning.
    lab.member("a").pause().await;
    sleep(Duration::from_secs(120)).await;
    let ours = lab.get(ACCOUNTS, &[TABLE]).await;
    assert_eq!((ours.code, source(&ours)), (200, "memory"));
    assert!(warnings(&ours).iter().any(|text| text.contains("columns of this table")), "{ours:?}");
    assert!(!warnings(&lab.get(ACCOUNTS, &[]).await).iter().any(|text| text.contains("columns")));
}

#[tokio::test(start_paused = true)]
async fn tables_with_same_columns_come_from_memory() {
    let lab = Lab::trusting(&["a"]);
    for resource in ["configmaps", "pods", "serviceaccounts", "events"] {
        let path = format!("/clusters/a/api/v1/{resource}");
        let table = lab.get(&path, &[TABLE]).await;
        assert_eq!((source(&table), warnings(&table)), ("memory", vec![]), "{resource}");
    }
    // A member that does not answer is assumed to have the same columns.
    let _silent = lab
        .member("a")
        .faults()
        .inject(Fault::WithholdHeaders)
        .on(Match::list().resource("secrets").query("includeObject", "None"));
    let begun = tokio::time::Instant::now();
    lab.get("/clusters/a/api/v1/services", &[TABLE]).await;
    assert!(begun.elapsed() <= Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn deprecation_warnings_come_from_member() {
    let lab = Lab::trusting(&["a"]);
    let text = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
    let own: Vec<&str> = vec!["Name", "Endpoints", "Age"];
    let _asked = presents(&lab, "endpoints", &own, Some(text));
    for path in ["/clusters/a/api/v1/endpoints", "/clusters/a/api/v1/endpoints?watch=true&timeoutSeconds=1"] {
        let told = lab.get(path, &[]).await;
        assert_eq!(warnings(&told), [format!("299 - \"{text}\"")], "{path}");
    }
    assert_eq!(warnings(&lab.get("/clusters/a/api/v1/pods", &[]).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn custom_version_is_deprecated_as_defined() {
    let lab = Lab::trusting(&["a"]);
    let version = |name: &str, deprecated: bool| {
        json!({"name": name, "served": true, "storage": !deprecated,
        "deprecated": deprecated, "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.sea.example"},
        "spec": {"group": "sea.example", "scope": "Cluster", "names": {"kind": "Boat", "plural": "boats"},
            "versions": [version("v1", false), version("v1beta1", true)]}});
    lab.member("a").create(definition).unwrap();
    let old = lab.get("/clusters/a/apis/sea.example/v1beta1/boats", &[]).await;
    assert_eq!(warnings(&old), ["299 - \"sea.example/v1beta1 Boat is deprecated; use sea.example/v1 Boat\""]);
    assert_eq!(warnings(&lab.get("/clusters/a/apis/sea.example/v1/boats", &[]).await), [""; 0]);
}
