//! Pausing and resuming.

use std::time::Duration;

use skopos_fleet::vcluster::meta::{Meta, metas};
use skopos_fleet::vcluster::{ConfigSecret, Off, Workload, names, paused_date};

use crate::cluster::VirtualCluster;
use crate::error::Error;
use crate::host::{Host, NAMESPACES, PODS, SECRETS, check_name, check_namespace, parts, path_of};
use crate::progress::{Progress, Silent, Step};
use crate::session::{Extent, Session};
use crate::status::Status;

/// Options of pausing a virtual cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseOptions {
    /// Also delete the pods in synced namespaces, which were created for its own namespaces. Only a label shows whose
    /// these are, and namespaces of another virtual cluster may have the same label. Set it to `false` when pausing
    /// for a user who may not delete pods everywhere in the host. Default: yes.
    pub synced: bool,
    /// Timeout of the whole operation, including the wait for pods to end. Default 5 min.
    pub within: Duration,
}

/// Options of resuming a virtual cluster.
#[derive(Clone, Copy, Debug)]
pub struct ResumeOptions {
    /// Timeout of the whole operation. Default 5 min.
    pub within: Duration,
    /// Wait until it is up. Default: no, as in the vcluster CLI.
    pub wait: bool,
}

impl Host {
    /// Returns whether the host has namespaces whose label shows that they were, or could have been, created for a
    /// virtual cluster's own ones. Returns `false` if the caller may not list them.
    ///
    /// # Errors
    /// If the host refuses or does not answer, or the timeout expires.
    pub async fn has_synced_namespaces(
        &self,
        name: &str,
        namespace: &str,
        within: Duration,
    ) -> Result<bool, Error> {
        check_name(name)?;
        check_namespace(Some(namespace))?;
        Ok(!synced_namespaces(&self.session(&Silent, within), name, namespace).await?.is_empty())
    }

    /// Pauses a virtual cluster: scales its control plane to zero, annotates it with its replicas, and deletes the pods
    /// that run for it. Everything else stays. One that is paused already, or put to sleep by the platform, is left
    /// unchanged.
    ///
    /// # Errors
    /// If there is none or several, or if it is being restored; if it is resumed meanwhile (its pods then stay); if
    /// the host refuses or does not answer, or the timeout expires.
    pub async fn pause(
        &self,
        name: &str,
        namespace: Option<&str>,
        options: PauseOptions,
        progress: &dyn Progress,
    ) -> Result<VirtualCluster, Error> {
        let session = self.session(progress, options.within);
        let cluster = self.find_one(&session, name, namespace).await?;
        session.report(cluster.found());
        if cluster.workload.off_reason() == Some(Off::Sleeping) {
            session.report(Step::Unchanged { status: cluster.status.clone() });
            return Ok(cluster);
        }
        let mut control_plane = cluster.workload.clone();
        for part in parts(cluster.workload.kind) {
            for workload in self.workloads(&session, *part, &cluster).await? {
                let down = self.scale_down(&session, workload).await?;
                if path_of(&down) == path_of(&control_plane) {
                    control_plane = down;
                }
            }
        }
        // It may have been resumed while the other parts were scaled down.
        if let Some(now) = self.read_again(&session, &control_plane).await? {
            check_down(&now)?;
        }
        self.delete_pods(&session, &cluster, options).await?;
        self.find_one(&session, name, Some(&cluster.namespace)).await
    }

