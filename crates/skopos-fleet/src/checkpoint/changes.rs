//! Changes of files, in the order in which they were started.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::store::{Content, FileName, Store};

/// Serializes the changes of a store's files: one at a time in each folder.
///
/// A caller may give up waiting, but a change that a disk or a bucket has begun continues. So a change is finished
/// before the next one starts in its folder. A removal whose caller gave up cannot delete what was written after it.
pub(super) struct Changes {
    store: Arc<dyn Store>,
    folders: Mutex<BTreeMap<String, Arc<Unfinished>>>,
}

/// A change in a folder that is not finished yet.
type Unfinished = tokio::sync::Mutex<Option<Change>>;

/// A future that yields the number of bytes written.
type Change = BoxFuture<'static, io::Result<u64>>;

impl Changes {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, folders: Mutex::default() }
    }

    pub(super) async fn write(&self, file: &FileName, content: Content) -> io::Result<u64> {
        let (store, name) = (self.store.clone(), file.clone());
        self.make(file, async move { store.write(&name, content).await }.boxed()).await
    }

    pub(super) async fn remove(&self, file: &FileName) -> io::Result<()> {
        let (store, name) = (self.store.clone(), file.clone());
        self.make(file, async move { store.remove(&name).await.map(|()| 0) }.boxed()).await.map(drop)
    }

    pub(super) async fn rename(&self, from: &FileName, to: &FileName) -> io::Result<()> {
        let (store, old, new) = (self.store.clone(), from.clone(), to.clone());
        self.make(from, async move { store.rename(&old, &new).await.map(|()| 0) }.boxed()).await.map(drop)
    }

    /// Finishes the changes whose callers gave up.
    pub(super) async fn finish(&self) {
        let folders: Vec<_> = self.folders.lock().values().cloned().collect();
        let finishing =
            folders.into_iter().map(|unfinished| async move { settle(&mut *unfinished.lock().await).await });
        futures::future::join_all(finishing).await;
    }

    async fn make(&self, file: &FileName, change: Change) -> io::Result<u64> {
        let unfinished = self.unfinished(file.folder());
        let mut unfinished = unfinished.lock().await;
        settle(&mut unfinished).await;
        let done = unfinished.insert(change).await;
        *unfinished = None;
        done
    }

    fn unfinished(&self, folder: &str) -> Arc<Unfinished> {
        let mut folders = self.folders.lock();
        let in_use = |unfinished: &Arc<Unfinished>| {
            Arc::strong_count(unfinished) > 1 || unfinished.try_lock().is_ok_and(|change| change.is_some())
        };
        folders.retain(|_, unfinished| in_use(unfinished));
        folders.entry(folder.to_owned()).or_default().clone()
    }
}

/// Finishes an earlier change. Its caller gave up and has an error already, so the result is dropped.
async fn settle(unfinished: &mut Option<Change>) {
    if let Some(change) = unfinished {
        let _ = change.await;
        *unfinished = None;
    }
}
