//! Recovery gives up bytes, and closes a writer that may run, only with the option for it.

use crate::scene::{BOTH, find, mount, name, owner, run};
use bytes::Bytes;
use shoal_env::Env;
use shoal_proto::{Handle, Rights, Status};
use shoal_transform::Container;
use shoal_transform::container::tools::{self, Allowed};
use shoal_transform::record::{Record, Records};
use shoal_vfs::{Connect as _, Error, LocalOptions, Vfs, VfsFile};
use std::path::{Path, PathBuf};

const STRICT: Allowed = Allowed { lossy: false, ended: false };
const ENDED: Allowed = Allowed { lossy: false, ended: true };
const LOSSY: Allowed = Allowed { lossy: true, ended: false };

/// The logs of a container whose names begin so.
fn logs(container: &Path, prefix: &str) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(container).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let logs = folders.flat_map(|folder| std::fs::read_dir(folder.path()).unwrap().flatten());
    let is_wanted = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(prefix);
    logs.map(|log| log.path()).filter(is_wanted).collect()
}

fn cut_to(path: &Path, len: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Change the words or the boot of the head of each index log.
fn with_head(container: &Path, change: impl Fn(&mut String, &mut [u8; 16])) {
    for log in logs(container, "index.") {
        let bytes = std::fs::read(&log).unwrap();
        let (head, end) = Records::new(&bytes).next().unwrap();
        let Record::Head { version, id, mut boot, mut words } = head else { panic!("no head") };
        change(&mut words, &mut boot);
        let mut new = Record::Head { version, id, boot, words }.encode();
        assert_eq!(new.len() as u64, end, "the head keeps its length");
        new.extend_from_slice(&bytes[end as usize..]);
        std::fs::write(&log, new).unwrap();
    }
}

/// The writers of a container ended: their processes began at another time than that of this id now.
fn writers_ended(container: &Path) {
    with_head(container, |words, _| {
        let at = words.find(", start ").unwrap() + ", start ".len();
        let other = if words.as_bytes()[at] == b'1' { "2" } else { "1" };
        words.replace_range(at..=at, other);
    });
}

/// A file with two synced writes and one that was not, whose writer was killed.
async fn killed(env: &Env, dir: &Path) -> PathBuf {
    let one = mount(env, dir).await;
    let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
    file.write(0, Bytes::from(vec![1; 100])).await.unwrap();
    file.fsync().await.unwrap();
    file.write(1000, Bytes::from(vec![2; 50])).await.unwrap();
    file.fsync().await.unwrap();
    file.write(5000, Bytes::from(vec![3; 10])).await.unwrap();
    std::mem::forget(file);
    writers_ended(&dir.join("f"));
    dir.join("f")
}

async fn recover(env: &Env, dir: &Path, allowed: Allowed) -> Result<tools::Recovered, Error> {
    let seen = mount(env, dir).await;
    let object = seen.over().lookup(Handle::ROOT, &name("f")).await.unwrap().handle;
    tools::recover(&seen, object, allowed).await
}

async fn check(env: &Env, dir: &Path) -> Vec<String> {
    let seen = mount(env, dir).await;
    let object = seen.over().lookup(Handle::ROOT, &name("f")).await.unwrap().handle;
    tools::check(&seen, object).await.unwrap()
}

async fn content(env: &Env, dir: &Path) -> Result<Vec<u8>, Error> {
    let seen = mount(env, dir).await;
    let file = seen.open(find(&seen, "f").await, Rights::READ).await?;
    Ok(file.read(0, 10_000).await?.to_vec())
}

/// All files below with their contents.
fn whole(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.path().is_dir() {
            true => all.extend(whole(&entry.path())),
            false => all.push((entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    all.sort();
    all
}

/// Recovery refuses, changes nothing, and `lossy` gives up what `check` then names.
async fn is_given_up_only_when_asked(env: &Env, dir: &Path, word: &str) {
    let before = whole(&dir.join("f"));
    let found = check(env, dir).await;
    assert!(found.iter().any(|words| words.contains(word)), "{found:?}");
    let refused = recover(env, dir, STRICT).await.unwrap_err();
    assert_eq!(refused.status, Status::Io);
    assert!(refused.words.contains(word) && refused.words.contains("--lossy"), "{refused}");
    assert!(whole(&dir.join("f")) == before, "a refused recovery changed something");
    let recovered = recover(env, dir, LOSSY).await.unwrap();
    assert!(!recovered.lost.is_empty());
    let found = check(env, dir).await;
    assert!(found.len() == 1 && found[0].contains("given up"), "{found:?}");
    content(env, dir).await.unwrap();
    let again = recover(env, dir, STRICT).await.unwrap();
    assert_eq!((again.closed, again.lost.len()), (0, 0));
}

#[test]
fn a_killed_writer_is_closed_and_nothing_of_it_is_given_up() {
    run(async |env, dir| {
        let container = killed(&env, dir).await;
        let before = content(&env, dir).await.unwrap();
        assert_eq!(before.len(), 5010);
        // A record that was being written.
        let index = logs(&container, "index.").pop().unwrap();
        let mut bytes = std::fs::read(&index).unwrap();
        bytes.extend_from_slice(&Record::End { size: 7, stamp: 8 }.encode()[..20]);
        std::fs::write(&index, bytes).unwrap();
        assert_eq!(recover(&env, dir, STRICT).await.unwrap().closed, 1);
        assert_eq!(check(&env, dir).await, Vec::<String>::new());
        assert!(content(&env, dir).await.unwrap() == before);
    });
}

#[test]
fn a_data_log_that_lacks_synced_bytes_is_not_closed_in_silence() {
    run(async |env, dir| {
        let container = killed(&env, dir).await;
        cut_to(&logs(&container, "data.").pop().unwrap(), 120);
        assert_eq!(content(&env, dir).await.unwrap_err().status, Status::Io);
        is_given_up_only_when_asked(&env, dir, "are gone").await;
        let left = content(&env, dir).await.unwrap();
        assert!(left[..100].iter().all(|byte| *byte == 1) && left[1000..1020].iter().all(|byte| *byte == 2));
    });
}

#[test]
fn an_index_log_that_lacks_what_was_synced_is_not_closed_in_silence() {
    run(async |env, dir| {
        let container = killed(&env, dir).await;
        let index = logs(&container, "index.").pop().unwrap();
        let bytes = std::fs::read(&index).unwrap();
        let ends: Vec<u64> = Records::new(&bytes).map(|(_, end)| end).collect();
        // Head, entry and name of the first write stay.
        cut_to(&index, ends[2]);
        is_given_up_only_when_asked(&env, dir, "were synced").await;
        assert_eq!(content(&env, dir).await.unwrap(), vec![1; 100], "bytes without an entry are invented");
    });
}

#[test]
fn a_damaged_record_in_an_index_log_is_not_taken_for_a_torn_end() {
    run(async |env, dir| {
        let container = killed(&env, dir).await;
        let index = logs(&container, "index.").pop().unwrap();
        let mut bytes = std::fs::read(&index).unwrap();
        let ends: Vec<u64> = Records::new(&bytes).map(|(_, end)| end).collect();
        bytes[ends[2] as usize + 12] ^= 1;
        std::fs::write(&index, bytes).unwrap();
        assert_eq!(content(&env, dir).await.unwrap_err().status, Status::Io);
        is_given_up_only_when_asked(&env, dir, "is damaged").await;
        assert_eq!(content(&env, dir).await.unwrap(), vec![1; 100]);
    });
}

#[test]
fn a_closed_writer_whose_log_was_damaged_later_is_not_mended_in_silence() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.write(0, Bytes::from(vec![1; 100])).await.unwrap();
        file.write(1000, Bytes::from(vec![2; 50])).await.unwrap();
        file.close().await.unwrap();
        cut_to(&logs(&dir.join("f"), "data.").pop().unwrap(), 120);
        assert_eq!(content(&env, dir).await.unwrap_err().status, Status::Io);
        is_given_up_only_when_asked(&env, dir, "closed it with").await;
    });
}

#[test]
fn a_writer_that_was_killed_as_it_began_to_continue_its_closed_log_is_no_damage() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.write(0, Bytes::from(vec![1; 100])).await.unwrap();
        file.fsync().await.unwrap();
        file.close().await.unwrap();
        let index = logs(&dir.join("f"), "index.").pop().unwrap();
        let closed = std::fs::read(&index).unwrap();
        std::fs::write(&index, [&closed[..], &Record::Named { data: 100 }.encode()].concat()).unwrap();
        assert_eq!(check(&env, dir).await, [""; 0]);
        assert_eq!(content(&env, dir).await.unwrap(), vec![1; 100]);
        // Any other record is damage: its writer had closed the log.
        std::fs::write(&index, [&closed[..], &Record::Named { data: 99 }.encode()].concat()).unwrap();
        assert!(check(&env, dir).await[0].contains("closed it with"));
    });
}

