//! A rotating disk: the seek time of the arm, and the rotational delay.
//!
//! A file lies in one piece, at a place drawn from its number: so the bytes after the last access are near,
//! and other files are anywhere. A seek over the distance x (of the whole disk) takes t(x) = track + (max −
//! track) · x^p, where p is chosen so that the mean seek between two random places takes the average time:
//! E\[x^p\] = 2 ÷ ((p + 1)(p + 2)). For the disk in J. Kunkel, *Performance Analysis of the PVFS2 Persistency
//! Layer* (1.1, 8.5 and 15 ms), p is 0.5, the square root of an accelerated mass. The curve is made once, in
//! whole nanoseconds.
//!
//! The platter's angle follows from the time: an access that comes too late for the next sector waits a whole
//! rotation. A read by the page cache that begins where the last access ended needs neither a seek nor a
//! rotation.

use super::config::Arm;

/// Bytes from edge to edge, and of a track.
const DISK_BYTES: u64 = 80_000_000_000;
const TRACK_BYTES: u64 = 512 << 10;
/// Points of the curve.
const STEPS: u64 = 256;

/// The arm: its place, and the costs of seeks.
pub(super) struct ArmState {
    config: Arm,
    /// By distance, in steps of the whole.
    curve_ns: Vec<u64>,
    at: u64,
}

impl ArmState {
    pub(super) fn new(config: Arm) -> ArmState {
        let Arm { track_ns, average_ns, max_ns, .. } = config;
        let max_ns = max_ns.max(track_ns);
        let (track, span) = (track_ns as f64, (max_ns - track_ns) as f64);
        let mean = ((average_ns as f64 - track) / span.max(1.0)).clamp(0.05, 0.95);
        // (p + 1)(p + 2) = 2 ÷ mean
        let power = (-3.0 + (1.0 + 8.0 / mean).sqrt()) / 2.0;
        let at = |step: u64| track + span * (step as f64 / STEPS as f64).powf(power);
        ArmState { config, curve_ns: (0..=STEPS).map(|step| at(step).round() as u64).collect(), at: 0 }
    }

    /// The time from `begins` until the first byte of an access of a file. `follows`: the bytes after the
    /// last access cost nothing, as the system continues by itself.
    pub(super) fn access_ns(
        &mut self,
        begins: u64,
        inode: u64,
        offset: u64,
        bytes: u64,
        follows: bool,
    ) -> u64 {
        let place = place_of(inode).wrapping_add(offset) % DISK_BYTES;
        let distance = place.abs_diff(self.at);
        self.at = (place + bytes) % DISK_BYTES;
        if follows && distance == 0 {
            return 0;
        }
        let seek_ns = match distance <= TRACK_BYTES {
            true => self.config.track_ns,
            false => self.curve_ns[(distance * STEPS / DISK_BYTES).min(STEPS) as usize],
        };
        seek_ns + self.turn_ns(begins + seek_ns, place)
    }

    /// The time until a place passes the arm.
    fn turn_ns(&self, now: u64, place: u64) -> u64 {
        let turn = self.config.turn_ns;
        if turn == 0 {
            return 0;
        }
        let angle = (u128::from(place % TRACK_BYTES) * u128::from(turn) / u128::from(TRACK_BYTES)) as u64;
        (angle + turn - now % turn) % turn
    }
}

/// The place of a file's first byte.
fn place_of(inode: u64) -> u64 {
    let mut word = inode.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word ^ (word >> 31)) % DISK_BYTES / 4096 * 4096
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thesis's disk: 1.1, 8.5 and 15 ms, rotation within.
    const THESIS: Arm = Arm { track_ns: 1_100_000, average_ns: 8_500_000, max_ns: 15_000_000, turn_ns: 0 };

    #[test]
    fn seeks_between_files_take_the_average_in_the_mean_and_never_more_than_the_longest() {
        let mut arm = ArmState::new(THESIS);
        let spans: Vec<u64> = (0..20_000).map(|inode| arm.access_ns(0, inode, 0, 4096, false)).collect();
        let mean = spans.iter().sum::<u64>() / spans.len() as u64;
        assert!((8_300_000..8_700_000).contains(&mean), "{mean}");
        assert!(spans.iter().all(|&ns| (1_100_000..=15_000_000).contains(&ns)));
        assert!(spans.iter().any(|&ns| ns > 13_500_000));
    }

    #[test]
    fn bytes_after_the_last_access_are_a_track_away_and_cost_nothing_to_read_on() {
        let mut arm = ArmState::new(THESIS);
        arm.access_ns(0, 1, 0, 4096, false);
        assert_eq!(arm.access_ns(0, 1, 4096, 4096, false), 1_100_000);
        assert_eq!(arm.access_ns(0, 1, 8192, 4096, true), 0);
    }

    #[test]
    fn who_comes_too_late_for_the_next_sector_waits_the_rest_of_a_turn() {
        let mut arm = ArmState::new(Arm { track_ns: 0, turn_ns: 8_000_000, ..THESIS });
        let first = arm.access_ns(0, 1, 0, 0, false);
        // Now at its place: the same place passes again after a turn.
        let there = first + 1_000_000;
        assert_eq!(arm.access_ns(there, 1, 0, 0, false), 7_000_000);
        let mean: u64 = (0..1000).map(|n| arm.access_ns(n * 77_777_777, 1, 0, 0, false)).sum::<u64>() / 1000;
        assert!((3_500_000..4_500_000).contains(&mean), "half a turn in the mean: {mean}");
    }
}
