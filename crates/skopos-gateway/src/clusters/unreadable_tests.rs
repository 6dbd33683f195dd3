//! Own writes that memory received in an undecodable form.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use skopos_testserver::{Damage, Fault, Match};
use tokio::time::sleep;

use crate::testing::{Lab, told};

const MAPS: &str = "/clusters/a/api/v1/namespaces/default/configmaps";
const FLEET: &str = "/fleet/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

#[tokio::test(start_paused = true)]
async fn undecodable_own_write_is_not_taken_for_deleted() {
    let lab = Lab::trusting(&["a"]);
    lab.get(MAPS, &[]).await;
    lab.get(FLEET, &[]).await;
    sleep(Duration::from_secs(1)).await;
    let member = lab.member("a");
    let damages: Vec<_> = [Match::watch(), Match::get(), Match::list()]
        .map(|requests| member.faults().inject(Fault::Undecodable(Damage::Labels)).on(requests))
        .into();
    let json = [("content-type", "application/json")];
    let created = told(lab.send(Method::POST, MAPS, &json, map("own").to_string()).await).await;
    assert_eq!(created.code, 201, "{created:?}");
    sleep(Duration::from_secs(20)).await;
    damages.into_iter().for_each(|damage| damage.heal());
    // Memory advances past the version of the own write, without it.
    member.create(map("later")).unwrap();
    sleep(Duration::from_secs(5)).await;
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    for path in [FLEET, MAPS] {
        let listed = names(&lab.get(path, &[]).await.json());
        assert!(listed.contains(&"own".to_owned()), "{path}: {listed:?}");
    }
    assert_eq!(lab.get(&format!("{MAPS}/own"), &[]).await.code, 200);
}
