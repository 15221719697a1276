//! Standard output: words, bytes and JSON. If its reader ends early, the command ends without an error.

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;
use std::io::{ErrorKind, Write as _};

/// Write a line.
pub fn line(text: impl AsRef<str>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_ref().as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush())?;
    Ok(())
}

/// Write a line for a reader, if there still is one: a server does not end because its reader left.
pub fn tell(text: impl AsRef<str>) {
    if let Err(error) = line(text) {
        tracing::debug!("no reader: {error:#}");
    }
}

/// Write bytes as they are.
pub fn bytes(bytes: &[u8]) -> Result<()> {
    std::io::stdout().lock().write_all(bytes)?;
    Ok(())
}

/// The version of what `--json` writes. It grows when a name that was there gets another meaning or is gone,
/// not when one is added.
const SCHEMA: u32 = 1;

/// A value with the version of its names: an object has it itself, a list in each of its objects.
fn versioned(value: &impl Serialize) -> Result<Value> {
    let mut value = serde_json::to_value(value).context("cannot write the answer as JSON")?;
    let objects = match &mut value {
        Value::Array(all) => all.iter_mut().collect(),
        one => vec![one],
    };
    for object in objects.into_iter().filter_map(Value::as_object_mut) {
        object.insert("schema".to_owned(), SCHEMA.into());
    }
    Ok(value)
}

/// Write a value as one line of JSON.
pub fn json_line(value: &impl Serialize) -> Result<()> {
    line(versioned(value)?.to_string())
}

/// Write a value as one line of JSON for a remaining reader, as [`tell`].
pub fn tell_json(value: &impl Serialize) {
    if let Err(error) = json_line(value) {
        tracing::debug!("no reader: {error:#}");
    }
}

/// Write a value as JSON for people too.
pub fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string_pretty(&versioned(value)?).context("cannot write the answer as JSON")?)
}

/// Whether an error means that the reader of our output has gone.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_as_json_says_the_version_of_its_names() {
        assert_eq!(versioned(&json!({ "a": 1 })).unwrap(), json!({ "a": 1, "schema": 1 }));
        assert_eq!(
            versioned(&json!([{ "a": 1 }, {}])).unwrap(),
            json!([{ "a": 1, "schema": 1 }, { "schema": 1 }])
        );
        assert_eq!(versioned(&json!([1, "a"])).unwrap(), json!([1, "a"]));
    }
}
