//! How a checkpoint is taken of an informer, and whether one can begin with it.

use std::fmt;
use std::sync::{Arc, Weak};

use skopos_reflect::Form;

use super::error::{Foreign, NoCheckpoint};
use super::header::{Header, Identity, Part};
use super::kept::Checkpoint;
use crate::informer::{Informer, Running, Shared};
use crate::options::InformerOptions;
use crate::resource::ResourceId;
use crate::store::Content;

impl<K> Informer<K> {
    /// The content as it is now, to be written. Costs next to nothing, and holds nobody up.
    ///
    /// # Errors
    /// If there is no whole content: it was never listed, or is known to differ from the server's.
    pub fn checkpoint(&self) -> Result<Checkpoint, NoCheckpoint> {
        Checkpoint::of(&self.shared)
    }

    /// Takes checkpoints of this informer, without keeping it running.
    pub fn checkpointer(&self) -> Checkpointer {
        Checkpointer(Arc::downgrade(&self.shared))
    }
}

/// Takes checkpoints of an informer as long as it runs, and is no reason for it to run.
#[derive(Clone)]
pub struct Checkpointer(Weak<Running>);

impl Checkpointer {
    /// As [`Informer::checkpoint`]; `None` if the informer runs no more.
    ///
    /// # Errors
    /// As [`Informer::checkpoint`].
    pub fn checkpoint(&self) -> Option<Result<Checkpoint, NoCheckpoint>> {
        Some(Checkpoint::of(&*self.0.upgrade()?))
    }
}

impl fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpointer").field("runs", &(self.0.strong_count() > 0)).finish()
    }
}

impl Checkpoint {
    /// Whether an informer of this kind with these options can begin with it, the cluster aside.
    ///
    /// # Errors
    /// If it is of something else, with what differs.
    pub fn fits(&self, resource: &ResourceId, form: Form, options: &InformerOptions) -> Result<(), Foreign> {
        options.identity(self.cluster(), resource, form).expect(&self.header.identity)
    }

    fn of(shared: &Shared) -> Result<Self, NoCheckpoint> {
        // In this order: the content only gets newer. What it lacks is told before it, and that it lacks nothing after it.
        let basis = shared.freshness().basis();
        let content = shared.store.current();
        let now = shared.ground.options.wall_clock.now();
        if !content.synced {
            return Err(NoCheckpoint::NotSynced);
        }
        let newer = shared.freshness().basis();
        if !basis.is_whole() || !newer.is_whole() {
            return Err(NoCheckpoint::NotWhole);
        }
        let basis = basis.of_content_before(&newer);
        let parts = shared.links.iter().zip(basis.ages()).enumerate().map(|(part, (link, age))| Part {
            namespace: link.target.namespace.clone(),
            resource_version: content.rv_of(part).clone(),
            epoch: content.epoch_of(part),
            proven: age.and_then(|age| now.before(age)),
        });
        let header = Header { identity: shared.identity(), written: now.clone(), parts: parts.collect() };
        // Whoever begins with it must not take our word for the server's.
        let content = Content::clone(&content).for_checkpoint();
        Ok(Self { header: Arc::new(header), content: Arc::new(content) })
    }
}

impl Shared {
    /// What its content is of.
    fn identity(&self) -> Identity {
        Identity {
            cluster: self.ground.cluster().as_deref().map(str::to_owned),
            resource: self.resource.clone(),
            // An informer has at least one link.
            metadata_only: matches!(self.links[0].target.form, Form::MetadataOnly),
            scope: self.scope.clone(),
            labels: self.labels.to_string(),
            fields: self.fields.to_string(),
            transform: self.transform.name().to_owned(),
        }
    }
}
