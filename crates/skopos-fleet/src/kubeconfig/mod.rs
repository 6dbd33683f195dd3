//! Kubeconfigs as possibly hostile input.
//!
//! They are parsed by kubectl's rules ([`skopos::transport::kubeconfig`]). A [`KubeconfigPolicy`] decides which of
//! their dangerous features are allowed, with one switch for each. A feature that is not allowed is a
//! [`KubeconfigError`] that names the field and the switch. No error and no `Debug` output here shows a value of the
//! kubeconfig beyond the names of contexts, clusters and users.

mod policy;
#[cfg(test)]
mod tests;

use std::path::Path;

use skopos::transport::kubeconfig as reader;
pub use skopos::transport::kubeconfig::{
    KubeconfigError, KubeconfigFeature, KubeconfigPaths, KubeconfigReadError,
};

pub use self::policy::KubeconfigPolicy;
use crate::spec::ClusterSpec;

/// A parsed kubeconfig with its policy. The policy is applied to each context on use ([`Kubeconfig::cluster`]).
#[derive(Clone)]
pub struct Kubeconfig {
    content: reader::Kubeconfig,
    policy: KubeconfigPolicy,
}

impl Kubeconfig {
    /// Parses a kubeconfig, YAML or JSON.
    ///
    /// # Errors
    /// If it is larger than the policy allows, or is not a kubeconfig.
    pub fn parse(bytes: &[u8], policy: &KubeconfigPolicy) -> Result<Self, KubeconfigError> {
        let content = reader::Kubeconfig::parse(bytes, policy.max_bytes)?;
        Ok(Self { content, policy: policy.clone() })
    }

    /// Merges kubeconfigs as kubectl does: of entries with the same name, and of current contexts, the first one wins.
    pub fn merge(kubeconfigs: impl IntoIterator<Item = Self>, policy: &KubeconfigPolicy) -> Self {
        let contents = kubeconfigs.into_iter().map(|kubeconfig| kubeconfig.content);
        Self { content: reader::Kubeconfig::merge(contents), policy: policy.clone() }
    }

    /// Resolves relative paths in it against a folder; by default they are relative to the working directory.
    #[must_use]
    pub fn in_folder(self, folder: impl AsRef<Path>) -> Self {
        Self { content: self.content.in_folder(folder), ..self }
    }

    /// Resolves relative paths in it against the folder of its own file.
    #[must_use]
    pub fn in_folder_of(self, path: &Path) -> Self {
        Self { content: self.content.in_folder_of(path), ..self }
    }

    /// Returns the names of its contexts, in order.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.content.contexts()
    }

    /// Returns the names of the contexts of a kubeconfig that must list them.
    ///
    /// # Errors
    /// If it has no such list, not even an empty one: it is empty or truncated.
    pub(crate) fn listed_contexts(&self) -> Result<impl Iterator<Item = &str>, KubeconfigError> {
        self.content.listed_contexts()
    }

    /// Returns the contexts that lead elsewhere after merging than in their own file.
    pub(crate) fn hidden_contexts(&self) -> &[String] {
        self.content.hidden_contexts()
    }

    /// Returns the name of the current context.
    pub fn current_context(&self) -> Option<&str> {
        self.content.current_context()
    }

    /// Returns the cluster of a context; `None`: of the current one, or of the only one.
    ///
    /// # Errors
    /// If there is no such context, if its parts are missing or invalid, or if they use a feature that the policy does
    /// not allow.
    pub fn cluster(&self, context: Option<&str>) -> Result<ClusterSpec, KubeconfigError> {
        let config = self.content.config_if(context, &|feature| self.policy.admit(feature))?;
        Ok(ClusterSpec::from_config(config).with_addresses(self.policy.addresses.clone()))
    }
}

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.content.fmt(f)
    }
}
