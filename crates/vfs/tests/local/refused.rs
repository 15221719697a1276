//! Refusals: of directories that cannot be used, of changes of a file system for reading only, and of calls
//! after its close.

use super::{BOTH, DIR_OWNER, OWNER, name, run};
use crate::skipped::skipped;
use shoal_env::real;
use shoal_proto::{Handle, Owner, Rights, SetAttr, Status};
use shoal_vfs::{Connect, Error, LocalOptions, Vfs, VfsFile};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn refusal(dir: &Path) -> Error {
    let options = LocalOptions::new(dir);
    real::run("refused", |env| async move { options.connect(env).await.map(drop).unwrap_err() })
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_in_words() {
    let room = tempfile::tempdir().unwrap();
    let (absent, file) = (room.path().join("absent"), room.path().join("file"));
    std::fs::write(&file, "").unwrap();
    let refused = refusal(&absent);
    assert_eq!(refused.status, Status::NotFound);
    assert!(refused.to_string().contains("absent does not exist"), "{refused}");
    let refused = refusal(&file);
    assert_eq!(refused.status, Status::NotDirectory);
    assert!(refused.to_string().contains("file is not a directory"), "{refused}");
}

#[test]
fn nothing_is_changed_where_it_is_for_reading_only() {
    let room = tempfile::tempdir().unwrap();
    std::fs::write(room.path().join("file"), "contents").unwrap();
    let mut options = LocalOptions::new(room.path());
    options.under_a_kernel(true);
    run(options, |vfs, _| async move {
        let root = Handle::ROOT;
        let file = vfs.lookup(root, &name("file")).await.unwrap().handle;
        let (new, old) = (name("new"), name("file"));
        let refusals = [
            vfs.mkdir(root, &new, DIR_OWNER).await.map(drop),
            vfs.create(root, &new, OWNER, true, BOTH).await.map(drop),
            vfs.create(root, &old, OWNER, false, Rights::READ).await.map(drop),
            vfs.symlink(root, &new, OWNER, b"x").await.map(drop),
            vfs.link(file, root, &new).await.map(drop),
            vfs.unlink(root, &old).await,
            vfs.rmdir(root, &old).await,
            vfs.rename(root, &old, root, &new, Default::default()).await,
            vfs.setattr(file, SetAttr { mode: Some(0), ..SetAttr::default() }).await.map(drop),
            vfs.truncate(file, 0, false).await.map(drop),
            vfs.setxattr(file, b"user.x", b"", false, false).await,
            vfs.removexattr(file, b"user.x").await,
            vfs.open(file, Rights::WRITE).await.map(drop),
        ];
        for (n, refusal) in refusals.into_iter().enumerate() {
            assert_eq!(refusal.unwrap_err().status, Status::ReadOnly, "refusal {n}");
        }
        let opened = vfs.open(file, Rights::READ).await.unwrap();
        assert_eq!(&opened.read(0, 99).await.unwrap()[..], b"contents");
    });
}

#[test]
fn a_closed_file_system_is_called_no_more() {
    let room = tempfile::tempdir().unwrap();
    run(LocalOptions::new(room.path()), |vfs, _| async move {
        let file = vfs.create(Handle::ROOT, &name("file"), OWNER, true, BOTH).await.unwrap().2;
        vfs.close().await;
        assert_eq!(vfs.lookup(Handle::ROOT, &name("file")).await.unwrap_err().status, Status::Unavailable);
        assert_eq!(file.fsync().await.unwrap_err().status, Status::Unavailable);
    });
}

#[test]
fn a_directory_that_its_owner_closed_has_attributes_and_can_be_opened_again() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can become another user");
    }
    let room = tempfile::tempdir().unwrap();
    std::fs::set_permissions(room.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let become_user = |uid| {
        let user = rustix::process::Uid::from_raw;
        rustix::thread::set_thread_res_uid(user(0), user(uid), user(0)).unwrap();
    };
    become_user(65534);
    let options = LocalOptions { inline: true, ..LocalOptions::new(room.path()) };
    run(options, |vfs, _| async move {
        let owner = Owner { uid: 65534, ..DIR_OWNER };
        let made = vfs.mkdir(Handle::ROOT, &name("mine"), owner).await.unwrap();
        for mode in [0, 0o600, 0o700] {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            let attr = vfs.setattr(made.handle, set).await.unwrap();
            assert_eq!((attr.mode, attr.parent), (mode, Handle::ROOT));
            assert_eq!(vfs.getattr(made.handle).await.unwrap().mode, mode);
        }
    });
    become_user(0);
}
