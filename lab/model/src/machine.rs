//! A machine, as a file. It has the rates and times of links, disks, syncs, cores and memory. The name of
//! each number ends in its unit.
//!
//! A missing key is an unknown value, and an unknown value bounds nothing. Every value of the machines that
//! come with the program has a comment that names its source. The comment of an unmeasured value says
//! `guess:` and the reason.
//!
//! Units: `_us` microseconds; `_mb_per_s` 10^6 bytes a second; `_per_s` times a second; `bytes` bytes.

use crate::published::Published;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The machines that come with the program: name and file.
const BUILTIN: &[(&str, &str)] = &[
    ("thesis-cluster", include_str!("../../machines/thesis-cluster.toml")),
    ("pvfs-linux", include_str!("../../machines/pvfs-linux.toml")),
    ("bgp", include_str!("../../machines/bgp.toml")),
    ("chiba", include_str!("../../machines/chiba.toml")),
];

/// The names of the machines that come with the program.
pub fn builtin() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name: letters, digits and dashes.
    pub name: String,
    /// Its description, in a line.
    pub title: String,
    /// Where its values are from.
    pub source: String,
    /// Computers, and the programs on them.
    pub nodes: Nodes,
    /// The network.
    pub link: Link,
    /// Nodes that forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<Forwarding>,
    /// A server's disk.
    #[serde(default)]
    pub disk: Disk,
    /// Memory.
    #[serde(default)]
    pub memory: Memory,
    /// Processor time: the least that was measured, as bounds are made of it.
    #[serde(default)]
    pub cpu: Cpu,
    /// Processor time as it usually is: simulations use it, where it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<Cpu>,
    /// The cost of making a change durable; a disk access where none is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sync: Vec<Sync>,
    /// Its published numbers, to be compared with the numbers computed here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
}

/// Computers, and the programs on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Computers that clients run on; not known: one a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_nodes: Option<u32>,
    /// Metadata servers.
    pub metadata_servers: u32,
    /// Data servers.
    pub data_servers: u32,
    /// Metadata servers are data servers too.
    pub servers_have_both: bool,
    /// Clients and servers share one computer: its cores, its disk, its memory instead of a network.
    #[serde(default)]
    pub one_machine: bool,
    /// Cores of a computer.
    pub cores: u32,
    /// Cores that one server can keep busy.
    pub server_threads: u32,
    /// Cores that the clients of one computer can keep busy; all of them where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_threads: Option<u32>,
    /// Time before an idle core runs a new task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_us: Option<f64>,
    /// A thread keeps its core so long while others wait for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice_us: Option<f64>,
}

/// Nodes between the application's processes and the file system, each with a client of its own that executes
/// its processes' calls (an I/O node of a Blue Gene). The cost of a call to its processor is the client's
/// `operation_us`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forwarding {
    /// From a process to its node and back, nothing else under way.
    pub round_trip_us: f64,
}

/// The network, between any two computers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// A small request and its reply, one client, nothing else under way (its cores may sleep meanwhile).
    pub round_trip_us: f64,
    /// The same where cores are kept awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_awake_us: Option<f64>,
    /// The bandwidth of one computer, as programs see it.
    pub bandwidth_mb_per_s: f64,
    /// The bandwidth of the medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium_mb_per_s: Option<f64>,
    /// The bandwidth that a receiver loses when many send to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Congestion>,
    /// Round trips of a plain echo, where they were measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub echo: Vec<Echo>,
}

/// Receiver congestion: with more than `free_senders` at once, each further one costs so much of the
/// bandwidth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Congestion {
    /// So many at once cost nothing.
    pub free_senders: u32,
    /// Part of the bandwidth that each further sender costs, percent.
    pub loss_percent: f64,
    /// It loses no more than this, percent.
    pub loss_percent_max: f64,
}

/// Round trips with so many outstanding, each of its own client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Echo {
    /// Clients that wait, one request each.
    pub outstanding: u32,
    /// Bytes of the request; the reply is small.
    pub bytes: u64,
    /// The middle one, cores idle.
    pub idle_us: f64,
    /// All together, cores idle.
    pub idle_per_s: f64,
    /// The middle one, cores kept awake.
    pub awake_us: f64,
    /// All together, cores kept awake.
    pub awake_per_s: f64,
}

