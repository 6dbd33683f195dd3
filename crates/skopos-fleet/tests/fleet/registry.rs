//! Members of a fleet, and the sources that list them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use skopos::LabelSelector;
use skopos_fleet::kubeconfig::KubeconfigError;
use skopos_fleet::source::{ClusterSink, DiscoveredCluster, PowerState};
use skopos_fleet::{
    ClusterId, Condition, Fleet, FleetChange, Paused, PausedBy, Source, SpecError, StopReason,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// A source controlled by the test.
#[derive(Clone)]
struct Said {
    name: &'static str,
    sink: Arc<Mutex<Option<ClusterSink>>>,
}

impl Said {
    async fn follow(fleet: &Fleet, name: &'static str) -> Self {
        let said = Self { name, sink: Arc::default() };
        fleet.follow(said.clone());
        let sink = said.sink.clone();
        eventually("the source runs", || sink.lock().is_some()).await;
        said
    }

    fn say<const N: usize>(&self, clusters: [(&str, DiscoveredCluster); N]) {
        let all: BTreeMap<ClusterId, DiscoveredCluster> =
            clusters.into_iter().map(|(name, listed)| (id(name), listed)).collect();
        self.sink.lock().as_ref().expect("the source runs").publish(all);
    }
}

impl Source for Said {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn run(self: Box<Self>, sink: ClusterSink, stop: CancellationToken) -> BoxFuture<'static, ()> {
        *self.sink.lock() = Some(sink);
        Box::pin(async move { stop.cancelled().await })
    }
}

fn up(name: &str) -> DiscoveredCluster {
    DiscoveredCluster::up(spec(name))
}

fn labelled(name: &str, label: &str) -> DiscoveredCluster {
    DiscoveredCluster::up(spec(name).with_labels([("team", label)]))
}

fn bad() -> DiscoveredCluster {
    let spec = Err(SpecError::Kubeconfig(KubeconfigError::NoCertificateAuthority));
    DiscoveredCluster { spec, ..up("broken") }
}

#[tokio::test(start_paused = true)]
async fn followers_see_clusters_added_changed_removed() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    let source = Said::follow(&fleet, "list").await;
    let mut changes = fleet.changes();
    source.say([("a", labelled("a", "red")), ("b", labelled("b", "blue"))]);
    let told = |change: Option<FleetChange>| match change.unwrap() {
        FleetChange::Added(cluster) => format!("+{}", cluster.id()),
        FleetChange::Changed(cluster) => format!("~{} {}", cluster.id(), cluster.state().condition),
        FleetChange::Removed(cluster) => format!("-{}", cluster.id()),
        other => format!("{other:?}"),
    };
    assert_eq!(told(changes.next().await), "+a");
    assert_eq!(told(changes.next().await), "+b");
    let select = |selector: &str| {
        let selected = fleet.select(&LabelSelector::parse(selector).unwrap());
        selected.iter().map(|cluster| cluster.id().to_string()).collect::<Vec<_>>()
    };
    assert_eq!((select("team=red"), select("team")), (vec!["a".into()], vec!["a".into(), "b".into()]));
    // Other labels are another state, but not another connection.
    source.say([("a", labelled("a", "blue")), ("b", labelled("b", "blue"))]);
    assert_eq!(told(changes.next().await), "~a connecting");
    assert_eq!(select("team=blue").len(), 2);
    fleet.cluster("a").unwrap().kind(&config_maps(), secs(5)).await.unwrap();
    assert_eq!(told(changes.next().await), "~a live");
    source.say([("a", labelled("a", "blue"))]);
    assert_eq!(told(changes.next().await), "-b");
    assert_eq!(fleet.cluster("b").unwrap().state().reason.as_deref(), Some("list does not list it any more"));
    // A late follower sees the present clusters.
    let mut late = fleet.changes();
    assert_eq!(told(late.next().await), "+a");
}

