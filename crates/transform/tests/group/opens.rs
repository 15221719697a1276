//! Opens of a container by a group: the same bytes as alone, and each index log is opened once.

use super::*;
use shoal_transform::IndexReads;

/// Bytes of a record; writers are interleaved.
pub(super) const RECORD: u64 = 8;
pub(super) const RECORDS: u64 = 4;

pub(super) fn byte_of(writer: u64, record: u64) -> u8 {
    (writer * 31 + record * 7) as u8 | 1
}

/// Writers of one mount.
const AT_ONCE: u64 = 100;

/// A file of so many writers, which close.
pub(super) fn write(dir: &Path, writers: u64, index: IndexDesign) {
    let options = ContainerOptions { index, ..options(dir) };
    real::run("writers", move |env| async move {
        for first in (0..writers).step_by(AT_ONCE as usize) {
            let mounted = options.clone().connect(env.clone()).await.unwrap();
            // While another file is open their logs are not folded to one.
            let (_, _, other) = mounted.create(Handle::ROOT, &name(), owner(), false, BOTH).await.unwrap();
            let mut files = Vec::new();
            for writer in first..writers.min(first + AT_ONCE) {
                let file = mounted.open_name(Handle::ROOT, &name(), BOTH).await.unwrap();
                for record in 0..RECORDS {
                    let data = vec![byte_of(writer, record); RECORD as usize];
                    file.write((record * writers + writer) * RECORD, data.into()).await.unwrap();
                }
                files.push(file);
            }
            for file in files {
                file.close().await.unwrap();
            }
            other.close().await.unwrap();
        }
    });
}

pub(super) fn sum_of(writers: u64) -> u32 {
    let bytes = |at: u64| byte_of(at / RECORD % writers, at / RECORD / writers);
    crc32c::crc32c(&(0..writers * RECORDS * RECORD).map(bytes).collect::<Vec<u8>>())
}

async fn sum<F: VfsFile>(file: F) -> Result<u32> {
    let bytes = file.read(0, 1 << 20).await?;
    file.close().await?;
    Ok(crc32c::crc32c(&bytes))
}

/// Open alone: a sum of the bytes, and all reads of indexes since the mount.
async fn alone(options: ContainerOptions<LocalOptions>, env: &Env) -> Result<(u32, IndexReads)> {
    let mounted = options.connect(env.clone()).await?;
    let sum = sum(mounted.open_name(Handle::ROOT, &name(), Rights::READ).await?).await?;
    Ok((sum, mounted.index_reads()))
}

pub(super) async fn role(env: &Env, task: &Task) -> Result<String> {
    if task.role == "opens-as-a-program" {
        let group = Some(task.meeting.clone());
        let options = ContainerOptions { index: IndexDesign::Parallel, group, ..options(&task.dir) };
        let (sum, reads) = alone(options, env).await?;
        return Ok(format!("{sum} {} {}", reads.opens, reads.bytes));
    }
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
    let before = std::time::Instant::now();
    let file = mounted.open_together(object, Rights::READ, &group).await?;
    let took = before.elapsed().as_millis();
    let (sum, reads) = (sum(file).await?, mounted.index_reads());
    Ok(format!("{sum} {} {} {took}", reads.opens, reads.bytes))
}

/// All members open it: they have the same bytes; and their reads of indexes together.
pub(super) fn together(scene: &Scene, over: Over, size: usize, wanted: u32) -> IndexReads {
    reads_of(&all(scene, over, size, |_| "opens"), wanted)
}

