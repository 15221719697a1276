//! Several clients at once write, append and truncate the bytes of a file.

use super::{Together, same};
use crate::lab::torture::crew::Hand;
use crate::lab::torture::hand::{Act, content};
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;

/// Records of these sizes are written: a byte, less and more than a page, and NAS BT-IO's large odd ones.
const RECORDS: [usize; 4] = [1, 47, 4096, 47_008];
/// The first record begins here: nothing is aligned.
const BEGIN: usize = 13;

/// One client writes, another opens and reads (a native client also through a file that stays open); in files
/// that grow from their first strip over all servers.
pub fn a_read_sees_every_write_that_returned_before_it_began(t: &Together<'_>, dir: &str) -> Result<()> {
    let mut hands = t.hands(t.ways.len())?;
    let path = format!("{dir}/file");
    t.do_it(&mut hands[0], &Act::Create { path: path.clone() })?;
    let mut all = Vec::new();
    for time in 0..10 * t.times {
        for writer in 0..hands.len() {
            let (seed, len) = ((time * 10 + writer) as u64, [3000, 47, 70_000][(time + writer) % 3]);
            // In the middle of the existing bytes as often as at their end.
            let at = if time % 2 == 0 { all.len() } else { all.len() / 3 };
            let act = Act::Write { path: path.clone(), offset: at as u64, len, seed, sync: false };
            t.do_it(&mut hands[writer], &act)?;
            all.resize(all.len().max(at + len), 0);
            all[at..at + len].copy_from_slice(&content(seed, len));
            for (reader, hand) in hands.iter_mut().enumerate() {
                let what = format!("{path}, written by client {writer} and read by client {reader},");
                same(&what, &t.read(hand, &path)?, &all)?;
            }
        }
        if all.len() > 400_000 {
            t.do_it(&mut hands[0], &Act::Truncate { path: path.clone(), size: 100 })?;
            all.truncate(100);
        }
    }
    Ok(())
}

/// Eight processes on all ways append records to one file that grows from its first strip over all servers.
pub fn appends_of_eight_processes_lose_nothing(t: &Together<'_>, dir: &str) -> Result<()> {
    const EACH: usize = 40;
    let mut hands = t.hands(8)?;
    let len = |seed: u64| 8 + (seed as usize * 7919) % if seed.is_multiple_of(10) { 60_000 } else { 3000 };
    for time in 0..t.times {
        let path = format!("{dir}/{time}");
        t.do_it(&mut hands[0], &Act::Create { path: path.clone() })?;
        let seed = |hand: usize, n: usize| (hand * EACH + n) as u64;
        let acts: Vec<Act> = (0..8)
            .map(|hand| {
                let append =
                    |n| Act::Append { path: path.clone(), len: len(seed(hand, n)), seed: seed(hand, n) };
                Act::Many((0..EACH).map(append).collect())
            })
            .collect();
        t.all_do(&mut hands, &acts)?;
        for hand in hands.iter_mut().take(t.ways.len()) {
            let all = t.read(hand, &path)?;
            let mut rest = &all[..];
            let mut next = BTreeMap::new();
            while !rest.is_empty() {
                let seed = u64::from_le_bytes(*rest.first_chunk().context("the last record is torn")?);
                ensure!(seed < (8 * EACH) as u64, "{path}: at {} begins no record", all.len() - rest.len());
                let record = rest.get(..len(seed)).context("the last record is cut")?;
                same(&format!("{path}: record {seed}"), record, &content(seed, len(seed)))?;
                let (writer, n) = (seed / EACH as u64, seed % EACH as u64);
                let expected = next.entry(writer).or_insert(0);
                ensure!(
                    *expected == n,
                    "{path}: writer {writer}'s append {n} stands where {expected} should"
                );
                *expected += 1;
                rest = &rest[len(seed)..];
            }
            ensure!(
                next.len() == 8 && next.values().all(|n| *n == EACH as u64),
                "{path}: appends are lost: {next:?}"
            );
        }
    }
    Ok(())
}

/// Eight processes on the mounts and two native ones write records of one file in turn, with the file
/// system's strip and with a small one, in files that are new and in files that are full already.
pub fn writers_of_interleaved_records_neither_lose_nor_mix_a_byte(t: &Together<'_>, dir: &str) -> Result<()> {
    let mut hands = t.mounted_hands(8)?;
    hands.extend(Hand::start_all(&[t.site.native(), t.site.native()])?);
    let writers = hands.len();
    let striped = format!("{dir}/striped");
    t.striped(&mut hands[0], &striped)?;
    for (len, place, full) in RECORDS.iter().flat_map(|len| {
        [
            (*len, dir, false),
            (*len, striped.as_str(), true),
            (*len, striped.as_str(), false),
            (*len, dir, true),
        ]
    }) {
        let count = t.times * if len < 1000 { 300 } else { 1_000_000 / len.max(10_000) };
        let path = format!("{place}/{len}{}", if full { "-full" } else { "" });
        t.do_it(&mut hands[0], &Act::Create { path: path.clone() })?;
        let all = BEGIN + count * len;
        let mut expected = vec![0; all];
        if full {
            // Every byte is another one before; the last stays.
            let act = Act::Write { path: path.clone(), offset: 0, len: all + 1, seed: 77, sync: false };
            t.do_it(&mut hands[0], &act)?;
            expected = content(77, all + 1);
        }
        let seed = |record: usize| (len * 1_000_000 + record) as u64;
        let acts: Vec<Act> = (0..writers)
            .map(|writer| {
                let write = |record: usize| Act::Write {
                    path: path.clone(),
                    offset: (BEGIN + record * len) as u64,
                    len,
                    seed: seed(record),
                    sync: record % 50 == 7,
                };
                Act::Many((writer..count).step_by(writers).map(write).collect())
            })
            .collect();
        t.all_do(&mut hands, &acts)?;
        for record in 0..count {
            expected[BEGIN + record * len..][..len].copy_from_slice(&content(seed(record), len));
        }
        // Two mounts and a native client.
        for reader in [0, 1, writers - 1] {
            same(
                &format!("{path}, read by client {reader},"),
                &t.read(&mut hands[reader], &path)?,
                &expected,
            )?;
        }
    }
    Ok(())
}

