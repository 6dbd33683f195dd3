//! Authentication, authorization and the review APIs: scripted, because a test knows the answers that it wants.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::request::Parts;
use http::{StatusCode, header};
use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::{Value, json};
use skopos_serve::respond::{self, Response};
use skopos_serve::{RequestInfo, RequestTarget, RequestVerb};
use skopos_wire::{GroupResource, Status};

mod issued;

use self::issued::IssuedTokens;
pub(crate) use self::issued::{API_AUDIENCE, BoundObject, IssuedToken};
use crate::faults::{Match, RequestAttributes};
use crate::state::ServerState;

/// User as authentication knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// Name, for example `system:serviceaccount:shop:web`.
    pub name: String,
    /// Groups, for example `system:authenticated`.
    pub groups: Vec<String>,
    /// UID, or empty.
    pub uid: String,
    /// Extra attributes, by keys such as `authentication.kubernetes.io/credential-id`.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Question of a SubjectAccessReview: may `user` do `verb` to the resource (or the path)?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessQuestion {
    /// User name.
    pub user: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Verb, for example `list`.
    pub verb: String,
    /// API group; empty for the core group and for paths.
    pub group: String,
    /// Resource; empty for paths.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace; empty for all.
    pub namespace: String,
    /// Object name, or empty.
    pub name: String,
    /// Path of a non-resource question.
    pub path: String,
}

/// Users and permissions of the server; a cheap handle.
///
/// Without tokens every client is authenticated, and without a policy everything is allowed.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    shared: Arc<RwLock<Rules>>,
}

type Policy = Arc<dyn Fn(&AccessQuestion) -> bool + Send + Sync>;

#[derive(Default)]
struct Rules {
    /// True if requests need a known token.
    required: bool,
    tokens: HashMap<String, User>,
    issued: IssuedTokens,
    policy: Option<Policy>,
    /// True if the policy applies to requests to this server too, and not only to reviews.
    enforced: bool,
    forbidden: BTreeMap<u64, Match>,
    last_id: u64,
}

/// Rule that answers requests with 403, until dropped.
#[derive(Debug)]
#[must_use = "requests are forbidden until this is dropped"]
pub struct ForbiddenGuard {
    auth: Auth,
    id: u64,
}

impl Auth {
    /// Accepts the bearer `token`. From now on, requests without a known token get 401.
    pub fn add_token(&self, token: impl Into<String>, user: User) {
        let mut rules = self.shared.write();
        rules.required = true;
        rules.tokens.insert(token.into(), user);
    }

    /// Adds a token for TokenReview only: requests without a token still pass if they did before.
    pub fn add_reviewed_token(&self, token: impl Into<String>, user: User) {
        self.shared.write().tokens.insert(token.into(), user);
    }

    /// Removes a token, as when it expires. Requests with it get 401 while tokens are required.
    pub fn remove_token(&self, token: &str) {
        self.shared.write().tokens.remove(token);
    }

    /// Registers a token of a service account.
    pub(crate) fn issue(&self, token: String, issued: IssuedToken, now: Timestamp) {
        self.shared.write().issued.insert(token, issued, now);
    }

    /// Sets the policy that answers SubjectAccessReviews.
    pub fn answer_reviews(&self, policy: impl Fn(&AccessQuestion) -> bool + Send + Sync + 'static) {
        self.shared.write().policy = Some(Arc::new(policy));
    }

    /// Applies the same policy to requests to this server.
    pub fn enforce(&self, yes: bool) {
        self.shared.write().enforced = yes;
    }

    /// Answers the matching requests with 403. Open watches continue, as on a real server.
    pub fn forbid(&self, matching: Match) -> ForbiddenGuard {
        let mut rules = self.shared.write();
        rules.last_id += 1;
        let id = rules.last_id;
        rules.forbidden.insert(id, matching);
        ForbiddenGuard { auth: self.clone(), id }
    }

