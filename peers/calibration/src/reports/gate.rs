//! A gate between a client and a server, over kernel TCP: it can be shut, end what passes, or swallow it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::copy;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// An open door to a port of this machine. It closes when this is dropped.
pub(crate) struct Gate {
    port: u16,
    control: watch::Sender<Control>,
    /// One reference more than connections that pass.
    passing: Arc<()>,
    _task: JoinSet<()>,
}

/// Connections are numbered from 0 on.
#[derive(Clone, Copy, Debug)]
struct Control {
    open: bool,
    /// All before this number are reset.
    cut: u64,
    /// All before this number are closed.
    closed: u64,
    /// All before this number are silent: nothing passes, nothing closes.
    silent: u64,
    /// Of all before this number what the server says is lost.
    unheard: u64,
    next: u64,
}

impl Gate {
    /// A gate to `port`.
    pub(crate) async fn to(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let here = listener.local_addr()?;
        let (control, _) =
            watch::channel(Control { open: true, cut: 0, closed: 0, silent: 0, unheard: 0, next: 0 });
        let passing = Arc::new(());
        let mut task = JoinSet::new();
        task.spawn(serve(listener, here, port, control.clone(), passing.clone()));
        Ok(Self { port: here.port(), control, passing, _task: task })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections pass now.
    pub(crate) fn passing(&self) -> usize {
        // This handle has one reference, and the task another.
        Arc::strong_count(&self.passing) - 2
    }

    /// Resets what passes, and refuses what comes.
    pub(crate) fn shut(&self) {
        self.control.send_modify(|control| {
            control.open = false;
            control.cut = control.next;
        });
    }

    pub(crate) fn open(&self) {
        self.control.send_modify(|control| control.open = true);
    }

    /// Resets what passes.
    pub(crate) fn cut(&self) {
        self.control.send_modify(|control| control.cut = control.next);
    }

    /// Closes what passes.
    pub(crate) fn close(&self) {
        self.control.send_modify(|control| control.closed = control.next);
    }

    /// Swallows what passes; what comes later passes.
    pub(crate) fn swallow(&self) {
        self.control.send_modify(|control| control.silent = control.next);
    }

    /// Swallows everything, now and later.
    pub(crate) fn swallow_all(&self) {
        self.control.send_modify(|control| control.silent = u64::MAX);
    }

    /// Swallows what the server says on what passes; what the client says comes through.
    pub(crate) fn swallow_answers(&self) {
        self.control.send_modify(|control| control.unheard = control.next);
    }
}

async fn serve(
    listener: TcpListener,
    here: SocketAddr,
    to: u16,
    control: watch::Sender<Control>,
    count: Arc<()>,
) {
    let mut passing = JoinSet::new();
    let mut changes = control.subscribe();
    let mut listener = Some(listener);
    loop {
        if !changes.borrow_and_update().open {
            listener = None;
            if changes.wait_for(|control| control.open).await.is_err() {
                return;
            }
        }
        let door = match listener.take() {
            Some(door) => door,
            None => match TcpListener::bind(here).await {
                Ok(door) => door,
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
        };
        tokio::select! {
            accepted = door.accept() => {
                if let Ok((client, _)) = accepted {
                    let number = control.borrow().next;
                    control.send_modify(|control| control.next += 1);
                    let (changes, counted) = (control.subscribe(), count.clone());
                    passing.spawn(async move {
                        pass(client, to, number, changes).await;
                        drop(counted);
                    });
                }
            }
            _ = changes.changed() => {}
            Some(_) = passing.join_next() => {}
        }
        listener = Some(door);
    }
}

async fn pass(mut client: TcpStream, to: u16, number: u64, mut changes: watch::Receiver<Control>) {
    let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut unheard = changes.clone();
    {
        let ((mut said, mut hears), (mut asked, mut answers)) = (client.split(), server.split());
        let there = copy(&mut said, &mut answers);
        let back = async {
            tokio::select! {
                _ = copy(&mut asked, &mut hears) => return,
                _ = unheard.wait_for(|control| number < control.unheard) => {}
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = there => return,
            () = back => return,
            _ = changes.wait_for(|control| number < control.cut.max(control.closed).max(control.silent)) => {}
        }
    }
    let ended = changes.wait_for(|control| number < control.cut.max(control.closed)).await;
    if ended.is_ok_and(|control| number < control.cut) {
        // Closing with nothing to linger for is a reset.
        let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
    }
}
