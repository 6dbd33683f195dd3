//! The container image: an OCI image layout in a tar archive, of one layer. Its documents are small, and the same bytes are
//! wanted each time, so they are written here.
//!
//! See <https://github.com/opencontainers/image-spec>: `image-layout.md`, `manifest.md`, `config.md`.

use anyhow::Result;
use serde_json::{Value, json};

use super::archive::Archiver;
use super::build::Target;
use super::payload::{Entry, Payload};
use super::{HOMEPAGE, VERSION, sha256};

/// Numeric user and group of the process, as in distroless images. Kubernetes' `runAsNonRoot` wants a number.
const USER: u64 = 65532;

/// Returns the archive.
pub(super) fn archive(payload: &Payload, target: &Target, archiver: Archiver) -> Result<Vec<u8>> {
    let layer = archiver.tar(&payload.in_image(USER))?;
    let diff_id = digest(&layer);
    let layer = Blob::new("application/vnd.oci.image.layer.v1.tar+gzip", archiver.gzip(&layer)?);
    let config = Blob::new("application/vnd.oci.image.config.v1+json", config(target, &diff_id));
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor(),
        "layers": [layer.descriptor()],
    });
    let manifest = Blob::new("application/vnd.oci.image.manifest.v1+json", manifest.to_string().into_bytes());
    let mut described = manifest.descriptor();
    described["platform"] = json!({"architecture": target.oci(), "os": "linux"});
    described["annotations"] = json!({"org.opencontainers.image.ref.name": VERSION});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    });
    let mut entries = vec![
        Entry::file("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string()),
        Entry::file("index.json", index.to_string()),
    ];
    entries.extend([layer, config, manifest].map(Blob::into_entry));
    archiver.tar(&entries)
}

fn config(target: &Target, diff_id: &str) -> Vec<u8> {
    let config = json!({
        "architecture": target.oci(),
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin", "HOME=/var/lib/skopos"],
            "Entrypoint": ["/usr/bin/skopos"],
            "Cmd": ["--help"],
            "WorkingDir": "/var/lib/skopos",
            "Labels": {
                "org.opencontainers.image.title": "skopos",
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
                "org.opencontainers.image.source": HOMEPAGE,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    });
    config.to_string().into_bytes()
}

/// Content with its type, named by its digest.
struct Blob {
    media_type: &'static str,
    content: Vec<u8>,
}

impl Blob {
    fn new(media_type: &'static str, content: Vec<u8>) -> Self {
        Self { media_type, content }
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": digest(&self.content), "size": self.content.len()})
    }

    fn into_entry(self) -> Entry {
        Entry::file(format!("blobs/sha256/{}", sha256(&self.content)), self.content)
    }
}

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", sha256(content))
}
