//! What a read costs while a writer applies events as fast as it can.
//!
//! The writer is a thread of this process that does what an informer does with what it was sent: it scans objects and
//! applies them, a read's worth at a time. So on two cores the reader has one for itself; a server and a connection would
//! take turns with both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::Pod;
use memchr::memmem;
use skopos::{Limits, ObjectKey, RawObject, ReplaceCause, Store};
use skopos_reflect::{Change, Commit, Sink, Time};
use skopos_testserver::PodGenerator;
use tokio::time::Instant;

pub(crate) fn run(objects: usize, reads: usize) -> Result<()> {
    let pods = Pods::generate(objects)?;
    let (store, mut writer) = Store::<Pod>::detached();
    writer.begin_replace();
    for number in 0..objects {
        writer.stage(pods.version(number, 1)?);
    }
    let resource_version = 1.into();
    let cause = ReplaceCause::Initial;
    writer.commit_replace(Commit {
        resource_version,
        epoch: 0,
        gap: false,
        cause,
        asked_at: Time::ORIGIN,
        nameless: 0,
    });

    println!("{} objects, {reads} reads of each kind, nanoseconds with the clock's own share", store.len());
    println!("     quiet: {}", time_reads(&store, reads));
    let (applied, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let said = std::thread::scope(|threads| {
        let writing = threads.spawn(|| write(&pods, &mut writer, &applied, &done));
        while applied.load(Ordering::Relaxed) == 0 && !writing.is_finished() {
            std::hint::spin_loop();
        }
        let (before, started) = (applied.load(Ordering::Relaxed), Instant::now());
        let timed = time_reads(&store, reads);
        let written = applied.load(Ordering::Relaxed) - before;
        let rate = written as f64 / started.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        writing.join().map_err(|_| anyhow!("the writer panicked"))??;
        anyhow::Ok(format!("{timed}; {rate:.0} events/s applied meanwhile"))
    })?;
    println!("under load: {said}");
    println!("   control: what one core has written reaches the other in {} ns", crossing());
    Ok(())
}

/// How long a line of memory takes from the cache of one core to that of the other. A read beside a writer waits for several,
/// and where a machine's cores do not share a cache, each takes some times as long.
fn crossing() -> u128 {
    let ball = AtomicU64::new(0);
    let wait_for = |number| {
        while ball.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for round in 0..CROSSINGS {
                wait_for(2 * round + 1);
                ball.store(2 * round + 2, Ordering::Release);
            }
        });
        let start = Instant::now();
        for round in 0..CROSSINGS {
            ball.store(2 * round + 1, Ordering::Release);
            wait_for(2 * round + 2);
        }
        start.elapsed().as_nanos() / u128::from(2 * CROSSINGS)
    })
}

/// There and back.
const CROSSINGS: u64 = 200_000;

/// Changes the pods one after the other until the readers are done.
fn write(pods: &Pods, writer: &mut impl Sink, applied: &AtomicU64, done: &AtomicBool) -> Result<()> {
    let mut version = 1;
    let mut changes = Vec::with_capacity(BATCH);
    while !done.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            version += 1;
            // All of them in an order that spreads over the whole store.
            changes.push(Change::Put(pods.version(version as usize * STRIDE, version)?));
        }
        writer.apply(&mut changes, &version.into());
        applied.fetch_add(BATCH as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// About what one read of a connection brings.
const BATCH: usize = 14;

/// Prime to the number of pods: visits all of them, in an order that no cache likes.
const STRIDE: usize = 7_919;

fn time_reads(store: &Store<Pod>, reads: usize) -> String {
    let names: Vec<(String, String)> = store
        .snapshot()
        .iter()
        .map(|pod| (pod.namespace().unwrap_or_default().to_owned(), pod.name().to_owned()))
        .collect();
    let snapshots = timed(reads, |_| (), |()| drop(std::hint::black_box(store.snapshot())));
    // The key is one that the caller has just made, and shares nothing with the store's.
    let fresh = |n: usize| {
        let (namespace, name) = &names[n.wrapping_mul(STRIDE) % names.len()];
        ObjectKey::namespaced(namespace, name)
    };
    let gets = timed(reads, fresh, |key| drop(std::hint::black_box(store.get(key))));
    format!("snapshot {snapshots}; get {gets}")
}

fn timed<T>(count: usize, prepare: impl Fn(usize) -> T, read: impl Fn(&T)) -> String {
    let mut nanoseconds: Vec<u128> = (0..count)
        .map(|n| {
            let prepared = std::hint::black_box(prepare(n));
            let start = Instant::now();
            read(&prepared);
            start.elapsed().as_nanos()
        })
        .collect();
    nanoseconds.sort_unstable();
    let at = |share: f64| nanoseconds[((count - 1) as f64 * share) as usize];
    format!("p50 {} p99 {} p99.9 {}", at(0.5), at(0.99), at(0.999))
}

/// The JSON of pods, each cut where its resourceVersion goes.
struct Pods(Vec<(Vec<u8>, Vec<u8>)>);

impl Pods {
    fn generate(count: usize) -> Result<Self> {
        let generator = PodGenerator::new(0);
        let cut = |number: usize| {
            let pod = generator.pod(number);
            let metadata = br#""metadata":{"#;
            let at = memmem::find(&pod, metadata).context("pods have metadata")? + metadata.len();
            anyhow::Ok((pod[..at].to_vec(), pod[at..].to_vec()))
        };
        (0..count).map(cut).collect::<Result<_>>().map(Self)
    }

    fn version(&self, number: usize, version: u64) -> Result<RawObject> {
        let (head, tail) = &self.0[number % self.0.len()];
        let version = format!(r#""resourceVersion":"{version}","#);
        let json = [head.as_slice(), version.as_bytes(), tail].concat();
        Ok(RawObject::scan(json.into(), &Limits::default())?)
    }
}