#[tokio::test(start_paused = true)]
async fn unread_sources_awaits_first_list_of_each_source() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    assert_eq!(fleet.unread_sources(secs(5)).await, 0, "none is followed");
    let (one, other) = (Said::follow(&fleet, "one").await, Said::follow(&fleet, "other").await);
    let begun = Instant::now();
    let waiting = async { (fleet.unread_sources(secs(5)).await, fleet.get("a").is_some()) };
    let saying = async {
        one.say([]);
        tokio::time::sleep(secs(1)).await;
        other.say([("a", up("a"))]);
    };
    let (seen, ()) = tokio::join!(waiting, saying);
    assert_eq!(seen, (0, true), "who waited sees what was listed");
    assert!(begun.elapsed() < secs(2));
    // A source that cannot be read is awaited once, not by every caller.
    let third = Said::follow(&fleet, "third").await;
    third.sink.lock().as_ref().unwrap().trouble(Some("no such file".into()));
    let begun = Instant::now();
    assert_eq!(fleet.unread_sources(secs(5)).await, 1);
    assert!(begun.elapsed() >= secs(4));
    let begun = Instant::now();
    assert_eq!((fleet.unread_sources(secs(5)).await, begun.elapsed()), (1, secs(0)));
    third.say([]);
    assert_eq!(fleet.unread_sources(secs(0)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn invalid_kubeconfig_affects_only_its_cluster() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    let source = Said::follow(&fleet, "list").await;
    source.say([("a", up("a")), ("broken", bad())]);
    fleet.cluster("a").unwrap().kind(&config_maps(), secs(5)).await.unwrap();
    let broken = fleet.cluster("broken").unwrap();
    assert_eq!(broken.kind(&config_maps(), secs(5)).await.unwrap_err().as_str(), "config");
    until_condition(&broken, Condition::Unreachable).await;
    assert!(broken.state().reason.as_deref().unwrap().contains("certificate-authority-data"));
    let problems = fleet.problems();
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].source.as_str(), problems[0].cluster.as_ref()), ("list", Some(&id("broken"))));
    // Once repaired, it is reachable.
    world.server("broken");
    source.say([("a", up("a")), ("broken", up("broken"))]);
    broken.kind(&config_maps(), secs(5)).await.unwrap();
    assert!(fleet.problems().is_empty());
    // A reachable cluster is not dropped for a kubeconfig that is broken later.
    source.say([("a", bad()), ("broken", up("broken"))]);
    tokio::time::sleep(secs(5)).await;
    assert_eq!(fleet.cluster("a").unwrap().state().condition, Condition::Live);
    assert_eq!(fleet.problems().len(), 1);
}

fn there(fleet: &Fleet) -> Vec<String> {
    let members = fleet.members();
    let there = members.values().filter(|cluster| cluster.state().condition != Condition::Removed);
    there.map(|cluster| cluster.id().to_string()).collect()
}

fn server(fleet: &Fleet, name: &str) -> String {
    let spec = fleet.cluster(name).expect("a cluster").spec().expect("it can be used");
    spec.server().host().expect("a host").to_owned()
}

#[tokio::test(start_paused = true)]
async fn same_name_in_two_sources_yields_stable_names() {
    let world = World::default();
    for name in ["a", "b"] {
        world.server(name);
    }
    let fleet = world.fleet();
    let first = Said::follow(&fleet, "first").await;
    let second = Said::follow(&fleet, "second").await;
    second.say([("x", up("b"))]);
    assert!(fleet.get("x").is_none(), "the first may have one of this name");
    first.say([("x", up("a"))]);
    let names_of_all = there(&fleet);
    assert_eq!((names_of_all.len(), names_of_all[0].as_str()), (2, "x"));
    let other = names_of_all[1].as_str();
    assert!(other.starts_with("x-") && other.len() == 10, "{other}");
    assert_eq!((server(&fleet, "x"), server(&fleet, other)), ("a".into(), "b".into()));
    assert!(fleet.problems().is_empty());
    let of_second = fleet.cluster(other).unwrap();
    of_second.kind(&config_maps(), secs(5)).await.unwrap();
    assert_eq!(names(&of_second, &config_maps()), ["b"]);
    // The name is free when its cluster is gone, and no request for it goes to the other cluster.
    first.say([]);
    assert_eq!(there(&fleet), [other]);
    assert_eq!(fleet.cluster("x").unwrap().state().condition, Condition::Removed);
    // Other clusters that join and leave change nothing either.
    first.say([("x", up("a")), ("y", up("a"))]);
    assert_eq!((server(&fleet, "x"), server(&fleet, other)), ("a".into(), "b".into()));
    assert!(fleet.cluster(other).unwrap() == of_second);
    until_condition(&of_second, Condition::Live).await;
    // The same lists again, in another process.
    let again = world.fleet();
    let first = Said::follow(&again, "first").await;
    let second = Said::follow(&again, "second").await;
    first.say([("x", up("a"))]);
    second.say([("x", up("b"))]);
    assert_eq!(there(&again), names_of_all);
}

