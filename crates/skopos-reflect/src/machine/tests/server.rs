//! A model of an API server: a log and views of it.

use std::collections::BTreeMap;

use skopos_wire::{Limits, RawObject};

/// One change in the server's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) rv: u64,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) uid: u64,
    /// True if its frame cannot be decoded.
    pub(super) poisoned: bool,
    /// True if the object cannot be decoded by any read either.
    pub(super) rotten: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
}

/// The objects at one RV: name to (uid, rv).
pub(super) type Content = BTreeMap<String, (u64, u64)>;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) log: Vec<Entry>,
    /// The logs before each rollback.
    pub(super) past: Vec<Vec<Entry>>,
    pub(super) rv: u64,
    /// The RV up to which events are forgotten.
    pub(super) compacted: u64,
    next_uid: u64,
    newest: Content,
}

impl Server {
    pub(super) fn new() -> Self {
        Server {
            log: Vec::new(),
            past: Vec::new(),
            rv: 10,
            compacted: 0,
            next_uid: 1,
            newest: Content::new(),
        }
    }

    pub(super) fn content_at(log: &[Entry], rv: u64) -> Content {
        let mut content = Content::new();
        Self::fold(&mut content, log, rv);
        content
    }

    pub(super) fn fold(content: &mut Content, log: &[Entry], rv: u64) {
        for entry in log.iter().take_while(|entry| entry.rv <= rv) {
            match entry.kind {
                Kind::Deleted => {
                    content.remove(&entry.name);
                }
                _ => {
                    content.insert(entry.name.clone(), (entry.uid, entry.rv));
                }
            }
        }
    }

    pub(super) fn content(&self) -> Content {
        self.newest.clone()
    }

    pub(super) fn newest(&self) -> &Content {
        &self.newest
    }

    /// Returns the last entry of the name up to an RV.
    pub(super) fn last(&self, name: &str, rv: u64) -> Option<&Entry> {
        self.log.iter().rev().find(|entry| entry.rv <= rv && entry.name == name)
    }

    /// Creates, changes or deletes an object; sometimes two of them at one RV, as etcd deletes all keys of a lease.
    pub(super) fn write(&mut self, rng: &mut fastrand::Rng) -> &mut Entry {
        self.rv += rng.u64(1..4);
        let first = rng.u32(0..12);
        if rng.u32(0..6) == 0 {
            self.write_one((first + 1 + rng.u32(0..11)) % 12, rng);
        }
        self.write_one(first, rng)
    }

    fn write_one(&mut self, number: u32, rng: &mut fastrand::Rng) -> &mut Entry {
        let name = format!("o{number}");
        let present = self.content().get(&name).copied();
        let (kind, uid) = match present {
            None => {
                self.next_uid += 1;
                (Kind::Added, self.next_uid)
            }
            Some((uid, _)) if rng.u32(0..4) == 0 => (Kind::Deleted, uid),
            Some((uid, _)) => (Kind::Modified, uid),
        };
        self.log.push(Entry { rv: self.rv, kind, name, uid, poisoned: false, rotten: false });
        let last = self.log.len() - 1;
        Self::fold(&mut self.newest, &self.log[last..], self.rv);
        &mut self.log[last]
    }

    /// Advances the RV, as a write to another resource does.
    pub(super) fn tick(&mut self) {
        self.rv += 1;
    }

    /// Restores a backup that is this many changes old.
    pub(super) fn roll_back(&mut self, changes: usize) {
        let keep = self.log.len().saturating_sub(changes);
        let old = self.log.clone();
        self.log.truncate(keep);
        self.rv = self.log.last().map_or(10, |entry| entry.rv);
        self.newest = Self::content_at(&self.log, self.rv);
        self.compacted = self.compacted.min(self.rv);
        self.past.push(old);
    }
}

pub(super) fn object(name: &str, uid: u64, rv: u64) -> RawObject {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{uid}","resourceVersion":"{rv}"}}}}"#
    );
    RawObject::scan(json.into(), &Limits::default()).unwrap()
}
