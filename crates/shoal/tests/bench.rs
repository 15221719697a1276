//! Runs the benchmarks of the program with as little work as possible. The tests check that the output is
//! complete, and do not judge the figures.

use serde_json::Value;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

#[path = "../../../tests/skipped.rs"]
mod skipped;
use skipped::skipped;

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.env_remove("SHOAL_KEY").env_remove("SHOAL_LOG");
    // Whether this machine was measured, and by which version, is no matter here.
    command.env("XDG_DATA_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/nothing-measured"));
    command.args(args).output().expect("the program starts")
}

/// Standard output, as JSON, of a command that must succeed.
fn said(args: &[&str]) -> Value {
    let output = run(args);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "shoal {args:?} failed: {words}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

#[test]
fn bench_native_holds_every_phase_against_a_bound_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("text");
    let words = "bench native --servers 2 --clients 1,3 --files 400 --repeat 1 --quiet --json --folder";
    let args: Vec<&str> = words.split(' ').chain([at]).collect();
    let told = said(&args);
    // One client with idle cores, with awake ones, and three; and one with batches.
    let (batches, runs) = list(&told["runs"]).split_last().expect("runs");
    assert_eq!(runs.len(), 3);
    let target = &batches["report"]["targets"][0];
    let held = list(&target["held"]);
    assert_eq!(held.len(), 14, "{target}");
    assert_eq!(list(&batches["gains"]).len(), 5, "{batches}");
    for phase in held.iter().filter(|phase| phase["phase"].as_str().is_some_and(|p| p.ends_with("_many"))) {
        assert!(phase["held"]["measured"].as_f64().is_some_and(|per_s| per_s > 0.0), "{phase}");
        assert_eq!(phase["cost"]["round_trips"], 1.0 / 64.0, "{phase}");
    }
    for run in runs {
        let target = &run["report"]["targets"][0];
        let held = list(&target["held"]);
        assert_eq!(held.len(), 6, "{target}");
        for phase in held {
            assert!(phase["held"]["measured"].as_f64().is_some_and(|per_s| per_s > 0.0), "{phase}");
            assert!(!list(&phase["held"]["bound"]["terms"]).is_empty(), "{phase}");
            assert!(phase["cpu_us"].as_f64().is_some_and(|us| us > 0.0), "{phase}");
        }
        let create = &held[1];
        assert_eq!((&create["phase"], &create["cost"]["syncs"]), (&"create+write+close".into(), &1.0.into()));
        assert_eq!(create["cost"]["round_trips"], 1.0, "one message: {create}");
        assert!(create["machine"]["sync_us"].as_f64().is_some_and(|us| us > 0.0), "{create}");
    }
    let verdicts = list(&told["verdicts"]);
    assert_eq!(verdicts.len(), 12);
    for verb in ["create_many", "write_many", "read_many"] {
        let is_it = |verdict: &&Value| verdict["demand"].as_str().is_some_and(|words| words.contains(verb));
        assert_eq!(verdicts.iter().filter(is_it).count(), 1, "{verb}: {verdicts:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
}

#[test]
fn bench_small_compares_batches_only_where_the_target_has_such_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = format!("dir:{}", folder.path().display());
    let told = said(&[
        "bench", "small", "--many", "8", "--files", "20", "--repeat", "1", "--quiet", "--json", "--target",
        &target,
    ]);
    assert_eq!((list(&told["gains"]).len(), list(&told["verdicts"]).len()), (0, 0));
    let rate = |name: &str| {
        let phases = list(&told["targets"][0]["phases"]);
        phases.iter().find(|phase| phase["phase"] == name).expect("a phase")["rate"].clone()
    };
    assert!(rate("create")["median"].as_f64().is_some_and(|per_s| per_s > 0.0));
    assert_eq!(rate("create_many"), Value::Null);
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
}

#[test]
fn bench_sweep_holds_every_size_against_half_of_it_and_eager_against_rendezvous() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = "bench sweep --servers 2 --from 8k --to 64k --total 1M --blocks 4 --repeat 2 --quiet --json";
    let at = folder.path().to_str().expect("text");
    let told = said(&words.split(' ').chain(["--folder", at]).collect::<Vec<_>>());
    let curves = list(&told["sizes"]["curves"]);
    assert_eq!(curves.len(), 2, "written and read");
    for curve in curves {
        let points = list(&curve["points"]);
        assert_eq!(points.len(), 4, "{curve}");
        assert!(
            points.iter().all(|point| point["mb_per_s"]["value"].as_f64().is_some_and(|rate| rate > 0.0))
        );
        assert!(points[1..].iter().all(|point| point["to_half"]["value"].is_number()), "{curve}");
    }
    assert_eq!(list(&told["eager"]).len(), 2 * 9, "1 KiB to 256 KiB");
    assert_eq!(list(&told["verdicts"]).len(), 4);
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
}

