//! Tests of the client's record of a kernel's cached pages, with a small model of a kernel and a server.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const FILE: Handle = Handle(7);
const OTHER: Handle = Handle(8);

fn count(n: u64) -> ChangeCount {
    ChangeCount(n)
}

fn moved(from: u64, to: u64) -> Move {
    Move { from: count(from), to: count(to) }
}

/// An open that finds this count; the kernel uses its file at once.
fn open(pages: &mut Pages, n: u64) -> bool {
    let stay = pages.opened(FILE, |stream| (stream == FILE).then_some(count(n)));
    if !stay {
        pages.forgotten(FILE);
    }
    stay
}

/// Pages filled at this count, through a file that is open.
fn filled(n: u64) -> Pages {
    let mut pages = Pages::default();
    open(&mut pages, n);
    pages.reader(FILE, true);
    assert!(!pages.filled(FILE, FILE, count(n)));
    pages
}

/// A write whose messages were answered with these counts.
fn write(pages: &mut Pages, answers: &[[Move; 2]]) -> bool {
    pages.write_begins(FILE);
    answers.iter().for_each(|moves| pages.moved(FILE, FILE, moves));
    pages.write_ended(FILE, true)
}

#[test]
fn pages_stay_over_opens_as_long_as_the_count_is_that_at_which_they_were_filled() {
    let mut pages = Pages::default();
    assert!(!open(&mut pages, 1), "nothing is known");
    assert!(!open(&mut pages, 1), "nothing was filled");
    pages.filled(FILE, FILE, count(1));
    assert!(open(&mut pages, 1) && open(&mut pages, 1));
    assert!(!open(&mut pages, 2));
    pages.filled(FILE, FILE, count(2));
    assert!(open(&mut pages, 2));
}

#[test]
fn own_writes_keep_the_pages_in_whatever_order_their_messages_are_answered() {
    let mut pages = filled(1);
    // Two messages, one within the other.
    assert!(!write(&mut pages, &[[moved(2, 3), moved(3, 4)], [moved(1, 2), moved(4, 5)]]));
    assert!(open(&mut pages, 5));
    assert!(!pages.filled(FILE, FILE, count(3)), "a read that was answered between them");
    assert!(open(&mut pages, 5));
}

#[test]
fn the_messages_of_a_new_files_first_write_may_be_answered_last_one_first() {
    for later in 0..3 {
        let mut pages = Pages::default();
        pages.made(FILE);
        let mut answers =
            [[moved(1, 2), moved(2, 3)], [moved(3, 4), moved(4, 5)], [moved(5, 6), moved(6, 7)]];
        answers.rotate_left(later);
        answers.reverse();
        assert!(!write(&mut pages, &answers));
        assert!(open(&mut pages, 7), "{answers:?}");
        assert!(!pages.filled(FILE, FILE, count(2)), "a read that was answered between them");
        assert!(open(&mut pages, 7));
    }
}

#[test]
fn a_write_of_another_between_own_ones_is_told_and_its_pages_do_not_stay() {
    let mut pages = filled(1);
    // 2 to 4 is another's.
    assert!(write(&mut pages, &[[moved(1, 2), moved(4, 5)]]));
    assert!(!open(&mut pages, 5));
    pages.filled(FILE, FILE, count(5));
    assert!(open(&mut pages, 5));
}

#[test]
fn pages_that_own_writes_made_stay_and_those_of_a_failed_one_do_not() {
    let mut pages = Pages::default();
    pages.made(FILE);
    write(&mut pages, &[[moved(1, 2), moved(2, 3)]]);
    assert!(open(&mut pages, 3));
    pages.write_begins(FILE);
    pages.write_ended(FILE, false);
    assert!(!open(&mut pages, 3));
}

#[test]
fn a_read_with_another_count_spoils_the_pages_and_is_told_where_somebody_reads_them() {
    let mut pages = filled(1);
    assert!(pages.filled(FILE, FILE, count(2)));
    assert!(!pages.filled(FILE, FILE, count(2)), "once");
    assert!(!open(&mut pages, 2) && !open(&mut pages, 1));
    pages.filled(FILE, FILE, count(2));
    pages.reader(FILE, false);
    assert!(!pages.noticed(FILE, FILE, count(3)), "nobody reads them");
    assert!(!open(&mut pages, 3));
}

#[test]
fn an_own_write_under_way_is_no_change_by_another() {
    let mut pages = filled(1);
    pages.write_begins(FILE);
    assert!(!pages.noticed(FILE, FILE, count(2)), "it may be the write's");
    assert!(!open(&mut pages, 2), "and may be not");
    pages.filled(FILE, FILE, count(2));
    pages.moved(FILE, FILE, &[moved(1, 2), moved(2, 3)]);
    assert!(!pages.write_ended(FILE, true));
    assert!(open(&mut pages, 3));

    pages.write_begins(FILE);
    assert!(!pages.noticed(FILE, FILE, count(9)));
    pages.moved(FILE, FILE, &[moved(3, 4), moved(4, 5)]);
    assert!(pages.write_ended(FILE, true), "nothing explains it");
}

