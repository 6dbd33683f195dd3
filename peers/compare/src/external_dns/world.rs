//! A cluster, a zone and a notifier between them, fresh for each case.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use skopos_testserver::{CloseMode, TestServer};
use tokio::time::{Instant, sleep, timeout_at};

use super::side::{ANNOTATION, Notifier, Side};
use crate::dns::{Answer, Bind, Resolver, Watch, full};

const NAMESPACE: &str = "default";
/// How long a change is waited for.
pub(super) const CAP: Duration = Duration::from_secs(120);

pub(super) struct World {
    pub(super) side: Side,
    pub(super) server: TestServer,
    pub(super) bind: Bind,
    pub(super) notifier: Notifier,
    resolver: Resolver,
}

/// How a case's world differs from the usual one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    /// Records of others in the zone's file.
    pub(super) zone: &'static str,
    /// What the zone allows.
    pub(super) allowed: &'static str,
    /// Informers list, and do not ask for a streamed list.
    pub(super) plain_lists: bool,
}

impl World {
    /// Starts everything but the notifier.
    pub(super) async fn start(side: Side, setting: Setting) -> Result<Self> {
        let server = TestServer::builder().tls(true).watch_list(!setting.plain_lists).start().await?;
        // It may be there already.
        let _ = server
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}));
        let bind = Bind::start(setting.zone, setting.allowed).await?;
        let notifier = Notifier::new(side, &bind, &server.kubeconfig())?;
        let resolver = Resolver::of(bind.address).await?;
        Ok(Self { side, server, bind, notifier, resolver })
    }

    /// Writes so many Services, starts the notifier, and waits until their names answer.
    pub(super) async fn settled(&mut self, count: usize) -> Result<Vec<String>> {
        let hosts: Vec<_> = (0..count).map(|index| format!("s{index}")).collect();
        for (index, host) in hosts.iter().enumerate() {
            self.put(host, host, &[&address(index)])?;
        }
        self.notifier.start()?;
        let begun = Instant::now();
        for (index, host) in hosts.iter().enumerate() {
            let written = self.leads(host, &[&address(index)], begun).await;
            written.with_context(|| format!("{host} is never written"))?;
        }
        Ok(hosts)
    }

    /// Creates or changes a Service that asks for a host and leads to addresses, or to a name.
    pub(super) fn put(&self, service: &str, host: &str, to: &[&str]) -> Result<()> {
        self.put_object(service_object(service, host, to))
    }

    pub(super) fn put_object(&self, service: Value) -> Result<()> {
        let name = service["metadata"]["name"].as_str().context("a name")?;
        let known = self.server.get("services", Some(NAMESPACE), name).is_ok();
        let put = if known { self.server.update(service) } else { self.server.create(service) };
        put.map(drop).map_err(|status| anyhow::anyhow!("{status:?}"))
    }

    pub(super) fn delete(&self, service: &str) -> Result<()> {
        let deleted = self.server.delete("services", Some(NAMESPACE), service);
        deleted.map(drop).map_err(|status| anyhow::anyhow!("{status:?}"))
    }

    pub(super) async fn stop_server(&self) {
        self.server.pause_with(CloseMode::Rst).await;
    }

    /// Waits until a host leads exactly to these. Returns how long that took from a moment on, in seconds.
    pub(super) async fn leads(&mut self, host: &str, to: &[&str], since: Instant) -> Option<f64> {
        let to: Vec<_> = to.iter().map(|&value| value.to_owned()).collect();
        self.until(host, since, |answer| answer.is(&to)).await
    }

    /// Waits until the answer about a host is such, for `CAP` from a moment on.
    pub(super) async fn until(
        &mut self,
        host: &str,
        since: Instant,
        is_such: impl Fn(&Answer) -> bool,
    ) -> Option<f64> {
        let name = full(host);
        let waiting = async {
            while !self.resolver.ask(&name).await.is_ok_and(|answer| is_such(&answer)) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let deadline = (since + CAP).max(Instant::now() + Duration::from_secs(1));
        timeout_at(deadline, waiting).await.ok().map(|()| since.elapsed().as_secs_f64())
    }

    /// Waits until hosts lead nowhere.
    pub(super) async fn gone(&mut self, hosts: &[String], since: Instant) -> Option<f64> {
        let mut last = None;
        for host in hosts {
            last = Some(self.until(host, since, Answer::is_nothing).await?);
        }
        last
    }

    pub(super) async fn answer(&mut self, host: &str) -> Result<Answer> {
        self.resolver.ask(&full(host)).await
    }

    /// Counts the hosts that lead somewhere.
    pub(super) async fn answered(&mut self, hosts: &[String]) -> Result<usize> {
        let mut answered = 0;
        for host in hosts {
            answered += usize::from(!self.answer(host).await?.is_nothing());
        }
        Ok(answered)
    }

    /// Asks for hosts from now on.
    pub(super) async fn watch(&self, hosts: &[String], pause: Duration) -> Result<Watch> {
        Watch::start(self.bind.address, hosts.iter().map(|host| full(host)).collect(), pause).await
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        self.notifier.kill().await;
        self.bind.kill().await?;
        self.server.stop().await;
        Ok(())
    }
}

/// Returns the address of the Service with a number.
pub(super) fn address(index: usize) -> String {
    format!("10.0.{}.{}", index / 250, 1 + index % 250)
}

pub(super) fn service_object(service: &str, host: &str, to: &[&str]) -> Value {
    let ingress = |value: &&str| match value.parse::<std::net::IpAddr>() {
        Ok(_) => json!({"ip": value}),
        Err(_) => json!({"hostname": value}),
    };
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": NAMESPACE, "name": service, "annotations": {ANNOTATION: full(host)}},
        "spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
        "status": {"loadBalancer": {"ingress": to.iter().map(ingress).collect::<Vec<_>>()}},
    })
}
