//! The builder of a controller.

use std::sync::Arc;

use futures::FutureExt;
use kube::Resource;
use skopos::workqueue::{Priority, WorkQueue, WorkQueueOptions};
use skopos::{Event, HandlerOptions, Indexer, Informer, Object, ObjectKey};
use skopos_lease::Candidate;

use crate::context::Context;
use crate::error::{ControllerError, ReconcileError};
use crate::handle::Shared;
use crate::mapping::{OwnerKind, both};
use crate::options::ControllerOptions;
use crate::predicate::Predicate;
use crate::service::{ControllerService, Outcome, Reconciler, Source};
use crate::view::View;

/// A controller under construction: the objects that it reconciles, and the other objects that concern them.
///
/// # Example
/// ```no_run
/// # async fn example(
/// #     factory: skopos::InformerFactory,
/// #     config: kube::Config,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::Node;
/// use skopos::InformerOptions;
/// use skopos_controller::{Context, Controller, ControllerOptions, Manager, ManagerOptions, Outcome, ReconcileError};
/// use skopos_lease::{Election, LeaseOptions};
///
/// async fn reconcile(context: Context<Node>) -> Result<Outcome, ReconcileError> {
///     println!("{}, at most {:?} old", context.key(), context.age());
///     Ok(Outcome::RequeueAfter(Duration::from_secs(600)))
/// }
///
/// let nodes = factory.informer::<Node>(InformerOptions::all())?;
/// let election = Election::from_config(config, LeaseOptions::new("kube-system", "about-nodes"))?;
/// let options = ControllerOptions::named("about-nodes").workers(4);
/// let controller = Controller::new(nodes, options).elected(election.candidate()).reconcile(reconcile);
/// Manager::new(ManagerOptions::default()).election(election).controller(controller).run_until_signal().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it runs once it has a reconciler: `reconcile`, then `run`"]
pub struct Controller<K> {
    primary: Informer<K>,
    predicate: Option<Predicate<K>>,
    options: ControllerOptions,
    views: Vec<Arc<dyn View>>,
    sources: Vec<Source>,
    candidate: Option<Candidate>,
}

impl<K> Controller<K>
where
    K: Resource<DynamicType = ()> + 'static,
    K::Scope: 'static,
{
    /// Makes a controller of the objects of an informer. Each object is reconciled when it exists at the start, and when it
    /// is created, changed or deleted.
    pub fn new(primary: Informer<K>, options: ControllerOptions) -> Self {
        let views: Vec<Arc<dyn View>> = vec![Arc::new(primary.clone())];
        Self { primary, predicate: None, options, views, sources: Vec::new(), candidate: None }
    }

    /// Reconciles the objects of the primary informer for these events only.
    pub fn when(mut self, predicate: Predicate<K>) -> Self {
        self.predicate = Some(predicate);
        self
    }

    /// Reconciles the owner of each object of this informer that changes: the one in its owner references that is its controller.
    /// [`Context::children`] finds the objects again.
    pub fn owns<O: 'static>(mut self, informer: Informer<O>) -> Self {
        // It exists already if another controller has added it.
        let _ = informer.store().add_indexer(Indexer::by_owner_uid());
        let owner = OwnerKind::new::<K>();
        self.add(informer, move |event| owner.owners(event));
        self
    }

    /// Reconciles the keys that `keys` gives for each object of this informer that changes, in its state before and after. The function
    /// must be quick.
    pub fn watches<O, I>(
        mut self,
        informer: Informer<O>,
        keys: impl Fn(&Object<O>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        O: 'static,
        I: IntoIterator<Item = ObjectKey>,
    {
        self.add(informer, move |event| both(event).flat_map(&keys).collect());
        self
    }

    /// Reconciles only in the terms of this candidate. A reconciliation is dropped when its term ends. Without a term the
    /// informers continue, so that the next one begins with a warm view.
    pub fn elected(mut self, candidate: Candidate) -> Self {
        self.candidate = Some(candidate);
        self
    }

    /// Completes the controller with its reconciler.
    pub fn reconcile<F, R>(mut self, reconciler: F) -> ControllerService<K>
    where
        F: Fn(Context<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, ReconcileError>> + Send + 'static,
    {
        let predicate = self.predicate.take();
        let own = source(&self.primary, move |event: &Event<K>| {
            let holds = predicate.as_ref().is_none_or(|predicate| predicate.holds(event));
            if holds { vec![event.key().clone()] } else { Vec::new() }
        });
        self.sources.insert(0, own);
        let queue =
            WorkQueueOptions::named(self.options.name.clone()).rate_limit(self.options.rate_limit.clone());
        let shared = Arc::new(Shared::new(self.options, WorkQueue::new(queue), self.views));
        let reconciler: Reconciler<K> = Arc::new(move |context| reconciler(context).boxed());
        ControllerService { shared, sources: self.sources, reconciler, candidate: self.candidate }
    }

    fn add<O: 'static>(
        &mut self,
        informer: Informer<O>,
        keys: impl Fn(&Event<O>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) {
        self.sources.push(source(&informer, keys));
        self.views.push(Arc::new(informer));
    }
}

/// Adds the keys of each event to the queue, those of the first list in the background.
fn source<O: 'static>(
    informer: &Informer<O>,
    keys: impl Fn(&Event<O>) -> Vec<ObjectKey> + Send + Sync + 'static,
) -> Source {
    let informer = informer.clone();
    Box::new(move |shared| {
        let options = HandlerOptions::named(format!("controller {}", shared.options.name));
        let (resource, controller) = (informer.resource().to_string(), shared.options.name.clone());
        let queue = shared.queue.clone();
        let keys = move |event: &Event<O>| {
            let initial = matches!(event, Event::Added { initial: true, .. });
            let priority = if initial { Priority::Background } else { Priority::Normal };
            let gap = event.flags().gap || event.flags().coalesced;
            let keys = keys(event);
            keys.iter().for_each(|key| shared.missed(key, gap));
            keys.into_iter().map(move |key| (key, priority))
        };
        let fed = queue.fed_with_priorities(&informer, options, keys);
        fed.map_err(|_| ControllerError::Closed { controller, resource })
    })
}
