//! Service account tokens that the server issued.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::User;
use crate::object_ref::ObjectRef;
use crate::state::ServerState;
use crate::storage::ResourceKey;

/// Audience of the API server itself.
pub(crate) const API_AUDIENCE: &str = "https://kubernetes.default.svc";

/// Token of a service account.
#[derive(Clone, Debug)]
pub(crate) struct IssuedToken {
    pub(crate) namespace: String,
    pub(crate) account: String,
    /// UID of the account; another account of the same name has a different one.
    pub(crate) uid: String,
    pub(crate) id: String,
    pub(crate) audiences: Vec<String>,
    pub(crate) expires: Timestamp,
    pub(crate) bound: Option<BoundObject>,
}

/// Object that a token is bound to: the token is invalid after its deletion.
#[derive(Clone, Debug)]
pub(crate) struct BoundObject {
    pub(crate) kind: String,
    pub(crate) object_ref: ObjectRef,
    pub(crate) uid: String,
}

/// Issued tokens by their text.
#[derive(Debug, Default)]
pub(super) struct IssuedTokens(HashMap<String, IssuedToken>);

impl IssuedTokens {
    /// Stores a token until it expires.
    pub(super) fn insert(&mut self, token: String, issued: IssuedToken, now: Timestamp) {
        self.0.retain(|_, issued| issued.expires > now);
        self.0.insert(token, issued);
    }

    /// Finds a token that is valid for one of these audiences.
    ///
    /// # Errors
    /// The reason why it is invalid, in the API server's words.
    pub(super) fn find(
        &self,
        state: &ServerState,
        token: &str,
        audiences: &[String],
    ) -> Option<Result<&IssuedToken, String>> {
        let issued = self.0.get(token)?;
        if issued.expires <= state.clock.now() {
            return Some(Err("[invalid bearer token, service account token has expired]".to_owned()));
        }
        if !issued.is_backed(state) {
            let problem = "[invalid bearer token, service account token has been invalidated]";
            return Some(Err(problem.to_owned()));
        }
        if !issued.audiences.iter().any(|audience| audiences.contains(audience)) {
            return Some(Err(format!(
                "[invalid bearer token, token audiences {:?} is invalid for the target audiences {audiences:?}]",
                issued.audiences
            )));
        }
        Some(Ok(issued))
    }
}

impl IssuedToken {
    pub(crate) fn user_name(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }

    pub(super) fn user(&self) -> User {
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ];
        let mut extra = BTreeMap::from([(
            "authentication.kubernetes.io/credential-id".to_owned(),
            vec![format!("JTI={}", self.id)],
        )]);
        if let Some(pod) = self.bound.as_ref().filter(|bound| bound.kind == "Pod") {
            extra.insert(
                "authentication.kubernetes.io/pod-name".to_owned(),
                vec![pod.object_ref.name.clone()],
            );
            extra.insert("authentication.kubernetes.io/pod-uid".to_owned(), vec![pod.uid.clone()]);
        }
        User { name: self.user_name(), groups, uid: self.uid.clone(), extra }
    }

    /// Returns whether the account, and the object that the token is bound to, still exist with the same UID.
    fn is_backed(&self, state: &ServerState) -> bool {
        let accounts = ResourceKey::new("", "serviceaccounts");
        let account = state.storage.get(&accounts, &format!("{}/{}", self.namespace, self.account));
        let bound = self.bound.as_ref().is_none_or(|bound| {
            let object = state.storage.get(&bound.object_ref.resource_key, &bound.object_ref.key());
            object.is_some_and(|object| object.uid() == bound.uid)
        });
        account.is_some_and(|account| account.uid() == self.uid) && bound
    }
}
