use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use skopos_reflect::{Change as Told, Sink};
use skopos_wire::{RawObject, ResourceVersion};

use super::*;
use crate::store::object::Object;
use crate::store::{Snapshot, Store, StoreCore, StoreWriter};
use crate::testing::{apply, cases, commit, deleted, gone, list, object, put, snapshot, store};

fn journaled(options: JournalOptions) -> (Arc<StoreCore>, StoreWriter, Journal) {
    let (core, writer) = store();
    core.keep_journal(options);
    let journal = Store::from(core.clone()).journal().unwrap();
    (core, writer, journal)
}

fn texts(batch: &Batch) -> Vec<String> {
    let text = |change: &Change| {
        let rv = |object: &Option<Object>| {
            object.as_ref().map_or("-".to_owned(), |object| object.resource_version().to_string())
        };
        let gap = if change.gap { " gap" } else { "" };
        let (old, new, last) = (rv(&change.old), rv(&change.new), rv(&change.last));
        let (kind, at, name) = (change.kind, &change.resource_version, change.key().name());
        let further = if change.further { " further" } else { "" };
        format!("{kind:?} {name} at {at}: {old} {new} {last}{gap}{further}")
    };
    batch.changes.iter().map(text).collect()
}

fn rv(rv: u64) -> ResourceVersion {
    rv.into()
}

#[test]
fn changes_carry_previous_state() {
    let (_core, mut writer, journal) = journaled(JournalOptions::default());
    assert_eq!(journal.after(&rv(1)).unwrap_err(), JournalError::NotSynced);
    assert_eq!((journal.oldest(), journal.newest(), journal.stats()), (None, None, None));
    list(&mut writer, [object("ns", "a", "u1", 1), object("ns", "b", "u2", 2)], commit(5, 0, false));
    let (snapshot, mut cursor) = journal.begin();
    assert_eq!(*snapshot.resource_version(), rv(5));
    apply(&mut writer, [put("a", "u1", 6), put("c", "u3", 7), deleted("b", "u2", 8)], 8);
    apply(&mut writer, [put("a", "u4", 11)], 11);
    apply(&mut writer, [gone("ns/c", 12), put("a", "u4", 13)], 13);
    let batch = cursor.read(2).unwrap();
    assert_eq!(texts(&batch), ["Modified a at 6: 1 6 -", "Added c at 7: - 7 -"]);
    assert_eq!(batch.reached, None);
    let batch = cursor.read(100).unwrap();
    assert_eq!(
        texts(&batch),
        [
            "Deleted b at 8: 2 - 8",
            // Another object has taken the name, and the deletion of the first one was not reported.
            "Deleted a at 10: 6 - -",
            "Added a at 11: - 11 -",
            // In its place, and not at the end of its batch.
            "Deleted c at 12: 7 - -",
            "Modified a at 13: 11 13 -",
        ]
    );
    assert_eq!(batch.reached, Some(rv(13)));
    writer.advance(&rv(20));
    let batch = cursor.read(100).unwrap();
    assert_eq!((batch.changes.len(), batch.reached), (0, Some(rv(20))));
    let mut from = journal.after(&rv(7)).unwrap();
    assert_eq!(from.read(1).unwrap().changes[0].resource_version, rv(8));
    assert_eq!(journal.after(&rv(20)).unwrap().read(9).unwrap().changes.len(), 0);
    assert_eq!(
        journal.after(&rv(21)).unwrap_err(),
        JournalError::Ahead { requested: rv(21), newest: rv(20) }
    );
    let expired = journal.after(&rv(4)).unwrap_err();
    assert_eq!(expired.to_string(), "too old resource version: 4 (5)");
    assert!(expired.is_expired());
}

#[test]
fn change_at_reached_version_is_marked_further() {
    let (_core, mut writer, journal) = journaled(JournalOptions::default());
    let objects = ["a", "b", "c", "d"].map(|name| object("ns", name, name, 1));
    list(&mut writer, objects, commit(5, 0, false));
    let (_, mut cursor) = journal.begin();
    apply(&mut writer, [deleted("a", "a", 6), deleted("b", "b", 6)], 6);
    apply(&mut writer, [deleted("c", "c", 6), put("e", "e", 7)], 7);
    writer.advance(&rv(8));
    apply(&mut writer, [deleted("d", "d", 8)], 8);
    assert_eq!(
        texts(&cursor.read(10).unwrap()),
        [
            "Deleted a at 6: 1 - 6",
            "Deleted b at 6: 1 - 6 further",
            "Deleted c at 6: 1 - 6 further",
            "Added e at 7: - 7 -",
            "Deleted d at 8: 1 - 8 further",
        ]
    );
}

