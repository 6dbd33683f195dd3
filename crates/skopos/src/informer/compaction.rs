//! Compaction: the objects of a large resource are held compressed.

use std::sync::Arc;

use bytes::Bytes;
use skopos_wire::{Dictionary, RawObject};

use super::resource::ResourceId;

/// Compression of the objects of one list/watch, from a size of the whole on. The dictionary is trained on the objects
/// themselves, and serves nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Compaction {
    /// The size in bytes above which further objects are compressed; `None`: never.
    above: Option<u64>,
    /// The size of the list that is being received.
    listed: u64,
    /// True once the limit was exceeded, until the next list.
    is_on: bool,
    /// True if no dictionary could be made, until the next list.
    is_untrainable: bool,
    dictionary: Option<Arc<Dictionary>>,
    sampler: Sampler,
    watch: RatioWatch,
}

/// Number of objects that a dictionary is trained on. Training takes some 50 ms, once.
const SAMPLES: usize = 128;
/// Number of objects whose sizes are compared.
const WINDOW: usize = 512;
/// Least number of objects between two dictionaries, so that all of them together stay small beside the objects.
const RETRAIN_AFTER: usize = 8 * WINDOW;

impl Compaction {
    /// Creates the compression of a resource. Secrets are never compressed: a dictionary would contain their text.
    pub(crate) fn new(resource: &ResourceId, above: Option<u64>) -> Self {
        let is_secret = resource.group.is_empty() && resource.plural == "secrets";
        Self {
            above: above.filter(|_| !is_secret),
            listed: 0,
            is_on: false,
            is_untrainable: false,
            dictionary: None,
            sampler: Sampler::default(),
            watch: RatioWatch::default(),
        }
    }

    /// Begins a list.
    pub(crate) fn begin_list(&mut self) {
        (self.listed, self.is_on, self.is_untrainable) = (0, false, false);
    }

    /// Returns the form in which an object of a list is held.
    pub(crate) fn listed(&mut self, object: RawObject) -> RawObject {
        self.listed += object.content_len() as u64;
        self.held(object, self.listed)
    }

    /// Returns the form in which an object is held, beside others that take `others` bytes.
    pub(crate) fn held(&mut self, object: RawObject, others: u64) -> RawObject {
        let Some(above) = self.above else { return object };
        // Objects before the limit are samples too: those after it may be of a few namespaces only.
        if others.saturating_mul(2) < above {
            return object;
        }
        self.is_on |= others >= above;
        if self.dictionary.is_none() || self.watch.is_worse() {
            self.sample(&object);
        }
        match &self.dictionary {
            Some(dictionary) if self.is_on => {
                let compact = object.compact(dictionary);
                self.watch.record(object.content_len(), compact.buffer().len());
                compact
            }
            _ => object,
        }
    }

    fn sample(&mut self, object: &RawObject) {
        self.sampler.offer(object.content());
        if !self.is_on || !self.sampler.is_full() || self.is_untrainable {
            return;
        }
        self.watch = RatioWatch::default();
        let samples = std::mem::take(&mut self.sampler).samples;
        match Dictionary::train(&samples) {
            Ok(dictionary) => self.dictionary = Some(Arc::new(dictionary)),
            Err(error) => {
                tracing::debug!(%error, "objects stay uncompressed until the next list");
                self.is_untrainable = true;
            }
        }
    }
}

/// A bounded number of objects, spread over all that were offered.
#[derive(Clone, Debug)]
struct Sampler {
    samples: Vec<Bytes>,
    /// Distance between two objects that are taken.
    stride: usize,
    offered: usize,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { samples: Vec::new(), stride: 1, offered: 0 }
    }
}

impl Sampler {
    fn offer(&mut self, content: Bytes) {
        let is_taken = self.offered.is_multiple_of(self.stride);
        self.offered += 1;
        if !is_taken {
            return;
        }
        self.samples.push(content);
        if self.samples.len() == 2 * SAMPLES {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.stride *= 2;
        }
    }

    fn is_full(&self) -> bool {
        self.samples.len() >= SAMPLES
    }
}

/// A comparison of how well objects compress with how they did at first.
#[derive(Clone, Debug, Default)]
struct RatioWatch {
    /// Sizes of the first window.
    first: Option<Sizes>,
    current: Sizes,
    compressed: usize,
    is_worse: bool,
}

/// Sums of sizes in bytes, before and after compression.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    before: usize,
    after: usize,
    objects: usize,
}

