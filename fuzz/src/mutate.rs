//! Seeded mutation: changes that are likely to hurt a decoder of lengths, counts, tags and varints.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, the same run for the same seed everywhere.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    /// The next word.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`; 0 if `end` is.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end.max(1) as u64) as usize
    }
}

/// Inputs grow no further by mutation.
pub const LEN_MAX: usize = 8192;

/// Words that lie at the edges of lengths, counts and signs.
const EDGES: [u64; 14] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX,
];

/// Changes `input` in one to eight places; `other` is another input to splice with.
pub fn mutate(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=rng.below(8) {
        mutate_once(rng, input, other);
    }
    input.truncate(LEN_MAX);
}

fn mutate_once(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    if input.is_empty() {
        input.extend_from_slice(&rng.next_u64().to_le_bytes());
        return;
    }
    let at = rng.below(input.len());
    match rng.below(10) {
        0 => input[at] ^= 1 << rng.below(8),
        1 => input[at] = rng.next_u64() as u8,
        2 => input[at] = input[at].wrapping_add([1, 255][rng.below(2)]),
        3 => put_edge(rng, input, at),
        4 => put_varint(rng, input, at),
        5 => remove(rng, input, at),
        6 => insert(rng, input, at),
        7 => repeat(rng, input, at),
        8 => splice(rng, input, at, other),
        _ => input.truncate(at),
    }
}

/// An edge over 1, 2, 4 or 8 bytes, little endian.
fn put_edge(rng: &mut Rng, input: &mut [u8], at: usize) {
    let word = EDGES[rng.below(EDGES.len())].to_le_bytes();
    let width = (1 << rng.below(4)).min(input.len() - at);
    input[at..at + width].copy_from_slice(&word[..width]);
}

/// An edge as a varint in place of the byte.
fn put_varint(rng: &mut Rng, input: &mut Vec<u8>, at: usize) {
    let mut word = EDGES[rng.below(EDGES.len())];
    let mut bytes = Vec::new();
    while word >= 0x80 {
        bytes.push(word as u8 | 0x80);
        word >>= 7;
    }
    bytes.push(word as u8);
    input.splice(at..=at, bytes);
}

fn remove(rng: &mut Rng, input: &mut Vec<u8>, at: usize) {
    let end = (at + 1 + rng.below(16)).min(input.len());
    input.drain(at..end);
}

fn insert(rng: &mut Rng, input: &mut Vec<u8>, at: usize) {
    let fill = [0, 0xff, rng.next_u64() as u8][rng.below(3)];
    let count = 1 << rng.below(9);
    input.splice(at..at, std::iter::repeat_n(fill, count));
}

/// A part once more: lists grow by whole items.
fn repeat(rng: &mut Rng, input: &mut Vec<u8>, at: usize) {
    let end = (at + 1 + rng.below(64)).min(input.len());
    let part = input[at..end].repeat(1 + rng.below(8));
    input.splice(end..end, part);
}

fn splice(rng: &mut Rng, input: &mut Vec<u8>, at: usize, other: &[u8]) {
    input.truncate(at);
    input.extend_from_slice(&other[rng.below(other.len())..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_one_sequence_of_inputs() {
        let run = |seed| {
            let (mut rng, mut input) = (Rng(seed), b"a small input".to_vec());
            (0..200).for_each(|_| mutate(&mut rng, &mut input, b"another one"));
            input
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn inputs_stay_within_their_length() {
        let (mut rng, mut input) = (Rng(1), vec![0; LEN_MAX]);
        for _ in 0..1000 {
            mutate(&mut rng, &mut input, &[1; LEN_MAX]);
            assert!(input.len() <= LEN_MAX);
        }
    }
}
