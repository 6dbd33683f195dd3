//! Ledgers in a bucket whose answers are lost, whose writes are late, and that several processes open.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use parking_lot::Mutex;
use proptest::prelude::*;
use skopos::{ObjectKey, ResourceVersion};
use skopos_bucket::{Bucket, BucketLimits};

use super::*;

/// A store whose next writes fail.
#[derive(Debug, Default)]
struct Faulty {
    objects: InMemory,
    faults: Mutex<Vec<Fault>>,
    /// Writes that have not arrived.
    late: Mutex<Vec<(Path, PutPayload, PutOptions)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The write does not arrive.
    Lost,
    /// It is done, and its answer is lost.
    Mute,
    /// It fails, and arrives later.
    Late,
}

impl Faulty {
    /// Lets late writes arrive.
    async fn arrive(&self) {
        let late = std::mem::take(&mut *self.late.lock());
        for (at, what, how) in late {
            let _ = self.objects.put_opts(&at, what, how).await;
        }
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

type Result<T> = object_store::Result<T>;

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, at: &Path, what: PutPayload, how: PutOptions) -> Result<PutResult> {
        let fault = self.faults.lock().pop().unwrap_or(Fault::None);
        match fault {
            Fault::None => return self.objects.put_opts(at, what, how).await,
            Fault::Lost => {}
            Fault::Mute => drop(self.objects.put_opts(at, what, how).await?),
            Fault::Late => self.late.lock().push((at.clone(), what, how)),
        }
        Err(Error::Generic { store: "Faulty", source: format!("{fault:?}").into() })
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(at, how).await
    }

    async fn get_opts(&self, at: &Path, how: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(at, how).await
    }

    fn delete_stream(&self, keys: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(keys)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, how).await
    }
}

fn ledgers(store: &Arc<Faulty>) -> LedgerBucket {
    let limits = BucketLimits { pause: Duration::ZERO, ..BucketLimits::default() };
    LedgerBucket::new(Bucket::new(store.clone(), "ledgers", limits))
}

fn key(number: u8) -> EventKey {
    EventKey { resource: "pods".into(), object: ObjectKey::namespaced("team", format!("pod-{number}")) }
}

/// Returns a large state: a few of them are merged into a base.
fn recorded(value: u32) -> Recorded {
    let mut random = fastrand::Rng::with_seed(value.into());
    let uid: String = std::iter::repeat_with(|| random.alphanumeric()).take(12_000).collect();
    Recorded {
        uid: uid.into(),
        version: ResourceVersion::from(u64::from(value)),
        digest: None,
        unsure: false,
    }
}

fn change(number: u8, value: Option<u32>) -> Arc<Vec<LedgerChange>> {
    Arc::new(vec![LedgerChange::Recorded(key(number), value.map(recorded))])
}

