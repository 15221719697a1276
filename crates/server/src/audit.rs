//! The audit log: connections, refusals, and all that administrators did. One JSON object a line, in a file
//! of the server's own.
//!
//! ```text
//!   events (connections, refusals, management) ─▶ rate ─▶ queue ─▶ writer (a task) ─▶ FILE, FILE.1
//!                                                  │        └─ full: counted, a line says how many are lost
//!                                                  └─ over: counted, a line says how many were left out
//! ```
//! **Invariant: an event never waits for the file, and never fails for it.** It enters a queue that has a
//! bound; one task writes. The reply to an operation that manages waits until its line was written (not
//! synced), or that was tried once, or [`REPLY_WAITS_MAX`] is over. A write that fails is a warning, is tried
//! again, and is shown by `shoal status`; the lines wait as long as the queue has room.
//!
//! **Invariant: all that strangers can cause has a rate** ([`rate`]), and so has all that the holder of a
//! mount key can cause: neither pushes the lines of administrators out of the log. A change by an
//! administrator has no rate.
//!
//! A clean stop writes the lines that wait. A kill loses them; a start without a `stopped` before it shows
//! that. **No line has a secret**: no key, no capability, no proof, no id of a session.

mod events;
mod file;
mod line;
mod queue;
mod rate;

pub use events::Stated;
pub(crate) use queue::Noted;

use crate::log_limit::Seldom;
use crate::tasks::Tasks;
use file::AuditFile;
use futures_util::future::select;
use line::line;
use queue::{Kind, Queue};
use serde_json::{Value, json};
use shoal_env::Env;
use shoal_env::local::Notify;
use shoal_proto::ServerId;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// The reply to an operation that manages waits no longer for its line.
pub const REPLY_WAITS_MAX: Duration = Duration::from_secs(1);
/// A failed write is tried again after this time.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether a line may say how many were left out.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Warnings of an unwritable file come no more often.
const WARNING_EVERY: Duration = Duration::from_secs(60);
/// A clean stop waits no longer for the lines that wait.
const STOP_WAITS_MAX: Duration = Duration::from_secs(3);

/// Where the audit log of a server lies, and its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The file.
    pub file: PathBuf,
    /// Bytes of this file, and of the one before it, at most.
    pub bytes_max: u64,
}

/// A server's audit log; by default there is none, and nothing is noted.
#[derive(Clone, Default)]
pub struct Audit(Option<Rc<Log>>);

struct Log {
    env: Env,
    server: ServerId,
    file: AuditFile,
    queue: RefCell<Queue>,
    /// Woken when a line waits.
    more: Notify,
    /// Woken when lines were written, or that failed.
    tried: Notify,
    problem: RefCell<Option<String>>,
    warnings: RefCell<Seldom>,
    writer: Tasks,
    is_ended: Cell<bool>,
}

impl Audit {
    /// Open the log of a server, if it is to have one.
    ///
    /// # Errors
    /// When its file cannot be opened, is not this user's alone, or is no audit log.
    pub async fn open(env: &Env, server: ServerId, config: Option<AuditConfig>) -> io::Result<Audit> {
        let Some(AuditConfig { file, bytes_max }) = config else { return Ok(Audit(None)) };
        let file = AuditFile::new(env.clone(), file, bytes_max);
        file.open().await?;
        let log = Rc::new(Log {
            env: env.clone(),
            server,
            file,
            queue: RefCell::new(Queue::new()),
            more: Notify::default(),
            tried: Notify::default(),
            problem: RefCell::default(),
            warnings: RefCell::new(Seldom::new(WARNING_EVERY)),
            writer: Tasks::default(),
            is_ended: Cell::new(false),
        });
        log.writer.spawn(env, "audit", write_on(log.clone()));
        Ok(Audit(Some(log)))
    }

    /// Whether there is one.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// An event. Its fields are made only if there is a log and its kind has not used up its rate.
    fn note(&self, kind: Kind, event: &str, fields: impl FnOnce() -> Value) -> Option<Noted> {
        let log = self.0.as_ref().filter(|log| !log.is_ended.get())?;
        let has_left_out = log.queue.borrow().has_left_out();
        if log.queue.borrow_mut().takes(kind, log.env.now()) {
            return Some(log.enter(event, fields()));
        }
        if !has_left_out {
            log.more.wake_all();
        }
        None
    }

