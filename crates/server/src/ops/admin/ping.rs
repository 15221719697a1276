//! ping: do nothing. The reply shows the time of a round trip, and the request keeps the session's lease.

use crate::ops::{OpFacts, handler};
use crate::request::ctx::Stopped;
use shoal_env::mutant;
use shoal_proto::Answer;

/// The facts of `ping`: a handler that needs no context.
pub const FACTS: OpFacts = OpFacts::new(handler!(|_| Ping { } => run()));

/// Nothing.
pub fn run() -> Result<Answer, Stopped> {
    mutant::panic_if_asked("server");
    Ok(Answer::Done {})
}
