//! The phases do their stated work, and report it.

mod common;

use common::{Watched, files_below};
use shoal_bench::{
    CompareOptions, Concurrency, Directory, IoOptions, IoPhase, SharedLayout, SmallOptions, Target, Team,
    Worker, Workload, compare,
};

fn threads(workers: usize) -> Team {
    Team { workers, concurrency: Concurrency::Threads }
}

fn small() -> Workload {
    Workload::Small(SmallOptions { files: 20, bytes: 300, verify: true, readdirplus: false })
}

#[test]
fn the_nine_phases_create_write_read_and_remove_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let target = Watched::new(dir.path());
    let run = threads(1).run(&target, &small()).unwrap();
    let seen = target.seen.lock().unwrap().clone();
    assert_eq!(seen["create"], (0, 0));
    assert_eq!(seen["write"], (20, 0), "all files exist, empty, before the first write");
    assert_eq!(seen["read"], (20, 6000), "all have their size before the first read");
    assert_eq!(seen["close"], (20, 6000));
    assert_eq!(seen["remove"], (20, 6000));
    assert_eq!(seen["rmdir"], (0, 0), "all are gone before the directory goes");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    let phases: Vec<(&str, u64, u64)> =
        run.phases.iter().map(|p| (p.phase.as_str(), p.ops, p.bytes)).collect();
    let expected = [
        ("mkdir", 1, 0),
        ("create", 20, 0),
        ("readdir+stat, empty", 20, 0),
        ("write", 20, 6000),
        ("read", 20, 6000),
        ("readdir+stat, written", 20, 0),
        ("close", 20, 0),
        ("remove", 20, 0),
        ("rmdir", 1, 0),
    ];
    assert_eq!(phases, expected);
}

#[test]
fn every_worker_does_its_share_in_a_directory_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let target = Watched::new(dir.path());
    let run = threads(3).run(&target, &small()).unwrap();
    let calls = target.calls.lock().unwrap().clone();
    assert_eq!((calls["mkdir"], calls["create"], calls["write"], calls["remove"]), (3, 60, 60, 60));
    assert_eq!(calls["readdir_stat"], 6);
    assert!(run.phases.iter().all(|phase| phase.ops == 60 || phase.ops == 3));
    assert!(run.phases.iter().all(|phase| phase.longest_ns <= phase.wall_ns && phase.longest_ns > 0));
    assert_eq!(target.seen.lock().unwrap()["write"], (60, 0), "nobody writes before all have created");
}

#[test]
fn a_worker_that_fails_stops_all_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut target = Watched::new(dir.path());
    target.fail = Some(("write", 30));
    let error = threads(3).run(&target, &small()).unwrap_err();
    assert!(format!("{error:#}").contains("write fails as told"), "{error:#}");
    assert_eq!(target.calls.lock().unwrap().get("read"), None, "no later phase ran");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn readdirplus_is_a_phase_of_its_own_and_empty_where_it_is_not_offered() {
    let dir = tempfile::tempdir().unwrap();
    let workload = Workload::Small(SmallOptions { files: 5, readdirplus: true, ..SmallOptions::default() });
    let run = threads(1).run(&Directory::new("dir", dir.path()), &workload).unwrap();
    let plus: Vec<_> = run.phases.iter().filter(|phase| phase.phase.starts_with("readdirplus")).collect();
    assert_eq!(plus.len(), 2);
    assert!(plus.iter().all(|phase| phase.ops == 0 && phase.rate().is_none()));
}

#[test]
fn large_files_are_written_and_read_whole_however_they_are_divided() {
    for shared in [None, Some(SharedLayout::Segmented), Some(SharedLayout::Strided)] {
        let dir = tempfile::tempdir().unwrap();
        let target = Watched::new(dir.path());
        let options = IoOptions {
            bytes: 40_000,
            block: 4_000,
            shared,
            fsync: true,
            verify: true,
            ..IoOptions::default()
        };
        let run = threads(3).run(&target, &Workload::Io(options)).unwrap();
        let files = if shared.is_none() { 3 } else { 1 };
        assert_eq!(target.seen.lock().unwrap()["read"], (files, 120_000), "{shared:?}");
        let write = run.phases.iter().find(|phase| phase.phase == "write").unwrap();
        assert_eq!((write.ops, write.bytes), (30, 120_000));
        assert_eq!(target.calls.lock().unwrap()["fsync"], 6, "one a worker for each writing phase");
        assert_eq!(files_below(dir.path()), (0, 0));
    }
}

