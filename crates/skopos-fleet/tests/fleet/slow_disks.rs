//! Checkpoints on slow disks, and concurrent events.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use skopos_fleet::checkpoint::{Content, Directory, FileName, KeeperOptions, Store, StoredFile};
use skopos_fleet::{CachedKind, StopReason};
use tokio_util::task::TaskTracker;

use crate::checkpoints::{Kept, confirmed, file, keep_once, known, version};
use crate::support::*;

/// A directory in which some operations are slow, and continue when their callers have given up.
struct Slow {
    directory: Directory,
    under_way: TaskTracker,
    takes: fn(Act, &FileName) -> Duration,
}

#[derive(Clone, Copy, PartialEq)]
enum Act {
    Read,
    Write,
    Remove,
}

const FOR_EVER: Duration = Duration::from_secs(86_400);

impl Slow {
    fn open(directory: &Path, takes: fn(Act, &FileName) -> Duration) -> Self {
        let directory = Directory::open(directory).expect("nobody else uses it");
        Self { directory, under_way: TaskTracker::new(), takes }
    }

    fn after<T: Send + 'static>(
        &self,
        act: Act,
        file: &FileName,
        then: impl Future<Output = io::Result<T>> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let takes = (self.takes)(act, file);
        let acting = self.under_way.spawn(async move {
            tokio::time::sleep(takes).await;
            then.await
        });
        Box::pin(async move { acting.await.expect("no panic") })
    }
}

impl Store for Slow {
    fn read<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<Box<dyn Read + Send>>> {
        let (directory, name) = (self.directory.clone(), file.clone());
        self.after(Act::Read, file, async move { directory.read(&name).await })
    }

    fn write<'a>(&'a self, file: &'a FileName, content: Content) -> BoxFuture<'a, io::Result<u64>> {
        let (directory, name) = (self.directory.clone(), file.clone());
        self.after(Act::Write, file, async move { directory.write(&name, content).await })
    }

    fn remove<'a>(&'a self, file: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        let (directory, name) = (self.directory.clone(), file.clone());
        self.after(Act::Remove, file, async move { directory.remove(&name).await })
    }

    fn rename<'a>(&'a self, from: &'a FileName, to: &'a FileName) -> BoxFuture<'a, io::Result<()>> {
        self.directory.rename(from, to)
    }

    fn list(&self) -> BoxFuture<'_, io::Result<Vec<StoredFile>>> {
        self.directory.list()
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_during_file_removal_keeps_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    let server = world.server("a");
    let store = Slow::open(directory.path(), |act, file| match (act, file.file()) {
        (Act::Remove, "index") => secs(3),
        _ => Duration::ZERO,
    });
    let removals = store.under_way.clone();
    let kept = Kept::over(&world, store, KeeperOptions::default());
    let cluster = join(&kept.fleet, "a");
    cluster.kind(&config_maps(), PLENTY).await.unwrap();
    known(&cluster).await;
    drop(cluster);
    kept.end().await;
    removals.close();
    removals.wait().await;
    server.pause().await;
    let kept = Kept::start(&world, directory.path());
    let kind = join(&kept.fleet, "a").kind(&config_maps(), PLENTY).await.unwrap();
    assert!(kind.has_content());
    drop(kind);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn recreated_cluster_is_served_despite_hung_disk() {
    let never_removes: fn(Act, &FileName) -> Duration = |act, _| match act {
        Act::Remove => FOR_EVER,
        _ => Duration::ZERO,
    };
    let never_writes: fn(Act, &FileName) -> Duration = |act, _| match act {
        Act::Write => FOR_EVER,
        _ => Duration::ZERO,
    };
    for takes in [never_removes, never_writes] {
        let directory = tempfile::tempdir().unwrap();
        let world = World::default();
        world.server("a");
        keep_once(&world, directory.path()).await;
        let other = world.server("a");
        other.create(config_map("other")).unwrap();
        other.pause().await;
        let store = Slow::open(directory.path(), takes);
        let kept = Kept::over(&world, store, KeeperOptions::default());
        let cluster = join(&kept.fleet, "a");
        let before = cluster.kind(&config_maps(), PLENTY).await.unwrap();
        // By then there are changes to write.
        tokio::time::sleep(secs(35)).await;
        other.resume().await.unwrap();
        let ended = tokio::time::timeout(secs(30), before.ended()).await;
        assert_eq!(ended, Ok(StopReason::Replaced));
        let now = cluster.kind(&config_maps(), PLENTY).await.unwrap();
        assert_eq!(names(&cluster, &config_maps()), ["a", "other"]);
        drop((cluster, before, now));
        kept.end().await;
    }
}

