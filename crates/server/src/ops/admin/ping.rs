//! ping: nothing; measures the way, and keeps a session's lease.

use crate::request::ctx::Stopped;
use shoal_env::mutant;
use shoal_proto::Answer;

/// Nothing.
pub fn run() -> Result<Answer, Stopped> {
    mutant::panic_if_asked("server");
    Ok(Answer::Done {})
}
