//! Switches: each technique for small files can be turned off, for study and for comparison.
//!
//! A file system is made with its switches; they are part of its map, so all servers and clients use the
//! same switches. Three sets have names:
//!
//! | switch | `baseline`: PVFS without | `paper`: PVFS with all five | `ours` (default) |
//! |---|---|---|---|
//! | `precreate` | off | on | on |
//! | `stuffing` | off | on | on |
//! | `coalescing` | per-op | watermark 1 8 | pipelined |
//! | `eager` | off | 16 KiB | 16 KiB |
//! | `readdirplus` | off | on | on |
//! | `placement` | spread | spread | colocated |
//! | `compound` | off | off | on |
//! | `split` | off | off | 4096 entries |
//!
//! As text: the name of a set, and the differences from it: `paper,eager=off`, `baseline,stuffing=on`,
//! `split=off`. Source: PVFS small files, sections III and IV; the table of messages in docs/lab/COUNTS.md.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::limits;
use crate::wire::{wire_choice, wire_struct};
use std::fmt;
use std::str::FromStr;

/// How metadata changes share syncs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Coalescing {
    /// Each change has a sync of its own.
    PerOp,
    /// The paper's two queues: sync when fewer than `low` changes are queued after this one, or when `high`
    /// wait for a sync.
    Watermark {
        /// With fewer changes than this in the scheduling queue, sync at once.
        low: u16,
        /// With this many changes in the coalescing queue, sync in any case; 0: no such limit.
        high: u16,
    },
    /// All changes that arrived during the last sync share the next.
    #[default]
    Pipelined,
}

impl Coalescing {
    /// The paper's marks.
    pub const PAPER: Coalescing = Coalescing::Watermark { low: 1, high: 8 };
}

impl Codec for Coalescing {
    fn encode(&self, w: &mut Writer) {
        match self {
            Coalescing::PerOp => w.put_u8(1),
            Coalescing::Watermark { low, high } => {
                w.put_u8(2);
                w.put_u16(*low);
                w.put_u16(*high);
            }
            Coalescing::Pipelined => w.put_u8(3),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.get_u8()? {
            1 => Ok(Coalescing::PerOp),
            2 => Ok(Coalescing::Watermark { low: r.get_u16()?, high: r.get_u16()? }),
            3 => Ok(Coalescing::Pipelined),
            _ => Err(DecodeError::Invalid("coalescing")),
        }
    }
}

wire_choice! {
    /// The server of a new file's metafile.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub enum Placement {
        /// The server of its entry: one message makes, or finds, both.
        Colocated = 1,
        /// Any metadata server, as in PVFS.
        Spread = 2,
    }
}

wire_struct! {
    /// The switches of a file system.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub struct Switches {
        /// Servers precreate datafiles for servers.
        pub precreate: bool,
        /// A file's first strip lies beside its metafile until it grows.
        pub stuffing: bool,
        /// How metadata changes share syncs.
        pub coalescing: Coalescing,
        /// Most data in the request or reply itself; 0: none.
        pub eager_bytes: u32,
        /// Listings return attributes.
        pub readdirplus: bool,
        /// The server of a new file's metafile.
        pub placement: Placement,
        /// Several operations in one message.
        pub compound: bool,
        /// Entries with which a directory is split over the metadata servers ([`Switches::splits_at`]); 0:
        /// never.
        pub split_entries: u32,
    }
}

impl Switches {
    /// PVFS without the paper's techniques.
    pub const BASELINE: Switches = Switches {
        precreate: false,
        stuffing: false,
        coalescing: Coalescing::PerOp,
        eager_bytes: 0,
        readdirplus: false,
        placement: Placement::Spread,
        compound: false,
        split_entries: 0,
    };

    /// PVFS with all five of the paper's techniques.
    pub const PAPER: Switches = Switches {
        precreate: true,
        stuffing: true,
        coalescing: Coalescing::PAPER,
        eager_bytes: limits::EAGER_BYTES_MAX as u32,
        readdirplus: true,
        ..Switches::BASELINE
    };

