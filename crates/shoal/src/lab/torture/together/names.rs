//! Several clients at once make, move and remove names.

use super::{BELIEVED, Together, is_refused, refusal};
use crate::lab::torture::errno::{EEXIST, EINVAL, ENOENT, ENOTEMPTY, ESTALE};
use crate::lab::torture::hand::{Act, Said, content};
use anyhow::{Result, bail, ensure};

/// Each client in turn acts, each other looks: a new name is there at once, for opens and looks; a removed
/// one cannot be opened any more at once, and is not even seen after the cache time of names.
pub fn what_one_client_does_to_names_is_seen_by_the_others_as_promised(
    t: &Together<'_>,
    dir: &str,
) -> Result<()> {
    let mut hands = t.hands(t.ways.len())?;
    let mut gone = Vec::new();
    for time in 0..2 * t.times {
        for here in 0..hands.len() {
            for there in (0..hands.len()).filter(|there| *there != here) {
                let [old, new] = ["old", "new"].map(|word| format!("{dir}/{word}-{time}-{here}-{there}"));
                let (seed, len) = ((time * 100 + here * 10 + there) as u64, 100 + 9000 * time);
                let [read_old, read_new] = [&old, &new].map(|path| Act::Read { path: path.clone() });
                // From here on the absence is cached.
                ensure!(
                    is_refused(&t.ask(&mut hands[there], &read_old)?.0, ENOENT),
                    "{old} is there before it is made"
                );
                t.do_it(&mut hands[here], &Act::Create { path: old.clone() })?;
                t.do_it(&mut hands[there], &Act::Look { path: old.clone() })?;
                t.do_it(&mut hands[there], &read_old)?;
                t.do_it(
                    &mut hands[here],
                    &Act::Write { path: old.clone(), offset: 0, len, seed, sync: false },
                )?;
                super::same(&old, &t.read(&mut hands[there], &old)?, &content(seed, len))?;
                t.do_it(&mut hands[here], &Act::Rename { from: old.clone(), to: new.clone() })?;
                super::same(&new, &t.read(&mut hands[there], &new)?, &content(seed, len))?;
                t.do_it(&mut hands[here], &Act::Unlink { path: new.clone() })?;
                let after = t.ask(&mut hands[there], &read_new)?.0;
                // A native client caches for a moment where the name led, and learns that nothing is there
                // any more.
                let gone_there =
                    is_refused(&after, ENOENT) || (there >= t.site.mounts() && is_refused(&after, ESTALE));
                ensure!(gone_there, "{new} was removed, and opening it says {after:?}");
                gone.extend([(there, old), (there, new)]);
            }
        }
    }
    std::thread::sleep(BELIEVED);
    for (there, path) in gone {
        let seen = t.ask(&mut hands[there], &Act::Look { path: path.clone() })?.0;
        ensure!(is_refused(&seen, ENOENT), "{path} is gone for long, and client {there} sees {seen:?}");
    }
    for hand in &mut hands {
        let listed = t.list(hand, dir)?;
        ensure!(listed.is_empty(), "all was removed, and listed is {listed:?}");
    }
    Ok(())
}

/// 64 processes on all ways make one name at the same time, repeatedly.
pub fn of_64_exclusive_creates_of_one_name_one_wins(t: &Together<'_>, dir: &str) -> Result<()> {
    let mut hands = t.hands(64)?;
    for time in 0..5 * t.times {
        let path = format!("{dir}/{time}");
        let acts = vec![Act::Create { path: path.clone() }; hands.len()];
        let said = t.at_once(&mut hands, &acts)?;
        let made: Vec<u64> = said
            .iter()
            .filter_map(|said| if let Said::Made(ino) = said { Some(*ino) } else { None })
            .collect();
        let [ino] = made[..] else { bail!("{path}: {} of 64 exclusive creates succeeded", made.len()) };
        let wrong = said.iter().find(|said| !matches!(said, Said::Made(_)) && !is_refused(said, EEXIST));
        if let Some(wrong) = wrong {
            bail!("{path}: an exclusive create lost with {wrong:?}");
        }
        for hand in hands.iter_mut().take(t.ways.len()) {
            let (said, _) = t.do_it(hand, &Act::Look { path: path.clone() })?;
            let Said::Seen(seen) = said else { bail!("{path} is {said:?}") };
            ensure!(seen.ino == ino, "{path} was made as {ino} and is seen as {}", seen.ino);
        }
    }
    Ok(())
}

/// Three directories, each moved into the next and into the one before by different clients at once.
pub fn crossing_renames_of_directories_make_no_loop_and_lose_nothing(
    t: &Together<'_>,
    dir: &str,
) -> Result<()> {
    const MOVES: [(&str, &str); 6] = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "c"), ("b", "a"), ("c", "b")];
    let mut hands = t.hands(MOVES.len())?;
    for time in 0..8 * t.times {
        let root = format!("{dir}/{time}");
        t.do_it(&mut hands[0], &Act::Mkdir { path: root.clone() })?;
        for name in ["a", "b", "c"] {
            t.do_it(&mut hands[0], &Act::Mkdir { path: format!("{root}/{name}") })?;
            t.do_it(&mut hands[0], &Act::Create { path: format!("{root}/{name}/file-of-{name}") })?;
        }
        let acts = MOVES.map(|(from, into)| Act::Rename {
            from: format!("{root}/{from}"),
            to: format!("{root}/{into}/{from}"),
        });
        let said = t.at_once(&mut hands, &acts)?;
        let allowed =
            |said: &Said| [ENOENT, EINVAL, ENOTEMPTY, ESTALE].iter().any(|errno| is_refused(said, *errno));
        for (said, act) in said.iter().zip(&acts) {
            ensure!(*said == Said::Done || allowed(said), "{act:?} ended with {said:?}");
        }
        let moved = said.iter().filter(|said| **said == Said::Done).count();
        ensure!(moved <= 2, "{moved} of three directories were moved into another: a loop");
        std::thread::sleep(BELIEVED);
        for hand in hands.iter_mut().take(t.ways.len()) {
            let mut found = Vec::new();
            let mut todo = vec![root.clone()];
            while let Some(at) = todo.pop() {
                ensure!(found.len() < 100, "{root} has no end: {found:?}");
                for (name, is_dir) in t.list(hand, &at)? {
                    if is_dir {
                        todo.push(format!("{at}/{name}"));
                    } else {
                        ensure!(at.ends_with(name.trim_start_matches("file-of-")), "{name} is in {at}");
                    }
                    found.push(name);
                }
            }
            found.sort();
            let all = ["a", "b", "c", "file-of-a", "file-of-b", "file-of-c"];
            ensure!(found == all, "{root} holds {found:?} after {said:?}");
        }
    }
    Ok(())
}

