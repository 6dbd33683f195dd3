//! Predicates: filters for the events that cause a reconciliation.

use std::fmt;
use std::sync::Arc;

use skopos::{Event, LabelSelector, Object};

/// A condition on events. Events that do not meet it cause no reconciliation.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use skopos_controller::Predicate;
///
/// let mine = Predicate::<Pod>::labels("app=web").unwrap();
/// let of_interest = mine.and(Predicate::generation_changed().or(Predicate::annotation_changed("example.com/pause")));
/// ```
pub struct Predicate<K> {
    holds: Arc<Holds<K>>,
}

type Holds<K> = dyn Fn(&Event<K>) -> bool + Send + Sync;

impl<K: 'static> Predicate<K> {
    /// Makes a predicate from a function.
    pub fn new(holds: impl Fn(&Event<K>) -> bool + Send + Sync + 'static) -> Self {
        Self { holds: Arc::new(holds) }
    }

    /// Selects updates that change `metadata.generation`, which counts changes of the specification, not of the status.
    /// Creations and deletions are selected, too. For kinds without a generation, every update is selected.
    pub fn generation_changed() -> Self {
        Self::for_updates(|old, new| {
            let generations = [old.raw().generation(), new.raw().generation()];
            generations[0].is_none() || generations[0] != generations[1]
        })
    }

    /// Selects updates that change this annotation. Creations and deletions are selected, too.
    pub fn annotation_changed(name: impl Into<String>) -> Self {
        let name = name.into();
        Self::for_updates(move |old, new| old.raw().annotation(&name) != new.raw().annotation(&name))
    }

    /// Selects events of objects that match a label selector, before or after the event: an object that ceases to match is
    /// reconciled once more.
    ///
    /// # Errors
    /// When the selector cannot be parsed.
    pub fn labels(selector: &str) -> Result<Self, skopos::ParseError> {
        let selector = LabelSelector::parse(selector)?;
        Ok(Self::new(move |event| {
            let matches = |object: &Object<K>| selector.matches(object.raw());
            match event {
                Event::Updated { old, new, .. } => matches(old) || matches(new),
                Event::Deleted { object, old, .. } => matches(old) || matches(object),
                event => matches(event.object()),
            }
        }))
    }

    /// Selects the events that both select.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(move |event| self.holds(event) && other.holds(event))
    }

    /// Selects the events that either selects.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(move |event| self.holds(event) || other.holds(event))
    }

    /// Returns whether an event is selected.
    pub fn holds(&self, event: &Event<K>) -> bool {
        (self.holds)(event)
    }

    fn for_updates(changes: impl Fn(&Object<K>, &Object<K>) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |event| match event {
            Event::Updated { old, new, .. } => changes(old, new),
            _ => true,
        })
    }
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self { holds: self.holds.clone() }
    }
}

impl<K> fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predicate").finish_non_exhaustive()
    }
}
