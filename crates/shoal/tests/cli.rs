//! Runs the program's commands on file systems in temporary folders, without a mount.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

#[path = "../../../tests/skipped.rs"]
mod skipped;
use skipped::skipped;

fn shoal() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.env_remove("SHOAL_KEY").env_remove("SHOAL_LOG");
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn run(args: &[&str]) -> Output {
    shoal().args(args).output().expect("the program starts")
}

/// Standard output of a command that must succeed.
fn said(args: &[&str]) -> String {
    let output = run(args);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "shoal {args:?} failed: {words}");
    String::from_utf8(output.stdout).expect("text")
}

/// Standard error of a command that must fail with this status.
fn refused(args: &[&str], status: i32) -> String {
    let output = run(args);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "shoal {args:?}: {words}");
    assert!(words.starts_with("shoal: "), "{words}");
    words
}

/// A process that serves, from its line with `ready` to its clean end.
struct Serving {
    child: Child,
    line: String,
    out: BufReader<std::process::ChildStdout>,
}

impl Serving {
    fn start(args: &[&str]) -> Serving {
        let mut child = shoal().args(args).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it says something");
        assert!(line.contains("ready"), "shoal {args:?} said `{line}`");
        Serving { child, line, out }
    }

    fn address(&self) -> String {
        let mut words = self.line.split_whitespace();
        words.rfind(|word| word.starts_with("shoal://")).expect("it names the address").to_owned()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert!(self.child.wait().expect("it ends").success());
        let rest: Vec<String> = self.out.by_ref().lines().map_while(Result::ok).collect();
        assert!(rest.iter().any(|line| line.contains("stopped")), "{rest:?}");
    }

    /// Of one that writes JSON: it has no last word.
    fn stop_silently(mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert!(self.child.wait().expect("it ends").success());
        assert_eq!(self.out.by_ref().lines().map_while(Result::ok).count(), 0);
    }

    fn crash(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // After a stop this finds nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

use std::io::Read as _;

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("text").to_owned()
    }

    fn tree(&self) -> PathBuf {
        let tree = self.path("tree");
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::fs::write(tree.join("small"), b"hello\n").unwrap();
        std::fs::write(tree.join("a/empty"), b"").unwrap();
        let big: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8).collect();
        std::fs::write(tree.join("a/b/big"), big).unwrap();
        std::os::unix::fs::symlink("../small", tree.join("a/link")).unwrap();
        tree
    }
}

/// Every path below a folder, with its contents.
fn listing(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![folder.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let content = match path.symlink_metadata().unwrap().file_type() {
                kind if kind.is_dir() => {
                    todo.push(path.clone());
                    b"directory".to_vec()
                }
                kind if kind.is_symlink() => path.read_link().unwrap().into_os_string().into_encoded_bytes(),
                _ => std::fs::read(&path).unwrap(),
            };
            found.push((path.strip_prefix(folder).unwrap().to_path_buf(), content));
        }
    }
    found.sort();
    found
}

/// All commands, as the help of each names those below it.
fn commands(prefix: &[&str]) -> Vec<Vec<String>> {
    let mut args: Vec<&str> = prefix.to_vec();
    args.push("--help");
    let help = said(&args);
    let listed = help.split("Commands:\n").nth(1).unwrap_or("");
    let names = listed.lines().take_while(|line| line.starts_with("  ")).filter_map(|line| {
        let name = line.trim_start().split(' ').next()?;
        (line.starts_with("  ") && !line.starts_with("   ") && name != "help").then(|| name.to_owned())
    });
    let mut all = Vec::new();
    for name in names {
        let path: Vec<&str> = prefix.iter().copied().chain([name.as_str()]).collect();
        let below = commands(&path);
        match below.is_empty() {
            true => all.push(path.iter().map(|&word| word.to_owned()).collect()),
            false => all.extend(below),
        }
    }
    all
}

#[test]
fn every_command_has_help_with_an_example() {
    let all = commands(&[]);
    assert!(all.len() >= 20, "{all:?}");
    for path in all {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = said(&args);
        assert!(help.contains("Example:"), "`shoal {}` has no example", path.join(" "));
    }
}

#[test]
fn every_command_that_tells_facts_tells_them_as_json_too() {
    // Bytes of files, a script, another program's output, and nothing.
    let others = ["cat", "completions", "run", "umount"];
    for path in commands(&[]) {
        let name = path.join(" ");
        let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let has_json = said(&args).contains("--json");
        assert_eq!(has_json, !others.contains(&name.as_str()), "`shoal {name}`");
    }
}

