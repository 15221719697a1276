//! `shoal bounds` as a program: machines as files, the thesis's numbers, the curves, and measurements that
//! are as short as possible.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn run(data: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.env_remove("SHOAL_KEY").env_remove("SHOAL_LOG").env("XDG_DATA_HOME", data);
    command.arg("bounds").args(args).output().expect("the program starts")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn said(data: &Path, args: &[&str]) -> String {
    let output = run(data, args);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "shoal bounds {args:?} failed: {words}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(data: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&said(data, args)).expect("JSON")
}

fn refused(data: &Path, args: &[&str]) -> String {
    let output = run(data, args);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.starts_with("shoal: "), "{words}");
    words
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

#[test]
fn the_thesis_s_machine_gives_the_thesis_s_numbers() {
    let data = folder();
    let told = json(data.path(), &["--machine", "thesis-cluster", "--json"]);
    let published = list(&told["published"]);
    let of = |case: &str| published.iter().find(|one| one["case"] == format!("chapter4.{case}")).expect("it");
    for (case, printed) in [
        ("create.worst", 6.6),
        ("create.average", 11.6),
        ("create.track", 76.5),
        ("create.cached", 480.8),
        ("small.1k", 1.9),
        ("small.1m", 101.3),
        ("large.network", 535.0),
        ("large.disk", 200.0),
    ] {
        let one = of(case);
        assert_eq!(number(&one["published"]), printed, "{one}");
        assert_eq!(one["agrees"], true, "{one}");
        // The thesis's sum for average accesses has a slip of a millisecond, which the machine's file notes.
        let here = number(&one["here"]);
        assert!((here - printed).abs() < if one["slip"].is_null() { 0.1 } else { 0.2 }, "{one}");
    }
    assert_eq!(published.iter().filter(|one| !one["slip"].is_null()).count(), 2);
    assert!(of("create.average")["slip"].as_str().is_some_and(|slip| slip.contains("87.08 ms")));
    assert!(published.iter().all(|one| one["agrees"] == true), "{published:?}");
}

#[test]
fn every_operation_has_a_bound_for_every_set_and_number_of_clients() {
    let data = folder();
    for name in ["thesis-cluster", "pvfs-linux", "bgp", "chiba"] {
        let told = json(data.path(), &["--machine", name, "--json"]);
        let bounds = list(&told["bounds"]);
        assert_eq!(bounds.len(), 10 * 3 * 4, "{name}");
        for bound in bounds {
            assert!(number(&bound["per_s"]) > 0.0 && bound["binds"].is_string(), "{name}: {bound}");
            assert_eq!(bound["binds"], bound["terms"][0]["limit"]);
        }
    }
}

#[test]
fn explained_bounds_show_their_numbers() {
    let data = folder();
    let words = said(data.path(), &["--machine", "thesis-cluster", "--explain", "--servers", "4"]);
    for line in [
        "estimated upper bounds, of all clients together; 4 servers",
        "create, ours, 1 client: ",
        "1 ÷ (4 × round trip 520 µs + 10 × disk access 8.5 ms)",
        "the slip: 10 · 8.5 ms + 4 · 0.52 ms is 87.08 ms",
    ] {
        assert!(words.contains(line), "`{line}` is missing in\n{words}");
    }
}

#[test]
fn the_curves_are_written_as_text_and_as_pictures() {
    let data = folder();
    let at = data.path().join("figures");
    let at_words = at.to_str().expect("text");
    let told = json(data.path(), &["--machine", "thesis-cluster", "--curves", at_words, "--json"]);
    assert_eq!(list(&told["figures"]).len(), 12);
    for figure in ["4.1", "4.2", "4.3", "4.4", "4.5", "4.6"] {
        let read =
            |end: &str| std::fs::read_to_string(at.join(format!("figure-{figure}.{end}"))).expect("written");
        assert!(read("svg").starts_with("<svg") && read("csv").lines().count() > 5, "{figure}");
    }
    let creates = std::fs::read_to_string(at.join("figure-4.1.csv")).expect("written");
    let first = creates.lines().nth(1).expect("a line");
    assert_eq!(first, "1,480.7692,2800.0000,76.4526,11.4837,6.5755");
}

#[test]
fn a_machine_is_a_name_or_a_file_and_what_is_wrong_with_it_is_said() {
    let data = folder();
    let own = include_str!("../../../lab/machines/thesis-cluster.toml").replace("thesis-cluster", "mine");
    let path = data.path().join("mine.toml");
    std::fs::write(&path, &own).expect("written");
    let at = path.to_str().expect("text");
    assert_eq!(json(data.path(), &["--machine", at, "--json"])["machine"]["name"], "mine");
    std::fs::write(&path, own.replace("bandwidth_mb_per_s = 107", "bandwidth_mb_per_s = -1"))
        .expect("written");
    let words = refused(data.path(), &["--machine", at]);
    assert!(
        words.contains("mine.toml: link.bandwidth_mb_per_s is -1: write 10^6 bytes a second, above 0"),
        "{words}"
    );
    let words = refused(data.path(), &["--machine", "cray"]);
    assert!(words.contains("`cray`") && words.contains("thesis-cluster"), "{words}");
    let words = refused(data.path(), &["--machine", "this"]);
    assert!(words.contains("run `shoal bounds`"), "{words}");
}

