//! The space in the journal and on the disk that a group (operations committed together) may take. It is
//! reserved before the group runs, and returned when the group has ended.
//!
//! The reserved space is an upper bound, never exact. On a full disk the request is refused, except for
//! operations that free space: otherwise the disk would stay full.

use crate::ops;
use shoal_proto::{Op, limits};
use shoal_store::Ask;

/// Space to ask for before a group runs: generous, and given back when it has ended.
pub(super) fn ask_for(ops: &[Op]) -> Ask {
    let mut ask = Ask {
        journal_bytes: 1024 + limits::KEPT_REPLY_BYTES_MAX as u64,
        stream_bytes: 0,
        stream: None,
        frees: true,
    };
    for op in ops {
        let facts = ops::of(op);
        ask.journal_bytes += 2048 + (facts.journal_bytes)(op);
        ask.frees &= (facts.frees)(op);
    }
    ask
}
