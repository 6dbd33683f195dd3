//! A Kubernetes API server in a crate.

mod resources;

pub use resources::{
    InvalidCrd, PrinterColumn, Registry, ResourceType, ScalePaths, Subresource, UnknownResource, Verb,
};
