//! Where a server listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An endpoint. Written `tcp:127.0.0.1:7441` (or just `127.0.0.1:7441`), `unix:/path`, `local:name`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Address {
    /// TCP, with `TCP_NODELAY`.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
    /// A stream between threads of this process (real) or between simulated processes (simulated). The name is unique in
    /// the process or simulated world.
    Local(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(addr) => write!(f, "tcp:{addr}"),
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
        addr.parse()
            .map(Address::Tcp)
            .map_err(|_| format!("`{text}` is not an address: write tcp:IP:PORT, unix:/PATH or local:NAME"))
    }
}
