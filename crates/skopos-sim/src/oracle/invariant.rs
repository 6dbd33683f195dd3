//! The invariants by number and name.

use std::fmt;
use std::ops::{Index, IndexMut};

macro_rules! invariants {
    ($($number:ident $code:literal $name:literal: $statement:literal;)*) => {
        /// An invariant of every history.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Invariant {
            $(#[doc = $statement] $number,)*
        }

        impl Invariant {
            /// All invariants.
            pub const ALL: [Invariant; [$($code),*].len()] = [$(Invariant::$number),*];

            /// Returns the code, such as `I8b`.
            pub fn code(self) -> &'static str {
                match self { $(Invariant::$number => $code,)* }
            }

            /// Returns the name in a word or two.
            pub fn name(self) -> &'static str {
                match self { $(Invariant::$number => $name,)* }
            }

            /// Returns the statement.
            pub fn statement(self) -> &'static str {
                match self { $(Invariant::$number => $statement,)* }
            }
        }
    };
}

invariants! {
    I1 "I1" "ordered": "The events of a key that a handler gets have growing RVs in an epoch; without a gap, RVs of all keys never decrease.";
    I2 "I2" "unique": "A handler gets each version of an object at most once, except for resyncs and gaps.";
    I3 "I3" "atomic": "The content of a store is the server's at exactly its RV; nothing is visible half applied. Of several changes that share an RV, and come one by one, it may have the first.";
    I4 "I4" "reliable": "Between two gaps a handler gets exactly the changes of the server's log that its selector selects; and where nothing is wrong, a gap has a cause.";
    I5 "I5" "resumable": "A watch resumes from the RV of the store, or from the one before it if more changes may be due at it; a first list is consistent, never from RV 0.";
    I6 "I6" "bookmarkable": "In an epoch the RV of a store never goes back, and the content at an RV never changes, except when the rest of several changes that share it arrives.";
    I7 "I7" "filterable": "Every object in a store matches the selector.";
    I8 "I8" "previous": "The old object of an update is the one that the handler got last. Before an addition there is none, before an update or a deletion there is one.";
    I8b "I8b" "is create": "An addition without a gap is one in the server's log: the object was created, or came into scope.";
    I9 "I9" "serializable reads": "A read of an RV has that RV or says that it is not reached yet; a read from the server is the server's state; no read is older than requested.";
    I10 "I10" "honest age": "The reported age is never below the true one.";
    I11 "I11" "detection": "Content that is older than the fault's bound is not called live.";
    I12 "I12" "recovery": "In bounded time after a fault is healed the content is the server's and is called live.";
    I13 "I13" "bounded calls": "Every call returns within its limit and 50 ms.";
    I14 "I14" "isolation": "While others fail, a cluster without faults, and the part of a cluster that a fault does not hit, is live, and its changes arrive at once; lists and watches do not share connections.";
    I15 "I15" "no storm": "During a lasting fault: at most 6 requests and 2 lists a minute from each list/watch; never a burst. Where nothing is wrong: no list and no second look without a cause.";
    I16 "I16" "termination": "After a shutdown or a removal there is no call, no task, no connection and no request.";
    I17 "I17" "bounded memory": "A handler's queue never holds more than its capacity, or one batch.";
    I18 "I18" "uid": "An update never spans two uids.";
    I19 "I19" "epoch": "When history goes back, a new epoch begins within a probe interval, and never otherwise; no other client gets a broken history.";
    I20 "I20" "synced": "A handler that says it has synced got the whole first list; a wait for it that fails names the cause.";
    I21 "I21" "panics": "A handler that panics gets the event again, and costs no other handler anything.";
    I22 "I22" "work queue": "No two workers have the same key; a key that is added during work on it is worked on again; no key is lost, and a drain ends.";
    I23 "I23" "convergence": "When all is quiet, stores are equal to the server, and the events of handlers add up to the store.";
    I24 "I24" "own writes": "The gateway's answer to a read is never older than a write that it acknowledged to the reader before, except where the answer says that the cluster is away.";
    I25 "I25" "names": "The gateway's answer for a name is of the cluster of that name, and a write to a name reaches that cluster.";
    I26 "I26" "no false alarm": "Content of a healthy server, also of one that sends no bookmarks, is never called stale, and its link never degraded.";
    N1 "N1" "nothing foreign": "Nothing outside without a mark of the notifier is ever changed.";
    N2 "N2" "evidence": "Nothing that the cluster wants is removed from the outside, and a removal that no watch can have shown waits until a later list agrees.";
    N3 "N3" "outside": "In bounded time after the last trouble a notifier works, and the outside is as the cluster wants it.";
    N4 "N4" "acknowledged": "In bounded time after the last trouble the receiver has acknowledged the state of each object that the cluster has.";
    N5 "N5" "newer": "Of an object no message has an older state than one before it, in an epoch.";
    N6 "N6" "one term": "No two processes have a term at the same time, and none writes outside of its own.";
    N7 "N7" "last one": "The last value of a name is not removed while its Service lives.";
    N8 "N8" "no growth": "However long the outside fails, it is not called more often for that, and no name needs more writes afterwards.";
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.code(), self.name())
    }
}

/// A value for each invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerInvariant<T>([T; Invariant::ALL.len()]);

impl<T> PerInvariant<T> {
    /// Makes a value for each invariant with `of`.
    pub fn from_fn(of: impl FnMut(Invariant) -> T) -> Self {
        Self(Invariant::ALL.map(of))
    }

    /// Returns each invariant with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Invariant, &T)> {
        Invariant::ALL.into_iter().zip(&self.0)
    }
}

impl<T: Default> Default for PerInvariant<T> {
    fn default() -> Self {
        Self::from_fn(|_| T::default())
    }
}

impl<T> Index<Invariant> for PerInvariant<T> {
    type Output = T;
    fn index(&self, invariant: Invariant) -> &T {
        &self.0[invariant as usize]
    }
}

impl<T> IndexMut<Invariant> for PerInvariant<T> {
    fn index_mut(&mut self, invariant: Invariant) -> &mut T {
        &mut self.0[invariant as usize]
    }
}
