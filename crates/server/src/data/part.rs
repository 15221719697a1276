//! One stream's part of a transfer. It is kept in the form of the request: pattern, window (a range of the
//! packed bytes), distribution.
//!
//! Its runs are found by a walk whenever they are needed, and never all at once: a message of a mebibyte may
//! hold a million records of one byte. Its end comes from arithmetic. Its length does, too, where the pattern
//! permits that; otherwise a walk of limited length counts it.
//!
//! ```text
//!   window of the pattern   ....####....####....####      the bytes of all servers, in packed order
//!   the part                    ^^^^        ^^            runs of this stream; dense positions 0.. 4..
//! ```
//! On the wire a part's bytes lie densely, in packed order. **Invariant: client and server walk the same
//! view**, so that a dense position means the same byte on both sides (test:
//! `patterned_transfers_are_equal_to_a_naive_loop_on_small_and_large_files`).

use bytes::{Bytes, BytesMut};
use shoal_pattern::{Distribution, Pattern, View, ViewRun, Window, share_len};
use shoal_proto::{Share, Status, Striping, Transfer, limits};
use std::rc::Rc;

/// See the module's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPart {
    pattern: Rc<Pattern>,
    window: Window,
    striping: Striping,
    index: u32,
    len: u64,
    end: u64,
}

/// How far a walk of a part came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkPlace {
    /// Packed bytes of the window that were passed.
    packed: u64,
    /// Bytes of the part among them.
    dense: u64,
}

/// Where a transfer's share lies: its window, and the stream among those of the file.
pub(super) fn place_of(transfer: &Transfer) -> Result<(Window, Striping, u32), Status> {
    let Share { width, index, .. } = transfer.share;
    if usize::from(width) > limits::WIDTH_MAX || index >= width.max(1) {
        return Err(Status::Invalid);
    }
    let window = Window::new(transfer.window_from, transfer.window_len);
    Ok((window, transfer.share.striping(), u32::from(index)))
}

/// No byte of a share lies at this offset of its stream or after it.
pub(super) fn end_of(pattern: &Pattern, window: Window, striping: &Striping, index: u32) -> u64 {
    let bounds = pattern.window_bounds(window.from, window.len);
    let logical_end = bounds.map_or(0, |(_, end)| u64::try_from(end).unwrap_or(0));
    striping.physical_size(index, logical_end)
}

impl StreamPart {
    /// The part of a transfer's stream.
    ///
    /// # Errors
    /// `Invalid` for a window outside its pattern, a negative offset or a share that does not exist;
    /// `OverLimit` for more bytes than a message may carry, or a walk that would be too long.
    pub fn of(transfer: &Transfer) -> Result<StreamPart, Status> {
        let (window, striping, index) = place_of(transfer)?;
        let counted = share_len(&transfer.pattern, window, &striping, index).map_err(|_| Status::Invalid)?;
        let pattern = Rc::new(transfer.pattern.clone());
        let mut part = StreamPart { pattern, window, striping, index, len: 0, end: 0 };
        part.len = match counted {
            Some(len) if part.is_short() => len,
            _ => part.walked()?,
        };
        if part.len > limits::BULK_BYTES_MAX as u64 {
            return Err(Status::OverLimit);
        }
        part.end = part.found_end();
        Ok(part)
    }

    /// A piece of a longer part, that has `len` bytes.
    pub(super) fn piece(
        pattern: Rc<Pattern>,
        window: Window,
        striping: Striping,
        index: u32,
        len: u64,
    ) -> StreamPart {
        let part = StreamPart { pattern, window, striping, index, len, end: 0 };
        StreamPart { end: part.found_end(), ..part }
    }

    fn found_end(&self) -> u64 {
        end_of(&self.pattern, self.window, &self.striping, self.index)
    }

