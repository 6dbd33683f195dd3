//! Creating and upgrading a virtual cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use skopos_fleet::vcluster::meta::{Meta, metas};
use skopos_fleet::vcluster::names;
use tokio::time::Instant;

use crate::cluster::VirtualCluster;
use crate::error::Error;
use crate::helm::{Chart, Presence};
use crate::host::{Host, NAMESPACES, SECRETS, SERVICES, check_name, check_namespace};
use crate::manifests::Manifests;
use crate::pause::{INITIAL_DELAY, next_delay};
use crate::progress::{Progress, Step};
use crate::session::{Extent, Session, object_path};
use crate::status::Status;

/// Options of creating a virtual cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct CreateOptions {
    /// The namespace; `None`: [`names::default_namespace`]. A missing namespace is created, and is deleted with the
    /// virtual cluster.
    pub namespace: Option<String>,
    /// The source of the objects.
    pub source: Source,
    /// Upgrade it if it exists. Default: no.
    pub upgrade: bool,
    /// Wait until it is up. Default: yes.
    pub wait: bool,
    /// Timeout of the whole operation. Default 10 min.
    pub within: Duration,
}

/// Source of a virtual cluster's objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The chart, installed by helm. The vcluster CLI can then upgrade and delete it.
    Chart(Chart),
    /// Rendered manifests, applied by server-side apply. The vcluster CLI can list, pause, resume and connect to it,
    /// but not delete it, because helm has no such release.
    Manifests(Manifests),
}

impl Host {
    /// Creates or upgrades a virtual cluster. Completes an unfinished earlier attempt.
    ///
    /// # Errors
    /// If it exists already, or the namespace is unsuitable; if helm is needed and missing, or fails; if the host
    /// refuses or does not answer, or the timeout expires.
    pub async fn create(
        &self,
        name: &str,
        options: &CreateOptions,
        progress: &dyn Progress,
    ) -> Result<VirtualCluster, Error> {
        let session = self.session(progress, options.within);
        check_name(name)?;
        check_namespace(options.namespace.as_deref())?;
        let namespace = options.namespace.clone().unwrap_or_else(|| names::default_namespace(name));
        if let Source::Manifests(manifests) = &options.source {
            manifests.check(name, &namespace)?;
        }
        if let Source::Chart(chart) = &options.source {
            chart.check()?;
            if self.options.helm.presence(&session).await? == Presence::Missing {
                return Err(Error::NoHelm { program: self.options.helm.program.clone() });
            }
        }
        self.check_room(&session, name, &namespace, options.upgrade).await?;
        ensure_namespace(&session, &namespace).await?;
        match &options.source {
            Source::Chart(chart) => {
                if wait_for_helm(&session, name, &namespace).await? {
                    // Another helm finished it meanwhile.
                    self.check_room(&session, name, &namespace, options.upgrade).await?;
                }
                self.options.helm.upgrade(&session, name, &namespace, chart).await?;
            }
            Source::Manifests(manifests) => apply(&session, &namespace, manifests).await?,
        }
        match options.wait {
            true => self.wait_ready(&session, name, &namespace).await,
            false => self.find_one(&session, name, Some(&namespace)).await,
        }
    }

    /// Checks whether a virtual cluster of this name may be created, completed or upgraded in the namespace.
    async fn check_room(
        &self,
        session: &Session<'_>,
        name: &str,
        namespace: &str,
        upgrade: bool,
    ) -> Result<(), Error> {
        let found = self.find_all(session, Some(namespace), names::SELECTOR).await?;
        if let Some(other) = found.iter().find(|cluster| cluster.name != name) {
            return Err(Error::Occupied { namespace: namespace.to_owned(), other: other.name.clone() });
        }
        let platform = SERVICES.path(Some(namespace), Some(names::PLATFORM_SERVICE));
        if session.get(&platform).await?.is_some() {
            return Err(Error::Platform { namespace: namespace.to_owned() });
        }
        let Some(cluster) = found.first() else { return Ok(()) };
        let (name, namespace) = (name.to_owned(), namespace.to_owned());
        match () {
            () if cluster.status == Status::Paused && upgrade => Err(Error::Paused { name, namespace }),
            () if upgrade => Ok(()),
            // helm records its start first, so an unfinished release may be completed.
            () if unfinished(&releases(session, &name, &namespace).await?) => Ok(()),
            () => Err(Error::Exists { name, namespace }),
        }
    }
}

