//! Swarm testing (Groce, Zhang, Eide, Chen, Regehr 2012): each seed leaves some families out and favours
//! others, so that runs differ more from each other than runs of one even mix would.

use crate::rng::Rng;
use shoal_proto::Durability;

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident = $weight:literal,)*) => {
        /// A family of operations.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Family { $($(#[$doc])* $name,)* }

        /// Each family and how often it is drawn in the even mix.
        const FAMILIES: &[(Family, u64)] = &[$((Family::$name, $weight),)*];
    };
}

families! {
    /// A new file of its own, written.
    Create = 14,
    /// An own name less.
    Unlink = 7,
    /// Own names moved, replaced, exchanged; some onto contended names.
    Rename = 8,
    /// A further name.
    Link = 4,
    /// Symbolic links, FIFOs, directories.
    Special = 3,
    /// Ranges and patterns.
    Write = 14,
    /// At the end.
    Append = 6,
    /// Shrink and grow.
    Truncate = 4,
    /// Reserve, punch, zero.
    Allocate = 3,
    /// fsync of files and directories.
    Sync = 6,
    /// Own, others', shared files.
    Read = 10,
    /// Attributes of own objects.
    Stat = 4,
    /// The removed object.
    Gone = 3,
    /// Mode, owner, times, extended attributes.
    Attributes = 6,
    /// Contended names of files.
    HotFile = 10,
    /// Contended names of directories.
    HotDirectory = 8,
    /// Contended extended attributes.
    HotAttribute = 4,
    /// Directories moved about.
    Wander = 5,
    /// Files removed while they are open.
    Held = 4,
    /// Listings.
    List = 3,
    /// By path.
    Path = 3,
    /// Space.
    Space = 1,
    /// Several open files of one file: written through one, synced through another.
    Descriptors = 6,
    /// Several operations at once on one file.
    InUse = 8,
    /// Other sync modes.
    Modes = 1,
    /// Files that are open in one client and removed or replaced by another.
    Offered = 6,
}

impl Family {
    /// All clients do it to the same names and attributes.
    pub fn is_contended(self) -> bool {
        matches!(self, Family::HotFile | Family::HotDirectory | Family::HotAttribute)
    }
}

/// How often each family is drawn.
#[derive(Clone, Debug)]
pub(super) struct Mix {
    weights: Vec<(Family, u64)>,
    all: u64,
    /// Of 12 operations so many ask for another durability than is usual.
    choosy: u64,
}

/// In every third seed some operations ask for another durability.
const CHOOSY: [u64; 6] = [0, 0, 0, 0, 2, 6];

impl Mix {
    /// The mix of a seed: each family left out, rare, usual or frequent. New files there are always.
    /// `draws_modes`: sync modes and the durability of requests too.
    pub fn of_seed(seed: u64, draws_modes: bool) -> Mix {
        let mut rng = Rng::new(seed, 2);
        let mut factor = || [0, 1, 2, 2, 4, 12][rng.below(6) as usize];
        let weigh = |&(family, weight): &(Family, u64)| {
            // Drawn in any case, so that the others are the same.
            let drawn = factor();
            let factor = if family == Family::Modes && !draws_modes { 0 } else { drawn };
            (family, weight * if family == Family::Create { factor.max(2) } else { factor })
        };
        let weights: Vec<(Family, u64)> = FAMILIES.iter().map(weigh).collect();
        let all = weights.iter().map(|(_, weight)| weight).sum();
        let choosy = if draws_modes { CHOOSY[rng.below(6) as usize] } else { 0 };
        Mix { weights, all, choosy }
    }

    /// The durability that an operation requests.
    pub fn draw_durability(&self, rng: &mut Rng) -> Durability {
        match self.choosy > 0 && rng.below(12) < self.choosy {
            true => [Durability::Durable, Durability::Written, Durability::Unheld][rng.below(3) as usize],
            false => Durability::Usual,
        }
    }

    /// One of them.
    pub fn draw(&self, rng: &mut Rng) -> Family {
        let mut at = rng.below(self.all);
        for &(family, weight) in &self.weights {
            match at.checked_sub(weight) {
                Some(rest) => at = rest,
                None => return family,
            }
        }
        Family::Create
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_drawn_by_some_seed_and_left_out_by_another() {
        for &(family, _) in FAMILIES {
            let weight =
                |seed| Mix::of_seed(seed, true).weights.iter().find(|(f, _)| *f == family).unwrap().1;
            assert!((0..50).any(|seed| weight(seed) > 0), "{family:?}");
            assert_eq!((0..50).any(|seed| weight(seed) == 0), family != Family::Create, "{family:?}");
            let mix = Mix { weights: vec![(family, 1)], all: 1, choosy: 0 };
            assert_eq!(mix.draw(&mut Rng::new(1, 1)), family);
        }
    }
}
