//! A pass-through mount to run other programs on, until it is unmounted.
//!
//! ```text
//! cargo run --release -p shoal-bench --example mount -- SOURCE MOUNTPOINT [NAMES_AND_ATTRIBUTES_KEPT_MS]
//! ```

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use shoal_bench::passthrough::{PassthroughOptions, spawn};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path =
        |index: usize, what: &str| args.get(index).map(Path::new).with_context(|| format!("name the {what}"));
    let mut options = PassthroughOptions { allow_other: true, ..PassthroughOptions::default() };
    if let Some(ttl_ms) = args.get(2) {
        options.ttl = Duration::from_millis(ttl_ms.parse().context("the time is no number")?);
    }
    let mounted = spawn(path(0, "source")?, path(1, "mountpoint")?, &options)?;
    println!("ready: {}", mounted.mountpoint().display());
    mounted.wait()
}
