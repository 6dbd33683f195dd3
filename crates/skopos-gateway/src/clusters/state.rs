//! The state at one revision, as lists and watches of one kind read it.

use skopos::{Object, ObjectKey, RawObject, Snapshot};
use skopos_serve::{Compacted, Contents};

use super::view::Row;

/// The state at one revision.
pub(super) struct State {
    content: Content,
    pub(super) revision: u64,
    /// The number of bytes that the state does not share with the store, because it was listed from the member.
    pub(super) own: usize,
}

enum Content {
    All(Snapshot<RawObject>),
    /// The answer to a request for one object: the member's object, if it exists.
    One(Option<Object<RawObject>>),
}

impl State {
    /// Makes a state of all objects; `own` of its bytes are not shared with the store. Returns `None` if its version is
    /// not a number.
    pub(super) fn new(snapshot: Snapshot<RawObject>, own: usize) -> Option<Self> {
        let revision = snapshot.resource_version().as_u64()?;
        Some(Self { content: Content::All(snapshot), revision, own })
    }

    /// Makes a state of the one requested object.
    pub(super) fn from_object(object: Option<Object<RawObject>>) -> Self {
        let revision = object.as_ref().and_then(|object| object.resource_version().as_u64());
        Self { content: Content::One(object), revision: revision.unwrap_or_default(), own: 0 }
    }

    /// Returns all objects, unless the state is of one alone.
    pub(super) fn snapshot(&self) -> Option<&Snapshot<RawObject>> {
        match &self.content {
            Content::All(snapshot) => Some(snapshot),
            Content::One(_) => None,
        }
    }

    /// Returns the key at which a page starts, and whether it starts behind it.
    fn start(namespace: Option<&str>, from: &str) -> Option<(ObjectKey, bool)> {
        let (from, behind) = from.strip_suffix('\0').map_or((from, false), |from| (from, true));
        let (within, name) = match namespace {
            Some(namespace) => (Some(namespace), from),
            None => from.split_once('/').map_or((None, from), |(namespace, name)| (Some(namespace), name)),
        };
        ObjectKey::checked(within, name).ok().map(|key| (key, behind))
    }

    /// Returns up to `max` objects in order, from `from` on.
    fn starting_at<'a>(
        &'a self,
        namespace: Option<&'a str>,
        from: Option<&str>,
        max: usize,
    ) -> Vec<Object<RawObject>> {
        let snapshot = match &self.content {
            Content::All(snapshot) => snapshot,
            Content::One(object) => return object.iter().cloned().collect(),
        };
        let Some((start, behind)) = from.and_then(|from| Self::start(namespace, from)) else {
            return match namespace {
                Some(namespace) => snapshot.in_namespace(namespace).take(max).collect(),
                None => snapshot.page(None, max).objects,
            };
        };
        let first = (!behind).then(|| snapshot.get(&start)).flatten();
        let rest = snapshot.page(Some(&start), max.saturating_sub(first.iter().count())).objects;
        let inside = |object: &Object<RawObject>| namespace.is_none_or(|ns| object.namespace() == Some(ns));
        first.into_iter().chain(rest.into_iter().take_while(inside)).collect()
    }
}

impl Contents for State {
    type Item = Row;

    fn revision(&self) -> u64 {
        self.revision
    }

    fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Row>, Compacted> {
        // A name that is not a valid key does not exist.
        let key = ObjectKey::checked(namespace, name).ok();
        let object = match &self.content {
            Content::All(snapshot) => key.and_then(|key| snapshot.get(&key)),
            Content::One(object) => object.clone().filter(|object| Some(object.key()) == key.as_ref()),
        };
        Ok(object.and_then(Row::from_object))
    }

    fn page(&self, namespace: Option<&str>, from: Option<&str>, max: usize) -> Result<Vec<Row>, Compacted> {
        Ok(self.starting_at(namespace, from, max).into_iter().filter_map(Row::from_object).collect())
    }

    fn count(&self, namespace: Option<&str>, from: Option<&str>) -> Result<usize, Compacted> {
        Ok(match (&self.content, namespace, from) {
            (Content::All(snapshot), None, None) => snapshot.len(),
            _ => self.starting_at(namespace, from, usize::MAX).len(),
        })
    }
}
