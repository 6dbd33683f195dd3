//! Proxy for HTTP's CONNECT and SOCKS5 on loopback, which always connects to one fixed address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The proxy. Ends with [`TestProxy::end`], or with the test's runtime.
#[derive(Clone)]
pub(crate) struct TestProxy {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    to: SocketAddr,
    tls: Option<TlsAcceptor>,
    state: Mutex<State>,
    end: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Default)]
struct State {
    /// The refusal of an HTTP proxy; `None`: it connects.
    refusal: Option<String>,
    /// Set if it accepts and stays silent.
    mute: bool,
    /// `USER:PASSWORD` of SOCKS5, the value of `Proxy-Authorization` of HTTP.
    login: Option<String>,
    asked: Vec<String>,
    /// Cancelled to drop all bytes on the open connections.
    freeze: CancellationToken,
}

impl TestProxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        Self::start(SocketAddr::from(([127, 0, 0, 1], 0)), server, None)
    }

    pub(crate) async fn over_tls(server: SocketAddr, tls: Arc<rustls::ServerConfig>) -> Self {
        Self::start(SocketAddr::from(([127, 0, 0, 1], 0)), server, Some(TlsAcceptor::from(tls)))
    }

    fn start(at: SocketAddr, to: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        // One that ended was there a moment ago.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(at).unwrap();
        let listener = socket.listen(64).unwrap();
        let inner = Inner {
            to,
            tls,
            state: Mutex::default(),
            end: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let test_proxy = Self { address: listener.local_addr().unwrap(), inner: Arc::new(inner) };
        test_proxy.inner.tasks.spawn(test_proxy.clone().run(listener));
        test_proxy
    }

    /// Ends all its connections and stops listening.
    pub(crate) async fn end(&self) {
        self.inner.end.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Starts another one at the same address.
    pub(crate) fn again(&self) -> Self {
        Self::start(self.address, self.inner.to, None)
    }

    /// Refuses with this response of an HTTP proxy from now on.
    pub(crate) fn refuse(&self, answer: &str) {
        self.inner.state.lock().refusal = Some(answer.to_owned());
    }

    pub(crate) fn mute(&self) {
        self.inner.state.lock().mute = true;
    }

    pub(crate) fn login(&self, login: &str) {
        self.inner.state.lock().login = Some(login.to_owned());
    }

    /// Drops all bytes through it from now on, silently.
    pub(crate) fn freeze(&self) {
        self.inner.state.lock().freeze.cancel();
    }

    /// Returns the addresses that it was asked to connect to.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.inner.state.lock().asked.clone()
    }

    async fn run(self, listener: TcpListener) {
        let end = self.inner.end.clone();
        while let Some(Ok((socket, _))) = end.run_until_cancelled(listener.accept()).await {
            let (test_proxy, end) = (self.clone(), end.clone());
            self.inner.tasks.spawn(async move { end.run_until_cancelled(test_proxy.accept(socket)).await });
        }
    }

    async fn accept(self, socket: TcpStream) {
        let _ = match &self.inner.tls {
            None => self.serve(socket).await,
            Some(tls) => match tls.accept(socket).await {
                Ok(stream) => self.serve(stream).await,
                Err(error) => Err(error),
            },
        };
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) -> io::Result<()> {
        if self.inner.state.lock().mute {
            std::future::pending::<()>().await;
        }
        let connected = match stream.read_u8().await? {
            5 => self.socks(&mut stream).await?,
            first => self.http(first, &mut stream).await?,
        };
        if !connected {
            return stream.shutdown().await;
        }
        let mut server = TcpStream::connect(self.inner.to).await?;
        let freeze = self.inner.state.lock().freeze.clone();
        match freeze.run_until_cancelled(copy_bidirectional(&mut stream, &mut server)).await {
            Some(ended) => ended.map(drop),
            None => std::future::pending().await,
        }
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin>(&self, first: u8, stream: &mut S) -> io::Result<bool> {
        let mut head = vec![first];
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
        let (refusal, login) = {
            let mut state = self.inner.state.lock();
            state.asked.push(target.to_owned());
            (state.refusal.clone(), state.login.clone())
        };
        let told = head.lines().find_map(|line| line.strip_prefix("Proxy-Authorization: "));
        let answer = match (refusal, login) {
            (Some(answer), _) => answer,
            (None, Some(login)) if told != Some(&login) => {
                "HTTP/1.1 407 Who are you\r\nContent-Length: 6\r\n\r\ncanary".to_owned()
            }
            _ => "HTTP/1.1 200 Connection established\r\n\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).await?;
        Ok(answer.starts_with("HTTP/1.1 200 "))
    }

    async fn socks<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: &mut S) -> io::Result<bool> {
        let methods = stream.read_u8().await?;
        stream.read_exact(&mut vec![0; methods.into()]).await?;
        let login = self.inner.state.lock().login.clone();
        if let Some(login) = login {
            stream.write_all(&[5, 2]).await?;
            stream.read_u8().await?;
            let (user, password) = (counted(stream).await?, counted(stream).await?);
            let known = format!("{user}:{password}") == login;
            stream.write_all(&[1, u8::from(!known)]).await?;
            if !known {
                return Ok(false);
            }
        } else {
            stream.write_all(&[5, 0]).await?;
        }
        let mut head = [0; 4];
        stream.read_exact(&mut head).await?;
        assert_eq!(head, [5, 1, 0, 3], "by name");
        let name = counted(stream).await?;
        let port = stream.read_u16().await?;
        self.inner.state.lock().asked.push(format!("{name}:{port}"));
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
        Ok(true)
    }
}

async fn counted<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<String> {
    let mut text = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut text).await?;
    Ok(String::from_utf8(text).unwrap())
}
