//! In-memory source for tests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::RwLock;
use skopos_wire::{ContinueToken, FieldSource, LabelSource, Limits, RawObject, Status};

use crate::gzip::{BlockCache, Blocks};
use crate::item::{Item, object_key};
use crate::source::{Compacted, Contents, ReadError, Source, VersionRequirement};
use crate::window::{Event, Window, WindowOptions};

/// Object as a store has it.
#[derive(Clone, Debug)]
pub(crate) struct Object(pub(crate) RawObject);

/// Objects by key, of the newest revision alone.
#[derive(Clone, Debug)]
pub(crate) struct MemorySource {
    state: Arc<RwLock<State>>,
    window: Arc<Window<Object>>,
    pub(crate) blocks: Blocks,
    /// Revisions that the caller asked to retain.
    pub(crate) remembered: Arc<RwLock<Vec<u64>>>,
    /// True if the optional list features are on: its own tokens, annotations, no counts.
    pub(crate) has_list_extensions: bool,
}

/// Objects in key order, and their revision.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Largest page requested so far.
    largest_page: Arc<AtomicUsize>,
    revision: u64,
    objects: BTreeMap<String, Object>,
}

impl MemorySource {
    pub(crate) fn new(options: WindowOptions) -> Self {
        let window = Arc::new(Window::new(options, 0));
        let blocks = BlockCache::new(64 << 20).blocks();
        Self { state: Arc::default(), window, blocks, remembered: Arc::default(), has_list_extensions: false }
    }

    /// Creates or replaces `namespace/name`, with labels and content.
    pub(crate) fn put(&self, namespace: &str, name: &str, labels: &[(&str, &str)], text: &str) -> u64 {
        let mut state = self.state.write();
        state.revision += 1;
        let object = pod(namespace, name, state.revision, labels, text);
        let old = state.objects.insert(object_key(Some(namespace), name), object.clone());
        self.window.push(Event::put(state.revision, old, object));
        state.revision
    }

    /// Returns the size of the largest page requested so far.
    pub(crate) fn largest_page(&self) -> usize {
        self.state.read().largest_page.load(Ordering::Relaxed)
    }

    pub(crate) fn delete(&self, namespace: &str, name: &str) -> u64 {
        let mut state = self.state.write();
        state.revision += 1;
        if let Some(old) = state.objects.remove(&object_key(Some(namespace), name)) {
            self.window.push(Event::deleted(state.revision, old));
        }
        state.revision
    }
}

/// Creates a pod as in a typed list: without kind and apiVersion.
pub(crate) fn pod(namespace: &str, name: &str, revision: u64, labels: &[(&str, &str)], text: &str) -> Object {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let object = serde_json::json!({
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"),
            "resourceVersion": revision.to_string(), "labels": labels},
        "spec": {"text": text},
    });
    Object(RawObject::from_value(&object, &Limits::default()).unwrap())
}

impl Source for MemorySource {
    type Item = Object;
    type Contents = State;

    async fn read(&self, wanted: VersionRequirement, _: Duration) -> Result<State, ReadError> {
        let state = self.state.read().clone();
        match wanted {
            VersionRequirement::NotOlderThan(version) if version > state.revision => {
                Err(ReadError::Ahead { requested: version, current: state.revision })
            }
            VersionRequirement::Exactly(version) if version != state.revision => {
                Err(Compacted { requested: version, oldest: state.revision }.into())
            }
            _ => Ok(state),
        }
    }

    fn remember(&self, contents: &State) {
        self.remembered.write().push(contents.revision);
    }

    fn window(&self) -> &Arc<Window<Object>> {
        &self.window
    }

    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn jitter(&self) -> f64 {
        0.0
    }

    fn blocks(&self) -> Option<&Blocks> {
        Some(&self.blocks)
    }

    fn counts(&self) -> bool {
        !self.has_list_extensions
    }

    fn list_annotations(&self) -> Vec<(String, String)> {
        let said = ("said".to_owned(), "so".to_owned());
        self.has_list_extensions.then_some(said).into_iter().collect()
    }

    fn seal(&self, token: ContinueToken) -> String {
        let seal = if self.has_list_extensions { "sealed-" } else { "" };
        format!("{seal}{}", token.encode())
    }

    fn open(&self, token: &str) -> Result<ContinueToken, Status> {
        let token = match self.has_list_extensions {
            true => token.strip_prefix("sealed-").ok_or_else(|| Status::bad_request("not sealed"))?,
            false => token,
        };
        ContinueToken::decode(token).map_err(|error| Status::bad_request(error.to_string()))
    }
}

impl Contents for State {
    type Item = Object;

    fn revision(&self) -> u64 {
        self.revision
    }

    fn get(&self, namespace: Option<&str>, name: &str) -> Result<Option<Object>, Compacted> {
        Ok(self.objects.get(&object_key(namespace, name)).cloned())
    }

    fn page(
        &self,
        namespace: Option<&str>,
        from: Option<&str>,
        max: usize,
    ) -> Result<Vec<Object>, Compacted> {
        self.largest_page.fetch_max(max, Ordering::Relaxed);
        let from = from.unwrap_or_default();
        let found = self.objects.values().filter(|object| {
            namespace.is_none_or(|ns| object.namespace() == Some(ns))
                && object.key(namespace).as_str() >= from
        });
        Ok(found.take(max).cloned().collect())
    }

    fn count(&self, namespace: Option<&str>, from: Option<&str>) -> Result<usize, Compacted> {
        self.page(namespace, from, usize::MAX).map(|found| found.len())
    }
}

impl LabelSource for Object {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.label(key)
    }
}

impl FieldSource for Object {
    fn field(&self, path: &str) -> Option<Cow<'_, str>> {
        self.0.field(path).map(Cow::Owned)
    }
}

impl Item for Object {
    fn namespace(&self) -> Option<&str> {
        self.0.namespace()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn revision(&self) -> u64 {
        self.0.resource_version().as_u64().unwrap_or_default()
    }

    fn json(&self) -> Bytes {
        self.0.json()
    }
}
