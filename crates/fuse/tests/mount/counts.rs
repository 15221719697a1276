//! The messages of a mount. Through the kernel an operation of a program becomes several requests, and each
//! request at most one message. The tests assert upper bounds, because the kernel may send fewer requests.

use super::Mounted;
use shoal_client::Client;
use shoal_client::ClientCounters;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

/// Operations of one measurement.
const N: usize = 20;

struct Counted {
    mounted: Mounted,
    before: ClientCounters,
}

impl Counted {
    fn now(mounted: &Mounted) -> ClientCounters {
        mounted.handle.ask(Duration::from_secs(10), Client::counters).expect("the mount answers")
    }

    fn new() -> Counted {
        let mounted = Mounted::new();
        fs::create_dir(mounted.path("d")).unwrap();
        Counted { before: Counted::now(&mounted), mounted }
    }

    fn path(&self, n: usize) -> PathBuf {
        self.mounted.path(&format!("d/f{n}"))
    }

    /// Messages for `N` operations, by name.
    fn each(&mut self, what: &str, body: impl Fn(PathBuf)) -> BTreeMap<&'static str, u64> {
        self.before = Counted::now(&self.mounted);
        for n in 0..N {
            body(self.path(n));
        }
        let mut messages = Counted::now(&self.mounted).messages;
        for (name, n) in &mut messages {
            *n -= self.before.messages.get(name).unwrap_or(&0);
        }
        // Sent by the clock, not by an operation.
        messages.remove("ping");
        messages.retain(|_, n| *n > 0);
        println!("{what}: {messages:?}");
        messages
    }

    /// At most `most` messages of these names for `N` operations, and no others.
    #[track_caller]
    fn at_most(&self, messages: &BTreeMap<&'static str, u64>, most: &[(&str, u64)]) {
        let lookups = Counted::now(&self.mounted).messages.get("lookup").copied().unwrap_or(0);
        for (name, n) in messages {
            if *name == "readdir" && *n == 1 && lookups >= LISTED_AFTER {
                continue;
            }
            let most = most.iter().find(|(known, _)| known == name).map_or(0, |(_, most)| *most);
            assert!(*n <= most, "`{name}`: {n} messages, at most {most} are right; all: {messages:?}");
        }
    }
}

/// Lookups by message after which a directory is listed ahead: on a slow machine, where cached facts are old,
/// they are so many.
const LISTED_AFTER: u64 = 8;

#[test]
fn an_operation_on_the_mount_costs_few_messages() {
    const EACH: u64 = N as u64;
    if crate::cluster::switches() != shoal_proto::Switches::OURS {
        // Other techniques, other counts.
        return;
    }
    // Facts cached for 100 ms are requested again now and then, on a slow machine before each operation: the
    // directory's attributes and name, and the file's; and before a write whether the file has extended
    // attributes (a privilege to take away), which of a file just made is known.
    const DIR: u64 = EACH;
    let mut counted = Counted::new();
    let data = vec![7; 8 << 10];
    let made = counted.each("create, close", |path| drop(File::create_new(path).unwrap()));
    counted.at_most(&made, &[("lookup", EACH + DIR), ("getattr", EACH + DIR), ("create", EACH)]);
    let told = counted.each("stat", |path| assert_eq!(fs::metadata(path).unwrap().len(), 0));
    counted.at_most(&told, &[("lookup", EACH + DIR), ("getattr", EACH + DIR)]);
    let written = counted.each("open, write 8 KiB, close", |path| {
        let mut file = File::options().write(true).open(path).unwrap();
        file.write_all(&data).unwrap();
    });
    counted.at_most(
        &written,
        &[
            ("lookup", EACH + DIR),
            ("getattr", EACH + DIR),
            ("open", EACH),
            ("write", EACH),
            ("listxattr", EACH),
        ],
    );
    let read = counted.each("open, read 8 KiB, close", |path| {
        let mut read = Vec::new();
        File::open(path).unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), data.len());
    });
    counted
        .at_most(&read, &[("lookup", EACH + DIR), ("getattr", EACH + DIR), ("open", EACH), ("read", EACH)]);
    let removed = counted.each("remove", |path| fs::remove_file(path).unwrap());
    // The kernel reports a close after it has returned: on a slow machine a file is removed while it is
    // still open.
    let names = [("lookup", EACH + DIR), ("getattr", EACH + DIR), ("unlink", EACH), ("release", EACH)];
    counted.at_most(&removed, &names);
    let made = counted.each("create, write 8 KiB, close", |path| {
        File::create_new(path).unwrap().write_all(&data).unwrap();
    });
    counted.at_most(
        &made,
        &[
            ("lookup", EACH + DIR),
            ("getattr", EACH + DIR),
            ("create", EACH),
            ("write", EACH),
            ("listxattr", EACH),
        ],
    );
}