/// A server's disk, or whatever it is that keeps data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// All servers share it.
    #[serde(default)]
    pub shared: bool,
    /// Time to the middle place that is looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seek_average_us: Option<f64>,
    /// Time to the farthest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seek_max_us: Option<f64>,
    /// Time to the next track, or of an access after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seek_track_us: Option<f64>,
    /// One turn; half of it is waited for, and all of it at worst. 0 where seeks include it, or nothing
    /// turns.
    #[serde(default)]
    pub rotation_us: f64,
    /// Read in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_mb_per_s: Option<f64>,
    /// Written in order, and durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_mb_per_s: Option<f64>,
    /// Read from the operating system's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_mb_per_s: Option<f64>,
    /// Written to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_mb_per_s: Option<f64>,
    /// Bytes of the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Bytes of a computer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Copied by one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_mb_per_s: Option<f64>,
}

/// Processor time of both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Of a client's.
    #[serde(default)]
    pub client: Side,
    /// Of a server's.
    #[serde(default)]
    pub server: Side,
}

/// Processor time of one side; 0 is unknown, or not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// A request and its reply.
    #[serde(default)]
    pub message_us: f64,
    /// An operation without its message: for a client a call of the program, for a server each executed one.
    #[serde(default)]
    pub operation_us: f64,
    /// The additional cost of a change.
    #[serde(default)]
    pub change_us: f64,
    /// An entry of a listing.
    #[serde(default)]
    pub entry_us: f64,
    /// 10^6 bytes sent or received.
    #[serde(default)]
    pub megabyte_us: f64,
    /// 10^6 bytes of files' contents sent, the program's own copies within; 0: as `megabyte_us`. From here on
    /// values that only the simulator counts.
    #[serde(default)]
    pub megabyte_sent_us: f64,
    /// The same received.
    #[serde(default)]
    pub megabyte_received_us: f64,
    /// Receiving 10^6 bytes of large files, further, where a server keeps them in memory and not in a disk's
    /// cache.
    #[serde(default)]
    pub megabyte_kept_us: f64,
    /// The part of `message_us` that messages sent together share: the calls to sockets.
    #[serde(default)]
    pub batched_us: f64,
    /// A thread that slept is switched to.
    #[serde(default)]
    pub wake_us: f64,
    /// An idle thread goes to sleep: no caller waits for that.
    #[serde(default)]
    pub sleep_us: f64,
    /// The additional cost of a change that goes into a journal.
    #[serde(default)]
    pub record_us: f64,
    /// Of a server: an object or entry that a change makes, alters or takes away, however many go in one
    /// message.
    #[serde(default)]
    pub object_us: f64,
    /// The additional cost of a removal.
    #[serde(default)]
    pub removal_us: f64,
    /// A call to a file by another thread for the serving one, without its bytes.
    #[serde(default)]
    pub file_us: f64,
    /// The additional wait of such a call before it begins: a thread wakes up.
    #[serde(default)]
    pub file_wait_us: f64,
}

/// Making something durable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sync {
    /// The method, in a word. Servers use the first entry; the others are for comparison.
    pub method: String,
    /// Bytes made durable at once.
    pub bytes: u64,
    /// Servers that do so at once, each in a place of its own.
    pub writers: u32,
    /// The middle one.
    pub sync_us: f64,
    /// All together.
    pub sync_per_s: f64,
    /// Processor time of one, of `sync_us`; only the simulator counts it.
    #[serde(default)]
    pub cpu_us: f64,
}

/// Why a machine cannot be used; every one names the file, the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// No such machine.
    #[error(
        "no machine is called `{name}`, and no file either: `shoal bounds --list` lists the machines ({known})"
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// The available names.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read the machine {file}: {why}")]
    Unreadable {
        /// Which.
        file: String,
        /// Why.
        why: std::io::Error,
    },
    /// It is no machine.
    #[error(
        "{file} is no machine: {why}\n       docs/lab/BOUNDS.md lists the keys; lab/machines/thesis-cluster.toml is an example"
    )]
    Malformed {
        /// Which.
        file: String,
        /// Where, and which key.
        why: String,
    },
    /// A value makes no sense.
    #[error("{file}: {key} is {value}: {remedy}")]
    Value {
        /// Which.
        file: String,
        /// Of which key.
        key: String,
        /// The present value.
        value: String,
        /// The remedy.
        remedy: String,
    },
}