/// Four processes write the same bytes at once: a write within a page is one writer's as a whole, of a larger
/// one each byte is some writer's.
pub fn where_writes_overlap_each_byte_is_one_writers(t: &Together<'_>, dir: &str) -> Result<()> {
    let mut hands = t.hands(4)?;
    for (time, len) in (0..6 * t.times).flat_map(|time| [(time, 3000), (time, 300_000)]) {
        let path = format!("{dir}/{len}-{time}");
        t.do_it(&mut hands[0], &Act::Create { path: path.clone() })?;
        let writer = |seed| Act::Write { path: path.clone(), offset: 100, len, seed, sync: false };
        t.all_do(&mut hands, &(0..4).map(writer).collect::<Vec<_>>())?;
        let written: Vec<Vec<u8>> = (0..4).map(|seed| content(seed, len)).collect();
        for hand in hands.iter_mut().take(t.ways.len()) {
            let found = t.read(hand, &path)?;
            ensure!(found.len() == 100 + len && found[..100] == [0; 100], "{path} has {} bytes", found.len());
            let found = &found[100..];
            let nobodys = (0..len).find(|at| !written.iter().any(|bytes| bytes[*at] == found[*at]));
            if let Some(at) = nobodys {
                bail!("{path}: byte {} is of no client", at + 100);
            }
            ensure!(
                len > 4096 || written.iter().any(|bytes| bytes == found),
                "{path}: a small write is torn"
            );
        }
    }
    Ok(())
}

/// One client cuts a file, in its first strip or over all servers, while another writes after the cut: of the
/// bytes after it only (parts of) the write remain. Later writes are kept, and no cut bytes come back.
pub fn a_truncate_against_a_write_leaves_nothing_else_behind_the_cut(
    t: &Together<'_>,
    dir: &str,
) -> Result<()> {
    let mut hands = t.hands(t.ways.len().max(2))?;
    for time in 0..18 * t.times {
        let (size, cut, at) =
            [(9000, 4000, 6000), (200_000, 70_000, 130_000), (200_000, 10, 199_900)][time % 3];
        let len = 3000;
        let path = format!("{dir}/{time}");
        let (cutter, writer) = (time % hands.len(), (time + 1 + time / 7 % (hands.len() - 1)) % hands.len());
        t.do_it(&mut hands[writer], &Act::Create { path: path.clone() })?;
        let write = |offset: usize, len, seed| Act::Write {
            path: path.clone(),
            offset: offset as u64,
            len,
            seed,
            sync: false,
        };
        let truncate = |size: usize| Act::Truncate { path: path.clone(), size: size as u64 };
        t.do_it(&mut hands[writer], &write(0, size, 1))?;
        for (hand, act) in [(cutter, truncate(cut)), (writer, write(at, len, 2))] {
            hands[hand].tell(&act).map_err(|trouble| anyhow::anyhow!("{trouble:?}"))?;
        }
        for hand in [cutter, writer] {
            let heard = hands[hand].hear(t.patience, || false);
            if let Some(words) = super::refusal(&heard.map_err(|trouble| anyhow::anyhow!("{trouble:?}"))?.0) {
                bail!("{path}: {words}");
            }
        }
        let kept = content(1, cut);
        let mut written = kept.clone();
        written.resize(at, 0);
        written.extend(content(2, len));
        let found = t.read(&mut hands[cutter], &path)?;
        ensure!([cut, at + len].contains(&found.len()), "{path} has {} bytes", found.len());
        same(&format!("{path}, before the cut,"), &found[..cut], &kept)?;
        // The kernel sends a write through its cache page by page, so a part of it may stand before the cut.
        let other = (cut..found.len()).find(|at| found[*at] != 0 && found[*at] != written[*at]);
        if let Some(other) = other {
            bail!("{path}: byte {other} of {} is not of the write, and was cut away", found.len());
        }
        // Now one after the other: the write stays, and after the cut there are zeros.
        t.do_it(&mut hands[cutter], &truncate(cut))?;
        t.do_it(&mut hands[writer], &write(cut + 5, 10, 3))?;
        t.do_it(&mut hands[cutter], &truncate(size))?;
        let mut expected = kept;
        expected.resize(size, 0);
        expected[cut + 5..cut + 15].copy_from_slice(&content(3, 10));
        for reader in &mut hands {
            same(&path, &t.read(reader, &path)?, &expected)?;
        }
    }
    Ok(())
}
