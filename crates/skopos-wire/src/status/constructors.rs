//! Constructors of statuses with the API server's own messages, for servers.

use std::fmt;

use super::{
    FieldError, ListOptionsFault, SUCCESS, Status, StatusCause, StatusDetails, StatusReason, TOO_LARGE_CAUSE,
    TOO_LARGE_MESSAGE,
};
use crate::{ContinueToken, InvalidToken};

/// A resource and its API group (empty for the core group). Displays as `pods` or `deployments.apps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupResource<'a> {
    /// The API group.
    pub group: &'a str,
    /// The resource, in the plural.
    pub resource: &'a str,
}

impl<'a> GroupResource<'a> {
    /// Creates the name of a resource in a group; the core group is empty.
    pub fn new(group: &'a str, resource: &'a str) -> Self {
        Self { group, resource }
    }

    fn details(self, name: &str) -> StatusDetails {
        StatusDetails {
            name: name.into(),
            group: self.group.into(),
            kind: self.resource.into(),
            ..StatusDetails::default()
        }
    }
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        qualified(self.resource, self.group, f)
    }
}

fn qualified(name: &str, group: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(name)?;
    if !group.is_empty() {
        write!(f, ".{group}")?;
    }
    Ok(())
}

/// Write requests.
impl Status {
    /// Creates a 200: success, for instance of a deletion.
    pub fn success(details: StatusDetails) -> Self {
        Self { status: SUCCESS.into(), details: Some(details), ..Self::default() }
    }

    /// Creates a 404 for an object.
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} {} not found", quote(name));
        Self::failure(404, StatusReason::NotFound, message).with_details(resource.details(name))
    }

    /// Creates a 409: the name is taken.
    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quote(name));
        Self::failure(409, StatusReason::AlreadyExists, message).with_details(resource.details(name))
    }

    /// Creates a 409: no free name was found for a `generateName`.
    pub fn generate_name_conflict(resource: GroupResource<'_>, name: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        let details = StatusDetails { retry_after_seconds, ..resource.details(name) };
        Self::failure(409, StatusReason::AlreadyExists, message).with_details(details)
    }

    /// Creates a 409 with a human-readable reason.
    pub fn conflict(resource: GroupResource<'_>, name: &str, problem: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {problem}", quote(name));
        Self::failure(409, StatusReason::Conflict, message).with_details(resource.details(name))
    }

    /// Creates a 409: the object has changed since the version that the update is based on.
    pub fn modified(resource: GroupResource<'_>, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Creates a 409: another object has the name now.
    pub fn uid_precondition(resource: GroupResource<'_>, name: &str, wanted: &str, found: &str) -> Self {
        let problem =
            format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Self::conflict(resource, name, problem)
    }

    /// Creates a 409: the object has another version than the deletion requires.
    pub fn resource_version_precondition(
        resource: GroupResource<'_>,
        name: &str,
        wanted: &str,
        found: &str,
    ) -> Self {
        let problem = format!(
            "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {found}"
        );
        Self::conflict(resource, name, problem)
    }

    /// Creates a 409 for a server-side apply: other managers own the fields.
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<StatusCause>) -> Self {
        let details = StatusDetails { causes, ..StatusDetails::default() };
        Self::failure(409, StatusReason::Conflict, message).with_details(details)
    }

    /// Creates a 422: the object `name` of kind `kind` has invalid fields.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let object = GroupResource::new(group, kind);
        let message = match errors {
            [] => format!("{object} {} is invalid", quote(name)),
            errors => format!("{object} {} is invalid: {}", quote(name), aggregate(errors)),
        };
        let causes = errors
            .iter()
            .map(|error| StatusCause {
                reason: error.kind.reason().into(),
                message: error.body(),
                field: error.field.clone(),
            })
            .collect();
        let details = StatusDetails { causes, ..object.details(name) };
        Self::failure(422, StatusReason::Invalid, message).with_details(details)
    }
}

