//! Lifetimes of the participants.

use crate::history::{At, ClientId, Entry, Fact, HandlerId, History, InformerId};

/// Lifetimes of all participants.
pub(super) struct Lives {
    informers: Vec<Life>,
    handlers: Vec<Life>,
    clients: Vec<Option<At>>,
    leaving: Vec<Option<At>>,
    /// Time since which there are no writes and no faults in force.
    pub(super) quiet: Option<At>,
    pub(super) end: At,
}

/// Lifetime of one participant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    pub(super) from: Option<At>,
    pub(super) to: Option<At>,
}

impl Lives {
    pub(super) fn of(history: &History) -> Self {
        let cast = &history.cast;
        let mut lives = Self {
            informers: vec![Life::default(); cast.informers.len()],
            handlers: vec![Life::default(); cast.handlers.len()],
            clients: vec![None; cast.clients.len()],
            leaving: vec![None; cast.clients.len()],
            quiet: None,
            end: history.end(),
        };
        for Entry { at, fact } in &history.entries {
            match fact {
                Fact::InformerStarted { informer } => lives.informers[informer.index()].begin(*at),
                Fact::InformerStopped { informer } => lives.informers[informer.index()].end(*at),
                Fact::HandlerAdded { handler } => lives.handlers[handler.index()].begin(*at),
                Fact::HandlerRemoved { handler } => lives.handlers[handler.index()].end(*at),
                Fact::Shutdown { client, .. } => lives.shut_down(history, *client, *at),
                // From the call on, the client's states and actions are not judged.
                Fact::Called { client, kind: crate::history::CallKind::Shutdown, .. } => {
                    lives.leaving[client.index()].get_or_insert(*at);
                    for (id, informer) in cast.informers.iter().enumerate() {
                        if informer.client == *client {
                            lives.informers[id].end(*at);
                        }
                    }
                }
                Fact::Quiet => lives.quiet = Some(*at),
                _ => {}
            }
        }
        lives
    }

    fn shut_down(&mut self, history: &History, client: ClientId, at: At) {
        self.clients[client.index()].get_or_insert(at);
        for (id, informer) in history.cast.informers.iter().enumerate() {
            if informer.client == client {
                self.informers[id].end(at);
            }
        }
        for (id, handler) in history.cast.handlers.iter().enumerate() {
            if history.cast.informers[handler.informer.index()].client == client {
                self.handlers[id].end(at);
            }
        }
    }

    pub(super) fn informer(&self, informer: InformerId) -> Life {
        self.informers[informer.index()]
    }

    pub(super) fn handler(&self, handler: HandlerId) -> Life {
        self.handlers[handler.index()]
    }

    /// Returns whether a client was told to shut down by this moment.
    pub(super) fn is_leaving(&self, client: ClientId, at: At) -> bool {
        self.leaving[client.index()].is_some_and(|leaving| leaving <= at)
    }

    /// Returns the time at which a client's shutdown had returned.
    pub(super) fn shut(&self, client: ClientId) -> Option<At> {
        self.clients[client.index()]
    }
}

impl Life {
    fn begin(&mut self, at: At) {
        self.from.get_or_insert(at);
    }

    fn end(&mut self, at: At) {
        if self.from.is_some() {
            self.to.get_or_insert(at);
        }
    }

    /// Returns whether the participant was there all the time from `from` to `to`.
    pub(super) fn covers(&self, from: At, to: At) -> bool {
        self.from.is_some_and(|begun| begun <= from) && self.to.is_none_or(|ended| ended >= to)
    }
}
