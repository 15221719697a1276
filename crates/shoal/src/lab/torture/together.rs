//! Concurrent operations of clients of all kinds on the same names and bytes, checked against
//! docs/reference/SEMANTICS.md. Each check is a function; its name states the property that must hold. Each
//! check works in a directory of its own with [hands](super::hand) (client processes) on every way to the
//! file system.

mod bytes;
mod names;

use super::crew::{Hand, Heard};
use super::hand::{Act, Said, Spec};
use super::site::Site;
use anyhow::{Context as _, Result, bail};
use std::time::Duration;

/// Names and attributes are cached for 100 ms by mounts and native clients; with a reserve for their own
/// work.
pub const BELIEVED: Duration = Duration::from_millis(250);

/// The resources of a check.
pub struct Together<'a> {
    site: &'a Site,
    ways: Vec<Spec>,
    patience: Duration,
    /// How often a check repeats its acts.
    times: usize,
}

/// A check; the violation is its error.
type Check = fn(&Together<'_>, &str) -> Result<()>;

macro_rules! checks {
    ($($place:ident::$name:ident),* $(,)?) => { &[$((stringify!($name), $place::$name as Check)),*] };
}

/// All checks with their names.
pub const CHECKS: &[(&str, Check)] = checks![
    names::what_one_client_does_to_names_is_seen_by_the_others_as_promised,
    names::of_64_exclusive_creates_of_one_name_one_wins,
    names::crossing_renames_of_directories_make_no_loop_and_lose_nothing,
    names::a_rename_over_a_name_leads_to_the_one_or_the_other_at_every_moment,
    names::an_rmdir_against_creates_has_one_winner,
    bytes::a_read_sees_every_write_that_returned_before_it_began,
    bytes::appends_of_eight_processes_lose_nothing,
    bytes::writers_of_interleaved_records_neither_lose_nor_mix_a_byte,
    bytes::where_writes_overlap_each_byte_is_one_writers,
    bytes::a_truncate_against_a_write_leaves_nothing_else_behind_the_cut,
];

impl<'a> Together<'a> {
    /// On a running file system. `times`: 1 is short.
    pub fn new(site: &'a Site, patience: Duration, times: usize) -> Together<'a> {
        Together { site, ways: site.ways(), patience, times }
    }

    /// Run a check in its directory.
    pub fn run(&self, name: &str, check: Check) -> Result<()> {
        let mut hand = self.hands(1)?.remove(0);
        for dir in ["together".to_owned(), format!("together/{name}")] {
            match self.ask(&mut hand, &Act::Mkdir { path: dir.clone() })?.0 {
                Said::Made(_) => {}
                Said::Refused { errno: super::errno::EEXIST, .. } => {}
                said => bail!("mkdir {dir}: {said:?}"),
            }
        }
        check(self, &format!("together/{name}"))
    }

    /// So many hands, dealt to all ways.
    fn hands(&self, count: usize) -> Result<Vec<Hand>> {
        Hand::start_all(self.ways.iter().cycle().take(count))
    }

    /// Hands on mounts alone; on all ways where there are no mounts.
    fn mounted_hands(&self, count: usize) -> Result<Vec<Hand>> {
        let mounts = &self.ways[..self.site.mounts()];
        Hand::start_all(if mounts.is_empty() { &self.ways } else { mounts }.iter().cycle().take(count))
    }

    fn ask(&self, hand: &mut Hand, act: &Act) -> Result<Heard> {
        hand.ask(act, self.patience).map_err(|trouble| anyhow::anyhow!("{trouble:?} at {act:?}"))
    }

    /// An act that must succeed.
    fn do_it(&self, hand: &mut Hand, act: &Act) -> Result<Heard> {
        let heard = self.ask(hand, act)?;
        if let Some(words) = refusal(&heard.0) {
            bail!("{} failed: {words}", brief(act));
        }
        Ok(heard)
    }

    /// Each hand its act, all at once; returns their results.
    fn at_once(&self, hands: &mut [Hand], acts: &[Act]) -> Result<Vec<Said>> {
        let told = hands.iter_mut().zip(acts);
        for (hand, act) in told {
            hand.tell(act).map_err(|trouble| anyhow::anyhow!("{trouble:?} at {}", brief(act)))?;
        }
        let heard = hands.iter_mut().zip(acts).map(|(hand, act)| {
            let heard = hand.hear(self.patience, || false);
            Ok(heard.map_err(|trouble| anyhow::anyhow!("{trouble:?} at {}", brief(act)))?.0)
        });
        heard.collect()
    }

    /// The same, and all must succeed.
    fn all_do(&self, hands: &mut [Hand], acts: &[Act]) -> Result<()> {
        for (said, act) in self.at_once(hands, acts)?.iter().zip(acts) {
            if let Some(words) = refusal(said) {
                bail!("{} failed: {words}", brief(act));
            }
        }
        Ok(())
    }

    fn read(&self, hand: &mut Hand, path: &str) -> Result<Vec<u8>> {
        Ok(self.do_it(hand, &Act::Read { path: path.to_owned() })?.1)
    }

    /// Names in a directory.
    fn list(&self, hand: &mut Hand, path: &str) -> Result<Vec<(String, bool)>> {
        match self.do_it(hand, &Act::List { path: path.to_owned() })?.0 {
            Said::Entries(entries) => {
                Ok(entries.into_iter().map(|(name, _, is_dir)| (name, is_dir)).collect())
            }
            said => bail!("a listing is {said:?}"),
        }
    }

    /// Make a directory whose files are striped early.
    fn striped(&self, hand: &mut Hand, path: &str) -> Result<()> {
        self.do_it(hand, &Act::Mkdir { path: path.to_owned() })?;
        let place = format!("{}/{path}", self.site.address);
        let (status, words) = self.site.command(&["layout", "set", &place, "--strip", "4096"])?;
        if !status.success() {
            bail!("shoal layout set: {words}");
        }
        Ok(())
    }
}

/// Why it failed, if it did: the act, or one of many.
fn refusal(said: &Said) -> Option<String> {
    match said {
        Said::Refused { errno, words } => Some(format!("{words} ({errno})")),
        Said::Many(all) => all.iter().find_map(refusal),
        _ => None,
    }
}

fn is_refused(said: &Said, errno: i32) -> bool {
    matches!(said, Said::Refused { errno: told, .. } if *told == errno)
}

/// An act in words short enough for a message.
fn brief(act: &Act) -> String {
    match act {
        Act::Many(acts) => format!("{} acts, the first: {:?}", acts.len(), acts.first()),
        act => format!("{act:?}"),
    }
}

/// How two contents differ, if they do.
fn same(what: &str, found: &[u8], expected: &[u8]) -> Result<()> {
    if found.len() != expected.len() {
        bail!("{what} has {} bytes, not {}", found.len(), expected.len());
    }
    let differs = found.iter().zip(expected).position(|(found, expected)| found != expected);
    let Some(at) = differs else { return Ok(()) };
    bail!("{what}: byte {at} of {} is {:#04x}, not {:#04x}", found.len(), found[at], expected[at]);
}

/// Where the checks' errors say which directory they worked in.
pub fn run_all(
    together: &Together<'_>,
    mut done: impl FnMut(&str, Duration, Option<String>),
    mut end: impl FnMut() -> Result<()>,
) -> Result<()> {
    for (name, check) in CHECKS {
        end()?;
        let begun = std::time::Instant::now();
        let failed = together.run(name, *check).with_context(|| format!("in /together/{name}")).err();
        done(name, begun.elapsed(), failed.map(|error| format!("{error:#}")));
    }
    Ok(())
}
