//! Columns of role bindings, certificates and admission.

use serde_json::Value;

use super::super::human_duration;
use super::super::row::{AGE, BuiltinColumn, NAME, NONE, TableRow, UNSET};
use super::super::selector::{go_selector, printed_labels};

pub(super) fn columns(kind: &str) -> Option<&'static [BuiltinColumn]> {
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

const ROLE_BINDING: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Role", "string", |row| {
        format!("{}/{}", row.text(&["roleRef", "kind"]), row.text(&["roleRef", "name"])).into()
    }),
    AGE,
    BuiltinColumn::wide("Users", |row| subjects(row, "User")),
    BuiltinColumn::wide("Groups", |row| subjects(row, "Group")),
    BuiltinColumn::wide("ServiceAccounts", |row| subjects(row, "ServiceAccount")),
];

const SIGNER: BuiltinColumn =
    BuiltinColumn::new("SignerName", "string", |row| row.text_or(&["spec", "signerName"], NONE));

const SIGNING_REQUEST: &[BuiltinColumn] = &[
    NAME,
    AGE,
    SIGNER,
    BuiltinColumn::new("Requestor", "string", |row| row.cell(&["spec", "username"])),
    BuiltinColumn::new("RequestedDuration", "string", |row| {
        row.get(&["spec", "expirationSeconds"]).as_i64().map_or(NONE.into(), |s| human_duration(s).into())
    }),
    BuiltinColumn::new("Condition", "string", signing_status),
];

const TRUST_BUNDLE: &[BuiltinColumn] = &[NAME, SIGNER];

const POD_CERTIFICATE_REQUEST: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("PodName", "string", |row| row.cell(&["spec", "podName"])),
    BuiltinColumn::new("ServiceAccountName", "string", |row| row.cell(&["spec", "serviceAccountName"])),
    BuiltinColumn::new("NodeName", "string", |row| row.cell(&["spec", "nodeName"])),
    BuiltinColumn::new("SignerName", "string", |row| row.cell(&["spec", "signerName"])),
    BuiltinColumn::new("State", "string", |row| {
        let mut states = row.items(&["status", "conditions"]).filter_map(|c| c["type"].as_str());
        states.rfind(|state| matches!(*state, "Issued" | "Denied" | "Failed")).unwrap_or("Pending").into()
    }),
    BuiltinColumn::new("UnverifiedUserAnnotations", "string", |row| {
        printed_labels(row.get(&["spec", "unverifiedUserAnnotations"])).into()
    }),
];

const WEBHOOKS: &[BuiltinColumn] =
    &[NAME, BuiltinColumn::new("Webhooks", "integer", |row| row.count(&["webhooks"]).into()), AGE];

const PARAM_KIND: BuiltinColumn = BuiltinColumn::new("ParamKind", "string", |row| {
    let text = |field: &str| row.text(&["spec", "paramKind", field]);
    match row.is_set(&["spec", "paramKind"]) {
        true => format!("{}/{}", text("apiVersion"), text("kind")).into(),
        false => UNSET.into(),
    }
});

const VALIDATING_POLICY: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Validations", "integer", |row| row.count(&["spec", "validations"]).into()),
    PARAM_KIND,
    AGE,
];

const MUTATING_POLICY: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("Mutations", "integer", |row| row.count(&["spec", "mutations"]).into()),
    PARAM_KIND,
    AGE,
];

const POLICY_BINDING: &[BuiltinColumn] = &[
    NAME,
    BuiltinColumn::new("PolicyName", "string", |row| row.cell(&["spec", "policyName"])),
    BuiltinColumn::new("ParamRef", "string", |row| {
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

fn subjects(row: &TableRow<'_>, kind: &str) -> Value {
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

fn signing_status(row: &TableRow<'_>) -> Value {
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
