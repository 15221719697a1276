//! How a test says that it cannot run here. libtest knows only *passed* and *failed*, and keeps the output of
//! a test that passes. So the test appends a line to the file that `SHOAL_TESTS_SKIPPED` names; `tests/run`
//! counts the lines.

use std::fs::OpenOptions;
use std::io::Write as _;

/// The test of this thread, or a part of it, cannot run here, for this reason.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    eprint!("not run: {line}");
    if let Some(path) = std::env::var_os("SHOAL_TESTS_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot write to {}: {error}", path.display()));
    }
}
