//! Names, paths and sizes beyond the limits: refused with their numbers, and nothing is allocated for them.

use crate::program::*;
use rustix::io::Errno;
use shoal_client::Client;
use shoal_env::real;
use shoal_proto::{Handle, Name, Owner, Rights, Status, limits};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

fn errno<T: std::fmt::Debug>(done: std::io::Result<T>) -> Option<Errno> {
    done.expect_err("refused").raw_os_error().map(Errno::from_raw_os_error)
}

/// The size of a folder on the disk, except journals: their segments are prewritten in the background.
fn taken(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut todo = vec![folder.to_path_buf()];
    let mut bytes = 0;
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("journal") {
                continue;
            }
            let meta = path.symlink_metadata().unwrap();
            bytes += meta.blocks() * 512;
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    bytes
}

#[test]
fn names_over_255_bytes_and_paths_over_4095_are_refused_by_the_program_and_the_client() {
    let home = Home::new();
    let data = home.text("data");
    let up = Serving::start(&["up", &data, "--servers", "1", "--module", "memory"]);
    let (root, key) = (up.root(), home.text("data/key"));
    let file = home.file("f", b"content");
    let longest = format!("{root}/{}", "n".repeat(255));
    said(&["cp", &file, &longest, "--key", &key, "--quiet"]);
    assert_eq!(said(&["cat", &longest, "--key", &key]), "content");
    let name = format!("{root}/{}", "n".repeat(256));
    let path = format!("{root}/{}", "d/".repeat(2048));
    for (given, words) in [(&name, "too long"), (&path, "too long")] {
        for args in [vec!["ls", given], vec!["cat", given], vec!["stat", given]] {
            refused(&[&args[..], &["--key", &key]].concat(), &[words]);
        }
    }
    refused(&["cp", &file, &name, "--key", &key, "--quiet"], &["too long"]);
    assert_eq!(Name::new(&[b'n'; 256]).unwrap_err(), Status::NameTooLong);
    let options = options(up.server(), &home.path("data/key"));
    real::run("client", |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let name = Name::new(b"link").unwrap();
        for (len, status) in
            [(4095, None), (4096, Some(Status::NameTooLong)), (1 << 20, Some(Status::NameTooLong))]
        {
            let made = client.symlink(Handle::ROOT, &name, OWNER, &vec![b'x'; len]).await;
            assert_eq!(made.err().map(|error| error.status), status, "{len}");
        }
        client.close().await;
    });
    assert_eq!(said(&["ls", &root, "--key", &key]).lines().count(), 2);
    up.stop();
}

