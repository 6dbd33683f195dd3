//! Headless Chromium with its own home and profile.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{TIMEOUT, text, utf8};

/// A browser. Nothing of the machine's other profiles is used.
pub(super) struct Chromium {
    program: PathBuf,
    home: TempDir,
}

/// An open window. Closed when dropped.
pub(super) struct Window(Child);

const ARGUMENTS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    // An attacker would make the user click.
    "--disable-popup-blocking",
    // The gateway's certificate comes from a CA of the test.
    "--ignore-certificate-errors",
    "--host-resolver-rules=MAP rebound.example 127.0.0.1",
];

impl Chromium {
    pub(super) fn new() -> Self {
        let known = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let all = std::env::split_paths(&known).flat_map(|folder| names.map(|name| folder.join(name)));
        let program = all.into_iter().find(|path| path.is_file());
        let program =
            program.expect("these tests need Chromium: apt-get install chromium libnss3-tools openssl");
        Self { program, home: tempfile::tempdir().expect("a folder") }
    }

    /// Makes a browser with bob's certificate of `folder`. It sends the certificate without asking, as users configure it.
    pub(super) fn with_certificate(folder: &Path, url: &str) -> Self {
        let browser = Self::new();
        let bundle = browser.home.path().join("bob.p12");
        let (key, certificate) = (folder.join("bob.key"), folder.join("bob.pem"));
        let export = ["pkcs12", "-export", "-passout", "pass:bob", "-name", "bob", "-inkey"];
        let files = [utf8(&key), "-in", utf8(&certificate), "-out", utf8(&bundle)];
        succeed(Command::new("openssl").args(export).args(files));
        let store = browser.home.path().join(".pki/nssdb");
        std::fs::create_dir_all(&store).expect("a folder");
        let store = format!("sql:{}", store.display());
        succeed(Command::new("certutil").args(["-d", &store, "-N", "--empty-password"]));
        succeed(Command::new("pk12util").args(["-d", &store, "-W", "bob", "-i", utf8(&bundle)]));
        let chosen = serde_json::json!({ format!("{url},*"): { "setting": { "filters": [{}] } } });
        let exceptions = serde_json::json!({ "auto_select_certificate": chosen });
        let preferences =
            serde_json::json!({ "profile": { "content_settings": { "exceptions": exceptions } } });
        let profile = browser.profile().join("Default");
        std::fs::create_dir_all(&profile).expect("a folder");
        std::fs::write(profile.join("Preferences"), preferences.to_string()).expect("a file");
        browser
    }

    /// Shows a page as if its address had been typed, and returns the document when everything is loaded.
    pub(super) fn dump(&self, url: &str) -> String {
        let limit = format!("{}", TIMEOUT.as_secs());
        let mut command = Command::new("timeout");
        command.arg(limit).arg(&self.program);
        let output = self.arguments(&mut command).args(["--dump-dom", url]).output().expect("timeout runs");
        assert!(output.status.success(), "{url}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Opens a page and keeps it open.
    pub(super) fn open(&self, url: &str) -> Window {
        let mut command = Command::new(&self.program);
        self.arguments(&mut command).args(["--remote-debugging-port=0", url]);
        Window(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("Chromium starts"))
    }

    fn arguments<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("HOME", self.home.path()).env_remove("DBUS_SESSION_BUS_ADDRESS").stdin(Stdio::null());
        command.args(ARGUMENTS).arg(format!("--user-data-dir={}", self.profile().display()))
    }

    fn profile(&self) -> PathBuf {
        self.home.path().join("profile")
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn succeed(command: &mut Command) {
    let output = command.output();
    let output =
        output.unwrap_or_else(|error| panic!("{command:?}: {error}: apt-get install libnss3-tools openssl"));
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
}