/// Returns the version of each key.
fn values(content: LedgerContent) -> BTreeMap<EventKey, u32> {
    let version = |recorded: Recorded| recorded.version.as_u64().unwrap_or_default() as u32;
    content.recorded.into_iter().map(|(key, recorded)| (key, version(recorded))).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Open {
        process: usize,
        faults: Vec<Fault>,
    },
    /// A write of this process; `None`: of the one that has opened it last.
    Write {
        process: Option<usize>,
        key: u8,
        value: Option<u32>,
        faults: Vec<Fault>,
    },
    Arrive,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fault = prop_oneof![
        6 => Just(Fault::None), 1 => Just(Fault::Lost), 1 => Just(Fault::Mute), 1 => Just(Fault::Late)
    ];
    let faults = proptest::collection::vec(fault, 0..3);
    let open = (0..3_usize, faults.clone()).prop_map(|(process, faults)| Step::Open { process, faults });
    let process = proptest::option::weighted(0.2, 0..3_usize);
    let write = (process, 0..12_u8, proptest::option::weighted(0.8, 1..1_000_u32), faults);
    let write = write.prop_map(|(process, key, value, faults)| Step::Write { process, key, value, faults });
    proptest::collection::vec(prop_oneof![1 => open, 8 => write, 1 => Just(Step::Arrive)], 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Whatever is lost or late, an acknowledged write stays, and only the last process that opened the ledger writes.
    #[test]
    fn acknowledged_write_is_there_until_the_next(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let store = Arc::new(Faulty::default());
            let store_of = ledgers(&store);
            let mut opened: [Option<Arc<dyn Ledger>>; 3] = Default::default();
            // All contents that the ledger may have: more than one after a write that is not known.
            let mut possible = vec![BTreeMap::new()];
            let mut owner = None;
            for step in steps {
                match step {
                    Step::Open { process, faults } => {
                        *store.faults.lock() = faults;
                        match store_of.open("sink").await {
                            Ok((ledger, content)) => {
                                let content = values(content);
                                prop_assert!(possible.contains(&content), "{content:?} of {possible:?}");
                                (possible, owner) = (vec![content], Some(process));
                                opened[process] = Some(ledger);
                            }
                            // It may have taken over.
                            Err(LedgerError::Bucket { .. }) => opened[process] = None,
                            Err(error) => prop_assert!(false, "{error}"),
                        }
                    }
                    Step::Write { process, key: number, value, faults } => {
                        let Some(process) = process.or(owner) else { continue };
                        let Some(ledger) = &opened[process] else { continue };
                        *store.faults.lock() = faults;
                        let with = |content: &BTreeMap<EventKey, u32>| {
                            let mut content = content.clone();
                            match value {
                                Some(value) => drop(content.insert(key(number), value)),
                                None => drop(content.remove(&key(number))),
                            }
                            content
                        };
                        match ledger.write(change(number, value)).await {
                            Ok(()) => {
                                prop_assert_eq!(owner, Some(process), "another one has taken over");
                                possible = possible.iter().map(with).collect();
                            }
                            Err(LedgerError::TakenOver(_)) => opened[process] = None,
                            Err(LedgerError::Bucket { .. }) => {
                                if owner == Some(process) {
                                    possible = possible.iter().map(with).chain(possible.clone()).collect();
                                    possible.sort();
                                    possible.dedup();
                                }
                            }
                            Err(error) => prop_assert!(false, "{error}"),
                        }
                    }
                    Step::Arrive => store.arrive().await,
                }
                store.faults.lock().clear();
                let content = values(store_of.read("sink").await.unwrap());
                prop_assert!(possible.contains(&content), "{content:?} of {possible:?}");
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn changes_are_merged_and_nothing_is_left_behind() {
    let store = Arc::new(Faulty::default());
    let (ledger, content) = ledgers(&store).open("a sink").await.unwrap();
    assert!(content.is_new);
    for value in 1..=200 {
        ledger.write(change((value % 20) as u8, Some(value))).await.unwrap();
    }
    let names = async || {
        let listed = Bucket::new(store.clone(), "ledgers", BucketLimits::default()).list_objects().await;
        listed.unwrap().into_iter().map(|object| object.name).collect::<Vec<_>>()
    };
    let listed = names().await;
    assert!(
        listed.len() == 2 && listed[1] == "a_sink/head" && listed[0].starts_with("a_sink/base-0"),
        "{listed:?}"
    );
    // A process that ended in the middle of a merge has left a base; one of a later process stays.
    for name in ["ledgers/a_sink/base-00000000000000000001-x", "ledgers/a_sink/base-00000000000000009999-x"] {
        store.objects.put(&Path::from(name), "x".into()).await.unwrap();
    }
    let (_, content) = ledgers(&store).open("a sink").await.unwrap();
    assert!(!content.is_new);
    assert_eq!(values(content), (181..=200).map(|value| (key((value % 20) as u8), value)).collect());
    let listed = names().await;
    assert!(listed.len() == 3 && listed[1].contains("9999"), "{listed:?}");
    let error = ledger.write(change(1, None)).await.unwrap_err();
    assert!(matches!(&error, LedgerError::TakenOver(sink) if sink == "a sink"), "{error}");
}

#[tokio::test]
async fn damaged_ledger_is_kept_beside_and_begins_again() {
    let store = Arc::new(Faulty::default());
    for damaged in ["head", "base"] {
        let (ledger, _) = ledgers(&store).open("sink").await.unwrap();
        for value in 1..=20 {
            ledger.write(change(value as u8, Some(value))).await.unwrap();
        }
        let bucket = Bucket::new(store.clone(), "ledgers/sink", BucketLimits::default());
        let listed = bucket.list_objects().await.unwrap();
        let name = listed.iter().map(|object| &object.name).rfind(|name| name.starts_with(damaged)).unwrap();
        bucket.put_object(name, "nonsense".into()).await.unwrap();
        assert!(matches!(ledgers(&store).read("sink").await, Err(LedgerError::Damaged(..))), "{damaged}");
        let (ledger, content) = ledgers(&store).open("sink").await.unwrap();
        assert!(content.is_new && content.recorded.is_empty(), "{damaged}");
        assert_eq!(bucket.get_object(&format!("{name}.damaged")).await.unwrap().0, b"nonsense");
        ledger.write(change(1, Some(7))).await.unwrap();
        assert_eq!(values(ledgers(&store).read("sink").await.unwrap()), [(key(1), 7)].into());
    }
}

#[tokio::test]
async fn ledger_of_another_version_is_left_alone() {
    let store = Arc::new(Faulty::default());
    store.objects.put(&Path::from("ledgers/sink/head"), "skopos ledger 2\nx".into()).await.unwrap();
    let error = ledgers(&store).open("sink").await.err().unwrap();
    assert!(error.to_string().contains("another version of skopos"), "{error}");
}
