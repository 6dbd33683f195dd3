//! Tests of docs/reference against the program. Three pages are written from the schemas and the command line; the names in
//! headers.md and errors.md are compared with the sources. tests/cli/reference.rs compares metrics.md with what runs.
//!
//! ```text
//!  schemas ──────▶ configuration ─▶ gateway-config.md, notify-config.md
//!  clap command ─▶ command_line ──▶ command-line.md
//!        └───────▶ console ◀── `skopos ...` in the console blocks of the READMEs and of docs/**/*.md
//!  sources ──────▶ names ◀────── headers.md, errors.md
//! ```
mod command_line;
mod configuration;
mod console;
mod markdown;
mod names;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use skopos_notify::config::NotifyConfig;

use crate::args::Cli;

/// The command that rewrites the pages.
const WRITE: &str = "SKOPOS_WRITE=1 cargo test -p skopos-cli --bin skopos reference";

#[test]
fn gateway_configuration_is_current() {
    check(
        "gateway-config.md",
        &configuration::page(&configuration::GATEWAY, &skopos_gateway::config::json_schema()),
    );
}

#[test]
fn notifier_configuration_is_current() {
    check(
        "notify-config.md",
        &configuration::page(&configuration::NOTIFIER, &skopos_config::json_schema::<NotifyConfig>()),
    );
}

#[test]
fn command_line_is_current() {
    check("command-line.md", &command_line::page(Cli::command()));
}

#[test]
fn commands_in_docs_parse() {
    let mut files = Vec::new();
    ["README.md", "README.zh-CN.md"].into_iter().for_each(|name| files.push(repository().join(name)));
    ["docs", "crates"]
        .into_iter()
        .for_each(|folder| find_files(&repository().join(folder), "md", &mut files));
    let (mut found, mut problems) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a page");
        let name = relative(&file).display().to_string();
        for (line, words) in console::commands_of_page(&text) {
            found += 1;
            problems.extend(console::problem(&words).map(|problem| format!("{name}:{line}: {problem}")));
        }
    }
    assert!(problems.is_empty(), "these commands do not parse:\n{}", problems.join("\n"));
    assert!(found > 50, "only {found} commands were found: are they in console blocks?");
}

#[test]
fn headers_and_annotations_are_listed() {
    let mut files = Vec::new();
    for crate_folder in std::fs::read_dir(repository().join("crates")).expect("the crates") {
        let crate_folder = crate_folder.expect("a crate").path();
        // The simulation and the test server have no headers and annotations of their own.
        let sources = crate_folder.join("src");
        let is_model = crate_folder.ends_with("skopos-sim") || crate_folder.ends_with("skopos-testserver");
        if !is_model && sources.is_dir() {
            find_files(&sources, "rs", &mut files);
        }
    }
    files.retain(|file| !names::is_test(&relative(file)));
    let sources: Vec<_> =
        files.iter().map(|file| std::fs::read_to_string(file).expect("a source file")).collect();
    let used = names::in_sources(sources.iter().map(String::as_str));
    let listed = names::in_page(&page_text("headers.md"));
    let missing: Vec<_> = used.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/reference/headers.md does not name {missing:?}");
    let is_ours = |name: &str| name.contains("skopos.dev/") || name.starts_with("skopos-");
    let is_name =
        |name: &str| !name.contains([' ', '=']) && (!name.starts_with("skopos-") || !name.contains('/'));
    let gone: Vec<_> = listed.difference(&used).filter(|name| is_ours(name) && is_name(name)).collect();
    assert!(gone.is_empty(), "docs/reference/headers.md names {gone:?}, which no source file has");
}