pub(super) fn reads_of(all: &[std::result::Result<String, String>], wanted: u32) -> IndexReads {
    let mut reads = IndexReads::default();
    let failed: Vec<_> = all.iter().flat_map(|said| said.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    for said in all.iter().flatten() {
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
    let options = options(&scene.dir());
    let each = real::run("alone", move |env| async move {
        let first = alone(options.clone(), &env).await.unwrap();
        for _ in 1..N {
            assert_eq!(alone(options.clone(), &env).await.unwrap(), first);
        }
        first
    });
    assert_eq!((each.0, each.1.opens), (sum_of(N), N), "64 each, so 4096 for all");
    let reads = together(&scene, Over::Threads, N as usize, sum_of(N));
    assert_eq!(reads, each.1, "together as much as one alone");
    let scene = Scene::written(N, IndexDesign::Flatten);
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

#[test]
fn a_program_s_opens_are_its_group_s_and_each_reads_alone_after_one_that_failed() {
    let scene = Scene::with_writers(12);
    for over in [Over::Threads, Over::Tcp] {
        let said = all(&scene, over, 4, |_| "opens-as-a-program");
        assert_eq!(reads_of(&said, sum_of(12)).opens, 12, "{over:?}");
        assert!(!scene.is_left());
    }
    let patience = Duration::from_millis(200);
    let lonely = Task::of(&scene, Over::Threads, (0, 4), "opens-as-a-program").patient(patience);
    assert_eq!(reads_of(&[member(lonely)], sum_of(12)).opens, 12, "all of them alone");
}

#[test]
fn the_original_design_reads_all_index_logs_also_beside_a_flattened_index() {
    let scene = Scene::written(20, IndexDesign::Flatten);
    for (index, opens) in [(IndexDesign::Original, 20), (IndexDesign::Flatten, 1)] {
        let options = ContainerOptions { index, ..options(&scene.dir()) };
        let read = real::run("alone", move |env| async move { alone(options, &env).await.unwrap() });
        assert_eq!((read.0, read.1.opens), (sum_of(20), opens), "{index:?}");
    }
}

#[test]
fn a_container_over_several_backends_is_opened_together_too() {
    use shoal_transform::FederationOptions;
    const SIZE: usize = 4;
    let home = tempfile::tempdir().unwrap();
    let dirs = ["one", "two", "three"].map(|name| home.path().join(name));
    dirs.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let federated = |index, group| {
        let (local, backends) = (options(&dirs[0]).over, dirs[1..].to_vec());
        ContainerOptions { index, group, ..ContainerOptions::new(FederationOptions::new(local, backends)) }
    };
    let writers = federated(IndexDesign::Original, None);
    real::run("writers", move |env| async move {
        let mounted = writers.connect(env).await.unwrap();
        let (_, _, other) = mounted.create(Handle::ROOT, &name(), owner(), true, BOTH).await.unwrap();
        for at in 0..9 {
            let file = mounted.open_name(Handle::ROOT, &name(), BOTH).await.unwrap();
            file.write(at * 3, Bytes::from_static(b"abc")).await.unwrap();
            std::mem::forget(file);
        }
        std::mem::forget(other);
    });
    let read = |options: ContainerOptions<FederationOptions>| {
        real::run("reader", move |env| async move {
            let mounted = options.connect(env).await.unwrap();
            sum(mounted.open_name(Handle::ROOT, &name(), Rights::READ).await.unwrap()).await.unwrap()
        })
    };
    let expected = crc32c::crc32c(&b"abc".repeat(9));
    assert_eq!(read(federated(IndexDesign::Flatten, None)), expected);
    let listen = Address::Local(home.path().display().to_string());
    let meeting = |rank| Meeting {
        job: "job".to_owned(),
        rank,
        size: SIZE,
        listen: listen.clone(),
        patience: PATIENCE,
    };
    std::thread::scope(|scope| {
        let members: Vec<_> = (0..SIZE)
            .map(|rank| ContainerOptions {
                says: |words| panic!("{words}"),
                ..federated(IndexDesign::Parallel, Some(meeting(rank)))
            })
            .map(|options| scope.spawn(move || read(options)))
            .collect();
        members.into_iter().for_each(|member| assert_eq!(member.join().unwrap(), expected));
    });
}

/// The figures of the documents are those of `SHOAL_GROUP_WRITERS=1000`, with `--nocapture`.
#[test]
fn readers_of_many_writers_read_the_index_logs_once_for_all_of_them() {
    let writers = std::env::var("SHOAL_GROUP_WRITERS").map_or(120, |count| count.parse().unwrap());
    let scene = Scene::with_writers(writers);
    let options = options(&scene.dir());
    let each = real::run("alone", move |env| async move { alone(options, &env).await.unwrap().1 });
    assert_eq!(each.opens, writers);
    for readers in [16, 64] {
        let said = all(&scene, Over::Threads, readers, |_| "opens");
        let (together, count) = (reads_of(&said, sum_of(writers)), readers as u64);
        assert_eq!(together, each, "{readers} readers");
        let took =
            said.iter().flatten().filter_map(|said| said.rsplit(' ').next()?.parse::<u64>().ok()).max();
        println!("{readers} readers of {writers} writers, each alone: {} opens", count * each.opens);
        println!(
            "  {} bytes; together {} opens, {} bytes",
            count * each.bytes,
            together.opens,
            together.bytes
        );
        println!("  the slowest open together took {} ms", took.unwrap_or(0));
    }
}