#[test]
fn relist_appears_as_indivisible_differences() {
    let (core, mut writer, journal) = journaled(JournalOptions::default());
    let listed = ["a", "b", "c", "d"].map(|name| object("ns", name, name, 1));
    list(&mut writer, listed, commit(5, 0, false));
    let (_, mut cursor) = journal.begin();
    let now = [
        object("ns", "a", "a", 1),
        object("ns", "b", "other", 14),
        object("ns", "e", "e", 9),
        object("ns", "c", "c", 12),
    ];
    list(&mut writer, now, commit(20, 0, true));
    let batch = cursor.read(100).unwrap();
    assert_eq!(
        texts(&batch),
        [
            "Added e at 9: - 9 - gap",
            "Modified c at 12: 1 12 - gap",
            "Deleted b at 13: 1 - - gap",
            "Added b at 14: - 14 - gap",
            "Deleted d at 20: 1 - - gap",
        ]
    );
    assert_eq!(batch.reached, Some(rv(20)));
    let relisted = batch.relisted.expect("what came and went between 5 and 20 is not among the changes");
    assert_eq!(
        relisted.iter().map(|object| object.name().to_owned()).collect::<Vec<_>>(),
        ["a", "b", "c", "e"]
    );
    assert_eq!(journal.after(&rv(5)).unwrap().read(100).unwrap().changes.len(), 5);
    assert!(journal.after(&rv(5)).unwrap().read(100).unwrap().relisted.is_some());
    let mut in_parts = journal.after(&rv(5)).unwrap();
    assert!(in_parts.read(3).unwrap().relisted.is_none(), "it is not there yet");
    assert!(in_parts.read(3).unwrap().relisted.is_some());
    assert!(in_parts.read(3).unwrap().relisted.is_none(), "it was told");
    for inside in [6, 12, 19] {
        let expired = JournalError::Expired { requested: rv(inside), oldest: rv(20) };
        assert_eq!(journal.after(&rv(inside)).unwrap_err(), expired);
    }
    assert_eq!(journal.after(&rv(20)).unwrap().read(100).unwrap().changes.len(), 0);
    // A list without changes is a gap all the same: objects may have come and gone.
    let same: Vec<RawObject> = snapshot(&core).iter().map(|object| object.raw().clone()).collect();
    list(&mut writer, same, commit(30, 0, true));
    let batch = cursor.read(100).unwrap();
    assert_eq!((batch.changes.len(), batch.reached), (0, Some(rv(30))));
    assert!(batch.relisted.is_some());
    assert!(journal.after(&rv(30)).unwrap().read(100).unwrap().relisted.is_none());
    assert!(journal.after(&rv(25)).unwrap_err().is_expired());
    assert!(journal.after(&rv(20)).is_ok());
    assert_eq!(journal.stats().unwrap().gaps, 2);
}

#[test]
fn unreportable_change_ends_every_cursor() {
    let fell_out = |cursor: &mut Cursor| match cursor.read(10) {
        Err(JournalError::FellOut { cause, oldest }) => (cause, oldest.as_u64().unwrap()),
        other => panic!("{other:?}"),
    };
    let (_core, mut writer, journal) = journaled(JournalOptions::default());
    let (_, mut early) = journal.begin();
    assert_eq!(early.read(1).unwrap_err(), JournalError::NotSynced);
    list(&mut writer, [object("ns", "a", "a", 1)], commit(5, 0, false));
    assert_eq!(fell_out(&mut early), (Lost::FirstList, 5));
    let (_, mut cursor) = journal.begin();
    // An audit found that an object was missing, and there is no RV in between.
    list(&mut writer, [object("ns", "a", "a", 1), object("ns", "b", "b", 2)], commit(5, 0, true));
    assert_eq!(fell_out(&mut cursor), (Lost::Corrected, 5));
    assert!(journal.after(&rv(5)).is_ok());
    let (_, mut cursor) = journal.begin();
    // Two deletions, and room for one.
    list(&mut writer, [], commit(6, 0, true));
    assert_eq!(fell_out(&mut cursor), (Lost::Corrected, 6));
    let (_, mut cursor) = journal.begin();
    list(&mut writer, [object("ns", "a", "a", 2)], commit(3, 1, true));
    assert_eq!(fell_out(&mut cursor), (Lost::NewEpoch, 3));
    assert_eq!(journal.epoch(), 1);
    assert!(journal.after(&rv(6)).is_err());
    // Other content at the same RV.
    let (_, mut cursor) = journal.begin();
    let json =
        br#"{"metadata":{"name":"a","namespace":"ns","uid":"a","resourceVersion":"2"},"defaulted":true}"#;
    let other = RawObject::scan(json.as_slice().into(), &skopos_wire::Limits::default()).unwrap();
    list(&mut writer, [other], commit(4, 1, true));
    assert_eq!(fell_out(&mut cursor), (Lost::Corrected, 4));
    // The server breaks its own order.
    let (_, mut cursor) = journal.begin();
    writer.advance(&rv(9));
    apply(&mut writer, [put("a", "a", 7)], 9);
    assert_eq!(fell_out(&mut cursor), (Lost::Corrected, 9));
}

