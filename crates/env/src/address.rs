//! Addresses of servers.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest host name (RFC 1035), and longest part of one.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// An endpoint. Written `tcp:127.0.0.1:7441` (or just `127.0.0.1:7441`), `tcp:host:7441`, `unix:/path`,
/// `local:name`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Address {
    /// TCP, with `TCP_NODELAY`.
    Tcp(SocketAddr),
    /// TCP at a host name and a port. The name is resolved for each connection. A listener at a host name
    /// listens at this port of all addresses of this machine; at `localhost`, of the loopback.
    Host(String, u16),
    /// A Unix stream socket.
    Unix(PathBuf),
    /// A stream between threads of this process (real) or between simulated processes (simulated). The name
    /// is unique in the process or simulated world.
    Local(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(addr) => write!(f, "tcp:{addr}"),
            Address::Host(host, port) => write!(f, "tcp:{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Local(name) => write!(f, "local:{name}"),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Address::Unix(PathBuf::from(path)));
        }
        if let Some(name) = text.strip_prefix("local:") {
            return Ok(Address::Local(name.to_owned()));
        }
        let addr = text.strip_prefix("tcp:").unwrap_or(text);
        addr.parse().map(Address::Tcp).ok().or_else(|| host_and_port(addr)).ok_or_else(|| {
            format!("`{text}` is not an address: write tcp:IP:PORT, tcp:HOST:PORT, unix:/PATH or local:NAME")
        })
    }
}

impl Address {
    /// Whether only processes of this machine reach it.
    pub fn is_of_this_machine(&self) -> bool {
        match self {
            Address::Tcp(addr) => addr.ip().is_loopback(),
            Address::Host(host, _) => is_loopback(host),
            Address::Unix(_) | Address::Local(_) => true,
        }
    }

    /// Whether it is a port of a machine: `tcp:…`.
    pub fn is_tcp(&self) -> bool {
        matches!(self, Address::Tcp(_) | Address::Host(..))
    }
}

/// Whether a name means the loopback on every machine (RFC 6761).
pub(crate) fn is_loopback(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

fn host_and_port(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    Some(Address::Host(host.to_owned(), port.parse().ok()?)).filter(|_| is_host_name(host))
}

/// Whether it is a host name. A name whose last part is a number is a mistyped address.
fn is_host_name(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_plain = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        (1..=LABEL_BYTES_MAX).contains(&label.len()) && is_plain && !label.starts_with('-')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= HOST_BYTES_MAX && name.split('.').all(is_label) && !last.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in
            ["tcp:10.0.0.1:7441", "tcp:[::1]:7441", "tcp:node-7.lab.example:7441", "unix:/run/s", "local:a"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("node7:7441".parse(), Ok(Address::Host("node7".to_owned(), 7441)));
        assert!("localhost:1".parse::<Address>().unwrap().is_of_this_machine());
        assert!(!"localhost.example:1".parse::<Address>().unwrap().is_of_this_machine());
    }

    #[test]
    fn a_mistyped_address_is_no_host_name() {
        for text in
            ["10.0.0.300:7441", "10.0.1:7441", "node7", "node7:", "node7:70000", ":7441", "a b:1", "a..b:1"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        let long = format!("{}:1", "a.".repeat(200));
        assert!(long.parse::<Address>().is_err());
    }
}
