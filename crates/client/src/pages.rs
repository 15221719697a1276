//! For a mount: decides which of the file pages in the kernel's cache are still current, and which the
//! kernel must drop.
//!
//! A file's bytes lie in one or more streams. A server gives each stream a *change count*, and each change
//! of the stream's bytes moves the count to a new number. The client notes for each stream the count at
//! which the kernel's pages were filled. A *move* is one such transition, with the count before and the
//! count after. An answer to a write contains the moves that the write made.
//!
//! ```text
//!   open   ─▶ every stream still has its pages' count: the pages stay;   else: the kernel drops them
//!   read   ─▶ the stream had no pages: the answer's count is noted;      the counts differ: pages spoiled
//!   write  ─▶ a move from the pages' count: the noted count follows it;  a gap: another client wrote
//! ```
//! **The counts that an open compares are requested after the open began**, so an open sees every write
//! that returned before it. For a stream without filled pages no count is requested.
//!
//! **The client's own writes do not spoil pages.** Each move names the count that it replaced. So a chain
//! of own moves without a gap contains no change by another client. A write may send several messages at
//! once, and the answers come in any order. So a move that does not continue the chain yet is kept until
//! the last write has ended. If it does not continue the chain then either, another client has changed the
//! stream. While a move is kept, no open keeps pages: another client may have written between it and the
//! chain.
//!
//! **The kernel drops spoiled pages at the next open.** The client knows that they are dropped when the
//! kernel uses or closes the file that was opened. Until then every other open drops the pages too. If the
//! kernel never received the opened file, the pages stay spoiled.
//!
//! If a file is open and another client changes it, the change is reported to the mount's listener.
//! Otherwise the kernel would keep the old pages until the next open.

use crate::Client;
use crate::core::Core;
use lru::LruCache;
use shoal_proto::{ChangeCount, Dist, Handle, Layout, Move};
use std::cell::RefCell;
use std::rc::Rc;

/// Files whose pages are known, at most: the others' pages are all dropped at their next open.
const FILES_MAX: usize = 262_144;
/// Moves of own writes that are kept until they fit: more than one large write has under way.
const MOVES_MAX: usize = 64;
/// Counts that the pages had before own writes: of reads that were answered before those.
const PASSED_MAX: usize = 16;
/// The largest page of any kernel. A page within one strip depends on one stream.
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// Files in use are passed over so often when one must be forgotten.
const PASS_OVER_MAX: usize = 8;

/// The known state of the pages of one stream.
#[derive(Debug)]
struct Stream {
    handle: Handle,
    count: ChangeCount,
    own: Option<Box<Own>>,
}

/// The effect of own writes.
#[derive(Default, Debug)]
struct Own {
    /// Moves that do not fit yet.
    moves: Vec<Move>,
    /// Where the chain of own moves begins, once there is one.
    begins: Option<ChangeCount>,
    /// Former counts of the pages, from which own moves alone lead to the present one.
    passed: Vec<ChangeCount>,
    /// Counts of answers that may belong to moves which are not known yet.
    strange: Vec<ChangeCount>,
}

impl Stream {
    fn knows(&self, count: ChangeCount) -> bool {
        self.count == count || self.own.as_ref().is_some_and(|own| own.passed.contains(&count))
    }

    /// Follow own moves as far as they lead, forwards and backwards.
    fn advance(&mut self) {
        let Some(own) = &mut self.own else { return };
        let Own { moves, begins, passed, strange } = &mut **own;
        let mut first = begins.unwrap_or(self.count);
        // Those that led to where the first page was filled: a later message was answered first.
        while let Some(at) = moves.iter().position(|moved| moved.to == first) {
            first = moves.swap_remove(at).from;
            passed.push(first);
        }
        while let Some(at) = moves.iter().position(|moved| moved.from == self.count) {
            passed.push(self.count);
            self.count = moves.swap_remove(at).to;
        }
        *begins = Some(first);
        strange.retain(|count| *count != self.count && !passed.contains(count));
        passed.drain(..passed.len().saturating_sub(PASSED_MAX));
    }

    /// A count that no known move explains.
    fn unexplained(&self) -> Option<ChangeCount> {
        let own = self.own.as_ref()?;
        own.strange.last().copied().or_else(|| own.moves.last().map(|moved| moved.to))
    }
}

/// The known state of the pages of one file.
#[derive(Default, Debug)]
struct File {
    /// Those with pages.
    streams: Vec<Stream>,
    /// Some pages may differ from what their count says.
    is_spoiled: bool,
    /// Opens whose files the kernel has not used yet: it may not have dropped the pages.
    forgetting: u32,
    /// Open files through which pages are read.
    readers: u32,
    /// Own writes through the pages under way.
    writes: u32,
}

