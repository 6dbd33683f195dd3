//! Deleting a virtual cluster.

use std::time::Duration;

use serde_json::{Value, json};
use skopos_fleet::vcluster::meta::{Meta, metas};
use skopos_fleet::vcluster::{Part, names};

use crate::create::releases;
use crate::error::Error;
use crate::helm::Presence;
use crate::host::{
    DEPLOYMENTS, Host, NAMESPACES, PODS, SECRETS, SERVICES, STATEFUL_SETS, check_name, check_namespace,
};
use crate::pause::{INITIAL_DELAY, next_delay, synced_namespaces};
use crate::progress::{Progress, Step};
use crate::removal::{Removal, RemovalOptions, Situation};
use crate::session::{Extent, Resource, Session};

/// Options of deleting a virtual cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteOptions {
    /// The objects to delete with it.
    pub removal: RemovalOptions,
    /// Wait until its namespace is gone, if that is deleted. Default: yes.
    pub wait: bool,
    /// Timeout of the whole operation. Default 10 min.
    pub within: Duration,
}

impl Host {
    /// Deletes a virtual cluster, and what the vcluster CLI would delete with it. Completes an unfinished earlier
    /// attempt, even if the virtual cluster itself is gone already.
    ///
    /// # Errors
    /// If there is none or several, or it is protected; if helm fails; if the host refuses or does not answer, or the
    /// timeout expires.
    pub async fn delete(
        &self,
        name: &str,
        namespace: Option<&str>,
        options: DeleteOptions,
        progress: &dyn Progress,
    ) -> Result<(), Error> {
        let session = self.session(progress, options.within);
        let mut situation = self.situation(&session, name, namespace).await?;
        let plan = situation.plan(options.removal)?;
        let uid = mark(&session, &situation, true).await?;
        for removal in &plan {
            self.remove(&session, &situation, removal).await?;
        }
        if plan.contains(&Removal::Namespace) {
            situation.others = self.has_others(&session, &situation).await?;
            if !situation.others {
                return remove_namespace(&session, &situation.namespace, uid.as_deref(), options.wait).await;
            }
            // Another virtual cluster was created in the namespace meanwhile: the objects that would have gone with the
            // namespace are deleted individually.
            for removal in &situation.plan(options.removal)? {
                self.remove(&session, &situation, removal).await?;
            }
        }
        mark(&session, &situation, false).await.map(drop)
    }

    /// Returns whether another virtual cluster is in the namespace.
    async fn has_others(&self, session: &Session<'_>, of: &Situation) -> Result<bool, Error> {
        let all = self.find_all(session, Some(&of.namespace), names::SELECTOR).await?;
        Ok(all.iter().any(|other| other.name != of.name))
    }

    async fn situation(
        &self,
        session: &Session<'_>,
        name: &str,
        namespace: Option<&str>,
    ) -> Result<Situation, Error> {
        check_name(name)?;
        check_namespace(namespace)?;
        let (namespace, non_deletable) = match self.find_one(session, name, namespace).await {
            Ok(cluster) => {
                session.report(cluster.found());
                (cluster.namespace, cluster.workload.non_deletable)
            }
            Err(missing @ Error::NotFound { .. }) => {
                (begun(session, name, namespace).await?.ok_or(missing)?, false)
            }
            Err(other) => return Err(other),
        };
        let helm = !releases(session, name, &namespace).await?.is_empty()
            && self.options.helm.presence(session).await? == Presence::Usable;
        let own_namespace = is_own(session, &namespace).await?;
        let (name, release) = (name.to_owned(), helm);
        let mut situation =
            Situation { name, namespace, non_deletable, release, own_namespace, others: false };
        situation.others = self.has_others(session, &situation).await?;
        Ok(situation)
    }

