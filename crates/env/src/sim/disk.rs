//! A machine's disk: the times at which calls end, the space of the disk, and the effect of a stop on calls
//! in flight.
//!
//! Every call takes effect at its end. Calls in flight when a process is killed are done, not done, or
//! (writes) done up to some byte. Calls in flight at a power cut count as written but not synced; the power
//! cut keeps, loses or tears them.

use super::arm::ArmState;
use super::config::{self, SyncCost, span_ns};
use super::image::{FileImage, Op, PAGE};
use super::names::{Change, DirImage, ROOT};
use super::pages::{PageCache, Wanted};
use super::rng::Rng;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// The kind of an inode.
pub(super) enum Kind {
    File(FileImage),
    Dir(DirImage),
}

/// A file or directory, and the count of its references.
pub(super) struct Inode {
    pub(super) kind: Kind,
    pub(super) refs: u64,
    /// Which of the machine's devices has it.
    pub(super) device: usize,
}

/// A device: one queue of transfers.
struct Device {
    free_at: u64,
    arm: Option<ArmState>,
}

impl Device {
    fn new(config: &config::Disk) -> Device {
        Device { free_at: 0, arm: config.arm.map(ArmState::new) }
    }
}

/// A file, and its changes to be made durable.
pub(super) struct UnsyncedFile {
    inode: u64,
    made: u64,
    pub(super) bytes: u64,
}

/// How a call in flight ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Normally.
    Done,
    /// Its process was killed.
    Killed,
    /// Its machine lost power.
    PowerCut,
}

/// The effect of a call on the disk. The result notifies the caller, and runs when the disk is no longer
/// borrowed.
type Effect = Box<dyn FnOnce(&mut DiskState, Fate) -> Answer>;
pub(super) type Answer = Box<dyn FnOnce()>;

struct InFlight {
    process: usize,
    incarnation: u64,
    effect: Effect,
}

/// See the module.
pub(super) struct DiskState {
    pub(super) config: config::Disk,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) next_inode: u64,
    /// Changes of names not yet durable, in order.
    pub(super) changes: Vec<Change>,
    /// Locked inodes, and by which incarnation of which process.
    locks: BTreeMap<u64, (usize, u64)>,
    in_flight: BTreeMap<u64, InFlight>,
    next_call: u64,
    pub(super) pages_used: u64,
    /// So many of the next syncs fail.
    pub(super) failing_syncs: u64,
    /// Failed syncs not yet reported, and a callback for each.
    pub(super) failed_syncs: u64,
    pub(super) on_failed_sync: Option<Rc<dyn Fn()>>,
    /// Handles opened before a power cut are invalid after it.
    pub(super) boots: u64,
    /// The first has everything but what is below the directories of the others.
    devices: Vec<Device>,
    pages: Option<PageCache>,
    pub(super) rng: Rng,
}

/// A transfer between memory and the device.
pub(super) struct Transfer {
    pub(super) inode: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) bytes_per_s: u64,
    pub(super) latency_ns: u64,
    /// The system continues by itself after the last one.
    pub(super) follows: bool,
}

impl DiskState {
    /// Exchange the contents of two disks, as if the disks were exchanged: files, and their unsynced
    /// changes. No file may be open.
    pub(super) fn exchange(&mut self, other: &mut DiskState) {
        self.boots += 1;
        other.boots += 1;
        std::mem::swap(&mut self.inodes, &mut other.inodes);
        std::mem::swap(&mut self.next_inode, &mut other.next_inode);
        std::mem::swap(&mut self.changes, &mut other.changes);
        std::mem::swap(&mut self.pages_used, &mut other.pages_used);
        std::mem::swap(&mut self.pages, &mut other.pages);
        std::mem::swap(&mut self.devices, &mut other.devices);
    }

    /// Remove all contents.
    pub(super) fn wipe(&mut self) {
        self.boots += 1;
        self.inodes = BTreeMap::new();
        self.changes = Vec::new();
    }

    pub(super) fn new(config: config::Disk, rng: Rng) -> DiskState {
        let root = Inode { kind: Kind::Dir(DirImage::default()), refs: 1, device: 0 };
        DiskState {
            config,
            inodes: BTreeMap::from([(ROOT, root)]),
            next_inode: ROOT + 1,
            changes: Vec::new(),
            locks: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            next_call: 0,
            pages_used: 0,
            failing_syncs: 0,
            failed_syncs: 0,
            on_failed_sync: None,
            boots: 0,
            devices: vec![Device::new(&config)],
            pages: config.pages.map(PageCache::new),
            rng,
        }
    }

