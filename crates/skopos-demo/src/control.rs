//! Connection of a second command to the running demo: a port on loopback, and a token in a file that only its owner reads.
//!
//! The demo keeps its own directory in the temporary directory, with `kubeconfig` and `control.json` in it. A reader of the
//! token can inflict faults on the demo's own toy server, and nothing else.
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};
use skopos_console::error::CliError;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::FaultName;

const DIRECTORY_PREFIX: &str = "skopos-demo-";
const CONTROL_FILE: &str = "control.json";
/// Longest line that either side reads.
const LINE_LIMIT: u64 = 4096;
/// Time that either side waits for the other's line.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Request for a fault, and the channel of its answer.
#[derive(Debug)]
pub(crate) struct Order {
    /// The fault
    pub(crate) fault: FaultName,
    /// The cluster; the first virtual one if none is named
    pub(crate) cluster: Option<String>,
    /// The outcome, for the command that asked
    pub(crate) answer: oneshot::Sender<Result<String, String>>,
}

/// The demo's directory. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct DemoDir {
    path: PathBuf,
}

impl DemoDir {
    /// Makes the directory of this process, readable by its owner only.
    pub(crate) fn create() -> io::Result<Self> {
        let name = format!("{DIRECTORY_PREFIX}{}-{:08x}", std::process::id(), fastrand::u32(..));
        let path = std::env::temp_dir().join(name);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        Ok(Self { path })
    }

    /// Returns the path of a file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file into it.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.file(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

impl Drop for DemoDir {
    fn drop(&mut self) {
        // Nothing is lost if it stays.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Content of `control.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Control {
    port: u16,
    token: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    token: String,
    fault: String,
    cluster: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    ok: bool,
    message: String,
}

/// Server side: takes orders and passes them to the demo.
#[derive(Debug)]
pub(crate) struct ControlServer {
    listener: TcpListener,
    token: String,
    orders: mpsc::Sender<Order>,
}

impl ControlServer {
    /// Listens on loopback and writes the port and token to a file.
    pub(crate) async fn start(dir: &DemoDir, orders: mpsc::Sender<Order>) -> Result<Self, CliError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let token: String = std::iter::repeat_with(fastrand::alphanumeric).take(32).collect();
        let control = Control { port: listener.local_addr()?.port(), token: token.clone() };
        dir.write(CONTROL_FILE, &serde_json::to_string(&control).map_err(CliError::new)?)?;
        Ok(Self { listener, token, orders })
    }

    /// Serves one order after the other until dropped.
    pub(crate) async fn run(self) {
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // Out of file descriptors, most likely: accepting again at once would only spin.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            // One after the other is enough for people, and limits the resources that strangers can use.
            let _ = timeout(TIMEOUT, self.serve(stream)).await;
        }
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let answer = match serde_json::from_str::<Request>(&read_line(&mut stream).await?) {
            Ok(request) if request.token == self.token => self.order(request).await,
            Ok(_) => Err("wrong token".into()),
            Err(_) => Err("not understood".into()),
        };
        let (ok, message) = match answer {
            Ok(message) => (true, message),
            Err(message) => (false, message),
        };
        let line = serde_json::to_string(&Answer { ok, message })? + "\n";
        stream.write_all(line.as_bytes()).await
    }

    async fn order(&self, Request { fault, cluster, .. }: Request) -> Result<String, String> {
        let fault = <FaultName as clap::ValueEnum>::from_str(&fault, false)?;
        let (answer, result) = oneshot::channel();
        let closed = |_| "the demo is ending".to_owned();
        self.orders
            .send(Order { fault, cluster, answer })
            .await
            .map_err(|_| "the demo is ending".to_owned())?;
        result.await.map_err(closed)?
    }
}

/// Asks the newest running demo for a fault, and returns its answer. This is the client side.
pub(crate) async fn ask(fault: FaultName, cluster: Option<String>) -> Result<String, CliError> {
    for dir in demo_dirs(&std::env::temp_dir()) {
        if let Some((control, stream)) = connect(&dir).await {
            return timeout(TIMEOUT, exchange(control, stream, fault, cluster))
                .await
                .map_err(|_| CliError::new("the demo did not answer"))?;
        }
    }
    Err(CliError::new("no demo is running").hint("start `skopos demo` in another terminal"))
}

/// Returns the directories of demos, newest first; some may be left over from demos that were killed.
fn demo_dirs(temp: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(temp).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(DIRECTORY_PREFIX));
    let mut dated: Vec<_> =
        ours.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    dated.sort();
    dated.into_iter().rev().map(|(_, path)| path).collect()
}

async fn connect(dir: &Path) -> Option<(Control, TcpStream)> {
    let control: Control = serde_json::from_slice(&fs::read(dir.join(CONTROL_FILE)).ok()?).ok()?;
    let stream = timeout(TIMEOUT, TcpStream::connect(("127.0.0.1", control.port))).await.ok()?.ok()?;
    Some((control, stream))
}

async fn exchange(
    control: Control,
    mut stream: TcpStream,
    fault: FaultName,
    cluster: Option<String>,
) -> Result<String, CliError> {
    let name = clap::ValueEnum::to_possible_value(&fault).map(|value| value.get_name().to_owned());
    let request = Request { token: control.token, fault: name.unwrap_or_default(), cluster };
    let line = serde_json::to_string(&request).map_err(CliError::new)? + "\n";
    stream.write_all(line.as_bytes()).await?;
    let line = read_line(&mut stream).await?;
    let answer: Answer =
        serde_json::from_str(&line).map_err(|_| CliError::new("the demo's answer cannot be understood"))?;
    if answer.ok { Ok(answer.message) } else { Err(CliError::new(answer.message)) }
}

async fn read_line(stream: &mut TcpStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_LIMIT)).read_line(&mut line).await?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn server() -> (DemoDir, mpsc::Receiver<Order>, ControlServer) {
        let dir = DemoDir::create().unwrap();
        let (orders, received) = mpsc::channel(1);
        let server = ControlServer::start(&dir, orders).await.unwrap();
        (dir, received, server)
    }

    #[tokio::test]
    async fn demo_receives_order_and_returns_answer() {
        let (dir, mut orders, server) = server().await;
        let (control, stream) = connect(&dir.path).await.unwrap();
        let demo = async {
            let order = orders.recv().await.unwrap();
            assert_eq!((order.fault, order.cluster.as_deref()), (FaultName::BlackHole, Some("lima")));
            order.answer.send(Ok("done".into())).unwrap();
        };
        let (answer, ()) = tokio::select! {
            both = async { tokio::join!(exchange(control, stream, FaultName::BlackHole, Some("lima".into())), demo) } => both,
            () = server.run() => unreachable!(),
        };
        assert_eq!(answer.unwrap(), "done");
    }

    #[tokio::test]
    async fn a_stranger_is_refused() {
        let (dir, mut orders, server) = server().await;
        let (control, stream) = connect(&dir.path).await.unwrap();
        let guess = Control { token: "guess".into(), ..control };
        let answer = tokio::select! {
            answer = exchange(guess, stream, FaultName::Reset, None) => answer,
            () = server.run() => unreachable!(),
        };
        assert_eq!(answer.unwrap_err().line().unwrap(), "error: wrong token");
        assert!(orders.try_recv().is_err());
    }

    #[tokio::test]
    async fn directory_is_removed_with_demo() {
        let dir = DemoDir::create().unwrap();
        let path = dir.write("kubeconfig", "x").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&dir.path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        drop(dir);
        assert!(!path.exists());
    }
}