/// Clients rename their own files over one name, others open it: it is always there, and whole.
pub fn a_rename_over_a_name_leads_to_the_one_or_the_other_at_every_moment(
    t: &Together<'_>,
    dir: &str,
) -> Result<()> {
    const LEN: usize = 5000;
    let (mut movers, mut readers) = (t.hands(3)?, t.hands(3)?);
    let target = format!("{dir}/target");
    t.do_it(&mut movers[0], &Act::Create { path: target.clone() })?;
    t.do_it(&mut movers[0], &Act::Write { path: target.clone(), offset: 0, len: LEN, seed: 0, sync: false })?;
    for time in 0..4 * t.times as u64 {
        let acts: Vec<Act> = (0..3_u64)
            .map(|mover| {
                let renames = (0..6).flat_map(|n| {
                    let (path, seed) = (format!("{dir}/{time}-{mover}-{n}"), time * 100 + mover * 10 + n);
                    [
                        Act::Create { path: path.clone() },
                        Act::Write { path: path.clone(), offset: 0, len: LEN, seed, sync: false },
                        Act::Rename { from: path, to: target.clone() },
                    ]
                });
                Act::Many(renames.collect())
            })
            .collect();
        for (hand, act) in movers.iter_mut().zip(&acts) {
            hand.tell(act).map_err(|trouble| anyhow::anyhow!("{trouble:?}"))?;
        }
        for _ in 0..10 {
            for reader in &mut readers {
                let (said, bytes) = t.ask(reader, &Act::Read { path: target.clone() })?;
                // Removed for good between its open and its read by another client: that is said (SEMANTICS,
                // 2).
                if is_refused(&said, ESTALE) {
                    continue;
                }
                if let Some(words) = refusal(&said) {
                    bail!("{target} cannot be read: {words}");
                }
                let seed = bytes.first_chunk().map(|first| u64::from_le_bytes(*first)).unwrap_or(u64::MAX);
                super::same(&target, &bytes, &content(seed, LEN))?;
            }
        }
        for hand in &mut movers {
            let (said, _) =
                hand.hear(t.patience, || false).map_err(|trouble| anyhow::anyhow!("{trouble:?}"))?;
            if let Some(words) = refusal(&said) {
                bail!("renaming over {target} failed: {words}");
            }
        }
    }
    let left = t.list(&mut readers[0], dir)?;
    ensure!(left == [("target".to_owned(), false)], "the replaced file is still there: {left:?}");
    Ok(())
}

/// One client removes a directory while others make files in it: either it is gone and none was made, or it
/// stays with all that were made.
pub fn an_rmdir_against_creates_has_one_winner(t: &Together<'_>, dir: &str) -> Result<()> {
    let mut hands = t.hands(4)?;
    for time in 0..15 * t.times {
        let path = format!("{dir}/{time}");
        t.do_it(&mut hands[time % 4], &Act::Mkdir { path: path.clone() })?;
        let acts: Vec<Act> = (0..4)
            .map(|hand| match hand == time % 3 {
                true => Act::Rmdir { path: path.clone() },
                false => Act::Create { path: format!("{path}/{hand}") },
            })
            .collect();
        let said = t.at_once(&mut hands, &acts)?;
        let made: Vec<String> =
            (0..4).filter(|hand| matches!(said[*hand], Said::Made(_))).map(|hand| hand.to_string()).collect();
        std::thread::sleep(BELIEVED);
        let looked = t.ask(&mut hands[3], &Act::List { path: path.clone() })?.0;
        match (&said[time % 3], looked) {
            (Said::Done, looked) => {
                ensure!(made.is_empty(), "{path} was removed, and {made:?} made in it");
                ensure!(is_refused(&looked, ENOENT), "{path} was removed, and lists {looked:?}");
            }
            (said, Said::Entries(entries)) => {
                ensure!(is_refused(said, ENOTEMPTY), "rmdir {path}: {said:?}");
                let mut listed: Vec<String> = entries.into_iter().map(|(name, ..)| name).collect();
                listed.sort();
                ensure!(listed == made && !made.is_empty(), "{path} lists {listed:?}; made were {made:?}");
            }
            (said, looked) => bail!("rmdir {path}: {said:?}; listed: {looked:?}"),
        }
        for (hand, said) in said.iter().enumerate().filter(|(hand, _)| *hand != time % 3) {
            let lost = is_refused(said, ENOENT) || is_refused(said, ESTALE);
            ensure!(lost || matches!(said, Said::Made(_)), "create {path}/{hand}: {said:?}");
        }
    }
    Ok(())
}