#[tokio::test(start_paused = true)]
async fn silent_source_reserves_names_only_briefly() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    let silent = Said::follow(&fleet, "silent").await;
    let other = Said::follow(&fleet, "other").await;
    other.say([("x", up("a"))]);
    assert!(fleet.get("x").is_none());
    tokio::time::sleep(secs(11)).await;
    assert_eq!(server(&fleet, "x"), "a");
    // It is too late for the name.
    silent.say([("x", up("b"))]);
    assert_eq!((server(&fleet, "x"), there(&fleet).len()), ("a".into(), 2));
    // A source that cannot list its clusters reports that.
    let (third, fourth) = (Said::follow(&fleet, "third").await, Said::follow(&fleet, "fourth").await);
    fourth.say([("y", up("a"))]);
    assert!(fleet.get("y").is_none());
    third.sink.lock().as_ref().unwrap().trouble(Some("no such file".into()));
    assert_eq!(server(&fleet, "y"), "a");
}

#[tokio::test(start_paused = true)]
async fn joined_and_exact_names_win_over_generated() {
    let world = World::default();
    for name in ["a", "b", "c"] {
        world.server(name);
    }
    let fleet = world.fleet();
    let source = Said::follow(&fleet, "list").await;
    let made_up = ClusterId::from_name("team/prod");
    let called = |name: &str, host: &str| DiscoveredCluster { name: Some(name.into()), ..up(host) };
    source.say([(made_up.as_str(), called("team/prod", "a"))]);
    let cluster = fleet.cluster(made_up.as_str()).unwrap();
    let kind = cluster.kind(&config_maps(), secs(5)).await.unwrap();
    assert_eq!(cluster.original_name().as_deref(), Some("team/prod"));
    // Another context has exactly this name.
    let other = Said::follow(&fleet, "other").await;
    other.say([(made_up.as_str(), called(made_up.as_str(), "b"))]);
    assert_eq!(server(&fleet, made_up.as_str()), "b");
    assert_eq!(kind.end_reason(), Some(StopReason::Replaced), "watchers are told");
    assert_eq!(fleet.cluster(made_up.as_str()).unwrap().original_name(), None);
    let all = there(&fleet);
    assert!(all.len() == 2 && server(&fleet, &all[1]) == "a", "{all:?}");
    // This process uses the name for a cluster of its own.
    join(&fleet, "c");
    source.say([("c", up("a"))]);
    assert_eq!(server(&fleet, "c"), "c");
    let own = fleet.join(made_up.clone(), spec("c")).unwrap();
    assert_eq!(server(&fleet, made_up.as_str()), "c");
    assert!(own.is_replacement() && there(&fleet).iter().any(|name| server(&fleet, name) == "b"));
}

/// Checks that the data of one cluster is not shown for another one of its name: readers of one need not be allowed to
/// read the other.
#[tokio::test(start_paused = true)]
async fn name_taken_by_other_source_starts_empty() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    let first = Said::follow(&fleet, "first").await;
    let second = Said::follow(&fleet, "second").await;
    first.say([("x", up("a")), ("y", up("a"))]);
    second.say([]);
    for name in ["x", "y"] {
        fleet.cluster(name).unwrap().kind(&config_maps(), secs(5)).await.unwrap();
    }
    let mut changes = fleet.changes();
    for _ in 0..2 {
        assert!(
            matches!(changes.next().await.unwrap(), FleetChange::Added(cluster) if !cluster.is_replacement())
        );
    }
    let (x, y) = (fleet.cluster("x").unwrap(), fleet.cluster("y").unwrap());
    first.say([("y", up("a"))]);
    second.say([("x", up("nowhere"))]);
    let other = fleet.cluster("x").unwrap();
    assert!(other != x && other.is_replacement() && other.kinds().is_empty());
    assert!(matches!(changes.next().await.unwrap(), FleetChange::Removed(cluster) if cluster == x));
    assert!(matches!(changes.next().await.unwrap(), FleetChange::Forgotten(cluster) if cluster == x));
    assert!(matches!(changes.next().await.unwrap(), FleetChange::Added(cluster) if cluster == other));
    assert!(other.kind(&config_maps(), secs(60)).await.is_err(), "it cannot be reached, and has nothing");
    // A source may redirect its own cluster.
    first.say([("y", labelled("a", "red"))]);
    first.say([("y", up("elsewhere"))]);
    assert!(fleet.cluster("y").unwrap() == y && names(&y, &config_maps()) == ["a"]);
}

