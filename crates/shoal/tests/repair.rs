//! Damage made on purpose is found by `fsck`, repaired by `--repair`, and nothing that has data is lost.

use bytes::Bytes;
use shoal_client::{Client, ForkedFile, Options};
use shoal_proto::{Action, CollectionId, Handle, Kind, Name, Owner, Rights, SecretKey, Time};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

fn fsck(folder: &str, repair: bool) -> (Option<i32>, serde_json::Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.args(["fsck", folder, "--quiet", "--json"]);
    if repair {
        command.arg("--repair");
    }
    let output = command.output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

/// Two servers with their data in a folder, and the address of their root.
fn start(folder: &str) -> (Child, String) {
    let mut up = Command::new(env!("CARGO_BIN_EXE_shoal"))
        .args(["up", folder, "--servers", "2", "--strip", "64k"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(up.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let address = ready.split_whitespace().find(|word| word.starts_with("shoal://")).unwrap().to_owned();
    (up, address)
}

/// A clean end.
fn stop(mut up: Child) {
    let pid = rustix::process::Pid::from_child(&up);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(up.wait().unwrap().success());
}

/// A client of the file system of a folder.
async fn client(env: shoal_env::Env, folder: &str, address: &str) -> Client {
    let key: toml::Table =
        toml::from_str(&std::fs::read_to_string(format!("{folder}/key")).unwrap()).unwrap();
    let id = key["file_system"][0]["id"].as_str().unwrap();
    let mut fs_id = [0; 16];
    for (i, byte) in fs_id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&id[2 * i..2 * i + 2], 16).unwrap();
    }
    let server = address.strip_prefix("shoal://").unwrap().split('/').next().unwrap();
    let secret = SecretKey::from_hex(key["key"].as_str().unwrap()).unwrap();
    let mut options = Options::new(vec![server.parse().unwrap()], secret, fs_id, CollectionId(1));
    let admin: toml::Table =
        toml::from_str(&std::fs::read_to_string(format!("{folder}/key.admin")).unwrap()).unwrap();
    options.admin = Some(SecretKey::from_hex(admin["admin"].as_str().unwrap()).unwrap());
    Client::connect(env, options).await.unwrap()
}

/// A lost entry, a lost object, wrong links, a lost datafile, a datafile without a file, a lost directory.
async fn damage(client: &Client) {
    let root = Handle::ROOT;
    let dir = client.mkdir(root, &name("dir"), OWNER).await.unwrap().handle;
    let inner = client.mkdir(dir, &name("inner"), OWNER).await.unwrap().handle;
    for at in ["loses its name", "loses its object", "has wrong links", "stays"] {
        client.create_write(dir, &name(at), OWNER, Bytes::from_static(b"data"), None).await.unwrap();
    }
    client.create_write(inner, &name("deep"), OWNER, Bytes::from_static(b"deep"), None).await.unwrap();
    let (wide, _, file) = client.create(dir, &name("wide"), OWNER, true, Rights::WRITE, None).await.unwrap();
    file.write(0, vec![7; 1 << 20].into()).await.unwrap();
    file.close().await.unwrap();
    let wide = client.getattr(wide.handle).await.unwrap();
    let lost = wide.layout.unwrap().datafiles[1];

    let time = Time(0);
    let object = async |at: &str| client.lookup(dir, &name(at)).await.unwrap().handle;
    let loses = object("loses its name").await;
    let entry = Action::EntryRemove {
        shard: dir.server(),
        dir,
        name: name("loses its name"),
        expect: loses,
        subdirs: 0,
        time,
    };
    let nobody = Handle::new(lost.server(), (1 << 47) + 5);
    for action in [
        entry,
        Action::ObjectRemove { object: object("loses its object").await },
        Action::LinksSet { object: object("has wrong links").await, nlink: 9 },
        Action::ObjectRemove { object: inner },
        Action::DatafileRemove { datafile: lost, owner: wide.handle },
        Action::DatafileCreate { datafile: nobody, owner: loses, generation: wide.generation },
    ] {
        client.repair(shoal_server::actions::server_of(&action), vec![action]).await.unwrap();
    }
}

#[test]
fn damage_is_found_and_mended_and_nothing_that_has_data_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data").to_str().unwrap().to_owned();
    let (up, address) = start(&folder);

    shoal_env::real::run("test", async |env| {
        let client = client(env, &folder, &address).await;
        damage(&client).await;
        client.close().await;
    });
    let (status, found) = fsck(&folder, false);
    assert_eq!(status, Some(1), "{found}");
    let words: std::collections::BTreeSet<&str> =
        found["problems"].as_array().unwrap().iter().map(|p| p["problem"].as_str().unwrap()).collect();
    for word in [
        "entry_dangling",
        "nameless",
        "links_wrong",
        "datafile_missing",
        "datafile_unowned",
        "directory_missing",
    ] {
        assert!(words.contains(word), "{word} is not among {found}");
    }
    let (status, mended) = fsck(&folder, true);
    assert_eq!(status, Some(0), "{mended}");
    let (status, clean) = fsck(&folder, false);
    assert_eq!((status, clean["problems"].as_array().unwrap().len()), (Some(0), 0), "{clean}");

    shoal_env::real::run("test", async |env| {
        let client = client(env, &folder, &address).await;
        let read = async |path: &str| {
            let file = client.open_at(path.as_bytes(), Rights::READ).await.unwrap();
            file.read(0, 100).await.unwrap()
        };
        assert_eq!(&read("/dir/stays").await[..], b"data");
        let kept = client.walk(b"/lost+found", true).await.unwrap();
        let mut entries = client.opendir(kept.handle);
        let (mut files, mut dirs) = (Vec::new(), Vec::new());
        while let Some(entry) = entries.next(true).await.unwrap() {
            match entry.kind {
                Kind::Directory => dirs.push(entry.name.to_string()),
                _ => files.push(entry.name.to_string()),
            }
        }
        assert_eq!((files.len(), dirs.len()), (1, 0), "{files:?} {dirs:?}");
        assert_eq!(&read(&format!("/lost+found/{}", files[0])).await[..], b"data");
        assert_eq!(&read("/dir/inner/deep").await[..], b"deep");
        client.close().await;
    });
    stop(up);
}

#[test]
fn a_forked_file_that_lost_a_subfile_is_shown_as_incomplete_until_it_is_repaired() {
    let home = tempfile::tempdir().unwrap();
    let text = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let folder = text("data");
    let (up, address) = start(&folder);
    shoal_env::real::run("test", async |env| {
        let client = client(env, &folder, &address).await;
        let forked = ForkedFile { subfiles: 3, ..ForkedFile::default() };
        let file = client.mkforked(Handle::ROOT, &name("f"), OWNER, &forked).await.unwrap().handle;
        let last = client.lookup(file, &name("2")).await.unwrap().handle;
        client.create_write(last, &name("fork"), OWNER, Bytes::from_static(b"bytes"), None).await.unwrap();
        client.rmdir(file, &name("1")).await.unwrap();
        client.close().await;
    });
    let file = format!("{}/f", address.trim_end_matches('/'));
    let run = |args: &[&str]| {
        let key = ["--key", &text("data/key")].map(String::from);
        let output = Command::new(env!("CARGO_BIN_EXE_shoal")).args(args).args(key).output().unwrap();
        let words = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code(), words.concat())
    };
    let shown = || {
        [["stat"].as_slice(), &["layout", "get"], &["map"]].map(|command| {
            let (text, json) =
                (run(&[command, &[&file]].concat()), run(&[command, &[&file, "--json"]].concat()));
            assert_eq!((text.0, json.0), (Some(0), Some(0)), "{text:?} {json:?}");
            let json: serde_json::Value = serde_json::from_str(&json.1).unwrap();
            (text.1.contains("subfile 1 is missing"), json["missing"].to_string())
        })
    };
    assert_eq!(shown(), [(); 3].map(|()| (true, "[1]".to_owned())));
    // Its other subfiles are copied, and the copy does not succeed in silence.
    let (status, words) = run(&["cp", "-r", "--quiet", &file, &text("copy")]);
    assert_eq!(status, Some(1), "{words}");
    assert!(words.contains("/f: subfile 1 is missing: all that is left of the file is copied"), "{words}");
    assert_eq!(std::fs::read(home.path().join("copy/2/fork")).unwrap(), b"bytes");

    let (status, mended) = fsck(&folder, true);
    assert_eq!(status, Some(0), "{mended}");
    let (found, words) = (&mended["problems"][0]["words"], &mended["problems"][0]["mending"]);
    assert!(found.as_str().unwrap().contains("(`/f`) has no subfile 1"), "{mended}");
    assert!(words.as_str().unwrap().contains("is made anew on server "), "{mended}");
    assert_eq!(shown(), [(); 3].map(|()| (false, "[]".to_owned())));
    assert_eq!(run(&["cp", "-r", "--quiet", &file, &text("whole")]), (Some(0), String::new()));
    stop(up);
}
