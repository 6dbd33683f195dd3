//! What is read, by whom, in which form.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;

use crate::request::{Query, RequestTarget};
use crate::resources::ResourceType;

/// A read of one resource.
#[derive(Clone, Debug)]
pub struct Request<'a, I> {
    /// What is read.
    pub resource: &'a Arc<ResourceType>,
    /// Where; `None` for all namespaces or for what lies in none.
    pub namespace: Option<&'a str>,
    /// Which one; a list or watch of one name sees nothing else (W17).
    pub name: Option<&'a str>,
    /// The parameters.
    pub query: &'a Query,
    /// The headers; `Accept` and `Accept-Encoding` matter.
    pub headers: &'a HeaderMap,
    /// What the caller may see of it.
    pub permit: Permit<I>,
}

/// What a caller may see. What it may not see does not exist for it: it is in no list, no count, no event and no token, and
/// an object that comes into its sight or leaves it does so as with a selector (W9).
pub struct Permit<I>(Option<Arc<Test<I>>>);

type Test<I> = dyn Fn(&I) -> bool + Send + Sync;

// === impl Request ===

impl<'a, I> Request<'a, I> {
    /// A read of what the path names, by somebody who may see all of it.
    #[must_use]
    pub fn new(target: &'a RequestTarget, query: &'a Query, headers: &'a HeaderMap) -> Self {
        Self {
            resource: &target.resource,
            namespace: target.namespace.as_deref(),
            name: target.name.as_deref(),
            query,
            headers,
            permit: Permit::all(),
        }
    }

    /// The same by somebody who may see those objects of which `test` says so.
    #[must_use]
    pub fn permitting(mut self, test: impl Fn(&I) -> bool + Send + Sync + 'static) -> Self {
        self.permit = Permit::only(test);
        self
    }
}

// === impl Permit ===

impl<I> Permit<I> {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self(None)
    }

    /// Those objects of which `test` says so.
    pub fn only(test: impl Fn(&I) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(test)))
    }

    /// Whether it is all.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the caller may see the object.
    #[must_use]
    pub fn allows(&self, item: &I) -> bool {
        self.0.as_ref().is_none_or(|test| test(item))
    }
}

impl<I> Clone for Permit<I> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<I> fmt::Debug for Permit<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_all() { "Permit(all)" } else { "Permit(some)" })
    }
}
