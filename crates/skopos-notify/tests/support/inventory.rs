//! An inventory of hosts, with scripted faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// An inventory on loopback. It ends when it is dropped.
pub struct Inventory {
    pub address: SocketAddr,
    content: Arc<Mutex<Content>>,
    _tasks: JoinSet<()>,
}

struct Content {
    items: BTreeMap<String, Value>,
    requests: Vec<Request>,
    page: usize,
    script: Script,
}

/// A request that was received.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// Fault in place of the right answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A status, with further header lines.
    Status(u16, &'static str),
    /// A success with further header lines and this body.
    Body(&'static str, String),
    /// It executes the request, but closes the connection after this many bytes of its answer.
    Cut(usize),
    /// It executes the request, and does not answer.
    Hang,
    /// It executes the request, and hangs in the middle of the body.
    HangWithin,
}

type Script = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

impl Inventory {
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let script: Script = Box::new(|_| None);
        let content = Content { items: BTreeMap::new(), requests: Vec::new(), page: 100, script };
        let content = Arc::new(Mutex::new(content));
        let (shared, mut tasks) = (content.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                connections.spawn(async move { drop(serve(stream, address, &shared).await) });
            }
        });
        Self { address, content, _tasks: tasks }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn script(&self, script: impl FnMut(&Request) -> Option<Fault> + Send + 'static) {
        self.content.lock().script = Box::new(script);
    }

    /// Adds an item, as another client would.
    pub fn set(&self, path: &str, body: Value) {
        self.content.lock().items.insert(path.to_owned(), body);
    }

    pub fn items(&self) -> BTreeMap<String, Value> {
        self.content.lock().items.clone()
    }

    pub fn set_page(&self, items: usize) {
        self.content.lock().page = items;
    }

    pub fn requests(&self) -> Vec<Request> {
        self.content.lock().requests.clone()
    }
}

impl Content {
    /// Executes a request; returns a status, further header lines, and a body.
    fn answer(&mut self, request: &Request, address: SocketAddr) -> (u16, String, String) {
        let exists = self.items.contains_key(&request.path);
        match request.method.as_str() {
            "GET" if request.path.starts_with("/hosts") => self.list(&request.path, address),
            "PUT" if exists && request.headers.get("if-none-match").is_some_and(|etag| etag == "*") => {
                (412, String::new(), "it is there".to_owned())
            }
            "PUT" => {
                let body = serde_json::from_str(&request.body).expect("JSON");
                self.items.insert(request.path.clone(), body);
                (if exists { 200 } else { 201 }, String::new(), String::new())
            }
            "DELETE" if exists => {
                self.items.remove(&request.path);
                (204, String::new(), String::new())
            }
            _ => (404, String::new(), "it is not there".to_owned()),
        }
    }

    fn list(&self, path: &str, address: SocketAddr) -> (u16, String, String) {
        let page = path.split_once("page=").and_then(|(_, page)| page.parse().ok()).unwrap_or(0);
        let items: Vec<_> = self.items.iter().map(|(path, body)| listed(path, body)).collect();
        let of_page: Vec<_> = items.iter().skip(page * self.page).take(self.page).collect();
        let next = match items.len() > (page + 1) * self.page {
            true => format!("link: <http://{address}/hosts?page={}>; rel=\"next\"\r\n", page + 1),
            false => String::new(),
        };
        (200, next, json!({"items": of_page}).to_string())
    }
}

/// Returns an item as the list has it: its body, and the parts of its URL.
fn listed(path: &str, body: &Value) -> Value {
    let mut item = body.clone();
    let segments: Vec<_> =
        path.split('/').map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned()).collect();
    (item["node"], item["host"]) = (json!(segments[2]), json!(segments[4]));
    item
}

async fn serve(stream: TcpStream, address: SocketAddr, content: &Mutex<Content>) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    while let Some(request) = read(&mut reader).await? {
        let (fault, (status, more, body)) = {
            let mut content = content.lock();
            content.requests.push(request.clone());
            let fault = (content.script)(&request);
            let answer = match &fault {
                Some(Fault::Status(status, more)) => (*status, (*more).to_owned(), "as scripted".to_owned()),
                Some(Fault::Body(more, body)) => (200, (*more).to_owned(), body.clone()),
                _ => content.answer(&request, address),
            };
            (fault, answer)
        };
        let length = match status {
            204 | 304 => String::new(),
            _ => format!("content-length: {}\r\n", body.len()),
        };
        let head = format!("HTTP/1.1 {status} x\r\n{more}{length}\r\n");
        let body = if length.is_empty() { "" } else { body.as_str() };
        match fault {
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::HangWithin) => {
                writer.write_all(format!("{head}{}", &body[..body.len() / 2]).as_bytes()).await?;
                std::future::pending().await
            }
            Some(Fault::Cut(length)) => {
                writer.write_all(format!("{head}{}", &body[..length.min(body.len())]).as_bytes()).await?;
                return Ok(());
            }
            _ => writer.write_all(format!("{head}{body}").as_bytes()).await?,
        }
    }
    Ok(())
}

async fn read(
    reader: &mut (impl tokio::io::AsyncBufRead + Unpin + Send),
) -> std::io::Result<Option<Request>> {
    let (mut headers, mut first) = (BTreeMap::new(), String::new());
    if reader.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        match line.trim().split_once(": ") {
            Some((name, value)) => drop(headers.insert(name.to_lowercase(), value.to_owned())),
            None => break,
        }
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    let mut words = first.split(' ').map(str::to_owned);
    let mut word = || words.next().unwrap_or_default();
    let (method, path) = (word(), word());
    Ok(Some(Request { method, path, headers, body: String::from_utf8(body).expect("UTF-8") }))
}
