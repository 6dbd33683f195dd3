//! The gateway's handling of its visitors' writes and reads: I24 and I25.
//!
//! An acknowledged write must be in the true state, in the cluster that its name leads to. Every later read shows its version, or a
//! later one, or nothing if the object was deleted since. The order is that of the versions that the cluster itself assigned, which
//! are found by the stamps of the objects.

mod log;

use std::collections::{BTreeMap, HashMap};

use self::log::{Log, Written};
use super::{Case, FaultSpan, Focus, Invariant, Verdict};
use crate::cluster::NAMESPACES;
use crate::history::{
    Answer, Asked, At, AtGateway, ClusterId, Fact, KeyId, MemberId, Shown, VisitId, VisitorId,
};

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    if case.history.cast.members.is_empty() {
        return;
    }
    let mut visits = Visits { case, log: Log::of(case.history), own: BTreeMap::new(), open: HashMap::new() };
    for (at, fact) in case.facts() {
        match fact {
            // Earlier acknowledged writes are void.
            Fact::RolledBack { cluster, .. } => visits.own.retain(|(_, there, _), _| there != cluster),
            Fact::Gateway(AtGateway::Asked { visit, visitor, member, what }) => {
                let asking = Asking { visitor: *visitor, member: *member, what: *what, at, expected: vec![] };
                visits.asked(*visit, asking);
            }
            Fact::Gateway(AtGateway::Answered { visit, answer }) => {
                if let Some(asking) = visits.open.remove(visit) {
                    visits.answered(verdict, at, &asking, answer);
                }
            }
            _ => {}
        }
    }
}

/// Time after an acknowledgement within which a read may find the memory behind.
const LATELY: std::time::Duration = std::time::Duration::from_secs(10);

/// Catalogue number of a resource that is no longer served.
const NOT_SERVED: u8 = 20;

struct Visits<'a> {
    case: &'a Case<'a>,
    log: Log,
    /// The last acknowledged write of each object, by visitor.
    own: BTreeMap<(VisitorId, ClusterId, KeyId), Own>,
    open: HashMap<VisitId, Asking>,
}

/// An acknowledged write.
#[derive(Clone, Copy)]
struct Own {
    /// The version that it made.
    rv: u64,
    /// True if it deleted the object.
    deleted: bool,
    acknowledged: At,
}

/// A request without an answer so far.
struct Asking {
    visitor: VisitorId,
    member: Option<MemberId>,
    what: Asked,
    at: At,
    /// Writes that the answer must show.
    expected: Vec<(ClusterId, KeyId, Own)>,
}