#[tokio::test(start_paused = true)]
async fn name_from_other_origin_starts_empty() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    let source = Said::follow(&fleet, "list").await;
    let from = |origin: &str, listed| DiscoveredCluster { origin: Some(origin.into()), ..listed };
    source.say([("x", from("one", up("a")))]);
    let cluster = fleet.cluster("x").unwrap();
    cluster.kind(&config_maps(), secs(5)).await.unwrap();
    // The same server, another address, an unusable spec: the place stays the same.
    source.say([("x", from("another", up("a")))]);
    source.say([("x", from("another", up("nowhere")))]);
    source.say([("x", from("another", bad()))]);
    assert!(fleet.cluster("x").unwrap() == cluster && names(&cluster, &config_maps()) == ["a"]);
    // The entry of the other place is unusable at first, too.
    source.say([("x", from("third", bad()))]);
    source.say([("x", from("third", up("nowhere")))]);
    let other = fleet.cluster("x").unwrap();
    assert!(other != cluster && other.is_replacement() && other.kinds().is_empty());
    assert_eq!(cluster.state().reason.as_deref(), Some("list has another of its name"));
}

/// Checks that the data of a removed cluster can be read for a while, and that its name is free meanwhile.
#[tokio::test(start_paused = true)]
async fn name_reused_after_removal_starts_empty() {
    let world = World::default();
    world.server("a");
    let fleet = world.fleet();
    let first = Said::follow(&fleet, "first").await;
    let second = Said::follow(&fleet, "second").await;
    first.say([("x", up("a"))]);
    let before = fleet.cluster("x").unwrap();
    let kind = before.kind(&config_maps(), secs(5)).await.unwrap();
    second.say([]);
    let (generation, stop_watcher) = (before.generation(), kind.stop_watcher());
    first.say([]);
    assert!(
        names(&before, &config_maps()) == ["a"] && stop_watcher.end_reason() == Some(StopReason::Removed)
    );
    // The same cluster is back, and is removed again.
    first.say([("x", up("a"))]);
    let back = fleet.cluster("x").unwrap();
    assert!(back != before && !back.is_replacement() && back.generation() != generation);
    first.say([]);
    // The name is free.
    second.say([("x", up("nowhere"))]);
    let other = fleet.cluster("x").unwrap();
    assert!(
        other != back
            && other.is_replacement()
            && ![generation, back.generation()].contains(&other.generation())
    );
    assert!(other.kinds().is_empty());
    // When a cluster replaces a present one, readers of the old one are notified.
    second.say([("x", up("a"))]);
    let kind = other.kind(&config_maps(), secs(5)).await.unwrap();
    assert!(!stop_watcher.is_of(&kind) && kind.stop_watcher().is_of(&kind));
    fleet.join(id("x"), spec("elsewhere")).unwrap();
    assert_eq!(kind.end_reason(), Some(StopReason::Replaced));
    fleet.leave(&id("x"), "over");
    // Once its data is dropped, no trace of it is left.
    first.say([]);
    second.say([]);
    tokio::time::sleep(secs(3600)).await;
    assert!(fleet.get("x").is_none());
    first.say([("x", up("a"))]);
    assert!(!fleet.cluster("x").unwrap().is_replacement());
}

#[tokio::test(start_paused = true)]
async fn a_source_pauses_and_resumes() {
    let world = World::default();
    let server = world.server("a");
    let fleet = world.fleet();
    let source = Said::follow(&fleet, "list").await;
    let with = |power_state| [("a", DiscoveredCluster { power_state, ..up("a") })];
    let paused = || PowerState::Paused(Paused { by: PausedBy::Annotation, since: None });
    source.say(with(paused()));
    let cluster = fleet.cluster("a").unwrap();
    assert_eq!(cluster.kind(&config_maps(), secs(5)).await.unwrap_err().as_str(), "paused");
    server.pause().await;
    source.say(with(PowerState::Starting));
    let _ = cluster.kind(&config_maps(), secs(5)).await;
    tokio::time::sleep(secs(300)).await;
    assert_eq!(cluster.state().condition, Condition::Connecting, "{}", cluster.state());
    server.resume().await.unwrap();
    let ready = tokio::time::Instant::now();
    source.say(with(PowerState::Up));
    until_condition(&cluster, Condition::Live).await;
    assert!(ready.elapsed() <= secs(2), "{:?}", ready.elapsed());
    // The operator's pause remains until the source lists something new.
    cluster.pause(Paused { by: PausedBy::Operator, since: None });
    source.say(with(PowerState::Up));
    assert_eq!(cluster.state().condition, Condition::Paused);
    source.say(with(paused()));
    source.say(with(PowerState::Up));
    until_condition(&cluster, Condition::Live).await;
}