/// The JSON output of a command that must succeed.
fn told(args: &[&str]) -> serde_json::Value {
    let text = said(&[args, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("shoal {args:?}: {error} in `{text}`"))
}

#[test]
fn what_commands_have_done_is_told_as_json() {
    let home = Home::new();
    let (cluster, key) = (home.text("cluster"), home.text("cluster/key"));
    let free = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [first, second] = free.each_ref().map(|l| format!("tcp:{}", l.local_addr().unwrap()));
    drop(free);
    let made = told(&["init", &cluster, "--server", &format!("{first}=s0"), "--name", "one"]);
    assert_eq!((&made["servers"], &made["key"]), (&1.into(), &key.as_str().into()));
    let made = told(&["init", &cluster, "--collection", "--name", "two", "--module", "memory"]);
    assert_eq!(made["file_systems"], serde_json::json!(["one", "two"]));

    let serving = Serving::start(&["serve", "--config", &cluster, "--json"]);
    let ready: serde_json::Value = serde_json::from_str(&serving.line).unwrap();
    assert_eq!((&ready["ready"], &ready["servers"]), (&true.into(), &serde_json::json!([0])));
    let root = ready["file_systems"][0]["address"].as_str().unwrap().to_owned();
    let laid = told(&["layout", "set", &format!("{root}/new"), "--strip", "64k", "--key", &key]);
    assert_eq!((&laid["strip"], &laid["stuffed"]), (&(64 << 10).into(), &true.into()));
    assert_eq!(told(&["sync", &root, "--key", &key]), serde_json::json!({ "durable": true, "schema": 1 }));
    let changed = told(&["sync", &root, "--metadata", "fsync", "--key", &key]);
    assert_eq!((&changed["metadata"], &changed["data"]), (&"fsync".into(), &serde_json::Value::Null));
    let added = told(&["add-server", "--config", &cluster, "--listen", &second, "--folder", "s1"]);
    assert_eq!((&added["server"], &added["listen"]), (&1.into(), &serde_json::json!([second])));
    if Path::new("/dev/fuse").exists() {
        let at = home.text("mnt");
        std::fs::create_dir(&at).unwrap();
        let mount = ["mount", &root, &at, "--key", &key, "--json"];
        let mounted = Serving::start(&mount);
        let ready: serde_json::Value = serde_json::from_str(&mounted.line).unwrap();
        assert_eq!((&ready["mountpoint"], &ready["address"]), (&at.as_str().into(), &root.as_str().into()));
        mounted.stop_silently();
        let ready: serde_json::Value =
            serde_json::from_str(&said(&[&mount[..], &["--background"]].concat())).unwrap();
        assert!(
            ready["ready"] == true && ready["process"].is_u64() && ready["messages"].is_string(),
            "{ready}"
        );
        said(&["umount", &at]);
    } else {
        skipped("no /dev/fuse: nothing is mounted");
    }
    serving.stop_silently();

    let man = told(&["man", &home.text("man")]);
    assert_eq!(man["pages"].as_u64(), Some(std::fs::read_dir(home.path("man")).unwrap().count() as u64));
    let switches = told(&["sim", "switches"]);
    let lines = said(&["sim", "switches"]).lines().count();
    let count = |name: &str| switches[name].as_array().unwrap().len();
    assert!(count("covering") > 0 && count("singles") + count("covering") == lines, "{switches}");
    let setup = ["sim", "replay", "--seed", "7", "--operations", "5", "--servers", "2", "--clients", "2"];
    let replayed = told(&[&setup[..], &["--twice", "--last", "3"]].concat());
    assert_eq!((&replayed["same_twice"], &replayed["seed"]), (&true.into(), &7.into()));
    assert_eq!(replayed["timeline"].as_array().unwrap().len(), 3);
    assert!(replayed["timeline"][0]["ns"].is_u64() && replayed["timeline"][0]["text"].is_string());
}

#[test]
fn what_is_copied_in_comes_out_the_same_and_every_question_is_answered() {
    let home = Home::new();
    let (data, tree, back) = (home.text("data"), home.tree(), home.path("back"));
    let up = Serving::start(&["up", &data, "--servers", "3", "--strip", "64k"]);
    let (root, key) = (up.address(), home.text("data/key"));
    let at = |path: &str| format!("{root}{path}");
    // A server's thread has no time to clear a huge page for each small buffer.
    let process = std::fs::read_to_string(format!("/proc/{}/status", up.child.id())).unwrap();
    assert!(process.contains("THP_enabled:\t0"), "{process}");

    said(&["cp", "-r", "-p", tree.to_str().unwrap(), &at("/tree"), "--key", &key, "--quiet"]);
    said(&["cp", "-r", "-p", &at("/tree"), &at("/again"), "--key", &key, "--quiet"]);
    said(&["cp", "-r", "-p", &at("/again"), back.to_str().unwrap(), "--key", &key, "--quiet"]);
    assert_eq!(listing(&tree), listing(&back));
    let modified = |path: &Path| path.join("a/b/big").metadata().unwrap().modified().unwrap();
    assert_eq!(modified(&tree), modified(&back));

    assert_eq!(said(&["ls", &at("/tree"), "--key", &key]), "a\nsmall\n");
    let listed = said(&["ls", "--plus", "--with-data", "--json", &at("/tree"), "--key", &key]);
    let small: serde_json::Value = serde_json::from_str(listed.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&small["name"], &small["data"]), (&"small".into(), &"hello\n".into()));
    assert_eq!(said(&["ls", "--with-data", &at("/tree/small"), "--key", &key]).trim_end(), "small\thello");
    assert_eq!(said(&["cat", &at("/tree/a/link"), "--key", &key]), "hello\n");
    let stat: serde_json::Value =
        serde_json::from_str(&said(&["stat", &at("/tree/a/b/big"), "--json", "--key", &key])).unwrap();
    assert_eq!(stat["size"], 3_000_000);
    let map: serde_json::Value =
        serde_json::from_str(&said(&["map", &at("/tree/a/b/big"), "--json", "--key", &key])).unwrap();
    let parts = map["parts"].as_array().unwrap();
    assert_eq!(parts.iter().map(|p| p["bytes"].as_u64().unwrap()).sum::<u64>(), 3_000_000);
    assert_eq!(parts.len(), 3, "one on each server");

    let ping: serde_json::Value = serde_json::from_str(&said(&["ping", &data, "--json"])).unwrap();
    assert_eq!(ping["well"], true, "{ping}");
    let status: serde_json::Value = serde_json::from_str(&said(&["status", &data, "--json"])).unwrap();
    assert_eq!(status["servers"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&status["schema"], &status["space"]["disks"]),
        (&1.into(), &1.into()),
        "three servers share a disk"
    );
    let of_disk = status["servers"][0]["space"]["total_bytes"].as_u64();
    assert_eq!(status["space"]["total_bytes"].as_u64(), of_disk);
    assert!(said(&["status", &data, "--counters"]).contains("operations.create"));
    let mapped = said(&["map", &at("/tree/a/b/big"), "--key", &key]);
    // The first line of a map is the name that was requested.
    let lines =
        said(&["status", &data]).lines().chain(mapped.lines().skip(1)).map(str::to_owned).collect::<Vec<_>>();
    let widest = lines.iter().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{lines:#?}");
    said(&["sync", &data]);
    let fsck: serde_json::Value = serde_json::from_str(&said(&["fsck", &data, "--json"])).unwrap();
    assert_eq!(fsck["clean"], true, "{fsck}");
    assert_eq!(fsck["entries"], 14);
    up.stop();
}

#[test]
fn what_is_copied_with_its_attributes_keeps_those_that_extend_them() {
    use rustix::fs::{XattrFlags, setxattr};
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let (tree, back) = (home.tree(), home.path("back"));
    let places = ["small", "a", "a/b/big"];
    for (place, value) in places.iter().zip([&b"warm"[..], b"", &[7; 5000]]) {
        if setxattr(tree.join(place), "user.colour", value, XattrFlags::empty()).is_err() {
            skipped("the temporary folder takes no extended attributes");
            return;
        }
    }
    setxattr(tree.join("small"), "user.other", b"too", XattrFlags::empty()).unwrap();
    // No user may write it: that does not stop its maker.
    std::fs::set_permissions(tree.join("small"), std::fs::Permissions::from_mode(0o444)).unwrap();
    let (data, key) = (home.text("data"), home.text("data/key"));
    let up = Serving::start(&["up", &data, "--servers", "2", "--strip", "64k"]);
    let at = |path: &str| format!("{}{path}", up.address());
    said(&["cp", "-r", "-p", tree.to_str().unwrap(), &at("/tree"), "--key", &key, "--quiet"]);
    said(&["cp", "-r", "-p", &at("/tree"), &at("/again"), "--key", &key, "--quiet"]);
    said(&["cp", "-r", "-p", &at("/again"), back.to_str().unwrap(), "--key", &key, "--quiet"]);
    assert_eq!(listing(&tree), listing(&back));
    let mut value = vec![0; 64 << 10];
    for (place, name) in
        places.map(|place| (place, "user.colour")).into_iter().chain([("small", "user.other")])
    {
        let mut of = |tree: &Path| {
            let len = rustix::fs::getxattr(tree.join(place), name, &mut value[..]).unwrap();
            value[..len].to_vec()
        };
        assert_eq!(of(&tree), of(&back), "{place}");
    }
    let modes = [&tree, &back].map(|tree| tree.join("small").metadata().unwrap().permissions().mode());
    assert_eq!(modes[0], modes[1]);
    // Without -p a copy has none.
    said(&["cp", &at("/tree/small"), &at("/plain"), "--key", &key, "--quiet"]);
    assert!(!said(&["stat", &at("/plain"), "--key", &key]).contains("user.colour"));
    assert!(said(&["stat", &at("/tree/small"), "--key", &key]).contains("user.colour"));
    up.stop();
}

#[test]
fn a_copy_goes_between_any_two_file_systems() {
    let home = Home::new();
    let (data, key, tree, back) = (home.text("data"), home.text("data/key"), home.tree(), home.path("back"));
    let (logs, packed) = (home.text("logs"), home.text("packed"));
    [&logs, &packed].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let up = Serving::start(&["up", &data, "--servers", "2", "--strip", "64k"]);
    let overs = [format!("--over={logs}=container"), format!("--over={packed}=composed")];
    let words = ["cp", "-r", "-p", "--quiet", "--key", &key, &overs[0], &overs[1]];
    let (in_logs, in_packed) =
        (|name: &str| format!("{logs}/{name}"), |name: &str| format!("{packed}/{name}"));
    let shoal = format!("{}/tree", up.address());
    let places =
        [&tree.display().to_string(), &in_logs("one"), &in_packed("two"), &shoal, &in_packed("four")];
    let ends = [&in_logs("five"), &back.display().to_string()];
    let way: Vec<&String> = places.into_iter().chain(ends).collect();
    for pair in way.windows(2) {
        said(&[&words[..], &[pair[0], pair[1]]].concat());
    }
    assert_eq!(listing(&tree), listing(&back));
    let modified = |path: &Path| path.join("a/b/big").metadata().unwrap().modified().unwrap();
    assert_eq!(modified(&tree), modified(&back));
    assert!(Path::new(&in_logs("one/small")).is_dir(), "a container is a directory of the host");
    assert!(!Path::new(&in_packed("two")).exists(), "a composed directory has its names in its blocks");

    let small = in_packed("two/small");
    let refuse = |from: &str, to: &str| refused(&[&words[..], &[from, to]].concat(), 1);
    assert!(refuse(&small, &small).contains("it is the same file"));
    assert!(refuse(&in_packed("two"), &in_packed("two/below")).contains("is inside it"));
    assert!(refuse(&in_logs("../tree"), &shoal).contains("leads through `..`"));
    assert!(refuse(&in_packed("absent"), &shoal).contains("no such file or directory"));
    let other = format!("--over={logs}={}", up.address());
    let words = refused(&["cp", "--key", &key, &other, &in_logs("one"), &packed], 1);
    assert!(words.contains("needs no --over"), "{words}");
    up.stop();
}

#[test]
fn a_copy_reads_made_up_files_whole_and_follows_no_link_that_says_less_than_it_does() {
    let home = Home::new();
    let (data, key, logs, alias) =
        (home.text("data"), home.text("data/key"), home.text("logs"), home.text("alias"));
    std::fs::create_dir(&logs).unwrap();
    std::os::unix::fs::symlink(&logs, &alias).unwrap();
    let up = Serving::start(&["up", &data, "--servers", "1"]);
    let (at, over) = (|path: &str| format!("{}{path}", up.address()), format!("--over={logs}=container"));
    let words = ["cp", "-p", "--quiet", "--key", &key, &over];
    // They say that they are empty. The second copy finds a file, the last source is no small one.
    for made_up in ["/proc/version", "/proc/version", "/proc/kallsyms"] {
        let size = std::fs::read(made_up).unwrap_or_default().len();
        if size == 0 {
            skipped(&format!("{made_up} is not to be read"));
            continue;
        }
        for target in [at("/made-up"), format!("{logs}/made-up")] {
            said(&[&words[..], &[made_up, &target]].concat());
            let back = home.text("back");
            said(&[&words[..], &[&target, &back]].concat());
            assert_eq!(std::fs::read(back).unwrap().len(), size, "{made_up} by way of {target}");
        }
    }
    let refuse = |from: &str, to: &str| refused(&[&words[..], &[from, to]].concat(), 1);
    let (gone, nowhere) = (home.path("gone"), home.path("nowhere"));
    let held = std::fs::File::create(&gone).unwrap();
    std::fs::remove_file(&gone).unwrap();
    let link = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&held));
    assert!(refuse(&link, &at("/gone")).contains("the kernel's own"));
    assert!(refuse(&at("/made-up"), &format!("{alias}/made-up")).contains("write it as a path below that"));
    assert!(refuse(&at("/made-up"), "/dev/null").contains("it is a character device"));
    std::os::unix::fs::symlink(&gone, &nowhere).unwrap();
    assert!(refuse(&at("/made-up"), nowhere.to_str().unwrap()).contains("a symbolic link to nothing"));
    assert!(!gone.exists());
    let words = refused(&["cp", "-r", "--key", &key, &over, &home.text(""), &format!("{logs}/all")], 1);
    assert!(words.contains("is inside it"), "{words}");
    up.stop();
}

