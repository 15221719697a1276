//! What ends a process that serves: signals, a mount that somebody unmounted, a server that failed.

use anyhow::{Context as _, Result};
use shoal_proto::ServerId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::Sender;

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// Somebody wants us to stop.
    Signal,
    /// The mount is gone: somebody unmounted it.
    Unmounted,
    /// A server ended before it was told to.
    Failed(ServerId, String),
}

/// Send the first stop signal as an event; end the process at the second.
pub fn watch(events: Sender<Event>) -> Result<()> {
    let mut wanted = vec![SIGINT, SIGTERM];
    if !hangup_is_ignored() {
        wanted.push(SIGHUP);
    }
    let mut signals = Signals::new(wanted).context("cannot watch for signals")?;
    let watch = move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            let _ = events.send(Event::Signal);
        }
        if let Some(signal) = signals.next() {
            eprintln!("shoal: stopped at once by a second signal; the next start recovers");
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).context("cannot watch for signals")?;
    Ok(())
}

/// Whether we were started by `nohup`.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (SIGHUP - 1)) != 0
}
