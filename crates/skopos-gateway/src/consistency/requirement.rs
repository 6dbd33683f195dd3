//! The requirement of one read of the newest state.

use std::time::Duration;

use http::{HeaderMap, header};
use skopos::{ObjectKey, RawObject, Snapshot};
use tokio::time::Instant;

use super::Floor;
use crate::config::Reads;

/// The requirement that the answer to a read without a `resourceVersion` must meet.
#[derive(Clone, Debug)]
pub(crate) struct Requirement {
    age: Age,
    floor: Floor,
}

/// The permitted age of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Age {
    /// Any age; the answer states it.
    Any,
    /// At most this age.
    AtMost(Duration),
    /// At least as new as this moment.
    Since(Instant),
}

impl Requirement {
    /// Makes the requirement of a request that has just come: the configured one, unless the request asks for a newer answer
    /// by `Cache-Control: no-cache` or `max-age` (RFC 9111).
    pub(crate) fn new(reads: Reads, max_age: Duration, headers: &HeaderMap, floor: Floor) -> Self {
        let age = match (reads, requested_age(headers)) {
            (Reads::Consistent, _) | (_, Some(Duration::ZERO)) => Age::Since(Instant::now()),
            (Reads::Bounded, requested) => Age::AtMost(requested.unwrap_or(max_age).min(max_age)),
        };
        Self { age, floor }
    }

    /// Makes the requirement of a read of many clusters, whose answer states the age of each. It is bounded only if the
    /// configuration or the request says so.
    pub(crate) fn for_clusters(reads: Reads, requested: Option<Duration>, floor: Floor) -> Self {
        let age = match (reads, requested) {
            (Reads::Consistent, _) | (_, Some(Duration::ZERO)) => Age::Since(Instant::now()),
            (Reads::Bounded, Some(requested)) => Age::AtMost(requested),
            (Reads::Bounded, None) => Age::Any,
        };
        Self { age, floor }
    }

    /// Returns whether any content meets the requirement.
    pub(crate) fn is_empty(&self) -> bool {
        self.age == Age::Any && self.floor.is_empty()
    }

    /// Returns whether this content is new enough.
    pub(crate) fn is_met_by(&self, content: &Snapshot<RawObject>) -> bool {
        self.is_young(content) && self.floor.is_met_by(content)
    }

    /// Returns the objects with a lost change that a caller has seen, with the versions of these changes.
    pub(crate) fn lost<'a>(
        &'a self,
        content: &'a Snapshot<RawObject>,
    ) -> impl Iterator<Item = (&'a ObjectKey, u64)> + 'a {
        self.floor.lost(content)
    }

    /// Returns whether only the next events of the watch are missing.
    pub(crate) fn waits_for_watch(&self, content: &Snapshot<RawObject>) -> bool {
        self.is_young(content) && self.floor.is_brought_by_watch()
    }

    /// Returns whether older content must not be returned, because the request is consistent or memory lacks state that a
    /// caller has seen. Otherwise older content is returned with a warning.
    pub(crate) fn is_strict(&self, content: &Snapshot<RawObject>) -> bool {
        self.is_consistent() || !self.floor.is_met_by(content)
    }

    /// Returns whether the answer must contain everything committed before the request.
    pub(crate) fn is_consistent(&self) -> bool {
        matches!(self.age, Age::Since(_))
    }

    fn is_young(&self, content: &Snapshot<RawObject>) -> bool {
        match self.age {
            Age::Any => true,
            Age::AtMost(max_age) => content.freshness().is_within(max_age),
            Age::Since(since) => content.is_proven_after(since),
        }
    }
}

/// Returns the maximum age that the client accepts, if it names one.
pub(crate) fn requested_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let ages = values.flat_map(|value| value.split(',')).filter_map(|directive| {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        match name.trim().to_ascii_lowercase().as_str() {
            "no-cache" => Some(Duration::ZERO),
            "max-age" => value.trim().trim_matches('"').parse().ok().map(Duration::from_secs),
            _ => None,
        }
    });
    ages.min()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn age(reads: Reads, cache_control: &'static str) -> Age {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
        Requirement::new(reads, Duration::from_secs(60), &headers, Floor::default()).age
    }

    #[tokio::test(start_paused = true)]
    async fn request_lowers_maximum_age_but_never_raises_it() {
        let (now, at_most) =
            (Age::Since(Instant::now()), |seconds| Age::AtMost(Duration::from_secs(seconds)));
        for (cache_control, expected) in [
            ("", at_most(60)),
            ("max-age=10", at_most(10)),
            ("max-age=3600", at_most(60)),
            ("Max-Age = 5 , no-transform", at_most(5)),
            ("max-age=ten", at_most(60)),
            ("max-age=0", now),
            ("no-cache", now),
            ("max-age=30, no-cache", now),
            ("max-stale=600", at_most(60)),
        ] {
            assert_eq!(age(Reads::Bounded, cache_control), expected, "{cache_control}");
            assert_eq!(age(Reads::Consistent, cache_control), now, "{cache_control}");
        }
    }
}
