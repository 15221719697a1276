//! Composed directories: a write of a block that fails loses nothing that was acknowledged.

use crate::limits::{alone, with_files_up_to};
use crate::scene::{BOTH, compose, name, run};
use bytes::Bytes;
use shoal_proto::{Handle, Owner, Rights};
use shoal_transform::Composed;
use shoal_transform::composed::tools;
use shoal_vfs::{AnyVfs, Vfs, VfsFile};

type Mounted = Composed<AnyVfs>;
const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const ROOT: Handle = Handle::ROOT;

async fn put(vfs: &Mounted, text: &str, data: &[u8]) {
    let (_, _, file) = vfs.create(ROOT, &name(text), OWNER, true, BOTH).await.unwrap();
    file.write(0, Bytes::copy_from_slice(data)).await.unwrap();
    file.close().await.unwrap();
}

async fn get(vfs: &Mounted, text: &str) -> Option<Vec<u8>> {
    let file = vfs.open_name(ROOT, &name(text), Rights::READ).await.ok()?;
    Some(file.read(0, 1 << 24).await.unwrap().to_vec())
}

#[test]
fn a_failed_write_of_a_block_loses_nothing_that_was_acknowledged() {
    let _alone = alone();
    run(async |env, dir| {
        let vfs = compose(&env, dir, "block=64K").await.unwrap();
        put(&vfs, "before", &[1; 20_000]).await;
        let during = async {
            let (_, _, file) = vfs.create(ROOT, &name("during"), OWNER, true, BOTH).await.unwrap();
            let mut failed = file.write(0, Bytes::from(vec![2; 100_000])).await.is_err();
            failed |= file.close().await.is_err();
            assert!(failed);
            // A file that is only read has no part in it.
            let read = vfs.open_name(ROOT, &name("before"), Rights::READ).await.unwrap();
            assert_eq!(read.read(0, 1 << 24).await.unwrap(), vec![1; 20_000]);
            read.flush().await.unwrap();
            read.close().await.unwrap();
            let reader = compose(&env, dir, "").await.unwrap();
            assert_eq!(get(&reader, "before").await.unwrap(), vec![1; 20_000]);
            reader
        };
        let reader = with_files_up_to(30_000, during).await;
        put(&vfs, "after", &[3; 200_000]).await;
        assert_eq!(get(&vfs, "before").await.unwrap(), vec![1; 20_000]);
        assert_eq!(get(&reader, "after").await.unwrap(), vec![3; 200_000]);
        assert_eq!(tools::check(&reader, |_, _| {}).await.unwrap(), Vec::<String>::new());
    });
}
