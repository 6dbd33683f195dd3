//! The server's support of streamed lists (`sendInitialEvents`), as far as list/watches have found out.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::resource::ResourceId;
use crate::sync::Mutex;

/// The resources whose lists the server does not stream. Outlives the list/watch that found out, so that the next one
/// skips the attempt.
pub(crate) struct WatchListSupport {
    unsupported: Mutex<BTreeMap<ResourceId, Instant>>,
}

/// The time for which an entry is valid. The server may be upgraded meanwhile, or the proxy that swallowed the end of its
/// streams be removed. A futile attempt costs one request, or, if the end is swallowed, the `initial_events_timeout`
/// (10 s) of a first sync: once an hour per resource is little.
const ENTRY_TTL: Duration = Duration::from_secs(3600);

/// The maximum number of entries. Clusters have some hundreds of resources; each one beyond the maximum costs an attempt
/// every time.
const MAX_ENTRIES: usize = 1_000;

impl WatchListSupport {
    pub(crate) fn new() -> Self {
        Self { unsupported: Mutex::new(BTreeMap::new()) }
    }

    /// Records that the server does not stream lists of this resource.
    pub(crate) fn record_unsupported(&self, resource: &ResourceId) {
        let now = Instant::now();
        let mut unsupported = self.unsupported.lock();
        unsupported.retain(|_, at| is_valid(*at, now));
        unsupported.insert(resource.clone(), now);
        if unsupported.len() > MAX_ENTRIES {
            let oldest = unsupported.iter().min_by_key(|(_, at)| **at).map(|(resource, _)| resource.clone());
            oldest.and_then(|oldest| unsupported.remove(&oldest));
        }
    }

    pub(crate) fn is_unsupported(&self, resource: &ResourceId) -> bool {
        let now = Instant::now();
        self.unsupported.lock().get(resource).is_some_and(|at| is_valid(*at, now))
    }
}

fn is_valid(unsupported: Instant, now: Instant) -> bool {
    now.saturating_duration_since(unsupported) < ENTRY_TTL
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn kind(number: usize) -> ResourceId {
        let plural = format!("kind{number}s");
        ResourceId { group: "test".into(), version: "v1".into(), plural, kind: format!("Kind{number}") }
    }

    #[tokio::test(start_paused = true)]
    async fn forgets_old_and_excess_entries() {
        let watch_list_support = WatchListSupport::new();
        for number in 0..=MAX_ENTRIES {
            watch_list_support.record_unsupported(&kind(number));
            advance(Duration::from_millis(1)).await;
        }
        assert!(!watch_list_support.is_unsupported(&kind(0)), "the oldest makes place");
        assert!(
            watch_list_support.is_unsupported(&kind(1))
                && watch_list_support.is_unsupported(&kind(MAX_ENTRIES))
        );
        advance(ENTRY_TTL / 2).await;
        watch_list_support.record_unsupported(&kind(1));
        advance(ENTRY_TTL / 2).await;
        assert!(watch_list_support.is_unsupported(&kind(1)) && !watch_list_support.is_unsupported(&kind(2)));
        watch_list_support.record_unsupported(&kind(0));
        assert_eq!(
            watch_list_support.unsupported.lock().len(),
            2,
            "what is not believed any more takes no place"
        );
    }
}
