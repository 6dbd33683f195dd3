//! Final states when all is quiet: I23, and the part of I21 that a panic does not affect other handlers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::stores::word;
use super::{Case, Focus, Invariant, Verdict};
use crate::history::{At, Content, Fact, HandlerId, InformerId, KeyId, Kind, Look, Seen, Walk};

/// Maximum duration of a handler's call. No writes come in the end, but a busy handler may still have a queue to process.
const SLOWEST: Duration = Duration::from_secs(20);

pub(super) fn check(case: &Case<'_>, verdict: &mut Verdict) {
    let mut last: BTreeMap<InformerId, (At, &Look)> = BTreeMap::new();
    let mut told: BTreeMap<HandlerId, HashMap<KeyId, Seen>> = BTreeMap::new();
    let mut panicked: BTreeSet<HandlerId> = BTreeSet::new();
    let mut busy: HashMap<HandlerId, At> = HashMap::new();
    let mut settled = None;
    for (at, fact) in case.facts() {
        match fact {
            Fact::Looked(look) if look.walk == Walk::Last => {
                last.insert(look.informer, (at, look));
            }
            Fact::HandlerAdded { handler } => drop(told.entry(*handler).or_default()),
            Fact::Callback { handler, kind, object, flags, .. } => {
                if !flags.resync {
                    busy.insert(*handler, at);
                }
                let known = told.entry(*handler).or_default();
                match kind {
                    Kind::Added | Kind::Updated => known.insert(object.key, *object),
                    Kind::Deleted => known.remove(&object.key),
                };
            }
            Fact::CallbackEnded { handler, panicked: true } => drop(panicked.insert(*handler)),
            Fact::Settled => settled = Some(at),
            _ => {}
        }
    }
    let Some(settled) = settled else { return };
    for (informer, (at, look)) in &last {
        if case.lives.informer(*informer).covers(settled, *at) {
            store(case, verdict, *at, look);
        }
    }
    for (handler, known) in &told {
        let informer = case.history.cast.handlers[handler.index()].informer;
        let Some((at, look)) = last.get(&informer) else { continue };
        let through = busy.get(handler).is_none_or(|last| last.plus(SLOWEST) < *at);
        if !through || !case.lives.handler(*handler).covers(settled, *at) {
            continue;
        }
        let invariant = if panicked
            .iter()
            .any(|other| other != handler && case.history.cast.handlers[other.index()].informer == informer)
        {
            verdict.count(Invariant::I21, true);
            Invariant::I21
        } else {
            Invariant::I23
        };
        handler_is(case, verdict, *at, invariant, *handler, known, look);
    }
}

fn store(case: &Case<'_>, verdict: &mut Verdict, at: At, look: &Look) {
    if case.excuses.may_be_wrong(look.informer, at) {
        return;
    }
    let stories = case.truth.stories(look.informer);
    let equal =
        stories.iter().zip(&look.views).all(|(story, view)| story.line_at(at).content_at(at) == view.content);
    let well = look.synced && look.freshness.is_live() && equal;
    verdict.exercise(Invariant::I23);
    verdict.demand(Invariant::I23, well, at, case.focus(look.informer), || {
        let objects: Vec<u32> = look.views.iter().map(|view| view.content.objects).collect();
        let server: Vec<u32> = stories.iter().map(|story| story.line_at(at).content_at(at).objects).collect();
        format!(
            "{}: {} objects, {}; the server has {} ({})",
            case.name(look.informer),
            list(&objects),
            word(&look.freshness),
            list(&server),
            if equal { "equal" } else { "not the same" }
        )
    });
}

fn handler_is(
    case: &Case<'_>,
    verdict: &mut Verdict,
    at: At,
    invariant: Invariant,
    handler: HandlerId,
    known: &HashMap<KeyId, Seen>,
    look: &Look,
) {
    let mut store = Content::EMPTY;
    for view in &look.views {
        store.objects = store.objects.wrapping_add(view.content.objects);
        store.sum = store.sum.wrapping_add(view.content.sum);
    }
    let told: Content = known.values().copied().collect();
    let of = Focus { handler: Some(handler), ..case.focus(look.informer) };
    verdict.exercise(invariant);
    verdict.demand(invariant, told == store, at, of, || {
        let name = &case.history.cast.handlers[handler.index()].name;
        format!(
            "{name}: was told of {} objects in the end, and the store has {}",
            told.objects, store.objects
        )
    });
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + ")
}
