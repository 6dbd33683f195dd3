//! Restarts of fleets with checkpoints.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use skopos::Status;
use skopos::checkpoint::Checkpoint;
use skopos::wire::GroupResource;
use skopos_fleet::checkpoint::{
    CheckpointKeeper, Content, Directory, FileName, KeeperOptions, KindFilter, RefusalReason, Store,
    StoredFile,
};
use skopos_fleet::source::{ClusterSink, DiscoveredCluster};
use skopos_fleet::{
    Cluster, ClusterId, ClusterOptions, Condition, DocumentRequest, Fleet, FleetOptions, Paused, PausedBy,
    Source, StopReason,
};
use skopos_testserver::{Fault, Match, TestServer};
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// A fleet over a directory, which is released when the fleet has ended.
pub(crate) struct Kept {
    pub(crate) fleet: Fleet,
    keeper: Arc<CheckpointKeeper>,
}

impl Kept {
    pub(crate) fn start(world: &World, directory: &Path) -> Self {
        Self::start_with(world, directory, KeeperOptions::default())
    }

    fn start_with(world: &World, directory: &Path, options: KeeperOptions) -> Self {
        Self::over(world, Directory::open(directory).expect("nobody else uses it"), options)
    }

    pub(crate) fn over(world: &World, store: impl Store, options: KeeperOptions) -> Self {
        let keeper = Arc::new(CheckpointKeeper::new(store, options));
        let cluster = ClusterOptions { prefetch_documents: true, ..self::options() };
        let fleet =
            world.fleet_of(FleetOptions { cluster, keeper: Some(keeper.clone()), ..FleetOptions::default() });
        Self { fleet, keeper }
    }

    pub(crate) async fn end(self) {
        assert!(self.fleet.shutdown(PLENTY).await);
    }
}

/// A source that publishes one list, once.
struct Once(BTreeMap<ClusterId, DiscoveredCluster>);

impl Source for Once {
    fn name(&self) -> String {
        "once".to_owned()
    }

    fn run(self: Box<Self>, sink: ClusterSink, stop: CancellationToken) -> BoxFuture<'static, ()> {
        sink.publish(self.0);
        Box::pin(async move { stop.cancelled().await })
    }
}

/// Runs a fleet that stores the cluster `a`, and ends it.
pub(crate) async fn keep_once(world: &World, directory: &Path) {
    let kept = Kept::start(world, directory);
    let cluster = join(&kept.fleet, "a");
    cluster.kind(&config_maps(), PLENTY).await.expect("the kind is kept");
    known(&cluster).await;
    drop(cluster);
    kept.end().await;
}

/// Waits until the identity of the server is known: nothing of it can be stored before.
pub(crate) async fn known(cluster: &Cluster) {
    let named = |checkpoint: Checkpoint| checkpoint.cluster().is_some();
    let all_named = || cluster.checkpoints().into_iter().all(|(_, checkpoint)| checkpoint.is_ok_and(named));
    eventually("it has said who it is", all_named).await;
}

pub(crate) fn version() -> DocumentRequest {
    DocumentRequest::new("/version", "application/json").expect("a document")
}

/// Returns the number of requests for all objects of a resource. Reflectors use watch-list; other lists are probes, and
/// those of the metadata by which a checkpoint is confirmed.
fn lists(server: &TestServer) -> usize {
    let requests = server.requests();
    let whole =
        |r: &&skopos_testserver::RequestRecord| r.query_param("sendInitialEvents").as_deref() == Some("true");
    let of = |r: &&skopos_testserver::RequestRecord| r.resource.as_deref() == Some("configmaps");
    requests.iter().filter(of).filter(whole).count()
}

pub(crate) fn file(directory: &Path, cluster: &str) -> PathBuf {
    directory.join(cluster).join("core.v1.configmaps.skopos")
}

