//! Walks allocate nothing, however deep the pattern and however many its records: an allocator counts.

use crate::model;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use shoal_pattern::{Branch, Deal, Level, Located, Pairing, Pattern, Piece, Placement, Region, View, Window};

thread_local! {
    /// Allocations of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it is; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

/// Every third strip is a hole.
struct Holed;

impl Placement for Holed {
    fn objects(&self) -> u32 {
        16
    }

    fn locate(&self, logical: u64) -> Located {
        let (strip, run) = (logical / 4096, 4096 - logical % 4096);
        if strip % 3 == 2 {
            return Located::Hole { run };
        }
        Located::Piece(Piece { object: (strip % 16) as u32, physical: strip / 16 * 4096 + (4096 - run), run })
    }
}

/// A pattern of every kind of body, each with many records.
fn patterns() -> Vec<Pattern> {
    let level = |stride, quantity| Level { stride, quantity };
    let deep = vec![level(10_000, 1000), level(96, 100), level(1 << 30, 1000), level(-(1 << 44), 2)];
    let row = vec![Branch::bytes(0, 20), Branch::bytes(40, 8).repeated(16, 5)];
    let rows = Branch::vector(40, row).repeated(300, 1000);
    let turn = Branch::vector(0, vec![rows, Branch::bytes(7, 3).absolute()]).repeated(1 << 20, 50);
    let tree = vec![Branch::bytes(0, 16), turn];
    vec![
        Pattern::strided(100, 40, 376_064, 1_000_000_000).unwrap(),
        Pattern::nested(1 << 50, 50, deep).unwrap(),
        Pattern::list((0..4000).map(|at| Region::new(at * 5000, 300)).collect()).unwrap(),
        Pattern::batched(&tree).unwrap(),
    ]
}

#[test]
fn the_allocator_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1_u8]))), 1);
}

#[test]
fn making_and_walking_a_deal_allocates_nothing() {
    for pattern in patterns() {
        let mut runs = 0;
        let allocated = allocations(|| {
            let deal = Deal::new(&pattern, Window::all(&pattern), &Holed).unwrap();
            runs = deal.take(100_000).count();
        });
        assert!(runs > 1000, "{runs} runs");
        assert_eq!(allocated, 0, "{pattern}");
    }
}

#[test]
fn regions_views_pairings_and_finding_a_byte_allocate_nothing() {
    let stripe = model::Stripe { servers: 16, strip: 65_536, has_cycle: true };
    for pattern in patterns() {
        let memory = Pattern::strided(0, 7, 9, pattern.len().div_ceil(7)).unwrap().slice(0, pattern.len());
        let pairing = Pairing::new(&pattern, &memory).unwrap();
        let allocated = allocations(|| {
            assert!(pattern.regions().take(10_000).count() > 1000);
            assert!(View::new(&pattern, Window::all(&pattern), &stripe, 3).unwrap().take(100).count() > 10);
            assert!(pairing.runs().take(10_000).count() > 1000);
            assert!(pattern.packed_at(pattern.bounds().unwrap().0).is_some());
        });
        assert_eq!(allocated, 0, "{pattern}");
    }
}

#[test]
fn a_walk_in_order_of_offsets_allocates_its_streams_and_then_no_more() {
    for pattern in patterns() {
        let mut visits = pattern.by_offset().unwrap();
        let allocated = allocations(|| assert!(visits.by_ref().take(20_000).count() > 1000));
        assert_eq!(allocated, 0, "{pattern}");
    }
}
