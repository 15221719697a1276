//! Data folders that belong to another user, cannot be written, are of a newer version, are damaged, or are
//! there twice.

use crate::program::*;
use shoal_client::Client;
use shoal_server::format::FORMAT;
use shoal_store::{Changes, CollectionConfig, Identity, ModuleKind, look};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The blocks of 4 KiB at which a journal's groups begin, in order of their sequence, with generation and
/// length.
fn groups(segment: &[u8]) -> Vec<Group> {
    let word = |at: usize| u64::from_le_bytes(segment[at..at + 8].try_into().unwrap());
    let at_block = |at: usize| {
        let len = u32::from_le_bytes(segment[at + 12..at + 16].try_into().unwrap()) as usize;
        Group {
            at,
            generation: word(at + 24),
            first: word(at + 40),
            last: word(at + 48),
            durable: word(at + 56),
            len,
        }
    };
    let starts = (0..segment.len()).step_by(4096).filter(|&at| segment[at..].starts_with(b"shoaljrn"));
    starts.map(at_block).collect()
}

#[derive(Clone, Copy, Debug)]
struct Group {
    at: usize,
    generation: u64,
    first: u64,
    last: u64,
    durable: u64,
    len: usize,
}

const HEADER: usize = 80;

/// The segment of a server's journal that was written last, with its groups of the newest generation.
fn newest(home: &Home) -> (PathBuf, Vec<u8>, Vec<Group>) {
    let folder = home.path("data/server-0/demo/journal");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| {
        let content = std::fs::read(&path).unwrap();
        let mut all = groups(&content);
        let generation = all.iter().map(|group| group.generation).max().unwrap_or(0);
        all.retain(|group| group.generation == generation);
        (path, content, all)
    };
    paths.map(of).max_by_key(|(.., all)| all.first().map_or(0, |group| group.generation)).unwrap()
}

/// A file system of one server with files `a` to `f`, each durable by itself, killed.
fn killed(home: &Home) -> (String, Vec<String>) {
    let data = home.text("data");
    let up = Serving::start(&["up", &data, "--servers", "1"]);
    let (root, key) = (up.root(), home.text("data/key"));
    let names: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).to_vec();
    for name in &names {
        let file = home.file(name, format!("content of {name}").as_bytes());
        said(&["cp", &file, &format!("{root}/{name}"), "--key", &key, "--quiet"]);
    }
    up.crash();
    (root, names)
}

/// All files are there with their content, and the file system is whole.
#[track_caller]
fn is_whole(home: &Home, root: &str, names: &[String]) {
    let key = home.text("data/key");
    assert_eq!(said(&["ls", root, "--key", &key]).lines().collect::<Vec<_>>(), names);
    for name in names {
        assert_eq!(said(&["cat", &format!("{root}/{name}"), "--key", &key]), format!("content of {name}"));
    }
    said(&["fsck", &home.text("data"), "--quiet"]);
}

fn with_checksum(bytes: &mut [u8]) {
    let (content, checksum) = bytes.split_at_mut(bytes.len() - 4);
    checksum.copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
}

#[test]
fn a_foreign_folder_is_refused_and_not_touched() {
    let home = Home::new();
    let (cluster, _) = home.cluster(1);
    let folder = home.path("cluster/s0/demo");
    std::fs::create_dir_all(folder.join("photos")).unwrap();
    std::fs::write(folder.join("photos/letter"), b"dear").unwrap();
    let before = listing(home.0.path());
    refused(&["serve", "--config", &cluster], &["s0/demo", "holds `photos`", "name an empty folder"]);
    assert_untouched(&before, &listing(home.0.path()));
    let other = home.text("cluster/s0/demo/photos");
    refused(&["up", &other], &["`letter`", "give an empty or new folder"]);
    assert_untouched(&before, &listing(home.0.path()));
}