    /// Resumes a paused virtual cluster with its earlier replicas. A running one is left unchanged.
    ///
    /// # Errors
    /// If there is none or several; if it is scaled down without being paused, or down for a reason that a resume does not end; if the host
    /// refuses or does not answer, or the timeout expires.
    pub async fn resume(
        &self,
        name: &str,
        namespace: Option<&str>,
        options: ResumeOptions,
        progress: &dyn Progress,
    ) -> Result<VirtualCluster, Error> {
        let session = self.session(progress, options.within);
        let cluster = self.find_one(&session, name, namespace).await?;
        session.report(cluster.found());
        let (name, namespace) = (cluster.name.clone(), cluster.namespace.clone());
        let control_plane = &cluster.workload;
        match () {
            () if control_plane.sleeping => return Err(Error::Sleeping { name, namespace }),
            () if control_plane.restoring => return Err(Error::Restoring { name, namespace }),
            () if control_plane.off_reason() == Some(Off::ScaledDown) => {
                return Err(Error::ScaledDown { name, namespace });
            }
            () => {}
        }
        // The control plane comes last: while it is annotated, every client sees that the resume is not finished. It
        // also depends on the others.
        let mut resumed = false;
        for part in parts(control_plane.kind).iter().rev() {
            for workload in self.workloads(&session, *part, &cluster).await? {
                resumed |= self.scale_up(&session, workload).await?;
            }
        }
        if !resumed {
            session.report(Step::Unchanged { status: cluster.status.clone() });
        }
        match options.wait {
            true => self.wait_ready(&session, &name, &namespace).await,
            false => self.find_one(&session, &name, Some(&namespace)).await,
        }
    }

    /// Waits until its pod is running and ready.
    pub(crate) async fn wait_ready(
        &self,
        session: &Session<'_>,
        name: &str,
        namespace: &str,
    ) -> Result<VirtualCluster, Error> {
        let (mut last, mut delay) = (None, INITIAL_DELAY);
        loop {
            let cluster = self.find_one(session, name, Some(namespace)).await?;
            if cluster.status == Status::Running && cluster.workload.ready > 0 {
                session.report(Step::Ready);
                return Ok(cluster);
            }
            if last.as_ref() != Some(&cluster.status) {
                session.report(Step::WaitingForReady { status: cluster.status.clone() });
                last = Some(cluster.status.clone());
            }
            session.sleep(delay, &format!("waiting for it to be up ({})", cluster.status)).await?;
            delay = next_delay(delay);
        }
    }

    /// Scales a workload to zero, and waits until its pods are gone. On success it is down. Returns its last state.
    async fn scale_down(&self, session: &Session<'_>, mut workload: Workload) -> Result<Workload, Error> {
        loop {
            let configured = self.configured_replicas(session, &workload).await;
            let Some(patch) = workload.pause_patch(configured, &paused_date(&(self.options.now)())) else {
                check_down(&workload)?;
                session.report(Step::DownAlready { kind: workload.kind, name: workload.name.clone() });
                break;
            };
            if let Some(json) = session.patch(&path_of(&workload), &patch).await? {
                let annotated = patch["metadata"]["annotations"][names::PAUSED_REPLICAS].as_str();
                let annotated = annotated.and_then(|replicas| replicas.parse().ok());
                session.report(Step::ScaledDown {
                    kind: workload.kind,
                    name: workload.name.clone(),
                    replicas: annotated.unwrap_or_else(|| workload.replicas_after_resume()),
                });
                workload = Workload::parse(workload.kind, &json).ok().flatten().unwrap_or(workload);
                break;
            }
            // It was changed since it was read.
            let Some(now) = self.read_again(session, &workload).await? else { return Ok(workload) };
            workload = now;
            session.sleep(INITIAL_DELAY, &format!("scaling {workload} down")).await?;
        }
        self.wait_gone(session, workload).await
    }

    async fn wait_gone(&self, session: &Session<'_>, mut workload: Workload) -> Result<Workload, Error> {
        let (mut last, mut delay) = (None, INITIAL_DELAY);
        while let Some(now) = self.read_again(session, &workload).await? {
            check_down(&now)?;
            if now.pods == 0 {
                return Ok(now);
            }
            if last != Some(now.pods) {
                session.report(Step::waiting_for_pods(&now));
                last = Some(now.pods);
            }
            session.sleep(delay, &format!("waiting for {} pods of {now} to go", now.pods)).await?;
            delay = next_delay(delay);
            workload = now;
        }
        Ok(workload)
    }

