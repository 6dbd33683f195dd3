//! The packages: an archive, a Debian package, an image, a manifest for krew, the list of crates, and checksums.
//!
//! ```text
//!  cargo build ─▶ binary ─▶ man pages, completions
//!                   │             │
//!                   └──▶ payload ◀┘◀── packaging/, LICENSE, SBOM
//!                          │
//!          ┌───────────────┼──────────────┐
//!          ▼               ▼              ▼
//!       archive ─▶ krew   deb           image      ─▶ SHA256SUMS
//! ```
//!
//! The same commit gives the same bytes, in any folder: files are sorted, belong to root, and have the time of the commit.

mod archive;
mod build;
mod deb;
mod image;
mod krew;
mod payload;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use sha2::{Digest, Sha256};

use self::archive::Archiver;
use self::build::Target;
use self::payload::Payload;
use crate::deps;

/// Options of the packages.
#[derive(clap::Args)]
pub(crate) struct Dist {
    /// Build for this target. Where its standard library is installed the default is the static
    /// x86_64-unknown-linux-musl; else it is x86_64-unknown-linux-gnu, linked statically.
    #[arg(long)]
    target: Option<String>,
    /// Package this binary, and build nothing: quick, for trying the packages.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Write the packages into this folder, and replace its content.
    #[arg(long, value_name = "FOLDER", default_value = "target/dist")]
    out: PathBuf,
    /// Name this URL as the folder of the archive in the manifest of krew. Default: releases of the repository.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

/// Version of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Address of the project.
const HOMEPAGE: &str = env!("CARGO_PKG_REPOSITORY");

impl Dist {
    pub(crate) fn run(self) -> Result<()> {
        let root = deps::root().canonicalize()?;
        let target = Target::choose(self.target)?;
        let (binary, compression) = match self.binary {
            Some(binary) => (binary, Compression::fast()),
            None => (build::build(&root, &target)?, Compression::best()),
        };
        let sbom = deps::sbom(&root)?;
        let payload = Payload::new(&root, &binary, &sbom)?;
        let archiver = Archiver { time: build::time(&root)?, compression };
        let stem = format!("skopos-{VERSION}-{}", target.name());
        let archive = archiver.tar_gz(&payload.in_folder(&stem))?;
        let url = self.url.unwrap_or_else(|| format!("{HOMEPAGE}/releases/download/v{VERSION}"));
        let krew = krew::manifest(&url, &format!("{stem}.tar.gz"), &archive, &target)?;
        let files = [
            (
                format!("skopos_{VERSION}_{}.deb", target.debian()),
                deb::package(&root, &payload, &target, archiver)?,
            ),
            (
                format!("skopos-{VERSION}-image-{}.tar", target.oci()),
                image::archive(&payload, &target, archiver)?,
            ),
            (format!("skopos-{VERSION}.cdx.json"), sbom.into_bytes()),
            ("krew-skopos.yaml".to_owned(), krew.into_bytes()),
            (format!("{stem}.tar.gz"), archive),
        ];
        write(&self.out, files)
    }
}

fn write<const N: usize>(out: &Path, mut files: [(String, Vec<u8>); N]) -> Result<()> {
    files.sort();
    if out.exists() {
        std::fs::remove_dir_all(out).with_context(|| format!("{}", out.display()))?;
    }
    std::fs::create_dir_all(out).with_context(|| format!("{}", out.display()))?;
    let mut sums = String::new();
    for (name, content) in &files {
        std::fs::write(out.join(name), content)?;
        sums += &format!("{}  {name}\n", sha256(content));
        println!("{:>12} bytes  {}", content.len(), out.join(name).display());
    }
    std::fs::write(out.join("SHA256SUMS"), sums)?;
    println!("their checksums: {}", out.join("SHA256SUMS").display());
    Ok(())
}

/// Returns the SHA-256 of bytes, in hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