#[test]
fn window_is_bounded_by_changes_and_bytes() {
    let (_core, mut writer, journal) = journaled(JournalOptions { events: 100, bytes: 1 << 30 });
    list(&mut writer, [], commit(1, 0, false));
    let (_, mut slow) = journal.begin();
    for at in 2..1000 {
        apply(&mut writer, [put("a", "a", at)], at);
        let stats = journal.stats().unwrap();
        assert!(stats.events <= 100 && (at < 100 || stats.events >= 80), "{stats:?}");
    }
    let oldest = journal.oldest().unwrap().as_u64().unwrap();
    let read = journal.after(&rv(oldest)).unwrap().read(1000).unwrap();
    assert_eq!(read.changes.len() as u64, 999 - oldest);
    assert!(journal.after(&rv(oldest - 1)).unwrap_err().is_expired());
    assert_eq!(slow.read(1).unwrap_err(), JournalError::FellOut { cause: Lost::TooSlow, oldest: rv(oldest) });

    let (_core, mut writer, journal) = journaled(JournalOptions { events: 10_000, bytes: 20_000 });
    list(&mut writer, [], commit(1, 0, false));
    let one = ChangeRecord::put(Some(crate::store::object::StoredObject::new(object("ns", "a", "a", 2))), {
        crate::store::object::StoredObject::new(object("ns", "a", "a", 3))
    });
    for at in 2..1000 {
        apply(&mut writer, [put("a", "a", at)], at);
        let stats = journal.stats().unwrap();
        assert!(stats.bytes <= 20_000 && (at < 500 || stats.bytes >= 15_000), "{stats:?}");
        assert!(stats.bytes <= stats.events * (one.bytes() + 10), "{stats:?}");
    }
}

#[test]
fn journal_enabled_later_lacks_earlier_changes() {
    let (core, mut writer) = store();
    list(&mut writer, [object("ns", "a", "a", 1)], commit(5, 0, false));
    let before = snapshot(&core);
    let reader: Store = core.clone().into();
    assert!(reader.journal().is_none() && reader.journal_in("ns").is_none());
    core.keep_journal(JournalOptions::default());
    let journal = reader.journal().unwrap();
    apply(&mut writer, [put("a", "a", 6)], 6);
    assert_eq!(journal.after(&rv(5)).unwrap().read(10).unwrap().changes.len(), 1);
    let fell_out = journal.at(&before).read(10).unwrap_err();
    assert_eq!(fell_out, JournalError::FellOut { cause: Lost::TooSlow, oldest: rv(5) });
}

#[tokio::test(start_paused = true)]
async fn cursor_wakes_for_change_bookmark_and_end() {
    let (core, mut writer, journal) = journaled(JournalOptions { events: 8, bytes: 1 << 20 });
    let limit = Duration::from_secs(5);
    list(&mut writer, [], commit(5, 0, false));
    let (_, mut cursor) = journal.begin();
    assert_eq!(cursor.changed(limit).await, Ok(false));
    let mut told = vec![];
    for step in 0..4u64 {
        let waiting = tokio::time::timeout(limit * 2, cursor.changed(limit));
        let act = async {
            match step {
                0 => apply(&mut writer, [put("a", "a", 6)], 6),
                1 => writer.advance(&rv(7)),
                2 => (8..40).for_each(|at| apply(&mut writer, [put("a", "a", at)], at)),
                _ => core.close(),
            }
        };
        let (woken, ()) = tokio::join!(waiting, act);
        told.push((woken.unwrap(), cursor.read(100).map(|batch| batch.changes.len())));
        if told[told.len() - 1].1.is_err() {
            cursor = journal.begin().1;
        }
    }
    assert_eq!((&told[0], &told[1]), (&(Ok(true), Ok(1)), &(Ok(true), Ok(0))));
    assert!(told[2].0 == Ok(true) && told[2].1.is_err());
    assert!(told[3].0.is_err());
}

