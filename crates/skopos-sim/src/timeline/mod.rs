//! A failing run for people: the server, the wire and the client's beliefs in three columns, limited to what matters around a
//! violation.

mod outside;
mod visits;

use std::fmt::Write as _;
use std::time::Duration;

use crate::history::{
    At, CallId, CallKind, Content, Fact, Freshness, Heard, History, InformerId, Look, Outcome, Reason, Seen,
    Verb, VisitId, Walk,
};
use crate::oracle::{Focus, Violation};

/// Limits of the part of a history that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Time before the violation.
    pub before: Duration,
    /// Time after it.
    pub after: Duration,
    /// Maximum number of lines; the last ones are kept.
    pub lines: usize,
}

impl Default for Frame {
    fn default() -> Self {
        Self { before: Duration::from_secs(120), after: Duration::from_secs(2), lines: 60 }
    }
}

/// Returns the time around a violation in three columns.
pub fn around(history: &History, violation: &Violation, frame: Frame) -> String {
    let from = At(violation.at.0.saturating_sub(At::after_start(frame.before).0));
    let to = violation.at.plus(frame.after);
    let mut teller =
        Teller { history, focus: violation.of, last: None, calls: Vec::new(), visits: Vec::new() };
    let mut lines = Vec::new();
    for entry in &history.entries {
        let told = teller.tell(&entry.fact);
        if entry.at < from || entry.at > to {
            // Faults in force are part of every timeline.
            let weather = matches!(
                entry.fact,
                Fact::FaultBegan { .. } | Fact::FaultHealed { .. } | Fact::RolledBack { .. }
            );
            if entry.at > to || !weather {
                continue;
            }
        }
        lines.extend(told.map(|(column, text)| line(entry.at, column, &text)));
    }
    let left_out = lines.len().saturating_sub(frame.lines);
    let mut text = String::new();
    let _ = writeln!(text, "{:<10} {:<WIDTH$} {:<WIDTH$} client", "", "server", "wire");
    if left_out > 0 {
        let _ = writeln!(text, "{:<10} ({left_out} lines before are left out)", "");
    }
    lines[left_out..].iter().for_each(|line| {
        let _ = writeln!(text, "{line}");
    });
    let _ = writeln!(text, "{:<10} >>> {} {}", violation.at.to_string(), violation.invariant, violation.what);
    text
}

/// Width of a column.
const WIDTH: usize = 34;

#[derive(Clone, Copy)]
enum Column {
    Server,
    Wire,
    Client,
}

fn line(at: At, column: Column, text: &str) -> String {
    let at = at.to_string();
    match column {
        Column::Server => format!("{at:<10} {text}"),
        Column::Wire => format!("{at:<10} {:<WIDTH$} {text}", ""),
        Column::Client => format!("{at:<10} {:<WIDTH$} {:<WIDTH$} {text}", "", ""),
    }
}

/// Formatter of facts.
struct Teller<'a> {
    history: &'a History,
    focus: Focus,
    last: Option<Look>,
    calls: Vec<(CallId, String)>,
    visits: Vec<(VisitId, String)>,
}