impl CreateOptions {
    /// Creates options with this source and defaults otherwise.
    pub fn new(source: Source) -> Self {
        Self { namespace: None, source, upgrade: false, wait: true, within: Duration::from_secs(600) }
    }
}

/// Returns helm's records of a release: one Secret for each revision.
pub(crate) async fn releases(session: &Session<'_>, name: &str, namespace: &str) -> Result<Vec<Meta>, Error> {
    let selector = format!("owner=helm,name={name}");
    Ok(metas(&session.list(&SECRETS.path(Some(namespace), None), &selector, Extent::Metadata).await?))
}

/// Returns the last revision of a release.
fn last(releases: &[Meta]) -> Option<&Meta> {
    let version = |release: &&Meta| release.label("version").and_then(|text| text.parse::<u64>().ok());
    releases.iter().max_by_key(version)
}

/// Returns whether the last revision of a release is not the deployed one.
fn unfinished(releases: &[Meta]) -> bool {
    last(releases).is_some_and(|release| release.label("status") != Some("deployed"))
}

/// Waits while helm is at work on a release, and removes the record of a helm that was killed. helm records its start,
/// and refuses every later operation while that record exists. Returns whether there is a finished release.
async fn wait_for_helm(session: &Session<'_>, name: &str, namespace: &str) -> Result<bool, Error> {
    // The revision that is awaited, and the end of the wait.
    let mut pending: Option<(String, Instant)> = None;
    let mut delay = INITIAL_DELAY;
    loop {
        let releases = releases(session, name, namespace).await?;
        let at_work =
            |release: &&Meta| release.label("status").is_some_and(|status| status.starts_with("pending-"));
        let Some(release) = last(&releases).filter(at_work) else {
            return Ok(!releases.is_empty() && !unfinished(&releases));
        };
        let until = match &pending {
            Some((known, until)) if *known == release.name => *until,
            _ => {
                let left = HELM_TIMEOUT.saturating_sub(age(release));
                let secret = release.name.clone();
                if !left.is_zero() {
                    session.report(Step::WaitingForHelm { secret: secret.clone(), seconds: left.as_secs() });
                }
                pending.insert((secret, Instant::now() + left)).1
            }
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            session.delete(&SECRETS.path(Some(namespace), Some(&release.name))).await?;
            session.report(Step::Removed { what: "secrets".to_owned(), names: vec![release.name.clone()] });
            continue;
        }
        session.sleep(delay.min(left), "waiting for helm to end").await?;
        delay = next_delay(delay);
    }
}

