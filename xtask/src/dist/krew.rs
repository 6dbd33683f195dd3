//! The manifest for krew, which installs plugins of kubectl. See <https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest>.

use anyhow::Result;
use serde_json::json;

use super::build::Target;
use super::{HOMEPAGE, VERSION, sha256};

/// Returns the manifest, which is JSON and therefore YAML, for an archive that is at `url/name`.
pub(super) fn manifest(url: &str, name: &str, archive: &[u8], target: &Target) -> Result<String> {
    let stem = name.trim_end_matches(".tar.gz");
    let manifest = json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "skopos"},
        "spec": {
            "version": format!("v{VERSION}"),
            "homepage": HOMEPAGE,
            "shortDescription": "Many clusters, each answer with its age",
            "description": "Watches resources without ever being silently stale, serves the Kubernetes API of many \
                            clusters from memory with the age of every answer, and manages virtual clusters.",
            "platforms": [{
                "selector": {"matchLabels": {"os": "linux", "arch": target.oci()}},
                "uri": format!("{}/{name}", url.trim_end_matches('/')),
                "sha256": sha256(archive),
                "files": [
                    {"from": format!("{stem}/skopos"), "to": "."},
                    {"from": format!("{stem}/LICENSE"), "to": "."},
                ],
                // krew links kubectl-skopos to it.
                "bin": "skopos",
            }],
        },
    });
    Ok(serde_json::to_string_pretty(&manifest)? + "\n")
}