    /// Whether a walk of all records takes no longer than a walk may.
    fn is_short(&self) -> bool {
        let max = limits::TRANSFER_STEPS_MAX;
        self.pattern.regions_max() <= max
            || self.pattern.slice(self.window.from, self.window.len).regions_max() <= max
    }

    /// Its length by a walk that is bounded.
    fn walked(&self) -> Result<u64, Status> {
        let mut view = self.view(WalkPlace::default())?.at_most(limits::TRANSFER_STEPS_MAX);
        let mut len = 0_u64;
        for run in &mut view {
            len = len.saturating_add(run.len);
            if len > limits::BULK_BYTES_MAX as u64 {
                return Err(Status::OverLimit);
            }
        }
        if view.gave_up() { Err(Status::OverLimit) } else { Ok(len) }
    }

    fn view(&self, from: WalkPlace) -> Result<View<'_>, Status> {
        let Window { from: at, len } = self.window;
        let rest = Window::new(at + from.packed, len - from.packed);
        View::new(&self.pattern, rest, &self.striping, self.index).map_err(|_| Status::Invalid)
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// No byte of it lies at this offset of the stream or after it. Exact where the stream is the whole file.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// At most `runs_max` runs from a place on, in packed order, with dense positions; runs that follow each
    /// other in the stream are one (strips of a file lie side by side there). Gives the place after them;
    /// it is the part's end when the dense position is its length. A walk over many bytes of other servers
    /// may give none and come further all the same.
    ///
    /// # Errors
    /// None for a part that [`StreamPart::of`] made.
    pub fn runs_from(&self, from: WalkPlace, runs_max: usize) -> Result<(Vec<ViewRun>, WalkPlace), Status> {
        let mut view = self.view(from)?.at_most(STEPS_MAX);
        let (mut runs, mut dense) = (Vec::<ViewRun>::new(), from.dense);
        let mut packed = from.packed;
        while dense < self.len {
            let Some(run) = view.next() else {
                // Either the bound was reached, or (it cannot be) the length is wrong.
                if !view.gave_up() {
                    return Err(Status::BadMessage);
                }
                packed = from.packed + view.passed();
                break;
            };
            let len = run.len.min(self.len - dense);
            let is_full = runs.len() == runs_max;
            match runs.last_mut() {
                Some(last) if last.physical + last.len == run.physical => last.len += len,
                _ if is_full => break,
                _ => runs.push(ViewRun { physical: run.physical, packed: dense, len }),
            }
            dense += len;
            packed = from.packed + run.packed + run.len;
        }
        Ok((runs, WalkPlace { packed, dense }))
    }

    /// Whether a walk that came here is at the end.
    pub fn is_walked(&self, place: WalkPlace) -> bool {
        place.dense >= self.len
    }

    /// All runs one after the other.
    fn each(&self, mut of: impl FnMut(ViewRun)) -> Result<(), Status> {
        let mut place = WalkPlace::default();
        while !self.is_walked(place) {
            let (runs, next) = self.runs_from(place, RUNS_AT_ONCE)?;
            runs.into_iter().for_each(&mut of);
            place = next;
        }
        Ok(())
    }

    /// Without the trailing runs (and parts of them) that are after `size`: they would be zeros that the
    /// client can make itself.
    ///
    /// # Errors
    /// As [`StreamPart::runs_from`].
    pub fn trimmed(mut self, size: u64) -> Result<StreamPart, Status> {
        if self.end > size {
            let mut len = 0;
            self.each(|run| {
                if run.physical < size {
                    len = run.packed + run.len.min(size - run.physical);
                }
            })?;
            self.len = len;
        }
        Ok(self)
    }