/// The default timeout of helm itself.
const HELM_TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the age of helm's record; zero if it is unknown, or in the future by helm's clock.
fn age(release: &Meta) -> Duration {
    let written = release.label("modifiedAt").or(release.label("createdAt")).and_then(|at| at.parse().ok());
    let written = written.or(release.creation_timestamp.map(jiff::Timestamp::as_second));
    let seconds =
        written.map_or(0, |written: i64| jiff::Timestamp::now().as_second().saturating_sub(written));
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

async fn ensure_namespace(session: &Session<'_>, namespace: &str) -> Result<(), Error> {
    let path = NAMESPACES.path(None, Some(namespace));
    let (mut reported, mut delay) = (false, INITIAL_DELAY);
    loop {
        let found = match session.get(&path).await {
            // A caller that may not see the namespace may still be allowed to use it.
            Err(Error::Refused { status, .. }) if status.code == 403 => return Ok(()),
            other => other?,
        };
        let found: Option<Value> = found.and_then(|json| serde_json::from_slice(&json).ok());
        let going = found.as_ref().is_some_and(|found| !found["metadata"]["deletionTimestamp"].is_null());
        if let Some(found) = found.filter(|_| !going) {
            return check_kept(&found, namespace);
        }
        if !going {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": namespace, "annotations": {names::CREATED: "true"}}});
            if session.create(&NAMESPACES.path(None, None), &object).await? {
                session.report(Step::NamespaceCreated { namespace: namespace.to_owned() });
            }
            return Ok(());
        }
        if !reported {
            session.report(Step::WaitingForNamespace { namespace: namespace.to_owned() });
            reported = true;
        }
        session.sleep(delay, &format!("waiting for namespace {namespace} to go")).await?;
        delay = next_delay(delay);
    }
}

/// Returns an error if a virtual cluster in the namespace is being deleted, because the namespace may be deleted with
/// it.
fn check_kept(found: &Value, namespace: &str) -> Result<(), Error> {
    let labels = found["metadata"]["labels"].as_object();
    let deleted = labels.and_then(|labels| labels.keys().find_map(|key| key.strip_prefix(names::DELETING)));
    match deleted {
        Some(name) => Err(Error::Deleting { namespace: namespace.to_owned(), name: name.to_owned() }),
        None => Ok(()),
    }
}

async fn apply(session: &Session<'_>, namespace: &str, manifests: &Manifests) -> Result<(), Error> {
    let mut kinds = Kinds::default();
    for object in manifests.objects() {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let Some(served) = kinds.find(session, version, kind).await? else {
            return Err(Error::Manifests(format!("the host does not serve {kind} of {version}")));
        };
        let mut object = object.clone();
        let own = match text("/metadata/namespace") {
            "" => namespace,
            own => own,
        };
        let own = served.namespaced.then(|| own.to_owned());
        if let Some(own) = &own {
            object["metadata"]["namespace"] = own.as_str().into();
        }
        let path = object_path(&root(version), &served.plural, own.as_deref(), Some(name));
        session.apply(&path, &object).await?;
        session.report(Step::Applied { kind: kind.to_owned(), name: name.to_owned() });
    }
    Ok(())
}

/// Returns the path of a group and version.
fn root(version: &str) -> String {
    match version.contains('/') {
        true => format!("/apis/{version}"),
        false => format!("/api/{version}"),
    }
}

/// Discovery of the host by group and version, fetched when needed.
#[derive(Default)]
struct Kinds {
    known: BTreeMap<String, Vec<Served>>,
}

#[derive(Clone, Deserialize)]
struct Served {
    #[serde(rename = "name")]
    plural: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

impl Kinds {
    async fn find(
        &mut self,
        session: &Session<'_>,
        version: &str,
        kind: &str,
    ) -> Result<Option<Served>, Error> {
        if !self.known.contains_key(version) {
            let served = ask_served(session, version).await?;
            self.known.insert(version.to_owned(), served);
        }
        let served = self.known.get(version).into_iter().flatten();
        // Names of subresources contain a `/`.
        Ok(served.filter(|served| !served.plural.contains('/')).find(|served| served.kind == kind).cloned())
    }
}

async fn ask_served(session: &Session<'_>, version: &str) -> Result<Vec<Served>, Error> {
    #[derive(Deserialize)]
    struct List {
        resources: Vec<Served>,
    }
    let words = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '/'));
    if !words(version) {
        return Err(Error::Manifests(format!("{version:?} is no version of an API")));
    }
    let root = root(version);
    let Some(json) = session.get(&root).await? else { return Ok(Vec::new()) };
    let list: Result<List, _> = serde_json::from_slice(&json);
    list.map(|list| list.resources)
        .map_err(|error| Error::Malformed { doing: format!("GET {root}"), reason: error.to_string() })
}
