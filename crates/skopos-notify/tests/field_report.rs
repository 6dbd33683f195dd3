//! R2, the field report: controllers for DNS and load balancers slept for hours after a restart of the API server. Here with BIND
//! and HAProxy.

mod support;

use skopos_notify::sink::Sink;
use skopos_testserver::TestServer;
use support::servers::{DnsServer, Haproxy, Kind, ZONE};
use support::{Cluster, endpoints, quick, secs};
use tokio::time::{Instant, sleep};

const READY: &str = "ready";

#[tokio::test]
async fn bind_and_haproxy_survive_ten_api_server_restarts() {
    let names = ["default_a_http", "default_b_http", "default_c_http"];
    let (Some(dns), Some(haproxy)) = (DnsServer::start(Kind::Bind, "").await, Haproxy::start(&names).await)
    else {
        return;
    };
    let cluster = Cluster::with_server(TestServer::builder().start().await.expect("the server starts"));
    for service in ["a", "b", "c"] {
        cluster.put(service, &[("127.0.0.1", READY), ("127.0.0.2", READY)]);
    }
    let sinks = vec![
        quick("zone", dns.sink(), endpoints(&format!("{{service}}.{ZONE}"), false)),
        quick("edge", haproxy.sink(), endpoints("{namespace}_{service}_{port}", true)),
    ];
    let running = cluster.run(sinks);
    running.equal(0).await;
    running.equal(1).await;
    let mut addresses = vec!["127.0.0.1".to_owned(), "127.0.0.2".to_owned()];
    for restart in 0..10 {
        let before = (dns.sink().observe().await.unwrap(), haproxy.sink().observe().await.unwrap());
        cluster.stop_server();
        sleep(secs(1)).await;
        assert_eq!(dns.sink().observe().await.unwrap(), before.0, "nothing is removed");
        assert_eq!(haproxy.sink().observe().await.unwrap().entries, before.1.entries, "nothing is removed");
        let new = format!("127.0.1.{restart}");
        addresses.push(new.clone());
        let endpoints: Vec<_> = addresses.iter().map(|address| (address.as_str(), READY)).collect();
        cluster.put("a", &endpoints);
        cluster.start_server();
        let back = Instant::now();
        let (zone, edge) = (dns.sink(), haproxy.sink());
        let value = format!("{new}:8080");
        let has = async |sink: &dyn Sink, name: &str, value: &str| {
            let there = async || sink.observe().await.unwrap().entries[name].members.contains_key(value);
            while !there().await {
                sleep(secs(1) / 50).await;
            }
            back.elapsed()
        };
        let took = (has(&zone, &format!("a.{ZONE}"), &new).await, has(&edge, "default_a_http", &value).await);
        assert!(took.0.max(took.1) < secs(20), "{took:?}");
        assert_eq!(zone.observe().await.unwrap().entries[&*format!("b.{ZONE}")].members.len(), 2);
        eprintln!("restart {restart}: caught up after {took:?}");
        let report =
            running.until(0, |report| report.outside_age_seconds.is_some_and(|age| age < 15.0)).await;
        assert!(report.held.is_empty(), "{report:?}");
    }
    running.stop().await;
    cluster.end().await;
}
