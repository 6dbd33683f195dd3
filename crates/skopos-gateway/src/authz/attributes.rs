//! Attributes of a request, in the terms of Kubernetes authorization.

use std::fmt;

use skopos_wire::{GroupResource, Status};

use super::{Decision, DecisionSource};
use crate::auth::Identity;

/// The attributes of a request for a resource, or for a non-resource path (then `resource` is empty).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// The verb: get, list, watch, create, ...
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace; empty for all namespaces and for cluster-scoped objects.
    pub namespace: String,
    /// The name; empty for all objects.
    pub name: String,
    /// The path of a non-resource request.
    pub path: String,
}

impl Attributes {
    /// Makes the attributes of a request for a resource in all namespaces; narrow them with the fields.
    pub fn resource(verb: &str, group: &str, version: &str, resource: &str) -> Self {
        Self {
            verb: verb.into(),
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            ..Self::default()
        }
    }

    /// Makes the attributes of a request for a non-resource path, such as `/version`. The verb is the method's name.
    pub fn path(method: &http::Method, path: impl Into<String>) -> Self {
        Self { verb: method.as_str().to_ascii_lowercase(), path: path.into(), ..Self::default() }
    }

    /// Returns the number of bytes of all names.
    pub(super) fn bytes(&self) -> usize {
        let Self { verb, group, version, resource, subresource, namespace, name, path } = self;
        [verb, group, version, resource, subresource, namespace, name, path].map(String::len).iter().sum()
    }

    /// Restricts the request to one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Restricts the request to one object.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Returns the refusal of a request: 403 in the API server's words, or 429 or 503 if there is no decision.
    pub fn forbidden(&self, who: &Identity, decision: &Decision) -> Status {
        match &decision.refusal {
            Some(refusal) => refusal.right.refused(&refusal.caller, decision),
            None => self.refused(who, decision),
        }
    }

    fn refused(&self, who: &Identity, decision: &Decision) -> Status {
        let whether = format!("whether User {:?} can {self}", who.user);
        match decision.source {
            DecisionSource::CallerBusy => {
                let why = format!(
                    "too many reviews of your rights are under way, so it was not decided {whether}: try again later"
                );
                Status::too_many_requests(why, decision.retry_after.unwrap_or(1))
            }
            DecisionSource::MemberBusy => {
                let why = format!("the cluster is too busy to say {whether}: try again later");
                Status::too_many_requests(why, decision.retry_after.unwrap_or(1))
            }
            DecisionSource::MemberDown => {
                let why = "it does not answer, or refuses the gateway's SubjectAccessReviews";
                Status::service_unavailable(format!("the cluster does not say {whether}: {why}"))
            }
            DecisionSource::Policy => self.denied(who, Some(&decision.reason)),
            // A cluster that denies and a cluster that does not exist get the same answer.
            DecisionSource::Member | DecisionSource::NoMember | DecisionSource::Trusted => {
                self.denied(who, None)
            }
        }
    }

    fn denied(&self, who: &Identity, why: Option<&str>) -> Status {
        let resource = match self.subresource.as_str() {
            "" => self.resource.clone(),
            sub => format!("{}/{sub}", self.resource),
        };
        let mut status = match self.path.as_str() {
            "" => {
                let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
                let resource = GroupResource::new(&self.group, &resource);
                Status::forbidden_to(&who.user, &self.verb, resource, &self.name, namespace)
            }
            path => {
                let problem = format!("User {:?} cannot {} path {path:?}", who.user, self.verb);
                Status::forbidden(GroupResource::new("", ""), "", problem)
            }
        };
        if let Some(why) = why {
            status.message = format!("{}: {why}", status.message);
        }
        status
    }
}

/// `list apps/v1/deployments in shop`: the form in the audit log.
impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            return write!(f, "{} {}", self.verb, self.path);
        }
        write!(f, "{} ", self.verb)?;
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        write!(f, "{}/{}", self.version, self.resource)?;
        for part in [&self.name, &self.subresource].into_iter().filter(|part| !part.is_empty()) {
            write!(f, "/{part}")?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}
