//! SOCKS5 (RFC 1928), with user and password (RFC 1929).

use std::net::IpAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    Login, Server,
    fault::{ProxyFault, of_socket},
};
use crate::dialer::Io;

const VERSION: u8 = 5;
const CONNECT: u8 = 1;

// Authentication methods.
const NOBODY: u8 = 0;
const LOGIN: u8 = 2;
const NO_WAY: u8 = 0xff;

// Address types.
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Asks the proxy at the other end of `stream` to connect to the server, and returns the stream to the server.
pub(super) async fn ask<S: Io>(
    mut stream: S,
    server: &Server,
    login: Option<&Login>,
) -> Result<Box<dyn Io>, ProxyFault> {
    let methods: &[u8] = if login.is_some() { &[NOBODY, LOGIN] } else { &[NOBODY] };
    say(&mut stream, &[&[VERSION, methods.len() as u8], methods].concat()).await?;
    let [version, method] = hear(&mut stream).await?;
    speaks(version, VERSION)?;
    match (method, login) {
        (NOBODY, _) => {}
        (LOGIN, Some(login)) => introduce(&mut stream, login).await?,
        (NO_WAY, None) => return Err(ProxyFault::NoCredentials),
        (NO_WAY, Some(_)) => return Err(ProxyFault::WrongCredentials),
        (other, _) => return Err(garbled(format!("it chose method {other}, which was not offered"))),
    }
    say(&mut stream, &request(server)).await?;
    let [version, reply, _, kind] = hear(&mut stream).await?;
    speaks(version, VERSION)?;
    if reply != 0 {
        return Err(ProxyFault::Reply(reply));
    }
    // The proxy's own address is not needed, but precedes the server's first bytes.
    match kind {
        IPV4 => drop(hear::<6>(&mut stream).await?),
        IPV6 => drop(hear::<18>(&mut stream).await?),
        NAME => {
            let [length] = hear(&mut stream).await?;
            let mut rest = vec![0; usize::from(length) + 2];
            stream.read_exact(&mut rest).await.map_err(|error| of_socket(&error))?;
        }
        other => return Err(garbled(format!("an address of kind {other}"))),
    }
    Ok(Box::new(stream))
}

async fn introduce<S: Io>(stream: &mut S, Login { user, password }: &Login) -> Result<(), ProxyFault> {
    /// The version of this part alone.
    const VERSION: u8 = 1;
    // The proxy's configuration has checked that both lengths fit into a byte.
    let words = [&[VERSION, user.len() as u8], &user[..], &[password.len() as u8], &password[..]].concat();
    say(stream, &words).await?;
    let [version, status] = hear(stream).await?;
    speaks(version, VERSION)?;
    if status == 0 { Ok(()) } else { Err(ProxyFault::WrongCredentials) }
}

fn request(server: &Server) -> Vec<u8> {
    let mut words = vec![VERSION, CONNECT, 0];
    match server.address() {
        Some(IpAddr::V4(address)) => {
            words.push(IPV4);
            words.extend(address.octets());
        }
        Some(IpAddr::V6(address)) => {
            words.push(IPV6);
            words.extend(address.octets());
        }
        None => {
            // Its length fits into a byte, likewise checked.
            words.extend([NAME, server.host.len() as u8]);
            words.extend(server.host.as_bytes());
        }
    }
    words.extend(server.port.to_be_bytes());
    words
}

async fn say<S: Io>(stream: &mut S, words: &[u8]) -> Result<(), ProxyFault> {
    stream.write_all(words).await.map_err(|error| of_socket(&error))?;
    stream.flush().await.map_err(|error| of_socket(&error))
}

async fn hear<const N: usize>(stream: &mut (impl Io + ?Sized)) -> Result<[u8; N], ProxyFault> {
    let mut words = [0; N];
    stream.read_exact(&mut words).await.map_err(|error| of_socket(&error))?;
    Ok(words)
}

fn speaks(version: u8, expected: u8) -> Result<(), ProxyFault> {
    match version == expected {
        true => Ok(()),
        false => Err(garbled("it does not speak SOCKS5".to_owned())),
    }
}

fn garbled(reason: String) -> ProxyFault {
    ProxyFault::Garbled(reason.into())
}