#[test]
fn bench_patterns_holds_every_pattern_against_contiguous_and_single_calls_and_checks_its_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("text");
    let words = "bench patterns --servers 2 --clients 3 --total 1M --records 64,4k --calls 8 --repeat 1 --quiet --json";
    let told = said(&words.split(' ').chain(["--folder", at]).collect::<Vec<_>>());
    let rows = list(&told["report"]["rows"]);
    // Two sizes; seven patterns are read and six of them written.
    assert_eq!(rows.len(), 2 * 13);
    for row in rows {
        for way in ["structured", "contiguous", "single"] {
            let moved = &list(&row[way])[0];
            assert!(moved["bytes"].as_u64() > Some(0) && moved["took_s"].as_f64() > Some(0.0), "{row}");
        }
    }
    assert_eq!(list(&told["verdicts"]).len(), 2 * 3, "{}", told["verdicts"]);
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
}

#[test]
fn bench_mount_holds_two_mounts_against_a_pass_through_and_leaves_nothing_mounted() {
    if !std::path::Path::new("/dev/fuse").exists() {
        skipped("no /dev/fuse");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("text");
    let words = "bench mount --servers 2 --processes 1,2 --files 40 --repeat 1 --quiet --json --folder";
    let told = said(&words.split(' ').chain([at]).collect::<Vec<_>>());
    // Two sync modes, two numbers of processes; two mounts and three verbs in each.
    assert_eq!(list(&told["runs"]).len(), 4);
    assert_eq!(list(&told["verdicts"]).len(), 4 * 2 * 3, "{}", told["verdicts"]);
    for run in list(&told["runs"]) {
        let targets = list(&run["report"]["targets"]);
        assert_eq!(targets.len(), 3);
        let connections = targets[1..].iter().map(|target| &target["layout"]["connection"]);
        assert_eq!(connections.collect::<Vec<_>>(), ["queue", "tcp"]);
        assert!(targets[1..].iter().all(|target| target["layout"]["place"] == "threads"), "{run}");
        let syncs = if run["sync"] == "reply" { 1.0 } else { 0.0 };
        for create in targets[1..].iter().map(|target| &target["held"][1]) {
            assert_eq!((&create["phase"], &create["cost"]["syncs"]), (&"create+close".into(), &syncs.into()));
            assert!(create["machine"]["way_per_s"].as_f64().is_some_and(|per_s| per_s > 0.0), "{create}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("readable");
    assert!(!mounts.contains(at), "{mounts}");
}

#[test]
fn bench_directory_fills_lists_and_empties_a_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("text");
    let words = "bench directory --servers 2 --clients 3 --files 700 --quiet --json --folder";
    let is_mounted = std::path::Path::new("/dev/fuse").exists();
    let without = (!is_mounted).then_some("--no-mount");
    let told = said(&words.split(' ').chain([at]).chain(without).collect::<Vec<_>>());
    let report = &told["report"];
    assert_eq!((&report["created"]["done"], &report["removed"]["done"]), (&700.into(), &700.into()));
    assert_eq!(report["natively"]["entries"], 700);
    let shares: u64 = list(&report["natively"]["by_server"]).iter().filter_map(Value::as_u64).sum();
    assert_eq!(shares, 700, "{report}");
    if is_mounted {
        assert_eq!(report["by_mount"]["entries"], 700, "{report}");
    } else {
        skipped("no /dev/fuse: nothing is listed through a mount");
    }
    for nothing in ["missing", "twice", "strangers"] {
        assert_eq!(report["among_changes"][nothing], 0, "{report}");
    }
    let checked = list(&report["checked"]);
    assert!(checked.len() == 2 && checked.iter().all(|one| one["is_clean"] == true), "{report}");
    assert_eq!(list(&told["verdicts"]).len(), if is_mounted { 8 } else { 6 });
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
}

#[test]
fn bench_compare_measures_two_programs_in_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("text");
    let program = env!("CARGO_BIN_EXE_shoal");
    let told = said(&[
        "bench",
        "compare",
        "--a",
        program,
        "--b",
        program,
        "--repeat",
        "2",
        "--turns",
        "2",
        "--servers",
        "2",
        "--quiet",
        "--json",
        "--folder",
        at,
        "--",
        "small",
        "--whole",
        "--files",
        "30",
        "--workers",
        "2",
    ]);
    let phases = list(&told["phases"]);
    assert_eq!(phases.len(), 6, "{told}");
    for phase in phases {
        assert!(phase["ratio"]["value"].as_f64().is_some_and(|ratio| ratio > 0.0), "{phase}");
        assert_eq!(phase["told"], "too_few_rounds", "two rounds tell nothing: {phase}");
    }
    assert_eq!((list(&told["a"]).len(), list(&told["b"]).len()), (2, 2));
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
}

#[test]
fn a_proof_compares_this_program_with_itself_and_with_itself_slowed_and_fails_where_too_few_rounds_tell_nothing()
 {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("text");
    let words =
        "bench compare --prove 1 --planted 50 --repeat 2 --turns 1 --servers 2 --quiet --json --folder";
    let output = run(&words.split(' ').chain([at]).collect::<Vec<_>>());
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((list(&told["trials"]).len(), &told["is_proven"]), (2, &false.into()), "{told}");
    for trial in list(&told["trials"]) {
        assert_eq!(trial["told"], "too_few_rounds", "{trial}");
        assert!(trial["ratio"]["value"].as_f64().is_some_and(|ratio| ratio > 0.0), "{trial}");
    }
    assert!(!output.status.success());
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
}

#[test]
fn bench_techniques_measures_every_combination_and_writes_its_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let (at, tables) = (folder.path().to_str().expect("text"), folder.path().join("tables.md"));
    let tables = tables.to_str().expect("text");
    let told =
        said(&["bench", "techniques", "--short", "--quiet", "--json", "--folder", at, "--markdown", tables]);
    assert_eq!(list(&told["cells"]).len(), 10 * 2 * 8);
    assert_eq!(list(&told["checks"]).len(), 18);
    let text = std::fs::read_to_string(tables).expect("written");
    assert!(text.contains("| baseline |") && text.contains("**4 clients**"), "{text}");
}

/// A process's parent and whether it has ended, as in `/proc`; `None`: there is no such process.
fn parent_of(pid: u32) -> Option<(u32, bool)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit(") ").next()?.split(' ');
    let has_ended = matches!(words.next()?, "Z" | "X");
    Some((words.next()?.parse().ok()?, has_ended))
}

