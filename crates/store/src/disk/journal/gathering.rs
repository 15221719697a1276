//! The buffer of a journal group that is being filled. A *group* is one write to the journal: the records
//! of the operations that are made durable together.
//!
//! Usually one group is filled while another group is written. Both have a buffer of full size, which is
//! reused. Some coalescing policies allow only one or a few operations in a group, so many groups may wait.
//! Such a group has a small buffer, only for its records. The records are copied into a buffer of full size
//! just before the write.

use super::group::HEADER;
use shoal_env::AlignedBuf;

/// See the module.
pub(in crate::disk) enum Gathering {
    /// A whole buffer.
    Whole(AlignedBuf),
    /// The record's bytes, and their maximum.
    Small(Vec<u8>, usize),
}

impl Gathering {
    /// A whole buffer, all of which may be used.
    pub fn whole(mut buf: AlignedBuf) -> Gathering {
        buf.set_len(buf.capacity());
        Gathering::Whole(buf)
    }

    /// A buffer that grows with its record, up to `capacity` bytes.
    pub fn small(capacity: usize) -> Gathering {
        Gathering::Small(vec![0; HEADER], capacity)
    }

    /// Bytes it can hold.
    pub fn capacity(&self) -> usize {
        match self {
            Gathering::Whole(buf) => buf.capacity(),
            Gathering::Small(_, capacity) => *capacity,
        }
    }

    /// Room for `len` bytes at `at`.
    pub fn room(&mut self, at: usize, len: usize) -> &mut [u8] {
        match self {
            Gathering::Whole(buf) => &mut buf[at..at + len],
            Gathering::Small(bytes, _) => {
                bytes.resize(bytes.len().max(at + len), 0);
                &mut bytes[at..at + len]
            }
        }
    }

    /// The buffer to write; `spare` returns one for a small record.
    pub fn into_whole(self, spare: impl FnOnce() -> AlignedBuf) -> AlignedBuf {
        match self {
            Gathering::Whole(buf) => buf,
            Gathering::Small(bytes, _) => {
                let mut buf = spare();
                buf.set_len(buf.capacity());
                buf[..bytes.len()].copy_from_slice(&bytes);
                buf
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_one_holds_what_was_put_in_and_is_written_as_a_whole_one() {
        let mut small = Gathering::small(8192);
        let mut whole = Gathering::whole(AlignedBuf::zeroed(8192));
        for gathering in [&mut small, &mut whole] {
            gathering.room(HEADER, 100).fill(1);
            gathering.room(HEADER + 100, 50).fill(2);
            assert_eq!(gathering.capacity(), 8192);
        }
        let Gathering::Small(bytes, _) = &small else { panic!("it is small") };
        assert_eq!(bytes.len(), HEADER + 150);
        let written = small.into_whole(|| AlignedBuf::zeroed(8192));
        let same = whole.into_whole(|| panic!("it has a buffer"));
        assert_eq!(written[..HEADER + 150], same[..HEADER + 150]);
    }
}
