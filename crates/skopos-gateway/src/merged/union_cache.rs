//! Cache of unions of the clusters' resources, because making one takes a while, and the members determine how long.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::union::{self, Offer, Union};

/// The latest unions, for the sets of clusters that callers see.
#[derive(Debug, Default)]
pub(crate) struct UnionCache {
    /// The least recently used is at the front.
    kept: Mutex<VecDeque<Arc<CachedUnion>>>,
}

/// The union of some clusters' resources.
#[derive(Debug)]
pub(crate) struct CachedUnion {
    /// The offers in this union. They hold the catalogs, so that no other catalog can have the same address.
    offers: Vec<Offer>,
    union: Union,
    /// The documents by the `Accept` header of their request.
    documents: Mutex<Vec<(Box<str>, Document)>>,
}

/// A document, with its content type.
pub(crate) type Document = (&'static str, Bytes);

/// Maximum number of unions.
const MAX_UNIONS: usize = 8;

/// Maximum number of documents per union: clients use three forms.
const MAX_DOCUMENTS: usize = 4;

/// Maximum total size of these documents.
const MAX_DOCUMENT_BYTES: usize = 32 << 20;

/// Maximum length of a cached `Accept` header.
const MAX_ACCEPT_LEN: usize = 1024;

impl UnionCache {
    /// Returns the union of these offers, which are sorted by cluster name.
    pub(crate) fn get(&self, offers: Vec<Offer>) -> Arc<CachedUnion> {
        if let Some(known) = self.find(&offers) {
            return known;
        }
        let union = union::unite(&offers);
        let united = Arc::new(CachedUnion { offers, union, documents: Mutex::default() });
        let mut kept = self.kept.lock();
        while kept.len() >= MAX_UNIONS {
            kept.pop_front();
        }
        kept.push_back(united.clone());
        united
    }

    fn find(&self, offers: &[Offer]) -> Option<Arc<CachedUnion>> {
        let mut kept = self.kept.lock();
        let index = kept.iter().position(|united| united.is_of(offers))?;
        let united = kept.remove(index)?;
        kept.push_back(united.clone());
        Some(united)
    }
}

impl CachedUnion {
    pub(crate) fn union(&self) -> &Union {
        &self.union
    }

    /// Returns the document for this `Accept` header; the first request makes it.
    pub(crate) fn document(&self, accept: &str, make: impl FnOnce() -> Option<Document>) -> Option<Document> {
        let known =
            self.documents.lock().iter().find(|(own, _)| **own == *accept).map(|(_, made)| made.clone());
        if known.is_some() || accept.len() > MAX_ACCEPT_LEN {
            return known.or_else(make);
        }
        let made = make()?;
        let mut documents = self.documents.lock();
        documents.push((accept.into(), made.clone()));
        let bytes =
            |all: &Vec<(Box<str>, Document)>| all.iter().map(|(_, (_, body))| body.len()).sum::<usize>();
        while documents.len() > MAX_DOCUMENTS || bytes(&documents) > MAX_DOCUMENT_BYTES {
            documents.remove(0);
        }
        Some(made)
    }

    fn is_of(&self, offers: &[Offer]) -> bool {
        let same = |(a, b): (&Offer, &Offer)| a.cluster == b.cluster && Arc::ptr_eq(&a.catalog, &b.catalog);
        self.offers.len() == offers.len() && self.offers.iter().zip(offers).all(same)
    }
}

#[cfg(test)]
mod tests {
    use skopos_fleet::ClusterId;

    use super::*;
    use crate::catalog::Catalog;

    fn offer(name: &str, catalog: &Arc<Catalog>) -> Offer {
        Offer { cluster: ClusterId::new(name).unwrap(), catalog: catalog.clone() }
    }

    #[test]
    fn computes_same_union_once() {
        let (unions, catalog) = (UnionCache::default(), Arc::new(Catalog::default()));
        let first = unions.get(vec![offer("a", &catalog), offer("b", &catalog)]);
        assert!(Arc::ptr_eq(&first, &unions.get(vec![offer("a", &catalog), offer("b", &catalog)])));
        let others = [
            vec![offer("a", &catalog)],
            vec![offer("a", &catalog), offer("c", &catalog)],
            vec![offer("a", &catalog), offer("b", &Arc::new(Catalog::default()))],
        ];
        for other in others {
            assert!(!Arc::ptr_eq(&first, &unions.get(other)), "of another version, or of others");
        }
        for n in 0..20 {
            unions.get(vec![offer(&format!("c{n}"), &catalog)]);
        }
        assert_eq!(unions.kept.lock().len(), MAX_UNIONS);
    }

    #[test]
    fn a_document_is_written_once_for_each_form() {
        let united = UnionCache::default().get(Vec::new());
        let text =
            |text: &'static str| move || Some(("application/json", Bytes::from_static(text.as_bytes())));
        assert_eq!(united.document("x", text("a")).unwrap().1, "a");
        assert_eq!(united.document("x", || unreachable!("it is kept")).unwrap().1, "a");
        assert_eq!(united.document("y", text("b")).unwrap().1, "b");
        assert!(united.document("z", || None).is_none());
        for n in 0..20 {
            united.document(&n.to_string(), text("c"));
        }
        united.document(&"x".repeat(2000), text("d"));
        assert_eq!(united.documents.lock().len(), MAX_DOCUMENTS);
        united.document("large", || Some(("", Bytes::from(vec![0; MAX_DOCUMENT_BYTES + 1]))));
        assert!(united.documents.lock().is_empty());
    }
}