#[test]
fn sizes_beyond_all_bounds_are_refused_through_the_mount_and_allocate_nothing() {
    if !is_root() {
        return;
    }
    let home = Home::new();
    let (data, mnt) = (home.text("data"), home.path("mnt"));
    let up =
        Serving::start(&["up", &data, "--servers", "2", "--strip", "64K", "--mount", mnt.to_str().unwrap()]);
    let long = "n".repeat(256);
    assert_eq!(errno(File::create(mnt.join(&long))), Some(Errno::NAMETOOLONG));
    assert_eq!(errno(File::create(mnt.join("d/".repeat(2048)))), Some(Errno::NAMETOOLONG));

    // One that is small, and one that lies over both servers.
    for (name, len) in [("small", 100), ("large", 1 << 20)] {
        let content: Vec<u8> = (0..len).map(|i: u32| (i / 7) as u8).collect();
        std::fs::write(mnt.join(name), &content).unwrap();
        let file = File::options().read(true).write(true).open(mnt.join(name)).unwrap();
        file.sync_all().unwrap();
        let before = taken(home.path("data").as_path());
        let max = i64::MAX as u64;
        for offset in [max - 9, max, 1 << 62, 1 << 55] {
            let error = errno(file.write_at(b"0123456789", offset));
            assert!(
                matches!(error, Some(Errno::FBIG | Errno::INVAL)),
                "{name}: a write at {offset}: {error:?}"
            );
        }
        for offset in [max + 1, u64::MAX] {
            assert_eq!(
                errno(file.write_at(b"0123456789", offset)),
                Some(Errno::INVAL),
                "{name}: at {offset}"
            );
        }
        let flags = rustix::fs::FallocateFlags::empty();
        for (offset, len) in [(0, max), (0, 1 << 62), (1 << 55, 1 << 20), (max, 1)] {
            let error = rustix::fs::fallocate(&file, flags, offset, len).expect_err("refused");
            assert!(
                matches!(error, Errno::FBIG | Errno::NOSPC | Errno::INVAL),
                "{name}: {len} bytes at {offset}: {error}"
            );
        }
        assert_eq!(rustix::fs::ftruncate(&file, u64::MAX), Err(Errno::INVAL), "{name}");
        assert_eq!(file.metadata().unwrap().len(), u64::from(len), "{name}");
        assert_eq!(std::fs::read(mnt.join(name)).unwrap(), content, "{name}");
        let after = taken(home.path("data").as_path());
        assert!(after < before + (1 << 20), "{name}: {before} bytes became {after}");
    }
    // A size alone takes no space.
    let file = File::create(mnt.join("hole")).unwrap();
    let before = taken(home.path("data").as_path());
    match file.set_len(1 << 60) {
        Ok(()) => {
            assert_eq!(file.metadata().unwrap().len(), 1 << 60);
            file.set_len(0).unwrap();
        }
        Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::FBIG), "{error}"),
    }
    assert!(taken(home.path("data").as_path()) < before + (1 << 20));
    drop(file);
    std::fs::write(mnt.join("after"), b"all is well").unwrap();
    said(&["fsck", &data, "--quiet"]);
    up.stop();
    let up = Serving::start(&["up", &data]);
    let root = up.root();
    assert_eq!(said(&["cat", &format!("{root}/after"), "--key", &home.text("data/key")]), "all is well");
    up.stop();
}

#[test]
fn sizes_beyond_all_bounds_are_refused_by_the_native_client() {
    let home = Home::new();
    let data = home.text("data");
    let up = Serving::start(&["up", &data, "--servers", "2", "--strip", "64K"]);
    let options = options(up.server(), &home.path("data/key"));
    real::run("client", |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let name = Name::new(b"f").unwrap();
        let (attr, _, file) = client
            .create(Handle::ROOT, &name, OWNER, true, Rights::READ | Rights::WRITE, None)
            .await
            .unwrap();
        file.write(0, b"kept"[..].into()).await.unwrap();
        let too_big = |done: Result<(), shoal_client::Error>, what: &str| {
            let error = done.expect_err(what);
            let answers = [Status::FileTooBig, Status::Invalid, Status::NoSpace];
            assert!(answers.contains(&error.status), "{what}: {error}");
        };
        for offset in [u64::MAX, u64::MAX - 3, 1 << 63, limits::FILE_BYTES_MAX - 3, 1 << 62] {
            too_big(
                file.write(offset, b"0123456789"[..].into()).await.map(drop),
                &format!("a write at {offset}"),
            );
        }
        for size in [u64::MAX, 1 << 63, limits::FILE_BYTES_MAX + 1] {
            too_big(client.truncate(attr.handle, size, false).await.map(drop), &format!("a size of {size}"));
        }
        assert_eq!(&file.read(0, 100).await.unwrap()[..], b"kept");
        assert!(file.read(1 << 62, 1 << 20).await.unwrap().is_empty(), "behind the end");
        for offset in [u64::MAX, 1 << 63] {
            match file.read(offset, 1 << 20).await {
                Ok(bytes) => assert!(bytes.is_empty(), "a read at {offset}"),
                Err(error) => {
                    let answers = [Status::FileTooBig, Status::Invalid];
                    assert!(answers.contains(&error.status), "a read at {offset}: {error}");
                }
            }
        }
        assert_eq!(client.getattr(attr.handle).await.unwrap().size, 4);
        file.close().await.unwrap();
        client.close().await;
    });
    said(&["fsck", &data, "--quiet"]);
    up.stop();
}
