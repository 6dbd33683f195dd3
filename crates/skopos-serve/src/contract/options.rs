//! Parameters of a list or watch, parsed, defaulted and validated in the API server's order.

use std::time::Duration;

use skopos_wire::{ContinueToken, ListOptionsFault, Status};

use crate::request::Query;

/// Value of `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionMatch {
    NotOlderThan,
    Exact,
}

/// Parameters of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListOptions {
    pub(super) version: RequestedVersion,
    pub(super) version_match: Option<VersionMatch>,
    /// Maximum number of objects; 0 means no limit.
    pub(super) limit: usize,
    pub(super) continue_token: Option<String>,
}

/// Parameters of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchOptions {
    pub(super) version: RequestedVersion,
    pub(super) initial_events: bool,
    pub(super) bookmarks: bool,
    pub(super) timeout: Option<Duration>,
}

/// The `resourceVersion` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestedVersion {
    /// Absent: the newest state.
    Unset,
    /// "0": any state.
    Any,
    At(u64),
}

impl ListOptions {
    /// Parses the parameters; `open` decodes a continue token.
    pub(super) fn parse(
        query: &Query,
        open: impl Fn(&str) -> Result<ContinueToken, Status>,
    ) -> Result<Self, Status> {
        let raw = Raw::parse(query)?;
        let mut faults = Vec::new();
        if !raw.version_match.is_empty() {
            if raw.version.is_empty() {
                faults.push(ListOptionsFault::MatchWithoutResourceVersion);
            }
            if !raw.continue_token.is_empty() {
                faults.push(ListOptionsFault::MatchWithContinue);
            }
            if !matches!(raw.version_match, "Exact" | "NotOlderThan") {
                faults.push(ListOptionsFault::UnknownMatch(raw.version_match.to_owned()));
            }
            if raw.version_match == "Exact" && raw.version == "0" {
                faults.push(ListOptionsFault::ExactZero);
            }
        }
        if raw.send_initial_events.is_some() {
            faults.push(ListOptionsFault::SendInitialEventsOnList);
        }
        if !faults.is_empty() {
            return Err(Status::invalid_list_options(&faults));
        }
        let continues = !raw.continue_token.is_empty();
        if continues && !matches!(raw.version, "" | "0") {
            // An invalid token is reported first.
            open(raw.continue_token)?;
            return Err(Status::continue_with_resource_version());
        }
        let version = RequestedVersion::parse(raw.version)
            .ok_or_else(|| Status::invalid_resource_version(raw.version))?;
        Ok(Self {
            version,
            version_match: match raw.version_match {
                "Exact" => Some(VersionMatch::Exact),
                "NotOlderThan" => Some(VersionMatch::NotOlderThan),
                _ => None,
            },
            limit: raw.limit,
            continue_token: continues.then(|| raw.continue_token.to_owned()),
        })
    }
}

impl WatchOptions {
    pub(super) fn parse(query: &Query, watch_list: bool) -> Result<Self, Status> {
        let mut raw = Raw::parse(query)?;
        // W1: legacy clients expect this of a watch without a version.
        let unversioned = matches!(raw.version, "" | "0");
        if watch_list && unversioned && raw.send_initial_events.is_none() && raw.version_match.is_empty() {
            raw.send_initial_events = Some(true);
            raw.version_match = "NotOlderThan";
        }
        let mut faults = Vec::new();
        if raw.send_initial_events.is_some() {
            if raw.version_match != "NotOlderThan" {
                faults.push(ListOptionsFault::SendInitialEventsWithoutMatch);
            }
            if !watch_list {
                faults.push(ListOptionsFault::SendInitialEventsNotOffered);
            }
        }
        if !raw.version_match.is_empty() {
            if raw.send_initial_events.is_none() {
                faults.push(ListOptionsFault::WatchMatchWithoutSendInitialEvents);
            }
            if raw.version_match != "NotOlderThan" {
                faults.push(ListOptionsFault::UnknownWatchMatch(raw.version_match.to_owned()));
            }
            if !raw.continue_token.is_empty() {
                faults.push(ListOptionsFault::MatchWithContinue);
            }
        }
        if !faults.is_empty() {
            return Err(Status::invalid_list_options(&faults));
        }
        let version =
            RequestedVersion::parse(raw.version).ok_or_else(|| unmapped_version_error(raw.version))?;
        // Without WatchList, a watch without a version starts with the state too, as it always did.
        let legacy = !watch_list && unversioned;
        Ok(Self {
            version,
            initial_events: raw.send_initial_events.unwrap_or(legacy),
            bookmarks: raw.bookmarks,
            timeout: (raw.timeout_seconds > 0).then(|| Duration::from_secs(raw.timeout_seconds)),
        })
    }
}

impl RequestedVersion {
    /// Parses a version; `None` if it is not a number.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" => Self::Unset,
            "0" => Self::Any,
            text if text.bytes().all(|b| b.is_ascii_digit()) => match text.parse().ok()? {
                0 => Self::Any,
                version => Self::At(version),
            },
            _ => return None,
        })
    }
}

/// Returns the 500 without a reason for an invalid version. L5: on a watch and a get, kube-apiserver maps this error to no status
/// of its own.
pub(super) fn unmapped_version_error(version: &str) -> Status {
    let status = Status::invalid_resource_version(version);
    let message = status.message.trim_start_matches("invalid resource version: ");
    Status::failure(500, String::new(), message)
}

/// Parameters as in the URL, with the types of Go's `ListOptions`.
struct Raw<'a> {
    version: &'a str,
    version_match: &'a str,
    continue_token: &'a str,
    limit: usize,
    send_initial_events: Option<bool>,
    bookmarks: bool,
    timeout_seconds: u64,
}

impl<'a> Raw<'a> {
    fn parse(query: &'a Query) -> Result<Self, Status> {
        let text = |name: &str| query.get(name).unwrap_or_default();
        Ok(Self {
            version: text("resourceVersion"),
            version_match: text("resourceVersionMatch"),
            continue_token: text("continue"),
            limit: usize::try_from(number(query, "limit")?).unwrap_or(0),
            send_initial_events: query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents")),
            bookmarks: query.flag("allowWatchBookmarks"),
            timeout_seconds: u64::try_from(number(query, "timeoutSeconds")?).unwrap_or(0),
        })
    }
}

/// Parses an int64 parameter; 0 if it is absent.
fn number(query: &Query, name: &str) -> Result<i64, Status> {
    match query.get(name) {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| {
            let digits = text.trim_start_matches(['-', '+']);
            let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let problem = if is_number { "value out of range" } else { "invalid syntax" };
            Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {problem}"))
        }),
    }
}
