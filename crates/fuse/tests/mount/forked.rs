//! Forked files through the mount: ordinary programs see directories.

use crate::cluster::Cluster;
use crate::{Mounted, errno, names_in};
use bytes::Bytes;
use rustix::fs::{CWD, FileType, OFlags, RenameFlags, renameat_with};
use shoal_client::Client;
use shoal_env::real;
use shoal_fuse::MountOptions;
use shoal_proto::op::Owner;
use shoal_proto::{Attr, Handle, Kind, Name, Rights, ServerId, Status};
use shoal_vfs::ForkedFile;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Make a forked file in the root.
fn make(mounted: &Mounted, name: &str, subfiles: u16) {
    let options = mounted.cluster.client();
    let name = Name::new(name.as_bytes()).unwrap();
    real::run("client", |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let owner = Owner {
            mode: 0o755,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let forked = ForkedFile { subfiles, ..ForkedFile::default() };
        client.mkforked(Handle::ROOT, &name, owner, &forked).await.unwrap();
        client.close().await;
    });
}

fn run(program: &str, arguments: &[&Path]) {
    let done = Command::new(program).args(arguments).output().unwrap();
    assert!(done.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn ordinary_programs_copy_pack_and_remove_a_forked_file_through_the_mount() {
    let mounted = Mounted::new();
    make(&mounted, "forked", 5);
    let file = mounted.path("forked");
    assert_eq!(names_in(&file), ["0", "1", "2", "3", "4"]);
    for subfile in 0..5 {
        fs::write(file.join(format!("{subfile}/keys")), format!("keys {subfile}")).unwrap();
        fs::write(file.join(format!("{subfile}/values")), vec![subfile; 300_000]).unwrap();
    }
    let copy = mounted.path("copy");
    run("cp", &[Path::new("-a"), &file, &copy]);
    let outside = mounted.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let archive = mounted.dir.path().join("forked.tar");
    run("tar", &[Path::new("-C"), &mounted.path(""), Path::new("-cf"), &archive, Path::new("forked")]);
    run("tar", &[Path::new("-C"), &outside, Path::new("-xf"), &archive]);
    run("diff", &[Path::new("-r"), &file, &copy]);
    run("diff", &[Path::new("-r"), &file, &outside.join("forked")]);
    run("rm", &[Path::new("-r"), &file]);
    run("rm", &[Path::new("-r"), &copy]);
    assert!(names_in(&mounted.path("")).is_empty());
}

#[test]
fn what_a_forked_file_refuses_has_its_number_in_the_mount_and_its_layout_is_told() {
    let mounted = Mounted::new();
    make(&mounted, "forked", 3);
    let at = |path: &str| mounted.path(&format!("forked/{path}"));
    fs::write(at("0/a"), b"a fork").unwrap();
    let number = |done: std::io::Result<()>| done.map_err(|error| errno(&error));
    assert_eq!(number(fs::remove_dir(at("0"))), Err(libc::EPERM));
    assert_eq!(number(fs::create_dir(at("3"))), Err(libc::EPERM));
    assert_eq!(number(fs::write(at("file"), b"x")), Err(libc::EPERM));
    assert_eq!(number(fs::rename(at("0"), at("7"))), Err(libc::EPERM));
    assert_eq!(number(fs::create_dir(at("0/d"))), Err(libc::EPERM));
    assert_eq!(number(fs::rename(at("0/a"), at("1/a"))), Err(libc::EXDEV));
    assert_eq!(number(fs::rename(at("0/a"), mounted.path("a"))), Err(libc::EXDEV));
    assert_eq!(number(fs::hard_link(at("0/a"), at("0/b"))), Err(libc::EXDEV));
    fs::rename(at("0/a"), at("0/b")).unwrap();

    let layout = |path: &Path| {
        let mut value = [0; 64];
        let len = rustix::fs::getxattr(path, "user.shoal.layout", &mut value[..]);
        len.map(|len| String::from_utf8(value[..len].to_vec()).unwrap()).map_err(|errno| errno.raw_os_error())
    };
    assert_eq!(layout(&mounted.path("forked")).as_deref(), Ok("forked, 3 subfiles"));
    assert_eq!(layout(&at("0")).as_deref(), Ok("subfile"));
    assert_eq!(layout(&at("0/b")).as_deref(), Ok("fork"));
    assert_eq!(layout(&mounted.path("")), Err(libc::ENODATA));
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::setxattr(at("0/b"), "user.shoal.layout", b"striped", flags);
    assert_eq!(set.map_err(|errno| errno.raw_os_error()), Err(libc::EPERM));
    fs::rename(mounted.path("forked"), mounted.path("moved")).unwrap();
    assert_eq!(fs::read(mounted.path("moved/0/b")).unwrap(), b"a fork");
}

/// The kind of a directory in the table of the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Where {
    Forked,
    Subfile,
    Outside,
}

/// Directories of each kind on several servers: two forked files, four subfiles, four ordinary directories.
/// Of each its path and the names in it that can be moved.
fn places(mounted: &Mounted) -> Vec<(Where, String, Vec<&'static str>)> {
    let mut all = Vec::new();
    for file in ["f0", "f1"] {
        make(mounted, file, 6);
        all.push((Where::Forked, file.to_owned(), vec!["3", "4"]));
    }
    // Each server has one of the first three; the last is on the server of one of them.
    for subfile in ["f0/0", "f0/1", "f0/2", "f1/5"] {
        for fork in ["a", "b"] {
            fs::write(mounted.path(&format!("{subfile}/{fork}")), fork).unwrap();
        }
        all.push((Where::Subfile, subfile.to_owned(), vec!["a", "b"]));
    }
    for dir in ["d0", "d1", "d2", "d3"] {
        fs::create_dir(mounted.path(dir)).unwrap();
        fs::create_dir(mounted.path(&format!("{dir}/dir"))).unwrap();
        fs::write(mounted.path(&format!("{dir}/plain")), dir).unwrap();
        all.push((Where::Outside, dir.to_owned(), vec!["plain", "dir"]));
    }
    all
}

#[test]
fn the_rules_of_forked_files_have_their_numbers_through_two_mounts() {
    // Each sees at once what the other one has renamed.
    let strict = MountOptions { cache: Duration::ZERO, ..MountOptions::default() };
    let mounted = Mounted::with(&strict);
    let second = mounted.second(&strict);
    let places = places(&mounted);
    let turn = std::cell::Cell::new(0);
    let mounts = [mounted.handle.mountpoint(), second.mountpoint()];
    // Each call by the other mount.
    let both = |from: (&str, &str), to: (&str, &str)| {
        turn.set(turn.get() + 1);
        let paths = [from, to].map(|(dir, leaf)| mounts[turn.get() % 2].join(dir).join(leaf));
        // A kernel that first sees within a rename that a directory was moved elsewhere answers `ESTALE`.
        paths.iter().for_each(|path| drop(path.symlink_metadata()));
        paths
    };
    let at = |dir: &str, leaf: &str| both((dir, leaf), ("", ""))[0].clone();
    let renamed = |from: (&str, &str), to: (&str, &str), flags| {
        let [from, to] = both(from, to);
        renameat_with(CWD, from, CWD, to, flags).map_err(rustix::io::Errno::raw_os_error)
    };
    let number = |done: std::io::Result<()>| done.map_err(|error| errno(&error));
    let of_rustix = |done: rustix::io::Result<()>| done.map_err(rustix::io::Errno::raw_os_error);
    let [plain, keep, exchange] = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
    for (from, from_dir, moved) in &places {
        for (to, to_dir, there) in &places {
            let rule = match (from, to) {
                (Where::Forked, _) | (_, Where::Forked) => Err(libc::EPERM),
                (Where::Outside, Where::Outside) => Ok(()),
                _ if from_dir == to_dir => Ok(()),
                _ => Err(libc::EXDEV),
            };
            for leaf in moved {
                let words = format!("{from_dir}/{leaf} to {to_dir}");
                for flags in [plain, keep] {
                    let done = renamed((from_dir, leaf), (to_dir, "x"), flags);
                    assert_eq!(done, rule, "{words}, {flags:?}");
                    if rule.is_ok() {
                        renamed((to_dir, "x"), (from_dir, leaf), plain).unwrap();
                    }
                }
                for _ in 0..2 {
                    let other = there.iter().find(|other| from_dir != to_dir || *other != leaf).unwrap();
                    let done = renamed((from_dir, leaf), (to_dir, other), exchange);
                    assert_eq!(done, rule, "{words}, exchanged");
                }
                let is_directory = *from == Where::Forked || *leaf == "dir";
                let rule = match (from, to) {
                    (_, Where::Forked) => Err(libc::EPERM),
                    _ if is_directory => Err(libc::EPERM),
                    (Where::Outside, Where::Outside) => Ok(()),
                    _ => Err(libc::EXDEV),
                };
                let [object, to] = both((from_dir, leaf), (to_dir, "x"));
                assert_eq!(number(fs::hard_link(object, to)), rule, "link, {words}");
                if rule.is_ok() {
                    fs::remove_file(at(to_dir, "x")).unwrap();
                }
            }
        }
    }
    for (of, dir, _) in &places {
        let of_file = if *of == Where::Forked { Err(libc::EPERM) } else { Ok(()) };
        let of_others = if *of == Where::Outside { Ok(()) } else { Err(libc::EPERM) };
        assert_eq!(number(fs::write(at(dir, "new"), b"x")), of_file, "create in {dir}");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let mknod = |leaf: &str, kind| of_rustix(rustix::fs::mknodat(CWD, at(dir, leaf), kind, mode, 0));
        assert_eq!(mknod("node", FileType::RegularFile), of_file, "mknod in {dir}");
        assert_eq!(mknod("fifo", FileType::Fifo), of_others, "mknod of a FIFO in {dir}");
        assert_eq!(mknod("socket", FileType::Socket), of_others, "mknod of a socket in {dir}");
        let link = std::os::unix::fs::symlink("to", at(dir, "link"));
        assert_eq!(number(link), of_others, "symlink in {dir}");
        assert_eq!(number(fs::create_dir(at(dir, "sub"))), of_others, "mkdir in {dir}");
        // A file without a name is made nowhere, so none gets its name in a forked file.
        let nameless = rustix::fs::open(at(dir, ""), OFlags::TMPFILE | OFlags::WRONLY, mode).map(drop);
        assert_eq!(of_rustix(nameless), Err(libc::EOPNOTSUPP), "O_TMPFILE in {dir}");
        // The attribute that tells the layout is neither set nor removed.
        for object in ["", "new", "0"].map(|leaf| at(dir, leaf)).iter().filter(|path| path.exists()) {
            let none = rustix::fs::XattrFlags::empty();
            let set = rustix::fs::setxattr(object, "user.shoal.layout", b"x", none);
            assert_eq!(of_rustix(set), Err(libc::EPERM), "{}", object.display());
            let removed = rustix::fs::removexattr(object, "user.shoal.layout");
            assert_eq!(of_rustix(removed), Err(libc::EPERM), "{}", object.display());
            rustix::fs::setxattr(object, "user.mine", b"x", none).unwrap();
            rustix::fs::removexattr(object, "user.mine").unwrap();
        }
    }
    // The whole file moves, changes places, and goes.
    renamed(("f0", ""), ("d0", "moved"), plain).unwrap();
    renamed(("d0", "moved"), ("f1", ""), exchange).unwrap();
    assert_eq!(renamed(("d0", "dir"), ("f1", ""), plain), Err(libc::ENOTEMPTY));
    assert_eq!(number(fs::remove_dir(at("f1", ""))), Err(libc::ENOTEMPTY));
    for file in [at("f1", ""), at("d0", "moved")] {
        fs::remove_dir_all(file).unwrap();
    }
}

#[test]
fn a_forked_file_that_a_silent_server_should_hold_a_part_of_is_made_whole_or_not_at_all() {
    let cluster = Cluster::start(3);
    let silenced = cluster.silence(2);
    let options = shoal_client::Options { timeout: Duration::from_secs(2), ..cluster.client() };
    real::run("client", |env| async move {
        let client = Client::connect(env, options).await.unwrap();
        let name = Name::new(b"forked").unwrap();
        let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
        let forked = ForkedFile { subfiles: 6, ..ForkedFile::default() };
        let refused = client.mkforked(Handle::ROOT, &name, owner, &forked).await;
        assert!(refused.is_err(), "{refused:?}");
        drop(silenced);
        let there = client.lookup(Handle::ROOT, &name).await;
        assert_eq!(there.map_err(|error| error.status), Err(Status::NotFound));
        let file = loop {
            // Until the server is known to answer again.
            match client.mkforked(Handle::ROOT, &name, owner, &forked).await {
                Ok(file) => break file,
                Err(error) => assert!(error.is_silence() || error.status == Status::Busy, "{error}"),
            }
        };
        for subfile in 0..6 {
            let name = Name::new(format!("{subfile}").as_bytes()).unwrap();
            client.lookup(file.handle, &name).await.unwrap();
        }
        client.close().await;
    });
}

fn leaf(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A forked file whose own server answers, and two of its subfiles: one of the silent server, one of another.
async fn subfiles_about(client: &Client, silent: ServerId) -> (String, Attr, [Handle; 2], usize) {
    let owner = Owner { mode: 0o755, uid: 0, gid: 0 };
    for number in 0.. {
        let name = format!("f{number}");
        let forked = ForkedFile { subfiles: 6, ..ForkedFile::default() };
        let file = client.mkforked(Handle::ROOT, &leaf(&name), owner, &forked).await.unwrap();
        if file.handle.server() == silent {
            continue;
        }
        let (mut of_silent, mut of_others) = (None, None);
        for subfile in 0..6 {
            let handle = client.lookup(file.handle, &leaf(&subfile.to_string())).await.unwrap().handle;
            match handle.server() == silent {
                true => of_silent = Some((handle, subfile)),
                false => of_others = Some(handle),
            }
        }
        let (of_silent, index) = of_silent.unwrap();
        return (name, file, [of_silent, of_others.unwrap()], index);
    }
    unreachable!("servers have turns");
}

#[test]
fn while_a_server_of_a_forked_file_is_silent_its_forks_fail_in_time_and_the_others_work_and_it_is_removed_later()
 {
    let cluster = Cluster::start(3);
    let silent = ServerId(2);
    let options = shoal_client::Options { timeout: Duration::from_secs(1), ..cluster.client() };
    real::run("client", async |env| {
        let client = &Client::connect(env.clone(), options).await.unwrap();
        let (name, file, subfiles, index) = subfiles_about(client, silent).await;
        let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
        let mut forks = Vec::new();
        for dir in subfiles {
            client.create_write(dir, &leaf("a"), owner, Bytes::from_static(b"bytes"), None).await.unwrap();
            forks.push(client.open_name(dir, &leaf("a"), Rights::READ | Rights::WRITE).await.unwrap());
        }
        let [of_silent, of_another] = subfiles;
        let silenced = cluster.silence(silent.0);
        let (away, there) = (&forks[0], &forks[1]);
        // Each ends at the client's time limit; the run itself would hang otherwise.
        assert!(away.read(0, 5).await.unwrap_err().is_silence());
        assert!(away.write(0, Bytes::from_static(b"more")).await.unwrap_err().is_silence());
        assert!(client.unlink(of_silent, &leaf("a")).await.unwrap_err().is_silence());
        assert!(client.rmdir(file.handle, &leaf(&index.to_string())).await.is_err());
        assert!(client.rmforked(Handle::ROOT, &leaf(&name), file.handle).await.is_err());
        assert_eq!(&there.read(0, 5).await.unwrap()[..], b"bytes");
        there.write(5, Bytes::from_static(b" more")).await.unwrap();
        client.mknod(of_another, &leaf("b"), owner, Kind::File, 0).await.unwrap();
        client.unlink(of_another, &leaf("b")).await.unwrap();
        assert_eq!(&there.read(0, 10).await.unwrap()[..], b"bytes more");
        drop(silenced);

        // The removal goes on from where it is: requests that were given up may have been done since.
        for fork in forks {
            let _ = fork.close().await;
        }
        for dir in subfiles {
            until_gone(async || client.unlink(dir, &leaf("a")).await).await;
        }
        until_gone(async || client.rmforked(Handle::ROOT, &leaf(&name), file.handle).await).await;
        let there = client.lookup(Handle::ROOT, &leaf(&name)).await;
        assert_eq!(there.map_err(|error| error.status), Err(Status::NotFound));
        client.close().await;
    });
}

/// Remove it; again where the server does not answer yet.
async fn until_gone(remove: impl AsyncFn() -> Result<(), shoal_client::Error>) {
    loop {
        match remove().await {
            Ok(()) => return,
            Err(error) if [Status::NotFound, Status::Stale].contains(&error.status) => return,
            Err(error) => assert!(error.is_silence() || error.status == Status::Busy, "{error}"),
        }
    }
}
