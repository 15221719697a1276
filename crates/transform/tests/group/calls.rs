//! The calls of a group, also when a member fails: one suite for threads and processes.

use super::*;
use shoal_transform::group::{Group, Members};

/// Bytes of a member in one round: none, some, and many.
fn bytes_of(rank: usize, round: usize) -> Bytes {
    let len = [0, 10 + rank, 300_000 + rank][round % 3];
    (0..len).map(|at| (at * 31 + rank * 7 + round) as u8).collect::<Vec<u8>>().into()
}

pub(super) async fn role(env: &Env, task: &Task) -> Result<String> {
    let mounted = mount(env, &task.dir).await;
    let object = mounted.lookup(Handle::ROOT, &name()).await?.handle;
    let group = mounted.meet(object, &task.meeting).await?;
    match task.role.as_str() {
        "calls" => calls(&group).await,
        "gathers" => group.all_gather(Bytes::from_static(b"x")).await.map(|all| all.len().to_string()),
        "dies" if std::env::var(MEMBER).is_ok() => std::process::exit(0),
        "dies" => Ok("ended without a word".to_owned()),
        "is-silent" => {
            while !task.dir.join("../over").exists() {
                env.sleep(Duration::from_millis(10)).await;
            }
            Ok("woke".to_owned())
        }
        "gathers-in-a-second" => {
            let all = group.patient(Duration::from_secs(1)).all_gather(Bytes::from_static(b"x")).await;
            all.map(|all| all.len().to_string())
        }
        "sends-too-much" => {
            let bytes = Bytes::from(vec![0; (256 << 20) + 1]);
            let all = match group.rank() {
                0 => group.broadcast(bytes).await.map(drop),
                _ => group.gather(bytes).await.map(drop),
            };
            let again = group.broadcast(Bytes::new()).await.unwrap_err();
            assert!(again.words.contains("meet again"), "{again}");
            all.map(|()| "sent".to_owned())
        }
        other => panic!("no role: {other}"),
    }
}

async fn calls(group: &Members) -> Result<String> {
    let (rank, size) = (group.rank(), group.size());
    for round in 0..6 {
        let gathered = group.gather(bytes_of(rank, round)).await?;
        let all: Vec<Bytes> = (0..size).map(|rank| bytes_of(rank, round)).collect();
        assert!(if rank == 0 { gathered == all } else { gathered.is_empty() }, "gather {round}");
        let sent = if rank == 0 { bytes_of(99, round) } else { Bytes::from_static(b"not sent") };
        assert!(group.broadcast(sent).await? == bytes_of(99, round), "broadcast {round}");
        assert!(group.all_gather(bytes_of(rank, round)).await? == all, "all-gather {round}");
    }
    Ok(format!("{rank} of {size}"))
}

#[test]
fn every_member_gets_what_was_sent() {
    let scene = Scene::with_writers(1);
    for over in ALL {
        for size in [1, 2, 5] {
            let said = all(&scene, over, size, |_| "calls");
            for (rank, said) in said.into_iter().enumerate() {
                assert_eq!(said, Ok(format!("{rank} of {size}")), "{over:?}");
            }
            assert!(!scene.is_left(), "the meeting's file is removed");
        }
    }
}

#[test]
fn two_jobs_of_one_name_meet_one_after_the_other_also_after_one_that_was_killed() {
    let scene = Scene::with_writers(1);
    let stale = "shoal group 1\ntcp:127.0.0.1:1\n00 00000000\n";
    for over in ALL {
        std::fs::write(scene.meeting_file(), stale).unwrap();
        for _job in 0..2 {
            let said = all(&scene, over, 3, |_| "gathers");
            assert_eq!(said, vec![Ok("3".to_owned()); 3], "{over:?}");
        }
        assert!(!scene.is_left());
    }
}

#[test]
fn a_member_that_dies_ends_the_call_of_all_at_once_with_its_number() {
    let scene = Scene::with_writers(1);
    for over in ALL {
        for dying in [0, 2] {
            let begun = std::time::Instant::now();
            let said = all(&scene, over, 4, |rank| if rank == dying { "dies" } else { "gathers" });
            assert!(begun.elapsed() < PATIENCE, "no deadline was waited for");
            for (_, said) in said.iter().enumerate().filter(|(rank, _)| *rank != dying) {
                let words = said.as_ref().unwrap_err();
                assert!(
                    words.starts_with("Io") && words.contains(&format!("member {dying} of 4")),
                    "{words}"
                );
            }
        }
    }
}

#[test]
fn a_silent_member_is_named_to_all_when_the_time_is_over() {
    for over in [Over::Threads, Over::Tcp] {
        let scene = Scene::with_writers(1);
        let role = |rank| if rank == 2 { "is-silent" } else { "gathers-in-a-second" };
        let tasks = (0..4).map(|rank| Task::of(&scene, over, (rank, 4), role(rank)));
        let mut begun: Vec<Begun> = tasks.map(|task| begin(over, task)).collect();
        let silent = begun.remove(2);
        for begun in begun {
            let words = begun.said().unwrap_err();
            let is_named = words.contains("member 2 of 4 did not answer within");
            assert!(words.starts_with("TimedOut") && is_named, "{over:?}: {words}");
        }
        std::fs::write(scene.home.path().join("over"), "").unwrap();
        assert_eq!(silent.said(), Ok("woke".to_owned()));
    }
}

#[test]
fn a_message_over_the_limit_is_found_at_its_sender_and_all_have_its_words() {
    let scene = Scene::with_writers(1);
    for sender in [1, 0] {
        let role = |rank| if rank == sender { "sends-too-much" } else { "gathers" };
        for said in all(&scene, Over::Threads, 3, role) {
            let words = said.unwrap_err();
            assert!(words.starts_with("OverLimit") && words.contains("268435457"), "{words}");
        }
    }
}
