//! The Debian package: an `ar` archive of its version, its control files and its files. See `deb(5)`.

use std::path::Path;

use anyhow::{Context, Result};

use super::archive::Archiver;
use super::build::Target;
use super::payload::{Entry, Kind, Payload};
use super::{HOMEPAGE, VERSION};

/// Returns the package.
pub(super) fn package(
    root: &Path,
    payload: &Payload,
    target: &Target,
    archiver: Archiver,
) -> Result<Vec<u8>> {
    let files = payload.on_debian(archiver)?;
    let read = |name: &str| {
        let path = root.join("packaging/deb").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
    };
    let control = read("control")?
        .replace("{version}", VERSION)
        .replace("{architecture}", target.debian())
        .replace("{kibibytes}", &kibibytes(&files).to_string())
        .replace("{homepage}", HOMEPAGE);
    let mut control = vec![Entry::file("control", control)];
    for script in ["postinst", "prerm", "postrm"] {
        control.push(Entry::program(script, read(script)?));
    }
    let mut package = ar::Builder::new(Vec::new());
    for (name, content) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", archiver.tar_gz(&control)?),
        ("data.tar.gz", archiver.tar_gz(&files)?),
    ] {
        let mut header = ar::Header::new(name.into(), content.len() as u64);
        header.set_mtime(archiver.time);
        header.set_mode(0o100_644);
        package.append(&header, content.as_slice())?;
    }
    Ok(package.into_inner()?)
}

/// Returns the size on a disk, in the unit of the control file.
fn kibibytes(files: &[Entry]) -> usize {
    files
        .iter()
        .map(|entry| match &entry.kind {
            Kind::File { content, .. } => content.len().div_ceil(1024),
            Kind::Folder { .. } | Kind::Link { .. } => 1,
        })
        .sum()
}
