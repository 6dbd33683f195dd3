use super::{KubeconfigError, KubeconfigFeature};
use crate::address::AddressPolicy;

/// Policy of the features that a kubeconfig may use. Each switch allows one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KubeconfigPolicy {
    /// Allow `exec`: runs a program of the kubeconfig's choice.
    pub allow_exec: bool,
    /// Allow `auth-provider`: the older form of `exec`.
    pub allow_auth_provider: bool,
    /// Allow `certificate-authority`: reads a file of the kubeconfig's choice.
    pub allow_certificate_authority_file: bool,
    /// Allow `client-certificate`: reads a file of the kubeconfig's choice.
    pub allow_client_certificate_file: bool,
    /// Allow `client-key`: reads a file of the kubeconfig's choice, and proves possession of it to the server.
    pub allow_client_key_file: bool,
    /// Allow `tokenFile`: sends a file of the kubeconfig's choice to the server.
    pub allow_token_file: bool,
    /// Allow `insecure-skip-tls-verify`: an attacker on the network path can read and forge everything.
    pub allow_insecure_skip_tls_verify: bool,
    /// Allow `http://` servers: same risk.
    pub allow_http: bool,
    /// Allow `proxy-url`: the named proxy makes the connections. It also enables `HTTPS_PROXY` and `NO_PROXY` of the
    /// environment where there is no `proxy-url`. Requires [`AddressPolicy::anywhere`], because the addresses that a
    /// proxy connects to cannot be checked here.
    pub allow_proxy: bool,
    /// Allow a missing `certificate-authority-data`: any public CA vouches for the server.
    pub allow_system_roots: bool,
    /// The allowed addresses of the server.
    pub addresses: AddressPolicy,
    /// The size limit of a kubeconfig, in bytes.
    pub max_bytes: usize,
}

impl KubeconfigPolicy {
    /// Creates a policy for untrusted kubeconfigs: no feature is allowed, everything has to be inline, and the server
    /// has to be outside ([`AddressPolicy::outside`]). At most 1 MiB, the most that a Secret can hold.
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

    /// Creates a policy for the user's own kubeconfigs, such as `~/.kube/config`: everything that kubectl would do. At
    /// most 16 MiB.
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

    /// Allows a feature, or refuses it with the switch that would allow it.
    pub(super) fn admit(&self, feature: KubeconfigFeature) -> Result<(), KubeconfigError> {
        use KubeconfigFeature::{
            AuthProvider, CertificateAuthorityFile, ClientCertificateFile, ClientKeyFile, EnvironmentProxy,
            Exec, Http, InsecureSkipTlsVerify, ProxyUrl, SystemRoots, TokenFile,
        };
        let (admitted, switch) = match feature {
            Exec => (self.allow_exec, "allow_exec"),
            AuthProvider => (self.allow_auth_provider, "allow_auth_provider"),
            CertificateAuthorityFile => {
                (self.allow_certificate_authority_file, "allow_certificate_authority_file")
            }
            ClientCertificateFile => (self.allow_client_certificate_file, "allow_client_certificate_file"),
            ClientKeyFile => (self.allow_client_key_file, "allow_client_key_file"),
            TokenFile => (self.allow_token_file, "allow_token_file"),
            InsecureSkipTlsVerify => (self.allow_insecure_skip_tls_verify, "allow_insecure_skip_tls_verify"),
            Http => (self.allow_http, "allow_http"),
            SystemRoots if !self.allow_system_roots => return Err(KubeconfigError::NoCertificateAuthority),
            // The addresses that a proxy connects to cannot be checked here.
            ProxyUrl | EnvironmentProxy if self.allow_proxy && !self.admits_proxies() => {
                return Err(KubeconfigError::refused(feature, None));
            }
            ProxyUrl | EnvironmentProxy => (self.allow_proxy, "allow_proxy"),
            SystemRoots => (true, ""),
            _ => return Err(KubeconfigError::refused(feature, None)),
        };
        match admitted {
            true => Ok(()),
            false => Err(KubeconfigError::refused(feature, Some(switch))),
        }
    }

    fn admits_proxies(&self) -> bool {
        self.allow_proxy && self.addresses == AddressPolicy::anywhere()
    }
}