    async fn scale_up(&self, session: &Session<'_>, mut workload: Workload) -> Result<bool, Error> {
        loop {
            let Some(patch) = workload.resume_patch() else { return Ok(false) };
            if session.patch(&path_of(&workload), &patch).await?.is_some() {
                session.report(Step::ScaledUp {
                    kind: workload.kind,
                    name: workload.name.clone(),
                    replicas: workload.replicas_after_resume(),
                });
                return Ok(true);
            }
            let Some(now) = self.read_again(session, &workload).await? else { return Ok(false) };
            workload = now;
            session.sleep(INITIAL_DELAY, &format!("scaling {workload} up")).await?;
        }
    }

    /// Returns the configured number of replicas; reads it only if it is not recorded elsewhere.
    async fn configured_replicas(&self, session: &Session<'_>, workload: &Workload) -> u32 {
        if workload.replicas > 0 || workload.paused {
            return 1;
        }
        let path = SECRETS.path(Some(&workload.namespace), Some(&names::config_secret(&workload.release)));
        // Without access the number is 1.
        let secret = session.get(&path).await.ok().flatten();
        secret.and_then(|json| ConfigSecret::parse(&json)).map_or(1, |config| config.replicas)
    }

    /// Deletes the pods that run in the host for a virtual cluster. Nothing is left that would recreate them.
    async fn delete_pods(
        &self,
        session: &Session<'_>,
        cluster: &VirtualCluster,
        options: PauseOptions,
    ) -> Result<(), Error> {
        let own = format!("{}={}", names::MANAGED_BY, cluster.name);
        delete_pods_in(session, &cluster.namespace, &own).await?;
        if !options.synced {
            return Ok(());
        }
        for namespace in synced_namespaces(session, &cluster.name, &cluster.namespace).await? {
            delete_pods_in(session, &namespace.name, "").await?;
        }
        Ok(())
    }
}

impl Default for PauseOptions {
    fn default() -> Self {
        Self { synced: true, within: Duration::from_secs(300) }
    }
}

impl Default for ResumeOptions {
    fn default() -> Self {
        Self { within: Duration::from_secs(300), wait: false }
    }
}

/// Returns an error if it is not down: it was scaled up, or is about to be. Then its pods must stay.
fn check_down(workload: &Workload) -> Result<(), Error> {
    let (name, namespace) = (workload.release.clone(), workload.namespace.clone());
    match () {
        () if workload.restoring => Err(Error::Restoring { name, namespace }),
        () if workload.replicas == 0 => Ok(()),
        () if workload.sleeping => Err(Error::Sleeping { name, namespace }),
        () => Err(Error::Resumed { name, namespace }),
    }
}

/// Returns the synced namespaces of a virtual cluster; none if listing is forbidden.
pub(crate) async fn synced_namespaces(
    session: &Session<'_>,
    name: &str,
    namespace: &str,
) -> Result<Vec<Meta>, Error> {
    let selector = format!("{}={}", names::MANAGED_BY, names::marker(name, namespace));
    match session.list(&NAMESPACES.path(None, None), &selector, Extent::Metadata).await {
        Err(Error::Refused { status, .. }) if status.code == 403 => Ok(Vec::new()),
        other => Ok(metas(&other?)),
    }
}

async fn delete_pods_in(session: &Session<'_>, namespace: &str, selector: &str) -> Result<(), Error> {
    let pods = metas(&session.list(&PODS.path(Some(namespace), None), selector, Extent::Metadata).await?);
    let mut deleted = 0;
    for pod in pods.iter().filter(|pod| pod.deletion_timestamp.is_none()) {
        deleted += usize::from(session.delete(&PODS.path(Some(namespace), Some(&pod.name))).await?);
    }
    if deleted > 0 {
        session.report(Step::PodsDeleted { namespace: namespace.to_owned(), pods: deleted });
    }
    Ok(())
}

/// The first delay between two reads of an object.
pub(crate) const INITIAL_DELAY: Duration = Duration::from_millis(100);

/// Doubles a delay, up to a second.
pub(crate) fn next_delay(delay: Duration) -> Duration {
    (delay * 2).min(Duration::from_secs(1))
}
