//! The cluster's wanted state of each name, at any moment.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::history::{Address, At, AtOutside, ClusterId, Entry, Fact, History, KeyId, Ready, UidId};

/// Wanted states of each name, with their times.
#[derive(Default)]
pub(super) struct Wanted {
    names: BTreeMap<KeyId, Vec<State>>,
}

/// Wanted state of a name from a moment on.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) at: At,
    /// The uid and the stamp of its Service, if that exists and is selected.
    pub(super) object: Option<(UidId, u32)>,
    /// True if its Service or a slice of it is selected.
    pub(super) asked: bool,
    pub(super) members: BTreeMap<Address, Ready>,
    /// True if the cause of the change is a deselection.
    pub(super) deselected: bool,
}

/// The current objects.
#[derive(Default)]
struct Objects {
    /// The uid and the stamp of each Service; `None`: it is gone or not selected.
    services: HashMap<KeyId, Option<(UidId, u32)>>,
    slices: HashMap<KeyId, Slice>,
}

struct Slice {
    service: KeyId,
    asks: bool,
    endpoints: Box<[(Address, Ready)]>,
}

impl Wanted {
    pub(super) fn of(history: &History, cluster: ClusterId) -> Self {
        let mut wanted = Self::default();
        let (mut objects, mut log) = (Objects::default(), Vec::new());
        for Entry { at, fact } in &history.entries {
            match fact {
                Fact::Outside(fact) => {
                    let Some((name, rv)) = of_cluster(fact, cluster) else { continue };
                    let deselected = objects.take(fact);
                    log.push((rv, fact));
                    wanted.note(name, State { deselected, ..objects.state(*at, name) });
                }
                Fact::RolledBack { cluster: there, rv } if *there == cluster => {
                    log.retain(|(known, _)| known <= rv);
                    objects = Objects::default();
                    for (_, fact) in &log {
                        let _ = objects.take(fact);
                    }
                    let names: Vec<_> = wanted.names.keys().copied().collect();
                    names.into_iter().for_each(|name| wanted.note(name, objects.state(*at, name)));
                }
                _ => {}
            }
        }
        wanted
    }

    fn note(&mut self, name: KeyId, state: State) {
        self.names.entry(name).or_default().push(state);
    }

    /// Returns the names that were ever wanted.
    pub(super) fn names(&self) -> impl Iterator<Item = KeyId> {
        self.names.keys().copied()
    }

    /// Returns the wanted state of a name at a moment.
    pub(super) fn state(&self, name: KeyId, at: At) -> Option<&State> {
        self.states(name).iter().rev().find(|state| state.at <= at)
    }

    /// Returns whether a condition held the whole time between two moments.
    pub(super) fn throughout(&self, name: KeyId, from: At, to: At, is: impl Fn(&State) -> bool) -> bool {
        self.state(name, from).is_some_and(&is)
            && self.states(name).iter().filter(|state| state.at > from && state.at <= to).all(is)
    }

    /// Returns the number of changes of a name between two moments.
    pub(super) fn changes(&self, name: KeyId, from: At, to: At) -> usize {
        self.states(name).iter().filter(|state| state.at >= from && state.at <= to).count()
    }

    /// Returns the change that removed a value, if it is not wanted at a moment, and the time since which it had been wanted.
    pub(super) fn departure(&self, name: KeyId, value: Address, at: At) -> Option<(&State, At)> {
        let (mut there_since, mut departure) = (None, None);
        for state in self.states(name).iter().take_while(|state| state.at <= at) {
            if state.members.contains_key(&value) {
                departure = None;
                there_since.get_or_insert(state.at);
            } else if let Some(since) = there_since.take() {
                departure = Some((state, since));
            }
        }
        departure
    }

    fn states(&self, name: KeyId) -> &[State] {
        self.names.get(&name).map(Vec::as_slice).unwrap_or_default()
    }
}

impl State {
    /// Returns whether its Service exists and is selected.
    pub(super) fn lives(&self) -> bool {
        self.object.is_some()
    }

    pub(super) fn wants(&self, value: Address) -> bool {
        self.members.get(&value) == Some(&Ready::Yes)
    }

    pub(super) fn ready(&self) -> BTreeSet<Address> {
        self.members.keys().copied().filter(|value| self.wants(*value)).collect()
    }
}

impl Objects {
    /// Takes a change; returns whether it deselects an existing object.
    fn take(&mut self, fact: &AtOutside) -> bool {
        match fact {
            AtOutside::Service { object, gone: true, .. } => {
                self.services.remove(&object.key);
                false
            }
            AtOutside::Service { object, asks, .. } => {
                let selected = asks.then_some((object.uid, object.stamp));
                self.services.insert(object.key, selected).flatten().is_some() && !asks
            }
            AtOutside::Slice { object, gone: true, .. } => {
                self.slices.remove(&object.key);
                false
            }
            AtOutside::Slice { object, service, endpoints, asks, .. } => {
                let slice = Slice { service: *service, asks: *asks, endpoints: endpoints.clone() };
                self.slices.insert(object.key, slice).is_some_and(|before| before.asks) && !asks
            }
            _ => false,
        }
    }

    fn state(&self, at: At, name: KeyId) -> State {
        let mut state = State { at, ..State::default() };
        state.object = self.services.get(&name).copied().flatten();
        state.asked = state.lives();
        for slice in self.slices.values().filter(|slice| slice.service == name && slice.asks) {
            state.asked = true;
            for (value, ready) in &slice.endpoints {
                state
                    .members
                    .entry(*value)
                    .and_modify(|known| *known = (*known).min(*ready))
                    .or_insert(*ready);
            }
        }
        state
    }
}

/// Returns the name and the version of a change of this cluster's objects.
fn of_cluster(fact: &AtOutside, cluster: ClusterId) -> Option<(KeyId, u64)> {
    match fact {
        AtOutside::Service { cluster: there, object, .. } if *there == cluster => {
            Some((object.key, object.rv))
        }
        AtOutside::Slice { cluster: there, object, service, .. } if *there == cluster => {
            Some((*service, object.rv))
        }
        _ => None,
    }
}