impl File {
    fn is_in_use(&self) -> bool {
        self.readers > 0 || self.writes > 0 || self.forgetting > 0
    }

    fn stream(&mut self, handle: Handle) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|stream| stream.handle == handle)
    }

    fn forget(&mut self) {
        self.streams = Vec::new();
        self.is_spoiled = false;
        self.forgetting += 1;
    }

    /// Another client moved a stream: from now on its pages are compared with that count. Returns whether to
    /// notify the listener.
    fn moved_by_another(&mut self, stream: Handle, count: ChangeCount) -> bool {
        self.is_spoiled = true;
        if let Some(known) = self.stream(stream) {
            *known = Stream { handle: stream, count, own: None };
        }
        self.readers > 0
    }

    /// An answer came with this count. Returns whether to notify the listener of a change by another client.
    fn saw(&mut self, stream: Handle, count: ChangeCount) -> bool {
        let writes = self.writes;
        let Some(known) = self.stream(stream) else { return false };
        if known.knows(count) {
            return false;
        }
        if writes == 0 {
            return self.moved_by_another(stream, count);
        }
        let own = known.own.get_or_insert_default();
        own.strange.push(count);
        if own.strange.len() > MOVES_MAX {
            return self.moved_by_another(stream, count);
        }
        false
    }
}

/// See the module's page.
pub(crate) struct Pages {
    files: LruCache<Handle, File>,
    files_max: usize,
}

impl Default for Pages {
    fn default() -> Pages {
        Pages { files: LruCache::unbounded(), files_max: FILES_MAX }
    }
}

impl Pages {
    fn file(&mut self, object: Handle) -> &mut File {
        if !self.files.contains(&object) {
            self.make_room();
        }
        self.files.get_or_insert_mut(object, File::default)
    }

    fn make_room(&mut self) {
        let mut passed_over = 0;
        while self.files.len() >= self.files_max
            && passed_over < PASS_OVER_MAX
            && let Some((object, oldest)) = self.files.pop_lru()
        {
            if oldest.is_in_use() {
                passed_over += 1;
                self.files.put(object, oldest);
            }
        }
    }

    /// The streams whose counts decide at an open whether pages stay.
    pub(crate) fn streams(&mut self, object: Handle) -> Vec<Handle> {
        match self.files.get(&object) {
            Some(file) if !file.is_spoiled => file.streams.iter().map(|stream| stream.handle).collect(),
            _ => Vec::new(),
        }
    }

    /// A file was opened, and its streams had these counts after that began. Whether the pages stay; else the
    /// kernel forgets them all.
    pub(crate) fn opened(
        &mut self,
        object: Handle,
        count_of: impl Fn(Handle) -> Option<ChangeCount>,
    ) -> bool {
        let file = self.file(object);
        let is_same = |stream: &Stream| {
            count_of(stream.handle) == Some(stream.count)
                && stream.own.as_ref().is_none_or(|own| own.strange.is_empty() && own.moves.is_empty())
        };
        let stay = !file.is_spoiled
            && file.forgetting == 0
            && !file.streams.is_empty()
            && file.streams.iter().all(is_same);
        if !stay {
            file.forget();
        }
        stay
    }

    /// The kernel uses a file at whose open it had to drop the pages.
    pub(crate) fn forgotten(&mut self, object: Handle) {
        if let Some(file) = self.files.get_mut(&object) {
            file.forgetting = file.forgetting.saturating_sub(1);
        }
    }

    /// The kernel was not given such a file: it may still have the pages.
    pub(crate) fn not_forgotten(&mut self, object: Handle) {
        self.spoil(object);
        self.forgotten(object);
    }

    /// A file was made: it has no pages.
    pub(crate) fn made(&mut self, object: Handle) {
        self.file(object);
    }

    /// The state of the pages is no longer known.
    pub(crate) fn spoil(&mut self, object: Handle) {
        if let Some(file) = self.files.get_mut(&object) {
            file.streams = Vec::new();
            file.is_spoiled = true;
        }
    }

    /// A read was answered with this count: pages are filled with it. Returns whether to notify the listener.
    pub(crate) fn filled(&mut self, object: Handle, stream: Handle, count: ChangeCount) -> bool {
        let Some(file) = self.files.get_mut(&object) else { return false };
        match file.stream(stream) {
            Some(_) => file.saw(stream, count),
            None => {
                file.streams.push(Stream { handle: stream, count, own: None });
                false
            }
        }
    }

    /// Another answer had this count. Returns whether to notify the listener.
    pub(crate) fn noticed(&mut self, object: Handle, stream: Handle, count: ChangeCount) -> bool {
        self.files.peek_mut(&object).is_some_and(|file| file.saw(stream, count))
    }

