//! The index against a naive model: a byte for each byte of the file, whatever the writers do.

use proptest::prelude::*;
use shoal_pattern::{Located, Placement, broken_placement_law};
use shoal_transform::online::Online;
use shoal_transform::record::{Cut, Found, Record, Records};
use shoal_transform::{Index, LogFacts, WriterId};

#[derive(Clone, Debug)]
enum Step {
    /// So many records of a writer.
    Write {
        writer: usize,
        at: u64,
        len: u64,
        stride: i64,
        count: u64,
    },
    Truncate {
        writer: usize,
        size: u64,
    },
    /// A writer publishes: its entry ends.
    Publish {
        writer: usize,
    },
}

fn step(writers: usize) -> impl Strategy<Value = Step> {
    let writer = 0..writers;
    prop_oneof![
        6 => (writer.clone(), 0..400u64, 1..12u64, -30..30i64, 1..14u64)
            .prop_map(|(writer, at, len, stride, count)| Step::Write { writer, at, len, stride, count }),
        1 => (writer.clone(), 0..500u64).prop_map(|(writer, size)| Step::Truncate { writer, size }),
        1 => writer.prop_map(|writer| Step::Publish { writer }),
    ]
}

#[derive(Default)]
struct Log {
    online: Online,
    index: Vec<u8>,
}

/// All writers, and the file as a plain one would be.
struct World {
    logs: Vec<Log>,
    file: Vec<Option<(u32, u64)>>,
    stamp: u64,
    live: Index,
}

fn id(writer: usize) -> WriterId {
    WriterId([writer as u8 + 1; 16])
}

impl World {
    fn new(writers: usize) -> World {
        let mut live = Index::default();
        let logs = (0..writers).map(|_| Log::default()).collect();
        (0..writers).for_each(|writer| assert_eq!(live.add_log(id(writer)), writer as u32));
        World { logs, file: Vec::new(), stamp: 0, live }
    }

    fn write(&mut self, writer: usize, at: u64, len: u64) {
        self.stamp += 1;
        let (log, stamp) = (&mut self.logs[writer], self.stamp);
        if log.online.current().is_some_and(|entry| self.live.is_newer_within(at, len, entry.stamp)) {
            log.online.end_entry();
        }
        let entry = log.online.entry_for(at, len, || stamp);
        if let Some(entry) = entry {
            log.index.extend(Record::Entry(entry).encode());
        }
        let physical = log.online.physical();
        log.online.wrote(entry, at, len);
        self.live.wrote(writer as u32, log.online.current().unwrap(), entry.is_some(), len);
        let end = (at + len) as usize;
        self.file.resize(self.file.len().max(end), None);
        for byte in 0..len {
            self.file[(at + byte) as usize] = Some((writer as u32, physical + byte));
        }
    }

    fn facts(&self) -> Vec<LogFacts> {
        let facts = |(writer, log): (usize, &Log)| LogFacts {
            id: id(writer),
            data: log.online.physical(),
            is_whole: true,
            records: Records::new(&log.index).collect(),
        };
        self.logs.iter().enumerate().map(facts).collect()
    }

    fn truncate(&mut self, writer: usize, size: u64) {
        self.stamp += 1;
        let logs = self.logs.iter().enumerate();
        let found = |(writer, log): (usize, &Log)| Found {
            id: id(writer),
            data: log.online.physical(),
            index: log.index.len() as u64,
        };
        let cut = Cut { size, stamp: self.stamp, logs: logs.map(found).collect() };
        self.logs[writer].index.extend(Record::Cut(cut).encode());
        self.logs.iter_mut().for_each(|log| log.online.end_entry());
        self.live = Index::build(&self.facts()).unwrap();
        self.file.resize(size as usize, None);
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Write { writer, at, len, stride, count } => {
                for turn in 0..count as i64 {
                    if let Ok(at) = u64::try_from(at as i64 + turn * stride) {
                        self.write(writer, at, len);
                    }
                }
            }
            Step::Truncate { writer, size } => self.truncate(writer, size),
            Step::Publish { writer } => self.logs[writer].online.end_entry(),
        }
    }

    fn check(&self, index: &Index) {
        assert_eq!(index.size(), self.file.len() as u64);
        for (at, byte) in self.file.iter().enumerate() {
            let found = match index.locate(at as u64) {
                Located::Piece(piece) => Some((piece.object, piece.physical)),
                Located::Hole { .. } => None,
            };
            assert_eq!(found, *byte, "byte {at}");
        }
        assert_eq!(broken_placement_law(index, self.file.len() as u64 + 3), None);
    }
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("SHOAL_TRANSFORM_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(400), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_byte_is_the_newest_write_s_however_writers_overlap_and_cut(
        steps in proptest::collection::vec(step(4), 1..30)
    ) {
        let mut world = World::new(4);
        for step in &steps {
            world.run(step);
        }
        world.check(&world.live);
        world.check(&Index::build(&world.facts()).unwrap());
    }
}

