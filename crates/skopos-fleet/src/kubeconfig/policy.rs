use super::error::KubeconfigError;
use super::file::{ClusterEntry, UserEntry};
use super::some;
use crate::address::AddressPolicy;

/// What a kubeconfig may ask for. Each switch admits one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KubeconfigPolicy {
    /// `exec`: runs a program of its choice.
    pub allow_exec: bool,
    /// `auth-provider`: the older form of it.
    pub allow_auth_provider: bool,
    /// `certificate-authority`: reads a file of its choice.
    pub allow_certificate_authority_file: bool,
    /// `client-certificate`: reads a file of its choice.
    pub allow_client_certificate_file: bool,
    /// `client-key`: reads a file of its choice, and proves to the server that it has it.
    pub allow_client_key_file: bool,
    /// `tokenFile`: sends a file of its choice to the server.
    pub allow_token_file: bool,
    /// `insecure-skip-tls-verify`: whoever is on the way reads and answers everything.
    pub allow_insecure_skip_tls_verify: bool,
    /// `http://` servers: the same.
    pub allow_http: bool,
    /// `proxy-url`: connections are made by whoever it names. With it the environment's `HTTPS_PROXY` and `NO_PROXY` count
    /// where there is no `proxy-url`. Only together with [`AddressPolicy::anywhere`]: nobody here sees where a proxy connects to.
    pub allow_proxy: bool,
    /// No `certificate-authority-data`: any public CA vouches for the server.
    pub allow_system_roots: bool,
    /// Where its server may be.
    pub addresses: AddressPolicy,
    /// The largest kubeconfig that is read, in bytes.
    pub max_bytes: usize,
}

impl KubeconfigPolicy {
    /// For kubeconfigs of strangers: nothing is admitted, everything has to be inline, and the server has to be outside
    /// ([`AddressPolicy::outside`]). At most 1 MiB, the most that a Secret can hold.
    pub fn hostile() -> Self {
        Self {
            allow_exec: false,
            allow_auth_provider: false,
            allow_certificate_authority_file: false,
            allow_client_certificate_file: false,
            allow_client_key_file: false,
            allow_token_file: false,
            allow_insecure_skip_tls_verify: false,
            allow_http: false,
            allow_proxy: false,
            allow_system_roots: false,
            addresses: AddressPolicy::outside(),
            max_bytes: 1 << 20,
        }
    }

    /// For the user's own kubeconfigs, such as `~/.kube/config`: everything that kubectl would do. At most 16 MiB.
    pub fn trusted() -> Self {
        Self {
            allow_exec: true,
            allow_auth_provider: true,
            allow_certificate_authority_file: true,
            allow_client_certificate_file: true,
            allow_client_key_file: true,
            allow_token_file: true,
            allow_insecure_skip_tls_verify: true,
            allow_http: true,
            allow_proxy: true,
            allow_system_roots: true,
            addresses: AddressPolicy::anywhere(),
            max_bytes: 16 << 20,
        }
    }

    pub(super) fn check_cluster(&self, cluster: &ClusterEntry) -> Result<(), KubeconfigError> {
        let refused = |field, reason, switch| Err(KubeconfigError::Refused { field, reason, switch });
        if some(&cluster.certificate_authority).is_some() && !self.allow_certificate_authority_file {
            return refused("certificate-authority", READS, Some("allow_certificate_authority_file"));
        }
        if cluster.insecure_skip_tls_verify == Some(true) && !self.allow_insecure_skip_tls_verify {
            let why = "whoever is on the way could read and answer everything";
            return refused("insecure-skip-tls-verify", why, Some("allow_insecure_skip_tls_verify"));
        }
        if some(&cluster.proxy_url).is_some() && !self.allow_proxy {
            return refused("proxy-url", "it would connect to wherever it likes", Some("allow_proxy"));
        }
        if some(&cluster.proxy_url).is_some() && !self.admits_proxies() {
            return refused("proxy-url", "nobody could judge the addresses that it connects to", None);
        }
        Ok(())
    }

    pub(super) fn admits_proxies(&self) -> bool {
        self.allow_proxy && self.addresses == AddressPolicy::anywhere()
    }

    pub(super) fn check_user(&self, user: &UserEntry) -> Result<(), KubeconfigError> {
        let asked = [
            (user.exec.is_some(), self.allow_exec, "exec", RUNS, "allow_exec"),
            (
                user.auth_provider.is_some(),
                self.allow_auth_provider,
                "auth-provider",
                RUNS,
                "allow_auth_provider",
            ),
            (
                some(&user.client_certificate).is_some(),
                self.allow_client_certificate_file,
                "client-certificate",
                READS,
                "allow_client_certificate_file",
            ),
            (
                some(&user.client_key).is_some(),
                self.allow_client_key_file,
                "client-key",
                READS,
                "allow_client_key_file",
            ),
            (some(&user.token_file).is_some(), self.allow_token_file, "tokenFile", SENDS, "allow_token_file"),
        ];
        match asked.into_iter().find(|(asked, admitted, ..)| *asked && !admitted) {
            Some((.., field, reason, switch)) => {
                Err(KubeconfigError::Refused { field, reason, switch: Some(switch) })
            }
            None => Ok(()),
        }
    }
}

const RUNS: &str = "it runs a program";
const READS: &str = "it reads a local file";
const SENDS: &str = "it sends a local file to the server";