    /// Everything.
    pub const OURS: Switches = Switches {
        coalescing: Coalescing::Pipelined,
        placement: Placement::Colocated,
        compound: true,
        split_entries: Switches::SPLIT_ENTRIES,
        ..Switches::PAPER
    };

    /// Default entries with which a directory is split.
    pub const SPLIT_ENTRIES: u32 = 4096;

    /// Entries with which a directory is split, if ever. **Never with `compound = off`**: there clients add
    /// and remove entries by themselves, and their promises in between are rows on the directory's one
    /// server (an entry that was removed, a metafile that may never be entered), which a shard would not
    /// find.
    pub fn splits_at(&self) -> Option<u32> {
        (self.compound && self.split_entries > 0).then_some(self.split_entries)
    }

    /// The sets that have names.
    pub const NAMED: [(&'static str, Switches); 3] =
        [("baseline", Switches::BASELINE), ("paper", Switches::PAPER), ("ours", Switches::OURS)];

    /// The names of the switches, in their order.
    pub const NAMES: [&'static str; 8] =
        ["precreate", "stuffing", "coalescing", "eager", "readdirplus", "placement", "compound", "split"];

    /// Sets one switch by its name to the value of a text.
    ///
    /// # Errors
    /// The mistake, in words, with the allowed values.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "precreate" => self.precreate = on_or_off(name, value)?,
            "stuffing" => self.stuffing = on_or_off(name, value)?,
            "coalescing" => self.coalescing = value.parse()?,
            "eager" => {
                self.eager_bytes =
                    amount(name, value, limits::EAGER_BYTES_MAX as u32, limits::EAGER_BYTES_MAX as u32)?;
            }
            "readdirplus" => self.readdirplus = on_or_off(name, value)?,
            "placement" => {
                self.placement = match value {
                    "colocated" => Placement::Colocated,
                    "spread" => Placement::Spread,
                    _ => return Err(format!("placement is `colocated` or `spread`, not `{value}`")),
                }
            }
            "compound" => self.compound = on_or_off(name, value)?,
            "split" => {
                self.split_entries =
                    amount(name, value, Switches::SPLIT_ENTRIES, limits::SPLIT_ENTRIES_MAX as u32)?;
            }
            _ => {
                let names = Switches::NAMES.join(", ");
                return Err(format!(
                    "there is no switch `{name}`; there is {names}, and the sets baseline, paper, ours"
                ));
            }
        }
        Ok(())
    }

    /// A switch's value, as text that [`Switches::set`] takes.
    fn value(&self, name: &str) -> String {
        let word = |on: bool| if on { "on" } else { "off" }.to_owned();
        let number = |n: u32| if n == 0 { "off".to_owned() } else { n.to_string() };
        match name {
            "precreate" => word(self.precreate),
            "stuffing" => word(self.stuffing),
            "coalescing" => self.coalescing.to_string(),
            "eager" => number(self.eager_bytes),
            "readdirplus" => word(self.readdirplus),
            "placement" => match self.placement {
                Placement::Colocated => "colocated".to_owned(),
                Placement::Spread => "spread".to_owned(),
            },
            "compound" => word(self.compound),
            _ => number(self.split_entries),
        }
    }

    /// The switches in which two sets differ.
    fn apart(&self, other: &Switches) -> impl Iterator<Item = &'static str> {
        Switches::NAMES.into_iter().filter(move |name| self.value(name) != other.value(name))
    }
}

impl Default for Switches {
    fn default() -> Switches {
        Switches::OURS
    }
}

fn on_or_off(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{name} is `on` or `off`, not `{value}`")),
    }
}

/// `off`, `on` (the default), or a number.
fn amount(name: &str, value: &str, usual: u32, max: u32) -> Result<u32, String> {
    match value {
        "off" => Ok(0),
        "on" => Ok(usual),
        _ => match value.parse() {
            Ok(number) if number <= max => Ok(number),
            _ => Err(format!("{name} is `on`, `off` or a number up to {max}, not `{value}`")),
        },
    }
}

impl fmt::Display for Coalescing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Coalescing::PerOp => f.write_str("per-op"),
            Coalescing::Watermark { low, high } => write!(f, "watermark:{low}:{high}"),
            Coalescing::Pipelined => f.write_str("pipelined"),
        }
    }
}

