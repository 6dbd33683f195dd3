//! Kubernetes Events about objects that do not get what they ask for, so that `kubectl describe service` shows why a name is
//! missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use kube_runtime::events::{Event, EventType, Recorder};
use skopos_reflect::Time;
use tokio::time::timeout;

use crate::desired::Desired;
use crate::entry::EntryOwner;
use crate::plan::{HoldReason, Planner, SinkPlan};

/// The warnings about one sink's names, and the time of each one's last Event.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    known: BTreeMap<Warning, WarningTimes>,
}

/// A request that cannot be served, or a removal that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Warning {
    about: Arc<EntryOwner>,
    reason: WarningReason,
    /// The name, or the sink.
    name: String,
    note: String,
}

/// The `reason` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WarningReason {
    /// The name is outside without a mark of ours.
    NameNotOurs,
    /// Another object has the name.
    NameTaken,
    /// The sink cannot serve the name or the value.
    NameRefused,
    /// A removal waits for an approval.
    RemovalHeld,
}

#[derive(Debug)]
struct WarningTimes {
    since: Time,
    told: Option<Time>,
}

/// Minimum duration of a warning before it is written.
const SETTLE: Duration = Duration::from_secs(5);
/// Interval between two Events about a lasting state. The recorder counts those within six minutes in one series.
const REPEAT: Duration = Duration::from_secs(300);
/// Maximum number of warnings of each reason, and of Events in one round.
const MOST: usize = 100;
const ROUND: usize = 16;
/// Number of Events that are written at the same time.
const WRITES: usize = 4;
/// Time limit of one write.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Maximum lengths of an Event's fields (Kubernetes, events.k8s.io/v1), in bytes.
const MAX_ACTION: usize = 128;
const MAX_NOTE: usize = 1_024;

impl Warnings {
    /// Takes the current warnings, and returns those to write.
    pub(super) fn due(&mut self, now: Time, current: BTreeSet<Warning>) -> Vec<Warning> {
        self.known.retain(|warning, _| current.contains(warning));
        for warning in current {
            self.known.entry(warning).or_insert(WarningTimes { since: now, told: None });
        }
        let is_due = |times: &WarningTimes| match times.told {
            None => times.since + SETTLE <= now,
            Some(told) => told + REPEAT <= now,
        };
        let due = self.known.iter_mut().filter(|(_, times)| is_due(times)).take(ROUND);
        due.map(|(warning, times)| {
            times.told = Some(now);
            warning.clone()
        })
        .collect()
    }
}

/// Returns the current warnings.
pub(super) fn current(
    sink: &str,
    plan: &SinkPlan,
    planner: &Planner,
    desired: &Desired,
) -> BTreeSet<Warning> {
    let not_ours = plan.foreign.iter().flat_map(|name| {
        planner.claimants(name).into_iter().map(move |claimant| Warning {
            about: claimant.owner,
            reason: WarningReason::NameNotOurs,
            name: name.to_string(),
            note: format!(
                "{name} exists in {sink} without a mark of this notifier, and is left alone: remove it there, or choose another name"
            ),
        })
    });
    let taken = plan.conflicts.iter().map(|conflict| Warning {
        about: conflict.loser.clone(),
        reason: WarningReason::NameTaken,
        name: conflict.name.to_string(),
        note: format!("{} in {sink} belongs to {}: choose another name", conflict.name, conflict.owner),
    });
    let refused = desired.rejected().map(|rejected| Warning {
        about: Arc::new(rejected.object.clone()),
        reason: WarningReason::NameRefused,
        name: sink.to_owned(),
        note: format!("{sink} cannot have what is asked for: {}", rejected.reason),
    });
    let held = plan.held.iter().filter(|held| held.reason.needs_approval()).flat_map(|held| {
        held.removals.iter().filter_map(move |removal| {
            Some(Warning {
                about: planner.owner(&removal.name)?,
                reason: WarningReason::RemovalHeld,
                name: removal.name.to_string(),
                note: format!(
                    "a removal from {} in {sink} waits: {}; `skopos notify held` lists it with its ID",
                    removal.name, held.reason
                ),
            })
        })
    });
    not_ours
        .take(MOST)
        .chain(taken.take(MOST))
        .chain(refused.take(MOST))
        .chain(held.take(MOST))
        .filter(|warning| api_version_and_kind(&warning.about).is_some())
        .collect()
}

