//! NOTIFY messages (RFC 1996), by which a server reports that the zone has changed. BIND sends them over UDP, Knot over TCP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use domain::base::iana::{Class, Opcode, Rcode, Rtype};
use domain::base::{Message, MessageBuilder};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::{receive, send};
use super::message;

/// Listener for NOTIFY messages. A message is only a hint: the change is read from the server.
pub(super) struct NoticeListener {
    address: SocketAddr,
    sources: Sources,
    /// Started by the first wait, and ended with the sink.
    task: OnceCell<JoinSet<()>>,
    /// Holds at most one message: however many come, the zone is read once.
    received: Arc<Notify>,
    problem: Mutex<Option<String>>,
}

/// The messages that are answered: about this zone, from these addresses. All others are dropped.
#[derive(Clone)]
struct Sources {
    zone: String,
    addresses: Vec<IpAddr>,
}

/// Maximum length of a message over UDP. Longer ones are no NOTIFY.
const MAX_MESSAGE: usize = 1232;
/// Time limit of a connection. There is one at a time.
const TCP_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after an error of a socket.
const RETRY_DELAY: Duration = Duration::from_millis(100);

impl NoticeListener {
    pub(super) fn new(address: SocketAddr, zone: &str, servers: &[SocketAddr]) -> Self {
        let addresses = servers.iter().map(SocketAddr::ip).collect();
        Self {
            address,
            sources: Sources { zone: zone.to_owned(), addresses },
            task: OnceCell::new(),
            received: Arc::default(),
            problem: Mutex::new(None),
        }
    }

    /// Waits for a message about the zone from one of its servers. Cancel safe. If it cannot listen, it never ends, and the next
    /// wait tries again.
    pub(super) async fn next(&self) {
        let begun = self.task.get_or_try_init(|| self.listen()).await;
        let problem = begun.err().map(|error| {
            format!("cannot listen for NOTIFY at {}: {error}; choose another `notify`", self.address)
        });
        let is_listening = problem.is_none();
        *self.problem.lock() = problem;
        match is_listening {
            true => self.received.notified().await,
            false => std::future::pending().await,
        }
    }

    /// Returns the reason for which it cannot listen.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    async fn listen(&self) -> io::Result<JoinSet<()>> {
        let (udp, tcp) = (UdpSocket::bind(self.address).await?, TcpListener::bind(self.address).await?);
        let (sources, received, mut task) = (self.sources.clone(), self.received.clone(), JoinSet::new());
        task.spawn(async move {
            tokio::join!(sources.serve_udp(&udp, &received), sources.serve_tcp(&tcp, &received));
        });
        Ok(task)
    }
}

impl Sources {
    async fn serve_udp(&self, socket: &UdpSocket, received: &Notify) {
        let mut bytes = [0; MAX_MESSAGE];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut bytes).await else {
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            };
            if let Some(answer) = self.answer(from, &bytes[..length]) {
                received.notify_one();
                // A server that gets no answer sends the message again.
                let _ = socket.send_to(&answer, from).await;
            }
        }
    }

    async fn serve_tcp(&self, listener: &TcpListener, received: &Notify) {
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            };
            if self.is_source(from) {
                // A server that gets no answer sends the message again.
                let _ = timeout(TCP_TIMEOUT, self.serve_connection(stream, from, received)).await;
            }
        }
    }

    async fn serve_connection(
        &self,
        mut stream: TcpStream,
        from: SocketAddr,
        received: &Notify,
    ) -> io::Result<()> {
        let request = receive(&mut stream).await?;
        if let Some(answer) = self.answer(from, request.as_slice()) {
            received.notify_one();
            send(&mut stream, &answer).await?;
        }
        Ok(())
    }

    fn is_source(&self, from: SocketAddr) -> bool {
        self.addresses.contains(&from.ip().to_canonical())
    }

    fn answer(&self, from: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.is_source(from) { answer(bytes, &self.zone) } else { None }
    }
}

/// Returns the answer to a NOTIFY message about this zone; `None` for any other message.
fn answer(bytes: &[u8], zone: &str) -> Option<Vec<u8>> {
    let request = Message::from_octets(bytes).ok()?;
    let header = request.header();
    let question = request.sole_question().ok()?;
    let is_notify = header.opcode() == Opcode::NOTIFY && !header.qr();
    let is_of_zone = question.qtype() == Rtype::SOA
        && question.qclass() == Class::IN
        && message::name(zone).is_ok_and(|zone| *question.qname() == zone);
    if !is_notify || !is_of_zone {
        return None;
    }
    let mut answer = MessageBuilder::new_vec().start_answer(&request, Rcode::NOERROR).ok()?;
    answer.header_mut().set_aa(true);
    Some(answer.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notify(opcode: Opcode, zone: &str, rtype: Rtype) -> Vec<u8> {
        let mut message = MessageBuilder::new_vec();
        message.header_mut().set_opcode(opcode);
        message.header_mut().set_id(7);
        let mut message = message.question();
        message.push((message::name(zone).unwrap(), rtype, Class::IN)).unwrap();
        message.finish()
    }

    #[test]
    fn answers_only_notify_messages_of_zone() {
        let answered = answer(&notify(Opcode::NOTIFY, "Z.test", Rtype::SOA), "z.test").unwrap();
        let message = Message::from_octets(answered.as_slice()).unwrap();
        let header = message.header();
        assert!(header.qr() && header.aa() && header.id() == 7 && header.opcode() == Opcode::NOTIFY);
        assert_eq!((header.rcode(), message.header_counts().qdcount()), (Rcode::NOERROR, 1));
        assert_eq!(answer(&answered, "z.test"), None, "an answer is not answered");
        for other in [
            notify(Opcode::QUERY, "z.test", Rtype::SOA),
            notify(Opcode::NOTIFY, "y.test", Rtype::SOA),
            notify(Opcode::NOTIFY, "z.test", Rtype::A),
            b"short".to_vec(),
        ] {
            assert_eq!(answer(&other, "z.test"), None);
        }
    }
}
