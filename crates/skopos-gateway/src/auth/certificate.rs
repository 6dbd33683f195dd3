//! Client certificates: the CN is the user, the Os are the groups, as the API server reads them.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use super::{AuthError, Identity};
use crate::config::ClientCertificates;

/// The clusters in which a certificate's `system:` user or groups are valid.
#[derive(Clone, Debug, Default)]
pub(super) enum SystemNames {
    /// No cluster: the certificate is refused.
    #[default]
    Refused,
    /// This cluster, whose CA signs the certificates.
    Of(Arc<str>),
    /// All clusters.
    Shared,
}

impl From<&ClientCertificates> for SystemNames {
    fn from(options: &ClientCertificates) -> Self {
        match &options.system_of {
            _ if options.shared_accounts => Self::Shared,
            Some(cluster) => Self::Of(cluster.as_str().into()),
            None => Self::Refused,
        }
    }
}

/// Returns the identity in a certificate. The TLS handshake has verified its chain.
///
/// # Errors
/// Returns an error if it has expired since, if it has no common name or two, or if it names a `system:` user or group
/// that is not valid here.
pub(super) fn identity(
    certificate: &CertificateDer<'_>,
    system: &SystemNames,
    now: jiff::Timestamp,
) -> Result<Identity, AuthError> {
    let refused = |why: &'static str| AuthError::Refused(why);
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|_| refused("the certificate is broken"))?;
    let validity = parsed.validity();
    if now.as_second() < validity.not_before.timestamp() || now.as_second() > validity.not_after.timestamp() {
        return Err(refused("the certificate has expired, or is not valid yet"));
    }
    let subject = parsed.subject();
    let mut names = subject.iter_common_name().map(text);
    let (Some(Some(user)), None) = (names.next(), names.next()) else {
        return Err(refused("the certificate must have one common name"));
    };
    if user.is_empty() {
        return Err(refused("the certificate's common name is empty"));
    }
    let groups: Option<Vec<String>> = subject.iter_organization().map(text).collect();
    let groups = groups.ok_or(refused("an organization of the certificate is no text"))?;
    let mut identity = Identity::authenticated(user, groups);
    if identity.is_of_system() {
        identity.home = match system {
            SystemNames::Shared => None,
            SystemNames::Of(cluster) => Some(cluster.clone()),
            SystemNames::Refused => {
                return Err(refused(
                    "the certificate names a user or group that begins with system:, which means something in the cluster that \
                     gave it out alone: set authentication.clientCertificates.systemOf to that cluster",
                ));
            }
        };
    }
    Ok(identity)
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    attribute.as_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn at(time: &str) -> jiff::Timestamp {
        time.parse().unwrap()
    }

    const NOW: &str = "2026-01-01T00:00:00Z";

    #[test]
    fn maps_common_name_to_user_organization_to_group() {
        let der = certificate(&[(DnType::CommonName, "jane"), (DnType::OrganizationName, "dev")]);
        let identity = identity(&der, &SystemNames::Refused, at(NOW)).unwrap();
        assert_eq!(
            (identity.user.as_str(), identity.groups),
            ("jane", vec!["dev".into(), "system:authenticated".into()])
        );
    }

    #[test]
    fn rejects_certificate_outside_validity_period() {
        let der = certificate(&[(DnType::CommonName, "jane")]);
        for time in ["2019-12-31T00:00:00Z", "2030-01-02T00:00:00Z"] {
            assert!(
                matches!(identity(&der, &SystemNames::Refused, at(time)), Err(AuthError::Refused(_))),
                "{time}"
            );
        }
    }

    #[test]
    fn rejects_certificate_without_common_name() {
        for names in [&[][..], &[(DnType::CommonName, "")], &[(DnType::OrganizationName, "dev")]] {
            assert!(identity(&certificate(names), &SystemNames::Refused, at(NOW)).is_err(), "{names:?}");
        }
        let broken = CertificateDer::from(vec![1, 2, 3]);
        assert!(identity(&broken, &SystemNames::Refused, at(NOW)).is_err());
    }

    #[test]
    fn system_names_are_those_of_one_cluster() {
        let home = SystemNames::Of("a".into());
        for names in [
            &[(DnType::CommonName, "kubernetes-admin"), (DnType::OrganizationName, "system:masters")][..],
            &[(DnType::CommonName, "system:node:n1"), (DnType::OrganizationName, "system:nodes")],
            &[(DnType::CommonName, "system:serviceaccount:red:x")],
            &[(DnType::CommonName, "system:")],
        ] {
            let der = certificate(names);
            assert!(
                matches!(identity(&der, &SystemNames::Refused, at(NOW)), Err(AuthError::Refused(_))),
                "{names:?}"
            );
            let own = identity(&der, &home, at(NOW)).unwrap();
            assert!(own.is_known_in("a") && !own.is_known_in("b"), "{own:?}");
            assert!(identity(&der, &SystemNames::Shared, at(NOW)).unwrap().is_known_in("b"));
        }
        let jane =
            certificate(&[(DnType::CommonName, "jane"), (DnType::OrganizationName, "system:authenticated")]);
        for system in [&SystemNames::Refused, &home] {
            assert!(identity(&jane, system, at(NOW)).unwrap().is_known_in("b"), "of no cluster");
        }
    }
}
