//! Changes of the sync modes while all clients work (`shoal sync --metadata … --data …`). One client makes
//! them, one at a time.

use super::{End, Worker};
use shoal_store::{DataSync, MetadataSync, SyncModes};

/// The client that changes them.
const WHO: u16 = 0;
const METADATA: [(&str, MetadataSync); 3] =
    [("reply", MetadataSync::AtReply), ("fsync", MetadataSync::AtFsync), ("never", MetadataSync::Never)];
const DATA: [(&str, DataSync); 2] = [("fsync", DataSync::AtFsync), ("reply", DataSync::AtReply)];

/// The modes of a seed: as is usual in every second one.
pub(crate) fn drawn(rng: &mut crate::rng::Rng) -> SyncModes {
    let usual = SyncModes::default();
    match rng.below(2) {
        0 => usual,
        _ => SyncModes {
            metadata: METADATA[rng.below(3) as usize].1,
            data: DATA[rng.below(2) as usize].1,
            ..usual
        },
    }
}

/// Modes in words, as `shoal sync` takes them.
pub fn words(modes: SyncModes) -> String {
    let metadata = METADATA.iter().find(|(_, at)| *at == modes.metadata).map_or("", |(word, _)| word);
    let data = DATA.iter().find(|(_, at)| *at == modes.data).map_or("", |(word, _)| word);
    format!("metadata {metadata}, data {data}")
}

impl Worker {
    pub(super) async fn change_modes(&mut self) {
        if self.id != WHO || !self.shared.operators.may_change_modes() {
            return;
        }
        let (metadata, at) = METADATA[self.rng.below(3) as usize];
        let (data, data_at) = DATA[self.rng.below(2) as usize];
        let modes = SyncModes { metadata: at, data: data_at, ..SyncModes::default() };
        self.shared.modes.borrow_mut().begin(modes);
        self.shared.note_held(self.now());
        let client = self.client.clone();
        let words = format!("setsync metadata {metadata}, data {data}");
        if let End::Done(()) = self.run("setsync", &words, &[], client.set_sync(metadata, data, "")).await {
            self.shared.modes.borrow_mut().done();
            self.shared.note_held(self.now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn all_modes_are_drawn_and_half_of_the_seeds_have_the_usual_ones() {
        let all: Vec<SyncModes> = (0..200).map(|seed| drawn(&mut Rng::new(seed, 3))).collect();
        let words: BTreeSet<String> = all.iter().map(|modes| format!("{modes:?}")).collect();
        assert_eq!(words.len(), METADATA.len() * DATA.len());
        assert!(all.iter().filter(|modes| **modes == SyncModes::default()).count() >= 100);
    }
}
