//! Questions to a DNS server over UDP, as a resolver asks them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_millis(500);
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;

/// An answer about the addresses of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Addresses, or the target of a CNAME, in order. Empty: NXDOMAIN or no data.
    pub(crate) values: Vec<String>,
    /// The TTL of the first of them.
    pub(crate) ttl: Option<u32>,
    /// There were more than fit into the message.
    truncated: bool,
}

impl Answer {
    /// Says whether the answer is exactly these values.
    pub(crate) fn is(&self, values: &[String]) -> bool {
        let mut wanted = values.to_vec();
        wanted.sort();
        self.values == wanted
    }

    pub(crate) fn has(&self, value: &str) -> bool {
        self.values.iter().any(|known| known == value)
    }

    /// Says whether the name leads nowhere.
    pub(crate) fn is_nothing(&self) -> bool {
        self.values.is_empty() && !self.truncated
    }
}

/// A socket for questions to one server.
pub(crate) struct Resolver {
    socket: UdpSocket,
    next: u16,
}

impl Resolver {
    pub(crate) async fn of(server: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        socket.connect(server).await?;
        Ok(Self { socket, next: 0 })
    }

    /// Asks for the addresses of a name. An error is a server that does not answer, or not in time.
    pub(crate) async fn ask(&mut self, name: &str) -> Result<Answer> {
        self.next = self.next.wrapping_add(1);
        self.socket.send(&question(self.next, name)).await?;
        let own = self.next.to_be_bytes();
        let answered = async {
            loop {
                let mut message = vec![0; 4096];
                let length = self.socket.recv(&mut message).await?;
                message.truncate(length);
                if message.starts_with(&own) {
                    return parse(&message);
                }
            }
        };
        timeout(TIMEOUT, answered).await?
    }
}

fn question(id: u16, name: &str) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let mut message = vec![high, low, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, TYPE_A as u8, 0, 1]);
    message
}

fn parse(message: &[u8]) -> Result<Answer> {
    const HEADER: usize = 12;
    const FIXED: usize = 10;
    let rcode = message.get(3).context("no header")? & 0x0f;
    ensure!(rcode == 0 || rcode == 3, "the server answers with code {rcode}");
    let mut answer = Answer { truncated: message[2] & 2 != 0, ..Answer::default() };
    let (_, mut at) = name(message, HEADER)?;
    at += 4;
    for _ in 0..number(message, 6)? {
        let data = name(message, at)?.1 + FIXED;
        let (kind, length) = (number(message, data - FIXED)?, usize::from(number(message, data - 2)?));
        let ttl = u32::from(number(message, data - 6)?) << 16 | u32::from(number(message, data - 4)?);
        let value = match kind {
            TYPE_A => {
                let octets: [u8; 4] = message.get(data..data + 4).context("no address")?.try_into()?;
                Some(Ipv4Addr::from(octets).to_string())
            }
            TYPE_CNAME => Some(name(message, data)?.0),
            _ => None,
        };
        answer.ttl = answer.ttl.or(value.as_ref().map(|_| ttl));
        answer.values.extend(value);
        at = data + length;
    }
    answer.values.sort();
    Ok(answer)
}

fn number(message: &[u8], at: usize) -> Result<u16> {
    Ok(u16::from_be_bytes(message.get(at..at + 2).context("the message is cut")?.try_into()?))
}

/// Reads a name, and returns where what follows it begins.
fn name(message: &[u8], mut at: usize) -> Result<(String, usize)> {
    let (mut labels, mut after) = (Vec::new(), None);
    loop {
        let length = usize::from(*message.get(at).context("the name is cut")?);
        match length {
            0 => return Ok((labels.join("."), after.unwrap_or(at + 1))),
            1..64 => {
                let label = message.get(at + 1..at + 1 + length).context("the label is cut")?;
                labels.push(String::from_utf8_lossy(label).into_owned());
                at += 1 + length;
            }
            _ => {
                let target = usize::from(number(message, at)? & 0x3fff);
                ensure!(target < at, "a name leads forward");
                after = after.or(Some(at + 2));
                at = target;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_read_with_its_compressed_names() {
        let mut message = question(7, "web.example.test");
        message[2..8].copy_from_slice(&[0x84, 0, 0, 1, 0, 1]);
        message.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 30, 0, 4, 1, b'b', 0xc0, 16]);
        let answer = parse(&message).unwrap();
        assert_eq!((answer.values, answer.ttl), (vec!["b.example.test".to_owned()], Some(30)));
    }

    #[test]
    fn a_name_that_does_not_exist_is_nothing() {
        let mut message = question(7, "web.example.test");
        message[2..4].copy_from_slice(&[0x84, 3]);
        assert!(parse(&message).unwrap().is_nothing());
        message[3] = 5;
        assert!(parse(&message).is_err());
    }
}
