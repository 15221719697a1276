//! The log of events, on standard error or in the log file of a mount in the background. The variable
//! `SHOAL_LOG` has its filter. Without the variable, `-v`, `-vv` and `-vvv` choose a filter.

use crate::log_file::LogFile;
use std::sync::Arc;
use tracing_subscriber::EnvFilter;

/// Begin to log; nothing if the events are `simulated`, unless requested.
pub fn start(verbose: u8, simulated: bool) {
    let customary = match verbose {
        0 if simulated => "off",
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = match std::env::var("SHOAL_LOG") {
        Ok(words) if !words.is_empty() => EnvFilter::try_new(&words).unwrap_or_else(|error| {
            eprintln!("shoal: SHOAL_LOG is no filter, `{customary}` is used: {error}");
            EnvFilter::new(customary)
        }),
        _ => EnvFilter::new(customary),
    };
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let told = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    // Fails only if logging was begun before, which never happens.
    let _ = match LogFile::of_this_process() {
        Some(log) => told.with_writer(Arc::new(log)).try_init(),
        None => told.with_writer(std::io::stderr).try_init(),
    };
}
