//! Resources whose lists the server does not stream, as far as list/watches have found out.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::resource::ResourceId;
use crate::sync::Mutex;

/// A memory of such resources that outlives the list/watch that found out, so that the next one skips the attempt.
pub(crate) struct Unstreamed {
    learned: Mutex<BTreeMap<ResourceId, Instant>>,
}

/// The time for which an entry is valid. The server may be upgraded meanwhile, or the proxy that swallowed the end of its
/// streams be removed. A futile attempt costs one request, or, if the end is swallowed, the `initial_events_patience`
/// (10 s) of a first sync: once an hour per resource is little.
const BELIEVED: Duration = Duration::from_secs(3600);

/// The maximum number of entries. Clusters have some hundreds of resources; each one beyond the maximum costs an attempt
/// every time.
const MOST: usize = 1_000;

impl Unstreamed {
    pub(crate) fn new() -> Self {
        Self { learned: Mutex::new(BTreeMap::new()) }
    }

    /// Records that a list/watch of this resource has just found out.
    pub(crate) fn learn(&self, resource: &ResourceId) {
        let now = Instant::now();
        let mut learned = self.learned.lock();
        learned.retain(|_, at| is_believed(*at, now));
        learned.insert(resource.clone(), now);
        if learned.len() > MOST {
            let oldest = learned.iter().min_by_key(|(_, at)| **at).map(|(resource, _)| resource.clone());
            oldest.and_then(|oldest| learned.remove(&oldest));
        }
    }

    pub(crate) fn knows(&self, resource: &ResourceId) -> bool {
        let now = Instant::now();
        self.learned.lock().get(resource).is_some_and(|at| is_believed(*at, now))
    }
}

fn is_believed(learned: Instant, now: Instant) -> bool {
    now.saturating_duration_since(learned) < BELIEVED
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
    async fn what_is_old_or_too_much_is_forgotten() {
        let unstreamed = Unstreamed::new();
        for number in 0..=MOST {
            unstreamed.learn(&kind(number));
            advance(Duration::from_millis(1)).await;
        }
        assert!(!unstreamed.knows(&kind(0)), "the oldest makes place");
        assert!(unstreamed.knows(&kind(1)) && unstreamed.knows(&kind(MOST)));
        advance(BELIEVED / 2).await;
        unstreamed.learn(&kind(1));
        advance(BELIEVED / 2).await;
        assert!(unstreamed.knows(&kind(1)) && !unstreamed.knows(&kind(2)));
        unstreamed.learn(&kind(0));
        assert_eq!(unstreamed.learned.lock().len(), 2, "what is not believed any more takes no place");
    }
}
