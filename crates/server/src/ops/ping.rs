//! ping: nothing; measures the way, and keeps a session's lease.

use crate::ctx::Halt;
use shoal_env::mutant;
use shoal_proto::Answer;

/// Nothing.
pub fn run() -> Result<Answer, Halt> {
    mutant::panic_if_asked("server");
    Ok(Answer::Done {})
}
