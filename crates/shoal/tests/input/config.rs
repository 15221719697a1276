//! Wrong and contradictory configuration. The error names the file and the remedy, and the line of text that
//! is no valid TOML or no setting of ours. Nothing is made or changed.

use crate::program::*;

/// The folder of the first server.
const S0: &str = "folder = \"s0\"";

/// The text in a file, and its replacement.
type Replaced<'a> = (&'a str, &'a str);

/// The cluster file of two servers with one part replaced, and the words of the refusal.
#[track_caller]
fn contradicts(home: &Home, replaced: &[Replaced<'_>], words: &[&str]) {
    let path = home.path("cluster/cluster.toml");
    let good = std::fs::read_to_string(&path).unwrap();
    let mut bad = good.clone();
    for (from, to) in replaced {
        assert!(bad.contains(from), "`{from}` is in {bad}");
        bad = bad.replacen(from, to, 1);
    }
    std::fs::write(&path, &bad).unwrap();
    let before = listing(home.0.path());
    let told = refused(&["serve", "--config", &home.text("cluster")], words);
    assert!(told.contains("cluster.toml"), "it names the file: {told}");
    assert_untouched(&before, &listing(home.0.path()));
    std::fs::write(&path, good).unwrap();
}

#[test]
fn unknown_missing_and_wrong_settings_are_named_with_file_and_line() {
    let home = Home::new();
    home.cluster(2);
    for (from, to, words) in [
        ("key = \"key\"", "keys = \"key\"", ["line 2", "unknown field `keys`"]),
        ("key = \"key\"", "", ["line 1", "missing field `key`"]),
        ("key = \"key\"", "key = \"key\"\nmac = \"most\"", ["line 3", "unknown variant `most`"]),
        ("listen = ", "adress = ", ["line 6", "unknown field `adress`"]),
        ("folder = \"s0\"", "", ["line 5", "missing field `folder`"]),
        ("listen = [\"", "listen = \"", ["line 6", "correct that line"]),
        ("\"metadata\"", "\"meta\"", ["line 8", "unknown variant `meta`"]),
        ("strip = ", "stripe = ", ["unknown field `stripe`", "correct that line"]),
        ("width = 0", "width = \"many\"", ["invalid type: string \"many\"", "correct that line"]),
        ("width = 0", "width = 70000", ["70000", "correct that line"]),
        ("number = 1", "number = -1", ["invalid value: integer `-1`", "correct that line"]),
        ("module = \"disk\"", "module = \"tape\"", ["unknown variant `tape`", "`memory`"]),
        ("cache = \"64M\"", "cache = \"64 lots\"", ["`64 lots` is not a size", "correct that line"]),
        ("[[collection]]", "[[collection", ["line 21", "correct that line"]),
    ] {
        contradicts(&home, &[(from, to)], &words);
    }
    let (cluster, path) = (home.text("cluster"), home.path("cluster/cluster.toml"));
    std::fs::write(&path, b"").unwrap();
    refused(&["serve", "--config", &cluster], &["cluster.toml", "missing field `key`"]);
    std::fs::write(&path, [0xff; 64]).unwrap();
    refused(&["serve", "--config", &cluster], &["cluster.toml", "cannot read", "UTF-8"]);
    std::fs::remove_file(&path).unwrap();
    refused(&["serve", "--config", &cluster], &["cluster", "cannot read", "`shoal init --help`"]);
}

#[test]
fn contradictions_are_named_with_the_remedy_and_nothing_is_begun() {
    let home = Home::new();
    let (_, ports) = home.cluster(2);
    let [first, second] = [ports[0].to_string(), ports[1].to_string()];
    let id =
        toml::from_str::<toml::Table>(&std::fs::read_to_string(home.path("cluster/cluster.toml")).unwrap())
            .unwrap()["collection"][0]["id"]
            .as_str()
            .unwrap()
            .to_owned();
    let servers = "[[server]]\nlisten = [\"tcp:127.0.0.1:";
    let again = format!("[[collection]]\nname = \"other\"\nid = \"{id}\"\nnumber = 2\n\n[[collection]]");
    let cases: &[(&[Replaced<'_>], &[&str])] = &[
        (&[(&second, &first)], &["two servers listen at tcp:127.0.0.1:", "its own port"]),
        (&[("\"s1\"", "\"s0\"")], &["two servers have the folder s0", "its own"]),
        (&[("\"s1\"", "\"./s0\"")], &["two servers have the folder s0"]),
        (&[("\"s1\"", "\"s0/below\"")], &["s0/below", "lie within each other"]),
        (&[(&second, "0")], &["server 1", "clients must know the port"]),
        (&[("127.0.0.1", "0.0.0.0")], &["server 0", "leads nowhere", "name the address"]),
        (&[("tcp:127.0.0.1", "10.0.0.300")], &["is not an address", "tcp:IP:PORT", "tcp:HOST:PORT"]),
        (&[("strip = \"1M\"", "strip = \"0\"")], &["`demo`", "a strip of 0 is outside 4K to 1G"]),
        (&[("width = 0", "width = 300")], &["`demo`", "over the limit of 256"]),
        (&[("number = 1", "number = 0")], &["`demo`", "numbers begin at 1"]),
        (&[("name = \"demo\"", "name = \"..\"")], &["`..` cannot name a file system", "letters"]),
        (&[("name = \"demo\"", "name = \"a/b\"")], &["`a/b` cannot name a file system", "letters"]),
        (&[(&id, "00ff")], &["`demo`", "is not 32 hexadecimal digits"]),
        (&[("[[collection]]", &again)], &["share a name, id or number", "give each its own"]),
        (&[("    \"metadata\",\n", "")], &["server 0 holds the root directory", "`metadata`"]),
        (&[("    \"data\",\n", ""), ("    \"data\",\n", "")], &["no server has the role `data`"]),
        (&[("    \"metadata\",\n    \"data\",\n", "")], &["server 0 has no role", "roles = "]),
        (
            &[(S0, "folder = \"s0\"\naudit = \"../audit.log\"")],
            &["server 0", "`../audit.log`", "without `..`"],
        ),
        (&[(S0, "folder = \"s0\"\naudit = \"\"")], &["server 0", "no file for an audit log"]),
        (&[(S0, "folder = \"s0\"\naudit = \"demo/audit\"")], &["server 0", "within a file system's data"]),
        (
            &[
                (S0, "folder = \"s0\"\naudit = \"/nowhere/audit\""),
                ("\"s1\"", "\"s1\"\naudit = \"/nowhere/./audit\""),
            ],
            &["two servers write the audit log /nowhere/audit", "its own"],
        ),
        (
            &[
                (S0, "folder = \"s0\"\naudit = \"/nowhere/audit\""),
                ("\"s1\"", "\"s1\"\naudit = \"/nowhere/audit.1\""),
            ],
            &["two servers write the audit log /nowhere/audit.1", "its own"],
        ),
        (
            &[
                (S0, "folder = \"s0\"\naudit = \"/nowhere/audit.connections\""),
                ("\"s1\"", "\"s1\"\naudit = \"/nowhere/audit\""),
            ],
            &["two servers write the audit log /nowhere/audit.connections", "its own"],
        ),
        (
            &[(S0, "folder = \"s0\"\naudit = \"audit.log\"\naudit_bytes_max = \"1k\"")],
            &["server 0", "`audit_bytes_max` of 1K is less than 64K"],
        ),
        (&[(S0, "folder = \"s0\"\naudit_bytes_max = \"1M\"")], &["server 0", "no audit log", "audit = "]),
    ];
    for (replaced, words) in cases {
        contradicts(&home, replaced, words);
    }
    let path = home.path("cluster/cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (at, end) = (text.find(servers).unwrap(), text.find("[[collection]]").unwrap());
    contradicts(&home, &[(&text[at..end], "")], &["it names no server", "add a [[server]]"]);
    contradicts(&home, &[(&text[end..], "")], &["it names no file system", "shoal init"]);

    let cluster = home.text("cluster");
    refused(&["serve", "--config", &cluster, "--server", "7"], &["no server 7", "0 to 1"]);
    refused(&["serve", "--config", &cluster, "--server", "1", "--server", "1"], &["server 1", "twice"]);
}

#[test]
fn settings_that_cannot_be_leave_no_trace_in_a_new_folder_and_no_harm_in_an_old_one() {
    let home = Home::new();
    let wrong: &[(&[&str], &[&str])] = &[
        (&["--servers", "0"], &["--servers 1 or more"]),
        (&["--servers", "1025"], &["1025 servers are over the limit of 1024"]),
        (&["--servers", "many"], &["invalid value 'many'"]),
        (&["--strip", "0"], &["a strip of 0 is outside 4K to 1G"]),
        (&["--strip", "3T"], &["a strip of 3T is outside"]),
        (&["--width", "257"], &["over the limit of 256"]),
        (&["--name", "../x"], &["`../x` cannot name a file system"]),
        (&["--name", ".."], &["`..` cannot name a file system"]),
        (&["--name", ""], &["cannot name a file system"]),
        (&["--module", "tape"], &["invalid value 'tape'"]),
        (&["--cache", "99999999999T"], &["is not a size"]),
    ];
    for (options, words) in wrong {
        let new = home.text("new");
        let mut args = vec!["up", &new];
        args.extend(*options);
        refused(&args, words);
        let made = home.path("new").exists();
        let left = if made { listing(&home.path("new")) } else { Vec::new() };
        assert!(left.iter().all(|(path, _)| path.to_str() == Some("lock")), "{options:?} left {left:?}");
        if made {
            std::fs::remove_dir_all(home.path("new")).unwrap();
        }
    }
    let name = "n".repeat(256);
    refused(&["up", &home.text("new"), "--name", &name], &["too long for a file system: 255 at most"]);

    // One that is there is as it was, whatever is asked of it.
    let old = home.text("old");
    let up = Serving::start(&["up", &old, "--servers", "1", "--module", "memory"]);
    up.stop();
    let before = std::fs::read(home.path("old/cluster.toml")).unwrap();
    for (options, words) in [
        (["--servers", "1025"], "over the limit of 1024"),
        (["--servers", "0"], "servers are never taken away"),
        (["--module", "disk"], "another --module"),
        (["--strip", "8K"], "another --strip"),
        (["--name", "other"], "there is no file system `other`"),
    ] {
        refused(&["up", &old, options[0], options[1]], &[words]);
        assert_eq!(std::fs::read(home.path("old/cluster.toml")).unwrap(), before, "{options:?}");
    }
    Serving::start(&["up", &old]).stop();
}

#[test]
fn a_bad_key_file_is_named_with_the_remedy() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let (cluster, _) = home.cluster(1);
    let key = home.path("cluster/key");
    let good = std::fs::read_to_string(&key).unwrap();
    let serve = ["serve", "--config", &cluster];
    let secret = good.lines().find(|line| line.starts_with("key = ")).unwrap();
    for (bad, words) in [
        (String::new(), ["is not a key file", "missing field `key`"]),
        (good.replace(secret, "key = \"abc\""), ["is not a key file", "copy the servers' own"]),
        (good.replace(secret, "key = 5"), ["is not a key file", "line 2"]),
        (good.replace("key = ", "secret = "), ["is not a key file", "unknown field `secret`"]),
        (good.replace(secret, "key = \""), ["is not a key file", "line 2"]),
    ] {
        std::fs::write(&key, bad).unwrap();
        let told = refused(&serve, &words);
        assert!(told.contains("cluster/key"), "{told}");
    }
    std::fs::write(&key, &good).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    refused(&serve, &["others may read the key", "chmod 600"]);
    std::fs::remove_file(&key).unwrap();
    refused(&serve, &["cannot read the key", "copy it here (mode 0600)"]);
    std::fs::create_dir(&key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o700)).unwrap();
    refused(&serve, &["cannot read the key", "cluster/key", "directory"]);
    assert!(!home.path("cluster/s0").exists(), "no server has begun");
}

#[test]
fn a_key_is_never_overwritten() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(1);
    let key = std::fs::read(home.path("cluster/key")).unwrap();
    let server = format!("tcp:127.0.0.1:{}=s0", ports[0]);
    refused(&["init", &cluster, "--server", &server], &["is there already", "another folder"]);
    // Nor when the cluster file was lost.
    std::fs::remove_file(home.path("cluster/cluster.toml")).unwrap();
    refused(&["init", &cluster, "--server", &server], &["cluster/key is there already"]);
    refused(&["up", &cluster], &["holds something else (`key`)", "remove that key"]);
    assert_eq!(std::fs::read(home.path("cluster/key")).unwrap(), key);
}
