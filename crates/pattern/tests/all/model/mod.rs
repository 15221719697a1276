//! The model that the laws compare with: patterns written out byte by byte, and small distributions.

#![allow(dead_code, reason = "each test file uses its part")]

use proptest::prelude::*;
use shoal_pattern::{Branch, Cycle, Distribution, Level, Limb, Located, Pattern, Piece, Placement, Region};

/// The recipe of a pattern, to be expanded naively.
#[derive(Clone, Debug)]
pub enum Recipe {
    Nested { offset: i64, record: u64, levels: Vec<(i64, u64)> },
    List(Vec<(i64, u64)>),
    Batched(Vec<Branch>),
    Shift(Box<Recipe>, i64),
    Slice(Box<Recipe>, u64, u64),
    Coalesce(Box<Recipe>),
    Compress(Box<Recipe>),
}

impl Recipe {
    pub fn pattern(&self) -> Pattern {
        match self {
            Self::Nested { offset, record, levels } => {
                let levels = levels.iter().map(|&(stride, quantity)| Level { stride, quantity }).collect();
                Pattern::nested(*offset, *record, levels).unwrap()
            }
            Self::List(regions) => {
                Pattern::list(regions.iter().map(|&(offset, len)| Region { offset, len }).collect()).unwrap()
            }
            Self::Batched(vector) => Pattern::batched(vector).unwrap(),
            Self::Shift(of, delta) => of.pattern().shift(*delta).unwrap(),
            Self::Slice(of, from, len) => of.pattern().slice(*from, *len),
            Self::Coalesce(of) => of.pattern().coalesce(),
            Self::Compress(of) => of.pattern().compress(),
        }
    }

    /// The regions that the recipe means, by the definitions alone.
    pub fn regions(&self) -> Vec<Region> {
        match self {
            Self::Nested { offset, record, levels } => nested(*offset, *record, levels),
            Self::List(regions) => regions.iter().map(|&(offset, len)| Region { offset, len }).collect(),
            Self::Batched(vector) => batched(vector, 0),
            Self::Shift(of, delta) => of
                .regions()
                .into_iter()
                .map(|region| Region::new(region.offset + delta, region.len))
                .collect(),
            Self::Slice(of, from, len) => cut(&of.regions(), *from, *len),
            Self::Coalesce(of) => join(&of.regions()),
            Self::Compress(of) => of.regions(),
        }
        .into_iter()
        .filter(|region| region.len > 0)
        .collect()
    }
}

/// Levels innermost first: the last is the outermost loop.
fn nested(offset: i64, record: u64, levels: &[(i64, u64)]) -> Vec<Region> {
    let Some((&(stride, quantity), inner)) = levels.split_last() else {
        return vec![Region::new(offset, record)];
    };
    (0..quantity as i64).flat_map(|turn| nested(offset + turn * stride, record, inner)).collect()
}

/// Root outermost: each node in turn, placed at `place` or absolutely.
fn batched(vector: &[Branch], place: i64) -> Vec<Region> {
    let mut regions = Vec::new();
    for branch in vector {
        let from = if branch.is_absolute { branch.offset } else { place + branch.offset };
        for turn in 0..branch.quantity as i64 {
            let place = from + turn * branch.stride;
            match &branch.limb {
                Limb::Bytes(len) => regions.push(Region::new(place, *len)),
                Limb::Vector(vector) => regions.extend(batched(vector, place)),
            }
        }
    }
    regions
}

/// The packed bytes `from .. from + len`, region by region.
pub fn cut(regions: &[Region], from: u64, len: u64) -> Vec<Region> {
    let mut start = 0;
    let mut part = Vec::new();
    for region in regions {
        let end = start + region.len;
        let (low, high) = (start.max(from), end.min(from.saturating_add(len)));
        if low < high {
            part.push(Region::new(region.offset + (low - start) as i64, high - low));
        }
        start = end;
    }
    part
}

/// Neighbours that touch made one.
pub fn join(regions: &[Region]) -> Vec<Region> {
    let mut joined: Vec<Region> = Vec::new();
    for region in regions.iter().filter(|region| region.len > 0) {
        match joined.last_mut() {
            Some(last) if last.end() == region.offset => last.len += region.len,
            _ => joined.push(*region),
        }
    }
    joined
}

/// Every byte's offset, in packed order.
pub fn bytes(regions: &[Region]) -> Vec<i64> {
    regions.iter().flat_map(|region| region.offset..region.end()).collect()
}

pub fn expand(pattern: &Pattern) -> Vec<Region> {
    pattern.regions().collect()
}

