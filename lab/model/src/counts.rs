//! The cost of one operation, in counts. Counts contain no time and no machine.

/// The share of one kind of server, all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Messages of clients; a request and its reply are one.
    pub messages: f64,
    /// Operations that servers carry out (a message may carry several).
    pub operations: f64,
    /// Those of them that change something.
    pub changes: f64,
    /// Objects and entries that are made, altered or taken away.
    pub objects: f64,
    /// Those of them that are taken away.
    pub removals: f64,
    /// Entries of directories that are listed.
    pub entries: f64,
    /// Bytes to the servers.
    pub bytes_out: f64,
    /// Bytes to the client.
    pub bytes_in: f64,
    /// Syncs.
    pub syncs: f64,
    /// Disk accesses that read.
    pub reads: f64,
    /// Disk accesses that change.
    pub writes: f64,
    /// Bytes read of stored data.
    pub read_bytes: f64,
    /// Bytes written to stored data.
    pub write_bytes: f64,
    /// Bytes written without waiting for the disk: the cache takes them.
    pub buffered_bytes: f64,
}

impl Share {
    /// Both together.
    pub fn and(&self, other: &Share) -> Share {
        Share {
            messages: self.messages + other.messages,
            operations: self.operations + other.operations,
            changes: self.changes + other.changes,
            objects: self.objects + other.objects,
            removals: self.removals + other.removals,
            entries: self.entries + other.entries,
            bytes_out: self.bytes_out + other.bytes_out,
            bytes_in: self.bytes_in + other.bytes_in,
            syncs: self.syncs + other.syncs,
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            read_bytes: self.read_bytes + other.read_bytes,
            write_bytes: self.write_bytes + other.write_bytes,
            buffered_bytes: self.buffered_bytes + other.buffered_bytes,
        }
    }
}

/// The cost of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Calls of the program; of one entry of a listing it is a part of one.
    pub calls: f64,
    /// Round trips one after the other.
    pub round_trips: f64,
    /// Syncs one after the other, that the client waits for.
    pub waited_syncs: f64,
    /// Objects, one after the other: of messages that go out together those of one.
    pub waited_objects: f64,
    /// Those of them that are taken away.
    pub waited_removals: f64,
    /// Disk accesses that read, one after the other.
    pub waited_reads: f64,
    /// Disk accesses that change, one after the other.
    pub waited_writes: f64,
    /// The share of metadata servers.
    pub metadata: Share,
    /// The share of data servers.
    pub data: Share,
}

impl Counts {
    /// The same where nothing is made durable.
    #[must_use]
    pub fn without_syncs(&self) -> Counts {
        let unsynced = |share: Share| Share { syncs: 0.0, ..share };
        let (metadata, data) = (unsynced(self.metadata), unsynced(self.data));
        Counts { waited_syncs: 0.0, metadata, data, ..*self }
    }

    /// The share of servers, of either kind.
    pub fn servers(&self) -> Share {
        self.metadata.and(&self.data)
    }
}