#[test]
fn reading_first_fills_the_file_first_and_direct_io_works_where_it_is_offered() {
    // In the working directory, not in /tmp, which on some machines has no direct I/O.
    let dir = tempfile::tempdir_in(".").unwrap();
    let options = IoOptions {
        bytes: 64 << 10,
        block: 16 << 10,
        direct: true,
        verify: true,
        phases: vec![IoPhase::RandomRead],
        ..IoOptions::default()
    };
    let run = threads(2).run(&Directory::new("dir", dir.path()), &Workload::Io(options)).unwrap();
    let names: Vec<&str> = run.phases.iter().map(|phase| phase.phase.as_str()).collect();
    assert_eq!(names, ["create", "open", "fill", "random read", "close", "remove"]);
}

#[test]
fn what_cannot_be_run_is_refused_by_the_name_of_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let target = Directory::new("dir", dir.path());
    let refused = |workload: Workload, workers: usize| {
        format!("{:#}", threads(workers).run(&target, &workload).unwrap_err())
    };
    assert!(
        refused(Workload::Small(SmallOptions { files: 0, ..SmallOptions::default() }), 1).contains("files")
    );
    assert!(refused(small(), 0).contains("workers"));
    let odd = IoOptions { bytes: 100, block: 3, ..IoOptions::default() };
    assert!(refused(Workload::Io(odd), 1).contains("multiple of block"));
    let direct = IoOptions { bytes: 3000, block: 1000, direct: true, ..IoOptions::default() };
    assert!(refused(Workload::Io(direct), 1).contains("4096"));
}

#[test]
fn a_comparison_measures_every_target_in_every_repetition_and_holds_them_against_the_reference() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (Directory::new("first", first.path()), Directory::new("second", second.path()));
    let options = CompareOptions {
        team: threads(2),
        repetitions: 3,
        reference: Some("second".to_owned()),
        probe: None,
        settings: Vec::new(),
    };
    let mut steps = Vec::new();
    let targets: [&dyn Target; 2] = [&first, &second];
    let report =
        compare(&targets, &small(), &options, |progress| steps.push(format!("{progress:?}"))).unwrap();
    assert_eq!(steps.len(), 2 + 6, "a beginning, six measurements, an end");
    assert!(report.targets.iter().all(|target| target.runs.len() == 3));
    let second = report.target("second").unwrap();
    assert!(second.phases.iter().all(|phase| phase.ratio == Some(1.0)));
    let back = shoal_bench::Report::from_json(&report.to_json().unwrap()).unwrap();
    assert!(back == report, "the report must read back from its JSON to the last digit");

    let unknown = CompareOptions { reference: Some("third".to_owned()), ..options };
    assert!(compare(&targets, &small(), &unknown, |_| {}).is_err());
    assert!(compare(&[&first, &first], &small(), &CompareOptions::default(), |_| {}).is_err());
}

#[test]
fn a_directory_worker_reads_to_the_end_and_refuses_files_that_are_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker: Box<dyn Worker> = Directory::new("dir", dir.path()).worker(0).unwrap();
    let file = worker.create("a").unwrap();
    worker.write(file, 2, b"bcd").unwrap();
    let mut buf = [9u8; 8];
    assert_eq!(worker.read(file, 0, &mut buf).unwrap(), 5);
    assert_eq!(&buf[..5], b"\0\0bcd");
    worker.fsync(file).unwrap();
    worker.close(file).unwrap();
    assert!(worker.read(file, 0, &mut buf).is_err());
    assert!(worker.close(file).is_err());
    assert_eq!(worker.stat("a").unwrap().size, 5);
    assert!(worker.create("a").is_err(), "create is exclusive");
    worker.remove("a").unwrap();
    assert!(worker.stat("a").is_err());
}
