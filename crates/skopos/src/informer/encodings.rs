//! Encodings that the server is known to have, per resource.

use std::collections::BTreeMap;

use skopos_reflect::{Encoding, Negotiation, Target};

use crate::sync::Mutex;

/// The encodings of the server's resources. Outlives the list/watch that found out, so that the next one skips the attempt.
#[derive(Debug)]
pub(crate) struct Encodings {
    preferred: Encoding,
    known: Mutex<BTreeMap<[String; 3], Negotiation>>,
}

/// The maximum number of resources that are remembered. Each one beyond it may cost a refused request per list/watch.
const MAX_RESOURCES: usize = 1_000;

impl Encodings {
    pub(crate) fn new(preferred: Encoding) -> Self {
        Self { preferred, known: Mutex::default() }
    }

    /// Returns what is known about the target's resource.
    pub(crate) fn negotiation(&self, target: &Target) -> Negotiation {
        let resource = [&target.group, &target.version, &target.plural].map(String::clone);
        let mut known = self.known.lock();
        if known.len() >= MAX_RESOURCES && !known.contains_key(&resource) {
            return Negotiation::new(self.preferred);
        }
        known.entry(resource).or_insert_with(|| Negotiation::new(self.preferred)).clone()
    }
}
