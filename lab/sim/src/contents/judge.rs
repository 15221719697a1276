//! Judges the result of a read: each byte, and the length, against all acts that were possible.

use super::floating::{BEGINNING, REST, are_end_and_beginnings, are_pieces, are_whole, shows_its_place};
use super::{ATTRIBUTES, Act, Contents, Length, Read, filled};
use std::ops::Range;

impl Contents {
    /// The furthest that anything reaches.
    pub fn reach(&self) -> u64 {
        let reach = |act: &Act| match act.length {
            Length::Kept => 0,
            Length::Reaches(end) | Length::Becomes(end) => end,
        };
        self.acts.iter().map(reach).max().unwrap_or(0)
    }

    /// Whether anything may have been done at or after that moment.
    pub fn touched_since(&self, at: u64) -> bool {
        let mut acts = self.acts.iter().filter(|act| act.kind != ATTRIBUTES);
        acts.any(|act| act.returned.is_none_or(|returned| returned >= at) && !act.refused)
    }

    /// The acts that a register may show: `None` is its beginning. `lost`: whether an act's effect on it may
    /// be lost.
    fn possible(
        &self,
        read: &Read<'_>,
        decides: impl Fn(&Act) -> bool,
        lost: impl Fn(&Act) -> bool,
    ) -> Vec<Option<&Act>> {
        let seen: Vec<&Act> =
            self.acts.iter().filter(|act| act.called < read.returned && decides(act)).collect();
        let is_certain = |act: &&&Act| {
            let before = act.returned.is_some_and(|returned| returned < read.called);
            before && !lost(act)
        };
        let last_begun = seen.iter().filter(is_certain).map(|act| act.called).max();
        let outdated =
            |act: &Act| last_begun.is_some_and(|begun| act.returned.is_some_and(|returned| returned < begun));
        let first = last_begun.is_none().then_some(None);
        first.into_iter().chain(seen.into_iter().filter(|act| !outdated(act)).map(Some)).collect()
    }

    fn possible_ends(&self, at: u64, read: &Read<'_>) -> Vec<Option<&Act>> {
        let lost = |act: &Act| self.may_lose_existence(act, at, read.now);
        self.possible(read, |act| act.decides_existence(at), lost)
    }

    fn may_exist(&self, at: u64, read: &Read<'_>) -> bool {
        let floats = self.acts.iter().any(|act| act.called < read.returned && act.floats());
        let possible = self.possible_ends(at, read);
        floats || possible.iter().any(|act| act.is_some_and(|act| act.keeps(at)))
    }

    pub(super) fn may_be_absent(&self, at: u64, read: &Read<'_>) -> Result<(), String> {
        let possible = self.possible_ends(at, read);
        let absent = possible.iter().any(|act| act.is_none_or(|act| !act.keeps(at)));
        let told = || possible.first().copied().flatten().map_or(String::new(), Act::told);
        if absent { Ok(()) } else { Err(told()) }
    }

    /// Whether the file's length may be `size`, asked as `read` says.
    ///
    /// # Errors
    /// The violation, in words.
    pub fn judge_size(&self, size: u64, read: &Read<'_>) -> Result<(), String> {
        if size > 0 && !self.may_exist(size - 1, read) {
            return Err(format!("expected a shorter file, found {size} bytes"));
        }
        self.may_be_absent(size, read)
            .map_err(|act| format!("expected a longer file, found {size} bytes: {act}"))
    }

    /// Whether a read's result is possible.
    ///
    /// # Errors
    /// The violation, in words.
    pub fn judge(&self, read: &Read<'_>) -> Result<(), String> {
        let end = read.from + read.content.len() as u64;
        if end < read.from + read.len {
            let ended = self.may_be_absent(end, read);
            ended.map_err(|act| format!("expected bytes at {end}, found the end of the file: {act}"))?;
        }
        let mut edges = vec![read.from, end];
        for act in &self.acts {
            edges.extend(act.ranges.iter().flat_map(|range| [range.start, range.end]));
            if let Length::Reaches(size) | Length::Becomes(size) = act.length {
                edges.push(size);
            }
        }
        edges.extend(self.places.borders(read.from, end));
        edges.retain(|edge| (read.from..=end).contains(edge));
        edges.sort_unstable();
        edges.dedup();
        edges.windows(2).try_for_each(|pair| self.judge_between(pair[0], pair[1], read))
    }

    fn judge_between(&self, from: u64, end: u64, read: &Read<'_>) -> Result<(), String> {
        if !self.may_exist(from, read) {
            return Err(format!("expected the end of the file at or before {from}, found bytes up to {end}"));
        }
        let found = &read.content[(from - read.from) as usize..(end - read.from) as usize];
        let lost = |act: &Act| self.may_be_lost(act, from, read.now);
        let possible = self.possible(read, |act| act.gives(from), lost);
        let fills: Vec<Vec<u8>> = possible
            .iter()
            .map(|act| act.map_or_else(|| vec![0; found.len()], |act| act.bytes(from, found.len())))
            .collect();
        if fills.iter().any(|fill| fill == found) {
            return Ok(());
        }
        let fits = |at: &usize| fills.iter().any(|fill| fill[*at] == found[*at]);
        let mut at = 0;
        while let Some(first) = (at..found.len()).find(|at| !fits(at)) {
            let last = (first..found.len()).find(fits).unwrap_or(found.len());
            let is_cut = first == 0 && last == found.len();
            let before = (from - read.from) as usize;
            if !self.is_floating(before + first..before + last, (first == 0, is_cut), read) {
                return Err(self.unexplained(from, first, found, &possible));
            }
            at = last;
        }
        Ok(())
    }