/// The errors that errors.md lists: the heading, the file, and the name of the type.
const ERRORS: [(&str, &str, &str); 32] = [
    ("### `ConnectError`", "skopos/src/factory/connect.rs", "ConnectError"),
    ("### `BuildError`", "skopos/src/error.rs", "BuildError"),
    ("### `HandlerNotSynced`", "skopos/src/error.rs", "HandlerNotSynced"),
    ("### `WaitError`", "skopos/src/error.rs", "WaitError"),
    ("### `ReadError`", "skopos/src/error.rs", "ReadError"),
    ("### `LiveError`", "skopos/src/error.rs", "LiveError"),
    ("### `ReadOneError`", "skopos/src/error.rs", "ReadOneError"),
    ("### `AuditError`", "skopos/src/error.rs", "AuditError"),
    ("### `CheckpointError`", "skopos/src/checkpoint/error.rs", "CheckpointError"),
    ("### `NoCheckpoint`", "skopos/src/checkpoint/error.rs", "NoCheckpoint"),
    ("### `JournalError`", "skopos/src/journal/reader.rs", "JournalError"),
    ("### `AddError`", "skopos/src/workqueue/core/mod.rs", "AddError"),
    ("### `TransportErrorKind`", "skopos-transport/src/error.rs", "TransportErrorKind"),
    ("### `TlsFault`", "skopos-transport/src/error.rs", "TlsFault"),
    ("### `ProxyFault`", "skopos-transport/src/proxy/fault.rs", "ProxyFault"),
    ("### `ConfigError`", "skopos-transport/src/error.rs", "ConfigError"),
    ("### `KubeconfigReadError`", "skopos-transport/src/kubeconfig/error.rs", "KubeconfigReadError"),
    ("### `KubeconfigError`", "skopos-transport/src/kubeconfig/error.rs", "KubeconfigError"),
    ("### `FleetError`", "skopos-fleet/src/error.rs", "FleetError"),
    ("### `PortForwardError`", "skopos-fleet/src/port_forward/error.rs", "PortForwardError"),
    ("### `Error`", "skopos-vcluster/src/error.rs", "Error"),
    ("### `DaemonError`", "skopos-gateway/src/daemon/mod.rs", "DaemonError"),
    ("### `ListenError`", "skopos-gateway/src/listen/mod.rs", "ListenError"),
    ("### `SourceError`", "skopos-gateway/src/config/fleet.rs", "SourceError"),
    ("### `ConfigError` of files", "skopos-config/src/lib.rs", "ConfigError"),
    ("### `NotifierError`", "skopos-notify/src/service/mod.rs", "NotifierError"),
    ("### `LedgerError`", "skopos-notify/src/event/ledger/mod.rs", "LedgerError"),
    ("### `SinkError`", "skopos-notify/src/sink/mod.rs", "SinkError"),
    ("### `ControllerError`", "skopos-controller/src/error.rs", "ControllerError"),
    ("### `ManagerError`", "skopos-controller/src/manager.rs", "ManagerError"),
    ("### `ElectionError`", "skopos-lease/src/error.rs", "ElectionError"),
    ("### `EndReason`", "skopos-lease/src/end_reason.rs", "EndReason"),
];

#[test]
fn errors_are_listed() {
    let page = page_text("errors.md");
    let headings = page.lines().filter(|line| line.starts_with("### `")).collect::<BTreeSet<_>>();
    assert_eq!(headings, ERRORS.map(|(heading, ..)| heading).into(), "headings of docs/reference/errors.md");
    for (heading, file, name) in ERRORS {
        let source = std::fs::read_to_string(repository().join("crates").join(file)).expect("a source file");
        let variants = names::variants(&source, name);
        assert!(!variants.is_empty(), "{file} has no {name} any more: correct the list in this test");
        assert_eq!(names::rows(&page, heading), variants, "docs/reference/errors.md, {heading}");
    }
}

/// Compares a page with its file, after rewriting the file if `SKOPOS_WRITE` is set.
fn check(name: &str, page: &str) {
    if std::env::var_os("SKOPOS_WRITE").is_some() {
        std::fs::write(folder().join(name), page).expect("the folder of the reference");
    }
    let is_current = page_text(name) == page;
    assert!(is_current, "docs/reference/{name} is not what the program has: write it with\n{WRITE}");
}

/// Returns the text of a page of the reference. A missing page is empty.
fn page_text(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap_or_default()
}

/// Collects the files below a folder that have this extension.
fn find_files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            find_files(&path, extension, found);
        } else if path.extension().is_some_and(|its| its == extension) {
            found.push(path);
        }
    }
    found.sort();
}

/// Returns the path of a file within the repository.
fn relative(file: &Path) -> PathBuf {
    file.strip_prefix(repository()).expect("a file of the repository").to_owned()
}

fn folder() -> PathBuf {
    repository().join("docs/reference")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