/// Look repeatedly; returns the last result.
fn seen<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_servers_of_a_benchmark_that_is_killed_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = "bench techniques --servers 2 --clients 1 --files 10000 --repeat 9 --quiet --json --folder";
    let mut bench = Command::new(env!("CARGO_BIN_EXE_shoal"))
        .args(words.split(' '))
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let is_up = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        parent_of(*pid).is_some_and(|(parent, _)| parent == bench.id())
            && words.split(|&byte| byte == 0).any(|word| word == b"up")
    };
    let servers = || {
        let entries = std::fs::read_dir("/proc").expect("readable").flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_up)
    };
    let servers = seen("the benchmark starts servers", servers);
    bench.kill().expect("it is there");
    let ended = bench.wait().expect("it ends");
    assert_eq!(ended.signal(), Some(9), "it had much to do yet");
    let has_ended = || parent_of(servers).is_none_or(|(_, has_ended)| has_ended).then_some(());
    seen("its servers end", has_ended);
}

#[test]
fn what_cannot_be_measured_is_said() {
    for (words, told) in [
        ("bench native --clients 0", "clients are between 1 and"),
        ("bench techniques --clients 4,2000", "clients are between 1 and"),
        ("bench techniques --repeat 0", "use 1 or more"),
        ("bench mount --processes 0", "processes are between 1 and"),
        ("bench directory --files 0", "files are between 1 and"),
        ("bench compare HEAD", "name two revisions, or two programs"),
        ("bench compare HEAD HEAD -- native", "the words of `shoal bench small`"),
        ("bench compare HEAD HEAD -- small --repeat 3", "is chosen by the comparison"),
        ("bench compare nonsense HEAD", "`nonsense` is no revision"),
        ("bench compare --a /nonexistent --b /nonexistent", "cannot find the program"),
        ("bench sweep --from 3k", "blocks go from a power of two"),
        ("bench sweep --total 1M", "make the file larger"),
        ("bench patterns --records 100", "records of a list are powers of two"),
        ("bench patterns --records 2M", "records have 1 byte to 1 MiB"),
        ("bench patterns --clients 0", "clients are between 1 and"),
        ("bench native --many 1", "a batch has between 2 and"),
        ("bench small --target dir:/tmp --many 4 --whole", "cannot be used with"),
        ("bench native --folder /nonexistent", "cannot make the folder"),
        ("bench flood", "<DIRECTORY>"),
        ("bench flood /nonexistent", "is no directory: make it first"),
        ("bench flood /tmp --files 0", "files are between 1 and"),
        ("bench flood /tmp --processes 2000", "processes are between 1 and"),
        ("bench flood /tmp --readers 1,0", "readers are between 1 and"),
        ("bench flood /tmp --size 0", "a file has between 1 byte and"),
        ("bench flood /tmp --repeat 0", "rounds are between 1 and"),
        ("bench flood /tmp --servers 0", "0 is not in"),
        ("bench flood /tmp --servers 1 --preload", "cannot be used with"),
        ("bench preload /nonexistent", "is no directory: make it first"),
        ("bench preload --threads 0", "--threads 0: it is between 1 and"),
        ("bench preload --calls 0", "--calls 0: it is between 1 and"),
        ("bench preload --servers 0", "0 is not in"),
    ] {
        let output = run(&words.split(' ').collect::<Vec<_>>());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(told), "{words}: {error}");
    }
}