pub(crate) async fn confirmed(cluster: &Cluster) {
    eventually("the server has confirmed it", || {
        cluster.cached(&config_maps()).is_some_and(|kind| kind.informer().has_synced())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn restored_fleet_has_content_without_list() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    let (up, down, paused) = (world.server("up"), world.server("down"), world.server("paused"));
    let kept = Kept::start(&world, directory.path());
    for name in ["up", "down", "paused"] {
        let cluster = join(&kept.fleet, name);
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        cluster.document(&version(), PLENTY).await.unwrap();
    }
    up.create(config_map("second")).unwrap();
    eventually("the watch brings it", || names(&kept.fleet.get("up").unwrap(), &config_maps()).len() == 2)
        .await;
    kept.end().await;
    up.create(config_map("third")).unwrap();
    tokio::time::sleep(secs(3)).await;
    [&up, &down, &paused].into_iter().for_each(TestServer::clear_requests);
    down.pause().await;

    let kept = Kept::start(&world, directory.path());
    let [up_again, down_again, paused_again] = ["up", "down", "paused"].map(|name| join(&kept.fleet, name));
    paused_again.pause(Paused { by: PausedBy::Operator, since: None });
    for cluster in [&up_again, &down_again, &paused_again] {
        let kind = cluster.kind(&config_maps(), PLENTY).await.unwrap();
        assert!(kind.has_content());
        cluster.document(&version(), PLENTY).await.unwrap();
    }
    eventually("the watch brings what was missed", || names(&up_again, &config_maps()).len() == 3).await;
    confirmed(&up_again).await;
    until_condition(&down_again, Condition::Unreachable).await;
    for (cluster, name) in [(&down_again, "down"), (&paused_again, "paused")] {
        let kind = cluster.kind(&config_maps(), Duration::ZERO).await.unwrap();
        assert!(!kind.informer().has_synced());
        assert_eq!(names(cluster, &config_maps()), [name]);
        // The wall clock is not virtual.
        assert!(kind.informer().freshness().age().is_some(), "{}", kind.informer().freshness());
        assert!(cluster.document(&version(), Duration::ZERO).await.is_ok());
    }
    down.resume().await.unwrap();
    paused_again.resume();
    for cluster in [&down_again, &paused_again] {
        confirmed(cluster).await;
    }
    assert_eq!([&up, &down, &paused].map(lists), [0, 0, 0]);
    assert_eq!(kept.keeper.refused(), 0);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn writes_only_changes_and_removes_unused_files() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    let server = world.server("a");
    let kept = Kept::start(&world, directory.path());
    let cluster = join(&kept.fleet, "a");
    cluster.kind(&config_maps(), PLENTY).await.unwrap();
    let written = || std::fs::metadata(file(directory.path(), "a")).and_then(|meta| meta.modified()).ok();
    eventually("it is written", || written().is_some()).await;
    let first = written();
    let stats = cluster.stats().kept.unwrap();
    assert!(stats.files >= 1 && stats.bytes > 0 && stats.problem.is_none(), "{stats:?}");
    tokio::time::sleep(secs(120)).await;
    assert_eq!(written(), first, "nothing has changed");
    assert!(cluster.stats().kept.unwrap().age.unwrap() <= secs(31), "{:?}", cluster.stats().kept);
    server.create(config_map("new")).unwrap();
    eventually("it is written again", || written() != first).await;
    tokio::time::sleep(secs(700)).await;
    assert!(cluster.cached(&config_maps()).is_none(), "idle");
    eventually("its file goes too", || written().is_none()).await;
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn damaged_checkpoint_is_refused_and_moved_aside() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    let server = world.server("a");
    keep_once(&world, directory.path()).await;
    let whole = std::fs::read(file(directory.path(), "a")).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 4;
    for damaged in [&changed[..], &whole[..whole.len() - 1], b"", b"nonsense"] {
        std::fs::write(file(directory.path(), "a"), damaged).unwrap();
        server.clear_requests();
        let kept = Kept::start(&world, directory.path());
        let cluster = join(&kept.fleet, "a");
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        confirmed(&cluster).await;
        assert_eq!((kept.keeper.refused(), lists(&server)), (1, 1));
        assert!(matches!(kept.keeper.refusals()[0].reason, RefusalReason::Damaged(_)));
        let stats = cluster.stats().kept.unwrap();
        assert!(stats.refused == 1 && stats.problem.unwrap().contains("refused"));
        let aside = directory.path().join("a").join("core.v1.configmaps.skopos.refused");
        assert_eq!(std::fs::read(aside).unwrap(), damaged);
        kept.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn recreated_cluster_does_not_use_old_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    world.server("a");
    keep_once(&world, directory.path()).await;
    // Its resource versions begin at the same number, and it has advanced further.
    let other = world.server("a");
    other.delete("configmaps", Some("default"), "a").unwrap();
    for n in 0..20 {
        other.create(config_map(&format!("other-{n}"))).unwrap();
    }
    other.pause().await;
    let kept = Kept::start(&world, directory.path());
    let cluster = join(&kept.fleet, "a");
    let before = cluster.kind(&config_maps(), PLENTY).await.unwrap();
    assert_eq!(names(&cluster, &config_maps()), ["a"], "nobody knows yet");
    let of_before = before.informer().snapshot().resource_version().to_string();
    // It reveals its identity only after a while.
    let names_of_it = Match::get().resource("namespaces");
    let _busy = other.faults().inject(Fault::status(503, 0)).on(names_of_it).times(2);
    other.resume().await.unwrap();
    assert_eq!(before.ended().await, StopReason::Replaced);
    let now = cluster.kind(&config_maps(), PLENTY).await.unwrap();
    assert_eq!(now.informer().snapshot().len(), 20);
    assert_eq!(lists(&other), 1);
    let watches = other.requests().into_iter().filter(|request| request.verb == "watch");
    let went_on = watches.filter(|request| request.query_param("resourceVersion") == Some(of_before.clone()));
    assert_eq!(went_on.count(), 0, "no watch goes on where the other cluster was");
    drop((cluster, before, now));
    kept.end().await;
    // Checkpoints are of this one from now on.
    other.clear_requests();
    let kept = Kept::start(&world, directory.path());
    let cluster = join(&kept.fleet, "a");
    confirmed(&cluster).await;
    assert_eq!((names(&cluster, &config_maps()).len(), lists(&other)), (20, 0));
    kept.end().await;
}

/// Checks that restored content of a name is not shown for a cluster of another source with that name.
#[tokio::test(start_paused = true)]
async fn checkpoint_is_not_shown_for_other_source() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    world.server("a");
    keep_once(&world, directory.path()).await;
    let kept = Kept::start(&world, directory.path());
    let cluster = join(&kept.fleet, "a");
    confirmed(&cluster).await;
    let other = DiscoveredCluster::up(spec("b"));
    let source = Once([(id("a"), other)].into());
    assert!(kept.fleet.leave(&id("a"), "it is listed elsewhere"));
    kept.fleet.follow(source);
    assert_eq!(kept.fleet.unread_sources(PLENTY).await, 0);
    let other = kept.fleet.cluster("a").unwrap();
    assert!(other != cluster);
    assert!(other.kind(&config_maps(), PLENTY).await.is_err(), "it cannot be reached");
    // Once it exists, it is stored as itself.
    world.server("b");
    other.wake();
    eventually("it is there", || other.state().condition == Condition::Live).await;
    other.kind(&config_maps(), PLENTY).await.unwrap();
    known(&other).await;
    assert_eq!(names(&other, &config_maps()), ["b"]);
    drop((cluster, other));
    kept.end().await;
    let kept = Kept::start(&world, directory.path());
    let cluster = kept.fleet.join(id("a"), spec("b")).unwrap();
    let kind = cluster.kind(&config_maps(), PLENTY).await.unwrap();
    assert_eq!(names(&cluster, &config_maps()), ["b"]);
    drop((kind, cluster));
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn unreadable_uid_prevents_checkpoints() {
    let missing = Status::not_found(GroupResource::new("", "namespaces"), "kube-system");
    for refusal in [Fault::status(403, 0), Fault::Status(missing)] {
        let directory = tempfile::tempdir().unwrap();
        let world = World::default();
        let server = world.server("a");
        let refused = server.faults().inject(refusal).on(Match::get().resource("namespaces"));
        let kept = Kept::start(&world, directory.path());
        let cluster = join(&kept.fleet, "a");
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        kept.keeper.save_now(&kept.fleet).await;
        let stats = cluster.stats().kept.unwrap();
        assert!(stats.files == 0 && stats.problem.unwrap().contains("kube-system"));
        drop(cluster);
        kept.end().await;
        refused.heal();
        let kept = Kept::start(&world, directory.path());
        let cluster = join(&kept.fleet, "a");
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        eventually("it is kept", || cluster.stats().kept.is_some_and(|kept| kept.files > 0)).await;
        kept.end().await;
    }
}

/// Checks that a refusal without Kubernetes' Status proves nothing: the cluster behind the proxy may be down.
#[tokio::test(start_paused = true)]
async fn proxy_refusal_does_not_discard_checkpoint() {
    let not_found = Status::failure(404, "NotFound", "the server could not find the requested resource");
    let not_found = String::from_utf8(not_found.to_vec()).unwrap();
    for (code, body) in [(404, "404 page not found"), (403, "<html>Forbidden</html>"), (404, &not_found)] {
        let directory = tempfile::tempdir().unwrap();
        let world = World::default();
        let server = world.server("a");
        keep_once(&world, directory.path()).await;
        let answer = Fault::Answer { code, headers: Vec::new(), body: body.to_owned() };
        let dead = server.faults().inject(answer).everywhere();
        let kept = Kept::start(&world, directory.path());
        let cluster = join(&kept.fleet, "a");
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        tokio::time::sleep(secs(200)).await;
        assert_eq!(names(&cluster, &config_maps()), ["a"], "{body}");
        assert!(file(directory.path(), "a").exists(), "{body}");
        dead.heal();
        confirmed(&cluster).await;
        drop(cluster);
        kept.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn removes_disallowed_oversized_and_orphaned_files() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    world.server("a");
    let there = || file(directory.path(), "a").exists();
    keep_once(&world, directory.path()).await;
    assert!(there());
    // It is no longer admitted.
    let mut options = KeeperOptions::default();
    options.admits = KindFilter::new(|_| false);
    let kept = Kept::start_with(&world, directory.path(), options);
    let cluster = join(&kept.fleet, "a");
    eventually("it is removed", || !there()).await;
    cluster.kind(&config_maps(), PLENTY).await.unwrap();
    kept.keeper.save_now(&kept.fleet).await;
    assert!(!there());
    drop(cluster);
    kept.end().await;
    // It is too large.
    let mut options = KeeperOptions::default();
    options.total_bytes = 10;
    let kept = Kept::start_with(&world, directory.path(), options);
    let cluster = join(&kept.fleet, "a");
    cluster.kind(&config_maps(), PLENTY).await.unwrap();
    eventually("it is told", || cluster.stats().kept.is_some_and(|kept| kept.problem.is_some())).await;
    assert!(cluster.stats().kept.unwrap().problem.unwrap().contains("more than 10 bytes"));
    assert!(!there());
    drop(cluster);
    kept.end().await;
    // It left the fleet for good.
    let kept = Kept::start(&world, directory.path());
    let cluster = join(&kept.fleet, "a");
    cluster.kind(&config_maps(), PLENTY).await.unwrap();
    eventually("it is written", there).await;
    kept.fleet.leave(&id("a"), "sold");
    tokio::time::sleep(secs(570)).await;
    assert!(there(), "as long as the fleet retains it");
    eventually("nothing is left", || !directory.path().join("a").exists()).await;
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn unfinished_write_of_crash_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    let server = world.server("a");
    let kept = Kept::start(&world, directory.path());
    join(&kept.fleet, "a").kind(&config_maps(), PLENTY).await.unwrap();
    kept.keeper.save_now(&kept.fleet).await;
    let unfinished = file(directory.path(), "a").with_extension("skopos.new");
    std::fs::write(&unfinished, b"half of it").unwrap();
    kept.end().await;
    server.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "b"}})).unwrap();
    server.clear_requests();
    let kept = Kept::start(&world, directory.path());
    let cluster = join(&kept.fleet, "a");
    confirmed(&cluster).await;
    kept.keeper.save_now(&kept.fleet).await;
    assert!(!unfinished.exists(), "the next one took its place");
    assert_eq!((names(&cluster, &config_maps()).len(), lists(&server), kept.keeper.refused()), (2, 0, 0));
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn unclaimed_checkpoint_expires_after_grace_period() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    world.server("a");
    keep_once(&world, directory.path()).await;
    // Nothing ran for two days.
    set_age(directory.path(), "a", secs(2 * 24 * 3600));
    let kept = Kept::start(&world, directory.path());
    tokio::time::sleep(secs(23 * 3600)).await;
    assert!(file(directory.path(), "a").exists());
    tokio::time::sleep(secs(2 * 3600)).await;
    assert!(!directory.path().join("a").exists());
    kept.end().await;
}

