//! The costs of a phase other than wall-clock time: processor time, messages, syncs, bytes.
//!
//! If a target has counts, they are read before and after every phase, while all workers wait. Rates show the
//! result of a phase; counts explain it, and bounds are made of them ([`crate::bounds`]). Processor time
//! varies far less than wall-clock time.

use serde::{Deserialize, Serialize};

/// Which end of a phase. The cost of reading the counts should fall outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The phase comes next: processor time is read last.
    Before,
    /// The phase has ended: processor time is read first.
    Behind,
}

/// Running counts of clients and servers together, or the counts between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Processor time of the clients, microseconds.
    pub client_cpu_us: u64,
    /// Processor time of the servers, microseconds; 0 where their processes are not known.
    pub server_cpu_us: u64,
    /// Requests that servers took.
    pub requests: u64,
    /// Groups of the journals.
    pub groups: u64,
    /// Bytes of records in them.
    pub journal_bytes: u64,
    /// Syncs, of journals and of everything else.
    pub syncs: u64,
    /// Bytes that the servers had written to disks: journals, prewriting, cleaning, checkpoints.
    pub disk_bytes: u64,
    /// Writes to files for which the servers called another thread.
    pub thread_writes: u64,
}

impl Counts {
    /// The counts since `earlier`.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts {
            client_cpu_us: self.client_cpu_us.saturating_sub(earlier.client_cpu_us),
            server_cpu_us: self.server_cpu_us.saturating_sub(earlier.server_cpu_us),
            requests: self.requests.saturating_sub(earlier.requests),
            groups: self.groups.saturating_sub(earlier.groups),
            journal_bytes: self.journal_bytes.saturating_sub(earlier.journal_bytes),
            syncs: self.syncs.saturating_sub(earlier.syncs),
            disk_bytes: self.disk_bytes.saturating_sub(earlier.disk_bytes),
            thread_writes: self.thread_writes.saturating_sub(earlier.thread_writes),
        }
    }

    /// Both together.
    pub fn and(&self, other: &Counts) -> Counts {
        Counts {
            client_cpu_us: self.client_cpu_us + other.client_cpu_us,
            server_cpu_us: self.server_cpu_us + other.server_cpu_us,
            requests: self.requests + other.requests,
            groups: self.groups + other.groups,
            journal_bytes: self.journal_bytes + other.journal_bytes,
            syncs: self.syncs + other.syncs,
            disk_bytes: self.disk_bytes + other.disk_bytes,
            thread_writes: self.thread_writes + other.thread_writes,
        }
    }

    /// Processor time of all, microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.client_cpu_us + self.server_cpu_us
    }

    /// Bytes of records in a group, on average; 0 where there was none.
    pub fn group_bytes(&self) -> u64 {
        self.journal_bytes.checked_div(self.groups).unwrap_or(0)
    }
}

/// Processor time of a process and its threads, microseconds: to the nanosecond where the kernel keeps that.
pub fn cpu_us_of(pid: u32) -> u64 {
    let folder = std::path::PathBuf::from(format!("/proc/{pid}/task"));
    let Ok(threads) = std::fs::read_dir(folder) else { return 0 };
    let of = |path: std::path::PathBuf| -> u64 {
        let text = std::fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    threads.flatten().map(|thread| of(thread.path())).sum::<u64>() / 1000
}

/// Processor time of this process, threads that have ended included, microseconds.
pub fn cpu_us_here() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// How often the threads of a process went to sleep by themselves.
pub fn sleeps_of(pid: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let of = |path: std::path::PathBuf| -> u64 {
        let text = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    };
    threads.flatten().map(|thread| of(thread.path())).sum()
}

/// Bytes that a process had written to disks.
pub fn disk_bytes_of(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_phase_are_differences_and_add_up() {
        let before = Counts { requests: 5, groups: 1, journal_bytes: 100, ..Counts::default() };
        let behind = Counts { requests: 25, groups: 3, journal_bytes: 8300, ..Counts::default() };
        let phase = behind.since(&before);
        assert_eq!((phase.requests, phase.group_bytes()), (20, 4100));
        assert_eq!(phase.and(&before), behind);
        assert_eq!(Counts::default().group_bytes(), 0, "no group has no size");
    }

    #[test]
    fn processor_time_of_this_process_grows_with_work() {
        let (here, listed) = (cpu_us_here(), cpu_us_of(std::process::id()));
        let mut n = 1_u64;
        while cpu_us_here() < here + 20_000 {
            n = std::hint::black_box(n.wrapping_mul(3));
        }
        assert!(cpu_us_of(std::process::id()) >= listed, "{n}");
        assert!(cpu_us_here() > here);
    }
}
