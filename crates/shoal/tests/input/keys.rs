//! Keys by role, on real servers: separated and replaced, and no name moves.

use crate::program::*;

/// The cluster as it was made before keys had roles: no servers' key file, and no word of one.
fn one_key(home: &Home) {
    let path = home.path("cluster/cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("server_key")).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    for own in ["key.server", "key.admin"] {
        std::fs::remove_file(home.path("cluster").join(own)).unwrap();
    }
}

#[test]
fn keys_are_separated_and_replaced_and_no_name_moves() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    one_key(&home);
    let key = home.text("cluster/key");
    let dir = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    let serve = || Serving::start(&["serve", "--config", &cluster]);
    let files: Vec<String> = (0..20).map(|i| format!("{dir}/file-{i}")).collect();
    let all_are_found = |key: &str| {
        files.iter().for_each(|file| assert_eq!(said(&["cat", file, "--key", key]), "here", "{file}"));
    };

    let serving = serve();
    files.iter().for_each(|file| {
        said(&["cp", "--quiet", &home.file("content", b"here"), file, "--key", &key]);
    });
    assert!(said(&["key", "list", &cluster]).contains("one key has all roles"));
    refused(&["key", "split", &cluster], &["a server listens", "stop all servers"]);
    serving.stop();
    refused(&["key", "rotate", &cluster], &["cannot be replaced", "shoal key split"]);
    said(&["key", "split", &cluster]);
    refused(&["key", "split", &cluster], &["keys of their own already"]);
    assert!(!said(&["key", "list", &cluster]).contains("all roles"));
    let serving = serve();
    all_are_found(&key);
    serving.stop();

    let former = home.text("former");
    std::fs::copy(&key, &former).unwrap();
    said(&["key", "rotate", &cluster]);
    said(&["key", "rotate", &cluster, "--server"]);
    for kept in ["cluster/key.former", "cluster/key.server.former"] {
        assert!(home.path(kept).is_file(), "{kept}");
    }
    let serving = serve();
    all_are_found(&key);
    refused(&["ls", &dir, "--key", &former], &["is this the right key file?"]);
    serving.stop();
}

#[test]
fn a_server_without_the_servers_key_file_does_not_begin_and_says_where_to_copy_it_from() {
    let home = Home::new();
    let (cluster, _) = home.cluster(1);
    std::fs::remove_file(home.path("cluster/key.server")).unwrap();
    refused(&["serve", "--config", &cluster], &["key.server", "copy them here"]);
    assert!(!home.path("cluster/s0/demo").exists(), "nothing was made");
}

#[test]
fn commands_that_manage_need_the_administrators_key_and_find_it_beside_the_key() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(1);
    let server = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    // A user's machine has the key alone.
    std::fs::create_dir(home.path("user")).unwrap();
    let (own, user) = (home.text("cluster/key"), home.text("user/key"));
    std::fs::copy(&own, &user).unwrap();
    let admin = home.path("user/key.admin");
    let managing = [vec!["sync", &server, "--metadata", "fsync"], vec!["fsck", &server, "--quiet"]];
    let with_key = |args: &[&str], key: &str| [args, &["--key", key]].concat().join(" ");
    let serving = Serving::start(&["serve", "--config", &cluster]);
    for command in &managing {
        let all = with_key(command, &user);
        let args: Vec<&str> = all.split(' ').collect();
        refused(&args, &["administrators' key", "key.admin", "mode 0600"]);
    }
    said(&["sync", &server, "--key", &user]);
    said(&["ls", &server, "--key", &user]);
    assert!(said(&["ping", &server, "--json", "--key", &user]).contains("\"owns_root\": true"));
    let try_all = |key: &str| {
        for command in &managing {
            let all = with_key(command, key);
            said(&all.split(' ').collect::<Vec<_>>());
        }
    };
    std::fs::copy(home.path("cluster/key.admin"), &admin).unwrap();
    try_all(&user);
    try_all(&own);
    serving.stop();

    // The former key manages no longer.
    let former = std::fs::read(&admin).unwrap();
    said(&["key", "rotate", &cluster, "--admin"]);
    let serving = Serving::start(&["serve", "--config", &cluster]);
    assert_eq!(std::fs::read(home.path("cluster/key.admin.former")).unwrap(), former);
    refused(&["fsck", &server, "--quiet", "--key", &user], &["key.admin"]);
    try_all(&own);
    serving.stop();

    // A file system whose mount key manages (made before there was an admin key) goes on so until the split.
    let path = home.path("cluster/key.server");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("admin")).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    for file in [&admin, &home.path("cluster/key.admin")] {
        std::fs::remove_file(file).unwrap();
    }
    assert!(said(&["key", "list", &cluster]).contains("the mount key manages too"));
    let serving = Serving::start(&["serve", "--config", &cluster]);
    try_all(&user);
    serving.stop();
    said(&["key", "split", &cluster]);
    let serving = Serving::start(&["serve", "--config", &cluster]);
    refused(&["fsck", &server, "--quiet", "--key", &user], &["key.admin"]);
    try_all(&own);
    serving.stop();
}