/// A client's state: for each name, the uid and the RV of the object.
type State = BTreeMap<String, (String, u64)>;

fn state_of(snapshot: &Snapshot, selects: impl Fn(&Object) -> bool) -> State {
    let object = |object: Object| {
        (object.name().to_owned(), (object.uid().to_owned(), object.resource_version().as_u64().unwrap()))
    };
    snapshot.iter().filter(|object| selects(object)).map(object).collect()
}

fn tell(state: &mut State, kind: ChangeKind, object: &Object) {
    let name = object.name().to_owned();
    match kind {
        ChangeKind::Added => {
            let was = state.insert(name, identity(object));
            assert_eq!(was, None, "added although it was there");
        }
        ChangeKind::Modified => {
            let was = state.insert(name, identity(object)).expect("modified although it was not there");
            assert_eq!(was.0, object.uid(), "an update never spans two uids");
        }
        ChangeKind::Deleted => {
            let was = state.remove(&name).expect("deleted although it was not there");
            assert_eq!(was.0, object.uid());
        }
    }
}

fn identity(object: &Object) -> (String, u64) {
    (object.uid().to_owned(), object.resource_version().as_u64().unwrap())
}

/// A server whose history continues whether or not the store receives it.
struct Server {
    rv: u64,
    state: State,
    /// The events that the store has not received, in order.
    pending: Vec<(u64, Told)>,
    /// The state at each RV of this epoch.
    past: BTreeMap<u64, State>,
    epoch: u64,
    born: u64,
}

impl Server {
    fn write(&mut self, name: u8, step: u8) {
        self.rv += u64::from(step % 3) + 1;
        let name = ["a", "b", "c", "d", "e"][usize::from(name) % 5];
        let old = self.state.get(name).cloned();
        let change = match (old, step % 4) {
            (Some((uid, _)), 0) => {
                self.state.remove(name);
                deleted(name, &uid, self.rv)
            }
            (old, _) => {
                let uid = old.map_or_else(|| format!("u{}", self.born), |(uid, _)| uid);
                self.born += 1;
                self.state.insert(name.to_owned(), (uid.clone(), self.rv));
                put(name, &uid, self.rv)
            }
        };
        self.pending.push((self.rv, change));
        self.past.insert(self.rv, self.state.clone());
    }

    fn listed(&mut self) -> Vec<RawObject> {
        self.pending.clear();
        self.past.insert(self.rv, self.state.clone());
        self.state.iter().map(|(name, (uid, rv))| object("ns", name, uid, *rv)).collect()
    }
}

/// A client that reads a cursor: everything, and through a selector.
struct Client {
    cursor: Cursor,
    all: State,
    odd: State,
    /// The RV that it believes to have reached.
    rv: u64,
    /// True if its last change was marked as a gap.
    in_gap: bool,
}

fn is_odd(object: &Object) -> bool {
    object.label("parity") == Some("1")
}

impl Client {
    fn at(snapshot: &Snapshot, cursor: Cursor) -> Self {
        let rv = snapshot.resource_version().as_u64().unwrap();
        Self { cursor, all: state_of(snapshot, |_| true), odd: state_of(snapshot, is_odd), rv, in_gap: false }
    }

