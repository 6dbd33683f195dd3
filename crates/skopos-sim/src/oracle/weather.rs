//! Times and places of the faults.

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
    /// The fault.
    pub fault: FaultId,
    /// Its number in the catalogue.
    pub number: u8,
    /// The cluster; `None`: all clusters.
    pub cluster: Option<ClusterId>,
    /// True if it loses events without a trace.
    pub lies: bool,
    /// Time limit of its detection.
    pub detect: Option<Duration>,
    /// Time limit of the recovery.
    pub recover: Duration,
    /// `Retry-After` of every answer.
    pub retry_after: Option<Duration>,
    /// The part of the cluster that it is confined to.
    pub part: Part,
    /// True if lists that are not streamed are unaffected.
    pub spares_lists: bool,
    /// Time of its beginning.
    pub began: At,
    /// Time of its healing; `None`: it lasts until the end.
    pub healed: Option<At>,
    /// Times of its hits.
    pub hits: Vec<At>,
}

impl Weather {
    /// Collects the faults of a run.
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

    /// Returns all faults.
    pub fn spans(&self) -> &[FaultSpan] {
        &self.spans
    }

    /// Returns the faults of a cluster.
    pub(super) fn on(&self, cluster: ClusterId) -> impl Iterator<Item = &FaultSpan> {
        self.spans.iter().filter(move |span| span.cluster.is_none_or(|there| there == cluster))
    }

    /// Returns the faults of a cluster that were in force, or not recovered from, at any time from `from` to `to`.
    pub(super) fn felt(&self, cluster: ClusterId, from: At, to: At) -> impl Iterator<Item = &FaultSpan> {
        self.on(cluster).filter(move |span| span.began <= to && span.over().is_none_or(|over| over >= from))
    }

    /// Returns the time between two moments without CPU, in which nothing could happen.
    pub(super) fn starved(&self, from: At, to: At) -> Duration {
        let starved = self.spans.iter().filter(|span| span.number == STARVED);
        let between = starved.map(|span| span.healed.unwrap_or(to).min(to).since(span.began.max(from)));
        between.sum()
    }

    /// Returns whether a cluster had no fault in force, or still to be recovered from, from `from` to `to`.
    pub(super) fn is_clear(&self, cluster: ClusterId, from: At, to: At) -> bool {
        self.felt(cluster, from, to).next().is_none()
    }

    /// Returns whether a cluster has had no fault for so long that its clients have recovered from all of them. This includes
    /// what only an audit detects and what is rarely read again.
    pub(super) fn is_forgotten(&self, cluster: ClusterId, at: At) -> bool {
        self.is_over(cluster, at, |span| !span.is_of_the_users())
    }

    /// Returns whether a cluster is well at a moment, and its clients have recovered from all its faults. Servers that send no
    /// bookmarks are well.
    pub(super) fn is_well(&self, cluster: ClusterId, at: At) -> bool {
        let leaves_it_alone = |span: &FaultSpan| span.is_of_the_users() && span.number != ENDS_DIALLING;
        self.is_over(cluster, at, |span| !leaves_it_alone(span) && span.number != NO_BOOKMARKS)
    }

    /// Returns whether a cluster sends no bookmarks at a moment.
    pub(super) fn lacks_bookmarks(&self, cluster: ClusterId, at: At) -> bool {
        self.on(cluster).any(|span| span.number == NO_BOOKMARKS && span.is_in_force(at))
    }

    fn is_over(&self, cluster: ClusterId, at: At, counts: impl Fn(&FaultSpan) -> bool) -> bool {
        let mut begun = self.on(cluster).filter(|span| counts(span) && span.began <= at);
        begun.all(|span| span.over().is_some_and(|over| over.plus(span.echo()) < at))
    }
}

/// Returns whether a fault affects the machine that all clients run on, and so all clusters.
fn is_of_the_machine(number: u8) -> bool {
    entry(number).is_some_and(|entry| entry.place == Place::Machine)
}

/// Catalogue number of a lack of CPU.
const STARVED: u8 = 52;
/// Catalogue number of a rollback.
const ROLLBACK: u8 = 32;
/// Catalogue number of one lagging server of several.
const LAGS: u8 = 33;

/// Catalogue number of a client that ends while dials fail.
const ENDS_DIALLING: u8 = 48;
/// Catalogue number of missing bookmarks.
const NO_BOOKMARKS: u8 = 36;

/// Time for the budget: requests of one minute (I15) are missing in the next, and the waiting ones have failed meanwhile.
const A_MINUTE: Duration = Duration::from_secs(75);
/// Retry interval of undecodable objects: 5 minutes plus a tenth. Then they are listed, for which that minute may be needed too.
const READ_AGAIN: Duration = Duration::from_secs(330 + 75);
/// The longest interval of audits, the duration of one, and the list that repairs its findings.
const AN_AUDIT: Duration = Duration::from_secs(600 + 150 + 75);

impl FaultSpan {
    /// Returns whether it was in force at a moment.
    pub fn is_in_force(&self, at: At) -> bool {
        self.began <= at && self.healed.is_none_or(|healed| healed > at)
    }

    /// Returns the time by which recovery must be complete.
    pub(super) fn over(&self) -> Option<At> {
        let noticed = self.hits.last().copied().unwrap_or(self.began).plus(self.detect.unwrap_or_default());
        self.healed.map(|healed| healed.max(noticed).plus(self.recover))
    }

    /// Returns the time after the recovery limit for which a client may still repair its consequences.
    fn echo(&self) -> Duration {
        match self.number {
            _ if self.lies => AN_AUDIT,
            ROLLBACK | LAGS => AN_AUDIT,
            _ if self.damages() => READ_AGAIN,
            _ => A_MINUTE,
        }
    }

    /// Returns whether it is an action of users, which is no fault of a link.
    pub(super) fn is_of_the_users(&self) -> bool {
        entry(self.number).is_some_and(|entry| entry.place == Place::Users)
    }

    /// Returns whether it is a rollback.
    pub(super) fn is_rollback(&self) -> bool {
        self.number == ROLLBACK
    }

    /// Returns whether it is a lagging server of several.
    pub(super) fn is_behind(&self) -> bool {
        self.number == LAGS
    }

    /// Returns whether it makes objects undecodable: content lacks them, and reports this.
    pub(super) fn damages(&self) -> bool {
        matches!(self.number, 13..=17)
    }
}
