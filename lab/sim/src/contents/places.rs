//! The servers that hold the bytes of a file.

/// Servers that a run may have: each is a bit of the synced set.
pub(crate) const SERVERS_MAX: u16 = 64;

pub(super) fn bit(server: u16) -> u64 {
    assert!(server < SERVERS_MAX, "a simulated cluster has at most {SERVERS_MAX} servers");
    1 << server
}

/// Which servers hold which bytes of a file, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// The server of the metafile; `None`: not known.
    pub(super) home: Option<u16>,
    /// Up to here the bytes are the metafile's own.
    pub(super) stuffed: u64,
    /// Bytes of a strip (0: not known), and the servers of the datafiles in their order; none: not known.
    pub(super) strip: u64,
    pub(super) dealt: Vec<u16>,
}

impl Places {
    /// The server that holds a byte; `None`: it may be any.
    pub(super) fn of(&self, at: u64) -> Option<u16> {
        match self.dealt.len() as u64 {
            0 => self.home.filter(|_| at < self.stuffed),
            count => Some(self.dealt[(at / self.strip % count) as usize]),
        }
    }

    /// All servers that hold something of the file; none: they are not known.
    pub(super) fn all(&self) -> Vec<u16> {
        match &self.dealt[..] {
            [] => Vec::new(),
            dealt => dealt.iter().copied().chain(self.home).collect(),
        }
    }

    /// Where strips begin, between two places.
    pub(super) fn borders(&self, from: u64, end: u64) -> impl Iterator<Item = u64> {
        let strip = self.strip;
        let last = end.checked_div(strip).unwrap_or(0);
        let first = from.checked_div(strip).unwrap_or(0) + 1;
        (first..=last).map(move |index| index * strip)
    }
}
