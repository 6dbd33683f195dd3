//! Impersonation (`kubectl --as`): the requested identity, read from headers as kube-apiserver reads them.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use skopos_wire::{GroupResource, Status};

use super::identity::{AUTHENTICATED, Actor, Identity, UNAUTHENTICATED, service_account};

/// The identity that a request asks for in its `Impersonate-*` headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonation {
    user: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// The reason why the `Impersonate-*` headers of a request cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImpersonationError {
    /// A header other than the four of Kubernetes, or one with underscores.
    #[error(
        "the header {0:?} is not accepted: send Impersonate-User, Impersonate-Group, Impersonate-Uid or Impersonate-Extra-KEY"
    )]
    UnknownHeader(String),
    /// A repeated user or uid: it is ambiguous.
    #[error("the header {0:?} may be sent only once")]
    Repeated(&'static str),
    /// A value that is no text.
    #[error("the header {0:?} is not valid UTF-8")]
    NotText(String),
    /// Groups, a uid or extra fields without a user.
    #[error("the Impersonate-* headers name no user: send Impersonate-User (kubectl --as) too")]
    NoUser,
    /// More groups and extra values than the gateway reviews for one request.
    #[error("the request impersonates {0} groups and extra values, at most {MAX_REVIEWED} are accepted")]
    TooMany(usize),
}

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// Maximum number of groups and extra values, because each needs a review of its own.
const MAX_REVIEWED: usize = 64;

/// The user of requests without credentials.
const ANONYMOUS: &str = "system:anonymous";

impl Impersonation {
    /// Reads the headers of a request; returns `None` if it asks for no other identity.
    ///
    /// # Errors
    /// Returns an error for headers that are unknown, repeated, no text, too many, or without a user.
    pub fn parse(headers: &HeaderMap) -> Result<Option<Self>, ImpersonationError> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in headers.keys().filter(|name| is_of_impersonation(name)) {
            match name.as_str() {
                USER | UID | GROUP => {}
                other => {
                    let key = other.strip_prefix(EXTRA).filter(|key| !key.is_empty());
                    let key = key.ok_or_else(|| ImpersonationError::UnknownHeader(other.to_owned()))?;
                    extra.entry(extra_key(key)).or_default().extend(texts(headers, other)?);
                }
            }
        }
        let (user, uid) = (single(headers, USER)?, single(headers, UID)?);
        let groups = texts(headers, GROUP)?;
        if user.is_empty() {
            let nothing = uid.is_empty() && groups.is_empty() && extra.is_empty();
            return if nothing { Ok(None) } else { Err(ImpersonationError::NoUser) };
        }
        let reviewed = groups.len() + extra.values().map(Vec::len).sum::<usize>();
        if reviewed > MAX_REVIEWED {
            return Err(ImpersonationError::TooMany(reviewed));
        }
        Ok(Some(Self { user, uid, groups, extra }))
    }

    /// Returns the identity that `actor` gets. If no groups are named, a service account gets its own. Each identity also
    /// gets the group of authenticated or that of unauthenticated callers.
    pub fn by(self, actor: Arc<Identity>) -> Identity {
        let Self { user, uid, mut groups, extra } = self;
        let named = groups.clone();
        if let (true, Some((namespace, _))) = (named.is_empty(), service_account(&user)) {
            groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
        }
        if !groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
            groups.push(if user == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED }.to_owned());
        }
        Identity { user, uid, groups, extra, home: None, actor: Some(Actor { identity: actor, named }) }
    }
}

