//! Opens of a container by a group: the same bytes as alone, and each index log is opened once.

use super::*;
use shoal_transform::IndexReads;

/// Bytes of a record; writers are interleaved.
const RECORD: u64 = 8;
const RECORDS: u64 = 4;

fn byte_of(writer: u64, record: u64) -> u8 {
    (writer * 31 + record * 7) as u8 | 1
}

/// A file of so many writers. They end without a word, and nothing is flattened; or they close, and the last one
/// flattens.
pub(super) fn write(dir: &Path, writers: u64, closes: bool) {
    let dir = dir.to_owned();
    real::run("writers", move |env| async move {
        let mounted = mount(&env, &dir).await;
        let (_, _, first) = mounted.create(Handle::ROOT, &name(), owner(), true, BOTH).await.unwrap();
        let mut files = vec![first];
        for _ in 1..writers {
            files.push(mounted.open_name(Handle::ROOT, &name(), BOTH).await.unwrap());
        }
        for (writer, file) in files.iter().enumerate() {
            for record in 0..RECORDS {
                let at = (record * writers + writer as u64) * RECORD;
                let data = vec![byte_of(writer as u64, record); RECORD as usize];
                file.write(at, Bytes::from(data)).await.unwrap();
            }
        }
        if !closes {
            return std::mem::forget(files);
        }
        // While another file is open their logs are not folded to one.
        let other = mounted.open_name(Handle::ROOT, &name(), Rights::READ).await.unwrap();
        for file in files {
            file.close().await.unwrap();
        }
        other.close().await.unwrap();
    });
}

fn sum_of(writers: u64) -> u32 {
    let bytes = |at: u64| byte_of(at / RECORD % writers, at / RECORD / writers);
    crc32c::crc32c(&(0..writers * RECORDS * RECORD).map(bytes).collect::<Vec<u8>>())
}

async fn reads_of(
    mounted: &Container<Local>,
    open: impl AsyncFnOnce() -> Result<u32>,
) -> Result<(u32, IndexReads)> {
    let before = mounted.index_reads();
    let sum = open().await?;
    let after = mounted.index_reads();
    Ok((sum, IndexReads { opens: after.opens - before.opens, bytes: after.bytes - before.bytes }))
}

async fn sum<F: VfsFile>(file: F) -> Result<u32> {
    let bytes = file.read(0, 1 << 20).await?;
    file.close().await?;
    Ok(crc32c::crc32c(&bytes))
}

/// Open alone: a sum of the bytes, and the reads of indexes.
async fn alone(env: &Env, dir: &Path) -> Result<(u32, IndexReads)> {
    let mounted = mount(env, dir).await;
    let object = mounted.lookup(Handle::ROOT, &name()).await?.handle;
    reads_of(&mounted, async || sum(mounted.open(object, Rights::READ).await?).await).await
}

pub(super) async fn role(env: &Env, task: &Task) -> Result<String> {
    let mounted = mount(env, &task.dir).await;
    let object = mounted.lookup(Handle::ROOT, &name()).await?.handle;
    let group = mounted.meet(object, &task.meeting).await?;
    if task.role == "dies-in-the-open" {
        // A thread ends with its connections, a process as it is.
        if std::env::var(MEMBER).is_ok() {
            std::process::exit(0);
        }
        return Ok(String::new());
    }
    let opened = async || sum(mounted.open_together(object, Rights::READ, &group).await?).await;
    let (sum, reads) = reads_of(&mounted, opened).await?;
    Ok(format!("{sum} {} {}", reads.opens, reads.bytes))
}

/// All members open it: they have the same bytes; and their reads of indexes together.
fn together(scene: &Scene, over: Over, size: usize, wanted: u32) -> IndexReads {
    let mut reads = IndexReads::default();
    let all = all(scene, over, size, |_| "opens");
    let failed: Vec<_> = all.iter().flat_map(|said| said.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    for said in all.into_iter().flatten() {
        let numbers: Vec<u64> = said.split(' ').map(|word| word.parse().unwrap()).collect();
        assert_eq!(numbers[0], u64::from(wanted));
        reads.opens += numbers[1];
        reads.bytes += numbers[2];
    }
    reads
}

#[test]
fn of_64_writers_64_readers_open_4096_index_logs_alone_64_together_and_one_that_is_flattened() {
    const N: u64 = 64;
    let scene = Scene::with_writers(N);
    let path = scene.dir();
    let each = real::run("alone", move |env| async move {
        let first = alone(&env, &path).await.unwrap();
        for _ in 1..N {
            assert_eq!(alone(&env, &path).await.unwrap(), first);
        }
        first
    });
    assert_eq!((each.0, each.1.opens), (sum_of(N), N), "64 each, so 4096 for all");
    let reads = together(&scene, Over::Threads, N as usize, sum_of(N));
    assert_eq!(reads, each.1, "together as much as one alone");
    let scene = Scene::with_closed_writers(N);
    let reads = together(&scene, Over::Threads, N as usize, sum_of(N));
    assert_eq!(reads.opens, 1, "one opens it, and sends it to all");
}

#[test]
fn sixteen_processes_read_the_same_bytes_and_open_each_index_log_once() {
    let scene = Scene::with_writers(24);
    for over in [Over::Tcp, Over::Unix] {
        assert_eq!(together(&scene, over, 16, sum_of(24)).opens, 24, "{over:?}");
        assert!(!scene.is_left());
    }
}

#[test]
fn more_members_than_index_logs_open_them_once_too() {
    let scene = Scene::with_writers(3);
    assert_eq!(together(&scene, Over::Threads, 8, sum_of(3)).opens, 3);
}

#[test]
fn a_member_that_dies_in_a_collective_open_ends_it_for_all_with_words() {
    for over in [Over::Threads, Over::Tcp] {
        for dying in [0, 5] {
            let scene = Scene::with_writers(4);
            let begun = std::time::Instant::now();
            let said = all(&scene, over, 8, |rank| if rank == dying { "dies-in-the-open" } else { "opens" });
            assert!(begun.elapsed() < PATIENCE, "no deadline was waited for");
            for (_, said) in said.iter().enumerate().filter(|(rank, _)| *rank != dying) {
                let words = said.as_ref().unwrap_err();
                assert!(words.contains(&format!("member {dying} of 8")), "{over:?}: {words}");
            }
        }
    }
}

#[test]
fn damage_that_one_member_meets_fails_the_open_of_all_with_its_words() {
    let scene = Scene::with_writers(6);
    let logs = (0..32).flat_map(|folder| std::fs::read_dir(scene.dir().join(format!("file/h.{folder}"))));
    let is_data = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("data.");
    let log = logs.flatten().map(|entry| entry.unwrap().path()).find(is_data).unwrap();
    // All of its bytes are gone, and its index log has a second entry after them.
    let index = log.with_file_name(log.file_name().unwrap().to_str().unwrap().replace("data.", "index."));
    let mut bytes = std::fs::read(&index).unwrap();
    let end = bytes.len();
    bytes[end - 1] ^= 1;
    std::fs::write(&index, bytes).unwrap();
    let said = all(&scene, Over::Threads, 4, |_| "opens");
    for said in &said {
        let words = said.as_ref().unwrap_err();
        assert!(words.contains("of 4 failed") && words.contains("shoal container check"), "{words}");
    }
}