#[test]
fn a_symbolic_link_that_is_named_is_followed_or_with_its_option_copied_under_its_own_name() {
    let home = Home::new();
    let (data, key, out) = (home.text("data"), home.text("data/key"), home.path("out"));
    home.tree();
    std::fs::create_dir(&out).unwrap();
    let up = Serving::start(&["up", &data, "--servers", "2"]);
    let root = up.address();
    let (link, out_text) = (home.text("tree/a/link"), home.text("out"));
    let cp = |words: &[&str]| said(&[&["cp", "--quiet", "--key", &key], words].concat());
    cp(&[&link, &root]);
    assert_eq!(said(&["cat", &format!("{root}/link"), "--key", &key]), "hello\n", "what it leads to");
    cp(&["-P", &link, &format!("{root}/kept")]);
    let stat = |path: &str| -> serde_json::Value {
        let told = said(&["stat", &format!("{root}{path}"), "--json", "--key", &key]);
        serde_json::from_str(&told).unwrap()
    };
    assert_eq!((&stat("/link")["kind"], &stat("/kept")["kind"]), (&"file".into(), &"symbolic link".into()));
    cp(&["-P", &format!("{root}/kept"), &out_text]);
    assert_eq!(out.join("kept").read_link().unwrap(), Path::new("../small"));
    // A link that leads nowhere is one all the same.
    let words = refused(&["cp", "--quiet", "--key", &key, &format!("{root}/kept"), &out_text], 1);
    assert!(words.contains("no such file or directory"), "{words}");
    up.stop();
}

