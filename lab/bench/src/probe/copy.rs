//! Copies a file through one TCP connection into another file. A network client and its server do at least
//! this work for a large file, so the rate of the copy is the highest rate that such a client can reach
//! with one stream.
//!
//! The source is in the page cache, nothing is synced, both sides use buffers of 256 KiB. The time ends when
//! the last byte is in the other file.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use crate::buffer::Buffer;

/// Bytes of both sides' buffers.
const BUFFER: usize = 256 * 1024;
/// The largest copy, bytes.
pub const COPY_MAX: u64 = 1 << 36;

/// The source, written once.
pub(crate) struct CopyFiles {
    source: PathBuf,
    copy: PathBuf,
    bytes: u64,
}

impl CopyFiles {
    pub(crate) fn new(home: &Path, bytes: u64) -> Result<CopyFiles> {
        if bytes > COPY_MAX {
            bail!("copy_bytes must be at most {COPY_MAX}, not {bytes}");
        }
        let source = home.join("source");
        let mut file =
            File::create(&source).with_context(|| format!("cannot create {}", source.display()))?;
        let block = Buffer::filled(BUFFER, 1);
        let mut left = bytes;
        while left > 0 {
            let n = left.min(BUFFER as u64);
            file.write_all(&block.as_ref()[..n as usize]).context("cannot write the source of the copy")?;
            left -= n;
        }
        Ok(CopyFiles { source, copy: home.join("copy"), bytes })
    }

    /// Copies once; 10^6 bytes a second.
    pub(crate) fn measure(&self) -> Result<f64> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
        let sender = TcpStream::connect(listener.local_addr()?).context("cannot connect over loopback")?;
        let (receiver, _) = listener.accept()?;
        let source = File::open(&self.source)?;
        let copy =
            File::create(&self.copy).with_context(|| format!("cannot create {}", self.copy.display()))?;
        let begun = Instant::now();
        let received = std::thread::scope(|scope| {
            let sending = scope.spawn(|| pump(source, sender));
            let received = pump(receiver, copy);
            sending.join().map_err(|_| anyhow!("the sender panicked"))??;
            received
        })?;
        let elapsed = begun.elapsed().as_secs_f64();
        std::fs::remove_file(&self.copy)?;
        if received != self.bytes {
            bail!("of {} bytes copied {received} came through", self.bytes);
        }
        Ok(self.bytes as f64 / 1e6 / elapsed)
    }
}

/// Moves everything from one to the other by whole buffers; both are closed at the end.
fn pump(mut from: impl Read, mut to: impl Write) -> Result<u64> {
    let mut buffer = vec![0u8; BUFFER];
    let mut total = 0;
    loop {
        let mut filled = 0;
        while filled < BUFFER {
            match from.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("copy: read"),
            }
        }
        to.write_all(&buffer[..filled]).context("copy: write")?;
        total += filled as u64;
        if filled < BUFFER {
            return Ok(total);
        }
    }
}