    async fn remove(&self, session: &Session<'_>, of: &Situation, removal: &Removal) -> Result<(), Error> {
        let (name, namespace) = (of.name.as_str(), of.namespace.as_str());
        let (what, names) = match removal {
            Removal::Release => {
                self.options.helm.delete(session, name, namespace).await?;
                ("release", vec![name.to_owned()])
            }
            Removal::Objects => return remove_objects(session, of).await,
            Removal::PriorityClasses(marker) => {
                let selector = format!("{}={marker}", names::MANAGED_BY);
                ("priorityclasses", remove_selected(session, PRIORITY_CLASSES, None, &selector).await?)
            }
            Removal::Claim(claim) => {
                ("persistentvolumeclaims", remove_one(session, CLAIMS, namespace, claim).await?)
            }
            Removal::ConfigMap(map) => {
                ("configmaps", remove_one(session, CONFIG_MAPS, namespace, map).await?)
            }
            Removal::Dns => {
                for resource in [DEPLOYMENTS, PODS, SERVICES] {
                    let removed =
                        remove_selected(session, resource, Some(namespace), names::DNS_SELECTOR).await?;
                    report_removed(session, resource.plural, removed);
                }
                return Ok(());
            }
            Removal::SyncedNamespaces(_) => {
                let found = synced_namespaces(session, name, namespace).await?;
                // Namespaces that the host had before stay.
                let made = found.iter().filter(|meta| meta.annotation(names::IMPORTED).is_none());
                ("namespaces", remove_each(session, NAMESPACES, made).await?)
            }
            // The namespace is last, and only deleted if no other virtual cluster was created in it meanwhile.
            Removal::Namespace => return Ok(()),
        };
        report_removed(session, what, names);
        Ok(())
    }
}

impl Default for DeleteOptions {
    fn default() -> Self {
        Self { removal: RemovalOptions::default(), wait: true, within: Duration::from_secs(600) }
    }
}

const PRIORITY_CLASSES: Resource = Resource::new("scheduling.k8s.io", "priorityclasses");
const CLAIMS: Resource = Resource::core("persistentvolumeclaims");
const CONFIG_MAPS: Resource = Resource::core("configmaps");

/// The chart's resources in the namespace. Pods are deleted with their workloads, Secret `vc-NAME` with its Service.
const OF_CHART: [Resource; 12] = [
    Resource::new("networking.k8s.io", "ingresses"),
    Resource::new("networking.k8s.io", "networkpolicies"),
    Resource::new("policy", "poddisruptionbudgets"),
    CONFIG_MAPS,
    Resource::core("resourcequotas"),
    Resource::core("limitranges"),
    SERVICES,
    Resource::new("rbac.authorization.k8s.io", "rolebindings"),
    Resource::new("rbac.authorization.k8s.io", "roles"),
    Resource::core("serviceaccounts"),
    SECRETS,
    DEPLOYMENTS,
];

const CLUSTER_ROLES: [Resource; 2] = [
    Resource::new("rbac.authorization.k8s.io", "clusterrolebindings"),
    Resource::new("rbac.authorization.k8s.io", "clusterroles"),
];

fn report_removed(session: &Session<'_>, what: &str, names: Vec<String>) {
    if !names.is_empty() {
        session.report(Step::Removed { what: what.to_owned(), names });
    }
}

/// Returns the label of a namespace in which a virtual cluster is being deleted.
fn deleting(name: &str) -> String {
    format!("{}{name}", names::DELETING)
}

/// Records the start or the end of a deletion, so that it can be completed when the virtual cluster itself is gone.
/// Returns the uid of the namespace, if recording was permitted.
async fn mark(session: &Session<'_>, of: &Situation, begun: bool) -> Result<Option<String>, Error> {
    let patch = json!({"metadata": {"labels": {deleting(&of.name): begun.then_some("")}}});
    match session.patch(&NAMESPACES.path(None, Some(&of.namespace)), &patch).await {
        // A caller that may not change the namespace has to finish in one attempt.
        Err(Error::Refused { status, .. }) if status.code == 403 => Ok(None),
        other => {
            let namespace = other?.and_then(|json| serde_json::from_slice(&json).ok());
            let uid = namespace.as_ref().and_then(|namespace: &Value| namespace["metadata"]["uid"].as_str());
            Ok(uid.map(str::to_owned))
        }
    }
}

/// Deletes a namespace with everything in it. Another one that took its name stays.
async fn remove_namespace(
    session: &Session<'_>,
    namespace: &str,
    uid: Option<&str>,
    wait: bool,
) -> Result<(), Error> {
    let removed = match session.delete_exactly(&NAMESPACES.path(None, Some(namespace)), uid).await {
        Err(Error::Refused { status, .. }) if status.code == 409 && uid.is_some() => return Ok(()),
        other => other?,
    };
    report_removed(session, "namespaces", removed.then(|| namespace.to_owned()).into_iter().collect());
    match wait {
        true => wait_for_namespace(session, namespace, uid).await,
        false => Ok(()),
    }
}

/// Returns the namespace in which a deletion has begun, for a virtual cluster that is gone itself.
async fn begun(session: &Session<'_>, name: &str, namespace: Option<&str>) -> Result<Option<String>, Error> {
    let found = match session.list(&NAMESPACES.path(None, None), &deleting(name), Extent::Metadata).await {
        Err(Error::Refused { status, .. }) if status.code == 403 => return Ok(None),
        other => metas(&other?),
    };
    let mut found = found.into_iter().filter(|meta| namespace.is_none_or(|wanted| meta.name == wanted));
    Ok(found.next().map(|meta| meta.name))
}

