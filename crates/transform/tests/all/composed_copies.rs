//! Composed directories into which trees are copied: files that are made with their bytes.

use crate::scene::{compose, name, owner, run};
use bytes::Bytes;
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::{Listing as _, Vfs as _, VfsFile as _};
use std::time::Duration;

const ROOT: Handle = Handle::ROOT;

#[test]
fn a_small_file_that_is_made_with_its_bytes_is_published_with_all_of_them_or_not_at_all() {
    const LEN: usize = 1500;
    run(async |env, dir| {
        let vfs = compose(&env, dir, "block=16K,buffer=block").await.unwrap();
        let other = compose(&env, dir, "").await.unwrap();
        let mut found = 0;
        for n in 0..100u8 {
            let data = Bytes::from(vec![n + 1; LEN]);
            let made = vfs.create_write(ROOT, &name(&n.to_string()), owner(), data).await.unwrap();
            assert_eq!(made.nlink, 1);
            other.refreshed().await.unwrap();
            let mut listing = other.opendir(ROOT, Duration::from_secs(1));
            found = 0;
            while let Some(listed) = listing.next(true).await.unwrap() {
                let attr = listed.entry.attr.unwrap();
                assert_eq!(attr.size, LEN as u64, "{} after {n}", listed.entry.name);
                found += 1;
            }
        }
        assert!(found > 50, "{found} were published");
        let again = vfs.create_write(ROOT, &name("7"), owner(), Bytes::from_static(b"other")).await;
        assert_eq!(again.unwrap_err().status, Status::Exists);
        vfs.close().await;
        other.refreshed().await.unwrap();
        for n in 0..100u8 {
            let file = other.open_name(ROOT, &name(&n.to_string()), Rights::READ).await.unwrap();
            assert_eq!(file.read(0, 2 * LEN).await.unwrap(), vec![n + 1; LEN]);
        }
    });
}
