//! A batch of changes. It is atomic, and has one place in the journal.

use bytes::Bytes;
use shoal_env::WallTime;
use shoal_proto::Handle;

/// The loss that is allowed after the reply has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strength {
    /// Replies that depend on it wait until it is as durable as the collection's metadata mode says.
    #[default]
    Strong,
    /// A strong change for its readers. Its maker's reply leaves earlier, so nothing waits for it by
    /// itself: it is durable on request ([`want_durable`](crate::Module::want_durable)), and within a
    /// second at the latest.
    Deferred,
    /// Written in the background (sizes and times of bulk writes): no reply waits for it; a later sync
    /// makes it durable.
    Weak,
}

/// A change of one byte stream, part of a batch.
#[derive(Clone, Debug)]
pub enum StreamChange {
    /// Make an empty stream of a generation. Its row need not be loaded: handles are never used twice.
    Create {
        /// The generation it begins with.
        generation: u64,
    },
    /// Replace the whole content of a small stream; `size` may exceed the content (the rest is zeros).
    Put {
        /// The new content, at most [`Changes::SMALL_MAX`] bytes.
        content: Bytes,
        /// The stream's length.
        size: u64,
        /// Time of the write.
        written_at: WallTime,
    },
    /// Begin a new generation and set the size. A shrink of a large stream is this durable intent, then the
    /// truncation of its local file off the thread, then a durable completion record; data operations wait
    /// for the completion.
    Resize {
        /// The new generation (greater than the current one, or the same if only this server knows the
        /// stream).
        generation: u64,
        /// The new length.
        size: u64,
        /// `Some`: count as a write at this time; `None`: clear the time of the newest write.
        written_at: Option<WallTime>,
    },
    /// Begin a new generation and clear the time of the newest write (an explicit time was set). Size
    /// stays.
    Advance {
        /// The new generation.
        generation: u64,
    },
    /// Remove the stream; its space is reused when that is durable and its readers are done.
    Remove,
}

/// A batch of changes.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Rows put (`Some`) or removed (`None`), in order; a later one of the same key wins.
    pub rows: Vec<(Bytes, Option<Bytes>)>,
    /// Changes of streams, in order.
    pub streams: Vec<(Handle, StreamChange)>,
    /// See [`Strength`].
    pub strength: Strength,
}

impl Changes {
    /// Largest content of a small stream: the eager limit.
    pub const SMALL_MAX: usize = 16 * 1024;

    /// Put a row.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.rows.push((key.into(), Some(value.into())));
    }

    /// Remove a row.
    pub fn remove(&mut self, key: impl Into<Bytes>) {
        self.rows.push((key.into(), None));
    }

    /// Change a stream.
    pub fn stream(&mut self, handle: Handle, change: StreamChange) {
        self.streams.push((handle, change));
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.streams.is_empty()
    }
}
