use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::changes::LedgerChanges;
use super::{Ledger, LedgerChange, LedgerContent, LedgerError, LedgerStore};

/// Ledgers in memory, for tests and embedders. Clones share them.
///
/// The process that opens a ledger takes it over: later writes of the one before are refused, and change nothing.
#[derive(Clone, Default)]
pub struct LedgerMemory {
    ledgers: Arc<Mutex<BTreeMap<String, Kept>>>,
}

/// One ledger.
#[derive(Default)]
struct Kept {
    /// Number of times that it was opened.
    opened: u64,
    content: LedgerChanges,
}

/// A ledger as one process has opened it.
struct Opened {
    memory: LedgerMemory,
    sink: String,
    /// The number of this opening.
    number: u64,
}

#[async_trait]
impl LedgerStore for LedgerMemory {
    async fn open(&self, sink: &str) -> Result<(Arc<dyn Ledger>, LedgerContent), LedgerError> {
        let mut ledgers = self.ledgers.lock();
        let kept = ledgers.entry(sink.to_owned()).or_default();
        let content = kept.content();
        kept.opened += 1;
        let ledger = Opened { memory: self.clone(), sink: sink.to_owned(), number: kept.opened };
        Ok((Arc::new(ledger), content))
    }

    async fn read(&self, sink: &str) -> Result<LedgerContent, LedgerError> {
        Ok(self.ledgers.lock().get(sink).map(Kept::content).unwrap_or_default())
    }
}

#[async_trait]
impl Ledger for Opened {
    async fn write(&self, changes: Arc<Vec<LedgerChange>>) -> Result<(), LedgerError> {
        let mut ledgers = self.memory.ledgers.lock();
        let kept = ledgers.get_mut(&self.sink).filter(|kept| kept.opened == self.number);
        let kept = kept.ok_or_else(|| LedgerError::TakenOver(self.sink.clone()))?;
        changes.iter().for_each(|change| kept.content.apply_to_all(change));
        Ok(())
    }
}

impl Kept {
    fn content(&self) -> LedgerContent {
        self.content.clone().content(self.opened == 0)
    }
}

#[cfg(test)]
mod tests {
    use skopos::{ObjectKey, ResourceVersion};

    use super::*;
    use crate::event::delivery::{EventKey, Recorded};

    #[tokio::test]
    async fn process_that_opens_a_ledger_takes_it_over() {
        let memory = LedgerMemory::default();
        let key = EventKey { resource: "pods".into(), object: ObjectKey::namespaced("a", "b") };
        let recorded = |uid: &str| Recorded {
            uid: uid.into(),
            version: ResourceVersion::from(1),
            digest: None,
            unsure: false,
        };
        let change = |uid| Arc::new(vec![LedgerChange::Recorded(key.clone(), Some(recorded(uid)))]);
        let (first, content) = memory.open("sink").await.unwrap();
        assert!(content.is_new && content.recorded.is_empty());
        first.write(change("one")).await.unwrap();
        let (second, content) = memory.clone().open("sink").await.unwrap();
        assert!(!content.is_new);
        assert_eq!(content.recorded, [(key.clone(), recorded("one"))]);
        second.write(change("two")).await.unwrap();
        assert!(matches!(first.write(change("three")).await, Err(LedgerError::TakenOver(_))));
        assert_eq!(memory.read("sink").await.unwrap().recorded, [(key.clone(), recorded("two"))]);
        assert!(memory.read("another").await.unwrap().recorded.is_empty());
    }
}