#[test]
fn what_was_not_synced_before_a_restart_is_given_up_only_when_asked() {
    run(async |env, dir| {
        let container = killed(&env, dir).await;
        with_head(&container, |_, boot| boot[0] ^= 1);
        assert_eq!(content(&env, dir).await.unwrap().len(), 1050, "unsynced bytes are not believed");
        let refused = recover(&env, dir, STRICT).await.unwrap_err();
        assert!(refused.words.contains("10 bytes") && refused.words.contains("did not sync"), "{refused}");
        recover(&env, dir, LOSSY).await.unwrap();
        assert_eq!(content(&env, dir).await.unwrap().len(), 1050, "recovery invents bytes");
        assert!(check(&env, dir).await[0].contains("given up"));
    });
}

#[test]
fn a_writer_that_runs_or_may_run_is_not_taken_for_dead() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.write(0, Bytes::from(vec![1; 100])).await.unwrap();
        for allowed in [STRICT, ENDED] {
            let refused = recover(&env, dir, allowed).await.unwrap_err();
            assert_eq!(refused.status, Status::Busy);
            assert!(refused.words.contains("runs"), "{refused}");
        }
        std::mem::forget(file);
        // Of another host.
        with_head(&dir.join("f"), |words, boot| {
            boot[0] ^= 1;
            words.replace_range(0..1, if words.starts_with('x') { "y" } else { "x" });
        });
        let refused = recover(&env, dir, STRICT).await.unwrap_err();
        assert!(refused.words.contains("another host") && refused.words.contains("--ended"), "{refused}");
        let allowed = Allowed { lossy: true, ended: true };
        assert_eq!(recover(&env, dir, allowed).await.unwrap().closed, 1);
    });
}

