//! Meetings: members that never come, strangers, and files of other jobs.

use super::*;
use shoal_env::{Stream, real};
use std::io::IoSlice;

/// A message as members send it.
fn frame(len: u64, bytes: &[u8]) -> Vec<u8> {
    let sum = crc32c::crc32c(bytes).to_le_bytes();
    [&[0][..], &len.to_le_bytes(), &sum, bytes].concat()
}

async fn send(stream: &mut Stream, bytes: &[u8]) {
    stream.writer.write_all(&mut [IoSlice::new(bytes)]).await.unwrap();
}

/// Bytes until the other side closes, or so many.
async fn read(stream: &mut Stream, most: usize) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), [0; 256]);
    while all.len() < most {
        match stream.reader.read(&mut buf).await {
            Ok(0) | Err(_) => break,
            Ok(read) => all.extend_from_slice(&buf[..read]),
        }
    }
    all
}

/// Do it with a connection to member 0 of a meeting, as a stranger that can list the directory and no more.
fn as_stranger<T: Send + 'static>(scene: &Scene, work: impl AsyncFnOnce(Stream) -> T + Send + 'static) -> T {
    let text = wait_for(&scene.meeting_file());
    let address: Address = text.lines().nth(1).unwrap().parse().unwrap();
    real::run("stranger", move |env| async move {
        let stream = env.connect(&address).await.unwrap();
        env.deadline(env.now() + PATIENCE, work(stream)).await.unwrap()
    })
}

/// Member 0 waits while `strangers` do their part; then the other member comes, and both meet.
fn met_in_spite_of(strangers: impl Fn(&Scene)) {
    for over in ALL {
        let scene = Scene::with_writers(1);
        let first = begin(over, Task::of(&scene, over, (0, 2), "gathers"));
        // Streams between threads are this process's own: of other processes only sockets are reached.
        strangers(&scene);
        let second = begin(over, Task::of(&scene, over, (1, 2), "gathers"));
        assert_eq!(first.said(), Ok("2".to_owned()), "{over:?}");
        assert_eq!(second.said(), Ok("2".to_owned()), "{over:?}");
    }
}

const HELLO: &[u8] = b"shoal member 1 job 1 2\n0123456789abcdef";

#[test]
fn a_stranger_without_the_secret_is_closed_out_and_the_members_meet() {
    met_in_spite_of(|scene| {
        let answered = as_stranger(scene, async |mut stream| {
            send(&mut stream, &frame(HELLO.len() as u64, HELLO)).await;
            // Member 0's random bytes and proof.
            assert_eq!(read(&mut stream, 13 + 48).await.len(), 13 + 48);
            send(&mut stream, &frame(32, &[7; 32])).await;
            read(&mut stream, usize::MAX).await
        });
        assert_eq!(answered, b"", "closed without a word");
    });
}

#[test]
fn a_hello_that_claims_to_be_long_is_closed_out_before_it_is_read() {
    met_in_spite_of(|scene| {
        for len in [257, 1 << 30, u64::MAX] {
            let answered = as_stranger(scene, async move |mut stream| {
                send(&mut stream, &frame(len, b"")).await;
                read(&mut stream, usize::MAX).await
            });
            assert_eq!(answered, b"", "{len} bytes");
        }
    });
}

#[test]
fn a_member_that_comes_again_replaces_its_first_connection() {
    for over in ALL {
        let scene = Scene::with_writers(1);
        let tasks = |rank| Task::of(&scene, over, (rank, 3), "gathers");
        let first = begin(over, tasks(0));
        // It is accepted, and gives up before all have come.
        let gone = tasks(1);
        real::run("gone", move |env| async move {
            let mounted = mount(&env, &gone.dir).await;
            let object = mounted.lookup(Handle::ROOT, &name()).await.unwrap().handle;
            let until = env.now() + Duration::from_millis(200);
            assert!(env.deadline(until, mounted.meet(object, &gone.meeting)).await.is_err());
        });
        let others = [begin(over, tasks(1)), begin(over, tasks(2))];
        for begun in std::iter::once(first).chain(others) {
            assert_eq!(begun.said(), Ok("3".to_owned()), "{over:?}");
        }
    }
}

#[test]
fn members_that_never_come_are_named_to_all_when_the_time_is_over() {
    for over in [Over::Threads, Over::Tcp] {
        let scene = Scene::with_writers(1);
        let patience = Duration::from_millis(if over == Over::Threads { 1000 } else { 3000 });
        let task = |rank| Task::of(&scene, over, (rank, 5), "gathers").patient(patience);
        let begun: Vec<Begun> = [0, 2, 3].into_iter().map(|rank| begin(over, task(rank))).collect();
        for begun in begun {
            let words = begun.said().unwrap_err();
            let is_named = words.contains("2 of 5 members did not come within") && words.contains(": 1, 4");
            assert!(words.starts_with("TimedOut") && is_named, "{over:?}: {words}");
        }
        assert!(!scene.is_left());
    }
}

#[test]
fn a_member_that_finds_no_member_0_says_what_it_tried() {
    let scene = Scene::with_writers(1);
    let task = Task::of(&scene, Over::Tcp, (1, 2), "gathers").patient(Duration::from_millis(100));
    let words = member(task.clone()).unwrap_err();
    assert!(words.contains("did not find member 0") && words.contains("no such file"), "{words}");
    std::fs::write(scene.meeting_file(), "damaged").unwrap();
    let words = member(task).unwrap_err();
    assert!(words.contains("did not find member 0") && words.contains("damaged"), "{words}");
}

#[test]
fn a_member_with_another_size_is_refused_with_the_remedy_and_the_others_meet() {
    for over in ALL {
        let scene = Scene::with_writers(1);
        let first = begin(over, Task::of(&scene, over, (0, 2), "gathers"));
        let words = begin(over, Task::of(&scene, over, (3, 4), "gathers")).said().unwrap_err();
        assert!(words.starts_with("Invalid") && words.contains("the same job and size"), "{words}");
        let second = begin(over, Task::of(&scene, over, (1, 2), "gathers"));
        assert_eq!((first.said(), second.said()), (Ok("2".to_owned()), Ok("2".to_owned())));
    }
}

#[test]
fn a_later_jobs_file_is_left_alone() {
    let scene = Scene::with_writers(1);
    let task = Task::of(&scene, Over::Threads, (0, 2), "gathers").patient(Duration::from_millis(300));
    let first = begin(Over::Threads, task);
    let own = wait_for(&scene.meeting_file());
    let aside = scene.dir().join("aside");
    std::fs::write(&aside, "another's").unwrap();
    std::fs::rename(&aside, scene.meeting_file()).unwrap();
    assert!(first.said().is_err() && own.starts_with("shoal group 1\n"));
    assert_eq!(std::fs::read_to_string(scene.meeting_file()).unwrap(), "another's");
}
