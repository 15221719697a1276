//! Standard output: words, bytes and JSON, with a reader that may leave early.

use anyhow::{Context as _, Result};
use serde::Serialize;
use std::io::{ErrorKind, Write as _};

/// Write a line.
pub fn line(text: impl AsRef<str>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_ref().as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush())?;
    Ok(())
}

/// Write a line for whoever still reads: a server does not end because its reader left.
pub fn tell(text: impl AsRef<str>) {
    if let Err(error) = line(text) {
        tracing::debug!("nobody reads: {error:#}");
    }
}

/// Write bytes as they are.
pub fn bytes(bytes: &[u8]) -> Result<()> {
    std::io::stdout().lock().write_all(bytes)?;
    Ok(())
}

/// Write a value as one line of JSON.
pub fn json_line(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value).context("cannot write the answer as JSON")?)
}

/// Write a value as JSON for people too.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(value).context("cannot write the answer as JSON")?)
}

/// Whether an error is that nobody reads our output any more.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}
