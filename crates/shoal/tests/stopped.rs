//! Programs whose server does not answer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn shoal(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.args(args).env_remove("SHOAL_KEY").env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

/// A server, running again and killed at the end whatever happens; the mount is taken away before.
struct Scene {
    server: Child,
    mountpoint: String,
}

impl Drop for Scene {
    fn drop(&mut self) {
        signal(&self.server, rustix::process::Signal::CONT);
        let _ = shoal(&["umount", &self.mountpoint]).status();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Stop it: the signal is sent to a process, and its threads stop a moment later, each where it is.
fn stop(child: &Child) {
    signal(child, rustix::process::Signal::STOP);
    let tasks = format!("/proc/{}/task", child.id());
    let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
        // The state is after the name, which is in brackets.
        stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
    };
    while !std::fs::read_dir(&tasks).unwrap().all(is_stopped) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process waits for the mount's answer.
fn waits(child: &Child) -> bool {
    let place = std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
    place.contains("request_wait_answer") || place.contains("fuse")
}

/// Far beyond the second that a program waits for a server before it is interrupted, and within the time
/// limit (30 s).
const SOON: Duration = Duration::from_secs(20);

/// `shoal up` of a folder, when it serves; and its address.
fn up(folder: &str) -> (Child, String) {
    let mut server = shoal(&["up", folder]).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let address = ready.split_whitespace().find(|word| word.starts_with("shoal://")).unwrap().to_owned();
    (server, address)
}

/// A client process of the torture may be started anew while all servers are killed.
#[test]
fn a_client_of_the_torture_that_begins_while_no_server_is_there_waits_for_one() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data").to_str().unwrap().to_owned();
    let (mut server, address) = up(&data);
    server.kill().unwrap();
    server.wait().unwrap();

    let pipes = (Stdio::piped(), Stdio::piped());
    let mut hand = shoal(&["torture-hand"]).stdin(pipes.0).stdout(pipes.1).spawn().unwrap();
    let spec = format!(r#"{{"native":{{"address":"{address}","key":"{data}/key","timeout_s":30}}}}"#);
    writeln!(hand.stdin.as_mut().unwrap(), "{spec}").unwrap();
    // A client that does not wait ends long before this.
    std::thread::sleep(Duration::from_millis(500));
    let (mut server, _) = up(&data);
    let mut said = String::new();
    BufReader::new(hand.stdout.take().unwrap()).read_line(&mut said).unwrap();
    drop(hand.stdin.take());
    let ended = hand.wait();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(said, "\"ready\"\n");
    assert!(ended.unwrap().success());
}

#[test]
fn a_program_that_waits_for_a_stopped_server_is_killed_before_the_time_limit() {
    let home = tempfile::tempdir().unwrap();
    let text = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let (server, address) = up(&text("data"));
    let scene = Scene { server, mountpoint: text("mnt") };
    std::fs::create_dir(&scene.mountpoint).unwrap();
    let key = text("data/key");
    let mounted = shoal(&["mount", &address, &scene.mountpoint, "--key", &key, "--background"]).status();
    assert!(mounted.unwrap().success());
    let file = Path::new(&scene.mountpoint).join("file");
    std::fs::write(&file, b"before").unwrap();

    stop(&scene.server);
    let script = format!("echo after > {}", file.display());
    let mut program = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    let until = Instant::now() + SOON;
    while !waits(&program) {
        assert!(Instant::now() < until, "it never waited for the server");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(&program, rustix::process::Signal::KILL);
    let killed = Instant::now();
    let status = program.wait().unwrap();
    assert_eq!(status.signal(), Some(9));
    assert!(killed.elapsed() < SOON, "it waited for {:?}", killed.elapsed());
    signal(&scene.server, rustix::process::Signal::CONT);
    let content = std::fs::read_to_string(&file).unwrap();
    assert!(
        ["before", "", "after\n"].contains(&&content[..]),
        "what was under way is done or not: {content}"
    );
}
