//! Kinds that are not built in.

use super::*;
use crate::testing::Lab;

const BOATS: &str = "/apis/sea.example/v1/boats";
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Returns a definition of boats: of this kind, in this scope, served in this version.
fn definition(kind: &str, scope: &str, version: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.sea.example"},
        "spec": {
            "group": "sea.example",
            "scope": scope,
            "names": {"plural": "boats", "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "additionalPrinterColumns": [{"name": "Sails", "type": "integer", "jsonPath": ".spec.sails"}],
            }],
        },
    })
}

fn boat(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "sea.example/v1", "kind": "Boat", "metadata": {"namespace": namespace, "name": name},
        "spec": {"sails": 3}})
}

impl Bed {
    fn define(&self, cluster: &str, kind: &str, scope: &str, version: &str) {
        self.server(cluster).create(definition(kind, scope, version)).unwrap();
    }

    fn boat(&self, cluster: &str, name: &str) {
        self.server(cluster).create(boat("default", name)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn kind_of_one_cluster_is_served_for_all() {
    let bed = Bed::new(&["north", "south"]);
    bed.define("north", "Boat", "Namespaced", "v1");
    bed.boat("north", "ark");
    // Discovery in all its forms.
    let groups = bed.get("/apis").await;
    let group = json!({"groupVersion": "sea.example/v1", "version": "v1"});
    let listed =
        groups.json["groups"].as_array().unwrap().iter().find(|group| group["name"] == "sea.example");
    assert_eq!(listed.unwrap()["preferredVersion"], group);
    assert_eq!(groups.warnings(), "");
    let resources = bed.get("/apis/sea.example/v1").await;
    let boats = &resources.json["resources"][0];
    assert_eq!(
        (&boats["name"], &boats["kind"], &boats["namespaced"]),
        (&json!("boats"), &json!("Boat"), &json!(true))
    );
    let all = bed.told("/apis", AGGREGATED).await;
    let items = all.json["items"].as_array().unwrap();
    assert_eq!(
        items[0]["metadata"]["name"], groups.json["groups"][0]["name"],
        "what is built in comes first"
    );
    let last = items.last().unwrap();
    assert_eq!(
        (&last["metadata"]["name"], &last["versions"][0]["resources"][0]["resource"]),
        (&json!("sea.example"), &json!("boats"))
    );
    assert_eq!(bed.get("/apis/air.example").await.code, 404);

    // The schema of its objects.
    let index = bed.get("/openapi/v3").await;
    let address = index.json["paths"]["apis/sea.example/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(address.starts_with("/openapi/v3/apis/sea.example/v1?hash="), "{address}");
    let schema = bed.get(address).await;
    assert!(schema.code == 200 && schema.json["components"]["schemas"].to_string().contains("Boat"));
    assert!(index.json["paths"]["apis/apps/v1"].is_object());
    assert_eq!(bed.get("/openapi/v3/apis/air.example/v1").await.code, 404);

    // A cluster without the kind has nothing to show, and is not missing.
    let list = bed.get(BOATS).await;
    assert_eq!((list.code, list.warnings().as_str(), &list.json["kind"]), (200, "", &json!("BoatList")));
    assert_eq!(list.items(), ["north/default/ark"]);
    let table = bed.table(BOATS).await;
    let columns = table.json["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<_> = columns.map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns[..3], ["Cluster", "Name", "Sails"]);
    assert_eq!(
        table.json["rows"][0]["cells"].as_array().unwrap()[..3],
        json!(["north", "ark", 3]).as_array().unwrap()[..]
    );
    let one = bed.get("/apis/sea.example/v1/namespaces/default/boats/ark").await;
    assert_eq!((one.code, name_of(&one.json).as_str()), (200, "north/default/ark"));

    // The cluster gets the kind while a watch is open.
    let mut watch = bed.watch_of(BOATS, &format!("resourceVersion={}", list.version())).await;
    bed.boat("north", "barge");
    says(&watch.event().await, "ADDED", "north/default/barge");
    watch.silent().await;
    bed.define("south", "Boat", "Namespaced", "v1");
    bed.boat("south", "canoe");
    says(&watch.event().await, "ADDED", "south/default/canoe");
    assert_eq!(
        bed.get(BOATS).await.items(),
        ["north/default/ark", "north/default/barge", "south/default/canoe"]
    );
    // A member that fails keeps its content, as with any kind.
    bed.server("north").pause_with(CloseMode::Rst).await;
    watch.silent().await;
    let down = bed.until(BOATS, |list| !list.warnings().is_empty()).await;
    assert!(
        down.items().len() == 3 && down.warnings().contains("data may be old: north"),
        "{}",
        down.warnings()
    );
    assert_eq!(bed.table(BOATS).await.json["columnDefinitions"][2]["name"], "Sails");
}

#[tokio::test(start_paused = true)]
async fn kind_of_no_cluster_is_not_found() {
    let bed = Bed::new(&["north", "south"]);
    let none = bed.get(BOATS).await;
    assert_eq!((none.code, none.message()), (404, "the server could not find the requested resource"));
    assert_eq!(bed.get("/apis/sea.example/v1").await.code, 404);
    // Unless the state of one is unknown: then the answer names it.
    bed.services.fleet.leave(&id("south"), "for another");
    sleep(Duration::from_secs(601)).await;
    bed.server("south").pause_with(CloseMode::Rst).await;
    bed.services.fleet.join(id("south"), spec()).unwrap();
    sleep(Duration::from_secs(10)).await;
    let none = bed.get(BOATS).await;
    assert!(none.code == 404 && none.message().contains("nothing is known of south"), "{}", none.message());
    let groups = bed.get("/apis").await;
    assert!(groups.code == 200 && groups.warnings().contains("south"), "{}", groups.warnings());
    bed.define("north", "Boat", "Namespaced", "v1");
    sleep(Duration::from_secs(31)).await;
    let list = bed.get(BOATS).await;
    assert!(list.code == 200 && list.warnings().contains("nothing is shown of south"), "{}", list.warnings());
}

#[tokio::test(start_paused = true)]
async fn majority_definition_wins_and_others_are_named() {
    let bed = Bed::new(&["east", "north", "south", "west"]);
    bed.define("east", "Trap", "Cluster", "v1");
    bed.define("north", "Boat", "Namespaced", "v1");
    bed.define("south", "Boat", "Namespaced", "v1");
    bed.define("west", "Boat", "Namespaced", "v1beta1");
    bed.boat("north", "ark");
    bed.server("east")
        .create(json!({"apiVersion": "sea.example/v1", "kind": "Trap", "metadata": {"name": "lure"}}))
        .unwrap();
    let groups = bed.get("/apis/sea.example").await;
    assert_eq!(groups.json["preferredVersion"]["version"], "v1", "most have it");
    assert!(
        groups.warnings().contains("east") && groups.warnings().contains("Trap"),
        "{}",
        groups.warnings()
    );
    assert_eq!(bed.get("/apis/sea.example/v1").await.json["resources"][0]["kind"], "Boat");
    let list = bed.get(BOATS).await;
    assert_eq!(list.items(), ["north/default/ark"]);
    let missing = list.json["metadata"]["annotations"]["skopos.dev/missing"].as_str().unwrap();
    assert!(
        missing.contains("east (its boats.sea.example of v1 are of kind Trap, outside of namespaces"),
        "{missing}"
    );
    assert!(missing.contains("west (it has boats.sea.example in v1beta1 only)"), "{missing}");
    assert!(!missing.contains("north") && !missing.contains("south"), "{missing}");
    // A request for its cluster alone gets its objects.
    let east = bed.get(&format!("{BOATS}?clusters=east")).await;
    assert_eq!((east.items(), east.warnings().as_str()), (vec!["east//lure".to_owned()], ""));
    let west = bed.get("/apis/sea.example/v1beta1/boats?clusters=west").await;
    assert_eq!((west.code, west.warnings().as_str()), (200, ""));
}

#[tokio::test(start_paused = true)]
async fn hides_kinds_of_forbidden_clusters() {
    let mut bed = Bed::with(&["north", "south"], KindsOptions::default(), |_| {});
    bed.who = Arc::new(Identity::authenticated("jane", []));
    bed.server("north").auth().answer_reviews(|_| true);
    bed.server("south").auth().answer_reviews(|question| question.user != "jane");
    let mut seen = Vec::new();
    for there in [false, true] {
        if there {
            bed.define("south", "Boat", "Namespaced", "v1");
            bed.boat("south", "ark");
            sleep(Duration::from_secs(60)).await;
        }
        let groups = bed.get("/apis").await;
        assert!(groups.warnings().contains("you may not read") && groups.warnings().contains("south"));
        let list = bed.get(BOATS).await;
        let alone = bed.get(&format!("{BOATS}?clusters=south")).await;
        assert_eq!((list.code, alone.code), (404, 403));
        seen.push([groups.json, list.json, alone.json]);
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test(start_paused = true)]
async fn hostile_discovery_does_not_affect_other_members() {
    let lab = Lab::trusting(&["good"]);
    lab.member("good").create(definition("Boat", "Namespaced", "v1")).unwrap();
    lab.member("good").create(boat("default", "ark")).unwrap();
    let evil = lab.add_echo("evil");
    let json = [("content-type", "application/json")];
    let kinds = |told: &crate::testing::Told| -> Vec<String> {
        let items = told.json()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let before = kinds(&lab.get("/fleet/apis", &[("accept", AGGREGATED)]).await);
    assert!(before.contains(&"sea.example".to_owned()));
    for (body, told) in [
        (r#"{"kind":"Nonsense"}"#, "aggregated form"),
        (r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":["x"]}}]}"#, "aggregated form"),
        (&*Box::leak(" ".repeat(9 << 20).into_boxed_str()), "more than 8 MiB"),
        (
            r#"{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"../../etc"},"versions":[{"version":"v1","resources":[
            {"resource":"x/y","responseKind":{"kind":"X"},"scope":"Namespaced","verbs":["list","watch"]}]}]},
            {"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[
            {"resource":"deployments","responseKind":{"kind":"Trap"},"scope":"Cluster","verbs":["list","watch"]}]}]}]}"#,
            "",
        ),
    ] {
        evil.answers(200, &json, body);
        sleep(Duration::from_secs(60)).await;
        let groups = lab.get("/fleet/apis", &[("accept", AGGREGATED)]).await;
        assert_eq!(kinds(&groups), before);
        let warning = groups.header("warning").to_owned();
        assert!(told.is_empty() || warning.contains("evil") && warning.contains(told), "{told}: {warning}");
        assert!(!told.is_empty() || warning.is_empty(), "{warning}");
        let list = lab.get(&format!("/fleet{BOATS}"), &[]).await;
        assert_eq!((list.code, list.json()["items"].as_array().unwrap().len()), (200, 1));
        let deployments = lab.get("/fleet/apis/apps/v1", &[]).await.json();
        assert!(!deployments.to_string().contains("Trap"));
    }
}

