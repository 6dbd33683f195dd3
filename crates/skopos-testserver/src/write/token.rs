//! TokenRequests: service account tokens, which the server accepts afterwards.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use skopos_wire::{FieldError, GroupResource, Status};

use super::Writer;
use crate::auth::{API_AUDIENCE, BoundObject, IssuedToken};
use crate::object_ref::ObjectRef;

/// Minimum lifetime of a token.
const MIN_TOKEN_SECONDS: i64 = 600;

impl Writer<'_> {
    /// Issues a service account token. It has the form of a JSON web token, with a random signature.
    ///
    /// # Errors
    /// 404 for an account or object that does not exist, 409 for another object's UID, 422 for too short a lifetime.
    pub(crate) fn token(&self, object_ref: &ObjectRef, request: &Value) -> Result<Value, Status> {
        let account = self
            .state
            .storage
            .get(&object_ref.resource_key, &object_ref.key())
            .ok_or_else(|| object_ref.not_found())?
            .to_value();
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
        if seconds < MIN_TOKEN_SECONDS {
            let problem = "may not specify a duration less than 10 minutes";
            let error = FieldError::invalid_literal("spec.expirationSeconds", seconds, problem);
            return Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", &[error]));
        }
        let audiences = audiences(&request["spec"]["audiences"]);
        let bound = self.bound_object(object_ref, &request["spec"]["boundObjectRef"])?;
        let now = self.state.clock.now();
        let expires = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let issued = IssuedToken {
            namespace: object_ref.namespace.clone().unwrap_or_default(),
            account: object_ref.name.clone(),
            uid: account["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            id: self.random_uuid(),
            audiences,
            expires,
            bound,
        };
        let token = self.sign(&issued, now);
        let answer = json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": issued.account, "namespace": issued.namespace, "uid": issued.uid,
                         "creationTimestamp": self.state.clock.now_text()},
            "spec": {"audiences": issued.audiences, "expirationSeconds": seconds,
                     "boundObjectRef": request["spec"]["boundObjectRef"]},
            "status": {"token": token,
                       "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()},
        });
        self.state.auth.issue(token, issued, now);
        Ok(answer)
    }

    /// Finds the object that the token is bound to.
    fn bound_object(&self, object_ref: &ObjectRef, reference: &Value) -> Result<Option<BoundObject>, Status> {
        if reference.is_null() {
            return Ok(None);
        }
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let kind = text("kind");
        let resource = self.state.registry.by_kind("v1", kind);
        let resource = resource.filter(|_| matches!(kind, "Pod" | "Secret" | "Node")).ok_or_else(|| {
            Status::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to object of kind {kind:?}",
                object_ref.name
            ))
        })?;
        let object = ObjectRef::new(&resource, object_ref.namespace.as_deref(), text("name"));
        let stored =
            self.state.storage.get(&object.resource_key, &object.key()).ok_or_else(|| object.not_found())?;
        let wanted = text("uid");
        if !wanted.is_empty() && wanted != stored.uid() {
            let problem = format!(
                "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
            );
            return Err(Status::conflict(GroupResource::new("", &resource.plural), text("name"), problem));
        }
        let uid = stored.uid().to_owned();
        Ok(Some(BoundObject { kind: kind.to_owned(), object_ref: object, uid }))
    }

    fn sign(&self, issued: &IssuedToken, now: Timestamp) -> String {
        let mut kubernetes = json!({"namespace": issued.namespace,
            "serviceaccount": {"name": issued.account, "uid": issued.uid}});
        if let Some(bound) = &issued.bound {
            kubernetes[bound.kind.to_lowercase()] = json!({"name": bound.object_ref.name, "uid": bound.uid});
        }
        let head = json!({"alg": "RS256", "kid": "skopos-testserver"});
        let claims = json!({
            "aud": issued.audiences,
            "exp": issued.expires.as_second(),
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "iss": API_AUDIENCE,
            "jti": issued.id,
            "kubernetes.io": kubernetes,
            "sub": issued.user_name(),
        });
        let mut signature = [0; 256];
        self.state.rng.lock().fill(&mut signature);
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        format!(
            "{}.{}.{}",
            part(head.to_string().as_bytes()),
            part(claims.to_string().as_bytes()),
            part(&signature)
        )
    }

    fn random_uuid(&self) -> String {
        uuid::Builder::from_random_bytes(self.state.rng.lock().u128(..).to_le_bytes()).into_uuid().to_string()
    }
}

fn audiences(asked: &Value) -> Vec<String> {
    let asked = asked.as_array().into_iter().flatten().filter_map(Value::as_str);
    let asked: Vec<String> = asked.map(str::to_owned).collect();
    if asked.is_empty() { vec![API_AUDIENCE.to_owned()] } else { asked }
}