    /// Gather the part from a small stream's content; holes and bytes after the content are zeros. The number
    /// of copied bytes is added to `copied`.
    ///
    /// # Errors
    /// As [`StreamPart::runs_from`].
    pub fn gather(&self, content: &Bytes, copied: &mut usize) -> Result<Bytes, Status> {
        if let Some(run) = self.only_run()?
            && let (from, to) = (run.physical as usize, (run.physical + run.len) as usize)
            && to <= content.len()
        {
            return Ok(content.slice(from..to));
        }
        let mut out = BytesMut::zeroed(self.len as usize);
        self.each(|run| {
            let from = (run.physical as usize).min(content.len());
            let to = ((run.physical + run.len) as usize).min(content.len());
            let at = run.packed as usize;
            out[at..at + (to - from)].copy_from_slice(&content[from..to]);
            *copied += to - from;
        })?;
        Ok(out.freeze())
    }

    /// Its one run, if it has no more.
    ///
    /// # Errors
    /// As [`StreamPart::runs_from`].
    pub fn only_run(&self) -> Result<Option<ViewRun>, Status> {
        let (runs, place) = self.runs_from(WalkPlace::default(), 1)?;
        Ok(runs.first().copied().filter(|_| self.is_walked(place)))
    }

    /// Whether a write of it leaves nothing of a stream of `size` bytes.
    ///
    /// # Errors
    /// As [`StreamPart::runs_from`].
    pub fn covers(&self, size: u64) -> Result<bool, Status> {
        Ok(self.only_run()?.is_some_and(|run| run.physical == 0 && run.len >= size))
    }

    /// Scatter data over a small stream's content: the new one, and where the last of the data ends. The
    /// number of copied bytes is added to `copied`.
    ///
    /// # Errors
    /// As [`StreamPart::runs_from`].
    pub fn scatter(&self, content: &Bytes, data: &Bytes, copied: &mut usize) -> Result<(Bytes, u64), Status> {
        if self.covers(content.len() as u64)? {
            return Ok((data.clone(), data.len() as u64));
        }
        let mut out = BytesMut::with_capacity(content.len().max(self.end as usize));
        out.extend_from_slice(content);
        *copied += content.len() + self.len as usize;
        let mut last = 0;
        self.each(|run| {
            let (to, from) = (run.physical as usize, run.packed as usize);
            let end = to + run.len as usize;
            last = last.max(end);
            if out.len() < end {
                out.resize(end, 0);
            }
            out[to..end].copy_from_slice(&data[from..from + run.len as usize]);
        })?;
        Ok((out.freeze(), last as u64))
    }
}