    /// Authenticates and authorizes a request; returns its user.
    pub(crate) fn check(
        &self,
        state: &ServerState,
        info: &RequestInfo,
        parts: &Parts,
        attributes: &RequestAttributes,
    ) -> Result<User, Status> {
        let rules = self.shared.read();
        let token = bearer(parts);
        let issued = |token: &str| {
            let found = rules.issued.find(state, token, &[API_AUDIENCE.to_owned()])?;
            found.ok().map(IssuedToken::user)
        };
        let known = token.and_then(|token| rules.tokens.get(token).cloned().or_else(|| issued(token)));
        // Health endpoints need no token.
        if matches!(info.path.as_str(), "/healthz" | "/readyz" | "/livez") {
            return Ok(known.unwrap_or_else(User::anonymous));
        }
        let user = match known {
            Some(user) => user,
            None if rules.required => return Err(Status::unauthorized()),
            None => User::anonymous(),
        };
        let forbidden = rules.forbidden.values().any(|matching| matching.matches_attributes(attributes));
        let policy = rules.policy.clone().filter(|_| rules.enforced);
        drop(rules);
        let question = AccessQuestion::from_request(&user, info);
        if forbidden || policy.is_some_and(|allows| !allows(&question)) {
            return Err(forbidden_status(&user, info));
        }
        Ok(user)
    }

    /// Answers the review APIs, which have no storage; `None` for other requests.
    pub(crate) fn review(
        &self,
        state: &ServerState,
        info: &RequestInfo,
        target: &RequestTarget,
        user: &User,
        body: &[u8],
    ) -> Option<Result<Response, Status>> {
        if info.verb != RequestVerb::Create || target.subresource.is_some() {
            return None;
        }
        let answer: fn(&Self, &ServerState, &User, &Value) -> Value =
            match (target.resource.group.as_str(), target.resource.plural.as_str()) {
                ("authentication.k8s.io", "tokenreviews") => Self::token_review,
                ("authentication.k8s.io", "selfsubjectreviews") => Self::self_review,
                ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews") => {
                    Self::access_review
                }
                ("authorization.k8s.io", "selfsubjectaccessreviews") => Self::self_access_review,
                ("authorization.k8s.io", "selfsubjectrulesreviews") => Self::rules_review,
                _ => return None,
            };
        let review: Value = match serde_json::from_slice(body) {
            Ok(review) => review,
            Err(error) => return Some(Err(Status::bad_request(error.to_string()))),
        };
        let status = answer(self, state, user, &review);
        let answered = json!({
            "kind": target.resource.kind,
            "apiVersion": target.resource.api_version(),
            "metadata": {"creationTimestamp": null},
            "spec": review.get("spec").cloned().unwrap_or_else(|| json!({})),
            "status": status,
        });
        Some(Ok(respond::json(StatusCode::CREATED, &answered)))
    }

    fn token_review(&self, state: &ServerState, _: &User, review: &Value) -> Value {
        let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
        let rules = self.shared.read();
        if let Some(user) = rules.tokens.get(token) {
            return json!({"authenticated": true, "user": user.to_value()});
        }
        let requested = review.pointer("/spec/audiences").and_then(Value::as_array).into_iter().flatten();
        let mut requested: Vec<String> = requested.filter_map(Value::as_str).map(str::to_owned).collect();
        if requested.is_empty() {
            requested.push(API_AUDIENCE.to_owned());
        }
        match rules.issued.find(state, token, &requested) {
            Some(Ok(issued)) => {
                let audiences: Vec<&String> =
                    requested.iter().filter(|a| issued.audiences.contains(a)).collect();
                json!({"authenticated": true, "user": issued.user().to_value(), "audiences": audiences})
            }
            Some(Err(problem)) => json!({"user": {}, "error": problem}),
            None => json!({"error": "invalid bearer token, token lookup failed", "user": {}}),
        }
    }

    fn self_review(&self, _: &ServerState, user: &User, _: &Value) -> Value {
        json!({"userInfo": user.to_value()})
    }

    fn access_review(&self, _: &ServerState, _: &User, review: &Value) -> Value {
        let text = |path: &str| review.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let groups = review.pointer("/spec/groups").and_then(Value::as_array);
        let groups = groups.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        self.answer(AccessQuestion { user: text("/spec/user"), groups, ..AccessQuestion::from_spec(review) })
    }

    fn self_access_review(&self, _: &ServerState, user: &User, review: &Value) -> Value {
        let question = AccessQuestion::from_spec(review);
        self.answer(AccessQuestion { user: user.name.clone(), groups: user.groups.clone(), ..question })
    }

    fn rules_review(&self, _: &ServerState, _: &User, _: &Value) -> Value {
        json!({
            "incomplete": self.shared.read().policy.is_some(),
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        })
    }

    fn answer(&self, question: AccessQuestion) -> Value {
        let policy = self.shared.read().policy.clone();
        match policy.is_none_or(|allows| allows(&question)) {
            true => json!({"allowed": true}),
            false => json!({"allowed": false, "reason": "denied by the test's policy"}),
        }
    }
}