/// Checks that files that are not checkpoints stay, wherever they are.
#[tokio::test(start_paused = true)]
async fn tidying_removes_checkpoints_alone() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    world.server("a");
    keep_once(&world, directory.path()).await;
    let gone = directory.path().join("gone");
    std::fs::rename(directory.path().join("a"), &gone).unwrap();
    let mut options = KeeperOptions::default();
    options.orphans = secs(3600);
    let kept = Kept::start_with(&world, directory.path(), options);
    let cluster = join(&kept.fleet, "a");
    cluster.kind(&config_maps(), PLENTY).await.unwrap();
    eventually("it is kept", || cluster.stats().kept.is_some_and(|kept| kept.files > 0)).await;
    let others = [
        "mydata/precious.txt",
        ".ssh/id_rsa",
        "gone/notes",
        "gone/x.v1.mine.skopos",
        "a/notes",
        "a/y.v1.mine.skopos",
    ];
    for other in others {
        let path = directory.path().join(other);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "precious").unwrap();
    }
    for folder in ["mydata", ".ssh", "gone", "a"] {
        set_age(directory.path(), folder, secs(3 * 24 * 3600));
    }
    tokio::time::sleep(secs(2 * 3600)).await;
    for other in others {
        assert_eq!(std::fs::read_to_string(directory.path().join(other)).unwrap(), "precious", "{other}");
    }
    assert!(!gone.join("index").exists() && !file(directory.path(), "gone").exists());
    assert!(directory.path().join("a/index").exists());
    drop(cluster);
    kept.end().await;
}