    /// Pages begin or cease to be read through an open file.
    pub(crate) fn reader(&mut self, object: Handle, begins: bool) {
        let file = self.file(object);
        file.readers = if begins { file.readers + 1 } else { file.readers.saturating_sub(1) };
    }

    /// An own write through the pages begins.
    pub(crate) fn write_begins(&mut self, object: Handle) {
        self.file(object).writes += 1;
    }

    /// A message of an own write through the pages was answered with these moves.
    pub(crate) fn moved(&mut self, object: Handle, stream: Handle, moves: &[Move]) {
        let Some(file) = self.files.get_mut(&object) else { return };
        let Some(first) = moves.first() else {
            file.is_spoiled = true;
            return;
        };
        if file.stream(stream).is_none() {
            file.streams.push(Stream { handle: stream, count: first.from, own: None });
        }
        let Some(known) = file.stream(stream) else { return };
        let own = known.own.get_or_insert_default();
        own.moves.extend_from_slice(moves);
        if own.moves.len() > MOVES_MAX {
            own.moves.clear();
            file.is_spoiled = true;
            return;
        }
        known.advance();
    }

    /// It has ended. Returns whether to notify the listener of a change by another client.
    pub(crate) fn write_ended(&mut self, object: Handle, is_done: bool) -> bool {
        let Some(file) = self.files.get_mut(&object) else { return false };
        file.writes = file.writes.saturating_sub(1);
        // The kernel may have bytes that the server does not have.
        file.is_spoiled |= !is_done;
        if file.writes > 0 {
            return false;
        }
        // A file that is written once is known for long.
        let settled = file.streams.iter_mut().filter_map(|stream| stream.own.as_mut());
        settled.for_each(|own| own.moves.shrink_to_fit());
        let of_others: Vec<(Handle, ChangeCount)> = file
            .streams
            .iter()
            .filter_map(|stream| stream.unexplained().map(|count| (stream.handle, count)))
            .collect();
        let mut tell = false;
        for (stream, count) in of_others {
            tell |= file.moved_by_another(stream, count);
        }
        tell
    }
}

/// Whether pages of a file may stay: not where one page may depend on several streams, of which some have no
/// page yet.
pub(crate) fn may_stay(layout: Option<&Layout>) -> bool {
    layout.is_none_or(|layout| match layout.dist {
        Dist::Basic | Dist::Fork | Dist::Forked { .. } => true,
        Dist::SimpleStripe { strip } | Dist::Container { strip } | Dist::Composed { strip } => {
            strip.is_multiple_of(PAGE_BYTES_MAX)
        }
    })
}

/// The pages of a client's kernel, and the listener for changes by others to files that are read through
/// them.
pub(crate) struct KernelPages {
    pages: Pages,
    listener: Rc<dyn Fn(Handle)>,
}

impl Client {
    /// From now on keep account of the pages that a kernel has of the files that this client opens, reads and
    /// writes. `listener` receives the files that are read through pages ([`OpenFile::reads_pages`]) and were
    /// changed by others: these pages are out of date.
    ///
    /// [`OpenFile::reads_pages`]: crate::OpenFile::reads_pages
    pub fn keep_pages(&self, listener: impl Fn(Handle) + 'static) {
        let kept = KernelPages { pages: Pages::default(), listener: Rc::new(listener) };
        *self.core.pages.borrow_mut() = Some(kept);
    }

    /// A file was made by this client: there are no pages of it.
    pub fn made_without_pages(&self, object: Handle) {
        self.core.with_pages(|pages| pages.made(object));
    }

    /// A file was changed by this client in a way that its kernel's pages may not show: they go at the next
    /// open.
    pub fn spoil_pages(&self, object: Handle) {
        self.core.with_pages(|pages| pages.spoil(object));
    }
}

/// Where a client keeps its account.
pub(crate) type PagesCell = RefCell<Option<KernelPages>>;

impl Core {
    /// Note something, if pages are accounted for.
    pub(crate) fn with_pages<T>(&self, note: impl FnOnce(&mut Pages) -> T) -> Option<T> {
        self.pages.borrow_mut().as_mut().map(|kept| note(&mut kept.pages))
    }

    /// Note something of a file that may tell of a change by others.
    pub(crate) fn note_pages(&self, object: Handle, note: impl FnOnce(&mut Pages) -> bool) {
        if self.with_pages(note) == Some(true) {
            let listener = self.pages.borrow().as_ref().map(|kept| kept.listener.clone());
            if let Some(listener) = listener {
                listener(object);
            }
        }
    }

    /// An answer that is no read's had this count of one of a file's streams.
    pub(crate) fn notice_count(&self, object: Handle, stream: Handle, count: ChangeCount) {
        if count != ChangeCount::NONE {
            self.note_pages(object, |pages| pages.noticed(object, stream, count));
        }
    }
}

#[cfg(test)]
mod tests;
