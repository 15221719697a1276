//! Mutants: bugs planted on purpose, to see that the simulator's checks catch them (`docs/lab/MUTANTS.md`).
//!
//! Each mutant stands in the code where such a bug could really occur, in a branch `if mutant::is(…)`.
//! **Without the feature `mutants`, `mutant::is` is the constant `false`**, so no mutant is compiled. No
//! default feature includes `mutants`, and no manifest of the workspace enables it (a test in
//! `tests/house.rs` of the `shoal` crate checks this). With the feature, each thread has at most one active
//! mutant at a time. At first this is the mutant that the environment variable `SHOAL_MUTANT` names.

macro_rules! mutants {
    ($($(#[doc = $doc:literal])* $name:ident $word:literal,)*) => {
        /// A bug that can be switched on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant { $($(#[doc = $doc])* $name,)* }

        impl Mutant {
            /// All.
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];

            /// Its name on the command line.
            pub fn word(self) -> &'static str {
                match self { $(Mutant::$name => $word,)* }
            }

            /// Its effect.
            pub fn about(self) -> &'static str {
                match self { $(Mutant::$name => concat!($($doc),*),)* }
            }
        }
    };
}

mutants! {
    /// The sync of a stream's file is left out.
    DropSync "drop-sync",
    /// Groups of the journal that must be durable go to the page cache and are called durable.
    DropJournalSync "drop-journal-sync",
    /// A reply leaves before the journal has its change.
    AckEarly "ack-early",
    /// Replay leaves out one record of 32.
    SkipRecord "skip-record",
    /// A compound that is sent again is not looked up among the kept replies.
    RetryTwice "retry-twice",
    /// A start forgets prepared transactions.
    ForgetInDoubt "forget-in-doubt",
    /// A participant's locks are released when it has prepared.
    ReleaseEarly "release-early",
    /// A segment is used again before its records are checkpointed and its last contents have moved.
    ReuseEarly "reuse-early",
    /// A data request of an older generation is served.
    IgnoreGeneration "ignore-generation",
    /// The loss id does not change with a restart of the machine.
    LoseBootId "lose-boot-id",
    /// A name that was seen missing answers an open for as long as names are cached.
    NegativeEntry "negative-entry",
    /// A listing leaves out the last shard of a split directory.
    SkipInListing "skip-in-listing",
    /// After a crash a size is the last recorded one, although the file is longer.
    WrongSize "wrong-size",
    /// A failed sync is taken for a good one.
    SyncErrorIgnored "sync-error-ignored",
    /// An intended cut is not redone after a crash.
    ForgetCut "forget-cut",
    /// After a start the datafiles that were taken last from the pools are taken again.
    TakeAgain "take-again",
    /// A batch of datafiles that is requested again is another one.
    BatchAgain "batch-again",
    /// A split leaves the entries of one range where they were, and not in their shard.
    KeepShard "keep-shard",
    /// A reader of a change of attributes does not wait until it is durable.
    SetattrEarly "setattr-early",
    /// A truncation of a laid-out file does not wait for the turn of its appends.
    TruncateWithoutTurn "truncate-without-turn",
    /// A reply does not wait for the changes of others that it shows.
    ReadEarly "read-early",
    /// An append whose bytes are there reads its file's rows before it answers, and is given up with its
    /// connection.
    AppendAgain "append-again",
    /// Open files of one inode do not share state: an fsync covers only the writes through its own
    /// descriptor.
    FsyncOwnDescriptor "fsync-own-descriptor",
    /// An fsync of a split directory goes only to the directory's own server.
    HomeShardOnly "home-shard-only",
    /// A server whose folder is empty makes a new store in it, although it had one.
    EmptyFolder "empty-folder",
    /// A participant answers that it has finished before that is durable.
    FinishEarly "finish-early",
    /// A coordinator says that a transaction is committed before its record is durable.
    CommitEarly "commit-early",
    /// The rename lock's server votes with the others, and passes the lock on before all of them have
    /// prepared.
    LockVotesEarly "lock-votes-early",
    /// The rename lock's server votes for a move whose lock it has taken back.
    VoteWithoutLock "vote-without-lock",
    /// Datafiles of a pool are given before the row that lends them is durable.
    LoanEarly "loan-early",
    /// A client lets its session with a server end although the server keeps a removed file for it.
    LeaseNotRenewed "lease-not-renewed",
    /// A client that does not reach a server at its known address requests no newer map.
    StayAtAddress "stay-at-address",
    /// A removed file that other clients have open is freed at the next check, although clients hold it.
    LingeringFreedEarly "lingering-freed-early",
    /// A participant keeps a subfile although the transaction that makes its forked file is given up.
    SubfileWithoutFile "subfile-without-file",
    /// A deleted fork is freed at once although clients have it open.
    ForkFreedWhileOpen "fork-freed-while-open",
    /// The change count of a stream stays as it is when its bytes are changed.
    CountStandsStill "count-stands-still",
    /// A block of a server's cache is shown although the stream's bytes were changed.
    CachedBlockOutlives "cached-block-outlives",
    /// A block that several requests write keeps none of the bytes between theirs.
    MergedBlockForgets "merged-block-forgets",
    /// Credit of a connection that a piece gives back is counted twice.
    CreditTwice "credit-twice",
    /// Pieces of a read whose connection was lost go to the session's next one, where they are taken for its
    /// retry's.
    PieceOfGivenUp "piece-of-given-up",
    /// Bytes that a client gave for a long write before its connection was lost are written after its retry.
    GivenUpWrites "given-up-writes",
    /// A long write is answered when its bytes have come, before they are written.
    PulledEarly "pulled-early",
    /// The mount key manages although the file system has an admin key.
    MountKeyManages "mount-key-manages",
    /// A frame of a sealed connection is taken whatever its seal says.
    SealNotChecked "seal-not-checked",
    /// A server that takes sealed connections alone serves an older side without seals.
    OlderUnsealed "older-unsealed",
    /// A session is continued by a client that has not the key of the one that began it.
    SessionWithoutSecret "session-without-secret",
    /// A name of a composed directory is taken for claimed without its marker.
    NameWithoutMarker "name-without-marker",
    /// A merged directory of a composed directory is believed although it is of before a compaction.
    StaleDirectory "stale-directory",
}