/// A store with one file that cannot be read the first time.
struct Flaky {
    directory: Directory,
    file: Mutex<Option<&'static str>>,
}

impl Store for Flaky {
    fn read<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<Box<dyn Read + Send>>> {
        match self.file.lock().take_if(|unreadable| file.to_string() == *unreadable) {
            Some(_) => std::future::ready(Err(io::Error::other("too many open files"))).boxed(),
            None => self.directory.read(file),
        }
    }

    fn write<'a>(&'a self, file: &'a FileName, content: Content) -> BoxFuture<'a, io::Result<u64>> {
        self.directory.write(file, content)
    }

    fn remove<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        self.directory.remove(file)
    }

    fn rename<'a>(&'a self, from: &'a FileName, to: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        self.directory.rename(from, to)
    }

    fn list(&self) -> BoxFuture<'_, io::Result<Vec<StoredFile>>> {
        self.directory.list()
    }
}

/// Sets the modification times of all files of a cluster back by `age`, because the wall clock is not virtual.
fn set_age(directory: &Path, cluster: &str, age: Duration) {
    for entry in std::fs::read_dir(directory.join(cluster)).expect("a folder") {
        let file = std::fs::File::options().append(true).open(entry.expect("a file").path());
        file.and_then(|file| file.set_modified(std::time::SystemTime::now() - age)).expect("set");
    }
}

