//! A server, or a mount, that is dead by a panic ends its process with a message and a status, so that its
//! supervisor starts it again. The panic is one that only builds with planted bugs have
//! (`shoal_env::mutant::panic_if_asked`).
#![cfg(feature = "mutants")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes as long: it hangs.
const HANGS: Duration = Duration::from_secs(120);

fn shoal(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.args(args).env_remove("SHOAL_KEY").env_remove("SHOAL_LOG").env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process from its line with `ready` on.
struct Serving {
    child: Child,
    line: String,
}

impl Serving {
    fn start(args: &[&str], panics: &str) -> Serving {
        let mut child = shoal(args).env("SHOAL_PANIC", panics).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "shoal {args:?} said `{line}`");
        Serving { child, line }
    }

    fn address(&self) -> String {
        let mut words = self.line.split_whitespace();
        words.find(|word| word.starts_with("shoal://")).unwrap().to_owned()
    }

    /// Its exit status and its words, once it has ended by itself.
    fn ended(&mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < HANGS, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut told = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        (status.code(), told)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(args: &[&str]) -> Output {
    shoal(args).output().unwrap()
}

#[test]
fn a_server_that_panics_ends_its_process_with_words_and_the_next_start_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let data = data.to_str().unwrap();
    let mut up = Serving::start(&["up", data, "--servers", "2"], "server");
    let _ = run(&["ping", data]);
    let (status, told) = up.ended();
    assert_eq!(status, Some(1), "{told}");
    let last = told.lines().rfind(|line| line.starts_with("shoal: ")).unwrap_or_default();
    for words in ["failed", "a panic at crates/server", "SHOAL_PANIC asks for it", "the next start recovers"]
    {
        assert!(last.contains(words), "`{words}` is missing: {told}");
    }
    assert!(last.contains("server 0") || last.contains("server 1"), "{told}");
    let up = Serving::start(&["up", data], "nothing");
    assert!(run(&["ping", data]).status.success());
    drop(up);
}

#[test]
fn a_mount_that_panics_is_taken_away_and_ends_its_process_with_words() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!(
            "a_mount_that_panics_is_taken_away_and_ends_its_process_with_words: left out, it cannot mount here"
        );
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let text = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let up = Serving::start(&["up", &text("data")], "nothing");
    let (mnt, key) = (text("mnt"), text("data/key"));
    let mut mount = Serving::start(&["mount", &up.address(), &mnt, "--key", &key], "mount");
    // Its answer is an error, and no client waits for ever.
    let asked = Command::new("df").arg(&mnt).output().unwrap();
    assert!(!asked.status.success());
    let (status, told) = mount.ended();
    assert_eq!(status, Some(1), "{told}");
    let last = told.lines().rfind(|line| line.starts_with("shoal: ")).unwrap_or_default();
    for words in [mnt.as_str(), "is dead", "SHOAL_PANIC asks for it", "can be mounted again"] {
        assert!(last.contains(words), "`{words}` is missing: {told}");
    }
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(&mnt), "it is taken away");
    // A mount that is in the same process as the servers ends all of it, too.
    drop(up);
    let mut up = Serving::start(&["up", &text("data"), "--mount", &mnt], "mount");
    let _ = Command::new("df").arg(&mnt).output().unwrap();
    let (status, told) = up.ended();
    assert!(status == Some(1) && told.contains("is dead"), "{status:?} {told}");
}
