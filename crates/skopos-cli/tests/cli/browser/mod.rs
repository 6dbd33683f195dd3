//! Pages in a real browser against a gateway. Neither a hostile member's pages nor a page of another origin can use the rights of
//! the browser's user.
//!
//! ```text
//!  attacker.localhost:P  site    a page that tries everything ─┐
//!                                                              ├─ Chromium ─▶ gateway ─┬▶ evil    answers pages, records requests
//!  address bar           the gateway's URLs of evil's pages ───┘                       └▶ victim  a test server
//! ```
//!
//! They need Chromium and tools for its certificates (Debian's packages `chromium`, `libnss3-tools` and `openssl`), so they are
//! ignored by default: `cargo test -p skopos-cli --test cli browser -- --ignored`. `.ci/run` runs them where it finds Chromium.

mod chromium;
mod client;
mod site;

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use self::chromium::Chromium;
use self::client::Client;
use self::site::{Member, Site};
use super::support::{Running, Server, skopos, utf8};

/// Reason for which the gateway accepts a browser's requests as a user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// `loopback: Trusted`: the browser runs on this machine.
    Loopback,
    /// The browser has a client certificate, and sends it without asking.
    Certificate,
}

/// A gateway with a hostile member and a victim, and a browser in front of it.
struct Stage {
    identity: Identity,
    evil: Member,
    site: Site,
    gateway: Running,
    client: Client,
    browser: Chromium,
    _victim: Server,
    _folder: tempfile::TempDir,
}

/// Pages of the hostile member, also where it should have answered documents of the API.
const PAGES: [&str; 8] = [
    "page.html",
    "page.svg",
    "page.xhtml",
    "version",
    "openapi/v2",
    "openapi/v3",
    "apis",
    "api/v1/namespaces/default/secrets/page.html",
];

/// Text that only the victim's responses contain.
const SECRET: &str = "kube-system";

impl Stage {
    fn new(identity: Identity) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let site = Site::new();
        let (evil, victim) = (Member::new(&site), Server::start(&[]));
        let mut command = skopos();
        command.args(["serve", "--config", utf8(&config(folder.path(), identity, &evil, &victim))]);
        let gateway = Running::start(&mut command);
        let line = gateway.line(|line| line.starts_with("serving at "));
        let url = line.trim_start_matches("serving at ").trim();
        let client = Client::new(url, folder.path());
        let browser = match identity {
            Identity::Loopback => Chromium::new(),
            Identity::Certificate => Chromium::with_certificate(folder.path(), url),
        };
        Self { identity, evil, site, gateway, client, browser, _victim: victim, _folder: folder }
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.client.url())
    }

    /// Runs the page that tries everything, at one of the site's names, and returns its results, one line each.
    fn attack(&self, host: &str) -> Vec<String> {
        let window = self.browser.open(&self.site.attack(host, self.client.url()));
        let report = self.site.report();
        drop(window);
        report.lines().map(str::to_owned).collect()
    }

    /// Ends the gateway and returns its lines about the writes that it accepted.
    fn accepted_changes(&mut self) -> Vec<String> {
        self.gateway.signal("TERM");
        let mut accepted = Vec::new();
        let mut refused = 0;
        while let Some(line) = self.gateway.next_error_line() {
            let reads = line.contains("method=GET") || line.contains("method=HEAD");
            match line.contains("skopos::audit") && !reads {
                true if line.contains("code=403") => refused += 1,
                true => accepted.push(line),
                false => {}
            }
        }
        assert!(refused > 20, "{refused} writes of the browser reached the gateway");
        accepted
    }
}

/// Writes the configuration of a gateway that permits these callers everything in its members.
fn config(folder: &Path, identity: Identity, evil: &Member, victim: &Server) -> std::path::PathBuf {
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let hostile = write(
        "evil.kubeconfig",
        format!(
            "clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\ncontexts: [{{name: evil, context: {{cluster: c}}}}]\n",
            evil.address()
        ),
    );
    let caller = match identity {
        Identity::Loopback => "authorization: {loopback: Trusted}\n".to_owned(),
        Identity::Certificate => {
            certificates(folder);
            format!(
                "authentication: {{clientCertificates: {{ca: {0}/ca.pem}}}}\n\
                 authorization: {{mode: Policy, policy: [{{users: [bob], verbs: ['*']}}]}}\n",
                folder.display()
            )
        }
    };
    let tls = match identity {
        Identity::Loopback => String::new(),
        Identity::Certificate => {
            format!(", tls: {{certificate: {0}/server.pem, key: {0}/server.key}}", folder.display())
        }
    };
    write(
        "gateway.yaml",
        format!(
            "listen: {{address: '127.0.0.1:0'{tls}}}\n{caller}\
             outbound: {{impersonate: true, connect: Streams}}\n\
             clusters: {{kubeconfigs: [{{path: {}}}, {{path: {}}}]}}\n",
            hostile.display(),
            victim.kubeconfig()
        ),
    )
}

