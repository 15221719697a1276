//! The share of the journal and of the disk that a group may take, requested before it runs and returned when
//! it has ended.
//!
//! The request is generous, never exact. On a full disk it is refused, except to operations that free space:
//! otherwise the disk would stay full.

use shoal_proto::{Allocation, Op, limits};
use shoal_store::{Ask, Changes};

/// The operations that a full disk must not refuse: those that free space. Operations that only read are
/// allowed with them.
fn frees(op: &Op) -> bool {
    !op.changes()
        || matches!(
            op,
            Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::Release { .. }
                | Op::Hold { .. }
                | Op::Rmdirent { .. }
                | Op::Removemeta { .. }
                | Op::Removedata { .. }
                | Op::Settle { .. }
                | Op::Discard { .. }
                | Op::Removexattr { .. }
                | Op::Truncate { .. }
                | Op::Allocate { mode: Allocation::Punch, .. }
        )
}

/// Space to ask for before a group runs: generous, and given back when it has ended.
pub(super) fn ask_for(ops: &[Op]) -> Ask {
    let mut ask =
        Ask { journal_bytes: 1024 + limits::KEPT_REPLY_BYTES_MAX as u64, stream_bytes: 0, frees: true };
    for op in ops {
        ask.journal_bytes += 2048;
        match op {
            // The whole content of a small stream goes along, however little of it is written.
            Op::Write { .. } | Op::Append { .. } => ask.journal_bytes += Changes::SMALL_MAX as u64,
            Op::Setxattr { value, .. } => ask.journal_bytes += value.len() as u64,
            // A row of each pool that gives a datafile.
            Op::Unstuff { .. } | Op::Create { .. } | Op::Mknod { .. } => {
                ask.journal_bytes += 128 * limits::WIDTH_MAX as u64;
            }
            Op::Repair { actions } => ask.journal_bytes += 2048 * actions.len() as u64,
            // The rows that go, at their longest.
            Op::Split { entries, .. } => ask.journal_bytes += 320 * u64::from(*entries),
            Op::Addserver { .. } => ask.journal_bytes += 256 * limits::SERVERS_MAX as u64,
            _ => {}
        }
        ask.frees &= frees(op);
    }
    ask
}
