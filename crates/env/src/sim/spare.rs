//! Copies of disks: an earlier state of a machine's disk, put in its place later.

use super::disk::{DiskState, Inode, Kind};
use super::process::Machine;
use super::world::{MachineId, World};

/// The contents of a disk without a machine.
pub struct SpareDisk {
    disk: DiskState,
    boot_id: [u8; 16],
}

impl World {
    /// A copy of the durable contents of a machine's disk.
    pub fn copy_disk(&self, machine: MachineId) -> SpareDisk {
        let machines = self.core.machines.borrow();
        let Machine { disk, boot_id, .. } = &machines[machine.0];
        // Unsynced changes are not in it, as after a power cut: so it has another boot id.
        SpareDisk { disk: disk.durable_copy(), boot_id: boot_id.map(|byte| !byte) }
    }

    /// Exchange the contents of a machine's disk and of a spare one. All processes of the machine are
    /// stopped. Unsynced changes move too, and so does the boot id, which says whether they were lost.
    pub fn exchange_disk(&self, machine: MachineId, spare: &mut SpareDisk) {
        let mut machines = self.core.machines.borrow_mut();
        let Machine { disk, boot_id, .. } = &mut machines[machine.0];
        disk.exchange(&mut spare.disk);
        std::mem::swap(boot_id, &mut spare.boot_id);
    }
}

impl DiskState {
    fn durable_copy(&self) -> DiskState {
        let mut copy = DiskState::like(self);
        copy.next_inode = self.next_inode;
        copy.inodes = self.inodes.iter().map(|(number, inode)| (*number, inode.durable_copy())).collect();
        copy.forget_the_unreachable();
        copy.pages_used = copy.inodes.values().map(Inode::pages).sum();
        copy
    }
}

impl Inode {
    fn durable_copy(&self) -> Inode {
        let kind = match &self.kind {
            Kind::File(file) => Kind::File(file.durable_copy()),
            Kind::Dir(dir) => Kind::Dir(dir.clone()),
        };
        Inode { kind, refs: self.refs, device: self.device }
    }
}
