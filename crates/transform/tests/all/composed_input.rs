//! Bad input to composed directories: each is an error with the place and the remedy, and only the damaged
//! parts are lost.

use crate::scene::{BOTH, compose, name, run};
use bytes::Bytes;
use shoal_env::Env;
use shoal_proto::{Handle, Owner, Rights, Status};
use shoal_transform::composed::format::{HEADER_BYTES, Header, Op, Record, Settings, stamp};
use shoal_transform::composed::tools;
use shoal_transform::{Composed, ComposedOptions, Wishes, WriterId};
use shoal_vfs::{AnyVfs, Connect, Error, LocalOptions, Vfs, VfsFile};
use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;

type Mounted = Composed<AnyVfs>;
const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const ROOT: Handle = Handle::ROOT;
const BLOCK: u64 = 16 << 10;

async fn refused(env: &Env, dir: &Path, words: &str, says: &[&str]) -> Error {
    let Err(error) = compose(env, dir, words).await else { panic!("it is opened: {says:?}") };
    assert!(says.iter().all(|said| error.to_string().contains(said)), "{error} has not all of {says:?}");
    error
}

async fn put(vfs: &Mounted, text: &str, data: &[u8]) -> shoal_vfs::Result<()> {
    let (_, _, file) = vfs.create(ROOT, &name(text), OWNER, true, BOTH).await?;
    file.write(0, Bytes::copy_from_slice(data)).await?;
    file.close().await
}

async fn get(vfs: &Mounted, text: &str) -> shoal_vfs::Result<Vec<u8>> {
    let file = vfs.open_name(ROOT, &name(text), Rights::READ).await?;
    Ok(file.read(0, 1 << 24).await?.to_vec())
}

/// A directory with files of 6000 bytes, of one writer: two in a block.
async fn filled(env: &Env, dir: &Path, files: u8) {
    let vfs = compose(env, dir, "block=16K").await.unwrap();
    for n in 0..files {
        put(&vfs, &format!("{n}"), &[n + 1; 6000]).await.unwrap();
    }
    vfs.close().await;
}