/// Lists and watches.
impl Status {
    /// Creates a 410 with a custom message: the version is compacted.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, StatusReason::Expired, message)
    }

    /// Creates a 410 with the reason of servers before Kubernetes 1.18.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::failure(410, StatusReason::Gone, message)
    }

    /// Creates a 410 for a watch from a version that the watch cache no longer holds (W5).
    pub fn too_old_resource_version(requested: impl fmt::Display, oldest: impl fmt::Display) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// Creates a 410 for a watch from a version that etcd has compacted.
    pub fn watch_expired() -> Self {
        Self::expired("The resourceVersion for the provided watch is too old.")
    }

    /// Creates a 410 for a list at an exact version that is compacted (L8).
    pub fn list_expired() -> Self {
        Self::expired("The resourceVersion for the provided list is too old.")
    }

    /// Creates a 410 in the middle of a paged list (L8). With `start_key`, it carries a token that continues from that key
    /// at the newest state.
    pub fn continue_expired(start_key: Option<&str>) -> Self {
        const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. \
             You can start a new list without the continue parameter";
        const CONTINUE_HINT: &str = ", or use the continue token in this response to retrieve the remainder of the results. \
             Continuing with the provided token results in an inconsistent list - objects that were created, modified, \
             or deleted between the time the first chunk was returned and now may show up in the list.";
        match start_key {
            None => Self::expired(format!("{TOO_OLD}.")),
            Some(key) => {
                let mut status = Self::expired(format!("{TOO_OLD}{CONTINUE_HINT}"));
                status.metadata.continue_token =
                    Some(ContinueToken::new(ContinueToken::LATEST, key).encode());
                status
            }
        }
    }

    /// Creates a 504: the server has not reached the version (L6). The retry delay is 1 second from the watch cache, and
    /// none (0) from etcd.
    pub fn too_large_resource_version(
        requested: impl fmt::Display,
        current: impl fmt::Display,
        retry_after_seconds: u32,
    ) -> Self {
        let mut status = Self::timeout(
            format!("{TOO_LARGE_MESSAGE}: {requested}, current: {current}"),
            retry_after_seconds,
        );
        let cause = StatusCause {
            reason: TOO_LARGE_CAUSE.into(),
            message: TOO_LARGE_MESSAGE.into(),
            field: String::new(),
        };
        if let Some(details) = &mut status.details {
            details.causes.push(cause);
        }
        status
    }

    /// Creates a 422: incompatible list options (L4, W2).
    pub fn invalid_list_options(faults: &[ListOptionsFault]) -> Self {
        let errors: Vec<FieldError> = faults.iter().map(ListOptionsFault::field_error).collect();
        Self::invalid("meta.k8s.io", "ListOptions", "", &errors)
    }

    /// Creates a 400: a list at a resourceVersion that is not a number (L5).
    pub fn invalid_resource_version(version: &str) -> Self {
        Self::bad_request(format!(
            "invalid resource version: {}",
            FieldError::invalid("resourceVersion", version, parse_uint_problem(version))
        ))
    }

    /// Creates a 400: a `continue` that the server did not write (L7).
    pub fn invalid_continue(problem: &InvalidToken) -> Self {
        Self::bad_request(format!("invalid continue token: {problem}"))
    }

    /// Creates a 400: `continue` together with a resourceVersion (L7).
    pub fn continue_with_resource_version() -> Self {
        Self::bad_request("specifying resource version is not allowed when using continue")
    }

    /// Creates a 400: an invalid selector, or any other fault of the caller.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, StatusReason::BadRequest, message)
    }

    /// Creates a 429: the watch cache is not ready (L11).
    pub fn storage_initializing(retry_after_seconds: u32) -> Self {
        Self::too_many_requests("storage is (re)initializing", retry_after_seconds)
    }
}

/// Failures of the request or the server.
impl Status {
    /// Creates a 401.
    pub fn unauthorized() -> Self {
        Self::failure(401, StatusReason::Unauthorized, "Unauthorized")
    }

