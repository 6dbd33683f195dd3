//! When which fault was in force, and where.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fault::{Part, Place, entry};
use crate::history::{At, ClusterId, Entry, Fact, FaultId, History};

/// All faults of a run.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    spans: Vec<FaultSpan>,
}

/// A fault from its beginning to its end.
#[derive(Clone, Debug)]
pub struct FaultSpan {
    /// Which.
    pub fault: FaultId,
    /// Its number in the catalogue.
    pub number: u8,
    /// Where; `None`: everywhere.
    pub cluster: Option<ClusterId>,
    /// Whether it loses events without a trace.
    pub lies: bool,
    /// Within what time it is to be noticed.
    pub detect: Option<Duration>,
    /// Within what time all is well again.
    pub recover: Duration,
    /// What every answer says of when to come again.
    pub retry_after: Option<Duration>,
    /// What of the cluster it is confined to.
    pub part: Part,
    /// Whether lists that are not streamed are as ever.
    pub spares_lists: bool,
    /// Since when it was in force.
    pub began: At,
    /// Until when; `None`: to the end.
    pub healed: Option<At>,
    /// When it struck.
    pub hits: Vec<At>,
}

impl Weather {
    /// That of a run.
    pub fn of(history: &History) -> Self {
        let mut spans: BTreeMap<FaultId, FaultSpan> = BTreeMap::new();
        for Entry { at, fact } in &history.entries {
            match fact {
                Fact::FaultBegan {
                    fault,
                    number,
                    cluster,
                    lies,
                    detect,
                    recover,
                    retry_after,
                    part,
                    spares_lists,
                } => {
                    let span = FaultSpan {
                        fault: *fault,
                        number: *number,
                        cluster: cluster.filter(|_| !is_of_the_machine(*number)),
                        lies: *lies,
                        detect: *detect,
                        recover: *recover,
                        retry_after: *retry_after,
                        part: *part,
                        spares_lists: *spares_lists,
                        began: *at,
                        healed: None,
                        hits: Vec::new(),
                    };
                    spans.insert(*fault, span);
                }
                Fact::FaultHit { fault } => {
                    if let Some(span) = spans.get_mut(fault) {
                        span.hits.push(*at);
                    }
                }
                Fact::FaultHealed { fault } => {
                    if let Some(span) = spans.get_mut(fault) {
                        span.healed.get_or_insert(*at);
                    }
                }
                _ => {}
            }
        }
        Self { spans: spans.into_values().collect() }
    }

    /// All of them.
    pub fn spans(&self) -> &[FaultSpan] {
        &self.spans
    }

    /// Those of a cluster.
    pub(super) fn on(&self, cluster: ClusterId) -> impl Iterator<Item = &FaultSpan> {
        self.spans.iter().filter(move |span| span.cluster.is_none_or(|there| there == cluster))
    }

    /// Those of a cluster that were in force, or had not been recovered from, at any time from `from` to `to`.
    pub(super) fn felt(&self, cluster: ClusterId, from: At, to: At) -> impl Iterator<Item = &FaultSpan> {
        self.on(cluster).filter(move |span| span.began <= to && span.over().is_none_or(|over| over >= from))
    }

    /// For how long nobody was given the CPU between two moments: what should have happened then could not.
    pub(super) fn starved(&self, from: At, to: At) -> Duration {
        let starved = self.spans.iter().filter(|span| span.number == STARVED);
        let between = starved.map(|span| span.healed.unwrap_or(to).min(to).since(span.began.max(from)));
        between.sum()
    }

    /// Whether a cluster had, and had to recover from, no fault from `from` to `to`.
    pub(super) fn is_clear(&self, cluster: ClusterId, from: At, to: At) -> bool {
        self.felt(cluster, from, to).next().is_none()
    }

    /// Whether a cluster has had no fault for so long that its clients have got over all of them, also over what only an audit
    /// finds out and what is read again but seldom.
    pub(super) fn is_forgotten(&self, cluster: ClusterId, at: At) -> bool {
        self.is_over(cluster, at, |span| !span.is_of_the_users())
    }

    /// Whether a cluster is well at a moment, and its clients have got over all that was wrong with it. Servers that send no bookmarks are
    /// well.
    pub(super) fn is_well(&self, cluster: ClusterId, at: At) -> bool {
        let leaves_it_alone = |span: &FaultSpan| span.is_of_the_users() && span.number != ENDS_DIALLING;
        self.is_over(cluster, at, |span| !leaves_it_alone(span) && span.number != NO_BOOKMARKS)
    }

    /// Whether a cluster sends no bookmarks at a moment.
    pub(super) fn lacks_bookmarks(&self, cluster: ClusterId, at: At) -> bool {
        self.on(cluster).any(|span| span.number == NO_BOOKMARKS && span.is_in_force(at))
    }

    fn is_over(&self, cluster: ClusterId, at: At, counts: impl Fn(&FaultSpan) -> bool) -> bool {
        let mut begun = self.on(cluster).filter(|span| counts(span) && span.began <= at);
        begun.all(|span| span.over().is_some_and(|over| over.plus(span.echo()) < at))
    }
}

/// What befalls the machine that all clients run on befalls all clusters.
fn is_of_the_machine(number: u8) -> bool {
    entry(number).is_some_and(|entry| entry.place == Place::Machine)
}

/// No CPU for a while.
const STARVED: u8 = 52;
/// History goes back.
const ROLLBACK: u8 = 32;
/// One server of several is behind.
const LAGS: u8 = 33;

/// A client ends while nothing can be dialled.
const ENDS_DIALLING: u8 = 48;
/// No bookmarks.
const NO_BOOKMARKS: u8 = 36;

/// What was spent in a minute (I15) is missing in the next, and what waits for it has failed meanwhile.
const A_MINUTE: Duration = Duration::from_secs(75);
/// What could not be decoded is read again every 5 minutes and a tenth, and then listed, for which that minute may be needed too.
const READ_AGAIN: Duration = Duration::from_secs(330 + 75);
/// The longest interval of audits, what one may take, and the list that mends what it has found.
const AN_AUDIT: Duration = Duration::from_secs(600 + 150 + 75);

impl FaultSpan {
    /// Whether it was in force at a moment.
    pub fn is_in_force(&self, at: At) -> bool {
        self.began <= at && self.healed.is_none_or(|healed| healed > at)
    }

    /// When it must have been recovered from.
    pub(super) fn over(&self) -> Option<At> {
        let noticed = self.hits.last().copied().unwrap_or(self.began).plus(self.detect.unwrap_or_default());
        self.healed.map(|healed| healed.max(noticed).plus(self.recover))
    }

    /// How long after it was to be over a client may still mend what it left.
    fn echo(&self) -> Duration {
        match self.number {
            _ if self.lies => AN_AUDIT,
            ROLLBACK | LAGS => AN_AUDIT,
            _ if self.damages() => READ_AGAIN,
            _ => A_MINUTE,
        }
    }

    /// Whether users do it: that is no trouble of a link.
    pub(super) fn is_of_the_users(&self) -> bool {
        entry(self.number).is_some_and(|entry| entry.place == Place::Users)
    }

    /// Whether history goes back.
    pub(super) fn is_rollback(&self) -> bool {
        self.number == ROLLBACK
    }

    /// Whether one server of several shows what was.
    pub(super) fn is_behind(&self) -> bool {
        self.number == LAGS
    }

    /// Whether it makes objects unreadable: content lacks them, and says so.
    pub(super) fn damages(&self) -> bool {
        matches!(self.number, 13..=17)
    }
}