/// Overwrite bytes of the physical file.
fn smash(dir: &Path, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(dir.join("blocks.0")).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// The blocks of a lane in the first round begin here.
const fn lane(lane: u64) -> u64 {
    lane * 64 * BLOCK
}

#[test]
fn a_block_that_was_overwritten_is_named_and_costs_what_is_in_it_only() {
    run(async |env, dir| {
        filled(&env, dir, 20).await;
        let (blocks, merged) = (dir.join("blocks.0"), dir.join("merged"));
        let whole = [fs::read(&blocks).unwrap(), fs::read(&merged).unwrap()];
        // The second block of this writer is the first of lane 1: a byte of its data, then its header.
        for (at, words) in [(lane(1) + 9000, "torn at byte"), (lane(1), "no block of this directory")] {
            for has_merged in [true, false] {
                fs::write(&blocks, &whole[0]).unwrap();
                smash(dir, at, &[0xff; 40]);
                match has_merged {
                    true => fs::write(&merged, &whole[1]).unwrap(),
                    false => fs::remove_file(&merged).unwrap(),
                }
                let vfs = compose(&env, dir, "").await.unwrap();
                let found = tools::check(&vfs, |_, _| {}).await.unwrap();
                assert!(
                    found.iter().any(|line| line.contains(words) && line.contains("block 64 ")),
                    "{found:?}"
                );
                let (mut right, mut lost) = (0, 0);
                for n in 0..20u8 {
                    match get(&vfs, &format!("{n}")).await {
                        Ok(bytes) if bytes == vec![n + 1; 6000] => right += 1,
                        Ok(bytes) => {
                            // Without the merged directory the lost records are not known.
                            assert!(!has_merged, "a wrong byte is never read: {n}, {}", bytes.len());
                            assert!(bytes.iter().all(|byte| [0, n + 1].contains(byte)), "{n}");
                            lost += 1;
                        }
                        Err(error) => {
                            assert!(matches!(error.status, Status::Io | Status::NotFound), "{error}");
                            lost += 1;
                        }
                    }
                }
                assert!(
                    right >= 16 && lost > 0,
                    "{right} right, {lost} lost, with the merged directory: {has_merged}"
                );
                drop(vfs);
            }
        }
    });
}

/// With a sum that is right, as only an attacker makes it.
#[test]
fn a_merged_directory_that_names_places_beyond_its_blocks_is_not_believed() {
    run(async |env, dir| {
        filled(&env, dir, 5).await;
        let whole = fs::read(dir.join("merged")).unwrap();
        // The first extent comes after 62 bytes and the count: its writer after 12 more, then the blocks that
        // are done, how far the next one is known, and whether that is all.
        let first = 62 + 4 + 12 + 16;
        for (done, at) in [(0, u32::MAX), (0, BLOCK as u32 + 1), (u32::MAX, 0), (2, 64)] {
            let mut bytes = whole.clone();
            bytes[first..first + 4].copy_from_slice(&u32::to_le_bytes(done));
            bytes[first + 4..first + 8].copy_from_slice(&u32::to_le_bytes(at));
            bytes[first + 8] = 0;
            let sum = crc32c::crc32c(&bytes[12..]);
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            fs::write(dir.join("merged"), &bytes).unwrap();
            let vfs = compose(&env, dir, "").await.unwrap();
            put(&vfs, &format!("{done} {at}"), b"bytes").await.unwrap();
            for n in 0..5 {
                assert_eq!(get(&vfs, &format!("{n}")).await.unwrap(), vec![n + 1; 6000]);
            }
            drop(vfs);
        }
    });
}

#[test]
fn a_physical_file_that_is_cut_short_missing_or_another_directorys_is_said() {
    run(async |env, dir| {
        filled(&env, dir, 20).await;
        let file = dir.join("blocks.0");
        let whole = fs::read(&file).unwrap();
        fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(lane(2) + 100).unwrap();
        let vfs = compose(&env, dir, "").await.unwrap();
        let found = tools::check(&vfs, |_, _| {}).await.unwrap();
        assert!(found.iter().any(|line| line.contains("lost")), "{found:?}");
        assert_eq!(get(&vfs, "0").await.unwrap(), vec![1; 6000]);
        let error = get(&vfs, "19").await.unwrap_err();
        assert!(error.to_string().contains("shoal composed check"), "{error}");
        drop(vfs);
        fs::remove_file(&file).unwrap();
        refused(&env, dir, "", &["blocks.0", "restore it"]).await;
        assert!(!file.exists(), "none is made in its place");
        // Two directories on one file: the second one finds no block of its own.
        let other = tempfile::tempdir().unwrap();
        filled(&env, other.path(), 3).await;
        fs::copy(other.path().join("blocks.0"), &file).unwrap();
        let vfs = compose(&env, dir, "").await.unwrap();
        let found = tools::check(&vfs, |_, _| {}).await.unwrap();
        assert!(
            found.iter().any(|line| line.contains("of another directory with the same file")),
            "{found:?}"
        );
        drop(vfs);
        fs::write(&file, whole).unwrap();
        let vfs = compose(&env, dir, "").await.unwrap();
        assert_eq!(get(&vfs, "19").await.unwrap(), vec![20; 6000]);
    });
}

#[test]
fn foreign_files_among_markers_and_claims_of_more_than_a_file_can_be_are_named_and_harm_nothing() {
    run(async |env, dir| {
        filled(&env, dir, 3).await;
        fs::write(dir.join("claims/notes.txt"), "mine").unwrap();
        fs::write(dir.join("names/0000000000000001.new"), "mine").unwrap();
        // 2^48 blocks.
        symlink("x", dir.join(format!("claims/0.0.{}", 1u64 << 48))).unwrap();
        // A claim without a block.
        symlink(WriterId([5; 16]).to_string(), dir.join("claims/0.0.9")).unwrap();
        let vfs = compose(&env, dir, "").await.unwrap();
        assert_eq!(get(&vfs, "2").await.unwrap(), vec![3; 6000]);
        put(&vfs, "further", b"bytes").await.unwrap();
        let error = put(&vfs, "new", b"bytes").await.unwrap_err();
        assert!(error.to_string().contains("not a marker"), "{error}");
        let found = tools::check(&vfs, |_, _| {}).await.unwrap();
        for words in ["claims/notes.txt", "claims/0.0.281474976710656", "names/0000000000000001.new"] {
            assert!(found.iter().any(|line| line.contains(words)), "{words}: {found:?}");
        }
        assert_eq!(found.len(), 3);
        assert_eq!(fs::read(dir.join("claims/notes.txt")).unwrap(), b"mine");
    });
}

#[test]
fn numbers_that_no_directory_reaches_cost_a_check_and_a_compaction_no_time() {
    run(async |env, dir| {
        filled(&env, dir, 3).await;
        let id = Settings::decode(&fs::read(dir.join(".shoal-composed")).unwrap()).unwrap();
        let writer = WriterId([5; 16]);
        for (place, sequence) in [(9, 3), (10, 1 << 40), (11, u64::MAX)] {
            symlink(writer.to_string(), dir.join(format!("claims/0.0.{place}"))).unwrap();
            let header = Header { writer, sequence, previous: 0, place, directory: id.short_id() };
            smash(dir, place * BLOCK, &header.encode());
        }
        // Lists of compactions: not of this program, far ahead, and the largest number.
        fs::write(dir.join("claims/r.007"), "end\n").unwrap();
        fs::write(dir.join("claims/r.1000000000000"), "end\n").unwrap();
        let vfs = compose(&env, dir, "").await.unwrap();
        let found = tools::check(&vfs, |_, _| {}).await.unwrap();
        let missing = found.iter().filter(|line| line.contains("missing")).collect::<Vec<_>>();
        assert_eq!(missing.len(), 2, "{found:#?}");
        assert!(missing[0].contains("blocks 4 to 1099511627775 of writer"), "{missing:?}");
        assert!(found.iter().any(|line| line.contains("claims/r.007")), "{found:#?}");
        tools::compact(&vfs, |_, _| {}).await.unwrap();
        assert_eq!(get(&vfs, "2").await.unwrap(), vec![3; 6000]);
        vfs.close().await;
        assert!(!dir.join("claims/r.1000000000000").exists());
        fs::write(dir.join(format!("claims/r.{}", u64::MAX)), "end\n").unwrap();
        let vfs = compose(&env, dir, "").await.unwrap();
        put(&vfs, "further", b"bytes").await.unwrap();
        vfs.close().await;
        let vfs = compose(&env, dir, "").await.unwrap();
        let error = tools::compact(&vfs, |_, _| {}).await.unwrap_err();
        assert!(error.to_string().contains("claims/r.18446744073709551615"), "{error}");
        assert_eq!(get(&vfs, "2").await.unwrap(), vec![3; 6000]);
    });
}

#[test]
fn a_block_without_a_claim_is_not_believed() {
    run(async |env, dir| {
        filled(&env, dir, 1).await;
        let id = Settings::decode(&fs::read(dir.join(".shoal-composed")).unwrap()).unwrap();
        let header = Header {
            writer: WriterId([9; 16]),
            sequence: 0,
            previous: 0,
            place: 7,
            directory: id.short_id(),
        };
        let mut bytes = header.encode();
        assert_eq!(bytes.len(), HEADER_BYTES);
        let bind = shoal_transform::composed::format::Bind { dir: ROOT.0, name: name("0"), object: 0 };
        let op = Op::Bind(vec![bind]);
        bytes.extend(Record { stamp: stamp(u64::MAX / 2, 1), object: 0, op }.encode(&[]));
        smash(dir, 7 * BLOCK, &bytes);
        let vfs = compose(&env, dir, "").await.unwrap();
        assert_eq!(get(&vfs, "0").await.unwrap(), vec![1; 6000]);
    });
}

#[test]
fn a_directory_of_other_files_other_settings_and_a_newer_format_are_refused_and_stay() {
    run(async |env, dir| {
        fs::write(dir.join("thesis.tex"), "mine").unwrap();
        refused(&env, dir, "", &["thesis.tex", "begin with an empty directory"]).await;
        assert_eq!(fs::read_dir(dir).unwrap().count(), 1, "nothing is made beside it");
        fs::remove_file(dir.join("thesis.tex")).unwrap();
        filled(&env, dir, 2).await;
        refused(&env, dir, "block=64K", &["block=16384", "65536", "leave `block` out"]).await;
        refused(&env, dir, "files=2", &["files=1"]).await;
        let settings = fs::read(dir.join(".shoal-composed")).unwrap();
        let mut newer = settings.clone();
        newer[12] = 9;
        fs::write(dir.join(".shoal-composed"), &newer).unwrap();
        refused(&env, dir, "", &["format 9 is newer", "use a newer shoal"]).await;
        fs::write(dir.join(".shoal-composed"), &settings[..20]).unwrap();
        refused(&env, dir, "", &["damaged"]).await;
        fs::write(dir.join(".shoal-composed"), &settings).unwrap();
        // A block of a newer format.
        smash(dir, 12, &[9]);
        fs::remove_file(dir.join("merged")).unwrap();
        refused(&env, dir, "", &["format 9 is newer"]).await;
        smash(dir, 12, &[1]);
        let vfs = compose(&env, dir, "").await.unwrap();
        assert_eq!(get(&vfs, "1").await.unwrap(), vec![2; 6000]);
        fs::remove_dir_all(dir.join("claims")).unwrap();
        refused(&env, dir, "", &["`claims`", "restore it"]).await;
    });
}

#[test]
fn clocks_an_hour_apart_lose_nothing_that_was_written_after_it_was_seen() {
    use shoal_env::sim::{Config, World};
    let world = World::new(5, Config::default());
    let machine = world.machine("ahead");
    let process = world.process("one", machine);
    world.jump_wall(machine, 3_600_000_000_000);
    async fn open(env: &Env) -> Mounted {
        let over = LocalOptions::new("/a/directory");
        ComposedOptions { over, wishes: Wishes::default() }.connect(env.clone()).await.unwrap()
    }
    world.complete(process, |env| async move {
        let vfs = open(&env).await;
        put(&vfs, "f", &[1; 1000]).await.unwrap();
        vfs.close().await;
    });
    world.jump_wall(machine, -7_200_000_000_000);
    world.complete(process, |env| async move {
        let vfs = open(&env).await;
        let file = vfs.open_name(ROOT, &name("f"), BOTH).await.unwrap();
        vfs.truncate(file.handle(), 10, false).await.unwrap();
        file.write(5, Bytes::from_static(b"later")).await.unwrap();
        file.close().await.unwrap();
        assert_eq!(get(&vfs, "f").await.unwrap(), b"\x01\x01\x01\x01\x01later");
        vfs.unlink(ROOT, &name("f")).await.unwrap();
        let again = open(&env).await;
        assert_eq!(get(&again, "f").await.unwrap_err().status, Status::NotFound);
    });
}

/// The bytes of format 1, as they were when it was made.
#[test]
fn the_bytes_of_the_format_are_those_that_were_recorded() {
    let settings = Settings { version: 1, id: [7; 16], block: 1 << 20, files: 2 };
    let header = Header { writer: WriterId([3; 16]), sequence: 1, previous: 5, place: 9, directory: 11 };
    let record = Record { stamp: stamp(2, 3), object: 4, op: Op::Data { offset: 10, len: 5 } };
    let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let written =
        [hex(settings.encode()), hex(header.encode()), hex(record.encode(b"bytes"))].join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/composed.1.txt");
    if std::env::var_os("SHOAL_WRITE_FIXTURES").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &written).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), written);
}
