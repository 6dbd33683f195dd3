//! Says before the first handshake that a client certificate is unreadable or has expired.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use kube::config::AuthInfo;
use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::error::ConfigError;

/// Checks the client certificate that `auth` names, if any.
pub(crate) fn check_client(auth: &AuthInfo) -> Result<(), ConfigError> {
    let Some(pem) = client_pem(auth)? else { return Ok(()) };
    let first = CertificateDer::from_pem_slice(&pem)
        .map_err(|e| ConfigError::ClientCertificate(format!("no certificate in it: {e}")))?;
    let not_after = not_after(&first)
        .ok_or_else(|| ConfigError::ClientCertificate("is not an X.509 certificate".into()))?;
    if not_after < now() {
        return Err(ConfigError::ClientCertificateExpired { not_after });
    }
    Ok(())
}

/// Whether it is of no use any more. What cannot be read has not expired.
pub(crate) fn has_expired(certificate: &CertificateDer<'_>) -> bool {
    not_after(certificate).is_some_and(|not_after| not_after < now())
}

/// In seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

fn client_pem(auth: &AuthInfo) -> Result<Option<Vec<u8>>, ConfigError> {
    let bad = |reason: String| ConfigError::ClientCertificate(reason);
    if let Some(data) = &auth.client_certificate_data {
        let data = data.split_ascii_whitespace().collect::<String>();
        let pem = base64::engine::general_purpose::STANDARD.decode(data);
        return pem.map(Some).map_err(|e| bad(format!("client-certificate-data is not base64: {e}")));
    }
    match &auth.client_certificate {
        Some(path) => std::fs::read(path).map(Some).map_err(|e| bad(format!("cannot read {path}: {e}"))),
        None => Ok(None),
    }
}

/// The end of validity of a DER certificate, in seconds since 1970. Reads no further than it must (RFC 5280, 4.1).
fn not_after(der: &[u8]) -> Option<i64> {
    let (_, certificate, _) = element(der)?;
    let (_, mut rest, _) = element(certificate)?;
    if rest.first() == Some(&0xa0) {
        rest = element(rest)?.2; // version
    }
    for _serial_algorithm_issuer in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (_, _not_before, rest) = element(validity)?;
    let (tag, time, _) = element(rest)?;
    parse_time(tag, time)
}

/// Splits off the first DER element: its tag, its content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, der) = der.split_first()?;
    let (&first, mut der) = der.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let bytes = usize::from(first & 0x7f);
        if bytes == 0 || bytes > 4 || der.len() < bytes {
            return None;
        }
        length = der[..bytes].iter().fold(0, |n, b| n << 8 | usize::from(*b));
        der = &der[bytes..];
    }
    if der.len() < length {
        return None;
    }
    let (content, rest) = der.split_at(length);
    Some((tag, content, rest))
}

/// UTCTime (`YYMMDDHHMMSSZ`) or GeneralizedTime (`YYYYMMDDHHMMSSZ`).
fn parse_time(tag: u8, time: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let (year, rest) = match (tag, text.len()) {
        (0x17, 12) => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year >= 50 { 1900 + year } else { 2000 + year }, rest)
        }
        (0x18, 14) => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let field = |i: usize| rest.get(i..i + 2)?.parse::<i64>().ok();
    let (month, day) = (field(0)?, field(2)?);
    Some(days_from_civil(year, month, day) * 86_400 + field(4)? * 3600 + field(6)? * 60 + field(8)?)
}

/// Days since 1970-01-01 of a date in the Gregorian calendar, with years beginning in March so that the leap day is last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(parse_time(0x17, b"700101000000Z"), Some(0));
        assert_eq!(parse_time(0x17, b"260304130950Z"), Some(1_772_629_790));
        assert_eq!(parse_time(0x18, b"20000229120000Z"), Some(951_825_600));
        assert_eq!(parse_time(0x18, b"99991231235959Z"), Some(253_402_300_799));
        assert_eq!(parse_time(0x17, b"x"), None);
        // As many bytes as there should be, and a character that lies across the end of the year.
        assert_eq!(parse_time(0x17, "1é123456789Z".as_bytes()), None);
        assert_eq!(parse_time(0x18, "123é123456789Z".as_bytes()), None);
    }

    #[test]
    fn hostile_bytes_are_refused() {
        for bytes in [&b""[..], b"\x30", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"\x30\x03\x30\x01\x02"] {
            assert_eq!(not_after(bytes), None);
        }
    }
}
