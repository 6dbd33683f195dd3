//! HTTP layer of the writes: parsing of requests and their responses.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use skopos_serve::respond::{self, Response};
use skopos_serve::{Form, Purpose, RequestInfo, RequestTarget, RequestVerb, Selection};
use skopos_wire::{Status, StatusDetails, StatusReason};

use super::modify::{patch_status, reject_unknown_fields, unreadable_patch};
use super::options::UnknownFields;
use super::{DeleteOptions, DeleteOutcome, ObjectPart, WriteOptions, WriteOutcome, Writer, body};
use crate::object_ref::ObjectRef;
use crate::openapi;
use crate::patch::{self, PatchKind, PatchShape};
use crate::state::ServerState;
use crate::storage::{ReadScope, ResourceKey, Stored};

/// Kinds whose deletion returns the object instead of a Status.
const KINDS_RETURNED: [&str; 7] = [
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodTemplate",
    "ResourceQuota",
    "Service",
    "ServiceAccount",
];

/// Answers a request that writes, or reads a subresource other than `status`.
pub(crate) async fn handle(
    state: &ServerState,
    info: &RequestInfo,
    target: &RequestTarget,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response, Status> {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let request = WriteRequest {
        state,
        writer: Writer::new(state),
        info,
        target,
        headers,
        body,
        object_ref: ObjectRef {
            resource: target.resource.clone(),
            resource_key: ResourceKey::from(&*target.resource),
            namespace: target.namespace.clone(),
            name: target.name.clone().unwrap_or_default(),
        },
        options: WriteOptions::from_request(&info.query, agent)?,
    };
    request.answer()
}

struct WriteRequest<'a> {
    state: &'a ServerState,
    writer: Writer<'a>,
    info: &'a RequestInfo,
    target: &'a RequestTarget,
    headers: &'a HeaderMap,
    body: Bytes,
    object_ref: ObjectRef,
    options: WriteOptions,
}

