//! The audit log: connections, refusals, and all that administrators did. Each line is one JSON object. The
//! files belong to this server alone.
//!
//! ```text
//!   changes by administrators, start, stop  ─▶ rate ─▶ queue ─▶ writer (a task) ─▶ FILE, FILE.1
//!   connections, sessions, refusals, reads  ─▶ rate ─▶ queue ─▶ writer ─▶ FILE.connections and its .1
//!                                               │        └─ full: counted, a line says how many are lost
//!                                               └─ over: counted, a line says how many were left out
//! ```
//! Connections with the admin key, and maps of other servers, go to FILE, too. *Reads* are operations that
//! manage and change nothing (`fsck` makes thousands of them).
//!
//! **Invariant: no operation fails because of the file, and none waits for it without a limit** (test:
//! `a_log_that_cannot_be_written_fails_no_operation_is_said_by_status_and_is_written_later`). An event enters
//! a bounded queue, and one task writes the queue to the file. The reply to a change by an administrator
//! waits until its line was written (not synced) or one try to write it has failed, and at most
//! [`REPLY_WAITS_MAX`]. No other reply waits for its line. A failed write is logged as a warning, shown by
//! `shoal status`, and tried again; its lines stay in the queue, and later lines wait as long as the queue
//! has room.
//!
//! **Invariant: events of strangers and of holders of a mount key push no line of an administrator out**
//! (tests: `a_flood_of_refusals_and_an_endless_fsck_leave_room_for_an_administrators_change`,
//! `connections_and_refusals_beyond_all_bounds_leave_the_line_of_an_administrators_change_where_it_is`).
//! Their rate is limited ([`rate`]), and they have a queue and files of their own, so they use neither the
//! room of the other queue nor the bytes of FILE. The rate of changes by an administrator is not limited.
//! (Without an admin key the first mount key manages, so its holders write such lines.)
//!
//! **One process writes a log**: it holds the lock of FILE.lock as long as it runs.
//!
//! A clean stop writes the waiting lines, for 3 s at most. A kill loses them; the log shows it by a start
//! without a `stopped` before it. **No line has a secret**: no key, no capability, no proof, no id of a
//! session.

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
use shoal_env::local::Notify;
use shoal_env::{Env, Instant, OpenOptions};
use shoal_proto::ServerId;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
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

/// A line that has waited longer is a problem, also while its write has not failed.
const WAITED_MAX: Duration = Duration::from_secs(10);

/// Where the audit log of a server lies, and its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    /// The file of what administrators did. The others lie beside it, with its name and an ending.
    pub file: PathBuf,
    /// Bytes of this file, of that of connections, and of the one before each, at most.
    pub bytes_max: u64,
}

/// A server's audit log; by default there is none, and nothing is noted.
#[derive(Clone, Default)]
pub struct Audit(Option<Rc<Logs>>);

/// The two logs of a server.
struct Logs {
    of_administrators: Rc<Log>,
    of_connections: Rc<Log>,
}

impl Logs {
    fn of(&self, kind: Kind) -> &Rc<Log> {
        if kind.is_of_administrators() { &self.of_administrators } else { &self.of_connections }
    }

    fn each(&self) -> [&Rc<Log>; 2] {
        [&self.of_administrators, &self.of_connections]
    }
}

