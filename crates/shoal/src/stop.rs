//! The events that end a serving process: a signal, an unmount, or the failure of a server. A process that
//! was started for another process also ends when that process ends, in any way.

use anyhow::{Context as _, Result};
use shoal_proto::ServerId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Read as _;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Set in the environment of a process that is to end with its starter. Its standard input is then a pipe
/// without writes: its end shows the starter's end, where a killed starter could send no signal. (A version
/// that does not know this continues as before.)
pub const ENDS_WITH_INPUT: &str = "SHOAL_ENDS_WITH_INPUT";

/// Signals within such a span of the first are the same wish to stop.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A stop was requested, or the starter has ended.
    Signal,
    /// The mount is gone: it was unmounted.
    Unmounted,
    /// A server ended before it was to.
    Failed(ServerId, String),
}

/// Send the first stop signal as an event; end the process at the second.
pub fn watch(events: Sender<Event>) -> Result<()> {
    if std::env::var_os(ENDS_WITH_INPUT).is_some() {
        watch_input(events.clone())?;
    }
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
        // A group of processes and one of them may get the same wish: `timeout` and terminals send it so.
        let first = Instant::now();
        if let Some(signal) = signals.find(|_| first.elapsed() >= SAME_WISH) {
            eprintln!("shoal: stopped at once by a second signal; the next start recovers");
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).context("cannot watch for signals")?;
    Ok(())
}

/// Send the end of standard input as a wish to stop.
fn watch_input(events: Sender<Event>) -> Result<()> {
    let watch = move || {
        let (mut input, mut nothing) = (std::io::stdin(), [0; 64]);
        loop {
            match input.read(&mut nothing) {
                Ok(1..) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
            }
        }
        let _ = events.send(Event::Signal);
    };
    std::thread::Builder::new()
        .name("input".into())
        .spawn(watch)
        .context("cannot watch for the input's end")?;
    Ok(())
}

/// Whether we were started by `nohup`.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (SIGHUP - 1)) != 0
}
