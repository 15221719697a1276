//! The program as a process: run to its end, or serving until it is stopped; and a folder with the files that
//! a test needs.

pub use crate::skipped::skipped;
use shoal_client::Options;
use shoal_proto::{CollectionId, MountKeyId, SecretKey};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Nothing here takes as long: it hangs.
pub const HANGS: Duration = Duration::from_secs(120);

pub fn shoal() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.env_remove("SHOAL_KEY").env_remove("SHOAL_LOG").env("NO_COLOR", "1").stdin(Stdio::null());
    // Logs of mounts in the background.
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn kill(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("it runs");
}

/// A command, run to its end.
pub fn run(args: &[&str]) -> Output {
    let child = shoal().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = rustix::process::Pid::from_child(&child);
    let (ended, end) = channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()));
    match end.recv_timeout(HANGS) {
        Ok(output) => output.expect("it was waited for"),
        Err(_) => {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            panic!("shoal {args:?} does not end");
        }
    }
}

/// Standard output of a command that must succeed.
pub fn said(args: &[&str]) -> String {
    let output = run(args);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "shoal {args:?} failed: {words}");
    String::from_utf8(output.stdout).expect("text")
}

/// The words of a command that must fail: one line, in which all of `words` stand.
#[track_caller]
pub fn refused(args: &[&str], words: &[&str]) -> String {
    let output = run(args);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code().is_some_and(|code| code != 0), "shoal {args:?}: {told}");
    assert!(!told.contains("panicked"), "shoal {args:?}: {told}");
    let told = told
        .lines()
        .filter(|line| line.starts_with("shoal: ") || line.starts_with("error: "))
        .collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "shoal {args:?} says it in one line: {told:?}");
    for word in words {
        assert!(told[0].contains(word), "`{word}` is missing: shoal {args:?}: {}", told[0]);
    }
    told[0].to_owned()
}

/// A process that serves or mounts, from its line with `ready` to its end. Its standard error is kept.
pub struct Serving {
    pub child: Child,
    line: String,
    out: BufReader<ChildStdout>,
    log: tempfile::TempPath,
}

impl Serving {
    pub fn start(args: &[&str]) -> Serving {
        let log = tempfile::NamedTempFile::new().expect("a temporary file").into_temp_path();
        let err = File::create(&log).expect("it can be written");
        let mut child = shoal().args(args).stdout(Stdio::piped()).stderr(err).spawn().expect("it starts");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it says something");
        let told = std::fs::read_to_string(&log).unwrap();
        assert!(line.contains("ready"), "shoal {args:?} said `{line}` and {told}");
        Serving { child, line, out, log }
    }

    /// The address it names.
    pub fn root(&self) -> String {
        let mut words = self.line.split_whitespace();
        words.rfind(|word| word.starts_with("shoal://")).expect("it names the address").to_owned()
    }

    /// The first server's address.
    pub fn server(&self) -> SocketAddr {
        let root = self.root();
        let hosts = root.strip_prefix("shoal://").unwrap().split('/').next().unwrap();
        hosts.split(',').next().unwrap().parse().unwrap()
    }

    /// Its standard error so far.
    pub fn told(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        kill(&self.child, signal);
        if signal == rustix::process::Signal::STOP {
            wait_until_stopped(self.child.id());
        }
    }

