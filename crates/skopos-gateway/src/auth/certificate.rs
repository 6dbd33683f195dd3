//! Client certificates: the CN is the user, the Os are the groups, as the API server reads them.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

use super::{AuthError, Identity};

/// Who a certificate is for, whose chain was checked when the connection was made.
///
/// # Errors
/// When it has expired since, or names nobody, or two.
pub(super) fn identity(
    certificate: &CertificateDer<'_>,
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
    Ok(Identity::authenticated(user, groups))
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
    fn the_common_name_is_the_user_and_organizations_are_groups() {
        let der = certificate(&[(DnType::CommonName, "jane"), (DnType::OrganizationName, "dev")]);
        let identity = identity(&der, at(NOW)).unwrap();
        assert_eq!(
            (identity.user.as_str(), identity.groups),
            ("jane", vec!["dev".into(), "system:authenticated".into()])
        );
    }

    #[test]
    fn a_connection_outlives_its_certificate_and_the_right_does_not() {
        let der = certificate(&[(DnType::CommonName, "jane")]);
        for time in ["2019-12-31T00:00:00Z", "2030-01-02T00:00:00Z"] {
            assert!(matches!(identity(&der, at(time)), Err(AuthError::Refused(_))), "{time}");
        }
    }

    #[test]
    fn a_certificate_for_nobody_is_refused() {
        for names in [&[][..], &[(DnType::CommonName, "")], &[(DnType::OrganizationName, "dev")]] {
            assert!(identity(&certificate(names), at(NOW)).is_err(), "{names:?}");
        }
        assert!(identity(&CertificateDer::from(vec![1, 2, 3]), at(NOW)).is_err());
    }
}