#[test]
fn a_folder_that_cannot_be_written_is_named_with_the_remedy() {
    let home = Home::new();
    let (cluster, _) = home.cluster(1);
    let serve = ["serve", "--config", &cluster];
    let file = home.file("cluster/s0", b"a file");
    refused(&serve, &["s0", "name another folder"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"a file");
    refused(&["up", &file], &["cannot make the folder", "s0"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"a file");
    std::fs::remove_file(&file).unwrap();

    if !is_root() {
        return;
    }
    let Some(disk) = Mounted::new(&["-t", "tmpfs", "-o", "ro", "none"], &home.path("cluster/s0")) else {
        return;
    };
    refused(&serve, &["s0", "Read-only file system", "let this user write there"]);
    refused(
        &["up", disk.0.join("data").to_str().unwrap()],
        &["cannot make the folder", "Read-only file system"],
    );
}

#[test]
fn data_of_a_newer_version_is_refused_and_kept() {
    let home = Home::new();
    let (root, names) = killed(&home);
    let data = home.text("data");

    let path = home.path("data/server-0/demo/collection");
    let good = std::fs::read(&path).unwrap();
    let mut newer = good.clone();
    newer[8] = 9;
    with_checksum(&mut newer);
    std::fs::write(&path, newer).unwrap();
    let before = listing(&home.path("data/server-0"));
    let words = ["demo/collection", "version 9", "versions up to 3", "use the program that wrote it"];
    refused(&["up", &data], &words);
    assert_untouched(&before, &listing(&home.path("data/server-0")));
    std::fs::write(&path, good).unwrap();

    let (segment, good, groups) = newest(&home);
    let mut newer = good.clone();
    let at = groups[2].at;
    newer[at + 8] = 9;
    with_checksum(&mut newer[at..at + HEADER]);
    std::fs::write(&segment, newer).unwrap();
    // A preparation that a kill cut short goes with a start that succeeds, not before.
    let unfinished = home.path("data/server-0/demo/journal/000000ff.seg");
    std::fs::write(&unfinished, [0; 4096]).unwrap();
    let before = listing(&home.path("data/server-0/demo/journal"));
    refused(&["up", &data], &[".seg", "version 9", "versions up to 1", "use the program that wrote it"]);
    assert_untouched(&before, &listing(&home.path("data/server-0/demo/journal")));
    std::fs::write(&segment, good).unwrap();

    let up = Serving::start(&["up", &data]);
    assert!(!unfinished.exists());
    is_whole(&home, &root, &names);
    up.stop();
}

/// The format in a server's rows; then this one.
fn format_row(folder: &Path, say: Option<bytes::Bytes>) -> Option<bytes::Bytes> {
    let whose = std::fs::read(folder.join("collection")).unwrap();
    let word = |at: usize| u32::from_le_bytes(whose[at..at + 4].try_into().unwrap());
    let (fs, collection) = (whose[16..32].try_into().unwrap(), word(32));
    let config = CollectionConfig::new(folder, ModuleKind::Disk, Identity { fs, collection, server: 0 });
    let (send, receive) = std::sync::mpsc::channel();
    shoal_env::real::run("rows", |env| async move {
        let store = shoal_store::open(env, config).await.unwrap();
        let key = shoal_server::keys::config("format");
        send.send(look(&store, |view| view.get(&key)).await.unwrap().0).unwrap();
        store.apply(Changes { rows: vec![(key, say)], ..Changes::default() }).unwrap();
        store.close().await.unwrap();
    });
    receive.recv().unwrap()
}

#[test]
fn a_folder_whose_rows_are_of_another_build_is_refused_and_kept() {
    let home = Home::new();
    let (root, names) = killed(&home);
    let (data, folder) = (home.text("data"), home.path("data/server-0/demo"));
    let at = folder.to_str().unwrap();
    let good = format_row(&folder, None);
    assert_eq!(good.as_deref(), Some(&FORMAT.to_le_bytes()[..]));
    let reads = format!("reads format {FORMAT}");
    let remedy = ["with the program that made it", "begin anew in an empty folder"];
    let older = [at, "say no format", &reads, remedy[0], remedy[1]];
    refused(&["up", &data], &older);
    refused(&["up", &data], &older);
    format_row(&folder, Some(bytes::Bytes::copy_from_slice(&99_u32.to_le_bytes())));
    refused(&["up", &data], &[at, "are of format 99", &reads, remedy[0], remedy[1]]);
    format_row(&folder, good);
    let up = Serving::start(&["up", &data]);
    is_whole(&home, &root, &names);
    up.stop();
}

#[test]
fn a_journal_damaged_in_the_middle_is_refused_with_file_and_offset_and_nothing_is_cut() {
    let home = Home::new();
    let (root, names) = killed(&home);
    let data = home.text("data");
    let (segment, good, groups) = newest(&home);
    let stated = groups.iter().map(|group| group.durable).max().unwrap();
    let damaged =
        groups.iter().filter(|group| group.last < stated).nth(2).expect("some groups are in the middle");
    let at = format!("at offset {}", damaged.at);
    let lsn = format!("LSN {}", damaged.first);
    // In its records, and in its header.
    for flip in [damaged.at + HEADER + damaged.len / 2, damaged.at + 45] {
        let mut bad = good.clone();
        bad[flip] ^= 1;
        std::fs::write(&segment, &bad).unwrap();
        let before = listing(&home.path("data/server-0/demo/journal"));
        for _ in 0..2 {
            let name = segment.file_name().unwrap().to_str().unwrap();
            refused(&["up", &data], &[name, &at, &lsn, "damaged", "from a copy"]);
        }
        assert_untouched(&before, &listing(&home.path("data/server-0/demo/journal")));
    }
    std::fs::write(&segment, &good).unwrap();
    let up = Serving::start(&["up", &data]);
    is_whole(&home, &root, &names);
    up.stop();
}

#[test]
fn a_journals_torn_tail_is_cut_and_said_and_all_before_it_is_there() {
    let home = Home::new();
    let (root, mut names) = killed(&home);
    let data = home.text("data");
    // The last file: its group, and all bytes after it, are not as they should be.
    let (segment, mut content, groups) = newest(&home);
    let name = b"content of f";
    let holds =
        |group: &&Group| content[group.at..][..HEADER + group.len].windows(name.len()).any(|w| w == name);
    let last = *groups.iter().find(holds).expect("the journal holds the last file");
    for group in groups.iter().filter(|group| group.at > last.at) {
        assert!(group.durable < last.first, "nothing behind it calls it durable: {group:?}");
    }
    let end = last.at + HEADER + last.len;
    content[last.at + HEADER..end][last.len / 2..].fill(0);
    std::fs::write(&segment, &content).unwrap();

    let up = Serving::start(&["up", &data]);
    let told = up.told();
    let offset = format!("offset={}", last.at);
    let name = segment.file_name().unwrap().to_str().unwrap();
    for word in ["torn", "is cut", name, &offset] {
        assert!(told.contains(word), "`{word}` is missing: {told}");
    }
    names.pop();
    is_whole(&home, &root, &names);
    // It can be written again, and the next starts have nothing to say.
    let file = home.file("f", b"content of f");
    said(&["cp", &file, &format!("{root}/f"), "--key", &home.text("data/key"), "--quiet"]);
    names.push("f".to_owned());
    up.crash();
    let up = Serving::start(&["up", &data]);
    is_whole(&home, &root, &names);
    assert!(!up.stop().contains("torn"));
}

#[test]
fn a_folder_with_a_part_missing_is_refused_and_comes_back_with_it() {
    let home = Home::new();
    let (root, names) = killed(&home);
    let data = home.text("data");
    // A clean stop, so that the tables have rows.
    Serving::start(&["up", &data]).stop();
    let folder = home.path("data/server-0/demo");
    for (part, words) in [
        ("collection", ["`collection` with its identity is missing", "from a copy"]),
        ("journal", ["holds no segment", "from a copy"]),
        ("streams", ["the bytes of larger files", "from a copy"]),
        ("streams/7f", ["streams/7f is not there", "from a copy"]),
    ] {
        let (there, away) = (folder.join(part), home.path(&part.replace('/', "-")));
        std::fs::rename(&there, &away).unwrap();
        refused(&["up", &data], &words);
        if there.is_dir() {
            std::fs::remove_dir_all(&there).unwrap();
        }
        assert!(!there.exists(), "no new identity is made");
        std::fs::rename(&away, &there).unwrap();
    }
    // The tables' rows are in this journal still: nothing of it was used again.
    std::fs::rename(folder.join("tables"), home.path("tables")).unwrap();
    let up = Serving::start(&["up", &data]);
    is_whole(&home, &root, &names);
    up.stop();
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

#[test]
fn a_server_is_never_there_twice() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(2);
    let both = Serving::start(&["serve", "--config", &cluster]);
    let root = format!("shoal://127.0.0.1:{}/demo", ports[0]);
    let (key, file) = (home.text("cluster/key"), home.file("f", b"once"));
    said(&["cp", &file, &format!("{root}/f"), "--key", &key, "--quiet"]);

    // Two processes on one folder.
    refused(
        &["serve", "--config", &cluster, "--server", "1"],
        &["s1/demo is in use by another server", "stop that one first"],
    );
    // A copy of all, with the same addresses.
    let twin = home.path("twin");
    copy(&home.path("cluster"), &twin);
    let twin_text = home.text("twin");
    refused(&["serve", "--config", &twin_text], &["is in use", "stop what uses it"]);
    // A copy of one server's folder, at an address of its own.
    let path = twin.join("cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let free = free_ports(1)[0].to_string();
    let moved = text.replace(&ports[1].to_string(), &free);
    std::fs::write(&path, &moved).unwrap();
    refused(
        &["serve", "--config", &twin_text, "--server", "1"],
        &["know server 1 of file system `demo` at", "a copy", "two servers with one identity"],
    );
    // Also if its cluster file speaks of more servers.
    let more = free_ports(1)[0];
    let third = format!("[[server]]\nlisten = [\"tcp:127.0.0.1:{more}\"]\nfolder = \"s2\"\n\n[[collection]]");
    std::fs::write(&path, moved.replacen("[[collection]]", &third, 1)).unwrap();
    refused(&["serve", "--config", &twin_text, "--server", "1"], &["two servers with one identity"]);
    // The folder of one server under another's number.
    std::fs::write(&path, text.replace("\"s1\"", "\"s9\"").replace("\"s0\"", "\"s1\"")).unwrap();
    let before = listing(&twin.join("s1/demo/journal"));
    refused(
        &["serve", "--config", &twin_text, "--server", "0"],
        &["s1/demo/collection is of server 1, not 0", "put each server's folder back", "nothing was changed"],
    );
    assert_untouched(&before, &listing(&twin.join("s1/demo/journal")));

    // The first continues as if nothing had been.
    assert_eq!(said(&["cat", &format!("{root}/f"), "--key", &key]), "once");
    said(&["fsck", &cluster, "--quiet"]);
    both.stop();
}

#[test]
fn another_file_systems_folder_collection_and_key_are_refused() {
    let (ours, theirs) = (Home::new(), Home::new());
    let (cluster, ports) = ours.cluster(1);
    let (other, _) = theirs.cluster(1);
    Serving::start(&["serve", "--config", &other]).stop();
    // Their folder, our cluster.
    copy(&theirs.path("cluster/s0"), &ours.path("cluster/s0"));
    let before = listing(&ours.path("cluster/s0"));
    refused(
        &["serve", "--config", &cluster],
        &["s0/demo/collection is of file system", "put each server's folder back"],
    );
    assert_untouched(&before, &listing(&ours.path("cluster/s0")));
    std::fs::remove_dir_all(ours.path("cluster/s0")).unwrap();

    let serving = Serving::start(&["serve", "--config", &cluster]);
    let root = format!("shoal://127.0.0.1:{}", ports[0]);
    let (key, their_key) = (ours.text("cluster/key"), theirs.text("cluster/key"));
    refused(&["ls", &format!("{root}/none"), "--key", &key], &["the key opens demo, not `none`"]);
    let demo = format!("{root}/demo");
    refused(&["ls", &demo, "--key", &their_key], &["no file system of that id", "is the address right?"]);
    let good = std::fs::read_to_string(&key).unwrap();
    let number = ours.file("number", good.replace("collection = 1", "collection = 7").as_bytes());
    let line = |text: &str| text.lines().find(|line| line.starts_with("key = ")).unwrap().to_owned();
    let their_secret = line(&std::fs::read_to_string(&their_key).unwrap());
    let secret = ours.file("secret", good.replace(&line(&good), &their_secret).as_bytes());
    for path in [&number, &secret] {
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(path, private).unwrap();
    }
    refused(&["ls", &demo, "--key", &number], &["this server holds collection 1"]);
    refused(&["ls", &demo, "--key", &secret], &["key", "is this the right key file?"]);
    assert_eq!(said(&["ls", &demo, "--key", &key]), "");
    // A client with the right key is served by the folder that was refused to the others.
    let options = options(format!("127.0.0.1:{}", ports[0]).parse().unwrap(), &ours.path("cluster/key"));
    shoal_env::real::run("client", |env| async move {
        Client::connect(env, options).await.unwrap().close().await;
    });
    serving.stop();
}