#[tokio::test(start_paused = true)]
async fn transient_read_error_keeps_file_for_retry() {
    for unreadable in ["a/core.v1.configmaps.skopos", "a/index"] {
        let directory = tempfile::tempdir().unwrap();
        let world = World::default();
        let server = world.server("a");
        keep_once(&world, directory.path()).await;
        set_age(directory.path(), "a", secs(3600));
        server.pause().await;
        let store = Directory::open(directory.path()).unwrap();
        let store = Flaky { directory: store, file: Mutex::new(Some(unreadable)) };
        let kept = Kept::over(&world, store, KeeperOptions::default());
        let cluster = join(&kept.fleet, "a");
        tokio::time::sleep(secs(601)).await;
        assert_eq!(kept.keeper.refused(), 1);
        assert!(matches!(kept.keeper.refusals()[0].reason, RefusalReason::Unreadable(_)));
        drop(cluster);
        kept.end().await;
        assert!(file(directory.path(), "a").exists(), "{unreadable}");

        let kept = Kept::start(&world, directory.path());
        let cluster = join(&kept.fleet, "a");
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        assert_eq!(names(&cluster, &config_maps()), ["a"], "{unreadable}");
        drop(cluster);
        kept.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn late_index_applies_only_to_verified_cluster() {
    for made_anew in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let world = World::default();
        world.server("a");
        keep_once(&world, directory.path()).await;
        let server = if made_anew { Some(world.server("a")) } else { None };
        let store = Directory::open(directory.path()).unwrap();
        let store = Flaky { directory: store, file: Mutex::new(Some("a/index")) };
        let kept = Kept::over(&world, store, KeeperOptions::default());
        let cluster = join(&kept.fleet, "a");
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        if let Some(server) = &server {
            server.create(config_map("new")).unwrap();
        }
        eventually("it is kept", || cluster.stats().kept.is_some_and(|kept| kept.files > 0)).await;
        drop(cluster);
        kept.end().await;

        let kept = Kept::start(&world, directory.path());
        let cluster = join(&kept.fleet, "a");
        confirmed(&cluster).await;
        assert_eq!(names(&cluster, &config_maps()).len(), if made_anew { 2 } else { 1 });
        assert_eq!(kept.keeper.refused(), 0);
        kept.end().await;
    }
}

#[cfg(feature = "object-store")]
#[tokio::test(start_paused = true)]
async fn a_bucket_does_as_well_as_a_directory() {
    use object_store::ObjectStore;
    use object_store::local::LocalFileSystem;
    use object_store::memory::InMemory;
    use skopos_fleet::checkpoint::{Bucket, BucketLimits};

    let directory = tempfile::tempdir().unwrap();
    let local = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
    let stores: [Arc<dyn ObjectStore>; 2] = [Arc::new(InMemory::new()), Arc::new(local)];
    for objects in stores {
        let world = World::default();
        let server = world.server("a");
        let bucket = |limits| Bucket::new(objects.clone(), "some/prefix", limits);
        let start = || Kept::over(&world, bucket(BucketLimits::default()), KeeperOptions::default());
        let kept = start();
        let join = |fleet: &Fleet| fleet.join(id("A"), spec("a")).unwrap();
        let cluster = join(&kept.fleet);
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        known(&cluster).await;
        drop(cluster);
        kept.end().await;
        let stored = bucket(BucketLimits::default()).list().await.unwrap();
        let checkpoint = stored.iter().find(|file| file.name.to_string() == "=41/core.v1.configmaps.skopos");
        let checkpoint = checkpoint.unwrap_or_else(|| panic!("{stored:?}")).name.clone();
        server.clear_requests();
        let kept = start();
        let cluster = join(&kept.fleet);
        confirmed(&cluster).await;
        assert_eq!((names(&cluster, &config_maps()).len(), lists(&server), kept.keeper.refused()), (1, 0, 0));
        drop(cluster);
        kept.end().await;
        // Damaged: refused, and moved aside.
        let content = Content::Bytes("nonsense".into());
        bucket(BucketLimits::default()).write(&checkpoint, content).await.unwrap();
        let kept = start();
        let cluster = join(&kept.fleet);
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        assert_eq!((lists(&server), kept.keeper.refused()), (1, 1));
        let stored = bucket(BucketLimits::default()).list().await.unwrap();
        assert!(stored.iter().any(|file| file.name.file().ends_with(".refused")), "{stored:?}");
        // Too large: neither written nor read.
        let small = bucket(BucketLimits { bytes: 3, ..BucketLimits::default() });
        assert!(small.write(&checkpoint, Content::Bytes("four".into())).await.is_err());
        kept.fleet.leave(&id("A"), "sold");
        tokio::time::sleep(secs(700)).await;
        assert!(bucket(BucketLimits::default()).list().await.unwrap().is_empty());
        kept.end().await;
    }
}

#[cfg(feature = "object-store")]
#[tokio::test(start_paused = true)]
async fn hanging_bucket_delays_start_once() {
    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};
    use skopos_fleet::checkpoint::{Bucket, BucketLimits};
    use tokio::time::Instant;

    let world = World::default();
    let members: Vec<String> = (0..40).map(|number| format!("member-{number}")).collect();
    let servers: Vec<TestServer> = members.iter().map(|name| world.server(name)).collect();
    let objects = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
    let start = || {
        let bucket = Bucket::new(objects.clone(), "prefix", BucketLimits::default());
        let kept = Kept::over(&world, bucket, KeeperOptions::default());
        members.iter().for_each(|name| drop(join(&kept.fleet, name)));
        kept
    };
    let kept = start();
    for cluster in kept.fleet.members().values() {
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
        known(cluster).await;
    }
    kept.end().await;
    let hang = |on: bool| {
        let long = if on { secs(3600) } else { Duration::ZERO };
        objects.config_mut(|config| {
            config.wait_get_per_call = long;
            config.wait_put_per_call = long;
            config.wait_list_per_call = long;
            config.wait_delete_per_call = long;
        });
    };
    hang(true);
    let kept = start();
    let begun = Instant::now();
    for cluster in kept.fleet.members().values() {
        cluster.kind(&config_maps(), PLENTY).await.unwrap();
    }
    let limits = BucketLimits::default();
    assert!(begun.elapsed() < limits.answer + secs(2), "{:?}", begun.elapsed());
    for (id, cluster) in kept.fleet.members().iter() {
        let stats = cluster.stats().kept.unwrap();
        assert!(stats.refused > 0 && stats.problem.is_some(), "{id}: {stats:?}");
    }
    // In the middle of a write that does not end either.
    tokio::time::sleep(secs(35)).await;
    let begun = Instant::now();
    kept.end().await;
    assert!(begun.elapsed() < secs(7), "{:?}", begun.elapsed());

    // The content from before the outage is there after it.
    hang(false);
    tokio::time::sleep(limits.pause).await;
    servers.iter().for_each(TestServer::clear_requests);
    let kept = start();
    for cluster in kept.fleet.members().values() {
        confirmed(cluster).await;
    }
    assert_eq!(kept.keeper.refused(), 0);
    assert_eq!(servers.iter().map(lists).sum::<usize>(), 0);
    kept.end().await;
}