    /// Creates a 403 with a human-readable reason; `name` may be empty.
    pub fn forbidden(resource: GroupResource<'_>, name: &str, problem: impl fmt::Display) -> Self {
        let message = match (resource.resource, name) {
            ("", _) => format!("forbidden: {problem}"),
            (_, "") => format!("{resource} is forbidden: {problem}"),
            (_, name) => format!("{resource} {} is forbidden: {problem}", quote(name)),
        };
        Self::failure(403, StatusReason::Forbidden, message).with_details(resource.details(name))
    }

    /// Creates a 403 with the authorizer's message.
    pub fn forbidden_to(
        user: &str,
        verb: &str,
        resource: GroupResource<'_>,
        name: &str,
        namespace: Option<&str>,
    ) -> Self {
        let scope = match namespace {
            Some(namespace) => format!("in the namespace {}", quote(namespace)),
            None => "at the cluster scope".into(),
        };
        let problem = format!(
            "User {} cannot {verb} resource {} in API group {} {scope}",
            quote(user),
            quote(resource.resource),
            quote(resource.group)
        );
        Self::forbidden(resource, name, problem)
    }

    /// Creates a 404 for a resource that the server does not serve, as JSON. Outside the built-in groups the server
    /// responds in plain text (W16).
    pub fn resource_not_served() -> Self {
        let details = StatusDetails::default();
        Self::failure(404, StatusReason::NotFound, "the server could not find the requested resource")
            .with_details(details)
    }

    /// Creates a 405.
    pub fn method_not_allowed(resource: GroupResource<'_>, action: &str) -> Self {
        let message =
            format!("{action} is not supported on resources of kind {}", quote(&resource.to_string()));
        Self::failure(405, StatusReason::MethodNotAllowed, message).with_details(resource.details(""))
    }

    /// Creates a 406 that names the acceptable media types.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::failure(406, StatusReason::NotAcceptable, message)
    }

    /// Creates a 413.
    pub fn request_entity_too_large(limit_bytes: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit_bytes}");
        Self::failure(413, StatusReason::RequestEntityTooLarge, message)
    }

    /// Creates a 415 that names the supported media types.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::failure(415, StatusReason::UnsupportedMediaType, message)
    }

    /// Creates a 429.
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(429, StatusReason::TooManyRequests, message)
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::default() })
    }

    /// Creates a 500: the server is at fault.
    pub fn internal_error(problem: impl fmt::Display) -> Self {
        let problem = problem.to_string();
        let message = format!("Internal error occurred: {problem}");
        let causes = vec![StatusCause { message: problem, ..StatusCause::default() }];
        Self::failure(500, StatusReason::InternalError, message)
            .with_details(StatusDetails { causes, ..StatusDetails::default() })
    }

    /// Creates a 500: the operation could not complete at this time.
    pub fn server_timeout(resource: GroupResource<'_>, operation: &str, retry_after_seconds: u32) -> Self {
        let message = format!(
            "The {operation} operation against {resource} could not be completed at this time, please try again."
        );
        let details = StatusDetails { retry_after_seconds, ..resource.details(operation) };
        Self::failure(500, StatusReason::ServerTimeout, message).with_details(details)
    }

    /// Creates a 503.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::failure(503, StatusReason::ServiceUnavailable, message)
    }

    /// Creates a 504: the operation took too long and may still complete.
    pub fn timeout(message: impl fmt::Display, retry_after_seconds: u32) -> Self {
        Self::failure(504, StatusReason::Timeout, format!("Timeout: {message}"))
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::default() })
    }

    /// Creates any other failure.
    pub fn failure(code: u16, reason: impl Into<StatusReason>, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), ..Self::default() }
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }
}

/// Joins several problems in one text without duplicates: `[a, b]`, or just `a`.
pub(crate) fn aggregate(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [text] => text.clone(),
        texts => format!("[{}]", texts.join(", ")),
    }
}

/// Returns the error of Go's number parser for a text that is not an unsigned 64-bit number.
fn parse_uint_problem(text: &str) -> String {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let problem = if digits { "value out of range" } else { "invalid syntax" };
    format!("strconv.ParseUint: parsing {}: {problem}", quote(text))
}

use super::field_error::go_quote as quote;
