//! Read requests: the resource, the caller's permission and the parameters.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;

use crate::request::{Query, RequestTarget};
use crate::resources::ResourceType;

/// A read of one resource.
#[derive(Clone, Debug)]
pub struct Request<'a, I> {
    /// Resource to read.
    pub resource: &'a Arc<ResourceType>,
    /// Namespace; `None` for all namespaces or for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// Object name; a list or watch of one name returns only that object (W17).
    pub name: Option<&'a str>,
    /// Query parameters.
    pub query: &'a Query,
    /// Headers; `Accept` and `Accept-Encoding` matter.
    pub headers: &'a HeaderMap,
    /// Objects that the caller may see.
    pub permit: ItemFilter<I>,
}

/// Filter of the objects that a caller may see. A hidden object does not exist for the caller: it is in no list, count, event or
/// token. An object that becomes visible or hidden is added or deleted as with a selector (W9).
pub struct ItemFilter<I>(Option<Arc<Predicate<I>>>);

type Predicate<I> = dyn Fn(&I) -> bool + Send + Sync;

impl<'a, I> Request<'a, I> {
    /// Creates a read of the resource in the path, for a caller that may see all of it.
    pub fn new(target: &'a RequestTarget, query: &'a Query, headers: &'a HeaderMap) -> Self {
        Self {
            resource: &target.resource,
            namespace: target.namespace.as_deref(),
            name: target.name.as_deref(),
            query,
            headers,
            permit: ItemFilter::all(),
        }
    }

    /// Restricts the read to the objects that satisfy `predicate`.
    #[must_use]
    pub fn permitting(mut self, predicate: impl Fn(&I) -> bool + Send + Sync + 'static) -> Self {
        self.permit = ItemFilter::only(predicate);
        self
    }
}

impl<I> ItemFilter<I> {
    /// Creates a filter that allows every object.
    pub fn all() -> Self {
        Self(None)
    }

    /// Creates a filter that allows the objects that satisfy `predicate`.
    pub fn only(predicate: impl Fn(&I) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(predicate)))
    }

    /// Returns whether the filter allows every object.
    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether the caller may see the object.
    pub fn allows(&self, item: &I) -> bool {
        self.0.as_ref().is_none_or(|predicate| predicate(item))
    }
}

impl<I> Clone for ItemFilter<I> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<I> fmt::Debug for ItemFilter<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_all() { "ItemFilter(all)" } else { "ItemFilter(some)" })
    }
}
