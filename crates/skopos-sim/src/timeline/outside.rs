//! Texts of the notifiers' facts.

use super::{Column, Teller};
use crate::history::{AtOutside, Fact, ObjectState, Record};

impl Teller<'_> {
    /// Returns the text of a fact, if the violation is about the outside. With a name in focus, only facts about this name count.
    pub(super) fn outside(&self, fact: &AtOutside) -> Option<(Column, String)> {
        let of_another =
            self.focus.key.is_some() && fact.name().is_some_and(|name| Some(name) != self.focus.key);
        if !self.focus.is_outside || of_another {
            return None;
        }
        let names = &self.history.names;
        let process = |id: crate::history::ProcessId| &self.history.cast.processes[id.index()].name;
        Some(match fact {
            AtOutside::Service { object, asks, gone, .. } => {
                let state = if *gone {
                    "is gone"
                } else if *asks {
                    "is there"
                } else {
                    "is not selected"
                };
                (Column::Server, format!("Service {} {state}", self.seen(object)))
            }
            AtOutside::Slice { object, endpoints, asks, gone, .. } => {
                let state = if *gone {
                    " is gone"
                } else if *asks {
                    ""
                } else {
                    " is not selected"
                };
                (Column::Server, format!("slice {}{state} {endpoints:?}", self.seen(object)))
            }
            AtOutside::Requested { process: who, connection, verb, target } => {
                let resource = &names.targets[target.index()].resource;
                if *resource == *"leases" && *verb != crate::history::Verb::Watch {
                    return None;
                }
                (
                    Column::Wire,
                    format!("{}: {verb:?} {resource} on {connection}", process(*who)).to_lowercase(),
                )
            }
            AtOutside::Began { process: who, term } => {
                (Column::Client, format!("{} BEGINS TERM {term}", process(*who)))
            }
            AtOutside::Ended { process: who, term } => {
                (Column::Client, format!("{} ends term {term}", process(*who)))
            }
            AtOutside::Sent { message, process: who, name, step, .. } => {
                let (before, after) = (record(step.before.as_ref()), record(step.after.as_ref()));
                let name = &names.keys[name.index()];
                (
                    Column::Client,
                    format!("{} writes {name} [{}]: {before} -> {after}", process(*who), message.0),
                )
            }
            AtOutside::Notified { message, process: who, state, .. } => {
                let name = &names.keys[state.key.index()];
                (
                    Column::Client,
                    format!("{} notifies {name} [{}]: {}", process(*who), message.0, told(state)),
                )
            }
            AtOutside::Received { message, state } => {
                let name = &names.keys[state.key.index()];
                (Column::Wire, format!("RECEIVED [{}] {name}: {}", message.0, told(state)))
            }
            AtOutside::Answered { message, outcome } => {
                (Column::Client, format!("[{}] {outcome:?}", message.0).to_lowercase())
            }
            AtOutside::Applied { message, name, before, after } => {
                let (before, after) = (record(before.as_ref()), record(after.as_ref()));
                let name = &names.keys[name.index()];
                (Column::Wire, format!("OUTSIDE [{}] {name}: {before} -> {after}", message.0))
            }
            AtOutside::Edited { name, after } => {
                let name = &names.keys[name.index()];
                (Column::Wire, format!("OUTSIDE {name}, by hand: {}", record(after.as_ref())))
            }
            AtOutside::TroubleBegan { what } => (Column::Wire, format!("OUTSIDE IS {what:?}")),
            AtOutside::TroubleEnded { what } => (Column::Wire, format!("OUTSIDE IS NO LONGER {what:?}")),
            AtOutside::Read { .. } | AtOutside::Reported { .. } => return None,
        })
    }

    /// Returns whether a fact matters to notifiers only.
    pub(super) fn is_beside(&self, fact: &Fact) -> bool {
        self.focus.is_outside && matches!(fact, Fact::Committed { .. } | Fact::Requested { .. })
    }
}

fn told(state: &ObjectState) -> String {
    let ObjectState { uid, rv, stamp, epoch, gone, .. } = state;
    let what = if *gone { "gone".to_owned() } else { format!("stamp {stamp}") };
    format!("{what} at {rv} of {} in epoch {epoch}", uid.0)
}

fn record(record: Option<&Record>) -> String {
    record.map_or("nothing".to_owned(), |record| {
        let mark = record.owner.map_or("foreign".to_owned(), |owner| format!("ours of {}", owner.0));
        format!("{:?} ({mark})", record.values)
    })
}