#[test]
fn machines_in_the_user_s_folder_are_listed_and_taken_by_name() {
    let data = folder();
    let names = |told: &Value| -> Vec<String> {
        list(told).iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
    };
    let built_in = ["thesis-cluster", "pvfs-linux", "bgp", "chiba"];
    assert_eq!(names(&json(data.path(), &["--list", "--json"])), built_in);
    let own = data.path().join("shoal/machines");
    std::fs::create_dir_all(&own).expect("made");
    let text = include_str!("../../../lab/machines/chiba.toml").replace("\"chiba\"", "\"mine\"");
    std::fs::write(own.join("mine.toml"), text).expect("written");
    assert_eq!(names(&json(data.path(), &["--list", "--json"]))[0], "mine");
    assert_eq!(json(data.path(), &["--machine", "mine", "--json"])["machine"]["name"], "mine");
}

#[test]
fn what_is_measured_is_kept_and_taken_again_by_its_name() {
    let (data, disk) = (folder(), folder());
    let at = disk.path().to_str().expect("text");
    let told = json(data.path(), &["--quick", "--quiet", "--json", "--servers", "2", "--folder", at]);
    let machine = &told["machine"];
    assert_eq!(machine["name"], "this");
    assert_eq!(list(&machine["link"]["echo"]).len(), 8, "1, 4, 16 and 64 outstanding, two sizes");
    for side in ["client", "server"] {
        assert!(number(&machine["cpu"][side]["message_us"]) > 0.0, "{machine}");
    }
    assert!(
        number(&machine["disk"]["write_mb_per_s"]) > 0.0 && !list(&machine["sync"]).is_empty(),
        "{machine}"
    );
    // One client is listed twice: its cores idle, and awake.
    assert_eq!(list(&told["bounds"]).len(), 10 * 3 * 5);
    assert_eq!(told["servers"], 2);
    let kept = data.path().join("shoal/machines/this.toml");
    assert_eq!(told["kept"], kept.to_str().expect("text"));
    assert!(std::fs::read_to_string(&kept).expect("kept").contains("# by `shoal bounds`, 20"));
    let again = json(data.path(), &["--machine", "this", "--json"]);
    assert_eq!((&again["machine"], &again["bounds"]), (machine, &told["bounds"]));
    assert_eq!(std::fs::read_dir(disk.path()).expect("readable").count(), 0, "nothing is left");
}

#[test]
fn bounds_are_held_against_figures_of_every_module_and_the_machine_that_was_measured_meanwhile_is_kept() {
    let (data, disk) = (folder(), folder());
    let at = disk.path().to_str().expect("text");
    let told =
        json(data.path(), &["--hold", "--quick", "--quiet", "--json", "--servers", "2", "--folder", at]);
    let figures = list(&told["figures"]);
    assert_eq!(figures.len(), 6 * 3 * 2, "operations, modules, 1 and 16 clients");
    for one in figures {
        assert!(number(&one["percent"]) > 0.0 && number(&one["figure"]["bound_per_s"]) > 0.0, "{one}");
        let words: Vec<&str> = list(&one["figure"]["arithmetic"]).iter().filter_map(Value::as_str).collect();
        let is_on_disk = one["figure"]["module"] == "disk";
        assert_eq!(words.iter().any(|line| line.contains("sync")), is_on_disk && is_change(one), "{one}");
    }
    let again = json(data.path(), &["--machine", "this", "--json"]);
    assert_eq!(again["machine"], told["machine"]);
    assert_eq!(std::fs::read_dir(disk.path()).expect("readable").count(), 0, "nothing is left");
}

fn is_change(one: &Value) -> bool {
    ["create", "remove"].iter().any(|change| one["figure"]["operation"] == *change)
}

#[test]
fn the_simulated_machine_is_held_beside_the_real_one_that_is_measured_meanwhile() {
    let (data, disk, pictures) = (folder(), folder(), folder());
    let (at, to) = (disk.path().to_str().expect("text"), pictures.path().to_str().expect("text"));
    let told = json(data.path(), &["--validate", to, "--quick", "--quiet", "--json", "--folder", at]);
    assert_eq!(list(&told["cells"]).len(), 7 * 2 * 2, "phases, modules, 1 and 4 clients");
    assert!(data.path().join("shoal/machines/this.toml").exists(), "the machine is kept");
    assert!(
        pictures.path().join("validation.svg").exists() && pictures.path().join("validation.csv").exists()
    );
    assert_eq!(std::fs::read_dir(disk.path()).expect("readable").count(), 0, "nothing is left");
}
