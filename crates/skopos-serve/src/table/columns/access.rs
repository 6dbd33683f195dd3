//! Columns of role bindings, certificates and admission.

use serde_json::Value;

use super::super::human_duration;
use super::super::row::{AGE, Column, NAME, NONE, Row, UNSET};
use super::super::selector::{go_selector, printed_labels};

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    Some(match kind {
        "RoleBinding" | "ClusterRoleBinding" => ROLE_BINDING,
        "CertificateSigningRequest" => SIGNING_REQUEST,
        "ClusterTrustBundle" => TRUST_BUNDLE,
        "PodCertificateRequest" => POD_CERTIFICATE_REQUEST,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "ValidatingAdmissionPolicy" => VALIDATING_POLICY,
        "MutatingAdmissionPolicy" => MUTATING_POLICY,
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => POLICY_BINDING,
        _ => return None,
    })
}

const ROLE_BINDING: &[Column] = &[
    NAME,
    Column::new("Role", "string", |row| {
        format!("{}/{}", row.text(&["roleRef", "kind"]), row.text(&["roleRef", "name"])).into()
    }),
    AGE,
    Column::wide("Users", |row| subjects(row, "User")),
    Column::wide("Groups", |row| subjects(row, "Group")),
    Column::wide("ServiceAccounts", |row| subjects(row, "ServiceAccount")),
];

const SIGNER: Column = Column::new("SignerName", "string", |row| row.text_or(&["spec", "signerName"], NONE));

const SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    SIGNER,
    Column::new("Requestor", "string", |row| row.cell(&["spec", "username"])),
    Column::new("RequestedDuration", "string", |row| {
        row.get(&["spec", "expirationSeconds"]).as_i64().map_or(NONE.into(), |s| human_duration(s).into())
    }),
    Column::new("Condition", "string", signing_status),
];

const TRUST_BUNDLE: &[Column] = &[NAME, SIGNER];

const POD_CERTIFICATE_REQUEST: &[Column] = &[
    NAME,
    Column::new("PodName", "string", |row| row.cell(&["spec", "podName"])),
    Column::new("ServiceAccountName", "string", |row| row.cell(&["spec", "serviceAccountName"])),
    Column::new("NodeName", "string", |row| row.cell(&["spec", "nodeName"])),
    Column::new("SignerName", "string", |row| row.cell(&["spec", "signerName"])),
    Column::new("State", "string", |row| {
        let mut states = row.items(&["status", "conditions"]).filter_map(|c| c["type"].as_str());
        states.rfind(|state| matches!(*state, "Issued" | "Denied" | "Failed")).unwrap_or("Pending").into()
    }),
    Column::new("UnverifiedUserAnnotations", "string", |row| {
        printed_labels(row.get(&["spec", "unverifiedUserAnnotations"])).into()
    }),
];

const WEBHOOKS: &[Column] =
    &[NAME, Column::new("Webhooks", "integer", |row| row.count(&["webhooks"]).into()), AGE];

const PARAM_KIND: Column = Column::new("ParamKind", "string", |row| {
    let text = |field: &str| row.text(&["spec", "paramKind", field]);
    match row.is_set(&["spec", "paramKind"]) {
        true => format!("{}/{}", text("apiVersion"), text("kind")).into(),
        false => UNSET.into(),
    }
});

const VALIDATING_POLICY: &[Column] = &[
    NAME,
    Column::new("Validations", "integer", |row| row.count(&["spec", "validations"]).into()),
    PARAM_KIND,
    AGE,
];

const MUTATING_POLICY: &[Column] = &[
    NAME,
    Column::new("Mutations", "integer", |row| row.count(&["spec", "mutations"]).into()),
    PARAM_KIND,
    AGE,
];

const POLICY_BINDING: &[Column] = &[
    NAME,
    Column::new("PolicyName", "string", |row| row.cell(&["spec", "policyName"])),
    Column::new("ParamRef", "string", |row| {
        let text = |field: &str| row.text(&["spec", "paramRef", field]);
        let selector = row.get(&["spec", "paramRef", "selector"]);
        match (text("namespace"), text("name")) {
            (_, "") if selector.is_null() => UNSET.into(),
            (_, "") => go_selector(selector).into(),
            // A cluster-scoped parameter has no namespace either.
            ("", name) => format!("*/{name}").into(),
            (namespace, name) => format!("{namespace}/{name}").into(),
        }
    }),
    AGE,
];

fn subjects(row: &Row<'_>, kind: &str) -> Value {
    let name = |subject: &Value| {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        match kind {
            "ServiceAccount" => format!("{}/{}", text("namespace"), text("name")),
            _ => text("name").to_owned(),
        }
    };
    let subjects = row.items(&["subjects"]).filter(|subject| subject["kind"] == kind);
    subjects.map(name).collect::<Vec<_>>().join(", ").into()
}

fn signing_status(row: &Row<'_>) -> Value {
    let has = |r#type: &str| row.condition(r#type).is_some();
    let mut status = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !row.text(&["status", "certificate"]).is_empty() {
        status.push_str(",Issued");
    }
    status.into()
}