#[test]
fn a_strided_checkpoint_of_64_writers_is_found_by_arithmetic() {
    let (writers, record) = (64u64, 47_008u64);
    let facts = |writer: u64| {
        let mut log = Log::default();
        for turn in 0..1000 {
            let at = (turn * writers + writer) * record;
            let entry = log.online.entry_for(at, record, || 7);
            if let Some(entry) = entry {
                log.index.extend(Record::Entry(entry).encode());
            }
            log.online.wrote(entry, at, record);
        }
        assert!(log.index.len() < 4096);
        LogFacts {
            id: id(writer as usize),
            data: log.online.physical(),
            is_whole: true,
            records: Records::new(&log.index).collect(),
        }
    };
    let index = Index::build(&(0..writers).map(facts).collect::<Vec<_>>()).unwrap();
    assert_eq!(index.size(), writers * record * 1000);
    for (turn, writer) in [(0, 0), (500, 63), (999, 1)] {
        let at = (turn * writers + writer) * record + 5;
        let Located::Piece(piece) = index.locate(at) else { panic!("a hole at {at}") };
        assert_eq!((u64::from(piece.object), piece.physical), (writer, turn * record + 5));
        assert_eq!(piece.run, record - 5);
    }
}

#[test]
fn an_index_that_claims_more_than_its_data_log_has_is_believed_as_far_as_that_reaches() {
    let entry = shoal_transform::record::Entry {
        logical: 0,
        record: 1 << 40,
        stride: 1 << 41,
        physical: 0,
        stamp: 1,
    };
    let facts = LogFacts { id: id(0), data: 10, is_whole: true, records: vec![(Record::Entry(entry), 49)] };
    assert_eq!(Index::build(&[facts]).unwrap().size(), 10);
}

/// A log with these entries, and its data log's length.
fn log(writer: usize, data: u64, is_whole: bool, records: Vec<Record>) -> LogFacts {
    let mut position = 0;
    let mut placed = |record: Record| {
        position += record.encode().len() as u64;
        (record, position)
    };
    LogFacts { id: id(writer), data, is_whole, records: records.into_iter().map(&mut placed).collect() }
}

fn entry(logical: u64, record: u64, stride: i64, physical: u64, stamp: u64) -> Record {
    Record::Entry(shoal_transform::record::Entry { logical, record, stride, physical, stamp })
}

/// The log and place of each byte.
fn bytes(index: &Index) -> Vec<Option<(u32, u64)>> {
    let byte = |at| index.locate(at).piece().map(|piece| (piece.object, piece.physical));
    (0..index.size()).map(byte).collect()
}

#[test]
fn a_cut_in_the_middle_of_a_record_leaves_the_bytes_that_come_later() {
    for stride in [100, -100i64] {
        for found in 20..30 {
            let writer = log(0, 40, true, vec![entry(500, 10, stride, 0, 1)]);
            let logs = vec![Found { id: id(0), data: found, index: 1000 }];
            let cut = log(1, 0, true, vec![Record::Cut(Cut { size: 0, stamp: 2, logs })]);
            let index = Index::build(&[writer, cut]).unwrap();
            let left = bytes(&index).into_iter().flatten().map(|(_, physical)| physical);
            let mut left: Vec<u64> = left.collect();
            left.sort_unstable();
            assert_eq!(left, (found..40).collect::<Vec<_>>(), "stride {stride}, found {found}");
            assert_eq!(broken_placement_law(&index, index.size() + 3), None);
        }
    }
}

#[test]
fn after_a_power_cut_bytes_are_believed_as_far_as_they_are_named() {
    // The record of the last write is lost, its bytes are not.
    let records = vec![entry(0, 0, 0, 0, 1), entry(0, 0, 0, 300, 2), Record::Named { data: 400 }];
    let lost = Index::build(&[log(0, 500, false, records.clone())]).unwrap();
    let at = |index: &Index, byte| index.locate(byte).piece().map(|piece| piece.physical);
    assert_eq!((at(&lost, 50), at(&lost, 150)), (Some(350), Some(150)));
    // On the machine that wrote them, the last entry goes on.
    let same = Index::build(&[log(0, 500, true, records)]).unwrap();
    assert_eq!(at(&same, 150), Some(450));
    // Bytes that would lie before the file are not there, and the file can be read.
    let backwards = vec![entry(100, 10, -100, 0, 1), Record::Named { data: 15 }];
    assert_eq!(Index::build(&[log(0, 500, false, backwards)]).unwrap().size(), 110);
}