impl WriteRequest<'_> {
    fn answer(&self) -> Result<Response, Status> {
        let named = self.target.name.is_some();
        let lacks_namespace = self.object_ref.resource.namespaced && self.object_ref.namespace.is_none();
        let sub = self.target.subresource.as_deref();
        if sub.is_some_and(|sub| sub != "finalize" && self.object_ref.resource.subresource(sub).is_none()) {
            return Err(Status::resource_not_served());
        }
        match (self.info.verb, sub) {
            (RequestVerb::Create, None) if !named && !lacks_namespace => self.create(),
            (RequestVerb::Update, None) if named => self.update(ObjectPart::Main),
            (RequestVerb::Patch, None) if named => self.patch(ObjectPart::Main),
            (RequestVerb::Delete, None) => self.delete(),
            (RequestVerb::DeleteCollection, None) if !lacks_namespace => self.delete_collection(),
            (RequestVerb::Update, Some("status")) => self.update(ObjectPart::Status),
            (RequestVerb::Patch, Some("status")) => self.patch(ObjectPart::Status),
            (RequestVerb::Update, Some("finalize")) => self.update(ObjectPart::Main),
            (RequestVerb::Get, Some("scale")) => {
                Ok(respond::json(StatusCode::OK, &self.writer.scale(&self.object_ref)?))
            }
            (RequestVerb::Update, Some("scale")) => self.scale(self.json()?),
            (RequestVerb::Patch, Some("scale")) => self.patch_scale(),
            (RequestVerb::Get, Some("log")) => {
                Ok(respond::text(StatusCode::OK, self.writer.log(&self.object_ref)?))
            }
            (RequestVerb::Create, Some("eviction")) => {
                let options = DeleteOptions::from_request(&self.info.query, None)?;
                self.writer.evict(&self.object_ref, &self.json()?, options)?;
                Ok(success_response(StatusCode::CREATED, StatusDetails::default()))
            }
            (RequestVerb::Create, Some("binding")) => {
                self.writer.bind(&self.object_ref, &self.json()?, &self.options)?;
                Ok(success_response(StatusCode::CREATED, StatusDetails::default()))
            }
            (RequestVerb::Create, Some("token")) => {
                Ok(respond::json(StatusCode::CREATED, &self.writer.token(&self.object_ref, &self.json()?)?))
            }
            _ => Err(method_not_allowed()),
        }
    }

    fn create(&self) -> Result<Response, Status> {
        let form = self.form()?;
        let mut object = self.json()?;
        if self.object_ref.resource.kind == "Binding" && self.object_ref.resource.group.is_empty() {
            let pods =
                self.state.registry.resolve("", "v1", "pods").ok_or_else(Status::resource_not_served)?;
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let pod = ObjectRef::new(&pods, self.object_ref.namespace.as_deref(), name);
            self.writer.bind(&pod, &object, &self.options)?;
            return Ok(success_response(StatusCode::CREATED, StatusDetails::default()));
        }
        let warnings = self.check_fields(&mut object)?;
        let written = self.writer.create(&self.object_ref, object, &self.options)?;
        Ok(with_warnings(self.written(&form, StatusCode::CREATED, &written), &warnings))
    }

    fn update(&self, part: ObjectPart) -> Result<Response, Status> {
        let form = self.form()?;
        let mut object = self.json()?;
        let warnings = self.check_fields(&mut object)?;
        let written = self.writer.update(&self.object_ref, part, object, &self.options)?;
        Ok(with_warnings(self.written(&form, StatusCode::OK, &written), &warnings))
    }

    fn patch(&self, part: ObjectPart) -> Result<Response, Status> {
        let kind = self.patch_kind()?;
        let form = self.form()?;
        match kind {
            PatchKind::Apply => {
                let config = body::yaml(&self.body)?;
                let (written, created) = self.writer.apply(&self.object_ref, part, config, &self.options)?;
                let code = if created { StatusCode::CREATED } else { StatusCode::OK };
                Ok(self.written(&form, code, &written))
            }
            kind => {
                let malformed = |_| Status::bad_request("invalid JSON patch");
                let change: Value = serde_json::from_slice(&self.body).map_err(malformed)?;
                let written = self.writer.patch(&self.object_ref, part, kind, &change, &self.options)?;
                Ok(self.written(&form, StatusCode::OK, &written))
            }
        }
    }

    fn patch_kind(&self) -> Result<PatchKind, Status> {
        const CUSTOM: [&str; 3] =
            ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
        let custom = self.object_ref.resource.custom;
        match PatchKind::from_content_type(body::content_type(self.headers)) {
            Some(PatchKind::Strategic) if custom => Err(Status::unsupported_media_type(&CUSTOM)),
            Some(kind) => Ok(kind),
            None if custom => Err(Status::unsupported_media_type(&CUSTOM)),
            // No route accepts it.
            None => {
                let reason = StatusReason::UnsupportedMediaType;
                Err(Status::failure(415, reason, "415: Unsupported Media Type")
                    .with_details(StatusDetails::default()))
            }
        }
    }

    fn delete(&self) -> Result<Response, Status> {
        let form = self.form()?;
        let body = if self.body.is_empty() { None } else { Some(body::object(self.headers, &self.body)?) };
        let options = DeleteOptions::from_request(&self.info.query, body.as_ref())?;
        match self.writer.delete(&self.object_ref, &options)? {
            DeleteOutcome::Deleted(object) | DeleteOutcome::Dry(object)
                if KINDS_RETURNED.contains(&self.object_ref.resource.kind.as_str())
                    && !self.object_ref.resource.custom =>
            {
                Ok(self.written(&form, StatusCode::OK, &WriteOutcome::Stored(object)))
            }
            DeleteOutcome::Deleted(object) | DeleteOutcome::Dry(object) => {
                let details = StatusDetails {
                    name: self.object_ref.name.clone(),
                    group: self.object_ref.resource.group.clone(),
                    kind: self.object_ref.resource.plural.clone(),
                    uid: object.uid().to_owned(),
                    ..StatusDetails::default()
                };
                Ok(success_response(StatusCode::OK, details))
            }
            DeleteOutcome::Pending(object) => {
                Ok(self.written(&form, StatusCode::OK, &WriteOutcome::Stored(object)))
            }
        }
    }

    fn delete_collection(&self) -> Result<Response, Status> {
        let body = if self.body.is_empty() { None } else { Some(body::object(self.headers, &self.body)?) };
        let options = DeleteOptions::from_request(&self.info.query, body.as_ref())?;
        let selection = Selection::from_query(
            &self.info.query,
            &self.target.resource,
            self.target.namespace.as_deref(),
            self.target.name.as_deref(),
        )?;
        let (objects, revision) =
            self.state.storage.list(&self.object_ref.resource_key, ReadScope::new(selection.namespace()));
        let mut deleted = Vec::new();
        for object in objects.iter().filter(|object| selection.matches(*object)) {
            let object_ref = ObjectRef::from_stored(&self.object_ref.resource, object);
            match self.writer.delete(&object_ref, &options) {
                // Listed in its last state.
                Ok(_) => deleted.push(self.item(object)),
                // Another client was faster, or the object may not be deleted.
                Err(status) if matches!(status.code, 403 | 404) => {}
                Err(status) => return Err(status),
            }
        }
        let list = json!({
            "kind": self.object_ref.resource.list_kind,
            "apiVersion": self.object_ref.resource.api_version(),
            "metadata": {"resourceVersion": revision.to_string()},
            "items": deleted,
        });
        Ok(respond::json(StatusCode::OK, &list))
    }

    /// Returns an object as an item of a list.
    fn item(&self, object: &Stored) -> Value {
        let mut item = object.to_value();
        if !self.object_ref.resource.custom {
            item.as_object_mut().map(|map| (map.remove("kind"), map.remove("apiVersion")));
        }
        item
    }

    fn patch_scale(&self) -> Result<Response, Status> {
        let kind = self.patch_kind()?;
        let mut scale = self.writer.scale(&self.object_ref)?;
        let change = if kind == PatchKind::Apply { body::yaml(&self.body)? } else { body::json(&self.body)? };
        let names_version = change["metadata"].get("resourceVersion").is_some();
        scale = patch::patch(kind, &scale, &change, PatchShape::builtin())
            .map_err(|error| patch_status(&error))?;
        openapi::check_scale_types(&scale).map_err(|problem| unreadable_patch(&scale, &problem))?;
        if !names_version {
            // A patch applies to the newest state.
            scale["metadata"]["resourceVersion"] = Value::Null;
        }
        self.scale(scale)
    }

    fn scale(&self, scale: Value) -> Result<Response, Status> {
        openapi::check_scale_types(&scale)
            .map_err(|problem| body::undecodable_status("Scale", "v1", &problem))?;
        Ok(respond::json(StatusCode::OK, &self.writer.set_scale(&self.object_ref, &scale, &self.options)?))
    }

    fn json(&self) -> Result<Value, Status> {
        body::object(self.headers, &self.body)
    }

    /// Drops fields that the kind does not have, and returns their paths as warnings; refuses them if the client wants that.
    fn check_fields(&self, object: &mut Value) -> Result<Vec<String>, Status> {
        let unknown = openapi::drop_unknown_fields(&self.object_ref.resource, object);
        match self.options.unknown_fields {
            UnknownFields::Ignore => Ok(Vec::new()),
            UnknownFields::Refuse => reject_unknown_fields(&self.object_ref, &unknown).map(|()| Vec::new()),
            UnknownFields::Warn => Ok(unknown),
        }
    }

    /// Negotiates the response form. As in the API server, this precedes the write: a client that gets 406 has written nothing.
    fn form(&self) -> Result<Form, Status> {
        Form::negotiate(self.headers, &self.info.query, &self.target.resource, Purpose::One, true)
    }

    /// Returns the object in the negotiated form.
    fn written(&self, form: &Form, code: StatusCode, written: &WriteOutcome) -> Response {
        match written {
            WriteOutcome::Stored(object) => {
                let now = self.state.clock.now();
                form.respond(code, object, object.revision(), now)
            }
            WriteOutcome::Dry(object) => respond::json(code, object),
        }
    }
}

/// Returns the 405, which does not name the resource, because no route has the method.
pub(crate) fn method_not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    Status::failure(405, StatusReason::MethodNotAllowed, message).with_details(StatusDetails::default())
}

fn success_response(code: StatusCode, details: StatusDetails) -> Response {
    let mut status = Status::success(details);
    if code != StatusCode::OK {
        status.code = code.as_u16();
    }
    respond::json(code, &status)
}

fn with_warnings(mut response: Response, unknown: &[String]) -> Response {
    for path in unknown {
        let warning = format!("299 - \"unknown field \\\"{path}\\\"\"");
        if let Ok(value) = HeaderValue::from_str(&warning) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}