/// Trees around `low`, small enough to be written out.
fn trees(low: i64) -> impl Strategy<Value = Vec<Branch>> {
    let stride = || prop_oneof![-30..30_i64, Just(0_i64), (-6..7_i64).prop_map(|units| units * 4)];
    let quantity = || prop_oneof![1 => Just(0_u64), 6 => Just(1_u64), 8 => 2..4_u64];
    let bytes = prop_oneof![1 => Just(0_u64), 8 => 1..7_u64, 6 => Just(4_u64)];
    let node = move |limb| {
        (-20..60_i64, prop::bool::weighted(0.15), stride(), quantity(), limb).prop_map(
            |(offset, is_absolute, stride, quantity, limb)| Branch {
                offset,
                is_absolute,
                stride,
                quantity,
                limb,
            },
        )
    };
    let leaf = node(bytes.prop_map(Limb::Bytes).boxed());
    let branch = leaf.prop_recursive(3, 10, 4, move |inner| {
        node(prop::collection::vec(inner, 0..4).prop_map(Limb::Vector).boxed())
    });
    // Absolute places are moved as the vector is.
    fn at(branch: Branch, low: i64, is_root: bool) -> Branch {
        let offset = branch.offset + if is_root || branch.is_absolute { low + 150 } else { 0 };
        let limb = match branch.limb {
            Limb::Vector(vector) => {
                Limb::Vector(vector.into_iter().map(|inner| at(inner, low, false)).collect())
            }
            bytes => bytes,
        };
        Branch { offset, limb, ..branch }
    }
    prop::collection::vec(branch, 0..4)
        .prop_map(move |vector| vector.into_iter().map(|branch| at(branch, low, true)).collect())
}

fn plain(low: i64) -> impl Strategy<Value = Recipe> {
    // Strides that are small multiples make records touch and levels join far more often than chance would.
    let stride = || prop_oneof![-40..40_i64, (-6..7_i64).prop_map(|units| units * 4)];
    let level = (stride(), prop_oneof![1 => 0..2_u64, 8 => 1..5_u64]);
    let record = prop_oneof![1 => Just(0_u64), 8 => 1..9_u64, 4 => Just(4_u64), 1 => 1..60_u64];
    let nest = (low..low + 600, record, prop::collection::vec(level, 0..4))
        .prop_map(|(offset, record, levels)| Recipe::Nested { offset, record, levels });
    let scattered = prop::collection::vec((low..low + 400, 0..20_u64), 0..12);
    let touching =
        (low..low + 100, prop::collection::vec((0..3_i64, 0..6_u64), 0..16)).prop_map(|(start, steps)| {
            let mut offset = start;
            let step = |(gap, len): (i64, u64)| {
                let region = (offset + gap * 3, len);
                offset = region.0 + len as i64;
                region
            };
            steps.into_iter().map(step).collect::<Vec<_>>()
        });
    let regular =
        (low..low + 100, 1..5_u64, -20..20_i64, 1..6_i64, prop::collection::vec((0..50_i64, 0..9_u64), 0..4))
            .prop_map(|(start, len, stride, count, more)| {
                let mut regions: Vec<_> = (0..count).map(|turn| (start + turn * stride, len)).collect();
                regions.extend(more.into_iter().map(|(offset, len)| (start + offset, len)));
                regions.extend((0..count).map(|turn| (start + turn * 4, 4)));
                regions
            });
    let list = prop_oneof![scattered, touching, regular].prop_map(Recipe::List);
    prop_oneof![2 => nest, 2 => list, 3 => trees(low).prop_map(Recipe::Batched)]
}

/// Recipes whose least offset is around `low`, with up to four operations upon each other.
pub fn recipes(low: i64) -> impl Strategy<Value = Recipe> {
    plain(low).prop_recursive(4, 5, 1, |inner| {
        prop_oneof![
            (inner.clone(), -50..200_i64).prop_map(|(of, delta)| Recipe::Shift(Box::new(of), delta)),
            (inner.clone(), 0..60_u64, 0..200_u64).prop_map(|(of, from, len)| Recipe::Slice(
                Box::new(of),
                from,
                len
            )),
            inner.clone().prop_map(|of| Recipe::Coalesce(Box::new(of))),
            inner.prop_map(|of| Recipe::Compress(Box::new(of))),
        ]
    })
}

/// Round robin by strips; `has_cycle`: it returns its cycle to views.
#[derive(Clone, Copy, Debug)]
pub struct Stripe {
    pub servers: u32,
    pub strip: u64,
    pub has_cycle: bool,
}

impl Stripe {
    fn cycle_of(&self, server: u32) -> Cycle {
        let start = u64::from(server) * self.strip;
        Cycle { period: u64::from(self.servers) * self.strip, start, len: self.strip }
    }
}

impl Placement for Stripe {
    fn objects(&self) -> u32 {
        self.servers
    }

    fn locate(&self, logical: u64) -> Located {
        let (strip, inside) = (logical / self.strip, logical % self.strip);
        let servers = u64::from(self.servers);
        let physical = strip / servers * self.strip + inside;
        Located::Piece(Piece { object: (strip % servers) as u32, physical, run: self.strip - inside })
    }
}