    /// Wait until a line was written, or that failed once; no longer than [`REPLY_WAITS_MAX`].
    pub(crate) async fn until_tried(&self, noted: Noted) {
        let Some(log) = &self.0 else { return };
        let tried = async {
            loop {
                let next = log.tried.wait();
                if log.queue.borrow().is_tried(noted) || log.is_ended.get() {
                    return;
                }
                next.await;
            }
        };
        // The reply leaves then all the same.
        let _ = log.env.deadline(log.env.now() + REPLY_WAITS_MAX, tried).await;
    }

    /// The state for `shoal status`; null without a log.
    pub fn status(&self) -> Value {
        let Some(log) = &self.0 else { return Value::Null };
        let queue = log.queue.borrow();
        json!({
            "file": log.file.path().display().to_string(),
            "written": queue.written,
            "waiting": queue.len(),
            "lost": queue.lost,
            "problem": *log.problem.borrow(),
        })
    }

    /// The server ends: write what waits, for a bounded time.
    pub(crate) async fn close(&self, reason: Option<&str>) {
        let Some(log) = &self.0 else { return };
        log.report_missing(true);
        self.note(Kind::Server, "stopped", || json!({ "reason": reason }));
        let written = async {
            loop {
                let next = log.tried.wait();
                if log.queue.borrow().len() == 0 {
                    return;
                }
                next.await;
            }
        };
        if log.env.deadline(log.env.now() + STOP_WAITS_MAX, written).await.is_err() {
            let lines = log.queue.borrow().len();
            tracing::warn!(lines, file = %log.file.path().display(), "lines of the audit log were not written before the stop");
        }
        self.abandon();
    }

    /// The server ends as by a crash.
    pub(crate) fn abandon(&self) {
        if let Some(log) = &self.0 {
            log.is_ended.set(true);
            log.writer.cancel();
            log.tried.wake_all();
        }
    }
}

impl Log {
    fn enter(&self, event: &str, fields: Value) -> Noted {
        let line = line(self.env.wall(), self.server, event, fields);
        let noted = self.queue.borrow_mut().enter(line);
        self.more.wake_all();
        noted
    }

    /// Lines that say how many others were left out, or are lost, as far as they are due.
    fn report_missing(&self, is_end: bool) {
        let left_out = self.queue.borrow_mut().left_out(self.env.now(), is_end);
        for (kind, count) in left_out {
            self.enter("left_out", json!({ "of": kind.words(), "count": count }));
        }
        let lost = self.queue.borrow_mut().lost_to_report();
        if let Some(count) = lost {
            self.enter("lost", json!({ "count": count }));
        }
    }

    /// Write the first lines that wait.
    async fn write_some(&self) -> io::Result<()> {
        let (lines, count) = self.queue.borrow().first();
        let written = self.file.append(lines).await;
        self.queue.borrow_mut().tried(count, written.is_ok());
        self.tried.wake_all();
        written
    }

    fn explain(&self, error: &io::Error) {
        let (waiting, lost) = (self.queue.borrow().len(), self.queue.borrow().lost);
        let words = format!(
            "the audit log {} cannot be written: {error}; {waiting} lines wait and {lost} are lost: make room, or let this user \
             write there",
            self.file.path().display()
        );
        if self.warnings.borrow_mut().is_due(self.env.now()).is_some() {
            tracing::warn!("NOT WELL: server {}: {words}", self.server);
        }
        self.problem.replace(Some(words));
    }
}

/// The one task that writes.
async fn write_on(log: Rc<Log>) {
    loop {
        let more = log.more.wait();
        log.report_missing(false);
        if log.queue.borrow().len() == 0 {
            let is_to_report = log.queue.borrow().has_left_out();
            match is_to_report {
                true => drop(select(more, log.env.sleep(REPORT_EVERY)).await),
                false => more.await,
            }
            continue;
        }
        match log.write_some().await {
            Ok(()) => {
                if log.problem.take().is_some() {
                    tracing::info!(file = %log.file.path().display(), "the audit log is written again");
                }
            }
            Err(error) => {
                log.explain(&error);
                log.env.sleep(RETRY_EVERY).await;
            }
        }
    }
}