/// Runs of a walk of a small stream's part at once.
const RUNS_AT_ONCE: usize = 1024;
/// Records, rows and strips that one step of a walk visits at most.
const STEPS_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_pattern::Level;
    use shoal_proto::{Dist, Generation, Handle};

    fn transfer(pattern: Pattern, width: u16, index: u16) -> Transfer {
        Transfer {
            stream: Handle(1),
            generation: Generation(1),
            capability: None,
            window_from: 0,
            window_len: pattern.len(),
            pattern,
            share: Share { dist: Dist::SimpleStripe { strip: 4096 }, width, index },
        }
    }

    fn all(part: &StreamPart) -> Vec<ViewRun> {
        let mut runs = Vec::new();
        part.each(|run| runs.push(run)).unwrap();
        runs
    }

    #[test]
    fn the_parts_of_all_servers_lie_densely_and_make_the_whole() {
        let pattern = Pattern::strided(100, 3000, 5000, 20).unwrap();
        let parts: Vec<_> =
            (0..3).map(|i| StreamPart::of(&transfer(pattern.clone(), 3, i)).unwrap()).collect();
        assert_eq!(parts.iter().map(StreamPart::len).sum::<u64>(), pattern.len());
        for part in parts {
            let mut at = 0;
            for run in all(&part) {
                assert_eq!(run.packed, at);
                assert!(run.physical + run.len <= part.end());
                at += run.len;
            }
            assert_eq!(at, part.len());
        }
    }

    #[test]
    fn a_walk_in_steps_finds_the_runs_of_one_walk() {
        let levels = vec![Level { stride: -700, quantity: 40 }, Level { stride: 90_000, quantity: 9 }];
        for pattern in [
            Pattern::strided(5, 7, 1000, 5000).unwrap(),
            Pattern::nested(50_000, 300, levels).unwrap(),
            Pattern::contiguous(123, 100_000).unwrap(),
        ] {
            let part = StreamPart::of(&transfer(pattern, 3, 1)).unwrap();
            let whole = all(&part);
            for runs_max in [1, 2, 7] {
                let (mut place, mut found) = (WalkPlace::default(), Vec::new());
                while !part.is_walked(place) {
                    let (runs, next) = part.runs_from(place, runs_max).unwrap();
                    assert!(runs.len() <= runs_max && next != place);
                    found.extend(runs);
                    place = next;
                }
                assert_eq!(found, whole);
            }
        }
    }

    #[test]
    fn what_lies_behind_the_end_of_the_stream_is_not_sent() {
        let part = StreamPart::of(&transfer(Pattern::contiguous(0, 10_000).unwrap(), 1, 0)).unwrap();
        let trimmed = |size| part.clone().trimmed(size).unwrap().len();
        assert_eq!((trimmed(2500), trimmed(0), trimmed(20_000)), (2500, 0, 10_000));
        // Backwards: the trailing runs are those that come last, not those that lie highest.
        let backwards = Pattern::strided(9000, 10, -1000, 5).unwrap();
        let part = StreamPart::of(&transfer(backwards, 1, 0)).unwrap();
        assert_eq!(part.clone().trimmed(6005).unwrap().len(), 50);
        assert_eq!(part.clone().trimmed(5005).unwrap().len(), 45);
        assert_eq!(part.trimmed(5000).unwrap().len(), 0);
    }

    #[test]
    fn scattered_data_is_gathered_again() {
        let part = StreamPart::of(&transfer(Pattern::strided(10, 5, 20, 4).unwrap(), 1, 0)).unwrap();
        let data = Bytes::from((0..20).collect::<Vec<u8>>());
        let mut copied = 0;
        let (content, end) = part.scatter(&Bytes::from(vec![9; 30]), &data, &mut copied).unwrap();
        assert_eq!((content.len(), end), (75, 75));
        assert_eq!(copied, 30 + data.len());
        assert_eq!(part.gather(&content, &mut copied).unwrap(), data);
        assert_eq!(copied, 30 + 2 * data.len());
        assert_eq!(content[9], 9);
        assert_eq!(content[40], 0);
    }

    #[test]
    fn a_share_that_does_not_exist_or_is_too_large_is_refused() {
        let whole = Pattern::contiguous(0, 10).unwrap();
        let of = |transfer: Transfer| StreamPart::of(&transfer).map(|part| part.len());
        assert_eq!(of(transfer(whole.clone(), 3, 3)), Err(Status::Invalid));
        assert_eq!(of(transfer(whole.clone(), u16::MAX, 0)), Err(Status::Invalid));
        assert_eq!(of(Transfer { window_len: 11, ..transfer(whole, 1, 0) }), Err(Status::Invalid));
        let before = Pattern::strided(5, 4, -4, 3).unwrap();
        assert_eq!(of(transfer(before, 1, 0)), Err(Status::Invalid));
        let large = Pattern::contiguous(0, 2 * limits::BULK_BYTES_MAX as u64).unwrap();
        assert_eq!(of(transfer(large, 1, 0)), Err(Status::OverLimit));
        // 2^44 records, all on server 1, in a few bytes.
        let levels = [(3 * 4096, 1 << 20), ((3 * 4096) << 20, 1 << 24)];
        let levels = levels.map(|(stride, quantity)| Level { stride, quantity }).to_vec();
        let endless = Pattern::nested(4096, 1, levels).unwrap();
        assert_eq!(of(transfer(endless, 3, 0)), Err(Status::OverLimit));
        let far = Pattern::contiguous(i64::MAX - 5, 5).unwrap();
        assert!(of(transfer(far, 1, 0)).is_ok());
    }
}
