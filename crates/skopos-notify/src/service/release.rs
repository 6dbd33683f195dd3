//! Release of a sink: everything that the notifier wrote there is removed, whatever the cluster says.

use std::path::Path;

use futures::stream::{self, StreamExt as _};

use super::SinkOptions;
use crate::entry::EntryName;
use crate::sink::{EntryMark, Observed, SinkError, SinkStep, StepAction, StepOutcome};

/// Result of a release.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Names that are gone.
    pub gone: Vec<EntryName>,
    /// Names that still exist, with the reasons.
    pub left: Vec<(EntryName, String)>,
}

/// Returns the names that a release would remove: all that have the notifier's mark.
///
/// # Errors
/// When the sink cannot be read.
pub async fn releasable(options: &SinkOptions) -> Result<Vec<EntryName>, SinkError> {
    Ok(ours(options.sink.observe().await?).into_iter().map(|step| step.name).collect())
}

/// Removes all that has the notifier's mark, and reads it back. Other entries are left alone. No notifier may run with this sink
/// meanwhile.
///
/// # Errors
/// When the sink cannot be read.
pub async fn release(options: &SinkOptions) -> Result<Released, SinkError> {
    let steps = ours(options.sink.observe().await?);
    let apply = |step: SinkStep| async move {
        let outcome = options.sink.apply(&step, options.fence.as_ref()).await;
        (step.name, outcome)
    };
    let applying: Vec<_> = steps.into_iter().map(apply).collect();
    let done: Vec<_> = stream::iter(applying).buffer_unordered(options.writes.max(1)).collect().await;
    let left = options.sink.observe().await?;
    let mut released = Released::default();
    for (name, outcome) in done {
        match left.entries.get(&name).filter(|entry| entry.mark != EntryMark::Foreign) {
            None => released.gone.push(name),
            Some(_) => released.left.push((name, reason(outcome))),
        }
    }
    if released.left.is_empty() {
        match options.sink.release().await {
            Ok(()) => options.forget(),
            Err(problem) => released.left.push((EntryName::from(options.name.as_str()), problem)),
        }
    }
    Ok(released)
}

/// Returns the names of sinks that a folder remembers and the configuration does not name. Their entries stay until they are
/// released.
pub fn orphans<'a>(folder: &Path, sinks: impl Iterator<Item = &'a str>) -> Vec<String> {
    let known: Vec<_> = sinks.map(crate::file_name).collect();
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = files.filter_map(|file| {
        file.file_name().to_str()?.strip_prefix(super::identity::PREFIX).map(str::to_owned)
    });
    let mut orphans: Vec<_> = names.filter(|name| !name.ends_with(".new") && !known.contains(name)).collect();
    orphans.sort_unstable();
    orphans
}

fn ours(observed: Observed) -> Vec<SinkStep> {
    let ours = observed.entries.into_iter().filter(|(_, entry)| entry.mark != EntryMark::Foreign);
    ours.map(|(name, entry)| SinkStep { name, before: Some(entry), action: StepAction::Delete }).collect()
}

fn reason(outcome: StepOutcome) -> String {
    match outcome {
        StepOutcome::Done => "it was deleted, and is there again: another program writes it".to_owned(),
        StepOutcome::Unknown(problem)
        | StepOutcome::Conflict(problem)
        | StepOutcome::Refused(problem)
        | StepOutcome::Unreachable(problem)
        | StepOutcome::Fenced(problem) => problem,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sink::memory::MemorySink;
    use crate::sink::{ObservedEntry, ObservedMember};

    fn entry(mark: EntryMark) -> ObservedEntry {
        let members = [("10.0.0.1".into(), ObservedMember::default())].into_iter().collect();
        ObservedEntry { mark, members, tidy: true }
    }

    #[tokio::test]
    async fn release_removes_own_entries_only() {
        let (zone, folder) = (MemorySink::zone(), tempfile::tempdir().unwrap());
        zone.change(|observed| {
            observed.entries.insert("a".into(), entry(EntryMark::Ours(None)));
            observed.entries.insert("b".into(), entry(EntryMark::Foreign));
        });
        let mut options = SinkOptions::new("zone", Arc::new(zone.clone()), Vec::new());
        options.state = Some(folder.path().to_owned());
        options.remember("cluster");
        assert_eq!(orphans(folder.path(), ["zone"].into_iter()), Vec::<String>::new());
        assert_eq!(orphans(folder.path(), ["other"].into_iter()), ["zone"]);
        assert_eq!(releasable(&options).await.unwrap(), ["a".into()]);
        assert_eq!(release(&options).await.unwrap(), Released { gone: vec!["a".into()], left: Vec::new() });
        assert_eq!(zone.content().entries.into_keys().collect::<Vec<_>>(), ["b".into()]);
        assert_eq!(orphans(folder.path(), ["other"].into_iter()), Vec::<String>::new());
    }

    #[tokio::test]
    async fn release_of_unreachable_sink_returns_reason() {
        let zone = MemorySink::zone();
        zone.change(|observed| drop(observed.entries.insert("a".into(), entry(EntryMark::Ours(None)))));
        let options = SinkOptions::new("zone", Arc::new(zone.clone()), Vec::new());
        zone.set_down(Some("no route"));
        assert_eq!(release(&options).await, Err(SinkError::Unreachable("no route".into())));
    }
}
