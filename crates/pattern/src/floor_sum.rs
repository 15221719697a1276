//! Sums of floors over an arithmetic progression, in O(log): the arithmetic that counts a stride's bytes.
//!
//! With `u(k) = floor((a k + b) / m)`, the three sums over `k = 0 ..= n` of `u`, `k u` and `u²` reduce to
//! the same sums of smaller numbers by Euclid's algorithm (Graham, Knuth and Patashnik, *Concrete
//! Mathematics*, section 3.5, has the first of them). The whole quotients are sums of powers of `n`. The
//! rest counts the lattice points under a line. This number is the number of points in a rectangle minus
//! the number of points left of the line. The points left of the line are the points under a line when the
//! axes are exchanged.
//!
//! ```text
//!   u │           ·  ·        points under the line        a, b, m, n   ─▶   m, m - b - 1, a, u(n) - 1
//!     │     ·  ·  ·  ·        = all - points left of it
//!     └──────────────── k
//! ```
//!
//! The sums may have 190 bits, but the count that is computed from them has 63. So all is computed modulo a
//! prime above 2^63, [`PRIME`]; modulo a prime, division by 2 and by 6 is possible. Additions, subtractions
//! and products of the sums are exact if their result is below the prime.

/// The largest prime below 2^64.
pub(crate) const PRIME: u64 = u64::MAX - 58;

/// A number modulo [`PRIME`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Residue(u64);

impl Residue {
    pub const ZERO: Self = Self(0);
    const HALF: Self = Self(PRIME.div_ceil(2));

    pub fn of(value: u128) -> Self {
        let fold = |value: u128| (value >> 64) * 59 + (value & u128::from(u64::MAX));
        let value = fold(fold(value));
        Self((value % u128::from(PRIME)) as u64)
    }

    pub fn get(self) -> u64 {
        self.0
    }

    pub fn half(self) -> Self {
        self * Self::HALF
    }
}

impl std::ops::Add for Residue {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (sum, over) = self.0.overflowing_add(other.0);
        // The part above 2^64 is 59 above the prime.
        let sum = if over { sum + 59 } else { sum };
        Self(if sum >= PRIME { sum - PRIME } else { sum })
    }
}

impl std::ops::Sub for Residue {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let (difference, under) = self.0.overflowing_sub(other.0);
        Self(if under { difference.wrapping_add(PRIME) } else { difference })
    }
}

impl std::ops::Mul for Residue {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let product = u128::from(self.0) * u128::from(other.0);
        let folded = (product >> 64) * 59 + (product & u128::from(u64::MAX));
        let (high, low) = ((folded >> 64) as u64, folded as u64);
        Self(low % PRIME) + Self(high * 59)
    }
}

/// Sums over `k = 0 ..= n`, modulo [`PRIME`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloorSums {
    /// Of `u(k)`.
    pub floors: Residue,
    /// Of `k u(k)`.
    pub weighted: Residue,
    /// Of `u(k)²`.
    pub squares: Residue,
}

/// The sum of `0 ..= n`.
pub(crate) fn sum_to(n: u128) -> Residue {
    let (a, b) = if n.is_multiple_of(2) { (n / 2, n + 1) } else { (n, n.div_ceil(2)) };
    Residue::of(a) * Residue::of(b)
}

/// The sum of the squares of `0 ..= n`.
fn squares_to(n: u128) -> Residue {
    // n (n + 1) (2 n + 1) / 6 = (sum of 0 ..= n) (2 n + 1) / 3
    let mut factors = [n, n + 1, 2 * n + 1];
    for by in [2, 3] {
        if let Some(factor) = factors.iter_mut().find(|factor| factor.is_multiple_of(by)) {
            *factor /= by;
        }
    }
    Residue::of(factors[0]) * Residue::of(factors[1]) * Residue::of(factors[2])
}

/// The sums of `u(k) = floor((a k + b) / m)`; `a`, `b`, `m` and `n` below 2^66, `m` > 0.
pub(crate) fn floor_sums(n: u128, a: u128, b: u128, m: u128) -> FloorSums {
    let (slope, rest_a, base, rest_b) = (Residue::of(a / m), a % m, Residue::of(b / m), b % m);
    let inner = under_the_line(n, rest_a, rest_b, m);
    let count = Residue::of(n + 1);
    let (linear, square) = (sum_to(n), squares_to(n));
    let twice = |value: Residue| value + value;
    FloorSums {
        floors: inner.floors + slope * linear + base * count,
        weighted: inner.weighted + slope * square + base * linear,
        squares: inner.squares
            + slope * slope * square
            + base * base * count
            + twice(slope * base * linear)
            + twice(base * inner.floors)
            + twice(slope * inner.weighted),
    }
}

/// The same for `a` and `b` below `m`.
fn under_the_line(n: u128, a: u128, b: u128, m: u128) -> FloorSums {
    let top = (a * n + b) / m;
    if top == 0 {
        return FloorSums { floors: Residue::ZERO, weighted: Residue::ZERO, squares: Residue::ZERO };
    }
    let beside = floor_sums(top - 1, m, m - b - 1, a);
    let (n, top) = (Residue::of(n), Residue::of(top));
    let one = Residue::of(1);
    let floors = n * top - beside.floors;
    let weighted = (top * n * (n + one) - beside.squares - beside.floors).half();
    let twice = beside.weighted + beside.weighted + beside.floors + beside.floors;
    let squares = n * top * (top + one) - twice - floors;
    FloorSums { floors, weighted, squares }
}

#[cfg(test)]
mod tests {
    use super::{PRIME, Residue, floor_sums};

    #[test]
    fn the_sums_are_those_that_counting_gives() {
        for m in 1..12_u128 {
            for a in 0..20 {
                for b in 0..25 {
                    for n in 0..12 {
                        let floor = |k: u128| (a * k + b) / m;
                        let sums = floor_sums(n, a, b, m);
                        let of = |sum: &dyn Fn(u128) -> u128| Residue::of((0..=n).map(sum).sum());
                        assert_eq!(sums.floors, of(&floor), "{a} k + {b} by {m} to {n}");
                        assert_eq!(sums.weighted, of(&|k| k * floor(k)), "{a} k + {b} by {m} to {n}");
                        assert_eq!(sums.squares, of(&|k| floor(k).pow(2)), "{a} k + {b} by {m} to {n}");
                    }
                }
            }
        }
    }

    #[test]
    fn residues_of_the_largest_numbers_are_right() {
        let largest = Residue::of(u128::from(PRIME) - 1);
        assert_eq!(largest * largest, Residue::of(1));
        assert_eq!(largest + Residue::of(1), Residue::ZERO);
        assert_eq!(Residue::ZERO - Residue::of(1), largest);
        assert_eq!(Residue::of(u128::MAX).get(), (u128::MAX % u128::from(PRIME)) as u64);
        assert_eq!(largest + largest, Residue::of(2 * (u128::from(PRIME) - 1)));
    }
}
