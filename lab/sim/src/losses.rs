//! The losses that faults may cause, by server.
//!
//! Each server has two counts: the number of times that it lost its memory (a kill), and the number of
//! times that it also lost unsynced changes (a power cut, a failed sync). A [`Stamp`] is all counts at one
//! moment. An acknowledged change is *held* somewhere ([`Held`]). **A loss is excused only if, since the
//! request, the server that held the change had a fault that loses changes held there.**
//!
//! Where a change is held follows from the sync modes of the file system and from its request's durability
//! (SEMANTICS §1):
//!
//! ```text
//!   metadata    at reply   at fsync   never       data        at reply   at fsync   at fsync, metadata never
//!   is held on  the disk   kernel     memory      is held on  the disk   kernel     memory
//! ```
//! A change of attributes alone is held by the kernel even if metadata is durable at reply, until a client
//! reads it or makes a later change.
//!
//! While the modes are being changed, a request's changes are held as under the weakest of the modes that may
//! be in force.

use shoal_proto::Durability;
use shoal_store::{DataSync, MetadataSync, SyncModes};
use std::rc::Rc;

/// Where something acknowledged is held, the weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Held {
    /// By the server's process: a kill takes it.
    Memory,
    /// By the server's kernel: a power cut takes it.
    #[default]
    Kernel,
    /// On the disk: nothing takes it.
    Disk,
}

/// Faults of one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    kills: u32,
    cuts: u32,
}

/// Faults of all servers up to a moment. Clones are cheap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stamp(Rc<[Count]>);

impl Stamp {
    /// Before any fault of so many servers.
    pub fn new(servers: u16) -> Stamp {
        Stamp(vec![Count::default(); usize::from(servers)].into())
    }

    /// How many servers it counts for.
    pub fn servers(&self) -> u16 {
        self.0.len() as u16
    }

    /// A server loses its memory; and unsynced changes, if `is_cut`.
    pub fn add(&mut self, server: u16, is_cut: bool, is_kill: bool) {
        let mut counts = self.0.to_vec();
        if counts.len() <= usize::from(server) {
            counts.resize(usize::from(server) + 1, Count::default());
        }
        let count = &mut counts[usize::from(server)];
        count.cuts += u32::from(is_cut);
        count.kills += u32::from(is_kill);
        self.0 = counts.into();
    }

    /// Whether this server has lost, up to `now`, changes held so at this moment.
    pub fn is_lost(&self, now: &Stamp, server: u16, held: Held) -> bool {
        let of = |stamp: &Stamp| stamp.0.get(usize::from(server)).copied().unwrap_or_default();
        let (before, after) = (of(self), of(now));
        match held {
            Held::Disk => false,
            Held::Kernel => before.cuts != after.cuts,
            Held::Memory => before != after,
        }
    }

    /// Whether any of these servers has; of none means of any there is.
    pub fn is_lost_by_any(&self, now: &Stamp, servers: &[u16], held: Held) -> bool {
        match servers {
            [] => (0..now.servers()).any(|server| self.is_lost(now, server, held)),
            servers => servers.iter().any(|&server| self.is_lost(now, server, held)),
        }
    }
}

/// The sync modes that may be in force.
#[derive(Clone, Debug)]
pub struct Modes {
    /// As last acknowledged.
    known: SyncModes,
    /// Asked for, without an answer (yet): they may come at any time.
    maybe: Vec<SyncModes>,
}

impl Modes {
    /// A file system made with these.
    pub fn new(known: SyncModes) -> Modes {
        Modes { known, maybe: Vec::new() }
    }

    /// As last acknowledged.
    pub fn known(&self) -> SyncModes {
        self.known
    }

    /// Others are about to be requested.
    pub fn begin(&mut self, modes: SyncModes) {
        self.maybe.push(modes);
    }

    /// Those requested last hold on all servers.
    pub fn done(&mut self) {
        self.known = self.maybe.pop().unwrap_or(self.known);
    }

    /// How metadata of a request with this durability is held.
    pub fn metadata(&self, durability: Durability) -> Held {
        self.weakest(durability, |modes| match modes.metadata {
            MetadataSync::AtReply => Held::Disk,
            MetadataSync::AtFsync => Held::Kernel,
            MetadataSync::Never => Held::Memory,
        })
    }

