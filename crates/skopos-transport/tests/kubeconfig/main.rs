//! Tests of kubectl's rules for kubeconfigs, one each (docs/reference/kubeconfig.md has their table). Skopos is tested against each,
//! and so is kubectl itself if it is installed (`SKOPOS_KUBECTL=1` requires it).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod certificates;
mod files;
mod plugins;
mod users;
mod world;

#[test]
fn kubeconfig_table_matches_tests() {
    let table = include_str!("../../../../docs/reference/kubeconfig.md");
    let tests = [
        ("certificates", include_str!("certificates.rs")),
        ("files", include_str!("files.rs")),
        ("plugins", include_str!("plugins.rs")),
        ("users", include_str!("users.rs")),
    ];
    let quoted = table.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let named: Vec<(&str, &str)> = quoted.filter_map(|text| text.split_once("::")).collect();
    for (file, source) in tests {
        let mut lines = source.lines().map(str::trim);
        while lines.by_ref().any(|line| line == "#[tokio::test]") {
            let line = lines.next().unwrap();
            let name = line.strip_prefix("async fn ").unwrap().split('(').next().unwrap();
            assert!(
                named.contains(&(file, name)),
                "docs/reference/kubeconfig.md has no row for {file}::{name}"
            );
        }
        for (_, name) in named.iter().filter(|(named, _)| *named == file) {
            assert!(source.contains(&format!("async fn {name}(")), "{file}::{name} does not exist");
        }
    }
    assert!(named.iter().filter(|(file, _)| *file != "skopos").count() > 40);
}