    /// Whether these bytes of the content are a piece of an append that has no place. After it others may
    /// begin: where a server did not take its share of one, that one ends sooner, and the next goes there.
    /// `begins_cut`, `is_cut`: at its beginning, or at both ends of the run, another act's range begins or
    /// ends: the run may be what that one left.
    fn is_floating(&self, run: Range<usize>, (begins_cut, is_cut): (bool, bool), read: &Read<'_>) -> bool {
        let floating = self.acts.iter().filter(|act| act.called < read.returned && act.floats());
        // One that was under way when a server was killed may be there twice.
        let times = |act: &Act| if self.was_killed(&act.stamp, read.now) { 2 } else { 1 };
        let fills = floating.flat_map(|act| vec![filled(act.tag, 0, act.len as usize); times(act)]);
        let all: Vec<Vec<u8>> = fills.collect();
        let bytes = &read.content[run.clone()];
        // A few bytes within the read fit some append by chance; at its edge the rest is not seen.
        let at_edge = run.start == 0 || run.end == read.content.len();
        let tells = at_edge || is_cut && bytes.len() >= REST || bytes.len() >= BEGINNING;
        if tells && all.iter().any(|own| own.windows(bytes.len()).any(|window| window == bytes)) {
            return true;
        }
        if are_whole(&all, &mut (0..all.len()).collect(), bytes) {
            return true;
        }
        if begins_cut && tells && are_end_and_beginnings(&all, bytes)
            || all.iter().any(|own| shows_its_place(own, read.content, &run))
            || self.is_before_an_append(&run, read)
        {
            return true;
        }
        // A few bytes are soon an end of one and the beginning of another. Their neighbours decide; those fit
        // another append by chance, or lie beyond an edge.
        let ends = run.end..=read.content.len().min(run.end + BEGINNING);
        let starts = run.start.saturating_sub(BEGINNING)..=run.start;
        let windows = starts.flat_map(|start| ends.clone().map(move |end| start..end));
        windows.filter(|window| window.len() >= BEGINNING).any(|window| {
            let begun = window.start == 0;
            are_pieces(&all, &read.content[window], begun)
        })
    }

    /// Whether a run is of an append without a place that ends where another one, which has a place, begins:
    /// that one went to the end of the file, which this one had made.
    fn is_before_an_append(&self, run: &Range<usize>, read: &Read<'_>) -> bool {
        let at = read.from + run.start as u64;
        let floating = self.acts.iter().filter(|act| act.called < read.returned && act.floats());
        floating.into_iter().any(|act| {
            let later = self.acts.iter().filter(|next| next.kind == "append" && next.called >= act.called);
            let places = later.filter_map(|next| next.base?.checked_sub(act.len));
            places.into_iter().any(|place| {
                let Some(skipped) = at.checked_sub(place) else { return false };
                let own = filled(act.tag, 0, act.len as usize);
                let own = own.get(skipped as usize..).unwrap_or_default();
                own.starts_with(&read.content[run.clone()])
            })
        })
    }

    fn unexplained(&self, from: u64, first: usize, found: &[u8], possible: &[Option<&Act>]) -> String {
        let at = from + first as u64;
        let bytes = &found[first..found.len().min(first + 8)];
        let whose = self.acts.iter().find(|act| {
            act.base.is_some_and(|base| base <= at) && act.tag != 0 && act.bytes(at, bytes.len()) == bytes
        });
        let zeros = bytes.iter().all(|byte| *byte == 0);
        let elsewhere = self.acts.iter().find_map(|act| Some((act, act.place_of(bytes)?)));
        let whose = match whose {
            Some(act) => format!("those of the {}", act.told()),
            None if zeros => "zeros".to_owned(),
            None => match elsewhere {
                Some((act, place)) => format!("byte {place} of the {}, whose place is another", act.told()),
                None => format!("{bytes:02x?}, of nobody"),
            },
        };
        let possible = possible.iter().map(|act| act.map_or("zeros".to_owned(), Act::told));
        let possible: Vec<String> = possible.collect();
        format!("at byte {at} expected one of [{}], found {whose}", possible.join("; "))
    }

    /// How often each append without an answer is in the whole content: more than once is wrong.
    pub fn judge_once(&self, content: &[u8]) -> Result<(), String> {
        for act in self.acts.iter().filter(|act| act.floats() && act.base.is_none() && act.len >= 16) {
            let head = filled(act.tag, 0, 16);
            let count = content.windows(16).filter(|window| *window == head).count();
            if count > 1 && !act.twice {
                return Err(format!("expected it at most once, found {count} times the {}", act.told()));
            }
        }
        Ok(())
    }
}
