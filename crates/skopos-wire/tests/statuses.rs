//! The exact bytes of a server's Status: clients act on code, reason, details and causes, people on the message, and both
//! expect kube-apiserver's form.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

use skopos_wire::{
    FieldError, FieldErrorKind, GroupResource, InvalidToken, ListOptionsFault, Status, StatusCause,
    StatusDetails, StatusReason,
};

const PODS: GroupResource<'_> = GroupResource { group: "", resource: "pods" };
const DEPLOYMENTS: GroupResource<'_> = GroupResource { group: "apps", resource: "deployments" };

/// Checks that each is a failure without metadata, and otherwise as `json`.
fn fail(cases: impl IntoIterator<Item = (Status, &'static str)>) {
    are(cases.into_iter().map(|(status, json)| {
        assert!(status.is_failure());
        (status, format!(r#""metadata":{{}},"status":"Failure",{json}"#))
    }));
}

/// Checks that each is written as `json` and parses back to the same.
fn are(cases: impl IntoIterator<Item = (Status, String)>) {
    for (status, json) in cases {
        let written = String::from_utf8(status.to_vec()).unwrap();
        let expected = format!(r#"{{"kind":"Status","apiVersion":"v1",{json}}}"#);
        assert_eq!(written, expected);
        assert_eq!(Status::from_slice(written.as_bytes()), Some(status));
    }
}

#[test]
fn answers_to_writes() {
    let cause = StatusCause {
        reason: "FieldManagerConflict".into(),
        message: r#"conflict with "kubectl""#.into(),
        field: ".spec.replicas".into(),
    };
    fail([
        (
            Status::not_found(DEPLOYMENTS, "a"),
            r#""message":"deployments.apps \"a\" not found","reason":"NotFound","details":{"name":"a","group":"apps","kind":"deployments"},"code":404"#,
        ),
        (
            Status::already_exists(PODS, "a"),
            r#""message":"pods \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","kind":"pods"},"code":409"#,
        ),
        (
            Status::generate_name_conflict(PODS, "a-", 1),
            r#""message":"pods \"a-\" already exists, the server was not able to generate a unique name for the object","reason":"AlreadyExists","details":{"name":"a-","kind":"pods","retryAfterSeconds":1},"code":409"#,
        ),
        (
            Status::modified(PODS, "a"),
            r#""message":"Operation cannot be fulfilled on pods \"a\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"a","kind":"pods"},"code":409"#,
        ),
        (
            Status::uid_precondition(PODS, "a", "u1", "u2"),
            r#""message":"Operation cannot be fulfilled on pods \"a\": Precondition failed: UID in precondition: u1, UID in object meta: u2","reason":"Conflict","details":{"name":"a","kind":"pods"},"code":409"#,
        ),
        (
            Status::resource_version_precondition(PODS, "a", "1", "2"),
            r#""message":"Operation cannot be fulfilled on pods \"a\": Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: 2","reason":"Conflict","details":{"name":"a","kind":"pods"},"code":409"#,
        ),
        (
            Status::apply_conflict("Apply failed with 1 conflict", vec![cause]),
            r#""message":"Apply failed with 1 conflict","reason":"Conflict","details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl\"","field":".spec.replicas"}]},"code":409"#,
        ),
        (
            Status::invalid("apps", "Deployment", "a", &[FieldError::required("spec.selector", "")]),
            r#""message":"Deployment.apps \"a\" is invalid: spec.selector: Required value","reason":"Invalid","details":{"name":"a","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"spec.selector"}]},"code":422"#,
        ),
        (
            Status::invalid("", "Pod", "a", &[]),
            r#""message":"Pod \"a\" is invalid","reason":"Invalid","details":{"name":"a","kind":"Pod"},"code":422"#,
        ),
    ]);
}

#[test]
fn answers_to_lists_and_watches() {
    fail([
        (Status::expired("x"), r#""message":"x","reason":"Expired","code":410"#),
        (Status::gone("x"), r#""message":"x","reason":"Gone","code":410"#),
        (
            Status::too_old_resource_version(7, 41),
            r#""message":"too old resource version: 7 (41)","reason":"Expired","code":410"#,
        ),
        (
            Status::watch_expired(),
            r#""message":"The resourceVersion for the provided watch is too old.","reason":"Expired","code":410"#,
        ),
        (
            Status::list_expired(),
            r#""message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410"#,
        ),
        (
            Status::continue_expired(None),
            r#""message":"The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.","reason":"Expired","code":410"#,
        ),
        (
            Status::too_large_resource_version(9, 7, 1),
            r#""message":"Timeout: Too large resource version: 9, current: 7","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504"#,
        ),
        (
            Status::invalid_list_options(&[ListOptionsFault::ExactZero]),
            r#""message":"ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"","field":"resourceVersionMatch"}]},"code":422"#,
        ),
        (
            Status::invalid_continue(&InvalidToken::NoStartKey),
            r#""message":"invalid continue token: continue key is not valid: encoded start key empty (version meta.k8s.io/v1)","reason":"BadRequest","code":400"#,
        ),
        (
            Status::continue_with_resource_version(),
            r#""message":"specifying resource version is not allowed when using continue","reason":"BadRequest","code":400"#,
        ),
        (Status::bad_request("x"), r#""message":"x","reason":"BadRequest","code":400"#),
        (
            Status::storage_initializing(3),
            r#""message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":3},"code":429"#,
        ),
    ]);
}

#[test]
fn some_say_more() {
    let deleted = StatusDetails {
        name: "a".into(),
        kind: "pods".into(),
        uid: "7d1e".into(),
        ..StatusDetails::default()
    };
    are([
        (
            Status::success(deleted),
            r#""metadata":{},"status":"Success","details":{"name":"a","kind":"pods","uid":"7d1e"}"#.into(),
        ),
        // The token: {"v":"meta.k8s.io/v1","rv":-1,"start":"n/a\u0000"}.
        (
            Status::continue_expired(Some("n/a\0")),
            r#""metadata":{"continue":"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0Ijoibi9hXHUwMDAwIn0"},"status":"Failure","message":"The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.","reason":"Expired","code":410"#.into(),
        ),
    ]);
}

#[test]
fn general_statuses_match_api_server() {
    fail([
        (Status::unauthorized(), r#""message":"Unauthorized","reason":"Unauthorized","code":401"#),
        (
            Status::forbidden_to("ann", "get", DEPLOYMENTS, "a", Some("shop")),
            r#""message":"deployments.apps \"a\" is forbidden: User \"ann\" cannot get resource \"deployments\" in API group \"apps\" in the namespace \"shop\"","reason":"Forbidden","details":{"name":"a","group":"apps","kind":"deployments"},"code":403"#,
        ),
        (
            Status::forbidden_to("ann", "list", PODS, "", None),
            r#""message":"pods is forbidden: User \"ann\" cannot list resource \"pods\" in API group \"\" at the cluster scope","reason":"Forbidden","details":{"kind":"pods"},"code":403"#,
        ),
        (
            Status::forbidden(GroupResource::new("", ""), "", "no"),
            r#""message":"forbidden: no","reason":"Forbidden","details":{},"code":403"#,
        ),
        (
            Status::resource_not_served(),
            r#""message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404"#,
        ),
        (
            Status::method_not_allowed(DEPLOYMENTS, "patch"),
            r#""message":"patch is not supported on resources of kind \"deployments.apps\"","reason":"MethodNotAllowed","details":{"group":"apps","kind":"deployments"},"code":405"#,
        ),
        (
            Status::not_acceptable(&["application/json", "application/yaml"]),
            r#""message":"only the following media types are accepted: application/json, application/yaml","reason":"NotAcceptable","code":406"#,
        ),
        (
            Status::request_entity_too_large(3_145_728),
            r#""message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413"#,
        ),
        (
            Status::unsupported_media_type(&["application/json", "application/yaml"]),
            r#""message":"the body of the request was in an unknown format - accepted media types include: application/json, application/yaml","reason":"UnsupportedMediaType","code":415"#,
        ),
        (
            Status::internal_error("boom"),
            r#""message":"Internal error occurred: boom","reason":"InternalError","details":{"causes":[{"message":"boom"}]},"code":500"#,
        ),
        (
            Status::server_timeout(DEPLOYMENTS, "create", 2),
            r#""message":"The create operation against deployments.apps could not be completed at this time, please try again.","reason":"ServerTimeout","details":{"name":"create","group":"apps","kind":"deployments","retryAfterSeconds":2},"code":500"#,
        ),
        (Status::service_unavailable("x"), r#""message":"x","reason":"ServiceUnavailable","code":503"#),
        (Status::timeout("x", 0), r#""message":"Timeout: x","reason":"Timeout","details":{},"code":504"#),
    ]);
}

#[test]
fn invalid_version_is_reported_as_in_go() {
    for (version, problem) in [
        ("", r#""": strconv.ParseUint: parsing "": invalid syntax"#),
        ("1a", r#""1a": strconv.ParseUint: parsing "1a": invalid syntax"#),
        (
            "18446744073709551616",
            r#""18446744073709551616": strconv.ParseUint: parsing "18446744073709551616": value out of range"#,
        ),
    ] {
        let status = Status::invalid_resource_version(version);
        let message = format!("invalid resource version: resourceVersion: Invalid value: {problem}");
        assert_eq!((status.code, status.message), (400, message));
    }
}

#[test]
fn combines_distinct_problems_into_one_message() {
    let of = |errors: &[FieldError]| Status::invalid("", "Pod", "a", errors);
    let (one, two) = (FieldError::required("x", "why"), FieldError::duplicate("y", "b"));
    assert_eq!(of(&[one.clone(), one.clone()]).message, r#"Pod "a" is invalid: x: Required value: why"#);
    let both = of(&[one.clone(), two.clone(), one]);
    assert_eq!(both.message, r#"Pod "a" is invalid: [x: Required value: why, y: Duplicate value: "b"]"#);
    assert_eq!(both.causes().len(), 3, "programs get them all");
    assert_eq!(both.causes()[1].field, two.field);
}

#[test]
fn field_errors_use_api_server_wording() {
    use FieldErrorKind::*;
    let cases = [
        (FieldError::required("f", "d"), Required, "FieldValueRequired", "f: Required value: d"),
        (FieldError::forbidden("f", "d"), Forbidden, "FieldValueForbidden", "f: Forbidden: d"),
        (FieldError::invalid("f", "v", "d"), Invalid, "FieldValueInvalid", r#"f: Invalid value: "v": d"#),
        (FieldError::invalid_literal("f", -1, "d"), Invalid, "FieldValueInvalid", "f: Invalid value: -1: d"),
        (
            FieldError::not_supported("f", "v", &["a", "b"]),
            NotSupported,
            "FieldValueNotSupported",
            r#"f: Unsupported value: "v": supported values: "a", "b""#,
        ),
        (
            FieldError::not_supported("f", "v", &[]),
            NotSupported,
            "FieldValueNotSupported",
            r#"f: Unsupported value: "v""#,
        ),
        (FieldError::duplicate("f", "v"), Duplicate, "FieldValueDuplicate", r#"f: Duplicate value: "v""#),
        (FieldError::not_found("f", "v"), NotFound, "FieldValueNotFound", r#"f: Not found: "v""#),
        (
            FieldError::too_long("f", 63),
            TooLong,
            "FieldValueTooLong",
            "f: Too long: may not be more than 63 bytes",
        ),
    ];
    for (error, kind, reason, text) in cases {
        assert_eq!((error.kind, kind.reason(), error.to_string().as_str()), (kind, reason, text));
        assert_eq!(format!("f: {}", error.body()), text);
    }
}

#[test]
fn list_option_errors_use_api_server_wording() {
    use ListOptionsFault::*;
    let cases = [
        (
            MatchWithoutResourceVersion,
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            MatchWithContinue,
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            UnknownMatch("x".into()),
            r#"resourceVersionMatch: Unsupported value: "x": supported values: "Exact", "NotOlderThan", """#,
        ),
        (
            ExactZero,
            r#"resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
        ),
        (SendInitialEventsOnList, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        (
            SendInitialEventsWithoutMatch,
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            SendInitialEventsNotOffered,
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
        ),
        (
            WatchMatchWithoutSendInitialEvents,
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (
            UnknownWatchMatch("Exact".into()),
            r#"resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan""#,
        ),
    ];
    for (fault, text) in cases {
        assert_eq!(fault.field_error().to_string(), text);
    }
}

#[test]
fn values_are_quoted_as_go_does() {
    let quoted = |text: &str| FieldError::duplicate("f", text).value;
    for (text, expected) in [
        ("a b~é", r#""a b~é""#),
        ("\"\\", r#""\"\\""#),
        ("\n\r\t", r#""\n\r\t""#),
        ("\u{7}\u{8}\u{b}\u{c}", r#""\a\b\v\f""#),
        ("\0\u{1f} \u{7f}", r#""\x00\x1f \x7f""#),
    ] {
        assert_eq!(quoted(text), expected);
    }
}

#[test]
fn reasons_are_read_and_written_by_name() {
    use StatusReason::*;
    let cases = [
        (NotFound, "NotFound"),
        (AlreadyExists, "AlreadyExists"),
        (Conflict, "Conflict"),
        (Gone, "Gone"),
        (Expired, "Expired"),
        (Invalid, "Invalid"),
        (Timeout, "Timeout"),
        (ServerTimeout, "ServerTimeout"),
        (TooManyRequests, "TooManyRequests"),
        (Unauthorized, "Unauthorized"),
        (Forbidden, "Forbidden"),
        (BadRequest, "BadRequest"),
        (InternalError, "InternalError"),
        (MethodNotAllowed, "MethodNotAllowed"),
        (NotAcceptable, "NotAcceptable"),
        (RequestEntityTooLarge, "RequestEntityTooLarge"),
        (UnsupportedMediaType, "UnsupportedMediaType"),
        (ServiceUnavailable, "ServiceUnavailable"),
        (Unknown("StorageReadError".into()), "StorageReadError"),
        (Unknown(String::new()), ""),
    ];
    for (reason, name) in cases {
        assert_eq!(StatusReason::from(name), reason);
        assert_eq!((reason.as_str(), reason.is_empty()), (name, name.is_empty()));
        assert_eq!(format!("{reason:>22}|"), format!("{name:>22}|"));
        assert_eq!(String::from(reason), name);
    }
}
