//! The kubeconfig of a virtual cluster, for kubectl.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use skopos_fleet::address::AddressPolicy;
use skopos_fleet::kubeconfig::{Kubeconfig, KubeconfigPolicy};
use skopos_fleet::vcluster::{KubeconfigSecret, names};

use crate::error::Error;
use crate::host::{Host, SECRETS, SERVICES};
use crate::progress::Silent;

/// Options of exporting a kubeconfig.
#[derive(Clone, Debug)]
pub struct KubeconfigOptions {
    /// The API server's address, such as the end of a port-forward. `None`: the address that the virtual cluster
    /// exports; else its Service's load balancer; else its Service's name, which only pods of the host resolve.
    pub server: Option<Uri>,
    /// The name of the host's context; the new context is named after it.
    pub host_context: String,
    /// Timeout of the whole operation. Default 30 s.
    pub within: Duration,
}

/// A kubeconfig with an administrator's credentials.
pub struct ExportedKubeconfig {
    yaml: SecretString,
    /// The name of its context.
    pub context: String,
    /// The namespace of the host that it is in.
    pub namespace: String,
    /// The URL of its server.
    pub server: String,
    /// Set if only pods of the host can reach the server.
    pub inside_only: bool,
}

impl Host {
    /// Returns the kubeconfig of a virtual cluster, whether it is up or not. It is rendered from the authority and
    /// credentials in the virtual cluster's own one: nothing in it runs programs or reads files.
    ///
    /// # Errors
    /// If there is none or several, if it has never started, or if its kubeconfig uses a feature that is not allowed;
    /// if the host refuses or does not answer, or the timeout expires.
    pub async fn kubeconfig(
        &self,
        name: &str,
        namespace: Option<&str>,
        options: &KubeconfigOptions,
    ) -> Result<ExportedKubeconfig, Error> {
        let session = self.session(&Silent, options.within);
        let cluster = self.find_one(&session, name, namespace).await?;
        let namespace = cluster.namespace.as_str();
        let secret =
            session.get(&SECRETS.path(Some(namespace), Some(&names::kubeconfig_secret(name)))).await?;
        let secret = secret.as_deref().map(KubeconfigSecret::parse).transpose()?.flatten();
        let missing = || Error::NoKubeconfig { name: name.to_owned(), namespace: namespace.to_owned() };
        let secret = secret.ok_or_else(missing)?;
        // This process does not connect there, so any address is allowed.
        let mut policy = KubeconfigPolicy::hostile();
        policy.addresses = AddressPolicy::anywhere();
        let config = Kubeconfig::parse(secret.config(), &policy)?.cluster(None)?.config();
        let service = session.get(&SERVICES.path(Some(namespace), Some(name))).await?;
        let address =
            ServerAddress::find(options.server.as_ref(), &config.cluster_url, service.as_deref(), &secret);
        let context = names::context(name, namespace, &options.host_context);
        let text = render(&context, &address, &config);
        Ok(ExportedKubeconfig {
            yaml: text,
            context,
            namespace: namespace.to_owned(),
            server: address.server,
            inside_only: address.inside_only,
        })
    }
}

impl ExportedKubeconfig {
    /// Returns the kubeconfig as YAML, with its secrets.
    pub fn text(&self) -> &str {
        self.yaml.expose_secret()
    }
}

impl Default for KubeconfigOptions {
    fn default() -> Self {
        Self { server: None, host_context: "host".to_owned(), within: Duration::from_secs(30) }
    }
}

impl fmt::Debug for ExportedKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportedKubeconfig")
            .field("context", &self.context)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// Address of the API server, and the name in its certificate.
#[derive(Debug, PartialEq, Eq)]
struct ServerAddress {
    server: String,
    tls_server_name: Option<String>,
    inside_only: bool,
}

impl ServerAddress {
    fn find(wanted: Option<&Uri>, exported: &Uri, service: Option<&[u8]>, secret: &KubeconfigSecret) -> Self {
        let KubeconfigSecret { name, namespace, .. } = secret;
        // The certificate has this name, at whatever address it is reached.
        let own_name = || Some(format!("{name}.{namespace}"));
        if let Some(wanted) = wanted {
            let server = wanted.to_string().trim_end_matches('/').to_owned();
            return Self { server, tls_server_name: own_name(), inside_only: false };
        }
        if !is_own_port(exported) {
            let server = exported.to_string().trim_end_matches('/').to_owned();
            return Self { server, tls_server_name: None, inside_only: false };
        }
        match service.and_then(load_balancer) {
            Some(host) => {
                Self { server: format!("https://{host}:443"), tls_server_name: None, inside_only: false }
            }
            None => Self {
                server: format!("https://{name}.{namespace}.svc:443"),
                tls_server_name: own_name(),
                inside_only: true,
            },
        }
    }
}