impl Teller<'_> {
    fn tell(&mut self, fact: &Fact) -> Option<(Column, String)> {
        let names = &self.history.names;
        if self.is_beside(fact) {
            return None;
        }
        Some(match fact {
            Fact::Committed { cluster, resource, object, change, .. } => {
                let of_this = self
                    .focus
                    .informer
                    .is_none_or(|id| self.history.cast.informers[id.index()].resource == *resource);
                let of_another = self.focus.visitor.is_some() && self.focus.key != Some(object.key);
                if !self.is_here(Some(*cluster)) || !of_this || of_another {
                    return None;
                }
                let resource = &names.resources[resource.index()];
                (Column::Server, format!("{change:?} {resource} {}", self.seen(object)))
            }
            Fact::RolledBack { cluster, rv } if self.is_here(Some(*cluster)) => {
                (Column::Server, format!("HISTORY GOES BACK to RV {rv}"))
            }
            Fact::Compacted { cluster, rv } if self.is_here(Some(*cluster)) => {
                (Column::Server, format!("forgets all before RV {rv}"))
            }
            Fact::Requested {
                cluster,
                connection,
                verb,
                target,
                rv,
                further,
                timeout,
                initial,
                metadata,
                ..
            } => {
                if !self.is_here(Some(*cluster)) || *verb == Verb::Probe {
                    return None;
                }
                let target = &names.targets[target.index()];
                let place = target.namespace.as_ref().map_or(String::new(), |ns| format!(" in {ns}"));
                let from = rv.map_or(String::new(), |rv| format!(" from RV {rv}"));
                let page = if further.is_some() { " (next page)" } else { "" };
                let long = timeout.map_or(String::new(), |timeout| format!(" for {timeout:?}"));
                let streamed = if *initial { " (with a list)" } else { "" };
                let metadata = if *metadata { " (metadata)" } else { "" };
                let resource = &target.resource;
                (
                    Column::Wire,
                    format!(
                        "{verb:?} {resource}{place}{from}{page}{long}{streamed}{metadata} on {connection}"
                    )
                    .to_lowercase(),
                )
            }
            Fact::WatchEnded { cluster, target, stood } if self.is_here(Some(*cluster)) => {
                let resource = &names.targets[target.index()].resource;
                (Column::Wire, format!("the server ends a watch of {resource} after {stood:.1?}"))
            }
            Fact::FaultBegan { fault, number, cluster, part, .. } if self.is_here(*cluster) => {
                let name = crate::fault::entry(*number).map_or("?", |entry| entry.name);
                (Column::Wire, format!("FAULT {number} begins: {name}{part} [{}]", fault.0))
            }
            Fact::FaultHit { fault } => (Column::Wire, format!("fault [{}] hits", fault.0)),
            Fact::FaultHealed { fault } => (Column::Wire, format!("FAULT [{}] IS HEALED", fault.0)),
            Fact::Looked(look) => return self.looked(look),
            Fact::Got { informer, rv, key, object, .. } if self.is_of(*informer) && self.is_about(*key) => {
                let object = object.map_or("nothing".to_owned(), |object| self.seen(&object));
                (Column::Client, format!("reads {} at RV {rv}: {object}", names.keys[key.index()]))
            }
            Fact::Called { call, informer, kind, limit, .. } => {
                if informer.is_some_and(|informer| !self.is_of(informer)) {
                    return None;
                }
                let what = self.call(kind, *limit);
                self.calls.push((*call, what.clone()));
                (Column::Client, format!("calls {what}"))
            }
            Fact::Returned { call, outcome } => {
                let at = self.calls.iter().position(|(known, _)| known == call)?;
                let (_, what) = self.calls.swap_remove(at);
                (Column::Client, format!("{what} gives {}", self.outcome(outcome)))
            }
            Fact::Callback { handler, kind, flags, object, .. } => {
                let informer = self.history.cast.handlers[handler.index()].informer;
                let another = self.focus.handler.is_some_and(|focus| focus != *handler);
                if !self.is_of(informer) || another {
                    return None;
                }
                let flags = [
                    (flags.gap, " gap"),
                    (flags.coalesced, " coalesced"),
                    (flags.resync, " resync"),
                    (flags.initial, " initial"),
                    (flags.last_state_unknown, " last state unknown"),
                ];
                let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
                let name = &self.history.cast.handlers[handler.index()].name;
                (Column::Client, format!("{name} is told {kind:?} {}{flags}", self.seen(object)))
            }
            Fact::CallbackEnded { handler, panicked: true } if self.focus.handler == Some(*handler) => {
                (Column::Client, "the handler panics".to_owned())
            }
            Fact::HandlerAdded { handler }
            | Fact::HandlerSynced { handler }
            | Fact::HandlerRemoved { handler } => {
                if self.focus.handler.is_some_and(|focus| focus != *handler) {
                    return None;
                }
                let what = match fact {
                    Fact::HandlerAdded { .. } => "is added",
                    Fact::HandlerSynced { .. } => "has synced",
                    _ => "has ended",
                };
                (Column::Client, format!("{} {what}", self.history.cast.handlers[handler.index()].name))
            }
            Fact::WatcherStarted { watcher } if self.focus.watcher == Some(*watcher) => {
                (Column::Client, format!("{} begins", self.history.cast.watchers[watcher.index()].name))
            }
            Fact::WatcherTold { watcher, heard } if self.focus.watcher == Some(*watcher) => {
                (Column::Client, self.heard(heard))
            }
            Fact::WatcherStands { watcher, well } if self.focus.watcher == Some(*watcher) => {
                (Column::Client, if *well { "is well" } else { "is not well" }.to_owned())
            }
            Fact::WatcherEnded { watcher, .. } if self.focus.watcher == Some(*watcher) => {
                (Column::Client, format!("{} ends", self.history.cast.watchers[watcher.index()].name))
            }
            Fact::InformerStarted { informer } if self.is_of(*informer) => {
                (Column::Client, format!("{} begins", self.name(*informer)))
            }
            Fact::InformerStopped { informer } if self.is_of(*informer) => {
                (Column::Client, format!("{} ends", self.name(*informer)))
            }
            Fact::QueueAdded { key, .. } if self.focus.key == Some(*key) => {
                (Column::Client, format!("{} is added to the queue", names.keys[key.index()]))
            }
            Fact::QueueTaken { key, worker, .. } if self.focus.key == Some(*key) => {
                (Column::Client, format!("worker {worker} takes {}", names.keys[key.index()]))
            }
            Fact::QueueDone { key, worker, .. } if self.focus.key == Some(*key) => {
                (Column::Client, format!("worker {worker} is done with {}", names.keys[key.index()]))
            }
            Fact::Shutdown { tasks, connections, .. } => {
                (Column::Client, format!("shut down; {tasks} tasks, {connections} connections left"))
            }
            Fact::Gateway(fact) => return self.visited(fact),
            Fact::Outside(fact) => return self.outside(fact),
            Fact::Quiet => (Column::Server, "all is quiet from now on".to_owned()),
            _ => return None,
        })
    }

    /// Returns the changes of a store since the previous look.
    fn looked(&mut self, look: &Look) -> Option<(Column, String)> {
        if self.focus.informer.is_some_and(|focus| focus != look.informer) || self.focus.informer.is_none() {
            return None;
        }
        let regular = matches!(look.walk, Walk::Regular | Walk::Snapshot | Walk::Last);
        let before = self.last.replace(look.clone());
        let same = before.is_some_and(|before| {
            before.views == look.views
                && before.standing == look.standing
                && before.epoch == look.epoch
                && std::mem::discriminant(&before.freshness) == std::mem::discriminant(&look.freshness)
        });
        if same && regular {
            return None;
        }
        let views: Vec<String> = look
            .views
            .iter()
            .map(|view| {
                let Content { objects, sum } = view.content;
                format!("RV {} ({objects}, {:04x})", view.rv, sum & 0xffff)
            })
            .collect();
        let epoch = if look.epoch > 0 { format!(" epoch {}", look.epoch) } else { String::new() };
        let walk = match look.walk {
            Walk::Live(_) => "server says",
            Walk::Answer(_) => "is given",
            _ => "sees",
        };
        let condition = look.standing.condition;
        Some((
            Column::Client,
            format!("{walk} {}{epoch}, {}, {condition}", views.join(" + "), freshness(&look.freshness)),
        ))
    }

    fn call(&self, kind: &CallKind, limit: Duration) -> String {
        match kind {
            CallKind::WaitSynced => format!("wait_synced({limit:?})"),
            CallKind::WaitFor { rv } => format!("wait_for({rv}, {limit:?})"),
            CallKind::Read { max_age } => format!("read({max_age:?}, {limit:?})"),
            CallKind::ReadOne { max_age, key } => {
                format!("read_one({}, {max_age:?}, {limit:?})", self.history.names.keys[key.index()])
            }
            CallKind::Audit => format!("audit({limit:?})"),
            CallKind::Shutdown => format!("shutdown({limit:?})"),
            CallKind::Remove => "remove()".to_owned(),
            CallKind::Other(name) => format!("{name}({limit:?})"),
        }
    }

    fn outcome(&self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Found { object, age } => {
                let object = object.map_or("nothing".to_owned(), |object| self.seen(&object));
                format!("{object}, at most {age:?} old")
            }
            other => format!("{other:?}").to_lowercase(),
        }
    }

    fn heard(&self, heard: &Heard) -> String {
        let names = &self.history.names;
        match heard {
            Heard::Change(kind, object) => format!("is told {kind:?} {}", self.seen(object)),
            Heard::Bookmark { rv } => format!("is told all up to RV {rv}"),
            Heard::Skipped { since, to } => format!("SKIPS from RV {since} to {to}"),
            Heard::Unreadable { key, rv } => format!("cannot read {}@{rv}", names.keys[key.index()]),
            Heard::Gone { key, rv } => format!("is told that {}@{rv} is gone", names.keys[key.index()]),
            Heard::Other => "is told something else".to_owned(),
        }
    }

    fn seen(&self, object: &Seen) -> String {
        let names = &self.history.names;
        let uid = &names.uids[object.uid.index()];
        let uid = uid.get(..4).unwrap_or(uid);
        format!("{}@{} #{} {uid}", names.keys[object.key.index()], object.rv, object.stamp)
    }

    fn name(&self, informer: InformerId) -> &str {
        &self.history.cast.informers[informer.index()].name
    }

    fn is_here(&self, cluster: Option<crate::history::ClusterId>) -> bool {
        self.focus.cluster.is_none() || cluster.is_none() || cluster == self.focus.cluster
    }

    fn is_of(&self, informer: InformerId) -> bool {
        self.focus.informer.is_none_or(|focus| focus == informer)
    }

    fn is_about(&self, key: crate::history::KeyId) -> bool {
        self.focus.key.is_none_or(|focus| focus == key)
    }
}