#[test]
fn a_copy_of_a_tree_can_be_repeated_and_leaves_its_target_by_no_symbolic_link() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let home = Home::new();
    let (data, key) = (home.text("data"), home.text("data/key"));
    let (from, outside) = (home.path("from"), home.path("outside"));
    std::fs::create_dir_all(from.join("real")).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(from.join("real/f"), "new").unwrap();
    std::fs::write(from.join("g"), "new").unwrap();
    symlink("real", from.join("to-a-directory")).unwrap();
    symlink("x".repeat(4000), from.join("long")).unwrap();
    std::fs::write(outside.join("g"), "old").unwrap();
    std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o711)).unwrap();
    let up = Serving::start(&["up", &data, "--servers", "1"]);
    let at = format!("{}/copy", up.address());
    let words = ["cp", "-r", "-p", "--quiet", "--key", &key];
    let text = from.to_str().unwrap();
    said(&[&words[..], &[text, &at]].concat());
    // Back, twice, into a tree whose links lead out of it.
    let back = home.path("back");
    std::fs::create_dir_all(back.join("copy")).unwrap();
    symlink(outside.join("g"), back.join("copy/g")).unwrap();
    for _ in 0..2 {
        said(&[&words[..], &[&at, back.to_str().unwrap()]].concat());
        assert_eq!(std::fs::read(back.join("copy/g")).unwrap(), b"new");
        assert_eq!(std::fs::read(outside.join("g")).unwrap(), b"old");
        assert_eq!(back.join("copy/long").read_link().unwrap().as_os_str().len(), 4000);
        assert_eq!(back.join("copy/to-a-directory").read_link().unwrap(), Path::new("real"));
    }
    std::fs::remove_dir_all(back.join("copy/real")).unwrap();
    symlink(&outside, back.join("copy/real")).unwrap();
    let words = refused(&[&words[..], &[&at, back.to_str().unwrap()]].concat(), 1);
    assert!(words.contains("copy/real, which is a symbolic link, by a directory"), "{words}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(outside.metadata().unwrap().permissions().mode() & 0o777, 0o711);
    up.stop();
}