/// Returns whether it is the syncer's default: a port of its own pod.
fn is_own_port(server: &Uri) -> bool {
    matches!(server.host(), Some("localhost" | "127.0.0.1")) && server.port_u16() == Some(8443)
}

/// Returns the address of a Service of type LoadBalancer.
fn load_balancer(service: &[u8]) -> Option<String> {
    let service: Value = serde_json::from_slice(service).ok()?;
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array()?.first()?;
    let text = |field: &str| ingress[field].as_str().filter(|text| !text.is_empty());
    text("hostname").map(str::to_owned).or_else(|| {
        let ip = text("ip")?;
        Some(if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() })
    })
}

fn render(context: &str, address: &ServerAddress, config: &kube::Config) -> SecretString {
    let mut cluster = json!({"server": address.server});
    if let Some(name) = &address.tls_server_name {
        cluster["tls-server-name"] = name.as_str().into();
    }
    if let Some(certificates) = &config.root_cert {
        let pem: String = certificates.iter().map(|der| pem(der)).collect();
        cluster["certificate-authority-data"] = STANDARD.encode(pem).into();
    }
    let auth = &config.auth_info;
    let secret =
        |secret: &Option<SecretString>| secret.as_ref().map(|secret| secret.expose_secret().to_owned());
    let mut user = json!({});
    let fields = [
        ("client-certificate-data", auth.client_certificate_data.clone()),
        ("client-key-data", secret(&auth.client_key_data)),
        ("token", secret(&auth.token)),
        ("username", auth.username.clone()),
        ("password", secret(&auth.password)),
    ];
    for (field, value) in fields {
        if let Some(value) = value {
            user[field] = value.into();
        }
    }
    // JSON strings are YAML strings, so this text is valid as either.
    let line = |value: &Value| value.to_string();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
         clusters:\n- name: {name}\n  cluster: {cluster}\n\
         users:\n- name: {name}\n  user: {user}\n\
         contexts:\n- name: {name}\n  context: {{\"cluster\": {name}, \"user\": {name}}}\n",
        name = line(&context.into()),
        cluster = line(&cluster),
        user = line(&user),
    )
    .into()
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(wanted: Option<&str>, exported: &str, service: Value) -> ServerAddress {
        let secret = json!({"metadata": {"name": "vc-shop", "namespace": "team",
            "labels": {"app": "vcluster", "vcluster-name": "shop"}}, "data": {"config": "aw=="}});
        let secret = KubeconfigSecret::parse(secret.to_string().as_bytes()).unwrap().unwrap();
        let wanted = wanted.map(|text| text.parse().unwrap());
        ServerAddress::find(
            wanted.as_ref(),
            &exported.parse().unwrap(),
            Some(service.to_string().as_bytes()),
            &secret,
        )
    }

    #[test]
    fn picks_best_available_address() {
        let own = "https://localhost:8443";
        let plain = address(None, own, json!({}));
        assert_eq!((plain.server.as_str(), plain.inside_only), ("https://shop.team.svc:443", true));
        assert_eq!(plain.tls_server_name.as_deref(), Some("shop.team"));
        let balanced =
            |ingress| address(None, own, json!({"status": {"loadBalancer": {"ingress": [ingress]}}})).server;
        assert_eq!(balanced(json!({"ip": "10.1.2.3"})), "https://10.1.2.3:443");
        assert_eq!(balanced(json!({"ip": "fd00::1"})), "https://[fd00::1]:443");
        assert_eq!(balanced(json!({"hostname": "a.example"})), "https://a.example:443");
        let exported = address(None, "https://shop.example", json!({}));
        assert_eq!((exported.server.as_str(), exported.tls_server_name), ("https://shop.example", None));
        let forwarded = address(Some("https://localhost:9000"), "https://shop.example", json!({}));
        assert_eq!(forwarded.server, "https://localhost:9000");
        assert_eq!(forwarded.tls_server_name.as_deref(), Some("shop.team"));
    }
}