#[test]
fn a_move_that_does_not_continue_the_chain_lets_no_open_keep_pages_also_while_another_write_is_under_way() {
    let mut pages = Pages::default();
    pages.made(FILE);
    pages.write_begins(FILE);
    pages.write_begins(FILE);
    // A read of another page, answered between the two moves of the first write.
    pages.filled(FILE, FILE, count(5));
    // From 2 to 5 another client wrote the page that the first write wrote.
    pages.moved(FILE, FILE, &[moved(0, 2), moved(5, 6)]);
    assert!(!pages.write_ended(FILE, true), "the second write is under way");
    assert!(!open(&mut pages, 6));
}

#[test]
fn until_the_kernel_has_forgotten_pages_no_other_open_keeps_any() {
    let mut pages = filled(1);
    assert!(!pages.opened(FILE, |_| Some(count(2))));
    pages.filled(FILE, FILE, count(2));
    assert!(!pages.opened(FILE, |_| Some(count(2))), "older pages may be there");
    pages.forgotten(FILE);
    pages.filled(FILE, FILE, count(2));
    assert!(!pages.opened(FILE, |_| Some(count(2))));
    (0..3).for_each(|_| pages.forgotten(FILE));
    pages.filled(FILE, FILE, count(2));
    assert!(pages.opened(FILE, |_| Some(count(2))));
}

#[test]
fn an_open_that_the_kernel_never_got_leaves_the_pages_spoiled() {
    let mut pages = filled(1);
    assert!(!pages.opened(FILE, |_| Some(count(2))), "another has changed it");
    pages.not_forgotten(FILE);
    // A page is filled through a file that was open before; the others are as old as they were.
    pages.filled(FILE, FILE, count(2));
    assert!(!open(&mut pages, 2), "the kernel was never told to forget them");
    pages.filled(FILE, FILE, count(2));
    assert!(open(&mut pages, 2));
}

#[test]
fn of_a_file_over_several_streams_all_that_have_pages_decide() {
    let mut pages = filled(1);
    pages.filled(FILE, OTHER, count(5));
    assert_eq!(pages.streams(FILE), [FILE, OTHER]);
    let opened = |pages: &mut Pages, other: Option<u64>| {
        pages.opened(FILE, |stream| if stream == FILE { Some(count(1)) } else { other.map(count) })
    };
    assert!(opened(&mut pages, Some(5)));
    assert!(!opened(&mut pages, None), "its server did not answer");
    assert!(pages.streams(FILE).is_empty());
    let layout = |strip| Layout {
        dist: Dist::SimpleStripe { strip },
        datafiles: vec![FILE, OTHER].into(),
        generation: shoal_proto::Generation(2),
    };
    assert!(may_stay(None) && may_stay(Some(&layout(1 << 16))) && !may_stay(Some(&layout(4096))));
}

#[test]
fn no_more_files_are_known_than_there_is_room_for_but_those_in_use() {
    let mut pages = Pages { files_max: 4, ..Pages::default() };
    pages.reader(FILE, true);
    (100..200).for_each(|n| pages.made(Handle(n)));
    assert!(pages.files.len() <= 5 && pages.files.contains(&FILE));
    (0..1000).for_each(|n| {
        pages.moved(FILE, FILE, &[moved(10 * n, 10 * n + 1)]);
        pages.write_begins(FILE);
        pages.noticed(FILE, FILE, count(10 * n + 5));
    });
    let own = pages.files.get(&FILE).unwrap().streams[0].own.as_ref();
    assert!(own.is_none_or(|own| own.moves.len().max(own.strange.len()).max(own.passed.len()) <= MOVES_MAX));
}

/// The operations under way between kernel, mount and server.
#[derive(Clone, Debug)]
enum Under {
    /// A write of a page, `steps` of it done: before the first byte, the byte, after the last, answered.
    Write { own: bool, page: u8, tag: u64, steps: u8, moves: Vec<Move>, before: u64 },
    /// A read of a page: asked (its count taken), read, answered.
    Read { page: u8, count: ChangeCount, tag: Option<u64> },
    /// An open: its count taken, with what the pages may hold, then answered.
    Open { count: ChangeCount, allowed: BTreeMap<u8, BTreeSet<u64>> },
    /// The kernel has to forget all pages.
    Forget,
}

#[derive(Default)]
struct Small {
    pages: Pages,
    now: u64,
    current: u64,
    server: BTreeMap<u8, u64>,
    kernel: BTreeMap<u8, u64>,
    under: Vec<Under>,
    kept: u64,
}

const PAGES: u8 = 3;

impl Small {
    /// A file that is open.
    fn new() -> Small {
        let mut small = Small::default();
        open(&mut small.pages, 0);
        small
    }

