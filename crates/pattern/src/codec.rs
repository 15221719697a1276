//! The codec: it encodes every message, every pattern and the values of the server's rows as bytes, and
//! decodes them.
//!
//! The format is plain and explicit. A [`Writer`] appends to a `Vec<u8>`, a [`Reader`] walks a borrowed
//! slice. Integers are little endian and of fixed width. Numbers that are mostly small are varints.
//!
//! ```text
//!   u64 / i64     8 bytes, little endian          bool      0 or 1, nothing else
//!   varint        LEB128, 1 to 10 bytes           option    0, or 1 and the value
//!   zigzag        varint of (n << 1) ^ (n >> 63)  bytes     u32 length, then the bytes
//!                                                 list      u32 count, then the items
//! ```
//!
//! All input is hostile. Invariants of [`Reader`]:
//! - it never panics and never reads past its slice; a short input is [`DecodeError::Truncated`] (test:
//!   `decoding_arbitrary_bytes_gives_a_pattern_that_can_be_used_or_an_error`);
//! - **it allocates only after two checks: a length or count must be within its limit, and the input must
//!   have that many bytes or items left**; so an allocation is at most proportional to the input
//!   ([`Reader::get_count`]; test: `lengths_and_counts_are_checked_before_they_cost_anything`);
//! - **all lists of one input share one budget of memory**: [`LIST_ROOM_BYTES`], and [`LIST_ROOM_PER_BYTE`]
//!   for each byte of input; the reader refuses a million items of one byte each if they need more memory
//!   (test: `lists_large_in_memory_and_small_on_the_wire_share_one_room`);
//! - each kind of the table above has exactly one encoding of a value (a padded varint or a bool of 2 is
//!   [`DecodeError::Invalid`]), so equal bytes mean equal values, and equal values mean equal bytes (test:
//!   `a_value_has_one_encoding`).

use std::fmt;

/// Why bytes do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The input ended inside a value.
    Truncated,
    /// A length, count or number is above what is allowed for it.
    Limit {
        /// Name of the value that exceeds its limit.
        what: &'static str,
        /// The value found.
        value: u64,
        /// The largest value allowed.
        limit: u64,
    },
    /// The bytes are no value of this kind.
    Invalid(&'static str),
    /// The value ended before the input did.
    Trailing,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the input ends inside a value"),
            Self::Limit { what, value, limit } => write!(f, "{what} is {value}, above its limit of {limit}"),
            Self::Invalid(what) => write!(f, "not a valid {what}"),
            Self::Trailing => f.write_str("bytes are left after the value"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A value with one encoding as bytes. `decode` of the bytes that `encode` wrote returns an equal value.
pub trait Codec: Sized {
    /// Appends this value to `writer`.
    fn encode(&self, writer: &mut Writer);

    /// Reads one value from the front of `reader`. After an error the reader's place is unspecified.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// This value alone, as bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        self.encode(&mut writer);
        writer.into_vec()
    }

    /// The value that is the whole of `bytes`.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

/// Appends values to a byte vector. Never fails: the maker of a value checks its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty writer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    /// A writer that appends to `bytes`, so that a buffer can be used again.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The bytes written.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes written so far (with those of [`Writer::from_vec`]).
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Discards the bytes written and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Truncates the output to its first `len` bytes, so that a caller can undo a value.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Makes room for `additional` more bytes.
    pub fn reserve(&mut self, additional: usize) {
        self.bytes.reserve(additional);
    }

    /// One byte.
    #[inline]
    pub fn put_u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Two bytes, little endian.
    #[inline]
    pub fn put_u16(&mut self, value: u16) {
        self.put_raw(&value.to_le_bytes());
    }

    /// Four bytes, little endian.
    #[inline]
    pub fn put_u32(&mut self, value: u32) {
        self.put_raw(&value.to_le_bytes());
    }

    /// Eight bytes, little endian.
    #[inline]
    pub fn put_u64(&mut self, value: u64) {
        self.put_raw(&value.to_le_bytes());
    }

    /// Sixteen bytes, little endian.
    #[inline]
    pub fn put_u128(&mut self, value: u128) {
        self.put_raw(&value.to_le_bytes());
    }

    /// Four bytes, little endian, two's complement.
    #[inline]
    pub fn put_i32(&mut self, value: i32) {
        self.put_raw(&value.to_le_bytes());
    }

    /// Eight bytes, little endian, two's complement.
    #[inline]
    pub fn put_i64(&mut self, value: i64) {
        self.put_raw(&value.to_le_bytes());
    }

    /// One byte, 0 or 1.
    #[inline]
    pub fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }

    /// LEB128: seven bits a byte, lowest first, the top bit set on all but the last. 1 to 10 bytes.
    #[inline]
    pub fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8((value as u8) | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }

    /// A signed number as a varint, small for small magnitudes: 0, -1, 1, -2 … become 0, 1, 2, 3 …
    #[inline]
    pub fn put_zigzag(&mut self, value: i64) {
        self.put_varint(((value << 1) ^ (value >> 63)) as u64);
    }

    /// The bytes themselves, without a length.
    #[inline]
    pub fn put_raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// A `u32` length and the bytes.
    ///
    /// # Panics
    /// When `bytes` is 4 GiB or longer; no message is.
    #[inline]
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_count(bytes.len());
        self.put_raw(bytes);
    }

    /// A string as its UTF-8 bytes, like [`Writer::put_bytes`].
    #[inline]
    pub fn put_str(&mut self, text: &str) {
        self.put_bytes(text.as_bytes());
    }

    /// A count of items that follow, as a `u32`; read by [`Reader::get_count`].
    ///
    /// # Panics
    /// When `count` does not fit a `u32`; it does in every message.
    #[inline]
    pub fn put_count(&mut self, count: usize) {
        assert!(u32::try_from(count).is_ok(), "a count of {count} does not fit a message");
        self.put_u32(count as u32);
    }

    /// A count and the items.
    pub fn put_list<T: Codec>(&mut self, items: &[T]) {
        self.put_count(items.len());
        items.iter().for_each(|item| item.encode(self));
    }

    /// Any value with an encoding.
    #[inline]
    pub fn put<T: Codec>(&mut self, value: &T) {
        value.encode(self);
    }

    /// Reserves four bytes for a `u32` that is known later. Returns their position; see
    /// [`Writer::patch_u32`].
    #[inline]
    pub fn hold_u32(&mut self) -> usize {
        let at = self.bytes.len();
        self.put_u32(0);
        at
    }

    /// Writes `value` over the four bytes at `at`.
    ///
    /// # Panics
    /// When `at` is not the place of four bytes already written.
    #[inline]
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// Bytes of memory that the lists of one input may take, whatever its length. Enough for the largest
/// compound of the smallest operations, and for its reply.
pub const LIST_ROOM_BYTES: usize = 512 * 1024;

