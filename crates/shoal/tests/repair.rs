//! Damage made on purpose is found by `fsck`, repaired by `--repair`, and nothing that has data is lost.

use bytes::Bytes;
use shoal_client::{Client, Options};
use shoal_proto::{Action, CollectionId, Handle, Kind, Name, Owner, Rights, SecretKey, Time};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

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
    let mut up = Command::new(env!("CARGO_BIN_EXE_shoal"))
        .args(["up", &folder, "--servers", "2", "--strip", "64k"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(up.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let address = ready.split_whitespace().find(|word| word.starts_with("shoal://")).unwrap().to_owned();

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
    let pid = rustix::process::Pid::from_child(&up);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(up.wait().unwrap().success());
}
