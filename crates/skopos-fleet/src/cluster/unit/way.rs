//! Changes of the connection to a server. The new link is tried beside the old one, then cached resources move over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Unit;
use crate::cluster::introduction::introduce;
use crate::cluster::kinds::{Ended, Entry};
use crate::cluster::machine::Input;
use crate::cluster::session::Link;
use crate::spec::{ClusterSpec, SpecError};

/// Time for which the old link and its informers stay up while the new link is tried.
const OVERLAP: Duration = Duration::from_secs(30);

impl Unit {
    /// Connects with another spec from now on. An unusable spec does not replace a usable one.
    pub(crate) fn redirect(self: &Arc<Self>, spec: Result<ClusterSpec, SpecError>) {
        let _turn = self.turn.lock();
        let old = self.link();
        let same = match (&old.spec, &spec) {
            (Ok(old), Ok(new)) => new.connects_as(old),
            (Ok(_), Err(_)) => true,
            (Err(old), Err(new)) => old == new,
            (Err(_), Ok(_)) => false,
        };
        if !same {
            self.take_way(&old, spec);
        }
    }

    /// Retries making connections that could not be configured: missing files may exist now.
    pub(crate) fn renew_link(self: &Arc<Self>) {
        let _turn = self.turn.lock();
        let old = self.link();
        self.take_way(&old, old.spec.clone());
    }

    /// Replaces the link by one for another spec, and moves all resources over. The caller holds `turn`.
    fn take_way(self: &Arc<Self>, old: &Arc<Link>, spec: Result<ClusterSpec, SpecError>) {
        if self.left.is_cancelled() {
            return;
        }
        let new = self.renew(spec);
        if old.supersede() {
            return self.let_go(old);
        }
        self.kinds.forget_starting();
        let kinds = self.kinds.all();
        self.step(Input::Redirected("its address or credentials changed"));
        self.stirred.notify_one();
        let (unit, old) = (self.clone(), old.clone());
        self.tasks.spawn(async move { unit.move_over(kinds, &old, &new).await });
    }

    /// Discards all content and starts again, because the link leads to another cluster than the one whose content is
    /// cached.
    pub(crate) fn begin_anew(self: &Arc<Self>, old: &Arc<Link>) {
        let _turn = self.turn.lock();
        if self.left.is_cancelled() || !Arc::ptr_eq(old, &self.link()) {
            return;
        }
        self.renew(old.spec.clone());
        self.let_go(old);
    }

    /// Discards all content and closes the old link, because the content belongs to another cluster.
    fn let_go(self: &Arc<Self>, old: &Arc<Link>) {
        self.kinds.discard(Ended::Replaced);
        self.documents.clear();
        self.step(Input::Redirected("another cluster is in its place"));
        self.stirred.notify_one();
        let (old, limit) = (old.clone(), self.options.shutdown_limit);
        self.tasks.spawn(async move {
            old.close(limit).await;
        });
    }

    /// Replaces the link by a new one. The caller holds `turn`.
    fn renew(self: &Arc<Self>, spec: Result<ClusterSpec, SpecError>) -> Arc<Link> {
        let keeper = self.keeper.as_ref();
        let new = Link::new(
            &self.ways,
            &self.id,
            spec,
            &self.options,
            &self.connector,
            keeper,
            self.stirred.clone(),
        );
        if let Some(paused) = &self.state().paused {
            new.park(paused.to_string().into());
        }
        self.link.store(new.clone());
        self.introduce(&new);
        new
    }

    /// Starts the identity check of this link if checkpoints are enabled.
    pub(super) fn introduce(self: &Arc<Self>, link: &Arc<Link>) {
        if let Some(keeper) = self.keeper.clone() {
            let introduction = introduce(self.clone(), link.clone(), keeper);
            let (stop, superseded) = (self.stop.clone(), link.superseded.clone());
            self.tasks.spawn(async move {
                stop.run_until_cancelled(superseded.run_until_cancelled(introduction)).await;
            });
        }
    }

    /// Moves every resource to the new link as soon as it has content there, then closes the old link.
    async fn move_over(&self, kinds: Vec<Arc<Entry>>, old: &Link, new: &Arc<Link>) {
        let moves = kinds.into_iter().map(|entry| self.move_kind(entry, new));
        let moving = new.superseded.run_until_cancelled(futures::future::join_all(moves));
        let mut moving = std::pin::pin!(self.stop.run_until_cancelled(moving));
        let moved = timeout(OVERLAP, &mut moving).await.is_ok();
        old.close(self.options.shutdown_limit).await;
        if !moved {
            moving.await;
        }
    }

    /// Moves one resource. Waits for its content without a limit, until another link replaces this one or the unit
    /// ends.
    async fn move_kind(&self, old: Arc<Entry>, new: &Arc<Link>) {
        // Readers must not see content older than what they have.
        let keeper = self.recalling().filter(|_| !old.has_content());
        let starting = self.starting(new.clone(), old.informer.resource().clone(), old.pinned, keeper);
        let Ok(entry) = starting.clone().await else { return };
        entry.content().await;
        self.kinds.replace(&old, starting);
    }
}
