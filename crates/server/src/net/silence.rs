//! Peers that do not answer requests.
//!
//! ```text
//!   a request got no answer for SILENT_AFTER ──▶ silent: a probe every PROBE_EVERY; no new directories there
//!   any answer, or a handshake ────────────────▶ answers
//! ```
//! Requests to a silent peer are sent as usual. Only work that another server can do is not given to the
//! silent peer: otherwise each new directory that the rotation places on that peer would wait for it.

use shoal_proto::ServerId;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

/// A request that waited so long for nothing shows that its server is silent.
pub const SILENT_AFTER: Duration = Duration::from_secs(2);
/// How often a silent peer is asked whether it answers again.
pub const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How long an answer to that may take.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The silent peers. See the module's page.
#[derive(Default)]
pub struct Silence(RefCell<BTreeSet<ServerId>>);

impl Silence {
    /// A request to the peer waited for nothing; whether that is news.
    pub fn begins(&self, server: ServerId) -> bool {
        self.0.borrow_mut().insert(server)
    }

    /// The peer said something.
    pub fn ends(&self, server: ServerId) {
        // Every answer comes here.
        if !self.0.borrow().is_empty() {
            self.0.borrow_mut().remove(&server);
        }
    }

    /// Whether the peer is silent.
    pub fn is(&self, server: ServerId) -> bool {
        self.0.borrow().contains(&server)
    }
}