/// Checks a race: the server was found to be another cluster, and before the keeper has deleted the old content, a
/// source redirects the cluster.
#[tokio::test(start_paused = true)]
async fn redirect_during_removal_still_reports_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    world.server("a");
    keep_once(&world, directory.path()).await;
    let other = world.server("b");
    world.put("a", &other);
    other.pause().await;
    let store = Slow::open(directory.path(), |act, _| match act {
        Act::Remove => secs(10),
        _ => Duration::ZERO,
    });
    let kept = Kept::over(&world, store, KeeperOptions::default());
    let cluster = join(&kept.fleet, "a");
    let before = cluster.kind(&config_maps(), PLENTY).await.unwrap();
    cluster.document(&version(), PLENTY).await.unwrap();
    other.resume().await.unwrap();
    eventually("it is asked who it is", || requests(&other, "get", "namespaces") > 0).await;
    tokio::time::sleep(secs(1)).await;
    kept.fleet.join(id("a"), spec("b")).unwrap();
    let ended = tokio::time::timeout(secs(30), before.ended()).await;
    assert_eq!(ended, Ok(StopReason::Replaced));
    cluster.kind(&config_maps(), PLENTY).await.unwrap();
    assert_eq!(names(&cluster, &config_maps()), ["b"]);
    drop((cluster, before));
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn restore_continues_after_redirect() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    let server = world.server("a");
    keep_once(&world, directory.path()).await;
    server.pause().await;
    world.put("b", &server);
    let store = Slow::open(directory.path(), |act, file| match (act, file.file().ends_with(".skopos")) {
        (Act::Read, true) => secs(5),
        _ => Duration::ZERO,
    });
    let kept = Kept::over(&world, store, KeeperOptions::default());
    let cluster = join(&kept.fleet, "a");
    tokio::time::sleep(secs(2)).await;
    kept.fleet.join(id("a"), spec("b")).unwrap();
    let kind = cluster.kind(&config_maps(), PLENTY).await.unwrap();
    assert_eq!(names(&cluster, &config_maps()), ["a"]);
    drop(kind);
    // It was saved several times by then.
    tokio::time::sleep(secs(100)).await;
    assert!(file(directory.path(), "a").exists());
    server.resume().await.unwrap();
    confirmed(&cluster).await;
    drop(cluster);
    kept.end().await;
}

/// Checks the same while another file of the cluster is still being read.
#[tokio::test(start_paused = true)]
async fn redirect_does_not_roll_back_restored_content() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::default();
    let server = world.server("a");
    let secrets = resource("secrets", "Secret");
    let first = Kept::start(&world, directory.path());
    let cluster = join(&first.fleet, "a");
    for kind in [&config_maps(), &secrets] {
        cluster.kind(kind, PLENTY).await.unwrap();
    }
    known(&cluster).await;
    drop(cluster);
    first.end().await;
    let store = Slow::open(directory.path(), |act, file| match (act, file.file().contains("secrets")) {
        (Act::Read, true) => secs(15),
        _ => Duration::ZERO,
    });
    let kept = Kept::over(&world, store, KeeperOptions::default());
    let cluster = join(&kept.fleet, "a");
    server.create(config_map("newer")).unwrap();
    let is_there = || {
        let of = |kind: CachedKind| kind.informer().snapshot().len();
        cluster.cached(&config_maps()).map_or(0, of)
    };
    eventually("the watch goes on", || is_there() == 2).await;
    kept.fleet.join(id("a"), spec("nowhere")).unwrap();
    for _ in 0..100 {
        tokio::time::sleep(secs(1)).await;
        assert_eq!(is_there(), 2);
    }
    drop(cluster);
    kept.end().await;
}