    /// Wait for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let begin = std::time::Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status;
            }
            assert!(begin.elapsed() < HANGS, "it does not end: {}", self.told());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// End it cleanly; returns its standard error.
    #[track_caller]
    pub fn stop(mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let status = self.wait();
        let mut rest = String::new();
        let _ = self.out.read_to_string(&mut rest);
        let told = self.told();
        assert!(status.success() && !told.contains("panicked"), "{status}: {told}");
        told
    }

    /// End it as `kill -9` does.
    pub fn crash(mut self) {
        self.child.kill().expect("it runs");
        self.wait();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // After a stop this finds nothing. In a test that failed it takes its mount away, if it can.
        let pid = rustix::process::Pid::from_child(&self.child);
        for _ in 0..500 {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary folder.
pub struct Home(pub tempfile::TempDir);

impl Home {
    pub fn new() -> Home {
        Home(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    /// A file outside, to be copied in.
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.text(name)
    }

    /// A cluster file in `cluster`, for so many servers in `cluster/sN`, at ports that were free a moment
    /// ago.
    pub fn cluster(&self, servers: usize) -> (String, Vec<u16>) {
        let cluster = self.text("cluster");
        let ports = free_ports(servers);
        let named: Vec<String> =
            ports.iter().enumerate().map(|(id, port)| format!("tcp:127.0.0.1:{port}=s{id}")).collect();
        let mut args = vec!["init", &cluster];
        named.iter().for_each(|server| args.extend(["--server", server]));
        said(&args);
        (cluster, ports)
    }
}

/// Ports without a listener a moment ago.
pub fn free_ports(count: usize) -> Vec<u16> {
    // Below the ports that the kernel gives to connections: one of those may be taken before its server
    // begins.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(61);
    let mut held = Vec::new();
    while held.len() < count {
        let tried = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(tried < 20_000, "no port is free");
        let port = 10_000 + (first.wrapping_add(tried) % 20_000) as u16;
        held.extend(TcpListener::bind(("127.0.0.1", port)));
    }
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

/// Every path below a folder, with its contents: to see that nothing was touched.
pub fn listing(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            let content = match kind.is_dir() {
                true => {
                    todo.push(path.clone());
                    b"directory".to_vec()
                }
                false if kind.is_file() => std::fs::read(&path).unwrap(),
                false => b"other".to_vec(),
            };
            found.push((path.strip_prefix(folder).unwrap().to_path_buf(), content));
        }
    }
    found.sort();
    found
}

/// Whether two listings are the same; differences are named.
#[track_caller]
pub fn assert_untouched(before: &[(PathBuf, Vec<u8>)], after: &[(PathBuf, Vec<u8>)]) {
    let differ = |a: &[(PathBuf, Vec<u8>)], b: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
        a.iter().filter(|one| !b.contains(one)).map(|(path, _)| path.clone()).collect()
    };
    let (gone, new) = (differ(before, after), differ(after, before));
    assert!(gone.is_empty() && new.is_empty(), "changed or gone: {gone:?}; changed or new: {new:?}");
}

/// The options of a native client: the server, the key file's first file system. It manages, if the
/// administrators' key is beside. It keeps no limit of the key by itself.
pub fn options(server: SocketAddr, key: &Path) -> Options {
    let beside = std::fs::read_to_string(key.with_file_name("key.admin"));
    let admin = beside.ok().map(|text| {
        let table: toml::Table = toml::from_str(&text).unwrap();
        SecretKey::from_hex(table["admin"].as_str().unwrap()).unwrap()
    });
    let key: toml::Table = toml::from_str(&std::fs::read_to_string(key).unwrap()).unwrap();
    let fs = &key["file_system"][0];
    let hex = fs["id"].as_str().unwrap();
    let mut fs_id = [0; 16];
    for (i, byte) in fs_id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    }
    let secret = SecretKey::from_hex(key["key"].as_str().unwrap()).unwrap();
    let number = CollectionId(fs["collection"].as_integer().unwrap() as u32);
    let id = key.get("id").map(|id| u64::from_str_radix(id.as_str().unwrap(), 16).unwrap());
    let options = Options::new(vec![format!("tcp:{server}").parse().unwrap()], secret, fs_id, number);
    Options { admin, key_id: id.map_or(MountKeyId::FIRST, MountKeyId), ..options }
}

/// Wait for a condition that soon becomes true.
#[track_caller]
pub fn soon(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < HANGS, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a test that needs root can run; says why not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped("only root can mount");
    }
    root
}

/// A mount made by `mount`, taken away at the end.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// `mount ARGS AT`; `None` (with the reason said) where that is not possible.
    pub fn new(args: &[&str], at: &Path) -> Option<Mounted> {
        std::fs::create_dir_all(at).unwrap();
        let done = Command::new("mount").args(args).arg(at).output();
        match done {
            Ok(output) if output.status.success() => Some(Mounted(at.to_path_buf())),
            Ok(output) => {
                let words = String::from_utf8_lossy(&output.stderr);
                skipped(&format!("no mount {args:?}: {}", words.trim().replace('\n', "; ")));
                None
            }
            Err(error) => {
                skipped(&format!("no program `mount`: {error}"));
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).output();
        if !done.is_ok_and(|output| output.status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).output();
        }
    }
}

/// The signal is sent to a process; its threads stop a moment later, each where it is, and may have answered
/// until then.
fn wait_until_stopped(pid: u32) {
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
        // A thread that is gone answers nothing either. The state is after the name, which is in brackets.
        stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
    };
    let tasks = std::path::PathBuf::from(format!("/proc/{pid}/task"));
    soon("all threads have stopped", || std::fs::read_dir(&tasks).unwrap().all(is_stopped));
}