/// Further bytes of memory that the lists of one input may take for each byte of input.
pub const LIST_ROOM_PER_BYTE: usize = 32;

/// Walks a borrowed slice. See the module for its invariants.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
    /// Bytes of memory that lists may still take.
    list_room: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        let list_room = bytes.len().saturating_mul(LIST_ROOM_PER_BYTE).saturating_add(LIST_ROOM_BYTES);
        Self { rest: bytes, total: bytes.len(), list_room }
    }

    /// Bytes not read yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// Whether everything was read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends the reading: an error if bytes are left.
    #[inline]
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }

    /// The next byte, which stays unread.
    #[inline]
    pub fn peek_u8(&self) -> Result<u8, DecodeError> {
        self.rest.first().copied().ok_or(DecodeError::Truncated)
    }

    /// The next `len` bytes.
    #[inline]
    pub fn get_raw(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// All bytes that are left.
    #[inline]
    pub fn get_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// The next `N` bytes as an array.
    #[inline]
    pub fn get_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// One byte.
    #[inline]
    pub fn get_u8(&mut self) -> Result<u8, DecodeError> {
        self.get_array::<1>().map(|[byte]| byte)
    }

    /// Two bytes, little endian.
    #[inline]
    pub fn get_u16(&mut self) -> Result<u16, DecodeError> {
        self.get_array().map(u16::from_le_bytes)
    }

    /// Four bytes, little endian.
    #[inline]
    pub fn get_u32(&mut self) -> Result<u32, DecodeError> {
        self.get_array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little endian.
    #[inline]
    pub fn get_u64(&mut self) -> Result<u64, DecodeError> {
        self.get_array().map(u64::from_le_bytes)
    }

    /// Sixteen bytes, little endian.
    #[inline]
    pub fn get_u128(&mut self) -> Result<u128, DecodeError> {
        self.get_array().map(u128::from_le_bytes)
    }

    /// Four bytes, little endian, two's complement.
    #[inline]
    pub fn get_i32(&mut self) -> Result<i32, DecodeError> {
        self.get_array().map(i32::from_le_bytes)
    }

    /// Eight bytes, little endian, two's complement.
    #[inline]
    pub fn get_i64(&mut self) -> Result<i64, DecodeError> {
        self.get_array().map(i64::from_le_bytes)
    }

    /// One byte that must be 0 or 1.
    #[inline]
    pub fn get_bool(&mut self) -> Result<bool, DecodeError> {
        match self.get_u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("bool")),
        }
    }

    /// A varint, in its only (shortest) form.
    #[inline]
    pub fn get_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.get_u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Invalid("varint"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let padded = byte == 0 && shift > 0;
                return if padded { Err(DecodeError::Invalid("varint")) } else { Ok(value) };
            }
        }
        Err(DecodeError::Invalid("varint"))
    }

    /// A signed varint; see [`Writer::put_zigzag`].
    #[inline]
    pub fn get_zigzag(&mut self) -> Result<i64, DecodeError> {
        let coded = self.get_varint()?;
        Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }

    /// A `u32` length of at most `limit`, and that many bytes, borrowed from the input.
    #[inline]
    pub fn get_bytes(&mut self, limit: usize) -> Result<&'a [u8], DecodeError> {
        let len = self.get_u32()? as usize;
        within("a byte string's length", len, limit)?;
        self.get_raw(len)
    }

    /// Like [`Reader::get_bytes`], and the bytes are UTF-8. `limit` is in bytes.
    #[inline]
    pub fn get_str(&mut self, limit: usize) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.get_bytes(limit)?).map_err(|_| DecodeError::Invalid("UTF-8 string"))
    }

    /// A `u32` count of at most `limit` items of at least `min_item_bytes` bytes each (taken as 1 if 0). A
    /// count of more items than the rest of the input could hold is `Truncated`, so the result may size an
    /// allocation.
    #[inline]
    pub fn get_count(&mut self, limit: usize, min_item_bytes: usize) -> Result<usize, DecodeError> {
        let count = self.get_u32()? as usize;
        within("a count", count, limit)?;
        if count > self.remaining() / min_item_bytes.max(1) {
            return Err(DecodeError::Truncated);
        }
        Ok(count)
    }

    /// A count as from [`Reader::get_count`], and its items.
    pub fn get_list<T: Codec>(&mut self, limit: usize, min_item_bytes: usize) -> Result<Vec<T>, DecodeError> {
        let count = self.get_count(limit, min_item_bytes)?;
        // Items may be far larger in memory than on the wire.
        let bytes = count.saturating_mul(size_of::<T>());
        within("a list's size in memory", bytes, self.list_room)?;
        self.list_room -= bytes;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::decode(self)?);
        }
        Ok(items)
    }

    /// Any value with an encoding.
    #[inline]
    pub fn get<T: Codec>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// A reader of the next `len` bytes alone; this reader skips them. For values framed by a length: the
    /// inner reader cannot leave its frame.
    #[inline]
    pub fn get_frame(&mut self, len: usize) -> Result<Reader<'a>, DecodeError> {
        self.get_raw(len).map(Reader::new)
    }
}

