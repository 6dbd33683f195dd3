//! Servers of a zone: their serials, NOTIFY, keys, truncated transfers, and a primary that moves.

mod support;

use std::time::Duration;

use skopos_notify::EntryName;
use skopos_notify::sink::dns::{DnsKey, DnsSink};
use skopos_notify::sink::{Sink, SinkError};
use support::dns_proxy::DnsProxy;
use support::servers::{DnsServer, Kind, ZONE, free_port};
use support::{Cluster, endpoints, quick, secs, sink};
use tokio::time::Instant;

const READY: &str = "ready";
const BOTH: [Kind; 2] = [Kind::Bind, Kind::Knot];

fn name(host: &str) -> EntryName {
    format!("{host}.{ZONE}").into()
}

fn source() -> skopos_notify::desired::ClaimSource {
    endpoints(&format!("{{service}}.{ZONE}"), false)
}

async fn values(sink: &DnsSink, host: &str) -> Vec<String> {
    let entry = sink.observe().await.expect("a transfer").entries.remove(&name(host));
    entry.into_iter().flat_map(|entry| entry.members).map(|(value, _)| value.to_string()).collect()
}

async fn until(limit: Duration, mut what: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !what().await {
        assert!(begun.elapsed() < limit, "not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

// Drift: the serial is read, and the zone is transferred only if it has changed.
#[tokio::test]
async fn unchanged_serial_skips_transfer() {
    for kind in BOTH {
        let Some(server) = DnsServer::start(kind, "").await else { continue };
        let (cluster, proxy) = (Cluster::quick().await, DnsProxy::start(server.address).await);
        cluster.put("web", &[("10.0.0.1", READY)]);
        let mut options = server.options();
        options.servers = vec![proxy.address];
        let running = cluster.run(vec![quick("zone", DnsSink::new(options).unwrap(), source())]);
        running.equal(0).await;
        // Waits until nothing is written any more, and for many observations after that.
        let (mut transfers, mut serials) = (proxy.transfers(), proxy.serials());
        until(secs(60), async || {
            if transfers != proxy.transfers() {
                (transfers, serials) = (proxy.transfers(), proxy.serials());
            }
            proxy.serials() >= serials + 12
        })
        .await;
        let report = running.equal(0).await;
        assert_eq!(proxy.transfers(), transfers, "{kind:?}: the age goes on without a transfer");
        assert_eq!(report.drift, 0);
        server.set_address("web", "10.9.9.9".parse().unwrap()).await;
        running.until(0, |report| report.drift == 1 && report.is_equal()).await;
        assert_eq!(values(&server.sink(), "web").await, ["10.0.0.1"]);
        assert!(proxy.transfers() > transfers);
        running.stop().await;
        cluster.end().await;
    }
}

// Case 19.
#[tokio::test]
async fn manual_change_is_repaired_soon_after_notify() {
    for kind in BOTH {
        let Some(mut server) = DnsServer::start(kind, "").await else { continue };
        let notify = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
        server.kill();
        server.configure_primary(&[notify]);
        server.run().await;
        let cluster = Cluster::quick().await;
        cluster.put("web", &[("10.0.0.1", READY)]);
        let mut options = server.options();
        options.notify = Some(notify);
        // Nothing else triggers an observation within the test.
        let mut zone = sink("zone", DnsSink::new(options).unwrap(), source());
        zone.observe_every = secs(3_600);
        let running = cluster.run(vec![zone]);
        running.until(0, |report| report.is_equal() && report.outside == 1).await;
        let mut took = Duration::MAX;
        for edit in 1..=3 {
            server.set_address("web", format!("10.9.9.{edit}").parse().unwrap()).await;
            let begun = Instant::now();
            running.until(0, |report| report.drift == edit && report.is_equal()).await;
            took = took.min(begun.elapsed());
            assert_eq!(values(&server.sink(), "web").await, ["10.0.0.1"]);
        }
        println!("{kind:?}: repaired within {took:?}");
        // Knot waits for a second before it sends the message.
        let limit = if kind == Kind::Bind { secs(1) } else { secs(3) };
        assert!(took < limit, "{kind:?}: {took:?}");
        // The listener ends with the notifier.
        running.stop().await;
        until(secs(10), async || std::net::UdpSocket::bind(notify).is_ok()).await;
        cluster.end().await;
    }
}

#[tokio::test]
async fn taken_notify_address_is_reported_and_rest_works() {
    let Some(server) = DnsServer::start(Kind::Bind, "").await else { return };
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut options = server.options();
    options.notify = Some(taken.local_addr().unwrap());
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("10.0.0.1", READY)]);
    let running = cluster.run(vec![quick("zone", DnsSink::new(options).unwrap(), source())]);
    running.equal(0).await;
    let report = running.until(0, |report| !report.problems.is_empty()).await;
    assert!(report.problems[0].message.contains("cannot listen for NOTIFY"), "{report:#?}");
    drop(taken);
    running.until(0, |report| report.problems.is_empty()).await;
    running.stop().await;
    cluster.end().await;
}

// Case 12.
#[tokio::test]
async fn a_key_is_rotated_without_a_gap() {
    for kind in BOTH {
        let Some(server) = DnsServer::start(kind, "").await else { continue };
        let key = |secret: &[u8]| DnsKey::new("skopos", "hmac-sha256", secret).unwrap();
        let (old, new) = (server.options().key.unwrap(), &b"another secret, of thirty-two b."[..]);
        let mut options = server.options();
        options.key = Some(key(new).or(old));
        let cluster = Cluster::quick().await;
        cluster.put("web", &[("10.0.0.1", READY)]);
        let running = cluster.run(vec![quick("zone", DnsSink::new(options.clone()).unwrap(), source())]);
        running.equal(0).await;
        server.configure_key(new);
        server.reload();
        options.key = Some(key(new));
        let after = DnsSink::new(options).unwrap();
        until(secs(60), async || after.observe().await.is_ok()).await;
        assert!(
            matches!(server.sink().observe().await, Err(SinkError::Refused(_))),
            "the old secret is void"
        );
        cluster.put("web", &[("10.0.0.1", READY), ("10.0.0.2", READY)]);
        running.until(0, |report| report.steps.get("done") == Some(&2)).await;
        running.equal(0).await;
        assert_eq!(values(&after, "web").await, ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(running.handle.reports()[0].steps.len(), 1, "nothing was refused");
        running.stop().await;
        cluster.end().await;
    }
}

// Case 13: a truncated transfer is an error, and never a smaller zone.
#[tokio::test]
async fn truncated_transfer_is_error_at_every_length() {
    for kind in BOTH {
        let more: String = (0..2_000).map(|index| format!("mail{index} IN A 192.0.2.1\n")).collect();
        let Some(server) = DnsServer::start(kind, &more).await else { continue };
        let proxy = DnsProxy::start(server.address).await;
        let mut options = server.options();
        options.servers = vec![proxy.address];
        let sink = DnsSink::new(options).unwrap();
        for bytes in [0, 1, 2, 100, 10_000, 20_000, 40_000] {
            proxy.cut_after(bytes);
            let read = sink.observe().await;
            assert!(
                matches!(&read, Err(SinkError::Incomplete(told)) if told.contains("was cut")),
                "{kind:?}, {bytes}: {read:?}"
            );
        }
        proxy.cut_after(usize::MAX);
        let cluster = Cluster::quick().await;
        cluster.put("web", &[("10.0.0.1", READY)]);
        let running = cluster.run(vec![quick("zone", sink, source())]);
        running.equal(0).await;
        proxy.cut_after(20_000);
        server.set_address("hand", "192.0.2.9".parse().unwrap()).await;
        let report = running.until(0, |report| report.sink_problem.is_some()).await;
        assert!(report.sink_problem.as_deref().is_some_and(|told| told.contains("was cut")), "{report:#?}");
        proxy.cut_after(usize::MAX);
        let report = running.equal(0).await;
        assert_eq!(report.steps.get("done"), Some(&1), "nothing was written again: {report:#?}");
        running.stop().await;
        cluster.end().await;
    }
}

// Case 45.
#[tokio::test]
async fn updates_follow_primary_from_bind_to_knot() {
    the_primary_moves(Kind::Bind, Kind::Knot).await;
}

#[tokio::test]
async fn updates_follow_primary_from_knot_to_bind() {
    the_primary_moves(Kind::Knot, Kind::Bind).await;
}

async fn the_primary_moves(first: Kind, second: Kind) {
    let (Some(mut a), Some(mut b)) = (DnsServer::start(first, "").await, DnsServer::start(second, "").await)
    else {
        return;
    };
    // The secondary is not notified of changes, so it stays behind.
    b.kill();
    b.configure_secondary(a.address);
    b.run().await;
    let mut options = a.options();
    options.servers = vec![b.address, a.address];
    options.lag_limit = secs(2);
    let cluster = Cluster::quick().await;
    cluster.put("web", &[("10.0.0.1", READY)]);
    let running = cluster.run(vec![quick("zone", DnsSink::new(options.clone()).expect("a sink"), source())]);
    running.equal(0).await;
    assert_eq!(values(&a.sink(), "web").await, ["10.0.0.1"]);
    assert_eq!(values(&b.sink(), "web").await, [""; 0], "{second:?} is behind");
    let report = running.until(0, |report| !report.problems.is_empty()).await;
    let told = &report.problems[0].message;
    assert!(told.contains(&b.address.to_string()) && told.contains("has serial"), "{told}");
    cluster.put("web", &[("10.0.0.1", READY), ("10.0.0.2", READY)]);
    running.equal(0).await;
    let report = &running.handle.reports()[0];
    assert_eq!((report.drift, report.steps.get("done")), (0, Some(&2)), "{report:#?}");

    // It catches up.
    a.kill();
    a.configure_primary(&[b.address]);
    a.run().await;
    cluster.put("web", &[("10.0.0.1", READY), ("10.0.0.3", READY)]);
    until(secs(60), async || values(&b.sink(), "web").await == ["10.0.0.1", "10.0.0.3"]).await;
    running.until(0, |report| report.problems.is_empty() && report.is_equal()).await;

    // The roles are swapped.
    a.kill();
    b.kill();
    a.configure_secondary(b.address);
    b.configure_primary(&[a.address]);
    b.run().await;
    a.run().await;
    cluster.put("web", &[("10.0.0.4", READY)]);
    cluster.put("new", &[("10.0.0.5", READY)]);
    until(secs(60), async || {
        values(&b.sink(), "web").await == ["10.0.0.4"] && values(&b.sink(), "new").await == ["10.0.0.5"]
    })
    .await;
    running.equal(0).await;
    until(secs(60), async || values(&a.sink(), "new").await == ["10.0.0.5"]).await;
    let report = running.until(0, |report| report.problems.is_empty()).await;
    assert_eq!(report.drift, 0, "{report:#?}");
    running.stop().await;

    // A secondary alone takes no updates.
    options.servers = vec![a.address];
    let running = cluster.run(vec![quick("zone", DnsSink::new(options).expect("a sink"), source())]);
    cluster.put("more", &[("10.0.0.6", READY)]);
    let report = running.until(0, |report| !report.problems.is_empty()).await;
    assert!(report.problems[0].message.contains("a secondary"), "{report:#?}");
    running.stop().await;
    cluster.end().await;
}
