//! Connection errors reach the informer as values that a program can match on, and as readable text.

mod support;

use k8s_openapi::api::core::v1::ConfigMap;
use skopos::transport::TransportErrorKind;
use skopos::wire::StatusReason;
use skopos::{
    Cause, Condition, FactoryOptions, Informer, InformerOptions, InitialList, StaleReason, Trouble,
};
use skopos_testserver::{CloseMode, Connections, Direction, Fault, Match, TestServer};
use support::*;

/// Returns the trouble of an informer that was healthy before the fault, and recovered after it.
async fn trouble_of(fault: impl FnOnce(&World)) -> Trouble {
    let world = world().await;
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all()).expect("an informer");
    maps.wait_synced(secs(5)).await.expect("synced");
    world.server.wait_for(|server| server.open_watches() == 1).await.expect("a watch");
    assert_eq!(maps.stats().last_trouble, None);
    fault(&world);
    eventually("it is well again", || {
        maps.stats().last_trouble.is_some_and(|trouble| trouble.healed.is_some())
    })
    .await;
    eventually("the reflector says that it works", || maps.state().reason.is_none()).await;
    let stats = maps.stats();
    assert_eq!(stats.reflectors[0].last_trouble, stats.last_trouble);
    stats.last_trouble.expect("a trouble")
}

fn error_kind(trouble: &Trouble) -> &TransportErrorKind {
    let error_kind = trouble.origin.transport_error().unwrap_or_else(|| panic!("{trouble:?}"));
    assert_eq!(*trouble.origin, *error_kind.to_string(), "the words are those of the error");
    error_kind
}

#[tokio::test(start_paused = true)]
async fn a_missed_ping() {
    let trouble = trouble_of(|world| {
        world.server.faults().black_hole(Connections::Existing, Direction::Both).keep();
    })
    .await;
    assert_eq!(error_kind(&trouble), &TransportErrorKind::PingTimeout);
}

#[tokio::test(start_paused = true)]
async fn a_reset_and_an_end() {
    let trouble = trouble_of(|world| _ = world.server.faults().kill_connections(CloseMode::Rst)).await;
    assert!(matches!(error_kind(&trouble), TransportErrorKind::Reset(_)), "{trouble:?}");
    let trouble = trouble_of(|world| _ = world.server.faults().kill_connections(CloseMode::Fin)).await;
    assert_eq!(error_kind(&trouble), &TransportErrorKind::Eof);
    let reset = Fault::Reset;
    let trouble =
        trouble_of(|world| world.server.faults().inject(reset).on(Match::watch()).times(1).keep()).await;
    assert!(matches!(error_kind(&trouble), TransportErrorKind::StreamReset { .. }), "{trouble:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_gone() {
    let world = world().await;
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all()).expect("an informer");
    maps.wait_synced(secs(5)).await.expect("synced");
    world.server.pause_with(CloseMode::Rst).await;
    eventually("it has tried again", || maps.state().attempts > 3).await;
    let refused = |reason: Option<&skopos::Reason>| {
        matches!(
            reason.map(skopos::Reason::cause),
            Some(Cause::Connection(TransportErrorKind::Refused { .. }))
        )
    };
    let (state, stats) = (maps.state(), maps.stats());
    assert_eq!(state.condition, Condition::Unreachable);
    assert!(refused(state.reason.as_ref()), "{state}");
    match maps.freshness().reason() {
        Some(StaleReason::Reflector(state)) => assert!(refused(state.reason.as_ref()), "{state}"),
        other => panic!("{other:?}"),
    }
    let trouble = stats.last_trouble.expect("a trouble");
    assert!(
        matches!(error_kind(&trouble), TransportErrorKind::Reset(_)),
        "what killed the connection: {trouble:?}"
    );
    assert!(refused(Some(&trouble.reason)), "what stands in the way now: {trouble:?}");

    // A call that times out reports the same.
    let late: Informer<ConfigMap> =
        world.factory.informer(InformerOptions::namespace("a")).expect("an informer");
    let error = late.wait_synced(secs(5)).await.expect_err("there is no server");
    assert!(refused(Some(&error.who[0].reason)) && refused(error.who[0].state.reason.as_ref()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come() {
    let mut options = quiet();
    options.machine.initial = InitialList::Paged;
    let reason = why_not_synced(options, Fault::WithholdHeaders, Match::list()).await;
    assert!(
        matches!(reason.transport_error(), Some(TransportErrorKind::HeadersDeadline { .. })),
        "{reason:?}"
    );
    // For a streamed list, the informer itself has a shorter timeout than the transport.
    let everything = Match::any().resource("configmaps");
    let reason = why_not_synced(quiet(), Fault::WithholdHeaders, everything).await;
    assert_eq!((reason.cause(), &*reason), (&Cause::Silence, "no answer to a streamed list"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_success() {
    let forbidden = || Fault::status(403, 0);
    let reason = why_not_synced(quiet(), forbidden(), Match::any().resource("configmaps")).await;
    assert!(matches!(reason.cause(), Cause::Answer { code: 403, .. }), "{reason:?}");
    assert!(reason.ends_with("(HTTP 403)"), "{reason}");
    let trouble = trouble_of(|world| {
        world.server.faults().inject(Fault::cache_not_ready(1)).on(Match::watch()).times(1).keep();
        world.server.close_watches();
    })
    .await;
    let Cause::Answer { code: 429, reason } = trouble.origin.cause() else { panic!("{trouble:?}") };
    assert_eq!(*reason, StatusReason::TooManyRequests);
}

async fn why_not_synced(options: FactoryOptions, fault: Fault, matching: Match) -> skopos::Reason {
    let world = world_with(TestServer::builder(), options).await;
    let _fault = world.server.faults().inject(fault).on(matching);
    let maps: Informer<ConfigMap> = world.factory.informer(InformerOptions::all()).expect("an informer");
    maps.wait_synced(secs(40)).await.expect_err("it cannot").who[0].reason.clone()
}

#[tokio::test(start_paused = true)]
async fn one_namespace_of_a_set() {
    let world = world().await;
    let maps: Informer<ConfigMap> =
        world.factory.informer(InformerOptions::namespaces(["a", "b"])).expect("an informer");
    maps.wait_synced(secs(5)).await.expect("synced");
    world.server.wait_for(|server| server.open_watches() == 2).await.expect("watches");
    world.server.faults().inject(Fault::Reset).on(Match::watch().namespace("b")).times(1).keep();
    eventually("it is told", || maps.stats().last_trouble.is_some()).await;
    let stats = maps.stats();
    assert_eq!(stats.reflectors[0].last_trouble, None);
    let trouble = stats.reflectors[1].last_trouble.as_ref().expect("the trouble of b");
    assert!(matches!(error_kind(trouble), TransportErrorKind::StreamReset { .. }), "{trouble:?}");
    assert_eq!(stats.last_trouble.as_ref(), Some(trouble), "it is that of the whole");
}
