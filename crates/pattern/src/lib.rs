//! The algebra of access patterns, and the codec of the wire. No I/O.
//!
//! Five works on parallel file systems (PVFS's small files and its persistency layer, Galley, PLFS, file
//! composition) say one thing: *tell the system the shape of the access, not one request at a time*. A
//! [`Pattern`] is that shape: a finite ordered sequence of regions in closed form. The client's call, the
//! wire, the server's disk schedule, a container's index and a benchmark's workload all use it, and no other
//! list of offsets and lengths exists in ShoalFS.
//!
//! ```
//! use shoal_pattern::{
//!     Cycle, Distribution, Located, Pattern, Piece, Placement, Region, View, Window,
//! };
//!
//! // One column of 8 bytes of a matrix of 1,000 rows of 4,096 bytes: one request, not a thousand.
//! let column = Pattern::strided(64, 8, 4096, 1000)?;
//! assert_eq!(column.to_string(), "8 B x 1000 every 4,096 B from 64");
//! assert_eq!(column.len(), 8000);
//! assert_eq!(column.bounds(), Some((64, 64 + 999 * 4096 + 8)));
//!
//! // A message carries a window of its packed bytes, however the cut falls; it is a pattern again.
//! let part = column.slice(4, 16);
//! let regions: Vec<Region> = part.regions().collect();
//! assert_eq!(regions, [Region::new(68, 4), Region::new(4160, 8), Region::new(8256, 4)]);
//!
//! // Which server holds which bytes? A view is the pattern as one server sees it, computed lazily.
//! struct Stripe;
//! # impl Stripe { const STRIP: u64 = 65_536; const SERVERS: u64 = 4; }
//! impl Placement for Stripe {
//!     fn objects(&self) -> u32 {
//!         4
//!     }
//!     fn locate(&self, logical: u64) -> Located {
//!         let (strip, inside) = (logical / 65_536, logical % 65_536);
//!         let (object, physical) = ((strip % 4) as u32, strip / 4 * 65_536 + inside);
//!         Located::Piece(Piece { object, physical, run: 65_536 - inside })
//!     }
//! }
//! impl Distribution for Stripe {
//!     fn cycle(&self, server: u32) -> Option<Cycle> {
//!         Some(Cycle { period: 4 * 65_536, start: u64::from(server) * 65_536, len: 65_536 })
//!     }
//!     // …
//! #   fn logical(&self, server: u32, physical: u64) -> u64 {
//! #       let strip = physical / Self::STRIP * Self::SERVERS + u64::from(server);
//! #       strip * Self::STRIP + physical % Self::STRIP
//! #   }
//! #   fn logical_end(&self, server: u32, physical_size: u64) -> u64 {
//! #       physical_size.checked_sub(1).map_or(0, |last| self.logical(server, last) + 1)
//! #   }
//! #   fn physical_size(&self, server: u32, logical_size: u64) -> u64 {
//! #       self.cycle(server).map_or(0, |cycle| cycle.held_below(logical_size))
//! #   }
//! }
//! let view = View::new(&column, Window::all(&column), &Stripe, 1)?;
//! let first = view.clone().next().unwrap();
//! // Row 16 is the first in server 1's first strip.
//! assert_eq!((first.physical, first.packed, first.len), (64, 16 * 8, 8));
//! assert_eq!(view.len(), 256 * 8); // 16 rows of every 64; counted by arithmetic
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules, from the bottom up:
//!
//! ```text
//!   codec               the encoding of all values
//!   limits              the limits of a pattern
//!   pattern             a pattern: a body (nest, runs or batched) and a window of its bytes
//!   nest                the body that repeats one record by levels of strides
//!   runs                the body that is a list of strided runs
//!   batched, branch     the body that is a tree of strided runs, and the tree as a caller gives it
//!   regions, climb      the lazy walk over a pattern; the walk through a tree
//!   wire, words         a pattern in bytes; a pattern in words
//!   placement           the object and the offset of each byte of a file
//!   distribution        a placement that is computed by arithmetic, with its inverse
//!   deal                a walk of a pattern over a placement, to all objects at once
//!   view                one server's share of a pattern
//!   lattice             the form of a pattern without its order
//!   find, order, count  on lattices: find a byte; walk by offsets; count the bytes in an object
//!   pairing             a pattern of a file with a pattern of memory
//!   compress            turns a list of regions into strided runs
//!   compressor          turns regions, one by one, into nests and trees
//!   arrays              the parts of arrays in HPF, MPI and Vesta
//! ```
//!
//! Property tests check these laws against naive expansion (`tests/all/laws.rs`; `tests/all/large.rs` for
//! numbers of all sizes):
//!
//! * Each operation gives the same result as on the expanded list of bytes.
//! * A walk of a window gives the same regions as a walk of the slice.
//! * The views over all servers partition the pattern.
//! * An encoded pattern is decoded to the same pattern.
//! * The decoding of any other bytes never panics, never overflows, and allocates at most in proportion to
//!   the input.
//!
//! `SHOAL_PATTERN_CASES=200000 cargo test --release -p shoal-pattern` runs the long form of these tests.

#![forbid(unsafe_code)]

mod arrays;
mod batched;
mod branch;
mod climb;
pub mod codec;
mod compress;
mod compressor;
mod congruence;
mod count;
mod deal;
mod distribution;
mod find;
mod floor_sum;
mod lattice;
mod laws;
pub mod limits;
mod nest;
mod order;
mod packed;
mod pairing;
mod pattern;
mod placement;
mod region;
mod regions;
mod runs;
mod view;
mod wire;
mod words;

pub use arrays::{ArrayError, BlockAxis, Dealing, DealtAxis, VestaView, hpf, subarray, vesta};
pub use branch::{Branch, Limb};
pub use compressor::Compressor;
pub use count::share_len;
pub use deal::{Deal, Dealt};
pub use distribution::{Cycle, Distribution};
pub use find::TooManySteps;
pub use laws::{broken_law, broken_placement_law};
pub use nest::Level;
pub use order::{ByOffset, Interleaved, Visit};
pub use packed::PackedRanges;
pub use pairing::{PairedByOffset, PairedRun, PairedRuns, Pairing, UnequalLengths};
pub use pattern::{Pattern, PatternError};
pub use placement::{Located, Piece, Placement};
pub use region::Region;
pub use regions::Regions;
pub use view::{Split, View, ViewError, ViewRun, Window, split};
