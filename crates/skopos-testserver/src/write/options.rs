//! Options of writes.

use serde_json::Value;
use skopos_serve::Query;
use skopos_wire::{FieldError, Status};

/// Options of create, update and patch.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    /// True if the write runs all checks and changes nothing.
    pub(crate) dry_run: bool,
    /// Field manager in `managedFields`.
    pub(crate) manager: String,
    /// True if the request names a manager; server-side apply requires it.
    pub(crate) manager_named: bool,
    /// True if server-side apply takes over fields of other managers.
    pub(crate) force: bool,
    pub(crate) unknown_fields: UnknownFields,
    /// True if the write comes from the test itself: it may write the status too, and a missing namespace is created.
    pub(crate) trusted: bool,
}

/// Treatment of unknown fields (`fieldValidation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    Ignore,
    Warn,
    Refuse,
}

/// Options of delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) dry_run: bool,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) propagation: Propagation,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// True if a pod that can be deleted at once is marked first, as by the API server: watchers see both.
    pub(crate) in_steps: bool,
}

/// Treatment of an object's dependents when it is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// Deleted after the owner.
    #[default]
    Background,
    /// Deleted before the owner.
    Foreground,
    /// Kept, without the owner reference.
    Orphan,
}

impl WriteOptions {
    /// Parses the options of a request.
    ///
    /// # Errors
    /// 422 for invalid values.
    pub(crate) fn from_request(query: &Query, user_agent: &str) -> Result<Self, Status> {
        let unknown_fields = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => UnknownFields::Warn,
            "Ignore" => UnknownFields::Ignore,
            "Strict" => UnknownFields::Refuse,
            other => {
                let error =
                    FieldError::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]);
                return Err(Status::invalid("meta.k8s.io", "CreateOptions", "", &[error]));
            }
        };
        let named = query.get("fieldManager").filter(|manager| !manager.is_empty());
        let by_agent = user_agent.split('/').next().filter(|agent| !agent.is_empty()).unwrap_or("unknown");
        Ok(Self {
            dry_run: dry_run(query.all("dryRun"))?,
            manager: named.unwrap_or(by_agent).to_owned(),
            manager_named: named.is_some(),
            force: query.flag("force"),
            unknown_fields,
            trusted: false,
        })
    }

    /// Returns the options of a write that comes from the test or from the server itself.
    pub(crate) fn trusted(manager: &str) -> Self {
        Self {
            dry_run: false,
            manager: manager.to_owned(),
            manager_named: true,
            force: false,
            unknown_fields: UnknownFields::Ignore,
            trusted: true,
        }
    }

    /// Resolves conflicts of server-side apply in favour of this write.
    pub(crate) fn forced(mut self) -> Self {
        self.force = true;
        self
    }
}

impl DeleteOptions {
    /// Parses the options of a request: the body has precedence over the query.
    ///
    /// # Errors
    /// 400 or 422 for invalid options.
    pub(crate) fn from_request(query: &Query, body: Option<&Value>) -> Result<Self, Status> {
        let mut options = Self { dry_run: dry_run(query.all("dryRun"))?, in_steps: true, ..Self::default() };
        let number = |text: &str| text.parse::<i64>().map_err(|e| Status::bad_request(e.to_string()));
        options.grace_period_seconds = query.get("gracePeriodSeconds").map(number).transpose()?;
        if let Some(policy) = query.get("propagationPolicy") {
            options.propagation = Propagation::parse(policy)?;
        }
        if query.flag("orphanDependents") {
            options.propagation = Propagation::Orphan;
        }
        match body {
            Some(body) => options.with_body(body),
            None => Ok(options),
        }
    }

    /// Overrides the options with those of a `DeleteOptions` object.
    pub(crate) fn with_body(mut self, body: &Value) -> Result<Self, Status> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(seconds) = body["gracePeriodSeconds"].as_i64() {
            self.grace_period_seconds = Some(seconds);
        }
        if let Some(policy) = body["propagationPolicy"].as_str() {
            self.propagation = Propagation::parse(policy)?;
        }
        if body["orphanDependents"] == true {
            self.propagation = Propagation::Orphan;
        }
        self.uid = text(&body["preconditions"]["uid"]);
        self.resource_version = text(&body["preconditions"]["resourceVersion"]);
        let dry = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        self.dry_run |= dry_run(dry)?;
        Ok(self)
    }

    /// Returns options without a grace period.
    pub(crate) fn now() -> Self {
        Self { grace_period_seconds: Some(0), ..Self::default() }
    }
}

impl Propagation {
    fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "Background" => Ok(Self::Background),
            "Foreground" => Ok(Self::Foreground),
            "Orphan" => Ok(Self::Orphan),
            other => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", other, &supported);
                Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &[error]))
            }
        }
    }
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>) -> Result<bool, Status> {
    let mut dry = false;
    for value in values {
        if value != "All" {
            // Go's text for the list of values.
            let mut error = FieldError::not_supported("dryRun", value, &["All"]);
            error.value = format!("[{value:?}]");
            return Err(Status::invalid("meta.k8s.io", "CreateOptions", "", &[error]));
        }
        dry = true;
    }
    Ok(dry)
}
