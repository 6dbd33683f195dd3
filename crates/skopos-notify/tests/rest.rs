//! The sink of inventories, against a scripted one.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use skopos_notify::sink::rest::{ItemTemplate, RestOptions, RestSink, UrlTemplate};
use skopos_notify::sink::{
    EntryMark, Observed, ObservedEntry, ObservedMember, Serving, Sink, SinkError, SinkStep, StepAction,
    StepOutcome,
};
use skopos_notify::{
    DesiredEntry, DesiredView, EntryName, EntryOwner, EntryValue, Packed, PlanOptions, Planner, Readiness,
    SinkPlan,
};
use skopos_reflect::Time;
use support::inventory::{Fault, Inventory};
use support::secs;

const PUT_URL: &str = "/nodes/{tree}/hosts/{ip}";
const WEB: &str = "/nodes/shop/hosts/10.0.0.1";

fn options(inventory: &Inventory) -> RestOptions {
    let item = ItemTemplate::parse("/nodes/{node}/hosts/{host}").expect("a template");
    let base = inventory.url("").parse().expect("a URL");
    let mut options = RestOptions::new(base, "/hosts?owner=skopos", item);
    options.fields = vec!["ip".to_owned()];
    options.token = Some("secret".to_owned());
    options.http.allow = vec!["127.0.0.0/8".parse().expect("a network")];
    options
}

fn sink(inventory: &Inventory) -> RestSink {
    RestSink::new(options(inventory)).expect("a sink")
}

/// Makes a sink with a short time limit.
fn impatient(inventory: &Inventory) -> RestSink {
    let mut options = options(inventory);
    options.http.time_limit = Duration::from_millis(300);
    RestSink::new(options).expect("a sink")
}

fn value(sink: &RestSink, ip: &str) -> EntryValue {
    sink.value(&json!({"ip": ip}).to_string()).expect("a value")
}

fn owner() -> EntryOwner {
    EntryOwner {
        resource: "pod".into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: "web-1".into(),
    }
}

fn put(name: &EntryName, before: Option<&ObservedEntry>, values: &[EntryValue]) -> SinkStep {
    let members = values.iter().map(|value| (value.clone(), Serving::Active)).collect();
    let action = StepAction::Put { owner: owner().into(), members };
    SinkStep { name: name.clone(), before: before.cloned(), action }
}

fn delete(name: &EntryName, before: &ObservedEntry) -> SinkStep {
    SinkStep { name: name.clone(), before: Some(before.clone()), action: StepAction::Delete }
}

fn ours(value: &EntryValue) -> ObservedEntry {
    let members = [(value.clone(), ObservedMember::default())].into_iter().collect();
    ObservedEntry { mark: EntryMark::Ours(None), members, tidy: true }
}

fn only(name: &EntryName, value: &EntryValue) -> Observed {
    Observed { entries: BTreeMap::from([(name.clone(), ours(value))]) }
}

#[tokio::test]
async fn written_item_is_read_replaced_and_deleted() {
    let inventory = Inventory::new().await;
    let sink = sink(&inventory);
    assert_eq!(sink.observe().await, Ok(Observed::default()));
    let name = sink.name(&inventory.url(WEB)).unwrap();
    let (old, new) = (value(&sink, "10.0.0.1"), value(&sink, "10.0.0.2"));
    assert_eq!(sink.apply(&put(&name, None, std::slice::from_ref(&old)), None).await, StepOutcome::Done);
    assert_eq!(inventory.items(), BTreeMap::from([(WEB.to_owned(), json!({"ip": "10.0.0.1"}))]));
    assert_eq!(sink.observe().await, Ok(only(&name, &old)));
    // The present value is still among them, because nothing is removed before something is added.
    let both = [old.clone(), new.clone()];
    assert_eq!(sink.apply(&put(&name, Some(&ours(&old)), &both), None).await, StepOutcome::Done);
    assert_eq!(sink.observe().await, Ok(only(&name, &new)));
    let names = [name.clone()].into();
    assert_eq!(sink.read(&names).await, Ok(only(&name, &new)));
    assert_eq!(sink.apply(&delete(&name, &ours(&new)), None).await, StepOutcome::Done);
    assert_eq!(sink.observe().await, Ok(Observed::default()));
    // Another client was faster.
    assert_eq!(sink.apply(&delete(&name, &ours(&new)), None).await, StepOutcome::Done);
    let requests = inventory.requests();
    let first = &requests[1];
    assert_eq!((first.method.as_str(), first.path.as_str()), ("PUT", WEB));
    assert_eq!(first.headers["content-type"], "application/json");
    assert_eq!(first.headers["if-none-match"], "*");
    assert!(requests.iter().all(|request| request.headers["authorization"] == "Bearer secret"));
    let replacing = requests.iter().rfind(|request| request.method == "PUT").unwrap();
    assert_eq!(replacing.headers.get("if-none-match"), None);
}

