use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Reads the certificates of a PEM file, as DER; at least one. Blocks.
///
/// # Errors
/// If there is no certificate or one is invalid. The error names the file and the problem.
pub fn read_certificates(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let unusable = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let pem = std::fs::read(path).map_err(|error| unusable(&error))?;
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&pem).map(|c| c.map(|c| c.to_vec())).collect();
    match all {
        Ok(all) if all.is_empty() => Err(unusable(&"it has no certificate")),
        Ok(all) => Ok(all),
        Err(error) => Err(unusable(&error)),
    }
}