#[test]
fn a_writer_of_another_pid_namespace_is_taken_for_alive() {
    run(async |env, dir| {
        let container = killed(&env, dir).await;
        with_head(&container, |words, _| {
            let last = words.pop().unwrap();
            words.push(if last == '1' { '2' } else { '1' });
        });
        let refused = recover(&env, dir, STRICT).await.unwrap_err();
        assert!(refused.status == Status::Busy && refused.words.contains("PID namespace"), "{refused}");
        assert_eq!(recover(&env, dir, ENDED).await.unwrap().closed, 1);
        assert_eq!(content(&env, dir).await.unwrap().len(), 5010);
    });
}

#[test]
fn containers_in_the_bin_stay_while_their_process_runs() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.write(0, Bytes::from(vec![1; 100])).await.unwrap();
        one.unlink(Handle::ROOT, &name("f")).await.unwrap();
        let two = mount(&env, dir).await;
        for allowed in [STRICT, ENDED] {
            let kept = tools::empty_bin(&two, allowed).await.unwrap();
            assert_eq!((kept.deleted, kept.kept), (0, 1));
        }
        assert_eq!(file.read(0, 1000).await.unwrap().len(), 100);
        // Of a process that ended, and of one that is not known.
        let bin = dir.join(".shoal");
        let gone = std::fs::read_dir(&bin).unwrap().flatten().next().unwrap().file_name();
        let other = format!("{}9", gone.to_str().unwrap());
        std::fs::create_dir(bin.join(other)).unwrap();
        std::fs::create_dir(bin.join(format!("new.{}", "1".repeat(32)))).unwrap();
        let emptied = tools::empty_bin(&two, STRICT).await.unwrap();
        assert_eq!((emptied.deleted, emptied.kept), (1, 2));
        assert_eq!(tools::empty_bin(&two, ENDED).await.unwrap().deleted, 1);
    });
}

#[test]
fn what_an_ended_process_removed_is_deleted_by_the_next_one_that_opens_the_directory() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.write(0, Bytes::from(vec![1; 100])).await.unwrap();
        one.unlink(Handle::ROOT, &name("f")).await.unwrap();
        let bin = dir.join(".shoal");
        let names = || {
            let mut names: Vec<_> =
                std::fs::read_dir(&bin).unwrap().flatten().map(|e| e.file_name()).collect();
            names.sort();
            names
        };
        let open = names().remove(0);
        // As of this process number in another life, and of one that may run elsewhere.
        let ended = format!("{}9", open.to_str().unwrap());
        for text in [ended.clone(), format!("gone.{}", "1".repeat(32))] {
            std::fs::create_dir_all(bin.join(&text).join("h.3")).unwrap();
            std::fs::write(bin.join(&text).join(format!("h.3/data.{}", "2".repeat(32))), [7; 5000]).unwrap();
        }
        let before = names();
        let below = LocalOptions::new(dir).connect(env.clone()).await.unwrap();
        let looks = Container::checked(env.clone(), below).await.unwrap();
        let left = tools::leftovers(&looks).await.unwrap();
        assert_eq!(left.len(), 2, "{left:?}");
        let is_said =
            |of: &str, words: &str| left.iter().any(|left| left.contains(of) && left.contains(words));
        assert!(is_said(&ended, "5000 bytes; its process has ended"), "{left:?}");
        assert!(is_said("1111", "may run") && is_said("1111", "--ended"), "{left:?}");
        assert_eq!(names(), before, "a look deletes nothing");
        // A mount deletes it in the background.
        mount(&env, dir).await.close().await;
        assert_eq!(names().len(), 2);
        assert!(!bin.join(ended).exists());
        assert_eq!(file.read(0, 1000).await.unwrap().len(), 100, "an open file lives on");
    });
}
