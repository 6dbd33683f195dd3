//! Answers that may depend on the caller. For these the gateway does not share its own view, neither from memory nor by a
//! request in its own name.
//!
//! ```text
//!  built-in group, or a kind that the cluster defines ──▶ the same for all permitted callers: memory, or the gateway's name
//!  an aggregated API, an unknown group or path ─────────▶ in the caller's name, or refused
//! ```

use skopos_fleet::{Cluster, FleetError};
use skopos_wire::{GroupResource, Status};

use super::{Clusters, status_of};
use crate::catalog;
use crate::request::path::Path;
use crate::request::target::Target;

/// First segments of paths, beside discovery, that kube-apiserver answers identically for all permitted callers.
const PATHS: [&str; 12] = [
    "version",
    "metrics",
    "healthz",
    "livez",
    "readyz",
    "openapi",
    "openid",
    ".well-known",
    "flagz",
    "statusz",
    "configz",
    "debug",
];

impl Clusters {
    /// Returns whether the gateway may share its own view of the target with the caller.
    ///
    /// # Errors
    /// With `is_own_name` (requests go to the member in the gateway's name): 403 if it may not, 503 if that is unknown.
    pub(super) async fn has_common_answer(
        &self,
        cluster: &Cluster,
        target: &Target,
        path: &Path,
        is_own_name: bool,
    ) -> Result<bool, Status> {
        match self.is_common(cluster, target, path).await {
            Ok(true) => Ok(true),
            Ok(false) if is_own_name => Err(refused(target)),
            Err(error) if is_own_name => Err(status_of(&error)),
            _ => Ok(false),
        }
    }

    async fn is_common(&self, cluster: &Cluster, target: &Target, path: &Path) -> Result<bool, FleetError> {
        let segments: Vec<&str> = path.segments().collect();
        let (group, version, plural) = match (target, segments.as_slice()) {
            (Target::Resource(target), _) => {
                let what = &target.attributes;
                (what.group.as_str(), what.version.as_str(), Some(what.resource.as_str()))
            }
            // kube-apiserver describes the group; the server of a version describes that version.
            (Target::Path(_), ["apis", group, version]) => (*group, *version, None),
            (Target::Path(_), [] | ["api", ..] | ["apis"] | ["apis", _]) => return Ok(true),
            (Target::Path(_), [first, ..]) => return Ok(PATHS.contains(first)),
        };
        if catalog::is_builtin(group) {
            return Ok(true);
        }
        let (definitions, limit) =
            (&self.services.definitions, self.services.config.cache.first_use_deadline.0);
        if definitions.is_aggregated(cluster, group, version, limit).await {
            return Ok(false);
        }
        let is_known = |known: catalog::Definitions| known.defines(group, plural);
        match definitions.peek(cluster).is_some_and(|known| known.is_ok_and(is_known)) {
            true => Ok(true),
            // The kept names may be older than the definition.
            false => match catalog::is_defined(cluster, group, plural, limit).await {
                // The gateway has no permission to list them.
                Err(FleetError::Refused { code: 400..500, .. }) => Ok(false),
                defined => defined,
            },
        }
    }
}

fn refused(target: &Target) -> Status {
    let what = target.attributes();
    let why = match target {
        Target::Resource(_) => format!(
            "the cluster's API group {} is neither built in nor defined by a CustomResourceDefinition, so its answers may \
             depend on the caller: they need outbound.impersonate in the gateway's configuration",
            what.group
        ),
        Target::Path(_) => {
            "the answer at this path may depend on the caller: it needs outbound.impersonate in the gateway's configuration"
                .into()
        }
    };
    Status::forbidden(GroupResource::new(&what.group, &what.resource), &what.name, why)
}