/// The constraint of a number.
#[derive(Clone, Copy)]
enum Must {
    /// Above 0.
    BeSomething,
    /// 0 or above.
    NotBeNegative,
    /// 0 to 100.
    BePercent,
}

impl Must {
    fn holds(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Must::BeSomething => value > 0.0,
                Must::NotBeNegative => value >= 0.0,
                Must::BePercent => (0.0..=100.0).contains(&value),
            }
    }

    fn remedy(self, key: &str) -> String {
        let unit = match key {
            k if k.ends_with("_us") => "microseconds",
            k if k.ends_with("_mb_per_s") => "10^6 bytes a second",
            k if k.ends_with("_per_s") => "times a second",
            k if k.contains("bytes") => "bytes",
            k if k.contains("percent") => "percent",
            _ => "a count",
        };
        match self {
            Must::BeSomething => format!("write {unit}, above 0"),
            Must::NotBeNegative => format!("write {unit}, 0 or above (0: none)"),
            Must::BePercent => format!("write {unit}, between 0 and 100"),
        }
    }
}

impl Machine {
    /// One that comes with the program, by its name.
    pub fn named(name: &str) -> Result<Machine, MachineError> {
        match BUILTIN.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Machine::parse(text, &format!("lab/machines/{name}.toml")),
            None => Err(MachineError::Unknown {
                name: name.to_owned(),
                known: builtin().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// From a file.
    pub fn read(path: &Path) -> Result<Machine, MachineError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Machine::parse(&text, &file),
            Err(why) => Err(MachineError::Unreadable { file, why }),
        }
    }

    /// From the text of `file`.
    pub fn parse(text: &str, file: &str) -> Result<Machine, MachineError> {
        let machine: Machine = toml::from_str(text).map_err(|error| MachineError::Malformed {
            file: file.to_owned(),
            why: error.to_string().trim_end().to_owned(),
        })?;
        machine.check(file)?;
        Ok(machine)
    }

    fn check(&self, file: &str) -> Result<(), MachineError> {
        let wrong = |key: &str, value: String, remedy: String| {
            Err(MachineError::Value { file: file.to_owned(), key: key.to_owned(), value, remedy })
        };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(is_word) {
            return wrong("name", format!("`{}`", self.name), "write letters, digits and dashes".to_owned());
        }
        for (key, value, must) in self.values() {
            if !must.holds(value) {
                return wrong(&key, value.to_string(), must.remedy(&key));
            }
        }
        for (at, published) in self.published.iter().enumerate() {
            if let Err(remedy) = published.check() {
                return wrong(&format!("published[{at}].case"), format!("`{}`", published.case), remedy);
            }
        }
        Ok(())
    }

    /// Processor time as it usually is; the least, where nothing else is known.
    pub fn usual_cpu(&self) -> &Cpu {
        self.usual.as_ref().unwrap_or(&self.cpu)
    }

    /// Every number of it, by its key.
    fn values(&self) -> Vec<(String, f64, Must)> {
        use Must::{BePercent, BeSomething, NotBeNegative};
        let Machine { nodes, link, forwarding, disk, memory, cpu, usual, sync, published, .. } = self;
        let mut all: Vec<(String, f64, Must)> = Vec::new();
        let mut put = |key: String, value: f64, must| all.push((key, value, must));
        let some = |value: Option<f64>| value.unwrap_or(1.0);
        put("nodes.client_nodes".into(), nodes.client_nodes.map_or(1.0, f64::from), BeSomething);
        put("nodes.metadata_servers".into(), nodes.metadata_servers.into(), BeSomething);
        put("nodes.data_servers".into(), nodes.data_servers.into(), BeSomething);
        put("nodes.cores".into(), nodes.cores.into(), BeSomething);
        put("nodes.server_threads".into(), nodes.server_threads.into(), BeSomething);
        put("nodes.client_threads".into(), nodes.client_threads.map_or(1.0, f64::from), BeSomething);
        put("nodes.idle_us".into(), some(nodes.idle_us), NotBeNegative);
        put("nodes.slice_us".into(), some(nodes.slice_us), BeSomething);
        if let Some(forwarding) = forwarding {
            put("forwarding.round_trip_us".into(), forwarding.round_trip_us, NotBeNegative);
        }
        put("link.round_trip_us".into(), link.round_trip_us, BeSomething);
        put("link.round_trip_awake_us".into(), some(link.round_trip_awake_us), BeSomething);
        put("link.bandwidth_mb_per_s".into(), link.bandwidth_mb_per_s, BeSomething);
        put("link.medium_mb_per_s".into(), some(link.medium_mb_per_s), BeSomething);
        if let Some(congestion) = &link.congestion {
            put("link.congestion.loss_percent".into(), congestion.loss_percent, BePercent);
            put("link.congestion.loss_percent_max".into(), congestion.loss_percent_max, BePercent);
        }
        for (at, echo) in link.echo.iter().enumerate() {
            let key = |name: &str| format!("link.echo[{at}].{name}");
            put(key("outstanding"), echo.outstanding.into(), BeSomething);
            put(key("bytes"), echo.bytes as f64, BeSomething);
            put(key("idle_us"), echo.idle_us, BeSomething);
            put(key("idle_per_s"), echo.idle_per_s, BeSomething);
            put(key("awake_us"), echo.awake_us, BeSomething);
            put(key("awake_per_s"), echo.awake_per_s, BeSomething);
        }
        put("disk.seek_average_us".into(), some(disk.seek_average_us), NotBeNegative);
        put("disk.seek_max_us".into(), some(disk.seek_max_us), NotBeNegative);
        put("disk.seek_track_us".into(), some(disk.seek_track_us), NotBeNegative);
        put("disk.rotation_us".into(), disk.rotation_us, NotBeNegative);
        put("disk.read_mb_per_s".into(), some(disk.read_mb_per_s), BeSomething);
        put("disk.write_mb_per_s".into(), some(disk.write_mb_per_s), BeSomething);
        put("disk.cache_read_mb_per_s".into(), some(disk.cache_read_mb_per_s), BeSomething);
        put("disk.cache_write_mb_per_s".into(), some(disk.cache_write_mb_per_s), BeSomething);
        put("memory.copy_mb_per_s".into(), some(memory.copy_mb_per_s), BeSomething);
        let sides = std::iter::once(("cpu", cpu)).chain(usual.iter().map(|usual| ("usual", usual)));
        for (name, side) in sides.flat_map(|(name, cpu)| {
            [(format!("{name}.client"), &cpu.client), (format!("{name}.server"), &cpu.server)]
        }) {
            let key = |unit: &str| format!("{name}.{unit}");
            put(key("message_us"), side.message_us, NotBeNegative);
            put(key("operation_us"), side.operation_us, NotBeNegative);
            put(key("change_us"), side.change_us, NotBeNegative);
            put(key("entry_us"), side.entry_us, NotBeNegative);
            put(key("megabyte_us"), side.megabyte_us, NotBeNegative);
            put(key("megabyte_sent_us"), side.megabyte_sent_us, NotBeNegative);
            put(key("megabyte_received_us"), side.megabyte_received_us, NotBeNegative);
            put(key("megabyte_kept_us"), side.megabyte_kept_us, NotBeNegative);
            put(key("batched_us"), side.batched_us, NotBeNegative);
            put(key("wake_us"), side.wake_us, NotBeNegative);
            put(key("sleep_us"), side.sleep_us, NotBeNegative);
            put(key("record_us"), side.record_us, NotBeNegative);
            put(key("object_us"), side.object_us, NotBeNegative);
            put(key("removal_us"), side.removal_us, NotBeNegative);
            put(key("file_us"), side.file_us, NotBeNegative);
            put(key("file_wait_us"), side.file_wait_us, NotBeNegative);
        }
        for (at, sync) in sync.iter().enumerate() {
            let key = |name: &str| format!("sync[{at}].{name}");
            put(key("bytes"), sync.bytes as f64, BeSomething);
            put(key("writers"), sync.writers.into(), BeSomething);
            put(key("sync_us"), sync.sync_us, BeSomething);
            put(key("sync_per_s"), sync.sync_per_s, BeSomething);
            put(key("cpu_us"), sync.cpu_us, NotBeNegative);
        }
        for (at, published) in published.iter().enumerate() {
            put(format!("published[{at}].value"), published.value, BeSomething);
            put(format!("published[{at}].corrected"), some(published.corrected), BeSomething);
        }
        all
    }

    /// As a file, with a remark after every value.
    pub fn to_text(&self, remark: &str) -> Result<String, toml::ser::Error> {
        let text = toml::to_string(self)?;
        let line = |line: &str| match line.split_once(" = ") {
            Some((key, _)) if !["name", "title", "source"].contains(&key) => format!("{line} # {remark}\n"),
            _ => format!("{line}\n"),
        };
        Ok(text.lines().map(line).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        BUILTIN[0].1.to_owned()
    }

    fn refused(text: &str) -> String {
        Machine::parse(text, "my.toml").expect_err("it is wrong").to_string()
    }

    #[test]
    fn every_machine_that_comes_with_the_program_is_read_and_has_its_own_name() {
        for name in builtin() {
            assert_eq!(Machine::named(name).expect(name).name, name);
        }
    }

    #[test]
    fn every_value_of_a_machine_says_where_it_is_from() {
        for (name, text) in BUILTIN {
            for line in text.lines().filter(|line| !line.starts_with('#') && line.contains(" = ")) {
                let key = line.split(' ').next().unwrap_or("");
                let is_said = ["name", "title", "source", "case", "value", "from", "slip"].contains(&key);
                assert!(is_said || line.contains(" # "), "{name}: `{line}` does not say where it is from");
            }
        }
    }

    #[test]
    fn a_machine_that_is_written_is_read_again() {
        for name in builtin() {
            let machine = Machine::named(name).expect(name);
            let written = machine.to_text("measured").expect("written");
            assert_eq!(Machine::parse(&written, "again").expect("read"), machine);
        }
    }

    #[test]
    fn an_unknown_machine_is_told_with_those_that_are_known() {
        let words = Machine::named("cray").expect_err("no such").to_string();
        assert!(
            words.contains("`cray`") && words.contains("thesis-cluster") && words.contains("--list"),
            "{words}"
        );
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let words = Machine::read(Path::new("/nowhere/m.toml")).expect_err("missing").to_string();
        assert!(words.contains("/nowhere/m.toml") && words.contains("No such file"), "{words}");
    }

    #[test]
    fn an_error_names_the_file_the_key_and_the_remedy() {
        let unknown = refused(&text().replace("round_trip_us", "rtt_us"));
        for word in ["my.toml", "rtt_us", "round_trip_us", "docs/lab/BOUNDS.md"] {
            assert!(unknown.contains(word), "{word} is missing in {unknown}");
        }
        let missing: String =
            text().lines().filter(|l| !l.starts_with("round_trip_us")).map(|l| format!("{l}\n")).collect();
        let missing = refused(&missing);
        assert!(missing.contains("missing field `round_trip_us`") && missing.contains("[link]"), "{missing}");
    }

    #[test]
    fn values_of_no_sense_are_refused_with_what_to_write() {
        let mut machine = Machine::named("thesis-cluster").expect("it is there");
        machine.link.bandwidth_mb_per_s = 0.0;
        let words = machine.check("my.toml").expect_err("no bandwidth").to_string();
        assert_eq!(words, "my.toml: link.bandwidth_mb_per_s is 0: write 10^6 bytes a second, above 0");
        machine.link.bandwidth_mb_per_s = 1.0;
        machine.cpu.server.message_us = f64::NAN;
        let words = machine.check("my.toml").expect_err("no number").to_string();
        assert!(words.contains("cpu.server.message_us is NaN: write microseconds, 0 or above"), "{words}");
        machine.cpu.server.message_us = 0.0;
        machine.name = "a/b".to_owned();
        assert!(machine.check("my.toml").is_err());
    }
}
