//! The process of a writer, and whether it runs.
//!
//! A writer's process is known by host, process id, the process's start time, boot and PID namespace. The
//! process counts as ended only if that is proven: no process has its id, that process has a different start
//! time or is a zombie, or the machine has booted again. A process of another host or namespace counts as
//! alive, and so does a writer that names no process. For these writers the operator gives the option
//! `--ended`.
//!
//! ```text
//!   words of a head      node1, process 17, start 91234, namespace 4026531836
//!   a name in the bin    gone.ID.HOST.BOOT.NAMESPACE.PID.START        (host: a check sum of its name)
//! ```

use crate::record::Record;
use std::path::Path;

/// A process, as far as it is known; a number that is not known is 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Process {
    host: Host,
    boot: u64,
    namespace: u64,
    pid: u32,
    start: u64,
}

/// A host's name in short; `None`: many machines have it.
type Host = Option<u32>;

/// Whether a process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Runs,
    Ended,
    /// It is not known here: the reason.
    Unknown(&'static str),
}

/// This process, in words.
pub(super) fn own_words() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let pid = std::process::id();
    let start = stat(Path::new("/proc/self/stat")).map_or(0, |(start, _)| start);
    format!("{}, process {pid}, start {start}, namespace {}", host.trim(), namespace())
}

/// The PID namespace of this process. 0 where `/proc` does not show it.
fn namespace() -> u64 {
    let is_own = std::fs::read_link("/proc/self").is_ok_and(|own| own == Path::new(&pid_text()));
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let number = link.to_string_lossy().trim_start_matches("pid:[").trim_end_matches(']').parse();
    if is_own { number.unwrap_or(0) } else { 0 }
}

fn pid_text() -> String {
    std::process::id().to_string()
}

/// The start time of a process in ticks since the boot, and its state's letter.
fn stat(path: &Path) -> Option<(u64, char)> {
    let text = std::fs::read_to_string(path).ok()?;
    // The second field is the program's name in parentheses, which may hold anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.nth(18)?.parse().ok()?, state))
}

impl Process {
    /// From the words of a head, and its boot in short.
    pub(super) fn parse(words: &str, boot: u64) -> Option<Process> {
        let (rest, namespace) = words.rsplit_once(", namespace ")?;
        let (rest, start) = rest.rsplit_once(", start ")?;
        let (host, pid) = rest.rsplit_once(", process ")?;
        let is_known = !host.is_empty() && host != "(none)" && !host.starts_with("localhost");
        Some(Process {
            host: is_known.then(|| crc32c::crc32c(host.as_bytes())),
            boot,
            namespace: namespace.parse().ok()?,
            pid: pid.parse().ok()?,
            start: start.parse().ok()?,
        })
    }

    /// The process of a writer with these records.
    pub(super) fn of(records: &[(Record, u64)]) -> Option<Process> {
        records.iter().find_map(|(record, _)| match record {
            Record::Head { words, boot, .. } => Process::parse(words, super::names::short_boot(*boot)),
            _ => None,
        })
    }

    /// As a part of a name.
    pub(super) fn suffix(&self) -> String {
        let Process { host, boot, namespace, pid, start } = self;
        format!("{:x}.{boot:x}.{namespace:x}.{pid:x}.{start:x}", host.unwrap_or(0))
    }

    /// From a name that ends with a [`suffix`](Process::suffix).
    pub(super) fn of_name(name: &[u8]) -> Option<Process> {
        let text = std::str::from_utf8(name).ok()?;
        let mut parts = text.split('.').skip(2).map(|part| u64::from_str_radix(part, 16).ok());
        let mut number = || parts.next().flatten();
        let (host, boot, namespace) = (number()?, number()?, number()?);
        let (pid, start) = (u32::try_from(number()?).ok()?, number()?);
        let host = u32::try_from(host).ok().filter(|host| *host != 0);
        Some(Process { host, boot, namespace, pid, start })
    }

    /// Whether it runs, as far as the process `here` can tell.
    pub(super) fn life(&self, here: &Process) -> Life {
        if self.boot != here.boot {
            return match self.host.is_some() && self.host == here.host {
                true => Life::Ended,
                false => Life::Unknown("it is of another host"),
            };
        }
        if self.namespace == 0 || self.namespace != here.namespace {
            return Life::Unknown("it is of another PID namespace");
        }
        match stat(Path::new(&format!("/proc/{}/stat", self.pid))) {
            Some((_, 'Z' | 'X')) => Life::Ended,
            Some((start, _)) if self.start != 0 => match start == self.start {
                true => Life::Runs,
                false => Life::Ended,
            },
            Some(_) => Life::Unknown("its start time is not known"),
            // `/proc` may hide the processes of others.
            None => match rustix::process::Pid::from_raw(self.pid as i32)
                .map(rustix::process::test_kill_process)
            {
                Some(Err(rustix::io::Errno::SRCH)) => Life::Ended,
                _ => Life::Unknown("this user may not see its process"),
            },
        }
    }
}

/// Whether the writer of these records runs.
pub(super) fn of_records(records: &[(Record, u64)], here: Option<&Process>) -> Life {
    match (Process::of(records), here) {
        (Some(process), Some(here)) => process.life(here),
        _ => Life::Unknown("its log names no process"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Process {
        Process::parse(&own_words(), 7).unwrap()
    }

    #[test]
    fn this_process_runs_and_one_with_its_id_and_another_start_time_has_ended() {
        assert_eq!(own().life(&own()), Life::Runs);
        let reused = Process { start: own().start + 1, ..own() };
        assert_eq!(reused.life(&own()), Life::Ended);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (start, _) = stat(Path::new(&format!("/proc/{}/stat", child.id()))).unwrap();
        let process = Process { pid: child.id(), start, ..own() };
        assert_eq!(process.life(&own()), Life::Runs);
        child.kill().unwrap();
        // A process for which its parent has not waited yet has ended too.
        let ended = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            process.life(&own()) == Life::Ended
        });
        assert!(ended);
        child.wait().unwrap();
        assert_eq!(process.life(&own()), Life::Ended);
    }

    #[test]
    fn what_cannot_be_decided_here_is_not_taken_for_ended() {
        let unknown = |process: Process| matches!(process.life(&own()), Life::Unknown(_));
        assert!(unknown(Process { namespace: 3, ..own() }));
        assert!(unknown(Process { namespace: 0, ..own() }));
        assert!(unknown(Process { host: Some(1), boot: 8, ..own() }));
        assert!(unknown(Process { host: None, boot: 8, ..own() }), "many machines are called localhost");
        let earlier = Process { host: Some(5), boot: 8, ..own() };
        assert_eq!(earlier.life(&Process { host: Some(5), ..own() }), Life::Ended);
        assert!(matches!(of_records(&[], Some(&own())), Life::Unknown(_)));
        assert_eq!(Process::parse("node1, process 17", 7), None);
    }

    #[test]
    fn a_process_is_read_from_the_end_of_a_name() {
        let name = format!("gone.{}.{}", "0".repeat(32), own().suffix());
        assert_eq!(Process::of_name(name.as_bytes()), Some(own()));
        assert_eq!(Process::of_name(b"gone.00"), None);
    }
}
