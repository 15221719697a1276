//! Building blocks of messages: bounded lists, names, byte strings, and the macros that give a struct or an
//! enum an encoding of its fields in the order in which they are written.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::limits;
use bytes::Bytes;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A struct whose encoding is its fields, in order.
macro_rules! wire_struct {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$fdoc:meta])* pub $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }

        impl $crate::codec::Codec for $name {
            fn encode(&self, w: &mut $crate::codec::Writer) {
                $($crate::codec::Codec::encode(&self.$field, w);)*
            }
            fn decode(
                r: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                Ok($name { $($field: $crate::codec::Codec::decode(r)?,)* })
            }
        }
    };
}

/// An enum whose encoding is a `u8` tag and the variant's fields, in order. Also gives `name()`,
/// `NAMES`, and a name's `position()` in them.
macro_rules! wire_enum {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$vdoc:meta])* $variant:ident = $tag:literal $word:literal { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* },)*
    }) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "a field without words says all by its name and type")]
        pub enum $name { $($(#[$vdoc])* $variant { $($(#[$fdoc])* $field: $ty,)* },)* }

        impl $name {
            /// The names of all variants, in the order of their declaration.
            pub const NAMES: &'static [&'static str] = &[$($word,)*];

            /// Its one name: wire, handler, metric, command and heading use the same word.
            pub const fn name(&self) -> &'static str {
                match self { $($name::$variant { .. } => $word,)* }
            }

            /// The place of its name in [`NAMES`](Self::NAMES).
            pub const fn position(&self) -> usize {
                enum Position { $($variant,)* }
                match self { $($name::$variant { .. } => Position::$variant as usize,)* }
            }
        }

        impl $crate::codec::Codec for $name {
            fn encode(&self, w: &mut $crate::codec::Writer) {
                match self {
                    $($name::$variant { $($field,)* } => {
                        w.put_u8($tag);
                        $($crate::codec::Codec::encode($field, w);)*
                    })*
                }
            }
            fn decode(
                r: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                match r.get_u8()? {
                    $($tag => Ok($name::$variant { $($field: $crate::codec::Codec::decode(r)?,)* }),)*
                    _ => Err($crate::codec::DecodeError::Invalid(stringify!($name))),
                }
            }
        }
    };
}

/// An enum without fields, whose encoding is a `u8`.
macro_rules! wire_choice {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$vdoc:meta])* $variant:ident = $tag:literal,)* }) => {
        $(#[$doc])*
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $tag,)* }

        impl $crate::codec::Codec for $name {
            fn encode(&self, w: &mut $crate::codec::Writer) {
                w.put_u8(*self as u8);
            }
            fn decode(
                r: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                match r.get_u8()? {
                    $($tag => Ok($name::$variant),)*
                    _ => Err($crate::codec::DecodeError::Invalid(stringify!($name))),
                }
            }
        }
    };
}

pub(crate) use {wire_choice, wire_enum, wire_struct};

/// A list of at most `LIMIT` items.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Many<T, const LIMIT: usize>(pub Vec<T>);

impl<T: fmt::Debug, const LIMIT: usize> fmt::Debug for Many<T, LIMIT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T, const LIMIT: usize> From<Vec<T>> for Many<T, LIMIT> {
    fn from(items: Vec<T>) -> Self {
        Many(items)
    }
}

impl<T, const LIMIT: usize> Deref for Many<T, LIMIT> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T, const LIMIT: usize> DerefMut for Many<T, LIMIT> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T: Codec, const LIMIT: usize> Codec for Many<T, LIMIT> {
    fn encode(&self, w: &mut Writer) {
        w.put_list(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Many(r.get_list(LIMIT, 1)?))
    }
}

/// A byte string of at most `LIMIT` bytes.
#[derive(Clone, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
pub struct Blob<const LIMIT: usize>(pub Bytes);

impl<const LIMIT: usize> fmt::Debug for Blob<LIMIT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl<const LIMIT: usize> Deref for Blob<LIMIT> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<const LIMIT: usize> From<&[u8]> for Blob<LIMIT> {
    fn from(bytes: &[u8]) -> Self {
        Blob(Bytes::copy_from_slice(bytes))
    }
}

impl<const LIMIT: usize> Codec for Blob<LIMIT> {
    fn encode(&self, w: &mut Writer) {
        w.put_bytes(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Blob(Bytes::copy_from_slice(r.get_bytes(LIMIT)?)))
    }
}

/// The name of a directory entry: 1 to 255 bytes, no `/`, no NUL, not `.` nor `..`. Any other byte is
/// allowed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Bytes);

impl Name {
    /// A checked name.
    ///
    /// # Errors
    /// `NameTooLong` over 255 bytes; `Invalid` if empty, `.`, `..`, or with `/` or NUL.
    pub fn new(bytes: &[u8]) -> Result<Name, crate::Status> {
        Name::check(bytes)?;
        Ok(Name(Bytes::copy_from_slice(bytes)))
    }

    /// The same over a part of a buffer, which lives as long as the name.
    ///
    /// # Errors
    /// As [`Name::new`].
    pub fn over(bytes: Bytes) -> Result<Name, crate::Status> {
        Name::check(&bytes)?;
        Ok(Name(bytes))
    }

    fn check(bytes: &[u8]) -> Result<(), crate::Status> {
        if bytes.len() > limits::NAME_BYTES_MAX {
            return Err(crate::Status::NameTooLong);
        }
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(crate::Status::Invalid);
        }
        Ok(())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl Codec for Name {
    fn encode(&self, w: &mut Writer) {
        w.put_bytes(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = r.get_bytes(limits::NAME_BYTES_MAX)?;
        Name::new(bytes).map_err(|_| DecodeError::Invalid("name"))
    }
}

/// Text of at most 4095 bytes: messages to people, addresses, names of file systems.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
pub struct Text(pub String);

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Codec for Text {
    fn encode(&self, w: &mut Writer) {
        let mut end = self.0.len().min(limits::PATH_BYTES_MAX);
        while !self.0.is_char_boundary(end) {
            end -= 1;
        }
        w.put_str(&self.0[..end]);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Text(r.get_str(limits::PATH_BYTES_MAX)?.to_owned()))
    }
}
