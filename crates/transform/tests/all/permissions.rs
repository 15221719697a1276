//! Users that may not use a file of another user.

use crate::scene::{BOTH, mount, name, owner, run};
use crate::skipped::skipped;
use bytes::Bytes;
use shoal_proto::{Handle, Kind, Owner, Rights, Status};
use shoal_transform::{Container, ContainerOptions};
use shoal_vfs::{AnyVfs, Connect as _, Listing, LocalOptions, Vfs, VfsFile};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

const ROOT: u32 = 0;
const OTHER: u32 = 65534;

/// Give this thread another user's rights.
fn become_user(uid: u32) {
    let user = rustix::process::Uid::from_raw;
    rustix::thread::set_thread_res_uid(user(ROOT), user(uid), user(ROOT)).unwrap();
}

async fn seen(vfs: &Container<AnyVfs>) -> Vec<(String, Kind)> {
    let (mut listing, mut seen) = (vfs.opendir(Handle::ROOT, Duration::ZERO), Vec::new());
    while let Some(listed) = listing.next(true).await.unwrap() {
        let text = String::from_utf8(listed.entry.name.as_bytes().to_vec()).unwrap();
        seen.push((text, listed.entry.kind));
    }
    seen.sort_by(|one, other| one.0.cmp(&other.0));
    seen
}

#[test]
fn a_file_that_a_user_may_not_use_is_listed_as_a_file() {
    if owner().uid != ROOT {
        return skipped("only root can become another user");
    }
    run(async |env, dir| {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        let one = mount(&env, dir).await;
        for (text, mode) in [("all", 0o644), ("private", 0o600), ("changed", 0o644)] {
            let owner = Owner { mode, ..owner() };
            let (_, _, file) = one.create(Handle::ROOT, &name(text), owner, true, BOTH).await.unwrap();
            file.write(0, Bytes::from_static(&[1; 100])).await.unwrap();
            file.close().await.unwrap();
        }
        let changed = one.lookup(Handle::ROOT, &name("changed")).await.unwrap();
        let set = shoal_proto::SetAttr { mode: Some(0o640), ..Default::default() };
        one.setattr(changed.handle, set).await.unwrap();
        one.mkdir(Handle::ROOT, &name("secret"), Owner { mode: 0o700, ..owner() }).await.unwrap();
        one.close().await;

        become_user(OTHER);
        let below = LocalOptions { inline: true, ..LocalOptions::new(dir) };
        let two = ContainerOptions::new(below).connect(env.clone()).await.unwrap();
        let file = |text: &str| (text.to_owned(), Kind::File);
        let all = [file("all"), file("changed"), file("private"), ("secret".into(), Kind::Directory)];
        assert_eq!(seen(&two).await, all);
        let private = two.lookup(Handle::ROOT, &name("private")).await.unwrap();
        assert_eq!((private.kind, private.mode, private.size), (Kind::File, 0o600, 0));
        assert_eq!((private.uid, private.nlink), (ROOT, 1));
        let again = two.getattr(private.handle).await.unwrap();
        assert_eq!((again.kind, again.size), (Kind::File, 0));
        let changed = two.lookup(Handle::ROOT, &name("changed")).await.unwrap();
        assert_eq!((changed.kind, changed.mode), (Kind::File, 0o640));
        let refused = two.open(private.handle, Rights::READ).await.err().expect("it may not read it");
        assert_eq!(refused.status, Status::AccessDenied);
        two.close().await;
        become_user(ROOT);
    });
}
