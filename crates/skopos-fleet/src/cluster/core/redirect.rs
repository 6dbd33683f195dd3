//! Changes of the connection to a server. The new connection is tried beside the old one, then cached resources move
//! over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::ClusterInner;
use crate::cluster::identity::verify_identity;
use crate::cluster::kinds::{CachedInformer, StopReason};
use crate::cluster::machine::Input;
use crate::cluster::session::ClusterConnection;
use crate::spec::ClusterSpec;
use crate::spec_error::SpecError;

/// Time for which the old connection and its informers stay up while the new connection is tried.
const OVERLAP_TIMEOUT: Duration = Duration::from_secs(30);

impl ClusterInner {
    /// Connects with another spec from now on. An unusable spec does not replace a usable one.
    pub(crate) fn redirect(self: &Arc<Self>, spec: Result<ClusterSpec, SpecError>) {
        let _guard = self.connection_lock.lock();
        let old = self.connection();
        let same = match (&old.spec, &spec) {
            (Ok(old), Ok(new)) => new.connects_as(old),
            (Ok(_), Err(_)) => true,
            (Err(old), Err(new)) => old == new,
            (Err(_), Ok(_)) => false,
        };
        if !same {
            self.replace_connection(&old, spec);
        }
    }

    /// Retries making connections that could not be configured: missing files may exist now.
    pub(crate) fn reconfigure(self: &Arc<Self>) {
        let _guard = self.connection_lock.lock();
        let old = self.connection();
        self.replace_connection(&old, old.spec.clone());
    }

    /// Replaces the connection by one for another spec, and moves all resources over. The caller holds
    /// `connection_lock`.
    fn replace_connection(
        self: &Arc<Self>,
        old: &Arc<ClusterConnection>,
        spec: Result<ClusterSpec, SpecError>,
    ) {
        if self.left.is_cancelled() {
            return;
        }
        let new = self.install_connection(spec);
        if old.supersede() {
            return self.discard_content(old);
        }
        self.kinds.drop_incomplete();
        let kinds = self.kinds.all();
        self.step(Input::Redirected("its address or credentials changed"));
        self.wakeup.notify_one();
        let (inner, old) = (self.clone(), old.clone());
        self.tasks.spawn(async move { inner.move_over(kinds, &old, &new).await });
    }

    /// Discards all content and starts again, because the connection leads to another cluster than the one whose
    /// content is cached.
    pub(crate) fn reset(self: &Arc<Self>, old: &Arc<ClusterConnection>) {
        let _guard = self.connection_lock.lock();
        if self.left.is_cancelled() || !Arc::ptr_eq(old, &self.connection()) {
            return;
        }
        self.install_connection(old.spec.clone());
        self.discard_content(old);
    }

    /// Discards all content and closes the old connection, because the content belongs to another cluster.
    fn discard_content(self: &Arc<Self>, old: &Arc<ClusterConnection>) {
        self.kinds.discard(StopReason::Replaced);
        self.documents.clear();
        self.step(Input::Redirected("another cluster is in its place"));
        self.wakeup.notify_one();
        let (old, limit) = (old.clone(), self.options.shutdown_limit);
        self.tasks.spawn(async move {
            old.close(limit).await;
        });
    }

    /// Replaces the connection by a new one. The caller holds `connection_lock`.
    fn install_connection(self: &Arc<Self>, spec: Result<ClusterSpec, SpecError>) -> Arc<ClusterConnection> {
        let persistence = self.persistence.as_ref();
        let new = ClusterConnection::new(
            &self.generations,
            &self.id,
            spec,
            &self.options,
            &self.connector,
            persistence,
            self.wakeup.clone(),
        );
        if let Some(paused) = &self.state().paused {
            new.park(paused.to_string().into());
        }
        self.connection.store(new.clone());
        self.start_identity_check(&new);
        new
    }

    /// Starts the identity check of this connection if checkpoints are enabled.
    pub(crate) fn start_identity_check(self: &Arc<Self>, connection: &Arc<ClusterConnection>) {
        if let Some(persistence) = self.persistence.clone() {
            let verification = verify_identity(self.clone(), connection.clone(), persistence);
            let (stop, superseded) = (self.stop.clone(), connection.superseded.clone());
            self.tasks.spawn(async move {
                stop.run_until_cancelled(superseded.run_until_cancelled(verification)).await;
            });
        }
    }

    /// Moves every resource to the new connection as soon as it has content there, then closes the old connection.
    async fn move_over(
        &self,
        kinds: Vec<Arc<CachedInformer>>,
        old: &ClusterConnection,
        new: &Arc<ClusterConnection>,
    ) {
        let moves = kinds.into_iter().map(|entry| self.move_kind(entry, new));
        let moving = new.superseded.run_until_cancelled(futures::future::join_all(moves));
        let mut moving = std::pin::pin!(self.stop.run_until_cancelled(moving));
        let moved = timeout(OVERLAP_TIMEOUT, &mut moving).await.is_ok();
        old.close(self.options.shutdown_limit).await;
        if !moved {
            moving.await;
        }
    }

    /// Moves one resource. Waits for its content without a limit, until another connection replaces this one or the
    /// cluster ends.
    async fn move_kind(&self, old: Arc<CachedInformer>, new: &Arc<ClusterConnection>) {
        // Readers must not see content older than what they have.
        let persistence = self.restoring().filter(|_| !old.has_content());
        let starting = self.starting(new.clone(), old.informer.resource().clone(), old.pinned, persistence);
        let Ok(entry) = starting.clone().await else { return };
        entry.content().await;
        self.kinds.replace(&old, starting);
    }
}
