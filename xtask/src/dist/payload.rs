//! The files that packages install.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::archive::Archiver;

/// File, symbolic link or folder of a package.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Path without a leading slash.
    pub(super) path: String,
    pub(super) kind: Kind,
    /// Numeric user and group.
    pub(super) owner: u64,
}

/// Content of an entry.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Folder { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Link { to: String },
}

impl Entry {
    pub(super) fn file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), kind: Kind::File { mode: 0o644, content: content.into() }, owner: 0 }
    }

    pub(super) fn program(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), kind: Kind::File { mode: 0o755, content: content.into() }, owner: 0 }
    }

    pub(super) fn folder(path: impl Into<String>, mode: u32, owner: u64) -> Self {
        Self { path: path.into(), kind: Kind::Folder { mode }, owner }
    }

    pub(super) fn link(path: impl Into<String>, to: impl Into<String>) -> Self {
        Self { path: path.into(), kind: Kind::Link { to: to.into() }, owner: 0 }
    }

    fn moved(&self, path: String) -> Self {
        Self { path, ..self.clone() }
    }
}

/// Everything that a package may install.
pub(super) struct Payload {
    pub(super) binary: Vec<u8>,
    licence: Vec<u8>,
    sbom: Vec<u8>,
    /// Name and content.
    man_pages: Vec<(String, Vec<u8>)>,
    /// Bash, zsh, fish.
    completions: [Vec<u8>; 3],
    /// Name and content.
    units: [(&'static str, Vec<u8>); 2],
    sysusers: Vec<u8>,
    /// Name and content.
    examples: [(&'static str, Vec<u8>); 2],
}

impl Payload {
    /// Collects the files. Man pages and completions are what the binary writes.
    pub(super) fn new(root: &Path, binary: &Path, sbom: &str) -> Result<Self> {
        let read = |path: &str| {
            let path = root.join(path);
            std::fs::read(&path).with_context(|| format!("{}", path.display()))
        };
        let completion = |shell: &str| output(Command::new(binary).args(["completion", shell]));
        Ok(Self {
            man_pages: man_pages(binary)?,
            completions: [completion("bash")?, completion("zsh")?, completion("fish")?],
            binary: std::fs::read(binary).with_context(|| format!("{}", binary.display()))?,
            licence: read("LICENSE")?,
            sbom: sbom.into(),
            units: [
                ("skopos-serve.service", read("packaging/skopos-serve.service")?),
                ("skopos-notify.service", read("packaging/skopos-notify.service")?),
            ],
            sysusers: read("packaging/skopos.sysusers")?,
            examples: [
                ("gateway.yaml", read("docs/reference/gateway.example.yaml")?),
                ("notify.yaml", read("docs/reference/notify.example.yaml")?),
            ],
        })
    }

    /// Returns what the archive has: all of it in one folder.
    pub(super) fn in_folder(&self, folder: &str) -> Vec<Entry> {
        let [bash, zsh, fish] = self.completions.clone();
        let mut entries = vec![
            Entry::program("skopos", self.binary.clone()),
            Entry::file("LICENSE", self.licence.clone()),
            Entry::file("skopos.cdx.json", self.sbom.clone()),
            Entry::file("completions/skopos.bash", bash),
            Entry::file("completions/_skopos", zsh),
            Entry::file("completions/skopos.fish", fish),
            Entry::file("systemd/skopos.sysusers", self.sysusers.clone()),
        ];
        entries.extend(
            self.man_pages.iter().map(|(name, page)| Entry::file(format!("man/{name}"), page.clone())),
        );
        entries.extend(
            self.units.iter().map(|(name, unit)| Entry::file(format!("systemd/{name}"), unit.clone())),
        );
        entries.extend(
            self.examples.iter().map(|(name, text)| Entry::file(format!("examples/{name}"), text.clone())),
        );
        entries.iter().map(|entry| entry.moved(format!("{folder}/{}", entry.path))).collect()
    }

    /// Returns what the Debian package has, by the rules of Debian's policy.
    pub(super) fn on_debian(&self, archiver: Archiver) -> Result<Vec<Entry>> {
        let [bash, zsh, fish] = self.completions.clone();
        let mut entries = vec![
            Entry::program("usr/bin/skopos", self.binary.clone()),
            // kubectl finds its plugins by their names.
            Entry::link("usr/bin/kubectl-skopos", "skopos"),
            Entry::file("usr/share/bash-completion/completions/skopos", bash),
            Entry::file("usr/share/zsh/vendor-completions/_skopos", zsh),
            Entry::file("usr/share/fish/vendor_completions.d/skopos.fish", fish),
            Entry::file("usr/lib/sysusers.d/skopos.conf", self.sysusers.clone()),
            Entry::file("usr/share/doc/skopos/copyright", self.licence.clone()),
            Entry::file("usr/share/doc/skopos/skopos.cdx.json", self.sbom.clone()),
        ];
        for (name, page) in &self.man_pages {
            entries.push(Entry::file(format!("usr/share/man/man1/{name}.gz"), archiver.gzip(page)?));
        }
        entries.extend(
            self.units
                .iter()
                .map(|(name, unit)| Entry::file(format!("lib/systemd/system/{name}"), unit.clone())),
        );
        entries.extend(
            self.examples.iter().map(|(name, text)| {
                Entry::file(format!("usr/share/doc/skopos/examples/{name}"), text.clone())
            }),
        );
        Ok(entries)
    }

    /// Returns what the image has: the program, and what it needs where there is nothing else.
    pub(super) fn in_image(&self, user: u64) -> Vec<Entry> {
        vec![
            Entry::program("usr/bin/skopos", self.binary.clone()),
            Entry::file("etc/passwd", format!("skopos:x:{user}:{user}::/var/lib/skopos:/sbin/nologin\n")),
            Entry::file("etc/group", format!("skopos:x:{user}:\n")),
            Entry::file("etc/ssl/certs/ca-certificates.crt", certificate_authorities()),
            Entry::file("usr/share/doc/skopos/LICENSE", self.licence.clone()),
            Entry::file("usr/share/doc/skopos/skopos.cdx.json", self.sbom.clone()),
            Entry::folder("tmp", 0o1777, 0),
            Entry::folder("var/lib/skopos", 0o700, user),
        ]
    }
}

fn man_pages(binary: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = tempfile::tempdir()?;
    output(Command::new(binary).arg("man").arg(folder.path()))?;
    let mut pages = Vec::new();
    for page in std::fs::read_dir(folder.path())? {
        let page = page?;
        pages.push((page.file_name().to_string_lossy().into_owned(), std::fs::read(page.path())?));
    }
    pages.sort();
    Ok(pages)
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output =
        command.output().with_context(|| format!("{command:?}: does the binary run on this machine?"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// Returns the authorities that Mozilla trusts, as `ca-certificates.crt` of Debian has them.
fn certificate_authorities() -> String {
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    let pems: Vec<_> = roots.map(|root| pem::Pem::new("CERTIFICATE", root.as_ref())).collect();
    pem::encode_many_config(&pems, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
}
