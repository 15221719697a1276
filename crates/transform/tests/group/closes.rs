//! Closes by all members of a group: one of them flattens the index, if the index logs are short.

use super::opens::{RECORD, RECORDS, byte_of, reads_of, sum_of, together};
use super::*;
use shoal_transform::group::Group;

/// Irregular records whose index log is longer than a group flattens.
const MANY: u64 = 4000;

/// Write a member's records, and close as the role says: how many logs were flattened.
pub(super) async fn role(env: &Env, task: &Task) -> Result<String> {
    let mounted = mount(env, &task.dir).await;
    let object = mounted.lookup(Handle::ROOT, &name()).await?.handle;
    let group = mounted.meet(object, &task.meeting).await?;
    let file = mounted.open(object, BOTH).await?;
    let (rank, size) = (group.rank() as u64, group.size() as u64);
    for record in 0..RECORDS {
        let data = vec![byte_of(rank, record); RECORD as usize];
        file.write((record * size + rank) * RECORD, data.into()).await?;
    }
    if task.role == "closes-with-many-records" {
        // Again the byte that is there, in the order of no pattern.
        for at in (0..MANY).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % RECORD) {
            file.write(rank * RECORD + at, vec![byte_of(rank, 0)].into()).await?;
        }
    }
    // All have written.
    group.all_gather(Bytes::new()).await?;
    if task.role == "dies-in-the-close" {
        if std::env::var(MEMBER).is_ok() {
            std::process::exit(0);
        }
        return Ok(String::new());
    }
    mounted.close_together(file, &group).await.map(|count| count.to_string())
}

#[test]
fn a_close_by_all_members_flattens_what_they_wrote_and_readers_open_one_file() {
    for over in [Over::Threads, Over::Tcp] {
        for size in [1, 8] {
            let scene = Scene::with_writers(1);
            let said = all(&scene, over, size, |_| "closes");
            // Beside theirs the log of the writer before them.
            assert_eq!(said, vec![Ok((size + 1).to_string()); size], "{over:?}");
            assert_eq!(together(&scene, Over::Threads, 4, sum_of(size as u64)).opens, 1);
        }
    }
}

#[test]
fn a_long_index_log_of_one_member_leaves_all_logs_as_they_are() {
    let scene = Scene::with_writers(1);
    let role = |rank| if rank == 1 { "closes-with-many-records" } else { "closes" };
    let said = all(&scene, Over::Threads, 4, role);
    assert_eq!(said, vec![Ok("0".to_owned()); 4]);
    assert_eq!(together(&scene, Over::Threads, 4, sum_of(4)).opens, 5);
}

#[test]
fn a_member_that_dies_in_a_collective_close_ends_it_for_all_and_no_byte_is_lost() {
    for over in [Over::Threads, Over::Tcp] {
        for dying in [0, 2] {
            let scene = Scene::with_writers(1);
            let role = |rank| if rank == dying { "dies-in-the-close" } else { "closes" };
            for (_, said) in all(&scene, over, 4, role).iter().enumerate().filter(|(rank, _)| *rank != dying)
            {
                let words = said.as_ref().unwrap_err();
                assert!(words.contains(&format!("member {dying} of 4")), "{over:?}: {words}");
            }
            let read = all(&scene, Over::Threads, 1, |_| "opens");
            reads_of(&read, sum_of(4));
        }
    }
}
