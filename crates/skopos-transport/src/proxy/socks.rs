//! SOCKS5 (RFC 1928), with user and password (RFC 1929).

use std::net::IpAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fault::{ProxyFault, from_socket_error};
use super::{Login, Server};
use crate::dialer::Io;

const VERSION: u8 = 5;
const CONNECT: u8 = 1;

// Authentication methods.
const NO_AUTHENTICATION: u8 = 0;
const USERNAME_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;

// Address types.
const IPV4: u8 = 1;
const DOMAIN_NAME: u8 = 3;
const IPV6: u8 = 4;

/// Asks the proxy at the other end of `stream` to connect to the server, and returns the stream to the server.
pub(super) async fn connect<S: Io>(
    mut stream: S,
    server: &Server,
    login: Option<&Login>,
) -> Result<Box<dyn Io>, ProxyFault> {
    let methods: &[u8] =
        if login.is_some() { &[NO_AUTHENTICATION, USERNAME_PASSWORD] } else { &[NO_AUTHENTICATION] };
    write(&mut stream, &[&[VERSION, methods.len() as u8], methods].concat()).await?;
    let [version, method] = read_array(&mut stream).await?;
    check_version(version, VERSION)?;
    match (method, login) {
        (NO_AUTHENTICATION, _) => {}
        (USERNAME_PASSWORD, Some(login)) => authenticate(&mut stream, login).await?,
        (NO_ACCEPTABLE_METHOD, None) => return Err(ProxyFault::NoCredentials),
        (NO_ACCEPTABLE_METHOD, Some(_)) => return Err(ProxyFault::WrongCredentials),
        (other, _) => return Err(garbled(format!("it chose method {other}, which was not offered"))),
    }
    write(&mut stream, &request(server)).await?;
    let [version, reply, _, kind] = read_array(&mut stream).await?;
    check_version(version, VERSION)?;
    if reply != 0 {
        return Err(ProxyFault::Reply(reply));
    }
    // The proxy's own address is not needed, but precedes the server's first bytes.
    match kind {
        IPV4 => drop(read_array::<6>(&mut stream).await?),
        IPV6 => drop(read_array::<18>(&mut stream).await?),
        DOMAIN_NAME => {
            let [length] = read_array(&mut stream).await?;
            let mut rest = vec![0; usize::from(length) + 2];
            stream.read_exact(&mut rest).await.map_err(|error| from_socket_error(&error))?;
        }
        other => return Err(garbled(format!("an address of kind {other}"))),
    }
    Ok(Box::new(stream))
}

async fn authenticate<S: Io>(stream: &mut S, Login { user, password }: &Login) -> Result<(), ProxyFault> {
    /// The version of this part alone.
    const VERSION: u8 = 1;
    // The proxy's configuration has checked that both lengths fit into a byte.
    let bytes = [&[VERSION, user.len() as u8], &user[..], &[password.len() as u8], &password[..]].concat();
    write(stream, &bytes).await?;
    let [version, status] = read_array(stream).await?;
    check_version(version, VERSION)?;
    if status == 0 { Ok(()) } else { Err(ProxyFault::WrongCredentials) }
}

fn request(server: &Server) -> Vec<u8> {
    let mut bytes = vec![VERSION, CONNECT, 0];
    match server.address() {
        Some(IpAddr::V4(address)) => {
            bytes.push(IPV4);
            bytes.extend(address.octets());
        }
        Some(IpAddr::V6(address)) => {
            bytes.push(IPV6);
            bytes.extend(address.octets());
        }
        None => {
            // Its length fits into a byte, likewise checked.
            bytes.extend([DOMAIN_NAME, server.host.len() as u8]);
            bytes.extend(server.host.as_bytes());
        }
    }
    bytes.extend(server.port.to_be_bytes());
    bytes
}

async fn write<S: Io>(stream: &mut S, bytes: &[u8]) -> Result<(), ProxyFault> {
    stream.write_all(bytes).await.map_err(|error| from_socket_error(&error))?;
    stream.flush().await.map_err(|error| from_socket_error(&error))
}

async fn read_array<const N: usize>(stream: &mut (impl Io + ?Sized)) -> Result<[u8; N], ProxyFault> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.map_err(|error| from_socket_error(&error))?;
    Ok(bytes)
}

fn check_version(version: u8, expected: u8) -> Result<(), ProxyFault> {
    match version == expected {
        true => Ok(()),
        false => Err(garbled("it does not speak SOCKS5".to_owned())),
    }
}

fn garbled(reason: String) -> ProxyFault {
    ProxyFault::Garbled(reason.into())
}