#[tokio::test]
async fn foreign_item_is_never_touched() {
    let inventory = Inventory::new().await;
    inventory.set(WEB, json!({"ip": "10.0.0.1", "by": "hand"}));
    let mut options = options(&inventory);
    options.owner_field = Some(("by".to_owned(), "skopos".to_owned()));
    let sink = RestSink::new(options).unwrap();
    let name = sink.name(WEB).unwrap();
    let observed = sink.observe().await.unwrap();
    let entry = &observed.entries[&name];
    assert_eq!(entry.mark, EntryMark::Foreign);
    let mine = [value(&sink, "10.0.0.1")];
    // With and without having observed the concurrent item.
    for before in [Some(entry), None] {
        let outcome = sink.apply(&put(&name, before, &mine), None).await;
        assert!(matches!(outcome, StepOutcome::Conflict(_)), "{outcome:?}");
    }
    assert!(matches!(sink.apply(&delete(&name, entry), None).await, StepOutcome::Conflict(_)));
    assert_eq!(inventory.items()[WEB], json!({"ip": "10.0.0.1", "by": "hand"}));
    // Our item names its owner.
    let other = sink.name("/nodes/shop/hosts/10.0.0.2").unwrap();
    assert_eq!(sink.apply(&put(&other, None, &mine), None).await, StepOutcome::Done);
    assert_eq!(inventory.items()[other.as_str()], json!({"ip": "10.0.0.1", "by": "skopos"}));
    assert_eq!(sink.observe().await.unwrap().entries[&other].mark, EntryMark::Ours(None));
}

#[tokio::test]
async fn a_list_of_many_pages_is_read_whole() {
    let inventory = Inventory::new().await;
    for host in 0..25 {
        inventory.set(&format!("/nodes/shop/hosts/h{host}"), json!({"ip": "10.0.0.1"}));
    }
    inventory.set_page(10);
    let sink = sink(&inventory);
    assert_eq!(sink.observe().await.unwrap().entries.len(), 25);
    let paths: Vec<_> = inventory.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/hosts?owner=skopos", "/hosts?page=1", "/hosts?page=2"]);
    inventory.script(|request| (request.path == "/hosts?page=2").then_some(Fault::Status(500, "")));
    let error = sink.observe().await.unwrap_err();
    assert!(matches!(&error, SinkError::Unreachable(problem) if problem.contains("page=2")), "{error:?}");
}

#[tokio::test]
async fn rejects_list_link_to_other_origin_or_back() {
    let inventory = Inventory::new().await;
    let sink = sink(&inventory);
    for (link, part) in [
        ("link: <http://127.0.0.1:1/hosts>; rel=next\r\n", "one origin"),
        ("link: <//169.254.169.254/hosts>; rel=next\r\n", "empty segment"),
        ("link: <?owner=skopos>; rel=next\r\n", "no end"),
        ("link: <?page=1; rel=next\r\n", "cannot be read"),
    ] {
        inventory.script(move |_| Some(Fault::Body(link, "[]".to_owned())));
        let error = sink.observe().await.unwrap_err();
        assert!(matches!(&error, SinkError::Incomplete(problem) if problem.contains(part)), "{error:?}");
    }
    assert!(inventory.requests().iter().all(|request| request.path == "/hosts?owner=skopos"));
}

#[tokio::test]
async fn incomplete_list_is_error_not_empty_inventory() {
    let inventory = Inventory::new().await;
    for host in 0..3 {
        inventory.set(&format!("/nodes/shop/hosts/h{host}"), json!({"ip": "10.0.0.1"}));
    }
    let sink = sink(&inventory);
    let body = |text: &str| Fault::Body("", text.to_owned());
    let faults = [
        Fault::Cut(0),
        Fault::Cut(100),
        body(""),
        body("[{\"node\": \"shop\","),
        body("<html>please log in</html>"),
        body("{}"),
        body("null"),
        body("{\"error\": \"no rights\"}"),
        body("[{\"id\": 7}]"),
        body("{\"items\": [], \"next\": \"/hosts?page=2\"}"),
        body(
            "[{\"node\": \"a\", \"host\": \"b\", \"ip\": \"1\"}, {\"node\": \"a\", \"host\": \"b\", \"ip\": \"2\"}]",
        ),
        Fault::Status(204, ""),
        Fault::Status(206, ""),
    ];
    for fault in faults {
        let answer = fault.clone();
        inventory.script(move |_| Some(answer.clone()));
        let error = sink.observe().await.unwrap_err();
        assert!(matches!(error, SinkError::Incomplete(_)), "{fault:?}: {error:?}");
        let name = sink.name(WEB).unwrap();
        assert!(sink.read(&[name].into()).await.is_err());
    }
    inventory.script(|_| None);
    assert_eq!(sink.observe().await.unwrap().entries.len(), 3);
}

