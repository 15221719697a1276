//! The position of a file's bytes: distributions, templates, layouts.
//!
//! A *template* is the layout that is requested for a file. A new file takes its template from its directory,
//! or from the request that creates it. The template of an empty file can be changed (`setlayout`). A
//! *layout* is the actual list of the file's datafiles. It has two forms:
//!
//! - A file that begins *stuffed* (its first strip lies beside its metafile) has no layout. Its layout is
//!   written when the file is unstuffed. Datafile 0 is then the metafile's own stream, so the first strip
//!   never moves.
//! - A file that is never stuffed (switch `stuffing = off`, or a metadata server without data) has its layout
//!   from its creation. None of its datafiles is the metafile's stream.
//!
//! ```text
//! simple_stripe, strip 4, width 3      logical   0    4    8    12   16   20
//!                                      server   0    1    2    0    1    2
//!                                    physical   0    0    0    4    4    4
//! ```
//! Source: PVFS distributions: `simple_stripe` round robin over strips; `basic` one datafile.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::wire::{Many, wire_struct};
use crate::{Generation, Handle, Kind, limits};
use shoal_pattern::{Cycle, Distribution, Located, Piece, Placement};

/// How logical bytes are dealt to datafiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Dist {
    /// All in one datafile: never unstuffed.
    Basic,
    /// Strips dealt round robin.
    SimpleStripe {
        /// Bytes of a strip.
        strip: u64,
    },
    /// Of a fork: all in the metafile's own stream, beside its entry, for ever. Of a directory: it is a
    /// subfile, and its new files are forks.
    Fork,
    /// Of a directory: it is a forked file, dealt to its subfiles by the application.
    Forked {
        /// How many; they are the entries `0`, `1`, … of the directory.
        subfiles: u16,
    },
    /// Of a directory: each of its files is a container, which its clients read and write. On the servers it
    /// is a directory of directories, whose files are dealt round robin.
    Container {
        /// Bytes of a strip of the files on the servers.
        strip: u64,
    },
    /// Of a directory: its clients keep all its files in blocks of one, whose strips are dealt round robin.
    Composed {
        /// Bytes of a strip of the files on the servers.
        strip: u64,
    },
}

impl Dist {
    /// Whether it belongs to a forked file, one of its subfiles, or a fork: the layout is fixed, and
    /// directories with it are never split.
    pub const fn is_of_forks(&self) -> bool {
        matches!(self, Dist::Fork | Dist::Forked { .. })
    }

    /// Whether it is a layout of a directory that clients follow: its names and files are those that a
    /// client makes of the objects in it.
    pub const fn is_followed(&self) -> bool {
        matches!(self, Dist::Container { .. } | Dist::Composed { .. })
    }
}

/// Strips of a length within the limits.
fn strip(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let strip = r.get_u64()?;
    if !(limits::STRIP_BYTES_MIN..=limits::STRIP_BYTES_MAX).contains(&strip) {
        return Err(DecodeError::Limit { what: "strip", value: strip, limit: limits::STRIP_BYTES_MAX });
    }
    Ok(strip)
}

impl Codec for Dist {
    fn encode(&self, w: &mut Writer) {
        match self {
            Dist::Basic => w.put_u8(1),
            Dist::SimpleStripe { strip } => {
                w.put_u8(2);
                w.put_u64(*strip);
            }
            Dist::Fork => w.put_u8(3),
            Dist::Forked { subfiles } => {
                w.put_u8(4);
                w.put_u16(*subfiles);
            }
            Dist::Container { strip } => {
                w.put_u8(5);
                w.put_u64(*strip);
            }
            Dist::Composed { strip } => {
                w.put_u8(6);
                w.put_u64(*strip);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.get_u8()? {
            1 => Ok(Dist::Basic),
            2 => Ok(Dist::SimpleStripe { strip: strip(r)? }),
            3 => Ok(Dist::Fork),
            4 => {
                let subfiles = r.get_u16()?;
                if !(1..=limits::SUBFILES_MAX).contains(&usize::from(subfiles)) {
                    return Err(DecodeError::Limit {
                        what: "subfiles",
                        value: subfiles.into(),
                        limit: limits::SUBFILES_MAX as u64,
                    });
                }
                Ok(Dist::Forked { subfiles })
            }
            5 => Ok(Dist::Container { strip: strip(r)? }),
            6 => Ok(Dist::Composed { strip: strip(r)? }),
            _ => Err(DecodeError::Invalid("distribution")),
        }
    }
}

wire_struct! {
    /// The requested layout of new files.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct Template {
        /// The distribution.
        pub dist: Dist,
        /// Datafiles once unstuffed; 0 = one on every data server at that moment.
        pub width: u16,
    }
}

impl Default for Template {
    fn default() -> Template {
        Template { dist: Dist::SimpleStripe { strip: Template::STRIP_DEFAULT }, width: 0 }
    }
}

impl Template {
    /// Default bytes of a strip.
    pub const STRIP_DEFAULT: u64 = 1 << 20;