/// Checks the text of warnings. A member's text would reach the callers of all members, and errors of other kinds would
/// reveal which kinds others use.
#[tokio::test(start_paused = true)]
async fn warnings_cover_requested_kind_and_quote_no_member() {
    let lab = Lab::trusting(&["good"]);
    let evil = lab.add_echo("evil");
    evil.scripted(|request| {
        let list = |kind: &str| json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
        Some(match request.uri().path() {
            "/api/v1/pods" => list("PodList"),
            "/api/v1/events" => json!({"kind": "Status", "code": 403, "message": "buy now at evil.example"}),
            "/api/v1/configmaps" => json!({"kind": "Status", "code": 500, "message": "buy now at evil.example"}),
            "/api/v1/secrets" => json!({"kind": "SecretList"}),
            "/version" | "/api" | "/apis" | "/openapi/v3" => return None,
            _ => json!({"kind": "Status", "code": 404, "message": "buy now at evil.example"}),
        })
    });
    let warnings = async |kind: &str| {
        let list = lab.get(&format!("/fleet/api/v1/{kind}"), &[]).await;
        let all = list.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned());
        let annotations = list.json()["metadata"]["annotations"].to_string();
        all.chain([annotations]).collect::<Vec<_>>().join("\n")
    };
    for _ in 0..3 {
        for (kind, told) in [("events", "evil (it answers 403"), ("configmaps", "evil ("), ("pods", "evil")] {
            let said = warnings(kind).await;
            assert!(said.contains(told), "{kind}: {said}");
            assert!(!said.contains("evil.example") && !said.contains("buy now"), "{kind}: {said}");
            for other in ["events", "configmaps", "pods", "secrets"].iter().filter(|other| **other != kind) {
                assert!(!said.contains(other), "{kind}: {said}");
            }
            assert!(kind != "pods" || !said.contains("it answers"), "{said}");
        }
        sleep(Duration::from_secs(90)).await;
    }
}