impl RatioWatch {
    fn record(&mut self, before: usize, after: usize) {
        self.compressed += 1;
        self.current.before += before;
        self.current.after += after;
        self.current.objects += 1;
        if self.current.objects < WINDOW {
            return;
        }
        let current = std::mem::take(&mut self.current);
        let first = *self.first.get_or_insert(current);
        // The ratio has fallen by a quarter.
        let has_fallen = current.after * first.before * 3 > first.after * current.before * 4;
        self.is_worse |= has_fallen && self.compressed >= RETRAIN_AFTER;
    }

    /// Returns whether another dictionary is due.
    fn is_worse(&self) -> bool {
        self.is_worse
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};

    use serde_json::json;
    use skopos_wire::Limits;

    use super::*;

    fn resource(group: &str, plural: &str) -> ResourceId {
        ResourceId { group: group.into(), version: "v1".into(), kind: "Kind".into(), plural: plural.into() }
    }

    /// Returns an object with words that it shares with others of the same `like`, and with no other.
    fn object(number: usize, like: &str) -> RawObject {
        let word = |at: usize| {
            let mut hasher = DefaultHasher::new();
            (like, at).hash(&mut hasher);
            format!("{:016x}", hasher.finish())
        };
        let words: Vec<String> = (0..12).map(|at| word((at * 5 + number) % 60)).collect();
        let value = json!({"metadata": {"name": format!("o{number}"), "uid": format!("u{number}"),
            "resourceVersion": "1"}, "spec": {"words": words}});
        RawObject::from_value(&value, &Limits::default()).unwrap()
    }

    fn listed(compaction: &mut Compaction, numbers: std::ops::Range<usize>, like: &str) -> Vec<bool> {
        numbers.map(|number| compaction.listed(object(number, like)).is_compact()).collect()
    }

    #[test]
    fn compresses_after_limit_and_samples() {
        let mut compaction = Compaction::new(&resource("", "pods"), Some(60_000));
        compaction.begin_list();
        let compact = listed(&mut compaction, 0..1_000, "web");
        let first = compact.iter().position(|is_compact| *is_compact).unwrap();
        let size = object(1, "web").content_len();
        assert!(first * size >= 55_000 && first < 400, "{first} objects of {size} bytes");
        assert!(compact[first..].iter().all(|is_compact| *is_compact));
        // So does a change, while much is held; a small list stays plain.
        assert!(compaction.held(object(5, "web"), 200_000).is_compact());
        compaction.begin_list();
        assert!(listed(&mut compaction, 0..50, "web").iter().all(|is_compact| !is_compact));
        assert!(!compaction.held(object(5, "web"), 10_000).is_compact());
    }

    #[test]
    fn small_resources_and_secrets_stay_plain() {
        for (plural, above) in [("pods", None), ("pods", Some(1 << 30)), ("secrets", Some(0))] {
            let mut compaction = Compaction::new(&resource("", plural), above);
            compaction.begin_list();
            assert!(listed(&mut compaction, 0..600, "web").iter().all(|is_compact| !is_compact), "{plural}");
            assert!(compaction.sampler.samples.is_empty(), "no text of {plural} is held");
        }
        // A custom resource of that name has no secrets.
        let mut compaction = Compaction::new(&resource("example.com", "secrets"), Some(0));
        assert!(listed(&mut compaction, 0..600, "web").contains(&true));
    }

    #[test]
    fn other_objects_get_another_dictionary() {
        let mut compaction = Compaction::new(&resource("", "pods"), Some(0));
        let size = |compaction: &mut Compaction, number: usize, like: &str| {
            compaction.listed(object(number, like)).buffer().len()
        };
        let web: Vec<usize> = (0..5_000).map(|number| size(&mut compaction, number, "web")).collect();
        let first = compaction.dictionary.clone().unwrap();
        let job: Vec<usize> = (0..5_000).map(|number| size(&mut compaction, number, "job")).collect();
        let second = compaction.dictionary.clone().unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        let average = |sizes: &[usize]| sizes.iter().sum::<usize>() / sizes.len();
        assert!(
            average(&job[4_500..]) * 3 < average(&job[..256]) * 2,
            "{} {} {}",
            average(&web),
            average(&job[..256]),
            average(&job[4_500..])
        );
    }

    #[test]
    fn samples_are_bounded_and_spread() {
        let mut sampler = Sampler::default();
        for number in 0..10_000_u32 {
            sampler.offer(Bytes::from(number.to_string()));
            assert!(sampler.samples.len() < 2 * SAMPLES);
        }
        assert!(sampler.is_full());
        let last: u32 = String::from_utf8_lossy(sampler.samples.last().unwrap()).parse().unwrap();
        assert!(last > 9_000 && sampler.samples[0] == "0", "{last}");
    }
}