#[cfg(feature = "mutants")]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Mutant>> = std::cell::Cell::new(of_environment());
}

/// The mutant of a whole process, tests of one crate or a real server: `SHOAL_MUTANT=loan-early`.
#[cfg(feature = "mutants")]
fn of_environment() -> Option<Mutant> {
    let word = std::env::var("SHOAL_MUTANT").ok()?;
    let named = Mutant::ALL.iter().copied().find(|mutant| mutant.word() == word);
    Some(named.unwrap_or_else(|| panic!("SHOAL_MUTANT names no mutant: {word}")))
}

/// Choose the mutant of this thread.
#[cfg(feature = "mutants")]
pub fn choose(mutant: Option<Mutant>) {
    CHOSEN.set(mutant);
}

/// Whether this bug is switched on.
#[cfg(feature = "mutants")]
pub fn is(mutant: Mutant) -> bool {
    CHOSEN.get() == Some(mutant)
}

/// Whether this bug is switched on: never, without the feature.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is(_mutant: Mutant) -> bool {
    false
}

/// Panics in a process whose environment requests it (`SHOAL_PANIC=server`), to test the death of the
/// process.
///
/// # Panics
/// When the environment requests it.
#[cfg(feature = "mutants")]
#[track_caller]
pub fn panic_if_asked(place: &str) {
    assert!(std::env::var("SHOAL_PANIC").as_deref() != Ok(place), "SHOAL_PANIC asks for it");
}

/// Nothing, without the feature.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn panic_if_asked(_place: &str) {}
