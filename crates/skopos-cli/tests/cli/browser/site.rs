//! The attacker's servers: a site with a page that tries everything, and a hostile member of the fleet that answers with pages.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::Mutex;

use crate::support::{TIMEOUT, text};

/// A request of a browser or of the gateway.
struct Request {
    method: String,
    target: String,
    upgrade: Option<String>,
    body: String,
}

/// The attacker's site. Running pages report to it.
pub(super) struct Site {
    address: SocketAddr,
    attacks: Receiver<String>,
    pages: Arc<Mutex<Vec<String>>>,
}

/// A member that answers every request with a page.
pub(super) struct Member {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    pub(super) fn new() -> Self {
        let (reports, attacks) = sync_channel(8);
        let pages: Arc<Mutex<Vec<String>>> = Arc::default();
        let ran = pages.clone();
        let address = serve(move |request| answer(&reports, &ran, &request));
        Self { address, attacks, pages }
    }

    /// Returns the URL of the page that attacks a gateway.
    pub(super) fn attack(&self, host: &str, gateway: &str) -> String {
        format!("http://{host}:{}/attack.html?gateway={gateway}", self.address.port())
    }

    /// Waits for the results of that page, one line for each attempt.
    pub(super) fn report(&self) -> String {
        self.attacks.recv_timeout(TIMEOUT).expect("the attacker's page comes to its end")
    }

    /// Returns the reports of the member's pages that ran.
    pub(super) fn reports(&self) -> Vec<String> {
        self.pages.lock().clone()
    }
}

/// Answers a request to the site.
fn answer(
    attacks: &SyncSender<String>,
    pages: &Mutex<Vec<String>>,
    request: &Request,
) -> (&'static str, String) {
    let path = request.target.split('?').next().unwrap_or_default();
    match path {
        "/attack.html" => ("text/html", "<!doctype html><body><script src=attack.js></script>".to_owned()),
        "/attack.js" => ("text/javascript", include_str!("attack.js").to_owned()),
        "/report" => {
            // A test that has failed no longer listens.
            let _ = attacks.try_send(request.body.clone());
            ("text/plain", String::new())
        }
        "/ran" => {
            pages.lock().push(request.body.clone());
            ("text/plain", String::new())
        }
        _ => ("text/plain", String::new()),
    }
}

impl Member {
    /// Makes a member whose pages report to the site.
    pub(super) fn new(site: &Site) -> Self {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, script) = (requests.clone(), script(site));
        let address = serve(move |request| {
            let Request { method, target, upgrade, body } = request;
            let upgrade = upgrade.as_deref().unwrap_or_default();
            seen.lock().push(format!("{method} {target} {upgrade} {body}"));
            page(&target, &script)
        });
        Self { address, requests }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the requests so far, one line each.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

/// Returns a script that reads and changes the victim if it runs in the gateway's origin, and that always reports that it ran. It
/// finishes before its page counts as loaded.
fn script(site: &Site) -> String {
    include_str!("page.js").replace("SITE", &format!("http://{}", site.address))
}

/// Returns the content type and text of a page that runs a script. A comment replaces `]]>`, so that each page can be parsed.
fn page(target: &str, script: &str) -> (&'static str, String) {
    let path = target.split('?').next().unwrap_or_default();
    if path.ends_with(".svg") {
        let svg = "<svg xmlns='http://www.w3.org/2000/svg'><script>";
        return ("image/svg+xml", format!("{svg}<![CDATA[{script}]]></script></svg>"));
    }
    if path.ends_with(".xhtml") {
        let html = "<html xmlns='http://www.w3.org/1999/xhtml'><body><script>";
        return ("application/xhtml+xml", format!("{html}<![CDATA[{script}]]></script></body></html>"));
    }
    ("text/html", format!("<!doctype html><body><script>{script}</script>"))
}

/// Serves on a free port of this machine until the process ends.
fn serve(answer: impl Fn(Request) -> (&'static str, String) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || converse(stream, &*answer));
        }
    });
    address
}

/// Answers one request and closes the connection.
fn converse(
    stream: TcpStream,
    answer: &(dyn Fn(Request) -> (&'static str, String) + Send + Sync),
) -> Option<()> {
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let request = read(&stream)?;
    let preflight = request.method == "OPTIONS";
    let (kind, body) = answer(request);
    let body = if preflight { String::new() } else { body };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\
         access-control-allow-origin: *\r\naccess-control-allow-headers: *\r\naccess-control-allow-private-network: true\r\n\r\n",
        body.len()
    );
    (&stream).write_all(format!("{head}{body}").as_bytes()).ok()
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let mut words = first.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let (mut length, mut upgrade) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "upgrade" => upgrade = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, target, upgrade, body: text(&body) })
}