#[test]
fn a_killed_file_system_goes_on_with_its_data_and_grows() {
    let home = Home::new();
    let (data, key) = (home.text("data"), home.text("data/key"));
    let up = Serving::start(&["up", &data, "--servers", "2", "--json"]);
    let ready: serde_json::Value = serde_json::from_str(&up.line).unwrap();
    let root = ready["address"].as_str().unwrap().to_owned();
    let small = home.tree().join("small");
    said(&["cp", small.to_str().unwrap(), &format!("{root}/kept"), "--key", &key]);
    let busy = refused(&["up", &data], 1);
    assert!(busy.contains("is up already") && busy.contains("another folder"), "{busy}");
    up.crash();

    let fewer = refused(&["up", &data, "--servers", "1"], 1);
    assert!(fewer.contains("has 2 servers") && fewer.contains("--servers 2"), "{fewer}");
    let other = refused(&["up", &data, "--strip", "64k"], 1);
    assert!(other.contains("--strip") && other.contains("shoal layout set"), "{other}");
    let up = Serving::start(&["up", &data, "--servers", "3"]);
    assert_eq!(up.address(), root, "its address stays");
    assert_eq!(said(&["cat", &format!("{root}/kept"), "--key", &key]), "hello\n");
    let ping: serde_json::Value = serde_json::from_str(&said(&["ping", &data, "--json"])).unwrap();
    assert_eq!((ping["well"].as_bool(), ping["epoch"].as_u64()), (Some(true), Some(3)), "{ping}");
    said(&["fsck", &data, "--quiet"]);
    up.stop();

    let moved = home.text("moved");
    std::fs::rename(&data, &moved).unwrap();
    let up = Serving::start(&["up", &moved]);
    assert_eq!(said(&["cat", &format!("{root}/kept"), "--key", &home.text("moved/key")]), "hello\n");
    said(&["ping", &moved]);
    up.stop();
}

