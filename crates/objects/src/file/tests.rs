//! The limit of parts.

use crate::{MemoryStore, Objects, ObjectsOptions, PART_BYTES_MIN, PARTS_MAX};
use bytes::Bytes;
use shoal_env::{Env, real};
use shoal_proto::{Handle, Name, Owner, Rights, Status};
use shoal_vfs::{Connect, Vfs, VfsFile};

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };

async fn mount(env: &Env, memory: &MemoryStore) -> Objects {
    ObjectsOptions::new(memory.clone(), "").connect(env.clone()).await.unwrap()
}

#[test]
fn a_file_gets_no_more_parts_than_can_be_read() {
    real::run("test", async |env| {
        let (memory, name) = (MemoryStore::default(), Name::new(b"file").unwrap());
        let vfs = mount(&env, &memory).await;
        let file = vfs.create(Handle::ROOT, &name, OWNER, true, Rights::WRITE).await.unwrap().2;
        let part = Bytes::from(vec![7; PART_BYTES_MIN]);
        for number in 0..PARTS_MAX {
            file.write((number * part.len()) as u64, part.clone()).await.unwrap();
            file.fsync().await.unwrap();
        }
        let len = PARTS_MAX * part.len();
        file.write(len as u64, part.clone()).await.unwrap();
        let refused = file.fsync().await.unwrap_err();
        assert_eq!(refused.status, Status::FileTooBig, "{refused}");
        assert!(refused.words.contains("parts"), "{refused}");
        let there = mount(&env, &memory).await.open_name(Handle::ROOT, &name, Rights::READ).await.unwrap();
        let read = there.read(0, len + 1).await.unwrap();
        assert!(read.len() == len && read.iter().all(|byte| *byte == 7));
        // The bytes that are too many can be cut.
        vfs.truncate(file.handle(), len as u64, false).await.unwrap();
        file.close().await.unwrap();
    });
}