impl Visits<'_> {
    fn asked(&mut self, visit: VisitId, mut asking: Asking) {
        let own = self.own.iter().filter(|((visitor, ..), _)| *visitor == asking.visitor);
        let expected = own.map(|((_, cluster, key), own)| (*cluster, *key, *own));
        asking.expected =
            expected.filter(|(cluster, key, _)| self.is_read(&asking, *cluster, *key)).collect();
        self.open.insert(visit, asking);
    }

    /// Returns whether the answer must show this object.
    fn is_read(&self, asking: &Asking, cluster: ClusterId, key: KeyId) -> bool {
        let within = |namespace: Option<u8>| {
            let name = namespace.map(|at| NAMESPACES[usize::from(at)]);
            name.is_none() || self.case.key(key).namespace() == name
        };
        let of_member = asking.member.is_none_or(|member| self.cluster(member) == cluster);
        match asking.what {
            Asked::Create { .. } | Asked::Update { .. } | Asked::Delete { .. } => false,
            Asked::Get { key: one, of } => one == key && self.cluster(of) == cluster,
            Asked::List { namespace } | Asked::Watch { namespace } => of_member && within(namespace),
        }
    }

    fn answered(&mut self, verdict: &mut Verdict, at: At, asking: &Asking, answer: &Answer) {
        self.names(verdict, at, asking, answer);
        match asking.what {
            Asked::Create { key, stamp } | Asked::Update { key, stamp } => {
                let acknowledged = matches!(answer.code, 200 | 201);
                self.written(verdict, at, asking, (key, stamp), acknowledged);
            }
            Asked::Delete { key } if answer.code == 200 => self.deleted(verdict, at, asking, key),
            Asked::Delete { .. } => {}
            Asked::Get { .. } if !answer.missing && answer.code != 200 => {}
            Asked::List { .. } | Asked::Watch { .. } if answer.code != 200 => {}
            Asked::Get { .. } | Asked::List { .. } | Asked::Watch { .. } => {
                for expected in &asking.expected {
                    self.shows(verdict, at, asking, answer, *expected);
                }
            }
        }
    }

    /// Checks I25: a write arrived in the cluster of its name, and in no other.
    fn written(
        &mut self,
        verdict: &mut Verdict,
        at: At,
        asking: &Asking,
        (key, stamp): (KeyId, u32),
        acknowledged: bool,
    ) {
        let Some(member) = asking.member else { return };
        let (cluster, of) = (self.cluster(member), self.focus(asking, key));
        let found = self.log.clusters_of(stamp);
        verdict.demand(Invariant::I25, found.iter().all(|there| *there == cluster), at, of, || {
            format!("{} was written to {}, and is in {found:?}", self.case.key(key), self.name(member))
        });
        if !acknowledged {
            return;
        }
        match self.log.version(cluster, stamp) {
            Some(rv) => {
                self.acknowledged(at, asking, cluster, key, Own { rv, deleted: false, acknowledged: at })
            }
            None if found.is_empty() => {
                let what = format!("a write of {} was acknowledged, and never made", self.case.key(key));
                verdict.violate(Invariant::I24, at, of, what);
            }
            None => {}
        }
    }

    fn deleted(&mut self, verdict: &mut Verdict, at: At, asking: &Asking, key: KeyId) {
        let Some(member) = asking.member else { return };
        let (cluster, of) = (self.cluster(member), self.focus(asking, key));
        let deletion = self.log.deletion_between(cluster, key, asking.at, at);
        verdict.demand(Invariant::I25, deletion.is_some(), at, of, || {
            format!("{} was deleted of {}, and was not there", self.case.key(key), self.name(member))
        });
        if let Some(rv) = deletion {
            self.acknowledged(at, asking, cluster, key, Own { rv, deleted: true, acknowledged: at });
        }
    }

    fn acknowledged(&mut self, at: At, asking: &Asking, cluster: ClusterId, key: KeyId, own: Own) {
        // A write that a later rollback removed need not be there.
        if self.case.truth.rollbacks(cluster).all(|rollback| rollback < asking.at || rollback > at) {
            self.own.insert((asking.visitor, cluster, key), own);
        }
    }

    /// Checks I24 for an object that the reader has written.
    fn shows(
        &self,
        verdict: &mut Verdict,
        at: At,
        asking: &Asking,
        answer: &Answer,
        (cluster, key, own): (ClusterId, KeyId, Own),
    ) {
        let is_away = answer.away.iter().any(|member| self.cluster(*member) == cluster);
        if is_away || self.is_excused(asking, cluster, at) {
            return;
        }
        if asking.at.since(own.acknowledged) < LATELY {
            verdict.exercise(Invariant::I24);
        }
        let of_object = |shown: &&Shown| {
            let there = shown.member.is_some_and(|member| self.cluster(member) == cluster);
            there && shown.object.key == key
        };
        let shown: Vec<Shown> = answer.shown.iter().filter(of_object).copied().collect();
        let older = shown.iter().find(|shown| !self.is_as_new(cluster, shown, own));
        let what = || {
            let own = if own.deleted { "deletion" } else { "write" };
            format!("{:?} of {} after its own {own}", asking.what, self.case.key(key))
        };
        let of = self.focus(asking, key);
        verdict.demand(Invariant::I24, older.is_none(), at, of, || {
            let version = older.map(|shown| shown.object);
            format!("{} at RV {} shows {version:?}", what(), own.rv)
        });
        let missing = !own.deleted && shown.is_empty();
        let deleted_since = || self.log.is_deleted_since(cluster, key, own.rv, at);
        let gone = || deleted_since() || self.is_denied(asking, cluster, at);
        verdict.demand(Invariant::I24, !missing || gone(), at, of, || {
            format!("{} at RV {} shows nothing of it", what(), own.rv)
        });
    }

    /// Returns whether the shown object is the visitor's own write, or a later one.
    fn is_as_new(&self, cluster: ClusterId, shown: &Shown, own: Own) -> bool {
        let written = self.log.written(cluster, shown.object.stamp);
        let later = |rv: u64| if own.deleted { rv > own.rv } else { rv >= own.rv };
        match written {
            Some(Written { uid, .. }) if shown.gone => self.log.deletion_of(cluster, uid).is_some_and(later),
            Some(Written { rv, .. }) => later(rv),
            // No write made it.
            None => false,
        }
    }

    /// Returns whether the gateway cannot know better. After a rollback an old version counts as a later one until a probe has
    /// detected it. Or a server loses changes without a trace.
    fn is_excused(&self, asking: &Asking, cluster: ClusterId, at: At) -> bool {
        let unknown = |span: &FaultSpan| span.is_rollback() || span.lies;
        self.case.weather.felt(cluster, asking.at, at).any(unknown)
    }

    /// Returns whether the servers report that the visitors' resource is not served at all: then nothing of it is there.
    fn is_denied(&self, asking: &Asking, cluster: ClusterId, at: At) -> bool {
        self.case.weather.felt(cluster, asking.at, at).any(|span| span.number == NOT_SERVED)
    }

    /// Checks I25: an object shown under a name was written to it.
    fn names(&self, verdict: &mut Verdict, at: At, asking: &Asking, answer: &Answer) {
        for shown in &answer.shown {
            let of = self.focus(asking, shown.object.key);
            verdict.exercise(Invariant::I25);
            let own = shown.member.is_some() && shown.member == shown.home;
            verdict.demand(Invariant::I25, own, at, of, || {
                let name = |member: Option<MemberId>| member.map_or("no member", |member| self.name(member));
                let (shown_of, home) = (name(shown.member), name(shown.home));
                format!(
                    "{} is shown of {shown_of}, and was written to {home}",
                    self.case.key(shown.object.key)
                )
            });
        }
    }

    fn cluster(&self, member: MemberId) -> ClusterId {
        self.case.history.cast.members[member.index()].cluster
    }

    fn name(&self, member: MemberId) -> &str {
        &self.case.history.cast.members[member.index()].name
    }

    fn focus(&self, asking: &Asking, key: KeyId) -> Focus {
        let cluster = asking.member.map(|member| self.cluster(member));
        Focus { cluster, key: Some(key), visitor: Some(asking.visitor), ..Focus::default() }
    }
}