#[test]
fn a_check_without_all_servers_is_no_verdict() {
    let home = Home::new();
    let cluster = home.text("cluster");
    let free = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [a, b] = free.each_ref().map(|l| format!("tcp:{}", l.local_addr().unwrap()));
    drop(free);
    said(&["init", &cluster, "--server", &format!("{a}=s0"), "--server", &format!("{b}=s1")]);
    let one = Serving::start(&["serve", "--config", &cluster, "--server", "0"]);
    let checked = cluster.clone();
    let fsck = std::thread::spawn(move || refused(&["fsck", &checked, "--quiet"], 2));
    let ping = run(&["ping", &cluster, "--json"]);
    assert_eq!(ping.status.code(), Some(1));
    let ping: serde_json::Value = serde_json::from_slice(&ping.stdout).unwrap();
    let complaints = ping["complaints"].as_array().unwrap();
    assert!(complaints[0].as_str().unwrap().contains("server 1 does not answer"), "{ping}");
    assert!(fsck.join().unwrap().contains("server 1"));
    one.stop();
}

#[test]
fn a_folder_of_something_else_is_refused() {
    let home = Home::new();
    std::fs::write(home.path("letter"), b"dear").unwrap();
    let words = refused(&["up", home.0.path().to_str().unwrap()], 1);
    assert!(words.contains("`letter`") && words.contains("empty or new folder"), "{words}");
    assert!(!home.path("key").exists());
}

#[test]
fn a_folder_without_a_cluster_file_is_neither_begun_anew_nor_given_up() {
    let home = Home::new();
    for wish in ["--new-store", "--accept-older"] {
        let words = refused(&["up", &home.text("data"), wish, "1"], 1);
        assert!(words.contains("holds no file system") && words.contains("disk mounted"), "{words}");
        assert!(!home.path("data").exists());
    }
    let up = Serving::start(&["up", &home.text("data"), "--servers", "2"]);
    assert!(up.line.contains("a new file system in"), "{}", up.line);
    up.stop();
    let up = Serving::start(&["up", &home.text("data")]);
    assert!(!up.line.contains("new"), "{}", up.line);
    let root = up.address();
    let words = refused(&["cat", &root, "--key", &home.text("data/key")], 1);
    assert!(words.contains("it is a directory"), "{words}");
    up.stop();
    // The key may be the only copy of one: it is not to be removed.
    std::fs::remove_file(home.path("data/cluster.toml")).unwrap();
    let words = refused(&["up", &home.text("data")], 1);
    assert!(words.contains("cluster.toml is missing") && words.contains("restore"), "{words}");
    assert!(home.path("data/key").exists());
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let cluster = home.text("cluster");
    said(&["init", &cluster, "--server", "tcp:127.0.0.1:7441=s0"]);
    let key = home.path("cluster/key");
    assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let words = refused(&["serve", "--config", &cluster], 1);
    assert!(words.contains("chmod 600"), "{words}");
}

#[test]
fn a_taken_port_is_named_with_the_remedy() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let cluster = home.text("cluster");
    said(&["init", &cluster, "--server", &format!("tcp:127.0.0.1:{port}=s0")]);
    let words = refused(&["serve", "--config", &cluster], 1);
    assert!(words.contains(&format!("port {port} is in use")) && words.contains("ss -ltnp"), "{words}");
}

