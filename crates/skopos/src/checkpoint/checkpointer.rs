//! Taking a checkpoint of an informer, and checking whether an informer can start from one.

use std::fmt;
use std::sync::{Arc, Weak};

use skopos_reflect::Form;

use super::content::Checkpoint;
use super::error::{IdentityMismatch, NoCheckpoint};
use super::header::{ContentIdentity, Header, HeaderPart};
use crate::informer::options::InformerOptions;
use crate::informer::resource::ResourceId;
use crate::informer::{Informer, InformerGuard, InformerInner};
use crate::store::StoreContent;

impl<K> Informer<K> {
    /// Returns a checkpoint of the current content. Costs next to nothing, and blocks no other task.
    ///
    /// # Errors
    /// If there is no whole content: nothing was listed yet, or the content is known to differ from the server's.
    pub fn checkpoint(&self) -> Result<Checkpoint, NoCheckpoint> {
        Checkpoint::take(&self.shared)
    }

    /// Returns a handle that takes checkpoints of this informer without keeping it running.
    pub fn checkpointer(&self) -> Checkpointer {
        Checkpointer(Arc::downgrade(&self.shared))
    }
}

/// A handle that takes checkpoints of an informer while it runs, without keeping it running.
#[derive(Clone)]
pub struct Checkpointer(Weak<InformerGuard>);

impl Checkpointer {
    /// Takes a checkpoint like [`Informer::checkpoint`]; `None` if the informer no longer runs.
    ///
    /// # Errors
    /// As [`Informer::checkpoint`].
    pub fn checkpoint(&self) -> Option<Result<Checkpoint, NoCheckpoint>> {
        Some(Checkpoint::take(&*self.0.upgrade()?))
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("runs", &(self.0.strong_count() > 0)).finish()
    }
}

impl Checkpoint {
    /// Returns whether an informer of this resource with these options can start from the checkpoint, apart from the
    /// cluster.
    ///
    /// # Errors
    /// If the identity differs, with the difference.
    pub fn fits(
        &self,
        resource: &ResourceId,
        form: Form,
        options: &InformerOptions,
    ) -> Result<(), IdentityMismatch> {
        options.identity(self.cluster(), resource, form).expect(&self.header.identity)
    }

    fn take(shared: &InformerInner) -> Result<Self, NoCheckpoint> {
        // In this order: the content only gets newer. The first evidence reports what it lacks, the second that it lacks
        // nothing.
        let evidence = shared.freshness().evidence();
        let content = shared.store.current();
        let now = shared.context.options.restart_clock.now();
        if !content.synced {
            return Err(NoCheckpoint::NotSynced);
        }
        let newer = shared.freshness().evidence();
        if !evidence.is_whole() || !newer.is_whole() {
            return Err(NoCheckpoint::NotWhole);
        }
        let evidence = evidence.reconciled_with(&newer);
        let parts =
            shared.reflectors.iter().zip(evidence.ages()).enumerate().map(|(part, (reflector, age))| {
                HeaderPart {
                    namespace: reflector.target.namespace.clone(),
                    resource_version: content.rv_of(part).clone(),
                    epoch: content.epoch_of(part),
                    proven: age.and_then(|age| now.before(age)),
                }
            });
        let header = Header { identity: shared.identity(), written: now.clone(), parts: parts.collect() };
        // An informer that starts from it must have the server confirm the content.
        let content = StoreContent::clone(&content).for_checkpoint();
        Ok(Self { header: Arc::new(header), content: Arc::new(content) })
    }
}

impl InformerInner {
    /// Returns the identity of the content.
    fn identity(&self) -> ContentIdentity {
        ContentIdentity {
            cluster: self.context.cluster().as_deref().map(str::to_owned),
            resource: self.resource.clone(),
            // An informer has at least one reflector.
            metadata_only: matches!(self.reflectors[0].target.form, Form::MetadataOnly),
            scope: self.scope.clone(),
            labels: self.labels.to_string(),
            fields: self.fields.to_string(),
            transform: self.transform.name().to_owned(),
        }
    }
}