    /// An empty one with the devices of another.
    pub(super) fn like(other: &DiskState) -> DiskState {
        let devices = other.devices.iter().map(|_| Device::new(&other.config)).collect();
        DiskState { devices, ..DiskState::new(other.config, Rng::new(0, 0)) }
    }

    /// When a transfer that starts now is done: after earlier transfers, then its own latency.
    pub(super) fn device(&mut self, now: u64, transfer: &Transfer) -> u64 {
        let Transfer { inode, offset, bytes, bytes_per_s, latency_ns, follows } = *transfer;
        let gap_ns = self.config.gap_ns;
        let device = self.device_of(inode);
        let begins = now.max(device.free_at);
        if let Some(arm) = &mut device.arm {
            // One access at a time, and the caller waits for all of it.
            let access_ns = arm.access_ns(begins, inode, offset, bytes, follows);
            device.free_at = begins + access_ns + span_ns(bytes, bytes_per_s);
            return device.free_at;
        }
        device.free_at = begins + gap_ns + span_ns(bytes, bytes_per_s);
        device.free_at + latency_ns
    }

    fn device_of(&mut self, inode: u64) -> &mut Device {
        let device = self.inodes.get(&inode).map_or(0, |inode| inode.device);
        &mut self.devices[device]
    }

    /// A directory, made here, and all that will be made below it lie on a device of their own.
    pub(super) fn add_device(&mut self, path: &Path) -> io::Result<()> {
        self.create_dir(path)?;
        // Mounts are there after a power cut, too.
        std::mem::take(&mut self.changes).into_iter().for_each(|change| self.make_durable(change));
        let inode = self.find(path)?;
        self.devices.push(Device::new(&self.config));
        let device = self.devices.len() - 1;
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.device = device;
        }
        Ok(())
    }

    /// When bytes given to the device now are durable; `is_write`: written and synced by one call.
    pub(super) fn durable(&mut self, now: u64, inode: u64, offset: u64, bytes: u64, is_write: bool) -> u64 {
        let config = self.config;
        let Some(known) = config.syncs else {
            let (bytes_per_s, latency_ns) = (config.write_bytes_per_s, config.sync_ns);
            let transfer = Transfer { inode, offset, bytes, bytes_per_s, latency_ns, follows: false };
            return self.device(now, &transfer);
        };
        let known = if is_write { &known.writes } else { &known.syncs };
        let cost = between(known, bytes, config.write_bytes_per_s);
        let device = self.device_of(inode);
        let begins = now.max(device.free_at);
        device.free_at = begins + cost.gap_ns;
        begins + cost.latency_ns.max(cost.gap_ns)
    }

    /// The part of a file's range that must be read from the device; afterwards nothing. `None`: the file
    /// is gone.
    pub(super) fn wanted(&mut self, now: u64, inode: u64, offset: u64, len: u64) -> Option<Wanted> {
        let file_bytes = self.file(inode).ok()?.cached.len;
        let there = file_bytes.saturating_sub(offset).min(len);
        if let Some(pages) = &mut self.pages {
            return Some(pages.read(now, inode, offset, there, file_bytes));
        }
        let is_warm = self.file(inode).is_ok_and(|file| file.warm_up(offset, len));
        Some(Wanted { missing: if is_warm { 0 } else { there }, ..Wanted::default() })
    }

    /// When a read through the page cache has the bytes of [`DiskState::wanted`].
    pub(super) fn fetched(&mut self, now: u64, inode: u64, offset: u64, len: u64, wanted: Wanted) -> u64 {
        let (bytes_per_s, latency_ns) = (self.config.read_bytes_per_s, self.config.read_ns);
        let from = |offset, bytes| Transfer { inode, offset, bytes, bytes_per_s, latency_ns, follows: true };
        let mut at = self.pages.as_ref().map_or(0, |pages| pages.there_at(inode, offset, len)).max(now);
        if wanted.missing > 0 {
            at = at.max(self.device(now, &from(offset, wanted.missing)));
        }
        let (ahead, bytes) = wanted.ahead;
        if bytes > 0 {
            let there = self.device(now, &from(ahead, bytes));
            if let Some(pages) = &mut self.pages {
                pages.comes(inode, ahead, bytes, there);
            }
        }
        at
    }

    /// How long a write to the page cache waits for room.
    pub(super) fn room_ns(&mut self, now: u64, inode: u64, offset: u64, bytes: u64) -> u64 {
        let Some(pages) = &mut self.pages else { return 0 };
        pages.touch(inode, offset, bytes);
        pages.write_ns(now, bytes, self.config.write_bytes_per_s)
    }

    /// So many bytes of the page cache are on the device now.
    pub(super) fn written_back(&mut self, bytes: u64) {
        if let Some(pages) = &mut self.pages {
            pages.synced(bytes);
        }
    }

    /// When a transfer between memory and the page cache is done.
    pub(super) fn cache(&self, now: u64, bytes: u64) -> u64 {
        now + self.config.cache_ns + span_ns(bytes, self.config.cache_bytes_per_s)
    }

    /// The same from the page cache.
    pub(super) fn cache_read(&self, now: u64, bytes: u64) -> u64 {
        match self.config.cache_read_bytes_per_s {
            0 => self.cache(now, bytes),
            rate => now + self.config.cache_ns + span_ns(bytes, rate),
        }
    }

    /// Begin a call; returns its number.
    pub(super) fn begin(&mut self, process: usize, incarnation: u64, effect: Effect) -> u64 {
        let call = self.next_call;
        self.next_call += 1;
        self.in_flight.insert(call, InFlight { process, incarnation, effect });
        call
    }

    /// A call ends, unless a stop ended it before.
    pub(super) fn end(&mut self, call: u64) -> Option<Answer> {
        let InFlight { effect, .. } = self.in_flight.remove(&call)?;
        Some(effect(self, Fate::Done))
    }

    /// A process is gone: its calls are decided, its locks are free.
    pub(super) fn process_ended(&mut self, process: usize, incarnation: u64) {
        let theirs = |call: &InFlight| (call.process, call.incarnation) == (process, incarnation);
        let calls: Vec<u64> = self.in_flight.iter().filter(|(_, c)| theirs(c)).map(|(n, _)| *n).collect();
        for call in calls {
            if let Some(InFlight { effect, .. }) = self.in_flight.remove(&call) {
                drop(effect(self, Fate::Killed));
            }
        }
        self.locks.retain(|_, holder| *holder != (process, incarnation));
    }

    /// The power goes: calls in flight become unsynced writes and unsynced changes of names.
    pub(super) fn stop_for_power_cut(&mut self) {
        for (_, InFlight { effect, .. }) in std::mem::take(&mut self.in_flight) {
            drop(effect(self, Fate::PowerCut));
        }
    }

    /// The power is gone: decide which changes were kept.
    pub(super) fn lose_power(&mut self, now: u64) {
        let kept = self.rng.index(self.changes.len() + 1);
        let mut changes = std::mem::take(&mut self.changes);
        changes.truncate(kept);
        changes.into_iter().for_each(|change| self.make_durable(change));
        for inode in self.inodes.values_mut() {
            if let Kind::File(file) = &mut inode.kind {
                file.lose_power(self.config.sector, &mut self.rng);
            }
        }
        self.locks.clear();
        self.forget_the_unreachable();
        self.pages_used = self.inodes.values().map(Inode::pages).sum();
        self.boots += 1;
        self.devices.iter_mut().for_each(|device| device.free_at = now);
    }

    pub(super) fn hold(&mut self, inode: u64) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.refs += 1;
        }
    }

    pub(super) fn let_go(&mut self, inode: u64) {
        let Some(entry) = self.inodes.get_mut(&inode) else { return };
        entry.refs = entry.refs.saturating_sub(1);
        if entry.refs == 0
            && let Some(gone) = self.inodes.remove(&inode)
        {
            self.pages_used -= gone.pages();
            self.locks.remove(&inode);
            if let Some(pages) = &mut self.pages {
                pages.forget(inode);
            }
        }
    }

    /// Drop the pages of a file that are in memory. Bytes that are not synced are in the file's image, not
    /// here: none is lost.
    pub(super) fn drop_pages(&mut self, inode: u64) {
        if let Some(pages) = &mut self.pages {
            pages.forget(inode);
        }
    }

    pub(super) fn file(&mut self, inode: u64) -> io::Result<&mut FileImage> {
        match self.inodes.get_mut(&inode).map(|inode| &mut inode.kind) {
            Some(Kind::File(file)) => Ok(file),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// (total, available) bytes.
    pub(super) fn space(&self) -> (u64, u64) {
        (self.config.capacity, self.config.capacity.saturating_sub(self.pages_used * PAGE))
    }

    /// Fail with `ENOSPC` if `pages` more do not fit.
    pub(super) fn check_room(&self, pages: u64) -> io::Result<()> {
        if pages > 0 && self.space().1 < pages.saturating_mul(PAGE) {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        Ok(())
    }

    /// Apply a change of contents to the cache; returns its number.
    pub(super) fn apply(&mut self, inode: u64, op: Op) -> io::Result<u64> {
        let keeps = !self.config.is_never_cut;
        let added = self.file(inode)?.cached.pages_added(&op);
        self.check_room(added)?;
        let file = self.file(inode)?;
        let before = file.cached.pages();
        let number = file.apply(op, keeps);
        let after = file.cached.pages();
        self.pages_used = self.pages_used + after - before;
        Ok(number)
    }

    /// A write whose fate is known.
    pub(super) fn write(&mut self, inode: u64, mut op: Op, dsync: bool, fate: Fate) -> io::Result<()> {
        if fate == Fate::Killed
            && let Op::Write { pieces, .. } = &mut op
        {
            let total: usize = pieces.iter().map(Bytes::len).sum();
            cut(pieces, self.rng.index(total + 1));
        }
        let bytes = op.bytes();
        let number = self.apply(inode, op)?;
        if !dsync || fate != Fate::Done {
            return Ok(());
        }
        if self.sync_fails() {
            self.file(inode)?.lose_one(number);
            return Err(rustix::io::Errno::IO.into());
        }
        self.file(inode)?.sync_one(number, bytes);
        Ok(())
    }

    /// Make the changes of a file below `end` durable, if syncs do not fail.
    pub(super) fn sync(&mut self, inode: u64, end: u64) -> io::Result<()> {
        if self.sync_fails() {
            self.file(inode)?.lose(end);
            return Err(rustix::io::Errno::IO.into());
        }
        self.file(inode)?.sync(end);
        Ok(())
    }

    /// The files with work for a sync of all.
    pub(super) fn unsynced_files(&self) -> Vec<UnsyncedFile> {
        let files = self.inodes.iter().filter_map(|(&inode, known)| match &known.kind {
            Kind::File(file) => Some(UnsyncedFile { inode, made: file.made(), bytes: file.unsynced_bytes() }),
            Kind::Dir(_) => None,
        });
        files.collect()
    }

    /// Make all changes that were made until then durable, and all names.
    pub(super) fn sync_all(&mut self, then: &[UnsyncedFile]) -> io::Result<()> {
        let fails = self.sync_fails();
        for &UnsyncedFile { inode, made, .. } in then {
            // Some are gone since.
            if let Ok(file) = self.file(inode) {
                if fails { file.lose(made) } else { file.sync(made) }
            }
        }
        if fails {
            return Err(rustix::io::Errno::IO.into());
        }
        self.sync_all_names();
        Ok(())
    }

    /// Whether this sync is one that fails.
    pub(super) fn sync_fails(&mut self) -> bool {
        let fails = self.failing_syncs > 0;
        self.failing_syncs -= u64::from(fails);
        self.failed_syncs += u64::from(fails);
        if let Some(tell) = self.on_failed_sync.as_ref().filter(|_| fails) {
            tell();
        }
        fails
    }

    pub(super) fn lock(&mut self, inode: u64, process: usize, incarnation: u64) -> io::Result<()> {
        match self.locks.insert(inode, (process, incarnation)) {
            None => Ok(()),
            Some(holder) => {
                self.locks.insert(inode, holder);
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }
}

impl Inode {
    pub(super) fn pages(&self) -> u64 {
        match &self.kind {
            Kind::File(file) => file.cached.pages(),
            Kind::Dir(_) => 0,
        }
    }
}

/// The cost of a size between two known ones; below them that of the least. Above the last each byte costs
/// as much as between the last two. If only one size is known: the cost of writing it (a sync is an access,
/// and not in proportion to its bytes).
fn between(known: &[SyncCost], bytes: u64, bytes_per_s: u64) -> SyncCost {
    let last = known[known.len() - 1];
    let at = known.iter().position(|cost| cost.bytes >= bytes);
    let part = |low: u64, high: u64, of: u64, all: u64| {
        let (low, high) = (u128::from(low), u128::from(high.max(low)));
        (low + (high - low) * u128::from(of) / u128::from(all.max(1))) as u64
    };
    match at {
        Some(0) => known[0],
        Some(at) => {
            let (low, high) = (known[at - 1], known[at]);
            let (of, all) = (bytes - low.bytes, high.bytes - low.bytes);
            SyncCost {
                bytes,
                latency_ns: part(low.latency_ns, high.latency_ns, of, all),
                gap_ns: part(low.gap_ns, high.gap_ns, of, all),
            }
        }
        None => {
            let more = bytes - last.bytes;
            let before = known.iter().rev().find(|cost| cost.bytes < last.bytes);
            let above = |of: fn(&SyncCost) -> u64| {
                let slope_ns = before.map_or(span_ns(more, bytes_per_s), |before| {
                    part(0, of(&last).saturating_sub(of(before)), more, last.bytes - before.bytes)
                });
                of(&last) + slope_ns
            };
            SyncCost { bytes, latency_ns: above(|cost| cost.latency_ns), gap_ns: above(|cost| cost.gap_ns) }
        }
    }
}

/// Keep the first `len` bytes.
fn cut(pieces: &mut Vec<Bytes>, mut len: usize) {
    for piece in pieces.iter_mut() {
        piece.truncate(len);
        len -= piece.len();
    }
    pieces.retain(|piece| !piece.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(bytes: u64, latency_ns: u64, gap_ns: u64) -> SyncCost {
        SyncCost { bytes, latency_ns, gap_ns }
    }

    #[test]
    fn what_a_sync_costs_lies_between_the_sizes_that_were_measured() {
        let known = [cost(4096, 100, 10), cost(8192, 300, 50), cost(12_288, 300, 60)];
        assert_eq!(between(&known, 0, 0), known[0]);
        assert_eq!(between(&known, 4096, 0), known[0]);
        assert_eq!(between(&known, 6144, 0), cost(6144, 200, 30));
        assert_eq!(between(&known, 10_240, 0), cost(10_240, 300, 55));
        assert_eq!(between(&known, 24_576, 0), cost(24_576, 300, 90));
    }

    #[test]
    fn a_sync_of_more_bytes_than_the_one_size_that_is_known_costs_their_transfer_more() {
        let known = [cost(4096, 2_000_000, 2_000_000); 4];
        assert_eq!(between(&known, 16_384, 0), cost(16_384, 2_000_000, 2_000_000));
        assert_eq!(between(&known, 16_384, 1_000_000_000), cost(16_384, 2_012_288, 2_012_288));
    }

    #[test]
    fn syncs_of_many_overlap_as_far_as_the_device_s_rate_allows() {
        let syncs = config::Syncs { writes: [cost(4096, 100, 40); 4], syncs: [cost(4096, 500, 500); 4] };
        let config = config::Disk { syncs: Some(syncs), ..config::Disk::default() };
        let mut disk = DiskState::new(config, Rng::new(1, 1));
        let ends: Vec<u64> = (0..3).map(|_| disk.durable(0, 1, 0, 4096, true)).collect();
        assert_eq!(ends, [100, 140, 180]);
        assert_eq!(disk.durable(0, 1, 0, 4096, false), 120 + 500);
    }

    #[test]
    fn an_arm_does_one_thing_at_a_time_and_takes_what_the_machine_says() {
        let arm = config::Arm { track_ns: 1000, average_ns: 8000, max_ns: 15_000, turn_ns: 0 };
        let config =
            config::Disk { arm: Some(arm), write_bytes_per_s: 1_000_000_000, ..config::Disk::default() };
        let mut disk = DiskState::new(config, Rng::new(1, 1));
        let first = disk.durable(0, 1, 0, 4096, true);
        assert_eq!(disk.durable(0, 1, 4096, 4096, true), first + 1000 + 4096);
    }
}
