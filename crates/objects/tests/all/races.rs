//! Several processes make, move and remove the same names at the same time: each name is one process's, no
//! object is lost and none has two names.

use crate::scene::{EXCHANGE, OWNER};
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_objects::memory::Conduct;
use shoal_objects::{MemoryStore, Objects, ObjectsOptions};
use shoal_proto::{Handle, Name, Rights, Status};
use shoal_vfs::{Connect, Error, Listing, RenameFlags, Vfs, VfsFile};
use std::collections::BTreeSet;
use std::time::Duration;

const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, exchange: false };
const PROCESSES: u64 = 4;
const STEPS: u64 = 40;

fn name(number: u64) -> Name {
    Name::new(format!("name {number}").as_bytes()).unwrap()
}

/// Files that one process made, less those that it removed.
async fn work(env: Env, vfs: Objects, is_shaky: bool) -> i64 {
    let mut files = 0;
    // Several removals in a row whose last request failed, each of which is waited for.
    let is_late = |error: &Error| is_shaky && error.status == Status::Busy;
    for _ in 0..STEPS {
        let (a, b) = (name(env.random_u64() % 3), name(env.random_u64() % 3));
        match env.random_u64() % 5 {
            0 | 1 => match vfs.create(Handle::ROOT, &a, OWNER, true, Rights::WRITE).await {
                Ok((.., file)) => {
                    file.close().await.unwrap();
                    files += 1;
                }
                // Several answers were lost.
                Err(error) => {
                    let is_right = matches!(error.status, Status::Exists | Status::TimedOut);
                    assert!(is_right || is_late(&error), "{error}");
                }
            },
            2 => match vfs.unlink(Handle::ROOT, &a).await {
                Ok(()) => files -= 1,
                Err(error) => assert!(error.status == Status::NotFound || is_late(&error), "{error}"),
            },
            turn => {
                let flags = if turn == 3 { NO_REPLACE } else { EXCHANGE };
                if let Err(error) = vfs.rename(Handle::ROOT, &a, Handle::ROOT, &b, flags).await {
                    let is_right = matches!(error.status, Status::Exists | Status::NotFound);
                    assert!(is_right || is_late(&error), "{error}");
                }
            }
        }
    }
    files
}

#[test]
fn names_that_several_processes_make_move_and_remove_are_each_one_s_and_no_file_is_lost() {
    let seeds = std::env::var("SHOAL_OBJECTS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    for seed in 1..=seeds {
        let world = World::new(seed, Config::default());
        let process = world.process("process", world.machine("machine"));
        world.complete(process, async move |env: Env| {
            let memory = MemoryStore::default();
            let mount = async || ObjectsOptions::new(memory.clone(), "").connect(env.clone()).await.unwrap();
            let seen = mount().await;
            let (fails_each, loses_each) = if seed % 3 == 0 { (13, 17) } else { (0, 0) };
            let delay = Duration::from_micros(1 + seed * 37 % 900);
            memory.conduct(Conduct { fails_each, loses_each, delay, ..Conduct::default() });
            let mut works = Vec::new();
            for _ in 0..PROCESSES {
                works.push(work(env.clone(), mount().await, loses_each > 0));
            }
            let made: i64 = futures_util::future::join_all(works).await.into_iter().sum();
            memory.conduct(Conduct::default());
            // A removal whose last request failed leaves an object, which the next maker of the name removes.
            for number in 0..3 {
                let made = seen.create(Handle::ROOT, &name(number), OWNER, true, Rights::WRITE).await;
                if made.is_ok() {
                    seen.unlink(Handle::ROOT, &name(number)).await.unwrap();
                }
            }
            seen.recover(true).await.unwrap();
            let (mut listing, mut found) = (seen.opendir(Handle::ROOT, Duration::ZERO), BTreeSet::new());
            let mut count = 0;
            while let Some(listed) = listing.next(true).await.unwrap() {
                assert!(listed.entry.attr.is_some());
                found.insert(listed.entry.handle);
                count += 1;
            }
            assert_eq!(found.len() as i64, count, "seed {seed}: an object has two names");
            // A creation whose answer was lost, and whose file another process moved at once, is repeated.
            let is_it = if loses_each == 0 { count == made } else { count >= made };
            assert!(is_it, "seed {seed}: {count} files, and {made} were made");
            assert_eq!(
                memory.objects().len() as i64,
                count + 1,
                "seed {seed}: {:?}",
                memory.objects().keys()
            );
        });
    }
}