impl Drop for ForbiddenGuard {
    fn drop(&mut self) {
        self.auth.shared.write().forbidden.remove(&self.id);
    }
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("required", &self.required).field("tokens", &self.tokens.len()).finish()
    }
}

impl User {
    /// Creates a user in the group of all authenticated users.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), groups: vec!["system:authenticated".into()], ..Self::default() }
    }

    /// Adds groups to the user.
    #[must_use]
    pub fn with_groups<G: Into<String>>(mut self, groups: impl IntoIterator<Item = G>) -> Self {
        self.groups.extend(groups.into_iter().map(Into::into));
        self
    }

    fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..Self::default()
        }
    }

    fn to_value(&self) -> Value {
        let mut user = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            user["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            user["extra"] = json!(self.extra);
        }
        user
    }
}

impl AccessQuestion {
    fn from_request(user: &User, info: &RequestInfo) -> Self {
        let mut question = Self { user: user.name.clone(), groups: user.groups.clone(), ..Self::default() };
        question.verb = info.verb.as_str().to_owned();
        match &info.target {
            Some(target) => {
                question.group = target.resource.group.clone();
                question.resource = target.resource.plural.clone();
                question.subresource = target.subresource.clone().unwrap_or_default();
                question.namespace = target.namespace.clone().unwrap_or_default();
                question.name = target.name.clone().unwrap_or_default();
            }
            None => {
                question.verb = info.method.as_str().to_lowercase();
                question.path = info.path.clone();
            }
        }
        question
    }

    fn from_spec(review: &Value) -> Self {
        let resource = |name: &str| {
            let value = review.pointer(&format!("/spec/resourceAttributes/{name}"));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let path = |name: &str| {
            let value = review.pointer(&format!("/spec/nonResourceAttributes/{name}"));
            value.and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let verb = Some(resource("verb")).filter(|verb| !verb.is_empty()).unwrap_or_else(|| path("verb"));
        Self {
            user: String::new(),
            groups: Vec::new(),
            verb,
            group: resource("group"),
            resource: resource("resource"),
            subresource: resource("subresource"),
            namespace: resource("namespace"),
            name: resource("name"),
            path: path("path"),
        }
    }
}

fn bearer(parts: &Parts) -> Option<&str> {
    parts.headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::trim)
}

fn forbidden_status(user: &User, info: &RequestInfo) -> Status {
    match &info.target {
        Some(target) => Status::forbidden_to(
            &user.name,
            info.verb.as_str(),
            GroupResource::new(&target.resource.group, &target.resource.plural),
            target.name.as_deref().unwrap_or_default(),
            target.namespace.as_deref(),
        ),
        None => Status::forbidden(
            GroupResource::new("", ""),
            "",
            format!(
                "User {:?} cannot {} path {:?}",
                user.name,
                info.method.as_str().to_lowercase(),
                info.path
            ),
        ),
    }
}
