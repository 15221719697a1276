//! Workers as processes. This test program starts copies of itself, so it brings its own `main`: with the
//! argument `worker` it is a worker.

use anyhow::{Result, bail};
use shoal_bench::{
    Concurrency, Directory, FileId, ListingResult, OpenMode, SmallOptions, Stat, Target, Team, Worker,
    WorkerCommand, Workload, worker_process_main,
};

fn team(workers: usize) -> Team {
    let command = WorkerCommand::this_program(&["worker"]).unwrap();
    Team { workers, concurrency: Concurrency::Processes(command) }
}

fn small() -> Workload {
    Workload::Small(SmallOptions { files: 25, bytes: 100, verify: true, readdirplus: false })
}

fn processes_do_the_same_phases_as_threads() {
    let dir = tempfile::tempdir().unwrap();
    let run = team(3).run(&Directory::new("dir", dir.path()), &small()).unwrap();
    assert_eq!(run.phases.len(), 9);
    assert_eq!((run.phases[1].ops, run.phases[3].bytes), (75, 7500));
    for phase in &run.phases {
        assert!(phase.longest_ns > 0 && phase.longest_ns <= phase.wall_ns, "{phase:?}");
        assert!(phase.rank0_ns > 0, "{phase:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    assert_eq!(team(1).describe(), "1 process");
}

fn targets_that_are_no_directories_are_opened_by_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let target = Named { spec: Some(format!("named:{}", dir.path().display())), fails: false };
    let run = team(2).run(&target, &small()).unwrap();
    assert_eq!(run.phases[1].ops, 50);
}

fn a_process_that_fails_is_named_and_the_others_clean_up() {
    let dir = tempfile::tempdir().unwrap();
    let target = Named { spec: Some(format!("fails:{}", dir.path().display())), fails: true };
    let error = format!("{:#}", team(3).run(&target, &small()).unwrap_err());
    assert!(error.contains("worker 1 failed") && error.contains("as told"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

fn a_target_without_words_for_itself_is_refused() {
    let error = format!("{:#}", team(1).run(&Named { spec: None, fails: false }, &small()).unwrap_err());
    assert!(error.contains("use threads"), "{error}");
}

fn a_program_that_is_no_worker_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let command = WorkerCommand { program: "/bin/true".into(), args: Vec::new() };
    let team = Team { workers: 1, concurrency: Concurrency::Processes(command) };
    let error = format!("{:#}", team.run(&Directory::new("dir", dir.path()), &small()).unwrap_err());
    assert!(error.contains("worker 0"), "{error}");
}

/// A target the library does not know: words, and the program's interpretation of them.
struct Named {
    spec: Option<String>,
    fails: bool,
}

impl Target for Named {
    fn name(&self) -> String {
        "named".to_owned()
    }

    fn worker(&self, index: usize) -> Result<Box<dyn Worker>> {
        let Some((_, root)) = self.spec.as_deref().and_then(|spec| spec.split_once(':')) else {
            bail!("no words")
        };
        let inner = Directory::new("named", root).worker(index)?;
        Ok(Box::new(NamedWorker { inner, fails: self.fails && index == 1 }))
    }

    fn process_spec(&self) -> Option<String> {
        self.spec.clone()
    }
}

fn open_named(spec: &str) -> Result<Box<dyn Target>> {
    Ok(Box::new(Named { spec: Some(spec.to_owned()), fails: spec.starts_with("fails:") }))
}

struct NamedWorker {
    inner: Box<dyn Worker>,
    fails: bool,
}

impl Worker for NamedWorker {
    fn mkdir(&mut self, path: &str) -> Result<()> {
        self.inner.mkdir(path)
    }
    fn create(&mut self, path: &str) -> Result<FileId> {
        self.inner.create(path)
    }
    fn open(&mut self, path: &str, mode: OpenMode) -> Result<FileId> {
        self.inner.open(path, mode)
    }
    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()> {
        if self.fails {
            bail!("this write fails as told");
        }
        self.inner.write(file, offset, data)
    }
    fn read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.inner.read(file, offset, buf)
    }
    fn stat(&mut self, path: &str) -> Result<Stat> {
        self.inner.stat(path)
    }
    fn readdir_stat(&mut self, dir: &str) -> Result<ListingResult> {
        self.inner.readdir_stat(dir)
    }
    fn fsync(&mut self, file: FileId) -> Result<()> {
        self.inner.fsync(file)
    }
    fn close(&mut self, file: FileId) -> Result<()> {
        self.inner.close(file)
    }
    fn remove(&mut self, path: &str) -> Result<()> {
        self.inner.remove(path)
    }
    fn rmdir(&mut self, path: &str) -> Result<()> {
        self.inner.rmdir(path)
    }
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        worker_process_main(open_named).unwrap();
        return;
    }
    let tests: [(&str, fn()); 5] = [
        ("processes_do_the_same_phases_as_threads", processes_do_the_same_phases_as_threads),
        (
            "targets_that_are_no_directories_are_opened_by_the_program",
            targets_that_are_no_directories_are_opened_by_the_program,
        ),
        (
            "a_process_that_fails_is_named_and_the_others_clean_up",
            a_process_that_fails_is_named_and_the_others_clean_up,
        ),
        ("a_target_without_words_for_itself_is_refused", a_target_without_words_for_itself_is_refused),
        ("a_program_that_is_no_worker_is_reported", a_program_that_is_no_worker_is_reported),
    ];
    let wanted = std::env::args().nth(1).filter(|arg| !arg.starts_with('-')).unwrap_or_default();
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(&wanted)) {
        test();
        println!("test {name} ... ok");
    }
}