fn is_of_impersonation(name: &HeaderName) -> bool {
    let rest = name.as_str().strip_prefix("impersonate");
    // Some servers read underscores as dashes.
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

fn single(headers: &HeaderMap, name: &'static str) -> Result<String, ImpersonationError> {
    let mut values = texts(headers, name)?;
    match values.len() {
        0 | 1 => Ok(values.pop().unwrap_or_default()),
        _ => Err(ImpersonationError::Repeated(name)),
    }
}

fn texts(headers: &HeaderMap, name: &str) -> Result<Vec<String>, ImpersonationError> {
    let text = |value: &http::HeaderValue| {
        let text = std::str::from_utf8(value.as_bytes());
        text.map(str::to_owned).map_err(|_| ImpersonationError::NotText(name.to_owned()))
    };
    headers.get_all(name).iter().map(text).collect()
}

/// Decodes the key of an extra field. A key that is not validly encoded is used unchanged.
fn extra_key(encoded: &str) -> String {
    percent_decode_str(encoded).decode_utf8().map_or_else(|_| encoded.to_owned(), |key| key.into_owned())
}

impl From<ImpersonationError> for Status {
    fn from(error: ImpersonationError) -> Self {
        match &error {
            ImpersonationError::UnknownHeader(_) => Self::forbidden(GroupResource::new("", ""), "", &error),
            _ => Self::bad_request(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[(&str, &str)]) -> Result<Option<Impersonation>, ImpersonationError> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        Impersonation::parse(&headers)
    }

    fn identity(lines: &[(&str, &str)]) -> Identity {
        parse(lines).unwrap().unwrap().by(Arc::new(Identity::authenticated("alice", [])))
    }

    #[test]
    fn ignores_request_without_impersonation_headers() {
        assert_eq!(parse(&[("accept", "*/*")]), Ok(None));
        assert_eq!(parse(&[("impersonate-user", "")]), Ok(None));
    }

    #[test]
    fn groups_are_completed_as_kube_apiserver_does() {
        let groups = |lines: &[(&str, &str)]| identity(lines).groups;
        let cases: [(&str, &[&str], &[&str]); 7] = [
            ("joe", &[], &["system:authenticated"]),
            ("joe", &["dev"], &["dev", "system:authenticated"]),
            ("joe", &["system:unauthenticated"], &["system:unauthenticated"]),
            ("joe", &["system:authenticated", "dev"], &["system:authenticated", "dev"]),
            ("system:anonymous", &[], &["system:unauthenticated"]),
            (
                "system:serviceaccount:shop:web",
                &[],
                &["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
            ),
            ("system:serviceaccount:shop:web", &["dev"], &["dev", "system:authenticated"]),
        ];
        for (user, named, complete) in cases {
            let mut lines = vec![("impersonate-user", user)];
            lines.extend(named.iter().map(|group| ("impersonate-group", *group)));
            assert_eq!(groups(&lines), complete, "{user} {named:?}");
        }
    }

    #[test]
    fn reads_impersonated_uid_and_extra_fields() {
        let joe = identity(&[
            ("Impersonate-User", "joe"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-My_key%2fX", "a"),
            ("impersonate-extra-my_key%2Fx", "b"),
            ("impersonate-extra-50%", "c"),
        ]);
        assert_eq!((joe.user.as_str(), joe.uid.as_str()), ("joe", "7"));
        let mut extra = joe.extra;
        extra.get_mut("my_key/x").unwrap().sort();
        let wanted = [("50%", vec!["c"]), ("my_key/x", vec!["a", "b"])];
        let wanted =
            wanted.map(|(key, values)| (key.to_owned(), values.into_iter().map(str::to_owned).collect()));
        assert_eq!(extra, wanted.into());
        assert_eq!(joe.actor.unwrap().identity.user, "alice");
    }

    #[test]
    fn unknown_spellings_are_refused() {
        for name in [
            "Impersonate",
            "impersonate_user",
            "Impersonate_Group",
            "Impersonate-Anything",
            "Impersonate-Extra-",
        ] {
            let refused = parse(&[("impersonate-user", "joe"), (name, "x")]).unwrap_err();
            assert!(matches!(refused, ImpersonationError::UnknownHeader(_)), "{name}: {refused}");
        }
    }

    #[test]
    fn rejects_ambiguous_impersonation_headers() {
        let twice = parse(&[("impersonate-user", "joe"), ("impersonate-user", "root")]);
        assert_eq!(twice, Err(ImpersonationError::Repeated("impersonate-user")));
        for alone in ["impersonate-group", "impersonate-uid", "impersonate-extra-scopes"] {
            assert_eq!(parse(&[(alone, "x")]), Err(ImpersonationError::NoUser), "{alone}");
        }
        let mut many = vec![("impersonate-user", "joe")];
        many.extend([("impersonate-group", "g"); MAX_REVIEWED + 1]);
        assert_eq!(parse(&many), Err(ImpersonationError::TooMany(MAX_REVIEWED + 1)));
        let mut headers = HeaderMap::new();
        headers.insert("impersonate-user", http::HeaderValue::from_bytes(b"\xff").unwrap());
        assert_eq!(
            Impersonation::parse(&headers),
            Err(ImpersonationError::NotText("impersonate-user".into()))
        );
    }
}
