//! A gate between a client and a server, over kernel TCP: it can be shut, cut what passes, or swallow it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// An open door to a port of this machine. It closes when this is dropped.
pub(crate) struct Gate {
    port: u16,
    control: watch::Sender<Control>,
    _task: JoinSet<()>,
}

/// Connections are numbered from 0 on.
#[derive(Clone, Copy, Debug)]
struct Control {
    open: bool,
    /// All before this number are reset.
    cut: u64,
    /// All before this number are silent: nothing passes, nothing closes.
    silent: u64,
    next: u64,
}

// === impl Gate ===

impl Gate {
    /// A gate to `port`.
    pub(crate) async fn to(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let here = listener.local_addr()?;
        let (control, _) = watch::channel(Control { open: true, cut: 0, silent: 0, next: 0 });
        let mut task = JoinSet::new();
        task.spawn(serve(listener, here, port, control.clone()));
        Ok(Self { port: here.port(), control, _task: task })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
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

    /// Swallows what passes; what comes later passes.
    pub(crate) fn swallow(&self) {
        self.control.send_modify(|control| control.silent = control.next);
    }

    /// Swallows everything, now and later.
    pub(crate) fn swallow_all(&self) {
        self.control.send_modify(|control| control.silent = u64::MAX);
    }
}

async fn serve(listener: TcpListener, here: SocketAddr, to: u16, control: watch::Sender<Control>) {
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
                    passing.spawn(pass(client, to, number, control.subscribe()));
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
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        _ = changes.wait_for(|control| number < control.cut.max(control.silent)) => {}
    }
    let _ = changes.wait_for(|control| number < control.cut).await;
    // Closing with nothing to linger for is a reset.
    let _ = SockRef::from(&client).set_linger(Some(Duration::ZERO));
}