impl FromStr for Coalescing {
    type Err = String;

    /// `per-op`, `pipelined`, `watermark` (the paper's marks), `watermark:LOW:HIGH`.
    fn from_str(text: &str) -> Result<Coalescing, String> {
        let marks = match text {
            "per-op" => return Ok(Coalescing::PerOp),
            "pipelined" => return Ok(Coalescing::Pipelined),
            "watermark" => return Ok(Coalescing::PAPER),
            _ => text.strip_prefix("watermark:").and_then(|marks| marks.split_once(':')),
        };
        match marks.map(|(low, high)| (low.parse(), high.parse())) {
            // With a low mark of 0 the last change of a queue would wait for ever.
            Some((Ok(low), Ok(high))) if low > 0 => Ok(Coalescing::Watermark { low, high }),
            _ => Err(format!(
                "coalescing is `per-op`, `pipelined`, `watermark` or `watermark:LOW:HIGH`, not `{text}`"
            )),
        }
    }
}

impl fmt::Display for Switches {
    /// The nearest set that has a name, and the differences from it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nearest = Switches::NAMED.iter().rev().min_by_key(|(_, set)| self.apart(set).count());
        let (name, set) = nearest.copied().unwrap_or(("ours", Switches::OURS));
        f.write_str(name)?;
        self.apart(&set).try_for_each(|switch| write!(f, ",{switch}={}", self.value(switch)))
    }
}

impl FromStr for Switches {
    type Err = String;

    fn from_str(text: &str) -> Result<Switches, String> {
        let mut switches = Switches::OURS;
        for (at, word) in text.split(',').map(str::trim).enumerate() {
            match word.split_once('=') {
                Some((name, value)) => switches.set(name.trim(), value.trim())?,
                None => match Switches::NAMED.iter().find(|(name, _)| *name == word) {
                    Some((_, set)) if at == 0 => switches = *set,
                    Some(_) => return Err(format!("`{word}` comes first: the differences from it follow")),
                    None => {
                        return Err(format!(
                            "`{word}` is no set (baseline, paper, ours) and no switch=value"
                        ));
                    }
                },
            }
        }
        Ok(switches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_switches_are_read_again() {
        let texts = [
            "baseline",
            "paper",
            "ours",
            "paper,eager=off",
            "ours,split=8",
            "baseline,stuffing=on,precreate=on",
        ];
        for text in texts {
            let switches: Switches = text.parse().unwrap();
            assert_eq!(switches.to_string().parse::<Switches>().unwrap(), switches, "{text}");
            assert_eq!(Switches::decode(&mut Reader::new(&switches.to_bytes())).unwrap(), switches);
        }
        for (name, set) in Switches::NAMED {
            assert_eq!(set.to_string(), name);
        }
        assert_eq!(
            "placement=spread".parse(),
            Ok(Switches { placement: Placement::Spread, ..Switches::OURS })
        );
        let marks = Coalescing::Watermark { low: 2, high: 0 };
        assert_eq!("coalescing=watermark:2:0".parse(), Ok(Switches { coalescing: marks, ..Switches::OURS }));
    }

    #[test]
    fn a_directory_splits_only_where_servers_make_and_remove_its_entries() {
        assert_eq!(Switches::OURS.splits_at(), Some(4096));
        for whole in ["ours,split=off", "ours,compound=off", "paper,split=8", "baseline"] {
            assert_eq!(whole.parse::<Switches>().unwrap().splits_at(), None, "{whole}");
        }
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_allowed_words() {
        let refused = [
            ("fast", "no set"),
            ("eager=1e9", "number up to 16384"),
            ("eager=16385", "number up to 16384"),
            ("stuffing=yes", "`on` or `off`"),
            ("magic=on", "there is no switch"),
            ("eager=off,paper", "comes first"),
            ("coalescing=watermark:1", "watermark:LOW:HIGH"),
            ("coalescing=watermark:0:8", "watermark:LOW:HIGH"),
            ("placement=", "`colocated` or `spread`"),
            ("split=100000", "number up to 16384"),
        ];
        for (text, words) in refused {
            let error = text.parse::<Switches>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
