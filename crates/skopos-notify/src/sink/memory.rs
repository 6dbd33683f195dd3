//! A sink in the process: a small zone or a small balancer, for demos and tests.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::{
    EntryMark, Fence, Observed, ObservedEntry, ObservedMember, Serving, Sink, SinkError, SinkStep,
    SinkTraits, StepAction, StepOutcome,
};
use crate::entry::{EntryName, EntryValue};

/// A sink in the process. Clones share its content.
#[derive(Clone, Default)]
pub struct MemorySink {
    traits: SinkTraits,
    shared: Arc<Mutex<MemoryContent>>,
}

#[derive(Default)]
struct MemoryContent {
    observed: Observed,
    down: Option<String>,
    steps: Vec<SinkStep>,
}

impl MemorySink {
    /// Makes an empty zone, without draining.
    pub fn zone() -> Self {
        Self::default()
    }

    /// Makes an empty balancer: values drain before they are removed.
    pub fn balancer() -> Self {
        Self { traits: SinkTraits { drains: true, most_values: None }, ..Self::default() }
    }

    /// Returns its content.
    pub fn content(&self) -> Observed {
        self.shared.lock().observed.clone()
    }

    /// Returns the values behind a name that get traffic.
    pub fn serving(&self, name: &str) -> Vec<EntryValue> {
        let content = self.shared.lock();
        content.observed.entries.get(name).into_iter().flat_map(ObservedEntry::serving).cloned().collect()
    }

    /// Changes its content, as another writer would.
    pub fn change(&self, change: impl FnOnce(&mut Observed)) {
        change(&mut self.shared.lock().observed);
    }

    /// Makes it unreachable, or reachable again.
    pub fn set_down(&self, problem: Option<&str>) {
        self.shared.lock().down = problem.map(str::to_owned);
    }

    /// Returns all writes, in their order.
    pub fn steps(&self) -> Vec<SinkStep> {
        self.shared.lock().steps.clone()
    }
}

#[async_trait]
impl Sink for MemorySink {
    fn traits(&self) -> SinkTraits {
        self.traits
    }

    fn name(&self, text: &str) -> Result<EntryName, String> {
        Ok(text.into())
    }

    fn value(&self, text: &str) -> Result<EntryValue, String> {
        Ok(text.into())
    }

    async fn observe(&self) -> Result<Observed, SinkError> {
        let content = self.shared.lock();
        match &content.down {
            Some(problem) => Err(SinkError::Unreachable(problem.clone())),
            None => Ok(content.observed.clone()),
        }
    }

    async fn apply(&self, step: &SinkStep, _fence: Option<&Fence>) -> StepOutcome {
        let mut content = self.shared.lock();
        if let Some(problem) = &content.down {
            return StepOutcome::Unreachable(problem.clone());
        }
        let known = content.observed.entries.get(&step.name);
        if known.map(|entry| &entry.mark) != step.before.as_ref().map(|entry| &entry.mark) {
            return StepOutcome::Conflict(format!("{} is not as it was last seen", step.name));
        }
        match &step.action {
            StepAction::Put { owner, members } if !members.is_empty() => {
                let mark = EntryMark::Ours(Some(owner.clone()));
                let member = |(value, serving): (&EntryValue, &Serving)| {
                    (
                        value.clone(),
                        ObservedMember { draining: *serving == Serving::Draining, connections: 0 },
                    )
                };
                let members = members.iter().map(member).collect();
                content
                    .observed
                    .entries
                    .insert(step.name.clone(), ObservedEntry { mark, members, tidy: true });
            }
            _ => {
                content.observed.entries.remove(&step.name);
            }
        }
        content.steps.push(step.clone());
        StepOutcome::Done
    }
}