/// Writes Events, and returns the last failure.
pub(super) async fn tell(recorder: Recorder, due: Vec<Warning>) -> Result<(), String> {
    let write = |warning: Warning| {
        let recorder = recorder.clone();
        async move { publish(&recorder, &warning).await }
    };
    let writes: Vec<_> = due.into_iter().map(write).collect();
    stream::iter(writes).buffer_unordered(WRITES).fold(Ok(()), |all, one| async move { one.and(all) }).await
}

async fn publish(recorder: &Recorder, warning: &Warning) -> Result<(), String> {
    let Some((api_version, kind)) = api_version_and_kind(&warning.about) else { return Ok(()) };
    let regarding = ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(warning.about.namespace.to_string()),
        name: Some(warning.about.name.to_string()),
        uid: Some(warning.about.uid.to_string()),
        ..ObjectReference::default()
    };
    let event = Event {
        type_: EventType::Warning,
        reason: warning.reason.as_str().to_owned(),
        note: Some(cut(&warning.note, MAX_NOTE)),
        // The recorder distinguishes Events by this field, so each name has its own.
        action: cut(&warning.name, MAX_ACTION),
        secondary: None,
    };
    let about = &warning.about;
    match timeout(TIME_LIMIT, recorder.publish(&event, &regarding)).await {
        Ok(Ok(())) => Ok(()),
        // The namespace is gone, or terminating.
        Ok(Err(kube::Error::Api(answer))) if answer.code == 404 => Ok(()),
        Ok(Err(kube::Error::Api(answer))) if answer.code == 403 => Err(format!(
            "the Event about {about} cannot be written: grant create and patch of events in events.k8s.io ({})",
            answer.message
        )),
        Ok(Err(error)) => Err(format!("the Event about {about} cannot be written: {error}")),
        Err(_) => {
            Err(format!("the Event about {about} is not known to be written: no answer in {TIME_LIMIT:?}"))
        }
    }
}

/// Returns the API version and the kind of an owner's object.
fn api_version_and_kind(owner: &EntryOwner) -> Option<(&'static str, &'static str)> {
    match &*owner.resource {
        "service" => Some(("v1", "Service")),
        "pod" => Some(("v1", "Pod")),
        _ => None,
    }
}

/// Returns the beginning of a text, at most `most` bytes.
fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text[..end].to_owned()
}

impl WarningReason {
    fn as_str(self) -> &'static str {
        match self {
            Self::NameNotOurs => "NameNotOurs",
            Self::NameTaken => "NameTaken",
            Self::NameRefused => "NameRefused",
            Self::RemovalHeld => "RemovalHeld",
        }
    }
}

impl HoldReason {
    /// Returns whether only an approval is sure to end it.
    fn needs_approval(self) -> bool {
        matches!(self, Self::Fraction | Self::LastOne)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(service: &str) -> Warning {
        let about = EntryOwner {
            resource: "service".into(),
            namespace: "default".into(),
            name: service.into(),
            uid: service.into(),
        }
        .into();
        Warning { about, reason: WarningReason::NameTaken, name: "web".to_owned(), note: String::new() }
    }

    #[test]
    fn lasting_warning_repeats_after_minutes() {
        let mut warnings = Warnings::default();
        let mut at = |seconds: u64, services: &[&str]| {
            let current = services.iter().map(|service| warning(service)).collect();
            let due = warnings.due(Time::ORIGIN + Duration::from_secs(seconds), current);
            due.into_iter().map(|warning| warning.about.name.to_string()).collect::<Vec<_>>()
        };
        assert!(at(0, &["web"]).is_empty());
        assert_eq!(at(5, &["web", "shop"]), ["web"]);
        assert_eq!(at(10, &["web", "shop"]), ["shop"]);
        assert!(at(304, &["web"]).is_empty());
        assert_eq!(at(305, &["web", "shop"]), ["web"]);
        // It was gone meanwhile, so this is a new warning.
        assert_eq!(at(310, &["shop"]), ["shop"]);
    }

    #[test]
    fn a_round_is_bounded() {
        let mut warnings = Warnings::default();
        let current: BTreeSet<_> = (0..50).map(|index| warning(&format!("s{index}"))).collect();
        warnings.due(Time::ORIGIN, current.clone());
        let mut told = BTreeSet::new();
        for _ in 0..4 {
            let due = warnings.due(Time::ORIGIN + SETTLE, current.clone());
            assert!(due.len() <= ROUND);
            told.extend(due);
        }
        assert_eq!(told, current);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!((cut("über", 1), cut("über", 2), cut("ab", 9)), (String::new(), "ü".into(), "ab".into()));
    }
}
