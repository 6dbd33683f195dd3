//! NOTIFY messages (RFC 1996): a server says that the zone has changed.

use std::net::{IpAddr, SocketAddr};

use domain::base::iana::{Class, Opcode, Rcode, Rtype};
use domain::base::{Message, MessageBuilder};
use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::sync::OnceCell;

use super::message;

/// The listener for NOTIFY messages. A message is a hint and no more: what has changed is read from the server.
pub(super) struct NoticeListener {
    address: SocketAddr,
    zone: String,
    /// The servers' addresses. Messages from elsewhere are dropped.
    sources: Vec<IpAddr>,
    /// Bound by the first wait, and closed with the sink.
    socket: OnceCell<UdpSocket>,
    problem: Mutex<Option<String>>,
}

/// Length of a message. Longer ones are no NOTIFY.
const MAX_MESSAGE: usize = 1232;

impl NoticeListener {
    pub(super) fn new(address: SocketAddr, zone: &str, servers: &[SocketAddr]) -> Self {
        Self {
            address,
            zone: zone.to_owned(),
            sources: servers.iter().map(SocketAddr::ip).collect(),
            socket: OnceCell::new(),
            problem: Mutex::new(None),
        }
    }

    /// Waits for a message about the zone from one of its servers, and answers it. Cancel safe. Where it cannot listen, it never ends, and
    /// the next wait tries again.
    pub(super) async fn next(&self) {
        let socket = match self.socket.get_or_try_init(|| UdpSocket::bind(self.address)).await {
            Ok(socket) => socket,
            Err(error) => {
                let problem =
                    format!("cannot listen for NOTIFY at {}: {error}; choose another `notify`", self.address);
                *self.problem.lock() = Some(problem);
                return std::future::pending().await;
            }
        };
        *self.problem.lock() = None;
        let mut bytes = [0; MAX_MESSAGE];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut bytes).await else {
                // It is about an answer that was sent before; the next wait reads on.
                return std::future::pending().await;
            };
            if !self.sources.contains(&from.ip().to_canonical()) {
                continue;
            }
            if let Some(answer) = answer(&bytes[..length], &self.zone) {
                // A server that gets no answer sends the message again.
                let _ = socket.try_send_to(&answer, from);
                return;
            }
        }
    }

    /// Returns why it cannot listen.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }
}

/// Returns the answer to a NOTIFY message of this zone; `None` if it is none.
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
    fn answers_only_notify_messages_of_the_zone() {
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