/// Returns whether the namespace was created for a virtual cluster.
async fn is_own(session: &Session<'_>, namespace: &str) -> Result<bool, Error> {
    let json = match session.get(&NAMESPACES.path(None, Some(namespace))).await {
        Err(Error::Refused { status, .. }) if status.code == 403 => return Ok(false),
        other => other?,
    };
    let object: Option<Value> = json.and_then(|json| serde_json::from_slice(&json).ok());
    Ok(object.is_some_and(|object| object["metadata"]["annotations"][names::CREATED] == "true"))
}

/// Deletes what helm would delete, found by the chart's labels. The control plane is last, because the others are found
/// by it.
async fn remove_objects(session: &Session<'_>, of: &Situation) -> Result<(), Error> {
    let (name, namespace) = (of.name.as_str(), of.namespace.as_str());
    let apps = Part::ALL.map(Part::app).join(",");
    let selector = format!("app in ({apps}),release={name}");
    for resource in CLUSTER_ROLES {
        let found = match session.list(&resource.path(None, None), &selector, Extent::Metadata).await {
            Err(Error::Refused { status, .. }) if status.code == 403 => continue,
            other => metas(&other?),
        };
        // Objects of a release of the same name in another namespace have the same labels.
        let own = names::cluster_roles(name, namespace);
        let own = found.iter().filter(|meta| own.contains(&meta.name));
        report_removed(session, resource.plural, remove_each(session, resource, own).await?);
    }
    for resource in OF_CHART.into_iter().chain([STATEFUL_SETS]) {
        report_removed(
            session,
            resource.plural,
            remove_selected(session, resource, Some(namespace), &selector).await?,
        );
    }
    let releases = releases(session, name, namespace).await?;
    report_removed(
        session,
        "release",
        remove_each_in(session, SECRETS, Some(namespace), releases.iter()).await?,
    );
    Ok(())
}

async fn remove_one(
    session: &Session<'_>,
    resource: Resource,
    namespace: &str,
    name: &str,
) -> Result<Vec<String>, Error> {
    let removed = session.delete(&resource.path(Some(namespace), Some(name))).await?;
    Ok(removed.then(|| name.to_owned()).into_iter().collect())
}

/// Deletes the objects matching a selector; none if listing is forbidden or the resource does not exist.
async fn remove_selected(
    session: &Session<'_>,
    resource: Resource,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Vec<String>, Error> {
    let found = match session.list(&resource.path(namespace, None), selector, Extent::Metadata).await {
        Err(Error::Refused { status, .. }) if matches!(status.code, 403 | 404) => Vec::new(),
        other => metas(&other?),
    };
    remove_each_in(session, resource, namespace, found.iter()).await
}

async fn remove_each(
    session: &Session<'_>,
    resource: Resource,
    objects: impl Iterator<Item = &Meta>,
) -> Result<Vec<String>, Error> {
    remove_each_in(session, resource, None, objects).await
}

async fn remove_each_in(
    session: &Session<'_>,
    resource: Resource,
    namespace: Option<&str>,
    objects: impl Iterator<Item = &Meta>,
) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    for object in objects.filter(|object| object.deletion_timestamp.is_none()) {
        if session.delete(&resource.path(namespace, Some(&object.name))).await? {
            removed.push(object.name.clone());
        }
    }
    Ok(removed)
}

async fn wait_for_namespace(session: &Session<'_>, namespace: &str, uid: Option<&str>) -> Result<(), Error> {
    let (mut reported, mut delay) = (false, INITIAL_DELAY);
    let path = NAMESPACES.path(None, Some(namespace));
    while session.get(&path).await?.is_some_and(|json| !is_another(&json, uid)) {
        if !reported {
            session.report(Step::WaitingForNamespace { namespace: namespace.to_owned() });
            reported = true;
        }
        session.sleep(delay, &format!("waiting for namespace {namespace} to go")).await?;
        delay = next_delay(delay);
    }
    Ok(())
}

/// Returns whether this is another namespace that took the name of the deleted one, with or without a known uid.
fn is_another(json: &[u8], uid: Option<&str>) -> bool {
    let Ok(namespace) = serde_json::from_slice::<Value>(json) else { return false };
    let metadata = &namespace["metadata"];
    match uid {
        Some(uid) => metadata["uid"] != uid,
        None => metadata["deletionTimestamp"].is_null(),
    }
}
