//! Kubernetes API server in a crate: it starts in milliseconds, implements the list/watch contract of the real one, and fails on
//! demand.
//!
//! ```text
//!  TCP, TLS ─┐   ┌────────┐   ┌─────────┐   ┌──────────────────────────────┐
//!            ├──▶│ faults │──▶│ router  │──▶│ get, list, watch (contract)  │──▶ versioned storage
//!  in memory ┘   └────────┘   └─────────┘   │ create, patch, apply (write) │    one resourceVersion for all,
//!                                           │ discovery, OpenAPI, tables   │    history, watchers
//!                                           └──────────────────────────────┘
//! ```
//!
//! A test of a controller starts a [`TestServer`], gives its URL or kubeconfig to the controller, and changes objects through the
//! same handle, without HTTP. [`Faults`] injects network and server failures on demand.
//!
//! ```
//! use serde_json::json;
//! use skopos_testserver::{Fault, Match, TestServer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = TestServer::builder().start().await?;
//! // ... start the controller with server.url() ...
//! server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))?;
//! let fault = server.faults().inject(Fault::status(503, 0)).on(Match::list().resource("pods")).times(3);
//! // ... the controller has to live with three failed lists ...
//! fault.heal();
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! All times follow tokio's clock. Over [`TestServer::connect`], which returns in-memory connections, a whole day passes in a
//! moment under `#[tokio::test(start_paused = true)]`.

// Compiles the README's code with the documentation tests.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![allow(
    clippy::result_large_err,
    reason = "a Status is what the API answers; it is made once for a request that failed"
)]

mod auth;
mod clock;
mod cluster;
mod connection;
mod faults;
mod lifecycle;
mod log;
mod object_ref;
mod openapi;
mod patch;
mod pod_ports;
mod serve;
mod server;
mod source;
mod state;
mod storage;
mod version;
mod write;

pub use auth::{AccessQuestion, Auth, ForbiddenGuard, User};
pub use cluster::generate::PodGenerator;
pub use cluster::virtual_clusters::{
    SampleError, VirtualCluster, VirtualClusters, VirtualClustersBuilder, VirtualState,
};
pub use connection::ConnectionId;
pub use faults::{
    CloseMode, Connections, Damage, Direction, Fault, FaultGuard, Faults, Injection, Lag, Match,
};
pub use log::{Outcome, RequestRecord};
pub use serve::MemoryStream;
pub use server::{StartError, TestServer, TestServerBuilder, UnknownRevision, WaitTimeout};
pub use skopos_serve::EventType;
pub use skopos_serve::resources::{
    InvalidCrd, PrinterColumn, Registry, ResourceType, ScalePaths, Subresource, UnknownResource, Verb,
};
pub use skopos_wire::Status;
pub use storage::WriteRecord;