/// The rows of a flood, each with all its figures.
fn flooded(words: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("text");
    let told = said(&words.split(' ').chain([at]).collect::<Vec<_>>());
    assert_eq!((&told["processes"], &told["files"], &told["rounds"]), (&4.into(), &50.into(), &1.into()));
    assert_eq!(told["not_cold"], "not asked for (--cold)", "{told}");
    for row in list(&told["rows"]) {
        let reads = list(&row["reads"]);
        assert_eq!(reads.iter().map(|read| &read["readers"]).collect::<Vec<_>>(), [1, 4], "{row}");
        for held in [&row["create"], &row["calls"]].into_iter().chain(reads) {
            for figure in ["per_s", "bound_per_s", "of_bound", "of_plain"] {
                assert!(held[figure].as_f64().is_some_and(|rate| rate > 0.0), "{figure}: {row}");
            }
        }
        assert!(row["reach_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{row}");
    }
    assert_eq!(std::fs::read_dir(at).expect("the folder").count(), 0, "nothing stays");
    list(&told["rows"]).clone()
}

#[test]
fn bench_flood_makes_files_of_a_composed_directory_beside_plain_ones_and_counts_those_below() {
    let rows = flooded("bench flood --quick --json");
    let below = |row: usize| rows[row]["files_below"].as_u64().expect("counted");
    // One file a process; 200 files; and a folder a process beside them.
    assert_eq!([below(0), below(1), below(2)], [4, 200, 204]);
    assert_eq!(rows.len(), 7);
    assert!((3..7).all(|row| below(row) < 50), "markers and one physical file: {rows:?}");
}

#[test]
fn bench_flood_counts_the_messages_of_a_shoalfs_and_syncs_both_sides() {
    let rows = flooded("bench flood --quick --json --sync --servers 1");
    let messages = |row: usize| rows[row]["messages_a_file"].as_f64().expect("counted");
    assert_eq!((rows.len(), &rows[1]["files_below"]), (7, &Value::Null));
    assert!(messages(1) >= 1.0, "a plain file is a message at least: {}", rows[1]);
    assert!((3..7).all(|row| messages(row) > 0.0), "{rows:?}");
}

#[test]
fn bench_stored_holds_a_server_that_stores_much_beside_an_empty_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("text");
    let words = "bench stored --segments 300 --clients 2 --files 200 --repeat 1 --quiet --json --folder";
    let args: Vec<&str> = words.split(' ').chain([at]).collect();
    let told = said(&args);
    assert_eq!(told["stored_bytes"], 300_u64 * (32 << 20));
    let targets = list(&told["report"]["targets"]);
    assert_eq!(targets.len(), 2);
    for phase in targets.iter().flat_map(|target| list(&target["phases"])) {
        assert!(phase["rate_wall"]["median"].as_f64().is_some_and(|per_s| per_s > 0.0), "{phase}");
    }
    assert_eq!(list(&told["verdicts"]).len(), 2, "creates and removes");
    assert_eq!(std::fs::read_dir(at).expect("the folder").count(), 0, "nothing stays");
}

#[test]
fn bench_small_measures_a_mount_over_a_directory_beside_a_pass_through() {
    if !std::path::Path::new("/dev/fuse").exists() {
        skipped("no /dev/fuse: nothing is mounted");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let targets = ["over", "passthrough"].map(|kind| format!("{kind}:{}", folder.path().display()));
    let words = "bench small --files 20 --repeat 1 --quiet --json";
    let mut args: Vec<&str> = words.split(' ').collect();
    targets.iter().for_each(|target| args.extend(["--target", target.as_str()]));
    let told = said(&args);
    for (target, name) in list(&told["targets"]).iter().zip(&targets) {
        assert_eq!(&target["name"], name);
    }
    assert_eq!(list(&told["targets"]).len(), 2);
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left");
}
