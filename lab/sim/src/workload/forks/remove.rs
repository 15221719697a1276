//! The removal of forked files: whole, or one subfile after the other.

use super::super::{End, Worker, name};
use super::Forked;
use crate::ledger::Slot;
use shoal_proto::{Handle, Status};

impl Worker {
    /// Its forks, and then the file: mostly with its subfiles at once, sometimes one by one as `rm -r` does
    /// it. It ends where an outcome is not known.
    pub(super) async fn remove_forked(&mut self) {
        let Some(file) = self.pick_own_forked() else { return };
        let is_there = match self.rng.below(4) {
            0 => self.is_refused_while_it_has_forks(&file).await,
            1 => self.is_kept_for_its_forks(&file).await,
            _ => true,
        };
        if !is_there {
            return;
        }
        let forks = |this: &Worker| -> Vec<Slot> {
            let ledger = this.shared.ledger.borrow();
            file.subfiles.iter().flat_map(|dir| ledger.names_in(dir.0).into_iter().cloned()).collect()
        };
        let live = self.shared.ledger.borrow().live(self.id);
        for (slot, object) in live.into_iter().filter(|(slot, _)| file.subfiles.contains(&Handle(slot.0))) {
            if !self.unlink_name(&slot, object).await {
                return;
            }
        }
        // One that was offered may be another client's now.
        let live = self.shared.ledger.borrow().all_live();
        if live.iter().any(|(slot, _)| file.subfiles.contains(&Handle(slot.0))) {
            return;
        }
        let all = forks(self);
        if !all.iter().all(|slot| self.shared.ledger.borrow().is_settled(slot)) {
            return;
        }
        self.forget_forked(&file);
        match self.rng.below(4) {
            0 => self.remove_singly(&file, &all).await,
            _ => self.remove_whole(&file, &all).await,
        }
    }

    /// The file with its subfiles, at once: it is never left with some of them.
    async fn remove_whole(&mut self, file: &Forked, forks: &[Slot]) {
        let (client, dir, leaf) = (self.client.clone(), Handle(file.slot.0), name(&file.slot.1));
        let (handle, words) = (self.handle(file.object), format!("rmforked {:?}", file.slot));
        let refusals = [Status::Stale, Status::NotFound, Status::NotEmpty];
        let changes = vec![(file.slot.clone(), None)];
        match self.change("rmforked", &words, &refusals, changes, client.rmforked(dir, &leaf, handle)).await {
            End::Done(()) => self.lost_name(file.object),
            End::Refused(status) => {
                let slots: Vec<&Slot> = forks.iter().chain([&file.slot]).collect();
                self.wrong_name(&words, &slots, status);
            }
            End::Unknown(_) => {}
        }
    }

    /// Subfiles and the file, one by one.
    async fn remove_singly(&mut self, file: &Forked, all: &[Slot]) {
        self.shared.unmade.borrow_mut().insert(self.handle(file.object).0);
        let handle = self.handle(file.object);
        let (before, held) = (self.shared.now(), self.held_metadata());
        for index in 0..file.subfiles.len() {
            let words = format!("rmdir subfile {index} of {handle}");
            let (client, leaf) = (self.client.clone(), name(&index.to_string()));
            let refusals = [Status::Stale, Status::NotFound, Status::NotPermitted];
            match self.run("rmdir", &words, &refusals, client.rmdir(handle, &leaf)).await {
                End::Done(()) => {}
                End::Refused(status) => {
                    let slots: Vec<&Slot> = all.iter().chain([&file.slot]).collect();
                    return self.wrong_name(&words, &slots, status);
                }
                End::Unknown(_) => return,
            }
        }
        let (client, dir, leaf) = (self.client.clone(), Handle(file.slot.0), name(&file.slot.1));
        let words = format!("rmdir {:?}, a forked file without subfiles", file.slot);
        let refusals = [Status::Stale, Status::NotFound, Status::NotEmpty];
        let changes = vec![(file.slot.clone(), None)];
        match self.change("rmdir", &words, &refusals, changes, client.rmdir(dir, &leaf)).await {
            End::Done(()) => self.lost_name(file.object),
            // A fault may have given a subfile back.
            End::Refused(Status::NotEmpty)
                if before.is_lost_by_any(&self.shared.now(), &[], held.min(self.held_metadata())) => {}
            End::Refused(status) => self.wrong_name(&words, &[&file.slot], status),
            End::Unknown(_) => {}
        }
    }

    fn forget_forked(&self, file: &Forked) {
        let mut forked = self.shared.forked.borrow_mut();
        forked.entry(self.id).or_default().retain(|known| known.object != file.object);
    }

    /// A file that has forks is not removed with its subfiles; whether it is sure to be there.
    async fn is_kept_for_its_forks(&mut self, file: &Forked) -> bool {
        let live_slots = |this: &Worker| -> Vec<Slot> {
            this.shared.ledger.borrow().live(this.id).into_iter().map(|(slot, _)| slot).collect()
        };
        let forks = live_slots(self);
        let of_file = |slot: &&Slot| file.subfiles.contains(&Handle(slot.0));
        let (client, dir, leaf) = (self.client.clone(), Handle(file.slot.0), name(&file.slot.1));
        let words = format!("rmforked {:?}, which may have forks", file.slot);
        let refusals = [Status::NotEmpty, Status::Stale, Status::NotFound];
        let changes = vec![(file.slot.clone(), None)];
        let removed = client.rmforked(dir, &leaf, self.handle(file.object));
        match self.change("rmforked", &words, &refusals, changes, removed).await {
            End::Refused(Status::NotEmpty) => true,
            End::Done(()) => {
                let still: Vec<Slot> = live_slots(self);
                if let Some(fork) = forks.iter().filter(of_file).find(|fork| still.contains(fork)) {
                    self.violation(&words, format!("expected it refused for fork {fork:?}, found it done"));
                }
                self.forget_forked(file);
                self.lost_name(file.object);
                false
            }
            End::Refused(_) => false,
            End::Unknown(_) => {
                self.forget_forked(file);
                false
            }
        }
    }

    /// A file that has subfiles is not removed, nor one of them that has forks; whether the answers were so.
    async fn is_refused_while_it_has_forks(&mut self, file: &Forked) -> bool {
        let (client, dir, leaf) = (self.client.clone(), Handle(file.slot.0), name(&file.slot.1));
        let words = format!("rmdir {:?}, which has its subfiles", file.slot);
        let refusals = [Status::NotEmpty, Status::Stale, Status::NotFound];
        // Without an answer it may be done after the subfiles were removed.
        let changes = vec![(file.slot.clone(), None)];
        match self.change("rmdir", &words, &refusals, changes, client.rmdir(dir, &leaf)).await {
            End::Refused(Status::NotEmpty) => true,
            End::Done(()) => {
                self.violation(&words, "expected it refused, found it done");
                false
            }
            End::Refused(_) | End::Unknown(_) => false,
        }
    }
}
