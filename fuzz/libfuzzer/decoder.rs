//! One target for `cargo fuzz`: the one with this program's name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shoal_fuzz::{Counting, TARGETS};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fuzz_target!(|data: &[u8]| {
    let target = TARGETS.iter().find(|target| target.name == env!("CARGO_BIN_NAME"));
    (target.expect("every program of this package is named after a target").run)(data);
});
