//! A scripted receiver of webhooks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A receiver on loopback. It ends when it is dropped.
pub struct Receiver {
    pub address: SocketAddr,
    script: Arc<Mutex<Script>>,
    messages: watch::Receiver<Vec<Message>>,
    _tasks: JoinSet<()>,
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub headers: BTreeMap<String, String>,
    pub text: String,
    pub body: Value,
}

/// Reaction of the receiver to a message.
#[derive(Clone, Debug)]
pub enum Answer {
    Status(u16),
    With(u16, &'static str),
    /// It takes the message and does not answer.
    Hang,
    /// It takes the message and closes the connection.
    Close,
    /// A success with a body that never ends.
    Endless,
    Slow(Duration),
}

type Script = Box<dyn FnMut(&Message) -> Answer + Send>;

impl Receiver {
    pub async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Self::on(listener)
    }

    /// Starts a receiver that was down, on the same address.
    pub async fn at(address: SocketAddr) -> Self {
        Self::on(TcpListener::bind(address).await.expect("the port"))
    }

    fn on(listener: TcpListener) -> Self {
        let (sender, messages) = watch::channel(Vec::new());
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(|_| Answer::Status(200))));
        let (address, scripted) = (listener.local_addr().expect("an address"), script.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (script, sender) = (scripted.clone(), sender.clone());
                connections.spawn(async move { drop(serve(stream, &script, &sender).await) });
            }
        });
        Self { address, script, messages, _tasks: tasks }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub fn script(&self, script: impl FnMut(&Message) -> Answer + Send + 'static) {
        *self.script.lock() = Box::new(script);
    }

    pub fn messages(&self) -> Vec<Message> {
        self.messages.borrow().clone()
    }

    /// Waits until this many messages have arrived.
    pub async fn until(&self, count: usize) -> Vec<Message> {
        let mut messages = self.messages.clone();
        let waited =
            tokio::time::timeout(Duration::from_secs(60), messages.wait_for(|all| all.len() >= count));
        match waited.await {
            Ok(Ok(all)) => all.clone(),
            _ => panic!("{count} were expected: {:#?}", self.messages()),
        }
    }
}

impl Message {
    pub fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    /// Returns a short form such as `created web`.
    pub fn what(&self) -> String {
        let data = &self.body["data"];
        format!("{} {}", text(&data["change"]), text(&data["name"]))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn serve(
    stream: TcpStream,
    script: &Mutex<Script>,
    messages: &watch::Sender<Vec<Message>>,
) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut headers = BTreeMap::new();
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            match line.trim().split_once(": ") {
                Some((name, value)) => drop(headers.insert(name.to_lowercase(), value.to_owned())),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body).await?;
        let text = String::from_utf8(body).expect("UTF-8");
        let message = Message { headers, body: serde_json::from_str(&text).expect("JSON"), text };
        let answer = (script.lock())(&message);
        messages.send_modify(|all| all.push(message));
        let (status, more) = match answer {
            Answer::Status(status) => (status, ""),
            Answer::With(status, header) => (status, header),
            Answer::Hang => std::future::pending().await,
            Answer::Close => return Ok(()),
            Answer::Endless => {
                writer.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
                loop {
                    writer.write_all(b"4\r\nmore\r\n").await?;
                }
            }
            Answer::Slow(time) => {
                tokio::time::sleep(time).await;
                (200, "")
            }
        };
        writer
            .write_all(format!("HTTP/1.1 {status} x\r\n{more}content-length: 2\r\n\r\nok").as_bytes())
            .await?;
    }
}