#[test]
fn servers_of_two_file_systems_in_two_processes_take_a_third_server() {
    let home = Home::new();
    let cluster = home.text("cluster");
    // Ports that were free a moment ago.
    let free: Vec<std::net::TcpListener> =
        (0..3).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<u16> = free.iter().map(|l| l.local_addr().unwrap().port()).collect();
    drop(free);
    let server = |id: usize| format!("tcp:127.0.0.1:{}=s{id}", ports[id]);
    said(&["init", &cluster, "--server", &server(0), "--server", &server(1), "--name", "one"]);
    said(&["init", &cluster, "--collection", "--name", "two", "--module", "memory"]);
    let again = refused(&["init", &cluster, "--server", &server(0)], 1);
    assert!(again.contains("is there already"), "{again}");

    let first = Serving::start(&["serve", "--config", &cluster, "--server", "0"]);
    let second = Serving::start(&["serve", "--config", &cluster, "--server", "1"]);
    let listen = format!("tcp:127.0.0.1:{}", ports[2]);
    said(&["add-server", "--config", &cluster, "--listen", &listen, "--folder", "s2"]);
    let third = Serving::start(&["serve", "--config", &cluster, "--server", "2"]);
    let key = home.text("cluster/key");
    let tree = home.tree();
    for name in ["one", "two"] {
        let root = format!("shoal://127.0.0.1:{}/{name}", ports[0]);
        said(&["cp", "-r", tree.to_str().unwrap(), &format!("{root}/tree"), "--key", &key, "--quiet"]);
        assert_eq!(said(&["cat", &format!("{root}/tree/small"), "--key", &key]), "hello\n");
        let ping: serde_json::Value =
            serde_json::from_str(&said(&["ping", &root, "--json", "--key", &key])).unwrap();
        assert_eq!(ping["well"], true, "{ping}");
        assert_eq!(ping["servers"].as_array().unwrap().len(), 3);
        said(&["fsck", &root, "--quiet", "--key", &key]);
    }
    for serving in [third, second, first] {
        serving.stop();
    }
}

#[test]
fn man_pages_and_completions_are_of_all_commands() {
    let home = Home::new();
    said(&["man", &home.text("man")]);
    assert!(home.path("man/shoal-layout-set.1").is_file() && home.path("man/shoal-up.1").is_file());
    assert!(said(&["completions", "bash"]).contains("add-server"));
}

#[test]
fn the_command_line_reads_what_its_user_could_not_through_a_mount() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        skipped("only root can make a file that is another's, and ask as somebody else");
        return;
    }
    let home = Home::new();
    let serving = Serving::start(&["up", &home.text("data")]);
    let (local, remote) = (home.path("locked"), format!("{}/locked", serving.address()));
    let allow = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::write(&local, b"root's alone").unwrap();
    allow(&local, 0o600);
    let key = home.text("key");
    std::fs::copy(home.path("data/key"), &key).unwrap();
    said(&["cp", "-p", "--quiet", "--key", &key, local.to_str().unwrap(), &remote]);

    let program = home.path("shoal");
    // By a process of its own: a descriptor that writes, inherited by another test's child for a moment,
    // would make the program busy.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_shoal")).arg(&program).status();
    assert!(copied.unwrap().success());
    allow(home.0.path(), 0o755);
    let read = |key: &str| {
        let mut command = Command::new(&program);
        command.args(["cat", "--key", key, &remote]).env_remove("SHOAL_KEY").current_dir("/");
        command.uid(65534).gid(65534).output().unwrap()
    };
    allow(Path::new(&key), 0o600);
    assert!(!read(&key).status.success(), "without the key");
    std::os::unix::fs::chown(&key, Some(65534), Some(65534)).unwrap();
    assert_eq!(String::from_utf8_lossy(&read(&key).stdout), "root's alone");
    serving.stop();
}

