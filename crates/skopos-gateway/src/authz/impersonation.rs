//! Impersonation: the rights that a caller needs to act as another identity, as kube-apiserver requires of its own callers.

use std::sync::Arc;

use futures::future::join_all;

use super::{Attributes, Decision};
use crate::auth::{Actor, Identity, service_account};

/// A right to impersonate an identity that the caller lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The caller.
    pub caller: Arc<Identity>,
    /// The right that was refused.
    pub right: Attributes,
}

/// Decides whether `actor` may impersonate `who`. Reviews all rights at the same time and returns the first refusal.
pub(super) async fn refused<F>(
    who: &Identity,
    actor: &Actor,
    decide: impl Fn(Arc<Identity>, Attributes) -> F,
) -> Option<Decision>
where
    F: Future<Output = Decision>,
{
    let rights = rights(who, actor);
    let decisions = join_all(rights.iter().map(|right| decide(actor.identity.clone(), right.clone()))).await;
    let (decision, right) = decisions.into_iter().zip(rights).find(|(decision, _)| !decision.allowed)?;
    Some(Decision { refusal: Some(Arc::new(Refusal { caller: actor.identity.clone(), right })), ..decision })
}

/// Returns the rights that the impersonation filter of kube-apiserver checks (`impersonate`, not the constrained verbs of
/// 1.35).
fn rights(who: &Identity, actor: &Actor) -> Vec<Attributes> {
    let core =
        |resource: &str, name: &str| Attributes::resource("impersonate", "", "v1", resource).named(name);
    let authentication = |resource: &str, name: &str| {
        Attributes::resource("impersonate", "authentication.k8s.io", "v1", resource).named(name)
    };
    let mut rights = match service_account(&who.user) {
        Some((namespace, name)) => vec![core("serviceaccounts", name).in_namespace(namespace)],
        None => vec![core("users", &who.user)],
    };
    rights.extend(actor.named.iter().map(|group| core("groups", group)));
    for (key, values) in &who.extra {
        let of_key =
            |value: &String| Attributes { subresource: key.clone(), ..authentication("userextras", value) };
        rights.extend(values.iter().map(of_key));
    }
    if !who.uid.is_empty() {
        rights.push(authentication("uids", &who.uid));
    }
    rights
}
