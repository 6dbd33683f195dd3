//! Faults of one connection.

use std::io;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;

/// One connection, as the network sees it.
#[derive(Debug)]
pub struct Wire {
    number: u64,
    owner: usize,
    site: usize,
    state: Mutex<Fate>,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

/// Direction in which bytes are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Direction {
    /// Bytes from clients do not arrive.
    ToServer,
    /// Bytes from servers do not arrive.
    ToClient,
    /// Both.
    Both,
}

/// Kind of a connection's end for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Ending {
    /// A clean end.
    Fin,
    /// A reset.
    Rst,
}

/// A cut: the end of a connection in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Number of further bytes from the server before the cut.
    pub after: u64,
    /// The kind of end.
    pub how: Ending,
}

/// State of a wire, as a pipe sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fate {
    pub(super) holes_in: u32,
    pub(super) holes_out: u32,
    pub(super) delay: Duration,
    /// Maximum number of bytes in a tenth of a second.
    pub(super) throttle: Option<usize>,
    pub(super) cut: Option<Cut>,
    pub(super) ended: Option<Ending>,
    /// True if the client's kernel has given the connection up.
    pub(super) given_up: bool,
    pub(super) closed: bool,
}

impl Wire {
    pub(super) fn new(number: u64, owner: usize, site: usize) -> Self {
        Self {
            number,
            owner,
            site,
            state: Mutex::default(),
            reader: AtomicWaker::new(),
            writer: AtomicWaker::new(),
        }
    }

    /// Returns the connection's number at the server.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the index of the client that made it.
    pub fn owner(&self) -> usize {
        self.owner
    }

    /// Returns the index of its server.
    pub fn site(&self) -> usize {
        self.site
    }

    /// Returns whether the client has closed it.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Ends it for the client, at once.
    pub fn end(&self, how: Ending) {
        self.edit(|fate| fate.ended = Some(how));
    }

    /// Ends it for the client in the middle of the server's bytes.
    pub fn cut(&self, cut: Cut) {
        self.edit(|fate| fate.cut = Some(cut));
    }

    /// Cancels a cut that has not happened.
    pub fn spare(&self) {
        self.edit(|fate| fate.cut = None);
    }

    /// Returns whether a cut has happened.
    pub fn is_cut(&self) -> bool {
        let fate = self.state.lock();
        fate.cut.is_none() && fate.ended.is_some()
    }

    pub(super) fn give_up(&self) {
        self.edit(|fate| fate.given_up = true);
    }

    pub(super) fn hole(&self, direction: Direction, begins: bool) {
        let change = |count: &mut u32| *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        self.edit(|fate| {
            if direction != Direction::ToServer {
                change(&mut fate.holes_in);
            }
            if direction != Direction::ToClient {
                change(&mut fate.holes_out);
            }
        });
    }

    pub(super) fn delay(&self, delay: Duration) {
        self.edit(|fate| fate.delay = delay);
    }

    pub(super) fn delay_more(&self, more: Duration, begins: bool) {
        self.edit(|fate| {
            fate.delay = if begins { fate.delay + more } else { fate.delay.saturating_sub(more) }
        });
    }

    pub(super) fn throttle(&self, bytes: Option<usize>) {
        self.edit(|fate| fate.throttle = bytes);
    }

    pub(super) fn close(&self) {
        self.state.lock().closed = true;
    }

    pub(super) fn fate(&self) -> Fate {
        *self.state.lock()
    }

    /// Counts bytes that the client received; ends the connection where a cut is due.
    pub(super) fn passed(&self, bytes: usize) {
        let mut fate = self.state.lock();
        if let Some(cut) = &mut fate.cut {
            cut.after = cut.after.saturating_sub(bytes as u64);
            if cut.after == 0 {
                fate.ended = Some(cut.how);
                fate.cut = None;
            }
        }
    }

    pub(super) fn register(&self, reader: bool, cx: &std::task::Context<'_>) {
        if reader { &self.reader } else { &self.writer }.register(cx.waker());
    }

    fn edit(&self, edit: impl FnOnce(&mut Fate)) {
        edit(&mut self.state.lock());
        self.reader.wake();
        self.writer.wake();
    }
}

impl Fate {
    /// Returns whether bytes pass without delay, limit or loss.
    pub(super) fn is_plain(&self) -> bool {
        self.holes_in == 0 && self.holes_out == 0 && self.delay.is_zero() && self.throttle.is_none()
    }

    pub(super) fn error(&self) -> Option<io::Error> {
        if self.given_up {
            return Some(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"));
        }
        (self.ended == Some(Ending::Rst))
            .then(|| io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer"))
    }
}
