//! Copying of bytes between client and member in both directions, with small buffers.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until};

/// The bytes copied each way, and the time of the last ones.
#[derive(Debug)]
pub(super) struct Flow {
    to_member: AtomicU64,
    to_client: AtomicU64,
    moved: Mutex<Instant>,
}

/// The reason why copying ended without outside help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PumpEnd {
    /// Both ends have finished.
    Finished,
    /// No bytes moved for too long.
    Idle,
}

/// The buffer size of each direction. While one end does not read, the other is not read from.
const BUFFER_BYTES: usize = 32 * 1024;

/// The maximum pause of one side after the other has finished.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(60);

/// Copies bytes until both sides have finished. When one side ends, its end is forwarded, and the other may still send.
pub(super) async fn pump<C, M>(client: C, member: M, idle: Duration, flow: &Flow) -> PumpEnd
where
    C: AsyncRead + AsyncWrite,
    M: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = tokio::io::split(client);
    let (from_member, to_member) = tokio::io::split(member);
    let mut up = pin!(one_way(from_client, to_member, flow, &flow.to_member));
    let mut down = pin!(one_way(from_member, to_client, flow, &flow.to_client));
    let up_is_over = tokio::select! {
        () = &mut up => true,
        () = &mut down => false,
        () = flow.wait_idle(idle) => return PumpEnd::Idle,
    };
    flow.moves();
    let rest = async {
        match up_is_over {
            true => down.await,
            false => up.await,
        }
    };
    tokio::select! {
        () = rest => PumpEnd::Finished,
        () = flow.wait_idle(idle.min(HALF_CLOSED_TIMEOUT)) => PumpEnd::Idle,
    }
}

/// Copies one direction, until its source has ended or its sink fails.
async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    flow: &Flow,
    moved: &AtomicU64,
) {
    let mut held = vec![0; BUFFER_BYTES];
    while let Ok(read @ 1..) = from.read(&mut held).await {
        let held = held.get(..read).unwrap_or_default();
        if to.write_all(held).await.is_err() || to.flush().await.is_err() {
            return;
        }
        moved.fetch_add(read as u64, Ordering::Relaxed);
        flow.moves();
    }
    // An error means that the receiver has already gone.
    let _ = to.shutdown().await;
}

impl Flow {
    pub(super) fn new() -> Self {
        Self { to_member: AtomicU64::new(0), to_client: AtomicU64::new(0), moved: Mutex::new(Instant::now()) }
    }

    /// Returns the bytes sent to the member, and to the client.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.to_member.load(Ordering::Relaxed), self.to_client.load(Ordering::Relaxed))
    }

    fn moves(&self) {
        *self.moved.lock() = Instant::now();
    }

    /// Waits until no bytes have moved for `long`.
    async fn wait_idle(&self, long: Duration) {
        loop {
            let until = *self.moved.lock() + long;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinSet;

    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    /// A client and a member, each at its end, and the copying task between them.
    struct Pumped {
        client: DuplexStream,
        member: DuplexStream,
        running: Running,
    }

    struct Running(JoinSet<(PumpEnd, (u64, u64))>);

    impl Running {
        async fn ended(mut self) -> (PumpEnd, (u64, u64)) {
            self.0.join_next().await.unwrap().unwrap()
        }
    }

    fn pumped() -> Pumped {
        let (client, near) = duplex(1024);
        let (far, member) = duplex(1024);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let flow = Flow::new();
            (pump(near, far, IDLE, &flow).await, flow.bytes())
        });
        Pumped { client, member, running: Running(tasks) }
    }

    #[tokio::test(start_paused = true)]
    async fn delivers_every_byte_after_half_close() {
        let Pumped { mut client, mut member, running } = pumped();
        client.write_all(b"stdin").await.unwrap();
        client.shutdown().await.unwrap();
        let mut said = String::new();
        member.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "stdin");
        // One side has ended, and the other continues, with pauses.
        for _ in 0..3 {
            tokio::time::sleep(HALF_CLOSED_TIMEOUT - Duration::from_secs(1)).await;
            member.write_all(b"out").await.unwrap();
        }
        drop(member);
        said.clear();
        client.read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "outoutout");
        assert_eq!(running.ended().await, (PumpEnd::Finished, (5, 9)));
    }

    #[tokio::test(start_paused = true)]
    async fn delivers_unread_bytes_after_peer_closes() {
        let Pumped { client, mut member, running } = pumped();
        let (mut reads, mut writes) = tokio::io::split(client);
        // More than all buffers hold, so most of it is still unread when the member is gone.
        let reading = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let mut all = Vec::new();
            reads.read_to_end(&mut all).await.map(|_| all.len())
        };
        let leaving = async {
            member.write_all(&vec![7; 20 * 1024]).await.unwrap();
            drop(member);
            // The receiver is gone.
            writes.write_all(b"ping").await.unwrap();
        };
        let (read, ()) = tokio::join!(reading, leaving);
        assert_eq!(read.unwrap(), 20 * 1024);
        drop(writes);
        assert_eq!(running.ended().await.0, PumpEnd::Finished);
    }

    #[tokio::test(start_paused = true)]
    async fn buffering_for_stalled_reader_is_bounded() {
        let Pumped { client, mut member, running } = pumped();
        let mut written = 0;
        let flood = async {
            loop {
                written += member.write(&[7; 4096]).await.unwrap();
            }
        };
        assert!(tokio::time::timeout(IDLE / 2, flood).await.is_err());
        assert!(written <= 40 * 1024, "{written}");
        assert_eq!(running.ended().await.0, PumpEnd::Idle);
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_timeout_restarts_on_traffic() {
        let begun = Instant::now();
        let Pumped { mut client, mut member, running } = pumped();
        tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
        client.write_all(b"x").await.unwrap();
        assert_eq!(member.read_u8().await.unwrap(), b'x');
        assert_eq!(running.ended().await, (PumpEnd::Idle, (1, 0)));
        let took = begun.elapsed();
        assert!(took >= IDLE * 2 - Duration::from_secs(1) && took < IDLE * 2, "{took:?}");

        let begun = Instant::now();
        let Pumped { client, mut member, running } = pumped();
        drop(client);
        assert_eq!(member.read(&mut [0; 8]).await.unwrap(), 0);
        // The client sends nothing more, but does not end either.
        assert_eq!(running.ended().await.0, PumpEnd::Idle);
        assert!(begun.elapsed() <= HALF_CLOSED_TIMEOUT + Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}