    /// The largest size at which a file stays stuffed.
    pub const fn stuffed_max(&self) -> u64 {
        match self.dist {
            Dist::Basic | Dist::Fork | Dist::Forked { .. } => limits::FILE_BYTES_MAX,
            Dist::SimpleStripe { strip } | Dist::Container { strip } | Dist::Composed { strip } => strip,
        }
    }

    /// The template of a new object of this kind in a directory of this one. A layout that clients follow is
    /// one of directories: the files below it are striped.
    pub const fn inherited_by(self, kind: Kind) -> Template {
        match (self.dist, kind) {
            (_, Kind::Directory) => self,
            (Dist::Container { strip } | Dist::Composed { strip }, _) => {
                Template { dist: Dist::SimpleStripe { strip }, width: self.width }
            }
            _ => self,
        }
    }
}

wire_struct! {
    /// The layout of an unstuffed file.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Layout {
        /// The distribution.
        pub dist: Dist,
        /// The datafiles, in order of the distribution. If the file was stuffed, the first is the metafile.
        pub datafiles: Many<Handle, { limits::WIDTH_MAX }>,
        /// The generation at which this layout was read.
        pub generation: Generation,
    }
}

wire_struct! {
    /// One server's share of a transfer: which of the `width` datafiles of the distribution this stream is.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct Share {
        /// The distribution.
        pub dist: Dist,
        /// How many datafiles.
        pub width: u16,
        /// Which of them.
        pub index: u16,
    }
}

impl Share {
    /// A whole file in one stream (stuffed, or `basic`).
    pub const WHOLE: Share = Share { dist: Dist::Basic, width: 1, index: 0 };

    /// The distribution over its width.
    pub fn striping(&self) -> Striping {
        Striping { dist: self.dist, width: u32::from(self.width.max(1)) }
    }
}

/// A distribution over a number of datafiles; [`shoal_pattern::View`] projects through it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Striping {
    /// The distribution.
    pub dist: Dist,
    /// How many datafiles; at least 1.
    pub width: u32,
}

impl Layout {
    /// The distribution over the file's datafiles.
    pub fn striping(&self) -> Striping {
        Striping { dist: self.dist, width: (self.datafiles.len().max(1)) as u32 }
    }
}

impl Placement for Striping {
    fn objects(&self) -> u32 {
        self.width
    }

    fn locate(&self, logical: u64) -> Located {
        Located::Piece(self.place_of(logical))
    }
}

impl Striping {
    /// Where the byte at `logical` lies: no byte of a striped file is in no datafile.
    pub fn place_of(&self, logical: u64) -> Piece {
        match self.dist {
            Dist::SimpleStripe { strip } if self.width > 1 => {
                let (index, within) = (logical / strip, logical % strip);
                let width = u64::from(self.width);
                Piece {
                    object: (index % width) as u32,
                    physical: index / width * strip + within,
                    run: strip - within,
                }
            }
            _ => Piece { object: 0, physical: logical, run: u64::MAX - logical },
        }
    }
}

impl Distribution for Striping {
    fn logical(&self, server: u32, physical: u64) -> u64 {
        match self.dist {
            Dist::SimpleStripe { strip } if self.width > 1 => {
                let row = physical / strip;
                let start = row.saturating_mul(u64::from(self.width)).saturating_add(u64::from(server));
                start.saturating_mul(strip).saturating_add(physical % strip)
            }
            _ => physical,
        }
    }

    fn logical_end(&self, server: u32, physical_size: u64) -> u64 {
        match physical_size {
            0 => 0,
            size => self.logical(server, size - 1).saturating_add(1),
        }
    }

    fn physical_size(&self, server: u32, logical_size: u64) -> u64 {
        match self.dist {
            Dist::SimpleStripe { strip } if self.width > 1 => {
                let width = u64::from(self.width);
                let (full_strips, within) = (logical_size / strip, logical_size % strip);
                let (rows, last) = (full_strips / width, full_strips % width);
                let own = u64::from(server);
                let tail = match own.cmp(&last) {
                    std::cmp::Ordering::Less => strip,
                    std::cmp::Ordering::Equal => within,
                    std::cmp::Ordering::Greater => 0,
                };
                rows * strip + tail
            }
            _ if server == 0 => logical_size,
            _ => 0,
        }
    }

    /// Lets views skip other servers' records by arithmetic.
    fn cycle(&self, server: u32) -> Option<Cycle> {
        match self.dist {
            Dist::SimpleStripe { strip } if self.width > 1 => {
                let period = strip.checked_mul(u64::from(self.width))?;
                Some(Cycle { period, start: strip.checked_mul(u64::from(server))?, len: strip })
            }
            _ => Some(Cycle { period: 1, start: 0, len: u64::from(server == 0) }),
        }
    }
}