/// Writes a CA, and certificates from it for the gateway and for bob.
fn certificates(folder: &Path) {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(DnType::CommonName, "a CA for tests");
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().expect("a key")).expect("a certificate");
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).expect("a file");
    write("ca.pem", ca.pem());
    for (name, user, addresses) in
        [("server", "gateway", vec!["127.0.0.1".to_owned()]), ("bob", "bob", Vec::new())]
    {
        let mut params = CertificateParams::new(addresses).expect("addresses");
        params.distinguished_name.push(DnType::CommonName, user);
        let key = KeyPair::generate().expect("a key");
        write(&format!("{name}.pem"), params.signed_by(&key, &ca).expect("a certificate").pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
}

/// Checks that the pages' requests succeed when the user's own client sends them.
fn changes_are_possible(stage: &Stage) {
    let json = ("content-type", "application/json");
    let made =
        |name: &str| format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
    let code = |method, path: &str, body: &str| stage.client.send(method, path, &[json], body).0;
    assert_eq!(code("POST", "/clusters/skopos-test/api/v1/namespaces", &made("control")), 201);
    let cluster = r#"{"name":"control","namespace":"control","manifests":[]}"#;
    assert_eq!(code("POST", "/virtualclusters?host=skopos-test", cluster), 202);
    let (read, namespaces) = stage.client.send("GET", "/clusters/skopos-test/api/v1/namespaces", &[], "");
    assert!(read == 200 && namespaces.contains(SECRET), "{read} {namespaces}");
    let exec = "/clusters/evil/api/v1/namespaces/default/pods/control/exec?command=sh&stdout=true";
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v5.channel.k8s.io"),
    ];
    stage.client.send("GET", exec, &upgrade, "");
    assert!(
        stage.evil.requests().iter().any(|line| line.contains("pods/control/exec")),
        "{:?}",
        stage.evil.requests()
    );
}

/// Checks that none of the pages' attempts changed anything.
fn nothing_was_changed(stage: &mut Stage, results: &[String]) {
    let namespaces = stage.client.send("GET", "/clusters/skopos-test/api/v1/namespaces", &[], "").1;
    assert!(namespaces.contains("control") && !namespaces.contains("stolen"), "{namespaces}");
    let arrived = stage.evil.requests();
    let arrived: Vec<_> = arrived.iter().filter(|line| line.contains("stolen")).collect();
    assert!(arrived.is_empty(), "the member got {arrived:#?}");
    let read: Vec<_> = results
        .iter()
        .filter(|line| line.contains(" -> read ") || line.contains(" -> open") || line.contains(SECRET))
        .collect();
    assert!(read.is_empty(), "pages of {:?} read {read:#?}", stage.identity);
}

fn pages_of_members_run_nothing(identity: Identity) {
    let stage = Stage::new(identity);
    changes_are_possible(&stage);
    for page in PAGES {
        let shown = stage.browser.dump(&stage.url(&format!("clusters/evil/{page}")));
        assert!(!shown.contains(SECRET), "{page}: {shown}");
    }
    let ran = stage.site.reports();
    assert!(ran.is_empty(), "pages of a member ran and said {ran:#?}");
    // The attacker's page has the member's pages in frames and windows.
    let results = stage.attack("attacker.localhost");
    assert!(results.iter().any(|line| line.starts_with("frame ")), "{results:#?}");
    let ran = stage.site.reports();
    assert!(ran.is_empty(), "pages of a member ran in frames or windows and said {ran:#?}");
    let namespaces = stage.client.send("GET", "/clusters/skopos-test/api/v1/namespaces", &[], "").1;
    assert!(!namespaces.contains("stolen"), "{namespaces}");
}

fn pages_of_other_origins_change_nothing(identity: Identity, hosts: &[&str]) {
    let mut stage = Stage::new(identity);
    changes_are_possible(&stage);
    for host in hosts {
        let results = stage.attack(host);
        for kind in ["form ", "no-cors ", "cors ", "beacon ", "navigation ", "websocket "] {
            assert!(
                results.iter().any(|line| line.starts_with(kind)),
                "{host}: {kind} was not tried: {results:#?}"
            );
        }
        nothing_was_changed(&mut stage, &results);
    }
    let accepted = stage.accepted_changes();
    let other: Vec<_> =
        accepted.iter().filter(|line| !line.contains("code=201") && !line.contains("code=202")).collect();
    assert!(accepted.len() == 2 && other.is_empty(), "more than the controls was accepted: {accepted:#?}");
}

#[test]
#[ignore = "needs Chromium: .ci/run runs it"]
fn member_pages_run_nothing_on_loopback() {
    pages_of_members_run_nothing(Identity::Loopback);
}

#[test]
#[ignore = "needs Chromium: .ci/run runs it"]
fn member_pages_run_nothing_with_a_client_certificate() {
    pages_of_members_run_nothing(Identity::Certificate);
}

#[test]
#[ignore = "needs Chromium: .ci/run runs it"]
fn other_origins_change_nothing_on_loopback() {
    // From another site, and from another port of the gateway's own host.
    pages_of_other_origins_change_nothing(Identity::Loopback, &["attacker.localhost", "127.0.0.1"]);
}

#[test]
#[ignore = "needs Chromium: .ci/run runs it"]
fn other_origins_change_nothing_with_client_cert() {
    pages_of_other_origins_change_nothing(Identity::Certificate, &["attacker.localhost", "127.0.0.1"]);
}

#[test]
#[ignore = "needs Chromium: .ci/run runs it"]
fn names_that_resolve_to_this_machine_read_nothing() {
    let stage = Stage::new(Identity::Loopback);
    let rebound = stage.url("clusters/skopos-test/api/v1/namespaces").replace("127.0.0.1", "rebound.example");
    let shown = stage.browser.dump(&rebound);
    assert!(shown.contains("Unauthorized") && !shown.contains(SECRET), "{shown}");
}
