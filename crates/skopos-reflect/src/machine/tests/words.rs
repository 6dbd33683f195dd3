//! The classification of responses, and its sentences.

use skopos_wire::{ObjectKey, Status, StatusReason, WatchEvent};

use super::desk::Desk;
use crate::machine::*;

fn status(code: u16, reason: &str, message: &str) -> Box<Status> {
    let text = format!(
        r#"{{"kind":"Status","status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    );
    Box::new(Status::from_slice(text.as_bytes()).unwrap())
}

/// Returns the reflector state after this response to a watch.
fn after(code: u16, status: Option<Box<Status>>) -> ReflectorState {
    let (mut desk, watch) = Desk::watching(1);
    desk.give(Input::Failed { id: watch, failure: Failure::Answer { code, status, retry_after: None } });
    desk.machine.state().clone()
}

#[test]
fn each_code_has_its_condition() {
    use Condition::*;
    let cases = [
        (301, ServerError),
        (400, Rejected),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotServed),
        (405, Rejected),
        (410, Retrying),
        (422, Rejected),
        (429, Throttled),
        (499, Rejected),
        (500, ServerError),
        (503, ServerError),
    ];
    for (code, condition) in cases {
        let state = after(code, None);
        assert_eq!(state.condition, condition, "{code}");
        let reason = state.reason.unwrap();
        assert_eq!(&*reason, format!("the server answered HTTP {code}"));
        assert_eq!(reason.cause(), &Cause::Answer { code, reason: StatusReason::default() });
        assert_eq!(reason.transport_error(), None);
    }
}

#[test]
fn status_reason_outranks_http_code() {
    use Condition::*;
    let cases = [
        ("Unauthorized", Unauthorized),
        ("Forbidden", Forbidden),
        ("TooManyRequests", Throttled),
        ("Expired", Retrying),
        ("Another", ServerError),
    ];
    for (reason, condition) in cases {
        let state = after(500, Some(status(500, reason, "etcd is gone")));
        assert_eq!(state.condition, condition, "{reason}");
        assert_eq!(state.reason.as_deref(), Some("etcd is gone (HTTP 500)"));
        let state = after(500, Some(status(500, reason, "")));
        assert_eq!(state.reason.as_deref(), Some("the server answered HTTP 500"));
    }
}

#[test]
fn error_event_is_classified_like_response() {
    let (mut desk, watch) = Desk::watching(1);
    desk.give(Input::Events {
        id: watch,
        events: vec![Ok(WatchEvent::Error(status(500, "Forbidden", "no")))],
    });
    assert_eq!(desk.machine.poll_action(), Some(Action::Cancel { id: watch }));
    assert_eq!(desk.machine.state().to_string(), "forbidden (1 failed in a row): no (HTTP 500)");
}

#[test]
fn state_is_displayed_in_one_line() {
    let (mut desk, mut watch) = Desk::watching(1);
    assert_eq!(desk.machine.state().to_string(), "watching");
    for _ in 0..2 {
        desk.fail(watch, 503);
        watch = match desk.machine.state().attempts {
            1 => desk.watches().id,
            _ => break,
        };
    }
    let text = "server-error (2 failed in a row): the server answered HTTP 503";
    assert_eq!(desk.machine.state().to_string(), text);
    assert_eq!(desk.machine.state().reason.as_ref().unwrap().to_string(), "the server answered HTTP 503");
}

#[test]
fn displays_each_condition() {
    use Condition::*;
    let key = Some(ObjectKey::namespaced("ns", "a"));
    let cases = [
        (Connecting, "connecting"),
        (Listing, "listing"),
        (Unreachable, "unreachable"),
        (NotServed, "not-served"),
        (Stopped, "stopped"),
        (Degraded(Degradation::Stalled), "degraded (the stream is held back)"),
        (
            Degraded(Degradation::Undecodable { key: key.clone(), count: 1 }),
            "degraded (ns/a cannot be decoded)",
        ),
        (Degraded(Degradation::Undecodable { key, count: 2 }), "degraded (2 objects cannot be decoded)"),
    ];
    for (condition, text) in cases {
        assert_eq!(condition.to_string(), text);
        assert!(text.starts_with(condition.as_str()));
    }
}
