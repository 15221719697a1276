//! The figures of the algebra on this machine: `cargo run --release -p shoal-pattern --example figures`.
//!
//! Each line is the median of 101 times of one call, in microseconds. The measured calls are those that
//! must not grow with the number of records: making a deal and finding its first run, counting an object's
//! bytes, finding a byte, the first run in order of offsets.

use std::hint::black_box;
use std::time::Instant;

use shoal_pattern::{
    Branch, Compressor, Deal, Distribution, Level, Located, Pairing, Pattern, Piece, Placement, Region,
    Window, share_len,
};

const STRIP: u64 = 65_536;
const OBJECTS: u32 = 16;

/// Strips of 64 KiB over 16 objects.
struct Stripe;

impl Placement for Stripe {
    fn objects(&self) -> u32 {
        OBJECTS
    }

    fn locate(&self, logical: u64) -> Located {
        let (strip, inside) = (logical / STRIP, logical % STRIP);
        let (object, row) = ((strip % u64::from(OBJECTS)) as u32, strip / u64::from(OBJECTS));
        Located::Piece(Piece { object, physical: row * STRIP + inside, run: STRIP - inside })
    }
}

impl Distribution for Stripe {
    fn logical(&self, object: u32, physical: u64) -> u64 {
        (physical / STRIP * u64::from(OBJECTS) + u64::from(object)) * STRIP + physical % STRIP
    }

    fn logical_end(&self, object: u32, physical_size: u64) -> u64 {
        physical_size.checked_sub(1).map_or(0, |last| self.logical(object, last) + 1)
    }

    fn physical_size(&self, object: u32, logical_size: u64) -> u64 {
        self.cycle(object).map_or(0, |cycle| cycle.held_below(logical_size))
    }

    fn cycle(&self, object: u32) -> Option<shoal_pattern::Cycle> {
        let start = u64::from(object) * STRIP;
        Some(shoal_pattern::Cycle { period: u64::from(OBJECTS) * STRIP, start, len: STRIP })
    }
}

/// The median of the times of `call`, in microseconds.
fn median(words: &str, mut call: impl FnMut()) {
    let mut times: Vec<f64> = (0..101)
        .map(|_| {
            let begin = Instant::now();
            call();
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{:>12.2} µs   {words}", times[times.len() / 2]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const RECORDS: u64 = 1_000_000_000;
    let records = Pattern::strided(100, 40, 376_064, RECORDS)?;
    let odd = Pattern::strided(100, 40, 376_063, RECORDS)?;
    let all = Window::all(&records);
    median("a deal of 10^9 records over 16 objects, made", || {
        black_box(Deal::new(black_box(&records), all, &Stripe).is_ok());
    });
    let deal = Deal::new(&records, all, &Stripe)?;
    median("its first run", || {
        black_box(deal.clone().next());
    });
    for (words, pattern) in [("a stride of 376,064", &records), ("an odd stride", &odd)] {
        median(&format!("the bytes of each of 16 objects, counted ({words})"), || {
            for object in 0..OBJECTS {
                black_box(share_len(black_box(pattern), all, &Stripe, object).is_ok());
            }
        });
    }
    median("a byte of 10^9 records, found", || {
        black_box(black_box(&records).packed_at(100 + 376_064 * 123_456_789 + 7));
    });
    let columns = vec![Level { stride: 4096, quantity: 1_000_000 }, Level { stride: 8, quantity: 500 }];
    let columns = Pattern::nested(64, 8, columns)?;
    median("the first run of 5 · 10^8 in order of offsets", || {
        black_box(black_box(&columns).by_offset().ok().and_then(|mut visits| visits.next()));
    });

    let row = Branch::vector(0, vec![Branch::bytes(64, 8).repeated(4096, 1_000_000), Branch::bytes(0, 8)]);
    let tree = Pattern::batched(&[row.repeated(8, 500)])?;
    let list = Pattern::list((0..4096).map(|at| Region::new(at * 4096, 8)).collect())?;
    for (words, pattern, often) in [("a nest", &columns, 1), ("a tree", &tree, 1), ("a list", &list, 2000)] {
        let begin = Instant::now();
        let seen: usize = (0..often).map(|_| black_box(pattern).regions().take(10_000_000).count()).sum();
        println!("{:>12.2} ns   a region of {words}", begin.elapsed().as_secs_f64() * 1e9 / seen as f64);
    }
    let begin = Instant::now();
    let runs = deal.take(10_000_000).count();
    println!("{:>12.2} ns   a run of a deal", begin.elapsed().as_secs_f64() * 1e9 / runs as f64);
    let begin = Instant::now();
    let visits = columns.by_offset()?.take(10_000_000).count();
    println!("{:>12.2} ns   a run in order of offsets", begin.elapsed().as_secs_f64() * 1e9 / visits as f64);
    let memory = Pattern::contiguous(0, columns.len())?;
    let pairing = Pairing::new(&columns, &memory)?;
    let begin = Instant::now();
    let pairs = pairing.runs().take(10_000_000).count();
    println!("{:>12.2} ns   a run of a pairing", begin.elapsed().as_secs_f64() * 1e9 / pairs as f64);
    let nest = vec![Level { stride: 376_064, quantity: 1000 }, Level { stride: 400_000_000, quantity: 1000 }];
    let nest = Pattern::nested(0, 47_008, nest)?;
    let begin = Instant::now();
    let mut compressor = Compressor::new();
    for region in nest.regions() {
        black_box(compressor.feed(region)?);
    }
    println!("{:>12.2} ns   a region fed to a compressor", begin.elapsed().as_secs_f64() * 1e9 / 1e6);
    println!("{:>12} B    the nest that came of 10^6 regions", bytes(&compressor.finish()?));
    Ok(())
}

fn bytes(pattern: &Pattern) -> usize {
    use shoal_pattern::codec::Codec;
    pattern.to_bytes().len()
}