#[cfg(feature = "object-store")]
#[tokio::test(start_paused = true)]
async fn bucket_is_paused_after_failures_then_retried() {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::stream::BoxStream;
    use object_store::memory::InMemory;
    use object_store::path::Path as Key;
    use object_store::*;
    use skopos_fleet::checkpoint::{Bucket, BucketLimits};

    /// A store that refuses every read, and counts the attempts.
    #[derive(Debug)]
    struct Refuses(InMemory, Arc<AtomicU32>);

    impl std::fmt::Display for Refuses {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Refuses")
        }
    }

    #[async_trait::async_trait]
    impl ObjectStore for Refuses {
        async fn put_opts(&self, at: &Key, what: PutPayload, how: PutOptions) -> Result<PutResult> {
            self.0.put_opts(at, what, how).await
        }

        async fn put_multipart_opts(
            &self,
            at: &Key,
            how: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.0.put_multipart_opts(at, how).await
        }

        async fn get_opts(&self, at: &Key, _how: GetOptions) -> Result<GetResult> {
            match self.1.fetch_add(1, Ordering::Relaxed) {
                // Not found: not a failure.
                0..4 => Err(Error::NotFound { path: at.to_string(), source: "none".into() }),
                _ => Err(Error::PermissionDenied { path: at.to_string(), source: "no".into() }),
            }
        }

        fn delete_stream(&self, keys: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
            self.0.delete_stream(keys)
        }

        fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
            self.0.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
            self.0.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Key, to: &Key, how: CopyOptions) -> Result<()> {
            self.0.copy_opts(from, to, how).await
        }
    }

    let asked = Arc::new(AtomicU32::new(0));
    let bucket = Bucket::new(Arc::new(Refuses(InMemory::new(), asked.clone())), "", BucketLimits::default());
    let file = FileName::checked("a", "b").unwrap();
    let kind = async || bucket.below("x").read(&file).await.err().unwrap().kind();
    for _ in 0..4 {
        assert_eq!(kind().await, io::ErrorKind::NotFound);
    }
    for _ in 0..3 {
        assert_eq!(kind().await, io::ErrorKind::PermissionDenied);
    }
    for _ in 0..100 {
        assert_eq!(kind().await, io::ErrorKind::NotConnected, "it is left alone");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 7);
    tokio::time::sleep(BucketLimits::default().pause).await;
    assert_eq!(kind().await, io::ErrorKind::PermissionDenied);
    assert_eq!(kind().await, io::ErrorKind::NotConnected, "one failure is enough");
}

#[test]
fn no_name_of_a_file_leads_elsewhere() {
    for (folder, file) in [("", "a"), ("a", ""), ("..", "a"), ("a", ".a"), ("a/b", "c"), ("a", "b c")] {
        assert_eq!(FileName::checked(folder, file), None, "{folder} {file}");
    }
    assert_eq!(FileName::checked("=41", "core.v1.pods").unwrap().to_string(), "=41/core.v1.pods");
}