impl Distribution for Stripe {
    fn logical(&self, server: u32, physical: u64) -> u64 {
        let strip = physical / self.strip * u64::from(self.servers) + u64::from(server);
        strip * self.strip + physical % self.strip
    }

    fn logical_end(&self, server: u32, physical_size: u64) -> u64 {
        physical_size.checked_sub(1).map_or(0, |last| self.logical(server, last) + 1)
    }

    fn physical_size(&self, server: u32, logical_size: u64) -> u64 {
        self.cycle_of(server).held_below(logical_size)
    }

    fn cycle(&self, server: u32) -> Option<Cycle> {
        self.has_cycle.then(|| self.cycle_of(server))
    }
}

/// Everything on one of two servers, as PVFS's `basic`.
#[derive(Clone, Copy, Debug)]
pub struct Basic {
    pub holder: u32,
    pub has_cycle: bool,
}

impl Placement for Basic {
    fn objects(&self) -> u32 {
        2
    }

    fn locate(&self, logical: u64) -> Located {
        Located::Piece(Piece { object: self.holder, physical: logical, run: u64::MAX })
    }
}

impl Distribution for Basic {
    fn logical(&self, _: u32, physical: u64) -> u64 {
        physical
    }

    fn logical_end(&self, _: u32, physical_size: u64) -> u64 {
        physical_size
    }

    fn physical_size(&self, server: u32, logical_size: u64) -> u64 {
        if server == self.holder { logical_size } else { 0 }
    }

    fn cycle(&self, server: u32) -> Option<Cycle> {
        let len = u64::from(server == self.holder);
        self.has_cycle.then_some(Cycle { period: 1, start: 0, len })
    }
}

/// A distribution that a failing case can show.
pub trait Shown: Distribution + std::fmt::Debug {}

impl Shown for Stripe {}
impl Shown for Basic {}

/// A layout with holes: extents of objects, in order, and what they leave.
#[derive(Clone, Debug)]
pub struct Extents {
    pub objects: u32,
    /// (start, end, object, physical), in order and disjoint.
    pub extents: Vec<(u64, u64, u32, u64)>,
}

impl Placement for Extents {
    fn objects(&self) -> u32 {
        self.objects
    }

    fn locate(&self, logical: u64) -> Located {
        match self.extents.iter().find(|extent| logical < extent.1) {
            Some(&(start, end, object, physical)) if start <= logical => {
                let physical = physical + (logical - start);
                Located::Piece(Piece { object, physical, run: end - logical })
            }
            Some(&(start, ..)) => Located::Hole { run: start - logical },
            None => Located::Hole { run: u64::MAX },
        }
    }
}

pub fn extents() -> impl Strategy<Value = Extents> {
    prop::collection::vec((0..30_u64, 1..40_u64, 0..4_u32, any::<bool>()), 0..20).prop_map(|steps| {
        let (mut end, mut ends) = (0, [0, 100, 7, 50]);
        let mut extents = Vec::new();
        for (gap, len, object, goes_on) in steps {
            let start = end + if goes_on { 0 } else { gap };
            let physical = &mut ends[object as usize];
            extents.push((start, start + len, object, *physical));
            *physical += len;
            end = start + len;
        }
        Extents { objects: 4, extents }
    })
}

/// So many cases a property; the long form (`SHOAL_PATTERN_CASES=200000`) takes minutes.
pub fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("SHOAL_PATTERN_CASES").ok().map(|cases| cases.parse().unwrap());
    // Failures are kept as ordinary tests by hand, where they can be read.
    ProptestConfig {
        cases: asked.unwrap_or(cases),
        failure_persistence: None,
        max_global_rejects: 1_000_000,
        ..ProptestConfig::default()
    }
}

pub fn distributions() -> impl Strategy<Value = Box<dyn Shown>> {
    let stripe = (1..6_u32, prop_oneof![1..40_u64, Just(4_u64), Just(16_u64)], any::<bool>()).prop_map(
        |(servers, strip, has_cycle)| Box::new(Stripe { servers, strip, has_cycle }) as Box<dyn Shown>,
    );
    let basic = (0..2_u32, any::<bool>())
        .prop_map(|(holder, has_cycle)| Box::new(Basic { holder, has_cycle }) as Box<dyn Shown>);
    prop_oneof![8 => stripe, 1 => basic]
}

/// The packed bytes of runs, those side by side as one range.
#[allow(dead_code, reason = "not every test compares views")]
pub fn packed_ranges(runs: &[shoal_pattern::ViewRun]) -> Vec<std::ops::Range<u64>> {
    let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
    for run in runs {
        match ranges.last_mut() {
            Some(last) if last.end == run.packed => last.end += run.len,
            _ => ranges.push(run.packed..run.packed + run.len),
        }
    }
    ranges
}
