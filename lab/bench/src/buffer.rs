//! Buffers aligned for direct I/O, and the bytes that go into them.

/// The alignment that direct I/O requires of addresses, offsets and lengths, bytes.
pub(crate) const ALIGNMENT: usize = 4096;

/// A buffer of `len` bytes that begins at a multiple of [`ALIGNMENT`].
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Buffer {
        let bytes = vec![0u8; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Buffer { bytes, start, len }
    }

    /// Fills the buffer with bytes that do not compress and that depend on `seed`.
    pub(crate) fn filled(len: usize, seed: u64) -> Buffer {
        let mut buffer = Buffer::new(len);
        let mut random = Random::new(seed);
        for chunk in buffer.as_mut().chunks_mut(8) {
            chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
        }
        buffer
    }

    /// Writes `stamp` over the first bytes, so that two objects of one worker differ.
    pub(crate) fn stamp(&mut self, stamp: u64) {
        let len = self.len.min(8);
        self.as_mut()[..len].copy_from_slice(&stamp.to_le_bytes()[..len]);
    }

    pub(crate) fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// SplitMix64: a small generator whose sequence a seed repeats exactly.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Puts `items` in random order, every order equally likely but for the remainder's tiny bias.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = (self.next() % (i as u64 + 1)) as usize;
            items.swap(i, j);
        }
    }
}