    /// Reads `most` changes, and loses the last `lost` of them. Returns false if the client must list again.
    fn read(&mut self, now: &Snapshot, most: usize, lost: usize) -> bool {
        let Ok(batch) = self.cursor.read(most) else { return false };
        let arrived = batch.changes.len().saturating_sub(lost);
        for change in &batch.changes[..arrived] {
            let at = change.resource_version.as_u64().unwrap();
            let follows = at > self.rv || (change.gap && self.in_gap && at == self.rv);
            assert!(follows, "{change:?} after {}", self.rv);
            self.in_gap = change.gap;
            // A watch client takes the object's RV; for deletions that is the event's RV.
            self.rv = change.new.as_ref().map_or(at, |new| identity(new).1);
            let (kind, object) = change.seen_by(|_| true).unwrap();
            assert_eq!(kind, change.kind);
            tell(&mut self.all, kind, object);
            if let Some((kind, object)) = change.seen_by(is_odd) {
                tell(&mut self.odd, kind, object);
            }
        }
        if lost > 0 {
            return true;
        }
        if let Some(reached) = &batch.reached {
            assert_eq!(reached, now.resource_version());
            assert_eq!(batch.epoch, now.epoch());
            assert_eq!(self.all, state_of(now, |_| true), "at {reached}");
            assert_eq!(self.odd, state_of(now, is_odd), "odd ones at {reached}");
            self.rv = reached.as_u64().unwrap();
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(128), ..ProptestConfig::default() })]

    /// Checks that a client that began at a snapshot, or at any RV of the server, and read the journal since then has the
    /// store's content: through lists, cut connections, rollbacks and a window that moves on.
    #[test]
    fn changes_since_snapshot_or_version_rebuild_content(
        events in 4usize..80,
        steps in proptest::collection::vec((0u8..16, any::<u8>(), any::<u8>()), 1..120),
    ) {
        let (core, mut writer, journal) = journaled(JournalOptions { events, bytes: 1 << 20 });
        let mut server = Server {
            rv: 10, state: State::new(), pending: vec![], past: BTreeMap::new(), epoch: 0, born: 0,
        };
        let listed = server.listed();
        list(&mut writer, listed, commit(server.rv, 0, false));
        let mut clients: Vec<Client> = vec![];
        for (step, a, b) in steps {
            let now = || snapshot(&core);
            match step {
                0..=4 => (0..=a % 4).for_each(|n| server.write(b.wrapping_add(n * 7), a.wrapping_add(n))),
                5..=7 => {
                    let some = server.pending.len().min(usize::from(a % 8) + 1);
                    let told: Vec<(u64, Told)> = server.pending.drain(..some).collect();
                    if let Some((last, _)) = told.last() {
                        let last = *last;
                        apply(&mut writer, told.into_iter().map(|(_, change)| change), last);
                    }
                }
                8 if server.pending.is_empty() => {
                    server.rv += 1;
                    server.past.insert(server.rv, server.state.clone());
                    writer.advance(&server.rv.into());
                }
                9 if a % 4 > 0 => {
                    server.rv += u64::from(b % 2);
                    let listed = server.listed();
                    list(&mut writer, listed, commit(server.rv, server.epoch, true));
                }
                9 => {
                    // History goes back to some earlier state, and continues from there.
                    let back = *server.past.keys().nth(usize::from(b) % server.past.len()).unwrap();
                    server.past = server.past.split_off(&0).into_iter().filter(|(at, _)| *at <= back).collect();
                    server.state = server.past[&back].clone();
                    server.rv = back;
                    server.epoch += 1;
                    let listed = server.listed();
                    list(&mut writer, listed, commit(server.rv, server.epoch, true));
                    server.past.retain(|at, _| *at == server.rv);
                }
                10 => {
                    let (begun, cursor) = journal.begin();
                    clients.push(Client::at(&begun, cursor));
                }
                11 | 12 => {
                    // A client that got its state from the server.
                    let past = server.past.iter().nth(usize::from(a) % server.past.len()).unwrap();
                    let (at, all) = (*past.0, past.1.clone());
                    if let Ok(cursor) = journal.after(&at.into()) {
                        let odd = all.clone().into_iter().filter(|(_, (_, rv))| rv % 2 == 1).collect();
                        clients.push(Client { cursor, all, odd, rv: at, in_gap: false });
                    }
                }
                13 => {
                    // A client whose connection is cut comes back with its RV.
                    if let Some(mut client) = clients.pop()
                        && client.read(&now(), usize::from(a % 8) + 1, usize::from(b % 3) + 1)
                        && let Ok(cursor) = journal.after(&client.rv.into())
                    {
                        client.cursor = cursor;
                        clients.push(client);
                    }
                }
                _ => {
                    let most = usize::from(a % 16) + 1;
                    clients.retain_mut(|client| client.read(&now(), most, 0));
                }
            }
            let stats = journal.stats().unwrap();
            prop_assert!(stats.events <= events as u64 && stats.gaps <= 64);
            prop_assert_eq!(stats.newest, snapshot(&core).resource_version().clone());
        }
        clients.retain_mut(|client| client.read(&snapshot(&core), usize::MAX, 0));
    }
}