    /// How a change of attributes alone is held.
    pub fn attributes(&self, durability: Durability) -> Held {
        match durability {
            Durability::Durable => Held::Disk,
            _ => self.metadata(durability).min(Held::Kernel),
        }
    }

    /// How its data is held.
    pub fn data(&self, durability: Durability) -> Held {
        self.weakest(durability, |modes| match (modes.data, modes.metadata) {
            (DataSync::AtReply, _) => Held::Disk,
            (DataSync::AtFsync, MetadataSync::Never) => Held::Memory,
            (DataSync::AtFsync, _) => Held::Kernel,
        })
    }

    fn weakest(&self, durability: Durability, held: impl Fn(SyncModes) -> Held) -> Held {
        let asked = |metadata, data| SyncModes { metadata, data, ..SyncModes::default() };
        match durability {
            Durability::Usual => {
                let maybe = self.maybe.iter().map(|modes| held(*modes));
                maybe.fold(held(self.known), Held::min)
            }
            Durability::Durable => Held::Disk,
            Durability::Written => held(asked(MetadataSync::AtFsync, DataSync::AtFsync)),
            Durability::Unheld => held(asked(MetadataSync::Never, DataSync::AtFsync)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_loses_by_a_fault_what_was_held_there_since_before_and_no_other_does() {
        let before = Stamp::new(3);
        let mut now = before.clone();
        now.add(1, false, true);
        let lost = |stamp: &Stamp, now: &Stamp, server| {
            [Held::Memory, Held::Kernel, Held::Disk].map(|held| stamp.is_lost(now, server, held))
        };
        assert_eq!(lost(&before, &now, 1), [true, false, false], "a kill takes what only the process held");
        assert_eq!(lost(&before, &now, 0), [false; 3]);
        assert_eq!(lost(&now, &now, 1), [false; 3], "what came after it stays");
        let killed = now.clone();
        now.add(1, true, true);
        assert_eq!(lost(&killed, &now, 1), [true, true, false]);
        assert!(
            before.is_lost_by_any(&now, &[], Held::Kernel)
                && before.is_lost_by_any(&now, &[0, 1], Held::Kernel)
        );
        assert!(!before.is_lost_by_any(&now, &[0, 2], Held::Memory));
    }

    #[test]
    fn what_is_held_where_is_what_the_weakest_of_the_modes_says_and_the_request() {
        let of = |metadata, data| SyncModes { metadata, data, ..SyncModes::default() };
        let mut modes = Modes::new(SyncModes::default());
        let held = |modes: &Modes, durability| (modes.metadata(durability), modes.data(durability));
        assert_eq!(held(&modes, Durability::Usual), (Held::Disk, Held::Kernel));
        assert_eq!(held(&modes, Durability::Durable), (Held::Disk, Held::Disk));
        assert_eq!(held(&modes, Durability::Written), (Held::Kernel, Held::Kernel));
        assert_eq!(held(&modes, Durability::Unheld), (Held::Memory, Held::Memory));
        let attributes = |modes: &Modes| {
            [Durability::Usual, Durability::Durable, Durability::Unheld].map(|asked| modes.attributes(asked))
        };
        assert_eq!(attributes(&modes), [Held::Kernel, Held::Disk, Held::Memory]);
        modes.begin(of(MetadataSync::Never, DataSync::AtFsync));
        assert_eq!(held(&modes, Durability::Usual), (Held::Memory, Held::Memory), "it may be in force");
        assert_eq!(attributes(&modes), [Held::Memory, Held::Disk, Held::Memory]);
        modes.done();
        modes.begin(of(MetadataSync::AtFsync, DataSync::AtReply));
        modes.done();
        assert_eq!(held(&modes, Durability::Usual), (Held::Kernel, Held::Disk));
        let careless = Modes::new(of(MetadataSync::Never, DataSync::AtReply));
        assert_eq!(held(&careless, Durability::Usual), (Held::Memory, Held::Disk));
    }
}
