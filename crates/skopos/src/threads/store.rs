use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;
use skopos_reflect::{Condition, ReflectorState, Sink};
use tokio::time::Instant;

use super::{Happened, explore};
use crate::freshness::sleep::SleepClock;
use crate::freshness::{Evidence, FreshnessCell, FreshnessContext};
use crate::store::{Indexer, Snapshot, StoreContent, StoreCore, StoreWriter};
use crate::testing::{Unobserved, apply, commit, list, object, put, snapshot};

const NAMES: [&str; 2] = ["a", "b"];

/// The last RV that a writer writes. At each RV, all objects have this RV.
const LAST: u64 = 6;

/// A store that, at each RV, is proven to hold all changes up to that number of seconds after `begun`.
struct Bench {
    core: Arc<StoreCore>,
    begun: Instant,
}

impl Bench {
    fn new() -> Self {
        let common = FreshnessContext::standalone(SleepClock::from_fn(|| 0));
        let watching = ReflectorState {
            condition: Condition::Watching,
            since: common.clock.now(),
            attempts: 0,
            reason: None,
            retry_at: None,
            undecodable: 0,
        };
        let freshness = FreshnessCell::new(Evidence::new(common, 1));
        freshness.update(0, |part| {
            part.synced = true;
            part.reflector = Arc::new(watching.clone());
        });
        let begun = Instant::now() - Duration::from_secs(60);
        Self { core: StoreCore::new(StoreContent::unsynced(), freshness), begun }
    }

    /// Writes a list, changes, and another list.
    fn write(&self) -> impl FnOnce() + Send + 'static {
        let (core, begun) = (self.core.clone(), self.begun);
        move || {
            let mut writer = StoreWriter::new(core.clone(), 0, Unobserved);
            for rv in 1..=LAST {
                match rv {
                    1 | 4 => {
                        let objects = NAMES.map(|name| object("ns", name, &format!("u-{name}"), rv));
                        list(&mut writer, objects, commit(rv, 0, rv > 1));
                    }
                    5 => writer.advance(&rv.into()),
                    _ => apply(&mut writer, NAMES.map(|name| put(name, &format!("u-{name}"), rv)), rv),
                }
                core.freshness().prove(0, begun + Duration::from_secs(rv));
            }
        }
    }

    /// Checks that the content is whole, belongs to its RV, and is as young as it claims.
    fn check(&self, snapshot: &Snapshot) -> u64 {
        let rv = snapshot.resource_version();
        let rv: u64 = rv.to_string().parse().unwrap();
        let versions: Vec<u64> =
            snapshot.iter().map(|object| object.resource_version().to_string().parse().unwrap()).collect();
        // Nothing changes at 5.
        let written = if rv == 5 { 4 } else { rv };
        let expected = if rv == 0 { vec![] } else { vec![written; NAMES.len()] };
        assert_eq!(versions, expected, "torn at {rv}");
        if let Some(age) = snapshot.age() {
            let proven = (Instant::now() - age) - self.begun;
            assert!(
                Duration::from_secs(rv) >= proven,
                "at {rv} it claims to hold what came until {proven:?}"
            );
        }
        rv
    }
}

#[test]
fn concurrent_snapshots_are_whole_and_monotonic() {
    let between = Happened::default();
    let noted = between.clone();
    explore(move || {
        let bench = Arc::new(Bench::new());
        let writer = thread::spawn(bench.write());
        let readers = [(); 2].map(|()| {
            let (bench, noted) = (bench.clone(), noted.clone());
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..4 {
                    let progress = bench.core.progress().borrow().resource_version.clone();
                    let snapshot = snapshot(&bench.core);
                    let rv = bench.check(&snapshot);
                    assert!(*snapshot.resource_version() >= progress, "behind what was announced");
                    assert!(rv >= last, "from {last} back to {rv}");
                    noted.note(usize::from(0 < rv && rv < LAST));
                    last = rv;
                }
            })
        });
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        writer.join().unwrap();
        assert_eq!(bench.check(&snapshot(&bench.core)), LAST);
    });
    between.check("a read between two writes");
}

#[test]
fn content_that_lacks_something_is_never_called_live() {
    let lacking = Happened::default();
    let noted = lacking.clone();
    explore(move || {
        let bench = Bench::new();
        let (core, begun) = (bench.core.clone(), Instant::now());
        let mut writer = StoreWriter::new(core.clone(), 0, Unobserved);
        list(&mut writer, [object("ns", "a", "u-a", 1)], commit(1, 0, false));
        core.freshness().prove(0, begun);
        let (reader, noted) = (core.clone(), noted.clone());
        let reader = thread::spawn(move || {
            for _ in 0..2 {
                let snapshot = snapshot(&reader);
                let lacks = *snapshot.resource_version() >= 2.into();
                assert!(!(lacks && snapshot.freshness().is_live()), "what was at 2 could not be decoded");
                noted.note(usize::from(lacks));
            }
        });
        core.freshness().update(0, |part| {
            part.reflector =
                Arc::new(ReflectorState { undecodable: 1, ..ReflectorState::clone(&part.reflector) });
        });
        writer.advance(&2.into());
        reader.join().unwrap();
    });
    lacking.check("a read of content that lacks something");
}

#[test]
fn index_added_during_writes_misses_nothing() {
    let between = Happened::default();
    let noted = between.clone();
    explore(move || {
        let bench = Arc::new(Bench::new());
        let writer = thread::spawn(bench.write());
        let (core, noted) = (bench.core.clone(), noted.clone());
        let indexer = thread::spawn(move || {
            core.add_indexer(Indexer::by_label("parity")).unwrap();
            noted.note(usize::from(core.progress().borrow().resource_version < LAST.into()));
        });
        writer.join().unwrap();
        indexer.join().unwrap();
        let snapshot = snapshot(&bench.core);
        assert_eq!(bench.check(&snapshot), LAST);
        let name = snapshot_index(&snapshot);
        let values: Vec<_> = snapshot.index_values(&name).unwrap().collect();
        assert_eq!(values, [("0", NAMES.len())]);
    });
    between.check("an index added before the last write");
}

/// Returns the name of the only index.
fn snapshot_index(snapshot: &Snapshot) -> String {
    let unknown = snapshot.index_values("none of this name").err().unwrap();
    unknown.known.into_iter().next().unwrap()
}