fn freshness(freshness: &Freshness) -> String {
    match freshness {
        Freshness::Live { age } => format!("live {:.1}s", age.as_secs_f64()),
        Freshness::Stale { reason, .. } => match reason {
            Reason::Link => "stale".to_owned(),
            other => format!("stale: {other:?}").to_lowercase(),
        },
        Freshness::NeverSynced => "not synced".to_owned(),
        Freshness::Stopped { .. } => "stopped".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{Invariant, Violation};
    use crate::plan::Plan;

    #[test]
    fn renders_history_around_violation() {
        crate::quiet_planned_panics();
        let history = crate::run(&Plan::single(3, 1).expect("a simulated fault"));
        let began =
            history.entries.iter().find(|entry| matches!(entry.fact, Fact::FaultBegan { number: 3, .. }));
        let at = began.expect("a fault").at.plus(Duration::from_secs(1));
        let of = Focus { informer: Some(InformerId(0)), ..Focus::default() };
        let violation = Violation { invariant: Invariant::I3, at, what: "just so".to_owned(), of };
        let text = around(&history, &violation, Frame::default());
        for word in [
            "server",
            "wire",
            "client",
            "FAULT 3 begins: reset by a load balancer",
            ">>> I3 (atomic) just so",
        ] {
            assert!(text.contains(word), "{word:?} is missing in:\n{text}");
        }
    }
}
