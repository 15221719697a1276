//! Groups: threads and processes that meet in a container, and open it together.
//!
//! Each member runs one function, [`member`], in a role. As a thread it uses streams within this process. As
//! a process (this program anew, for the test [`a_member_of_a_group_of_processes`]) it uses sockets. Both
//! pass one suite.

mod calls;
mod closes;
mod meetings;
mod opens;

use bytes::Bytes;
use shoal_env::{Address, Env, real};
use shoal_proto::{Handle, Name, Owner, Rights};
use shoal_transform::group::Meeting;
use shoal_transform::{Container, ContainerOptions, IndexDesign};
use shoal_vfs::{AnyVfs, Connect, LocalOptions, Result, Vfs, VfsFile};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const BOTH: Rights = Rights::READ.union(Rights::WRITE);
/// Longer than any wait of a test that passes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The task of a child process: see [`a_member_of_a_group_of_processes`].
const MEMBER: &str = "SHOAL_GROUP_MEMBER";

fn owner() -> Owner {
    Owner { mode: 0o644, uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
}

fn name() -> Name {
    Name::new(b"file").unwrap()
}

fn options(dir: &Path) -> ContainerOptions<LocalOptions> {
    // Members that are threads share the limit of open files.
    ContainerOptions::new(LocalOptions { inline: true, descriptors: Some(16), ..LocalOptions::new(dir) })
}

async fn mount(env: &Env, dir: &Path) -> Container<AnyVfs> {
    options(dir).connect(env.clone()).await.unwrap()
}

/// A directory with a container in it, and a place for sockets and words beside it.
struct Scene {
    home: tempfile::TempDir,
}

impl Scene {
    /// A file of so many closed writers, each with records in turn. Its index is not flattened.
    fn with_writers(writers: u64) -> Scene {
        Scene::written(writers, IndexDesign::Original)
    }

    fn written(writers: u64, index: IndexDesign) -> Scene {
        let scene = Scene { home: tempfile::tempdir().unwrap() };
        std::fs::create_dir(scene.dir()).unwrap();
        opens::write(&scene.dir(), writers, index);
        scene
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("dir")
    }

    /// The file of a meeting.
    fn meeting_file(&self) -> PathBuf {
        self.dir().join("file/g.job")
    }

    fn is_left(&self) -> bool {
        self.meeting_file().exists()
    }
}

/// How members reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Threads,
    Tcp,
    Unix,
}

const ALL: [Over; 3] = [Over::Threads, Over::Tcp, Over::Unix];

/// The task of a member.
#[derive(Clone, Debug)]
struct Task {
    dir: PathBuf,
    meeting: Meeting,
    role: String,
}

impl Task {
    fn of(scene: &Scene, over: Over, (rank, size): (usize, usize), role: &str) -> Task {
        let listen = match over {
            // The name of a stream is the process's own.
            Over::Threads => Address::Local(scene.home.path().display().to_string()),
            Over::Tcp => "tcp:127.0.0.1:0".parse().unwrap(),
            Over::Unix => Address::Unix(scene.home.path().join("socket")),
        };
        let meeting = Meeting { job: "job".to_owned(), rank, size, listen, patience: PATIENCE };
        Task { dir: scene.dir(), meeting, role: role.to_owned() }
    }

    fn patient(mut self, patience: Duration) -> Task {
        self.meeting.patience = patience;
        self
    }

    fn to_words(&self) -> String {
        let Meeting { job, rank, size, listen, patience } = &self.meeting;
        let (dir, patience) = (self.dir.display(), patience.as_millis());
        format!("{dir} {job} {rank} {size} {listen} {patience} {}", self.role)
    }

    fn of_words(words: &str) -> Task {
        let words: Vec<&str> = words.split(' ').collect();
        let [dir, job, rank, size, listen, patience, role] = words[..] else { panic!("{words:?}") };
        let patience = Duration::from_millis(patience.parse().unwrap());
        let (rank, size) = (rank.parse().unwrap(), size.parse().unwrap());
        let meeting = Meeting { job: job.to_owned(), rank, size, listen: listen.parse().unwrap(), patience };
        Task { dir: dir.into(), meeting, role: role.to_owned() }
    }
}

/// One member, in a world of its own: its words, or those of its error.
fn member(task: Task) -> std::result::Result<String, String> {
    let done: Result<String> = real::run("member", move |env| async move {
        let role = task.role.clone();
        match role.as_str() {
            "opens" | "opens-as-a-program" | "dies-in-the-open" => opens::role(&env, &task).await,
            "closes" | "closes-with-many-records" | "dies-in-the-close" => closes::role(&env, &task).await,
            _ => calls::role(&env, &task).await,
        }
    });
    done.map_err(|error| format!("{:?} {error}", error.status))
}

/// A member that was begun.
enum Begun {
    Thread(std::thread::JoinHandle<std::result::Result<String, String>>),
    Process(Child, PathBuf),
}

fn begin(over: Over, task: Task) -> Begun {
    // Each member has a runtime, and a mount.
    assert!(shoal_env::raise_open_files(4096) >= 4096, "raise the limit of open files");
    if over == Over::Threads {
        return Begun::Thread(std::thread::spawn(move || member(task)));
    }
    let said = task.dir.join(format!("../said-{}-{}", task.meeting.rank, task.role));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_member_of_a_group_of_processes"]).env(MEMBER, task.to_words());
    Begun::Process(command.stdout(Stdio::null()).spawn().unwrap(), said)
}

impl Begun {
    /// Its last words.
    fn said(self) -> std::result::Result<String, String> {
        match self {
            Begun::Thread(thread) => thread.join().unwrap(),
            Begun::Process(mut child, said) => {
                assert!(child.wait().unwrap().success());
                let text = std::fs::read_to_string(said).unwrap_or_default();
                match text.split_once(' ') {
                    Some(("ok", words)) => Ok(words.to_owned()),
                    Some(("failed", words)) => Err(words.to_owned()),
                    _ => Ok("ended without a word".to_owned()),
                }
            }
        }
    }
}

/// A process of a group, if this is one; else nothing.
#[test]
fn a_member_of_a_group_of_processes() {
    let Ok(words) = std::env::var(MEMBER) else { return };
    let task = Task::of_words(&words);
    let said = task.dir.join(format!("../said-{}-{}", task.meeting.rank, task.role));
    let text = match member(task) {
        Ok(words) => format!("ok {words}"),
        Err(words) => format!("failed {words}"),
    };
    std::fs::write(said, text).unwrap();
}

/// All members of a size, each with its role: what they said.
fn all(
    scene: &Scene,
    over: Over,
    size: usize,
    role: impl Fn(usize) -> &'static str,
) -> Vec<std::result::Result<String, String>> {
    let tasks = (0..size).map(|rank| begin(over, Task::of(scene, over, (rank, size), role(rank))));
    let begun: Vec<Begun> = tasks.collect();
    begun.into_iter().map(Begun::said).collect()
}

/// A file of the host, when it is there.
fn wait_for(path: &Path) -> String {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) => return text,
            Err(error) => assert!(std::time::Instant::now() < until, "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
