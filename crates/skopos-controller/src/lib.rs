//! Controllers that know the age of their view.
//!
//! ```text
//!  informers ─▶ predicates, key mapping ─▶ work queue ─▶ workers (fresh view, time limit, term) ─▶ outcome
//! ```
//!
//! Differences from other runtimes:
//!
//! | | controller-runtime | kube-runtime | here |
//! |---|---|---|---|
//! | a view that is stale | is acted on | is acted on | is not: [`max_age`](ControllerOptions::max_age) |
//! | a reconciliation that never returns | holds its worker without end | is polled without end | is dropped after [`time_limit`](ControllerOptions::time_limit) |
//! | the controller's own write | may be missing in the next view, unless an option is set | may be missing | is in it: [`Context::wrote`] |
//! | losing the lease | ends the process | – | drops the work and waits for the next term: [`Controller::elected`] |
//! | the objects of the first list | have a low priority, which can starve | – | are [in the background](skopos::workqueue::Priority), with a fair share |
//! | a panic | is caught, by option | ends the task | is caught, counted and retried |
//!
//! ```no_run
//! # async fn f(factory: skopos::InformerFactory, stop: tokio_util::sync::CancellationToken) -> Result<(), Box<dyn std::error::Error>> {
//! use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! use skopos::InformerOptions;
//! use skopos_controller::{Context, Controller, ControllerOptions, Outcome, ReconcileError};
//!
//! async fn reconcile(context: Context<Namespace>) -> Result<Outcome, ReconcileError> {
//!     let Some(namespace) = context.object() else { return Ok(Outcome::Done) };
//!     let maps = context.children::<ConfigMap>();
//!     println!("{} has {} of our ConfigMaps, at most {:?} old", namespace.name(), maps.len(), context.age());
//!     Ok(Outcome::Done)
//! }
//!
//! let namespaces = factory.informer::<Namespace>(InformerOptions::all())?;
//! let maps = factory.informer::<ConfigMap>(InformerOptions::all())?;
//! let controller = Controller::new(namespaces, ControllerOptions::named("configmap-per-namespace"))
//!     .owns(maps)
//!     .reconcile(reconcile);
//! controller.run(stop).await?;
//! # Ok(())
//! # }
//! ```

// Compiles the README's code with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

pub mod conditions;
mod context;
mod controller;
pub mod endpoints;
mod error;
pub mod finalizer;
mod fleet;
mod handle;
mod manager;
mod mapping;
pub mod metrics;
mod options;
mod own_writes;
mod predicate;
mod service;
mod view;
mod waiting_keys;

pub use self::context::Context;
pub use self::controller::Controller;
pub use self::error::{ControllerError, ReconcileError};
pub use self::fleet::{FleetController, FleetHandle, Member};
pub use self::handle::{ControllerHandle, ControllerStats, ControllerStatus};
pub use self::manager::{Manager, ManagerError, ManagerOptions};
pub use self::options::ControllerOptions;
pub use self::predicate::Predicate;
pub use self::service::{ControllerService, Outcome};
