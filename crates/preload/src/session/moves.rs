//! Removals and moves of this process, as an open must know them that began before one and ends after it: the
//! path that the open found may be another object's by now.

use std::collections::VecDeque;

/// The last changes that are kept.
const KEPT_MAX: usize = 1024;

#[derive(Debug)]
struct Move {
    mount: usize,
    from: Vec<u8>,
    /// `None`: it was removed.
    to: Option<Vec<u8>>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Moves {
    count: u64,
    last: VecDeque<Move>,
}

/// A path after a move of an object on it; `None`: it is not on the path.
pub fn moved(path: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(from)?;
    (rest.is_empty() || rest.starts_with(b"/")).then(|| [to, rest].concat())
}

impl Moves {
    /// A change.
    pub fn note(&mut self, mount: usize, from: &[u8], to: Option<&[u8]>) {
        self.count += 1;
        self.last.push_back(Move { mount, from: from.to_vec(), to: to.map(<[u8]>::to_vec) });
        if self.last.len() > KEPT_MAX {
            self.last.pop_front();
        }
    }

    /// Changes so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Where an object may be, that was found at `path` after the first `count` changes.
    pub fn since(&self, count: u64, mount: usize, path: &[u8]) -> Since {
        let new = (self.count - count) as usize;
        let is_complete = new <= self.last.len();
        let mut paths = vec![path.to_vec()];
        let mut is_touched = !is_complete;
        for change in self.last.iter().skip(self.last.len().saturating_sub(new)) {
            if change.mount != mount {
                continue;
            }
            let known: Vec<_> = paths
                .iter()
                .filter_map(|path| moved(path, &change.from, change.to.as_deref().unwrap_or_default()))
                .collect();
            is_touched |= !known.is_empty() || change.to.as_deref() == Some(path);
            for path in known.into_iter().filter(|_| change.to.is_some()) {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        if !is_touched {
            paths.clear();
        }
        Since { paths, is_complete }
    }
}

/// Where an object may be now.
#[derive(Debug, PartialEq, Eq)]
pub struct Since {
    /// Its paths; none: it is where it was.
    pub paths: Vec<Vec<u8>>,
    /// All changes are known.
    pub is_complete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_under_way_looks_where_its_object_may_be_and_only_if_it_may_have_moved() {
        let mut moves = Moves::default();
        moves.note(0, b"/before", Some(b"/d"));
        let began = moves.count();
        assert!(moves.since(began, 0, b"/d/f").paths.is_empty());
        moves.note(0, b"/other", Some(b"/another"));
        moves.note(1, b"/d", Some(b"/e"));
        moves.note(0, b"/dd", None);
        assert!(moves.since(began, 0, b"/d/f").paths.is_empty());
        moves.note(0, b"/d", Some(b"/e"));
        moves.note(0, b"/e/f", Some(b"/g"));
        let paths = [b"/d/f".to_vec(), b"/e/f".to_vec(), b"/g".to_vec()];
        assert_eq!(moves.since(began, 0, b"/d/f"), Since { paths: paths.into(), is_complete: true });
        (0..100).for_each(|_| {
            moves.note(0, b"/g", Some(b"/x"));
            moves.note(0, b"/x", Some(b"/g"));
        });
        assert_eq!(moves.since(began, 0, b"/d/f").paths.len(), 4, "each path once");
        let then = moves.count();
        moves.note(0, b"/g", None);
        assert_eq!(moves.since(then, 0, b"/g").paths, [b"/g".to_vec()]);
        moves.note(0, b"/x", Some(b"/h"));
        assert_eq!(moves.since(then + 1, 0, b"/h").paths, [b"/h".to_vec()], "it was replaced");
        (0..=KEPT_MAX).for_each(|_| moves.note(0, b"/n", None));
        let more_than_are_kept = Since { paths: vec![b"/any".to_vec()], is_complete: false };
        assert_eq!(moves.since(then, 0, b"/any"), more_than_are_kept);
    }
}