/// A file, and the lines that wait for it.
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
    /// When a file of it cannot be opened, is not this user's alone, or is no audit log; when another server
    /// writes it.
    pub async fn open(env: &Env, server: ServerId, config: Option<AuditConfig>) -> io::Result<Audit> {
        let Some(AuditConfig { file, bytes_max }) = config else { return Ok(Audit(None)) };
        lock(env, &file::beside(&file, "lock")).await?;
        let others = file::beside(&file, "connections");
        let of_administrators = Log::open(env, server, AuditFile::new(env.clone(), file, bytes_max)).await?;
        let of_connections = Log::open(env, server, AuditFile::new(env.clone(), others, bytes_max)).await?;
        let logs = Logs { of_administrators, of_connections };
        for log in logs.each() {
            log.writer.spawn(env, "audit", write_on(log.clone()));
        }
        Ok(Audit(Some(Rc::new(logs))))
    }

    /// Whether there is one.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// An event. Its fields are made only if there is a log and its kind has not used up its rate.
    fn note(&self, kind: Kind, event: &str, fields: impl FnOnce() -> Value) -> Option<Noted> {
        let log = self.0.as_ref()?.of(kind);
        if log.is_ended.get() {
            return None;
        }
        let has_left_out = log.queue.borrow().has_left_out();
        if log.queue.borrow_mut().takes(kind, log.env.now()) {
            return Some(log.enter(event, fields()));
        }
        if !has_left_out {
            log.more.wake_all();
        }
        None
    }

    /// Wait until a line of what administrators did was written, or that failed once; no longer than
    /// [`REPLY_WAITS_MAX`].
    pub(crate) async fn until_tried(&self, noted: Noted) {
        let Some(log) = self.0.as_ref().map(|logs| &logs.of_administrators) else { return };
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
        let Some(logs) = &self.0 else { return Value::Null };
        let sum = |of: fn(&Queue) -> u64| logs.each().iter().map(|log| of(&log.queue.borrow())).sum::<u64>();
        json!({
            "file": logs.of_administrators.file.path().display().to_string(),
            "written": sum(|queue| queue.written),
            "waiting": sum(|queue| queue.len() as u64),
            "lost": sum(|queue| queue.lost),
            "problem": logs.each().iter().find_map(|log| log.problem_now()),
        })
    }

    /// The server ends: write what waits, for a bounded time.
    pub(crate) async fn close(&self, reason: Option<&str>) {
        let Some(logs) = &self.0 else { return };
        logs.each().iter().for_each(|log| log.report_missing(true));
        self.note(Kind::Server, "stopped", || json!({ "reason": reason }));
        let until = logs.of_administrators.env.now() + STOP_WAITS_MAX;
        for log in logs.each() {
            log.until_written(until).await;
        }
        self.abandon();
    }

    /// The server ends as by a crash.
    pub(crate) fn abandon(&self) {
        for log in self.0.iter().flat_map(|logs| logs.each()) {
            log.is_ended.set(true);
            log.writer.cancel();
            log.tried.wake_all();
        }
    }
}

/// Hold the lock of a log as long as this process runs.
async fn lock(env: &Env, path: &Path) -> io::Result<()> {
    let options = OpenOptions { create: true, private: true, ..OpenOptions::default() };
    env.open(path, options).await.map_err(|error| file::named(path, &error))?;
    env.lock(path).await.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let words = "another server writes it: give each server a file of its own";
            io::Error::new(io::ErrorKind::WouldBlock, words)
        }
        _ => file::named(path, &error),
    })
}

impl Log {
    async fn open(env: &Env, server: ServerId, file: AuditFile) -> io::Result<Rc<Log>> {
        file.check().await?;
        Ok(Rc::new(Log {
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
        }))
    }

    fn enter(&self, event: &str, fields: Value) -> Noted {
        let line = line(self.env.wall(), self.server, event, fields);
        let noted = self.queue.borrow_mut().enter(line, self.env.now());
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
        let (lines, count) = self.queue.borrow().first(self.file.bytes_max());
        let written = self.file.append(lines).await;
        self.queue.borrow_mut().tried(count, written.is_ok());
        self.tried.wake_all();
        written
    }

    /// Wait until no line waits; no longer than until then.
    async fn until_written(&self, until: Instant) {
        let written = async {
            loop {
                let next = self.tried.wait();
                if self.queue.borrow().len() == 0 {
                    return;
                }
                next.await;
            }
        };
        if self.env.deadline(until, written).await.is_err() {
            let lines = self.queue.borrow().len();
            tracing::warn!(lines, file = %self.file.path().display(), "lines of the audit log were not written before the stop");
        }
    }

    /// Why it is not written as it should be: a write failed, or none ends.
    fn problem_now(&self) -> Option<String> {
        let failed = self.problem.borrow().clone();
        failed.or_else(|| {
            let queue = self.queue.borrow();
            let waited = queue.waited(self.env.now());
            let is_stuck = waited > WAITED_MAX || queue.has_lost_unsaid();
            is_stuck.then(|| {
                format!(
                    "the audit log {} is not written: {} lines wait, the first for {} s, and {} are lost: does its disk answer?",
                    self.file.path().display(),
                    queue.len(),
                    waited.as_secs(),
                    queue.lost
                )
            })
        })
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