#[test]
fn a_forked_file_is_made_shown_and_copied_by_the_commands() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let (data, key) = (home.text("data"), home.text("data/key"));
    let up = Serving::start(&["up", &data, "--servers", "3"]);
    let root = up.address();
    let at = |path: &str| format!("{root}{path}");
    let with_key = |args: &[&str]| said(&[args, &["--key", &key]].concat());
    let as_json = |args: &[&str]| told(&[args, &["--key", &key]].concat());
    let must_refuse = |args: &[&str]| refused(&[args, &["--key", &key]].concat(), 1);
    let (empty, full) = (home.path("empty"), home.path("full"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::set_permissions(&empty, std::fs::Permissions::from_mode(0o711)).unwrap();
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("x"), b"kept").unwrap();
    for dir in [&empty, &full] {
        with_key(&["cp", "-r", "-p", "--quiet", dir.to_str().unwrap(), &at("/")]);
    }

    // In place of an empty directory: its owner and mode stay.
    let before = as_json(&["stat", &at("/empty")]);
    let made = as_json(&["layout", "set", &at("/empty"), "forked", "--subfiles", "4", "--on", "1,2"]);
    assert_eq!((&made["distribution"], &made["subfiles"]), (&"forked".into(), &4.into()), "{made}");
    let stat = as_json(&["stat", &at("/empty")]);
    for kept in ["mode", "uid", "gid"] {
        assert_eq!(stat[kept], before[kept], "{stat}");
    }
    assert_eq!((&stat["mode"], &stat["links"]), (&"0711".into(), &6.into()));
    assert_eq!(stat["template"]["subfiles"], 4);
    let new = with_key(&["layout", "set", &at("/new"), "forked", "--subfiles", "3"]);
    assert!(new.ends_with("/new: forked, 3 subfiles\n"), "{new}");
    assert_eq!(as_json(&["stat", &at("/new")])["mode"], "0755");

    let set =
        |path: &str, more: &[&str]| must_refuse(&[&["layout", "set", &at(path), "forked"], more].concat());
    assert!(set("/full", &["--subfiles", "2"]).contains("the directory has entries"));
    assert_eq!(with_key(&["cat", &at("/full/x")]), "kept");
    assert!(set("/full/x", &["--subfiles", "2"]).contains("it is a file"));
    assert!(set("/empty", &["--subfiles", "2"]).contains("a forked file already"));
    assert!(set("/empty/0", &["--subfiles", "2"]).contains("a forked file already"));
    assert!(set("/other", &[]).contains("needs --subfiles"));
    assert!(set("/other", &["--subfiles", "2", "--strip", "64k"]).contains("no strips"));
    assert!(set("/other", &["--subfiles", "513"]).contains("1 to 512 subfiles"));
    assert!(set("/other", &["--subfiles", "2", "--on", "7"]).contains("no server 7"));
    let of_fixed = must_refuse(&["layout", "set", &at("/empty"), "--width", "1"]);
    assert!(of_fixed.contains("the layout of a forked file is fixed"), "{of_fixed}");

    // Forks, by a copy of ordinary directories into the subfiles.
    for subfile in 0..4_usize {
        for (fork, bytes) in [("keys", 10), ("values", 100_000 * subfile)] {
            let from = home.path("from");
            std::fs::write(&from, vec![b'0' + subfile as u8; bytes]).unwrap();
            let to = at(&format!("/empty/{subfile}/{fork}"));
            with_key(&["cp", "--quiet", from.to_str().unwrap(), &to]);
        }
    }
    let get = |path: &str| with_key(&["layout", "get", &at(path)]);
    assert!(get("/empty").ends_with("/empty: forked, 4 subfiles\n"));
    assert!(get("/empty/1").ends_with("/1: forks, each whole beside its entry\n"));
    assert!(get("/empty/1/values").ends_with("/values: a fork, whole on server 2\n"));
    let stat = |path: &str| with_key(&["stat", &at(path)]);
    assert!(stat("/empty").contains("layout     forked, 4 subfiles"), "{}", stat("/empty"));
    assert!(stat("/empty/2").contains("layout     forks, each whole beside its entry"));
    assert!(stat("/empty/2/values").contains("layout     a fork, whole on server 1"));

    let picture = home.text("picture.svg");
    let map = with_key(&["map", &at("/empty"), "--svg", &picture]);
    let lines: Vec<&str> = map.lines().skip(1).collect();
    assert!(lines[0].ends_with("forked, 4 subfiles, 8 forks"), "{map}");
    assert_eq!(lines.len(), 1 + 4 + 8, "{map}");
    for subfile in 0..4 {
        let line = lines[1 + 3 * subfile];
        let start = format!(" subfile {subfile:<4} server {:<4}", [1, 2][subfile % 2]);
        assert!(line.starts_with(&start), "{map}");
        assert!(lines[2 + 3 * subfile].ends_with("  keys") && lines[3 + 3 * subfile].ends_with("  values"));
    }
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    // The ground, a row for each subfile, and a box for each fork, with its name.
    assert_eq!((svg.matches("<rect").count(), svg.matches("<title>keys, ").count()), (1 + 4 + 8, 4), "{svg}");
    assert!(svg.contains(">3: server 2</text>"), "{svg}");
    let map = as_json(&["map", &at("/empty")]);
    let parts = map["parts"].as_array().unwrap();
    let of = |name: &str| parts.iter().map(|part| part[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("server"), [1, 2, 1, 2]);
    assert_eq!(of("bytes"), [10, 100_010, 200_010, 300_010]);
    let forks = serde_json::json!([{ "name": "keys", "bytes": 10 }, { "name": "values", "bytes": 300_000 }]);
    assert_eq!(parts[3]["forks"], forks);

    // Forked to forked, to directories elsewhere, and back as directories.
    let copy = |from: &str, to: &str| with_key(&["cp", "-r", "--quiet", from, to]);
    copy(&at("/empty"), &at("/copy"));
    let is = as_json(&["layout", "get", &at("/copy")]);
    assert_eq!((&is["distribution"], &is["subfiles"]), (&"forked".into(), &4.into()), "{is}");
    let (first, second, third) = (home.path("first"), home.path("second"), home.path("third"));
    copy(&at("/empty"), first.to_str().unwrap());
    copy(&at("/copy"), second.to_str().unwrap());
    copy(first.to_str().unwrap(), &at("/back"));
    copy(&at("/back"), third.to_str().unwrap());
    let all = listing(&first);
    assert_eq!(all.len(), 12);
    assert_eq!(std::fs::read(first.join("3/values")).unwrap(), vec![b'3'; 300_000]);
    assert!(all == listing(&second) && all == listing(&third));
    assert!(get("/back").contains("new files are"), "{}", get("/back"));
    said(&["fsck", &data, "--quiet"]);
    up.stop();
}