#[tokio::test]
async fn page_over_size_limit_is_error() {
    let inventory = Inventory::new().await;
    inventory.script(|_| Some(Fault::Body("", format!("[]{}", " ".repeat(64 * 1024 * 1024)))));
    let mut options = options(&inventory);
    options.http.time_limit = secs(60);
    let error = RestSink::new(options).unwrap().observe().await.unwrap_err();
    assert!(matches!(&error, SinkError::Incomplete(problem) if problem.contains("longer than")), "{error:?}");
}

#[tokio::test]
async fn refused_list_error_names_remedy() {
    let inventory = Inventory::new().await;
    let sink = sink(&inventory);
    for (status, more, part) in [
        (401, "", "token is missing"),
        (403, "", "no right"),
        (404, "", "there is no list"),
        (302, "location: http://169.254.169.254/\r\n", "redirects are not followed"),
    ] {
        inventory.script(move |_| Some(Fault::Status(status, more)));
        let error = sink.observe().await.unwrap_err();
        assert!(matches!(&error, SinkError::Refused(problem) if problem.contains(part)), "{error:?}");
    }
    for status in [429, 500, 503] {
        inventory.script(move |_| Some(Fault::Status(status, "")));
        let error = sink.observe().await.unwrap_err();
        assert!(matches!(&error, SinkError::Unreachable(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_list_that_hangs_is_unreachable() {
    let inventory = Inventory::new().await;
    let sink = impatient(&inventory);
    for fault in [Fault::Hang, Fault::HangWithin] {
        inventory.script(move |_| Some(fault.clone()));
        let error = sink.observe().await.unwrap_err();
        assert!(matches!(&error, SinkError::Unreachable(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_write_without_an_answer_may_have_been_done() {
    let inventory = Inventory::new().await;
    let waiting = sink(&inventory);
    let (name, value) = (waiting.name(WEB).unwrap(), value(&waiting, "10.0.0.1"));
    for (fault, text) in [(Fault::Hang, "no answer"), (Fault::Status(500, ""), "500")] {
        inventory.script(move |request| (request.method == "PUT").then(|| fault.clone()));
        let outcome =
            impatient(&inventory).apply(&put(&name, None, std::slice::from_ref(&value)), None).await;
        assert!(
            matches!(&outcome, StepOutcome::Unknown(problem) if problem.contains(text)),
            "{text}: {outcome:?}"
        );
    }
    // The first write was done.
    assert_eq!(waiting.observe().await, Ok(only(&name, &value)));
}

#[tokio::test]
async fn refused_write_outcome_follows_response_status() {
    let inventory = Inventory::new().await;
    let sink = sink(&inventory);
    let (name, value) = (sink.name(WEB).unwrap(), value(&sink, "10.0.0.1"));
    let apply = async |status, more| {
        inventory.script(move |_| Some(Fault::Status(status, more)));
        sink.apply(&put(&name, None, std::slice::from_ref(&value)), None).await
    };
    for status in [400, 401, 403, 404, 405, 422] {
        let outcome = apply(status, "").await;
        assert!(
            matches!(&outcome, StepOutcome::Refused(problem) if problem.contains("as scripted")),
            "{outcome:?}"
        );
    }
    let moved = apply(302, "location: http://169.254.169.254/\r\n").await;
    assert!(matches!(&moved, StepOutcome::Refused(problem) if problem.contains("not followed")), "{moved:?}");
    for status in [409, 412] {
        assert!(matches!(apply(status, "").await, StepOutcome::Conflict(_)));
    }
    for status in [429, 503] {
        assert!(matches!(apply(status, "retry-after: 7\r\n").await, StepOutcome::Unreachable(_)));
        assert!(matches!(apply(status, "").await, StepOutcome::Unknown(_)));
    }
}

#[tokio::test]
async fn down_or_forbidden_host_is_unreachable() {
    let item = ItemTemplate::parse("/{host}").unwrap();
    for (base, allow, text) in [
        ("http://169.254.169.254", None, "may not be connected to"),
        ("http://127.0.0.1:1", None, "may not be connected to"),
        ("http://127.0.0.1:1", Some("127.0.0.0/8"), "refused"),
    ] {
        let mut options = RestOptions::new(base.parse().unwrap(), "/hosts", item.clone());
        options.fields = vec!["ip".to_owned()];
        options.http.allow = allow.iter().map(|network| network.parse().unwrap()).collect();
        let sink = RestSink::new(options).unwrap();
        let error = sink.observe().await.unwrap_err();
        assert!(matches!(&error, SinkError::Unreachable(problem) if problem.contains(text)), "{error:?}");
        let (name, value) = (sink.name("/a").unwrap(), value(&sink, "1"));
        let outcome = sink.apply(&put(&name, None, &[value]), None).await;
        assert!(matches!(&outcome, StepOutcome::Unreachable(_)), "{outcome:?}");
    }
}

#[tokio::test]
async fn hostile_fields_stay_in_segment_or_are_refused() {
    let inventory = Inventory::new().await;
    let sink = sink(&inventory);
    let template = UrlTemplate::parse(&inventory.url(PUT_URL)).unwrap();
    let fill = |tree: &str| template.fill(|place| Some(if place == "tree" { tree } else { "h" }.to_owned()));
    let mut names = BTreeSet::new();
    for tree in ["a/b", "?x=", "#x", "%2e%2e", "%2F", "a b", "ü", "{ip}", "a;b", "a\\b", "…", "\u{202e}"] {
        let name = sink.name(&fill(tree).unwrap()).unwrap();
        let outcome = sink.apply(&put(&name, None, &[value(&sink, "10.0.0.1")]), None).await;
        assert_eq!(outcome, StepOutcome::Done, "{tree}");
        let requests = inventory.requests();
        let path = &requests.last().unwrap().path;
        assert_eq!(path, name.as_str());
        assert_eq!(path.split(['/', '?']).count(), 5, "{path}");
        names.insert(name);
    }
    // The list has them decoded, and they give the same names.
    let observed: BTreeSet<_> = sink.observe().await.unwrap().entries.into_keys().collect();
    assert_eq!(observed, names);
    for tree in ["", ".", "..", "../..", "a/../b", "..\\", "a\r\nHost: x", "a\nb", "\0"] {
        let problem = fill(tree).unwrap_err().to_string();
        assert!(problem.starts_with("{tree} cannot be "), "{problem}");
    }
}

/// Executes the planner's steps until none is due.
async fn settle(planner: &mut Planner, sink: &RestSink, now: Time) -> SinkPlan {
    for _ in 0..20 {
        let plan = planner.plan(now);
        for step in &plan.steps {
            let outcome = sink.apply(step, None).await;
            planner.outcome(now, &step.name, outcome);
        }
        if plan.steps.is_empty() && plan.read.is_empty() {
            return plan;
        }
        if plan.steps.is_empty() {
            let observed = sink.read(&plan.read).await.expect("a list");
            planner.read(now, &plan.read, &observed);
        }
    }
    panic!("there is always something to do");
}

#[tokio::test]
async fn changed_value_is_written_exactly_once() {
    let inventory = Inventory::new().await;
    let sink = sink(&inventory);
    let now = Time::ORIGIN + secs(1_000);
    let mut planner = Planner::new(sink.traits(), PlanOptions::default());
    planner.observed(now, now, sink.observe().await.expect("a list"));
    let name = sink.name(WEB).expect("a name");
    for ip in ["10.0.0.2", "10.0.0.1"] {
        let members = [(value(&sink, ip), Readiness::Ready)].into_iter().collect();
        let entries = BTreeMap::from([(
            name.clone(),
            Packed::new(&vec![DesiredEntry { owner: owner().into(), members }]),
        )]);
        planner.set_view(DesiredView { entries: Arc::new(entries), as_of: Some(now), cluster: None });
        let plan = settle(&mut planner, &sink, now).await;
        assert!(plan.is_equal, "{plan:?}");
        assert_eq!(inventory.items()[WEB], json!({"ip": ip}));
    }
    let puts = inventory.requests().iter().filter(|request| request.method == "PUT").count();
    assert_eq!((puts, planner.stats().conflicts), (2, 0));
}
