//! The memory of a transfer: bytes, and the point from which its offsets count.

use std::cell::RefCell;
use std::rc::Rc;

/// A buffer of a transfer. `T` is `&mut [u8]` for a read and `&[u8]` for a write.
pub struct Memory<T> {
    pub(crate) bytes: T,
    pub(crate) origin: usize,
}

impl<T> Memory<T> {
    /// Offsets count from `origin`, a place in the buffer: with a negative memory stride the first record has
    /// the highest offset.
    pub fn at(bytes: T, origin: usize) -> Memory<T> {
        Memory { bytes, origin }
    }
}

impl<'a> From<&'a mut [u8]> for Memory<&'a mut [u8]> {
    fn from(bytes: &'a mut [u8]) -> Memory<&'a mut [u8]> {
        Memory { bytes, origin: 0 }
    }
}

impl<'a> From<&'a [u8]> for Memory<&'a [u8]> {
    fn from(bytes: &'a [u8]) -> Memory<&'a [u8]> {
        Memory { bytes, origin: 0 }
    }
}

/// A buffer of a non-blocking transfer, shared with the operation under way: a read fills it before its
/// `wait` returns, a write takes its bytes when it begins.
#[derive(Clone, Default, Debug)]
pub struct SharedBuffer(pub(crate) Rc<RefCell<Vec<u8>>>, pub(crate) usize);

impl SharedBuffer {
    /// A buffer whose offsets count from its start.
    pub fn new(bytes: Vec<u8>) -> SharedBuffer {
        SharedBuffer::at(bytes, 0)
    }

    /// A buffer whose offsets count from `origin`.
    pub fn at(bytes: Vec<u8>, origin: usize) -> SharedBuffer {
        SharedBuffer(Rc::new(RefCell::new(bytes)), origin)
    }

    /// Its bytes now.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.borrow().clone()
    }
}
