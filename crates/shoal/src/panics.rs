//! The handling of a panic: if a server or a mount panics, its process ends, so that a supervisor starts it
//! again.
//!
//! The panic itself is caught by the code that drives the event loop (`shoal_env::real`). This module keeps
//! the message of the panic, which the process prints at its end.

use std::panic::PanicHookInfo;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The time for an orderly end after a panic; then the process ends as it is.
const END_MAX: Duration = Duration::from_secs(60);

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// From now on the messages of panics are kept, too.
pub fn watch() {
    let customary = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(words(info));
        customary(info);
    }));
}

fn words(info: &PanicHookInfo<'_>) -> String {
    let said = info.payload_as_str().unwrap_or("no words");
    let at = info.location().map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
    format!("a panic{at}: {said}")
}

/// The message of the last panic.
pub fn last() -> String {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.clone().unwrap_or_else(|| "a panic".to_owned())
}

/// A part is dead: the others in this process get a while to end well.
pub fn end_soon() {
    let end = || {
        std::thread::sleep(END_MAX);
        eprintln!(
            "shoal: the rest does not end within {END_MAX:?} after a panic: this process ends as it is"
        );
        std::process::exit(1);
    };
    if std::thread::Builder::new().name("end".to_owned()).spawn(end).is_err() {
        std::process::exit(1);
    }
}