    fn shift(&mut self) -> Move {
        self.now += 1;
        let from = std::mem::replace(&mut self.current, self.now);
        moved(from, self.now)
    }

    /// The kernel reads or writes a page one after the other.
    fn is_locked(&self, wanted: u8) -> bool {
        self.under.iter().any(|under| match under {
            Under::Write { own: true, page, .. } | Under::Read { page, .. } => *page == wanted,
            _ => false,
        })
    }

    fn begin(&mut self, what: u8, page: u8) {
        let under = match what % 8 {
            0 | 1 if !self.is_locked(page) => {
                self.pages.write_begins(FILE);
                self.now += 1;
                Under::Write { own: true, page, tag: self.now, steps: 0, moves: Vec::new(), before: 0 }
            }
            2 => {
                self.now += 1;
                Under::Write { own: false, page, tag: self.now, steps: 0, moves: Vec::new(), before: 0 }
            }
            3..=5 if !self.is_locked(page) && !self.kernel.contains_key(&page) => {
                Under::Read { page, count: count(self.current), tag: None }
            }
            6 | 7 => Under::Open { count: count(self.current), allowed: self.allowed() },
            _ => return,
        };
        self.under.push(under);
    }

    /// The contents that an open that begins now may find in a page: the current ones, and those under way.
    fn allowed(&self) -> BTreeMap<u8, BTreeSet<u64>> {
        let mut allowed: BTreeMap<u8, BTreeSet<u64>> = (0..PAGES)
            .map(|page| (page, BTreeSet::from([self.server.get(&page).copied().unwrap_or(0)])))
            .collect();
        for under in &self.under {
            if let Under::Write { page, steps: 2.., before, .. } = under {
                // Its write has not returned: the contents before it may be found.
                allowed.entry(*page).or_default().insert(*before);
            }
        }
        allowed
    }

    /// The opens under way may find any contents that the server has had since they began.
    fn found_by_opens(&mut self, page: u8, tag: u64) {
        for under in &mut self.under {
            if let Under::Open { allowed, .. } = under {
                allowed.entry(page).or_default().insert(tag);
            }
        }
    }

    fn go_on(&mut self, which: u8) {
        if self.under.is_empty() {
            return;
        }
        let at = usize::from(which) % self.under.len();
        match self.under.swap_remove(at) {
            Under::Write { own, page, tag, steps, mut moves, mut before } => {
                match steps {
                    0 | 2 => moves.push(self.shift()),
                    1 => {
                        before = self.server.insert(page, tag).unwrap_or(0);
                        self.found_by_opens(page, tag);
                    }
                    _ => {
                        if own {
                            self.kernel.insert(page, tag);
                            self.pages.moved(FILE, FILE, &moves);
                            self.pages.write_ended(FILE, true);
                        }
                        return;
                    }
                }
                self.under.push(Under::Write { own, page, tag, steps: steps + 1, moves, before });
            }
            Under::Read { page, count, tag: None } => {
                let tag = Some(self.server.get(&page).copied().unwrap_or(0));
                self.under.push(Under::Read { page, count, tag });
            }
            Under::Read { page, count, tag: Some(tag) } => {
                self.pages.filled(FILE, FILE, count);
                self.kernel.insert(page, tag);
            }
            Under::Open { count, allowed } => {
                if !self.pages.opened(FILE, |_| Some(count)) {
                    return self.under.push(Under::Forget);
                }
                self.kept += 1;
                for (page, tag) in &self.kernel {
                    let is_written = self
                        .under
                        .iter()
                        .any(|under| matches!(under, Under::Write { page: p, .. } if p == page));
                    assert!(
                        is_written || allowed[page].contains(tag) || self.server.get(page) == Some(tag),
                        "page {page} has {tag}, and {allowed:?} were there"
                    );
                }
            }
            Under::Forget => {
                // It waits for pages that are locked.
                if (0..PAGES).any(|page| self.is_locked(page)) {
                    return self.under.push(Under::Forget);
                }
                self.kernel.clear();
                self.pages.forgotten(FILE);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn what_stays_in_the_kernel_is_what_the_server_has_whatever_is_under_way(
        steps in prop::collection::vec((any::<u8>(), any::<u8>()), 0..200)
    ) {
        let mut small = Small::new();
        for (what, which) in steps {
            // Continuing an operation under way is as likely as beginning one.
            if what % 2 == 0 { small.begin(what / 2, which % PAGES) } else { small.go_on(which) }
        }
    }
}

#[test]
fn pages_do_stay_in_the_miniature() {
    let mut small = Small::new();
    for round in 0..20_u8 {
        // An own write, a read, and an open, one after the other.
        for what in [0, 3, 6] {
            small.begin(what, round % PAGES);
            (0..6).for_each(|_| small.go_on(0));
        }
    }
    assert!(small.kept > 10, "{}", small.kept);
}
