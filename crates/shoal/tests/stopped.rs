//! A program on a mount whose server does not answer.

use std::io::{BufRead as _, BufReader};
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
        // The state stands behind the name, which is in brackets.
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

/// How often a program is killed: the kernel takes back what the mount has not read yet, on a busy machine after a while.
const TRIES: u32 = 5;

/// A program that was killed while it waited for the mount, if it waits on.
fn killed_in_a_call(file: &Path, nth: u32) -> Option<Child> {
    let script = format!("echo after > {}", file.display());
    let mut program = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !waits(&program) {
        assert!(Instant::now() < until, "it never waited for the server");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(100) * nth);
    signal(&program, rustix::process::Signal::KILL);
    std::thread::sleep(Duration::from_millis(500));
    program.try_wait().unwrap().is_none().then_some(program)
}

#[test]
fn a_program_that_waits_for_a_stopped_server_cannot_be_killed() {
    let home = tempfile::tempdir().unwrap();
    let text = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let mut server = shoal(&["up", &text("data")]).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let address = ready.split_whitespace().find(|word| word.starts_with("shoal://")).unwrap().to_owned();
    let scene = Scene { server, mountpoint: text("mnt") };
    std::fs::create_dir(&scene.mountpoint).unwrap();
    let key = text("data/key");
    let mounted = shoal(&["mount", &address, &scene.mountpoint, "--key", &key, "--background"]).status();
    assert!(mounted.unwrap().success());
    let file = Path::new(&scene.mountpoint).join("file");
    std::fs::write(&file, b"before").unwrap();

    stop(&scene.server);
    let mut program = (1..=TRIES)
        .find_map(|nth| killed_in_a_call(&file, nth))
        .expect("each was killed in the middle of a call");
    signal(&scene.server, rustix::process::Signal::CONT);
    assert_eq!(program.wait().unwrap().signal(), Some(9), "then it is");
}
