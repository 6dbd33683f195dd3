//! Startup of a vcluster: its API server, and the Secret with its kubeconfig.

use serde_json::{Value, json};
use skopos_wire::Status;

use super::registry::Options;
use crate::serve::{Credential, IdentityPlan, ServerIdentity, TlsError, Validity};
use crate::server::{StartError, TestServer};

/// ID of a virtual cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterId {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Virtual cluster that has started at least once: its server with the data, its CA and client certificate.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) server: TestServer,
    authority: String,
    client: Credential,
}

impl Instance {
    /// Starts the API server for the first time.
    pub(super) async fn start(
        host: &TestServer,
        id: &ClusterId,
        options: &Options,
    ) -> Result<Self, StartError> {
        let names = certificate_names(host, id);
        let builder = (options.servers)(&id.namespace, &id.name);
        if options.in_memory {
            // No client uses TLS with it, but its Secret is like any other.
            let plan = IdentityPlan { names, clients: true, ..IdentityPlan::default() };
            let identity =
                ServerIdentity::generate(&plan, Validity::Long).map_err(StartError::Certificate)?;
            let missing = || StartError::Certificate(TlsError::from("no client certificate"));
            let client = identity.client.ok_or_else(missing)?;
            return Ok(Self { server: builder.start_in_memory()?, authority: identity.ca_pem, client });
        }
        let server = builder.certificate_names(names).client_certificates().start().await?;
        let missing = || StartError::Certificate(TlsError::from("no client certificate"));
        let (authority, client) = server.ca_pem().zip(server.client_credential()).ok_or_else(missing)?;
        Ok(Self { server, authority, client })
    }

    /// Writes the Secret `vc-NAME`, as at each start.
    pub(super) fn publish(&self, host: &TestServer, id: &ClusterId, options: &Options) -> Result<(), Status> {
        let ClusterId { namespace, name } = id;
        let url = match options.export_addresses && !options.in_memory {
            true => self.server.url(),
            false => "https://localhost:8443".to_owned(),
        };
        let Credential { certificate, key } = &self.client;
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": format!("vc-{name}"), "namespace": namespace,
                "labels": {"app": "vcluster", "vcluster-name": name}},
            "stringData": {
                "config": self.kubeconfig(&url), "certificate-authority": self.authority,
                "client-certificate": certificate, "client-key": key, "token": "",
            },
        });
        // Deleted with the Service.
        if let Ok(service) = host.get("services", Some(namespace), name) {
            secret["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "v1", "kind": "Service", "name": name, "uid": service["metadata"]["uid"]}]);
        }
        host.apply(secret).map(drop)
    }

    fn kubeconfig(&self, url: &str) -> String {
        use base64::Engine as _;
        let data = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
        let Credential { certificate, key } = &self.client;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: my-vcluster\n\
             clusters:\n- name: my-vcluster\n  cluster:\n    server: {url}\n    certificate-authority-data: {}\n\
             users:\n- name: my-vcluster\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
             contexts:\n- name: my-vcluster\n  context:\n    cluster: my-vcluster\n    user: my-vcluster\n",
            data(&self.authority),
            data(certificate),
            data(key),
        )
    }
}

/// Returns the names in the syncer's serving certificate. `NAME.NAMESPACE.svc` is not among them.
fn certificate_names(host: &TestServer, id: &ClusterId) -> Vec<String> {
    let ClusterId { namespace, name } = id;
    let mut names = vec![name.clone(), format!("{name}.{namespace}")];
    let fixed = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "127.0.0.1",
    ];
    names.extend(fixed.map(str::to_owned));
    let service = host.get("services", Some(namespace), name).unwrap_or(Value::Null);
    names.extend(service["spec"]["clusterIP"].as_str().filter(|ip| *ip != "None").map(str::to_owned));
    names
}