/// `value`, if it is at most `limit`.
fn within(what: &'static str, value: usize, limit: usize) -> Result<(), DecodeError> {
    if value > limit {
        return Err(DecodeError::Limit { what, value: value as u64, limit: limit as u64 });
    }
    Ok(())
}

macro_rules! fixed_width {
    ($($type:ty, $put:ident, $get:ident;)*) => {$(
        impl Codec for $type {
            #[inline]
            fn encode(&self, writer: &mut Writer) {
                writer.$put(*self);
            }

            #[inline]
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.$get()
            }
        }
    )*};
}

fixed_width! {
    u8, put_u8, get_u8;
    u16, put_u16, get_u16;
    u32, put_u32, get_u32;
    u64, put_u64, get_u64;
    u128, put_u128, get_u128;
    i32, put_i32, get_i32;
    i64, put_i64, get_i64;
    bool, put_bool, get_bool;
}

impl Codec for () {
    fn encode(&self, _: &mut Writer) {}

    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl<T: Codec> Codec for Option<T> {
    fn encode(&self, writer: &mut Writer) {
        writer.put_bool(self.is_some());
        if let Some(value) = self {
            value.encode(writer);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.get_bool()? { T::decode(reader).map(Some) } else { Ok(None) }
    }
}

impl<T: Codec> Codec for Box<T> {
    fn encode(&self, writer: &mut Writer) {
        (**self).encode(writer);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::decode(reader).map(Box::new)
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn encode(&self, writer: &mut Writer) {
        self.0.encode(writer);
        self.1.encode(writer);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::decode(reader)?, B::decode(reader)?))
    }
}

impl<const N: usize> Codec for [u8; N] {
    fn encode(&self, writer: &mut Writer) {
        writer.put_raw(self);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.get_array()
    }
}
