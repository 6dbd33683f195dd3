//! Properties that hold for every server and every kubeconfig. `tests/properties.rs` and the fuzz targets in the
//! repository's `fuzz/` call the same functions.
#![allow(dead_code, unreachable_pub, reason = "each user takes its part")]

mod script;

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use skopos_transport::{
    Dialed, RequestOptions, Transport, TransportError, TransportErrorKind, TransportOptions, dialer_fn,
};
use tokio::time::Instant;

use self::script::Script;

/// Checks a transport whose server sends the bytes on every connection. Nothing panics, every call and every body ends
/// within its deadline, no body yields more than the server sent, and in the end nothing is left.
pub fn hostile_server(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(converse(Arc::new(Script::new(bytes))));
}

async fn converse(script: Arc<Script>) {
    let protocol = script.protocol;
    let server = script.clone();
    let dialer = dialer_fn(move |_| {
        let io = server.clone().accept();
        async move {
            let io = io
                .ok_or_else(|| TransportErrorKind::Refused { to: "here".into(), reason: "no more".into() })?;
            Ok(Dialed::new(io, protocol))
        }
    });
    let config = kube::Config::new("http://cluster.test".parse().expect("a URL"));
    let options = TransportOptions { seed: Some(1), wall_clock: None, ..TransportOptions::default() };
    let transport = Transport::with_dialer(config, options, dialer).expect("these options work");

    let deadline = Duration::from_secs(20);
    let bounded = RequestOptions { deadline: Some(deadline), ..RequestOptions::default() };
    tokio::join!(
        // With the caller's own deadline, for any class.
        ask(&transport, "/api/v1/pods?watch=true", Some(bounded.clone()), deadline, &script),
        ask(&transport, "/api/v1/pods?limit=500", Some(bounded.clone()), deadline, &script),
        ask(&transport, "/api/v1/namespaces/a/pods/b", Some(bounded), deadline, &script),
        // Those of the class alone: three times connection and headers, then the body.
        ask(&transport, "/version", None, Duration::from_secs(3 * (10 + 30) + 60), &script),
        ask(&transport, "/api/v1/pods?limit=7", None, Duration::from_secs(3 * (10 + 30) + 300), &script),
    );
    let _ = transport.stats();
    assert!(transport.shutdown(Duration::from_secs(1)).await, "something is left: {transport:?}");
    let late = transport.send(request("/version", None)).await;
    assert!(late.is_err_and(|error| error.is_closed()));
    script.stop().await;
}

async fn ask(
    transport: &Transport,
    path: &str,
    options: Option<RequestOptions>,
    bound: Duration,
    script: &Script,
) {
    let begun = Instant::now();
    let answer = async {
        let response = transport.send(request(path, options)).await?;
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, |data| data.len());
        }
        Ok::<usize, TransportError>(bytes)
    };
    let grace = Duration::from_millis(50);
    match tokio::time::timeout(bound + grace, answer).await {
        Ok(Ok(bytes)) => assert!(bytes <= script.sent(), "{path}: {bytes} bytes of {}", script.sent()),
        Ok(Err(error)) => {
            let _ = (error.to_string(), error.fault());
        }
        Err(_) => panic!("{path} did not end within {bound:?}, but took {:?}", begun.elapsed()),
    }
}

fn request(path: &str, options: Option<RequestOptions>) -> Request<Body> {
    let mut request = Request::get(path).body(Body::empty()).expect("a request");
    request.extensions_mut().extend(
        options
            .map(|options| {
                let mut extensions = http::Extensions::new();
                extensions.insert(options);
                extensions
            })
            .unwrap_or_default(),
    );
    request
}

/// Checks that any text gives a configuration or a typed error that can be printed, and so does a transport from it.
pub fn kubeconfig(text: &str) {
    // Paths in it would be read, and some have no end.
    if text.contains('/') && (text.contains("/dev") || text.contains("/proc")) {
        return;
    }
    let kubeconfig = match Kubeconfig::from_yaml(text) {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => return drop(error.to_string()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let contexts = kubeconfig.contexts.iter().map(|context| Some(context.name.clone())).take(3);
    for context in contexts.chain([None, Some("no such context".to_owned())]) {
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = runtime.block_on(kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options));
        let made = match config {
            Ok(config) => Transport::from_config(config, TransportOptions::default()),
            Err(error) => return drop(error.to_string()),
        };
        if let Err(error) = made {
            let _ = error.to_string();
        }
    }
}
