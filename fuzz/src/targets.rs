//! The targets: one for each decoder.

use crate::{composed, measured, objects, repair, sealed, written};
use bytes::{Bytes, BytesMut};
use shoal_config::bytes_size::ByteSize;
use shoal_config::cluster_file::ClusterFile;
use shoal_config::secret::KeyFile;
use shoal_config::server_key::ServerKeyFile;
use shoal_env::Address;
use shoal_pattern::codec::{self, Codec};
use shoal_pattern::{Branch, Compressor, Deal, Pairing, Pattern, Region, View, Window, share_len};
use shoal_proto::message::{Attach, Attached, Challenge, Give, Grant, Hello, Leave, Piece, Refusal};
use shoal_proto::{
    Action, Answer, Blob, ClientId, ClusterMap, Dist, Frame, FrameKind, Handle, Kind, Many, Op, Reply,
    Request, ServerId, SessionId, Slot, Striping, Template, Time, limits, samples,
};
use shoal_server::keys;
use shoal_server::rows::{self, RowValue};
use shoal_store::hostile;
use std::path::Path;

/// A decoder under fire.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Feeds it. Panics when it breaks its promise; any other end is well.
    pub run: fn(&[u8]),
    /// Right inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Bytes that any decoder may hold for an input of `len` bytes.
pub const fn room(len: usize) -> usize {
    codec::LIST_ROOM_BYTES + 64 * 1024 + 64 * len
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "frame", run: frame, seeds: frames },
    Target { name: "sealed", run: sealed::run, seeds: sealed::seeds },
    Target { name: "request", run: keeps::<Request>, seeds: requests },
    Target { name: "reply", run: keeps::<Reply>, seeds: replies },
    Target { name: "hello", run: keeps::<Hello>, seeds: || bodies(FrameKind::Hello) },
    Target { name: "challenge", run: keeps::<Challenge>, seeds: || bodies(FrameKind::Challenge) },
    Target { name: "attach", run: keeps::<Attach>, seeds: || bodies(FrameKind::Attach) },
    Target { name: "attached", run: keeps::<Attached>, seeds: || bodies(FrameKind::Attached) },
    Target { name: "refusal", run: keeps::<Refusal>, seeds: || bodies(FrameKind::Refusal) },
    Target { name: "piece", run: keeps::<Piece>, seeds: || bodies(FrameKind::Piece) },
    Target { name: "leave", run: keeps::<Leave>, seeds: || bodies(FrameKind::Leave) },
    Target { name: "grant", run: keeps::<Grant>, seeds: || bodies(FrameKind::Grant) },
    Target { name: "give", run: keeps::<Give>, seeds: || bodies(FrameKind::Give) },
    Target { name: "op", run: keeps::<Op>, seeds: || encoded(samples::ops()) },
    Target { name: "answer", run: keeps::<Answer>, seeds: || encoded(samples::answers()) },
    Target { name: "actions", run: keeps::<Many<Action, { limits::ACTIONS_MAX }>>, seeds: actions },
    Target { name: "cluster_map", run: keeps::<ClusterMap>, seeds: || encoded(vec![samples::map()]) },
    Target { name: "pattern", run: pattern, seeds: || encoded(patterns()) },
    Target { name: "row_inode", run: row::<rows::Inode>, seeds: || vec![inode().to_row().to_vec()] },
    Target { name: "row_dirent", run: row::<rows::Dirent>, seeds: || vec![dirent().to_row().to_vec()] },
    Target { name: "row_datafile", run: row::<rows::Datafile>, seeds: datafiles },
    Target { name: "row_session", run: row::<rows::Session>, seeds: sessions },
    Target { name: "row_kept", run: row::<rows::Kept>, seeds: kept },
    Target { name: "row_orphan", run: row::<rows::Orphan>, seeds: orphans },
    Target { name: "row_ended", run: row::<rows::Ended>, seeds: ended },
    Target { name: "row_lingering", run: row::<rows::Lingering>, seeds: lingering },
    Target { name: "row_reap", run: row::<rows::Reap>, seeds: reaps },
    Target { name: "row_pool", run: row::<rows::Pool>, seeds: pools },
    Target { name: "row_grant", run: row::<rows::Grant>, seeds: grants },
    Target { name: "row_batch", run: row::<rows::Batch>, seeds: batches },
    Target { name: "row_new", run: row::<rows::New>, seeds: news },
    Target { name: "row_unnamed", run: row::<rows::Unnamed>, seeds: unnamed },
    Target { name: "row_void", run: row::<rows::Void>, seeds: voids },
    Target { name: "row_linked", run: row::<rows::Linked>, seeds: linked },
    Target { name: "row_tx", run: row::<rows::Tx>, seeds: txs },
    Target { name: "row_stream", run: stream_row, seeds: stream_rows },
    Target { name: "journal_group", run: journal_group, seeds: || vec![hostile::samples().0] },
    Target { name: "journal_records", run: journal_records, seeds: || vec![hostile::samples().1] },
    Target { name: "identity", run: identity, seeds: || vec![hostile::samples().2] },
    Target { name: "table", run: table, seeds: tables },
    Target { name: "live", run: live, seeds: || vec![[&b"\0live"[..], &[1; 24]].concat()] },
    Target { name: "journal_segment", run: journal_segment, seeds: segments },
    Target { name: "lsn", run: lsn, seeds: || vec![vec![3; 8]] },
    Target { name: "row_key", run: row_key, seeds: row_keys },
    Target { name: "cluster_file", run: cluster_file, seeds: written::cluster_files },
    Target { name: "key_file", run: key_file, seeds: written::key_files },
    Target { name: "server_key_file", run: server_key_file, seeds: written::server_key_files },
    Target { name: "address", run: address, seeds: written::addresses },
    Target { name: "size", run: size, seeds: written::sizes },
    Target { name: "composed_settings", run: composed::settings, seeds: composed::settings_seeds },
    Target { name: "composed_block", run: composed::block, seeds: composed::block_seeds },
    Target { name: "composed_merged", run: composed::merged, seeds: composed::merged_seeds },
    Target { name: "composed_claim", run: composed::claim, seeds: composed::claim_seeds },
    Target { name: "object_name", run: objects::name, seeds: objects::name_seeds },
    Target { name: "object_key", run: objects::key, seeds: objects::key_seeds },
];

/// Runs a decoder over `bytes` and holds it to its room.
pub(crate) fn within_room<T>(bytes: &[u8], extra: usize, decode: impl FnOnce() -> T) -> T {
    let (value, held) = measured(decode);
    let room = room(bytes.len()) + extra;
    assert!(
        held <= room,
        "{held} bytes of memory for {} bytes of input; at most {room} are right",
        bytes.len()
    );
    value
}

/// A value that is read is written, and read again as the same.
fn keeps<T: Codec + PartialEq>(bytes: &[u8]) {
    if let Ok(value) = within_room(bytes, 0, || T::from_bytes(bytes)) {
        let again = T::from_bytes(&value.to_bytes());
        assert!(again.is_ok_and(|again| again == value), "it is read otherwise after it was written again");
    }
}

/// The same of a row.
fn row<T: RowValue + PartialEq>(bytes: &[u8]) {
    if let Ok(value) = within_room(bytes, 0, || T::from_row(bytes)) {
        let again = T::from_row(&value.to_row());
        assert!(again.is_ok_and(|again| again == value), "it is read otherwise after it was written again");
    }
}

fn frame(bytes: &[u8]) {
    take_frames(bytes);
    take_frames(&repair::frame(bytes));
}

fn take_frames(bytes: &[u8]) {
    let mut buf = BytesMut::from(bytes);
    // Room for the rest of a frame is made as soon as its head is there.
    let rest = limits::BODY_BYTES_MAX + limits::BULK_BYTES_MAX;
    while let Ok(Some(frame)) = within_room(bytes, rest, || Frame::take(&mut buf)) {
        match frame.kind {
            FrameKind::Hello => keeps::<Hello>(&frame.body),
            FrameKind::Challenge => keeps::<Challenge>(&frame.body),
            FrameKind::Attach => keeps::<Attach>(&frame.body),
            FrameKind::Attached => keeps::<Attached>(&frame.body),
            FrameKind::Request => keeps::<Request>(&frame.body),
            FrameKind::Reply => keeps::<Reply>(&frame.body),
            FrameKind::Refusal => keeps::<Refusal>(&frame.body),
            FrameKind::Piece => keeps::<Piece>(&frame.body),
            FrameKind::Leave => keeps::<Leave>(&frame.body),
            FrameKind::Grant => keeps::<Grant>(&frame.body),
            FrameKind::Give => keeps::<Give>(&frame.body),
        }
    }
}

/// Regions and runs looked at: a pattern of a few bytes may have 2^63.
const STEPS_MAX: usize = 200;

fn pattern(bytes: &[u8]) {
    let Ok(pattern) = within_room(bytes, 0, || Pattern::from_bytes(bytes)) else { return };
    assert!(Pattern::from_bytes(&pattern.to_bytes()).is_ok_and(|again| again == pattern));
    let seen: u64 = pattern.regions().take(STEPS_MAX).map(|region| region.len).sum();
    assert!(seen <= pattern.len(), "its regions are longer than it is");
    let _ = (pattern.bounds(), pattern.to_string(), pattern.shift(-1), pattern.shift(i64::MAX));
    find(&pattern);
    in_order_of_offsets(&pattern);
    compress(&pattern);
    let half = pattern.slice(pattern.len() / 3, pattern.len() / 2);
    assert_eq!(half.len(), pattern.len() / 2);
    let strip = limits::STRIP_BYTES_MIN;
    deal(&half, &Striping { dist: Dist::SimpleStripe { strip }, width: 3 });
    for strip in [limits::STRIP_BYTES_MIN, limits::STRIP_BYTES_MAX] {
        for (width, server) in [(1, 0), (3, 2), (limits::WIDTH_MAX as u32, 7)] {
            project(&half, &Striping { dist: Dist::SimpleStripe { strip }, width }, server);
        }
    }
}

/// Bytes that are there are found, where they are visited last.
fn find(pattern: &Pattern) {
    for region in pattern.regions().take(5) {
        let Ok(found) = pattern.packed_at_within(region.offset, 1000) else { return };
        let there = found.and_then(|packed| pattern.iter_window(packed, 1).next());
        assert!(there.is_some_and(|there| there.offset == region.offset), "a byte is lost");
    }
}

/// Runs of a pairing in order of offsets ascend, and each is where the packed order has it.
fn in_order_of_offsets(pattern: &Pattern) {
    let Ok(memory) = Pattern::contiguous(0, pattern.len()) else { return };
    let Ok(pairing) = Pairing::new(pattern, &memory) else { panic!("lengths that differ") };
    let seen: u64 = pairing.runs().take(STEPS_MAX).map(|run| run.len).sum();
    assert!(seen <= pattern.len(), "its runs are longer than it is");
    let Ok(runs) = pairing.by_file_offset() else { return };
    let mut before = i64::MIN;
    for run in runs.take(STEPS_MAX) {
        assert!(run.file >= before, "offsets fall");
        before = run.file;
        let there = pattern.iter_window(run.memory as u64, run.len).next();
        assert!(there.is_some_and(|there| there.offset == run.file), "a run is not where it is said to be");
    }
}

/// What is fed comes out.
fn compress(pattern: &Pattern) {
    let regions = || pattern.regions().take(STEPS_MAX);
    let mut compressor = Compressor::new();
    let mut patterns: Vec<Pattern> =
        regions().filter_map(|region| compressor.feed(region).expect("a region of a pattern")).collect();
    patterns.push(compressor.finish().expect("they were fed"));
    assert!(patterns.iter().flat_map(Pattern::regions).eq(regions()), "it is compressed to something else");
}

/// A walk to all objects, and the count of one's bytes.
fn deal(pattern: &Pattern, striping: &Striping) {
    let window = Window::all(pattern);
    let Ok(deal) = Deal::new(pattern, window, striping) else { return };
    let mut end = 0;
    for run in deal.at_most(1000).take(STEPS_MAX) {
        assert_eq!(run.packed, end, "a run is left out");
        assert!(run.object.is_some_and(|object| object < striping.width), "it lies nowhere");
        end += run.len;
    }
    assert!(end <= pattern.len(), "a run lies behind the pattern's end");
    let counted = share_len(pattern, window, striping, 0).expect("what can be dealt");
    assert!(counted.is_none_or(|bytes| bytes <= pattern.len()), "an object has more than all");
}

fn project(pattern: &Pattern, striping: &Striping, server: u32) {
    let Ok(view) = View::new(pattern, Window::all(pattern), striping, server) else { return };
    let mut end = 0;
    for run in view.at_most(1000).take(STEPS_MAX) {
        assert!(run.packed >= end, "a run lies before the one it follows");
        end = run.packed + run.len;
        assert!(end <= pattern.len(), "a run lies behind the pattern's end");
    }
}

fn stream_row(bytes: &[u8]) {
    within_room(bytes, 0, || hostile::stream_row(bytes));
}

fn journal_group(bytes: &[u8]) {
    within_room(bytes, 0, || hostile::journal_group(bytes));
    let repaired = repair::journal_group(bytes);
    within_room(bytes, 0, || hostile::journal_group(&repaired));
}

fn journal_records(bytes: &[u8]) {
    within_room(bytes, 0, || hostile::journal_records(bytes));
}

fn identity(bytes: &[u8]) {
    within_room(bytes, 0, || hostile::identity(bytes));
    let repaired = repair::identity(bytes);
    within_room(bytes, 0, || hostile::identity(&repaired));
}

fn table(bytes: &[u8]) {
    within_room(bytes, 0, || hostile::table(bytes));
    let repaired = repair::table(bytes);
    within_room(bytes, 0, || hostile::table(&repaired));
}

fn live(bytes: &[u8]) {
    within_room(bytes, 0, || hostile::live(bytes));
}

fn journal_segment(bytes: &[u8]) {
    within_room(bytes, 0, || hostile::journal_segment(bytes));
    let repaired = repair::journal_group(bytes);
    within_room(bytes, 0, || hostile::journal_segment(&repaired));
}

fn lsn(bytes: &[u8]) {
    within_room(bytes, 0, || hostile::lsn(bytes));
}

fn row_key(bytes: &[u8]) {
    within_room(bytes, 0, || {
        let _ = (keys::parse_entry(bytes), keys::parse_kept(bytes), keys::parse_reap(bytes));
        let _ = (keys::parse_handle(bytes), keys::parse_session(bytes));
        let _ = (keys::parse_orphan(bytes), keys::parse_lingering(bytes));
    });
}

/// Memory that a reader of TOML may take for a byte, beyond the limit of a decoder of our own: it keeps every
/// key and value by itself, and an error keeps the text.
const TOML_BYTES: usize = 1024;

fn cluster_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parse = || ClusterFile::parse(text, Path::new("cluster.toml"));
    let Ok(file) = within_room(bytes, TOML_BYTES * bytes.len(), parse) else { return };
    for collection in &file.collection {
        assert!(file.map(collection).is_ok(), "a checked file gives a map");
    }
    let again = file.text().and_then(|text| ClusterFile::parse(&text, Path::new("cluster.toml")));
    assert!(again.is_ok_and(|again| again == file), "it is read otherwise after it was written again");
}

fn key_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parse = || KeyFile::parse(text, Path::new("key"));
    let Ok(file) = within_room(bytes, TOML_BYTES * bytes.len(), parse) else { return };
    let again = file.text().and_then(|text| KeyFile::parse(&text, Path::new("key")));
    assert!(again.is_ok_and(|again| again.file_system == file.file_system));
}

fn server_key_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parse = || ServerKeyFile::parse(text, Path::new("key.server"));
    let Ok(file) = within_room(bytes, TOML_BYTES * bytes.len(), parse) else { return };
    assert!(file.text().and_then(|text| ServerKeyFile::parse(&text, Path::new("key.server"))).is_ok());
}

fn address(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(address) = within_room(bytes, 0, || text.parse::<Address>()) {
        assert_eq!(address.to_string().parse::<Address>(), Ok(address));
    }
}

fn size(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(size) = within_room(bytes, 0, || text.parse::<ByteSize>()) {
        assert_eq!(size.to_string().parse::<ByteSize>(), Ok(size));
    }
}

// The seeds.

fn encoded<T: Codec>(values: Vec<T>) -> Vec<Vec<u8>> {
    values.iter().map(Codec::to_bytes).collect()
}

fn frames() -> Vec<Vec<u8>> {
    samples::frames().into_iter().map(|(_, bytes)| bytes).collect()
}

/// The bodies of the sample frames of a kind.
fn bodies(kind: FrameKind) -> Vec<Vec<u8>> {
    let mut stream = BytesMut::from(frames().concat().as_slice());
    let mut found = Vec::new();
    while let Ok(Some(frame)) = Frame::take(&mut stream) {
        if frame.kind == kind {
            found.push(frame.body.to_vec());
        }
    }
    found
}

fn requests() -> Vec<Vec<u8>> {
    let whole = samples::request();
    let alone =
        whole.groups.iter().map(|group| Request { groups: vec![group.clone()].into(), ..whole.clone() });
    encoded(alone.chain([whole.clone()]).collect())
}

fn replies() -> Vec<Vec<u8>> {
    let whole = samples::reply();
    let alone =
        whole.groups.iter().map(|group| Reply { groups: vec![group.clone()].into(), ..whole.clone() });
    encoded(alone.chain([whole.clone()]).collect())
}

fn actions() -> Vec<Vec<u8>> {
    encoded(vec![Many::<Action, { limits::ACTIONS_MAX }>(samples::actions()), Many(Vec::new())])
}

fn patterns() -> Vec<Pattern> {
    let scattered = (0..20).map(|i| Region::new(i * i * 100, 10 + i as u64)).collect();
    let level = |stride, quantity| shoal_pattern::Level { stride, quantity };
    let nested = Pattern::nested(5, 16, vec![level(64, 10), level(-4096, 7), level(1 << 20, 1000)]);
    let made = [
        Pattern::contiguous(0, 4096),
        Pattern::contiguous(i64::MAX - 10, 10),
        Pattern::strided(10, 8, 4096, 100),
        Pattern::strided(1 << 40, 100, -200, 1 << 30),
        nested,
        Pattern::list(scattered),
        Pattern::batched(&rows()),
        Pattern::batched(&[Branch::vector(7, rows()).repeated(-5000, 4)]),
    ];
    let made: Vec<Pattern> = made.into_iter().filter_map(Result::ok).collect();
    let cut = made.iter().map(|pattern| pattern.slice(3, pattern.len() / 2));
    let joined = made.iter().map(Pattern::coalesce);
    cut.chain(joined).chain(made.iter().cloned()).collect()
}

fn rows() -> Vec<Branch> {
    let row = vec![
        Branch::bytes(0, 20),
        Branch::bytes(40, 8).repeated(16, 5),
        Branch::vector(200, vec![Branch::bytes(0, 3), Branch::bytes(9, 1)]).repeated(12, 3),
        Branch::bytes(100_000, 2).absolute(),
    ];
    vec![Branch::bytes(20_000, 100), Branch::vector(20_100, row).repeated(300, 10)]
}

fn inode() -> rows::Inode {
    let attr = samples::attr();
    rows::Inode {
        kind: attr.kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        rdev: attr.rdev,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        btime: Time(9),
        parent: attr.parent,
        template: Template::default(),
        layout: attr.layout,
        entries: 7,
        shards: attr.shards,
        target: Some(Blob(Bytes::from_static(b"target"))),
        xattr_bytes: 3,
    }
}

fn dirent() -> rows::Dirent {
    rows::Dirent { handle: Handle(77), kind: Kind::Directory }
}

fn datafiles() -> Vec<Vec<u8>> {
    vec![rows::Datafile { owner: Handle(77) }.to_row().to_vec()]
}

fn sessions() -> Vec<Vec<u8>> {
    let client = rows::Session { client: ClientId([5; 16]), peer: None, slots: 64, client_key: None.into() };
    let peer = rows::Session { peer: Some(ServerId(3)), ..client.clone() };
    let own = rows::Session { client_key: Some([9; 32]).into(), ..client.clone() };
    vec![client.to_row().to_vec(), peer.to_row().to_vec(), own.to_row().to_vec()]
}

fn kept() -> Vec<Vec<u8>> {
    let reply = Blob(Bytes::from_static(b"\0\0\0\0\0\0"));
    let loss = Some(shoal_proto::message::Loss { kept: 77, start: 78 });
    vec![rows::Kept { sequence: 3, reply, loss }.to_row().to_vec()]
}

fn orphans() -> Vec<Vec<u8>> {
    vec![rows::Orphan { since: Time(5) }.to_row().to_vec()]
}

fn ended() -> Vec<Vec<u8>> {
    vec![rows::Ended { time: Time(5) }.to_row().to_vec()]
}

fn lingering() -> Vec<Vec<u8>> {
    vec![rows::Lingering { bytes: 4096 }.to_row().to_vec()]
}

fn reaps() -> Vec<Vec<u8>> {
    vec![rows::Reap { owner: Handle(77) }.to_row().to_vec()]
}

fn range() -> rows::Range {
    rows::Range { first: Handle::new(ServerId(1), 1024), count: 20 }
}

fn pools() -> Vec<Vec<u8>> {
    let mut pool = rows::Pool::new(7);
    let empty = pool.to_row().to_vec();
    pool.add(1, range());
    pool.lend(9);
    vec![empty, pool.to_row().to_vec()]
}

fn grants() -> Vec<Vec<u8>> {
    vec![rows::Grant { pool: 7, sequence: 1, range: range() }.to_row().to_vec()]
}

fn batches() -> Vec<Vec<u8>> {
    let mut batch = rows::Batch::new(ServerId(2), 20);
    batch.touch(Handle::new(ServerId(1), 1030));
    vec![batch.to_row().to_vec()]
}

fn news() -> Vec<Vec<u8>> {
    let (client, place) = (ClientId([5; 16]), Handle::ROOT);
    let datafile = rows::New { client, place, name: None };
    let metafile = rows::New { name: Some(samples::name("f")), ..datafile.clone() };
    vec![metafile.to_row().to_vec(), datafile.to_row().to_vec()]
}

fn unnamed() -> Vec<Vec<u8>> {
    vec![rows::Unnamed { client: ClientId([5; 16]) }.to_row().to_vec()]
}

fn voids() -> Vec<Vec<u8>> {
    vec![rows::Void { client: ClientId([5; 16]) }.to_row().to_vec()]
}

fn linked() -> Vec<Vec<u8>> {
    vec![rows::Linked { time: Time(5) }.to_row().to_vec()]
}

fn txs() -> Vec<Vec<u8>> {
    let prepared = rows::TxState::Prepared { actions: samples::actions(), participants: vec![ServerId(1)] };
    let committed = rows::TxState::Committed { unfinished: vec![ServerId(1), ServerId(2)] };
    [prepared, committed].map(|state| rows::Tx { state }.to_row().to_vec()).to_vec()
}

fn stream_rows() -> Vec<Vec<u8>> {
    let mut tiny = vec![0; 35];
    tiny[0] = 1;
    let mut file = tiny.clone();
    file[34] = 2;
    let mut log = tiny.clone();
    log[34] = 1;
    log.extend_from_slice(&[7; 36]);
    tiny.extend_from_slice(b"content");
    vec![tiny, file, log]
}

fn tables() -> Vec<Vec<u8>> {
    let mut table = b"shoaltab\x01\0\0\0\0\0\0\0".to_vec();
    for (key, value) in [(b"aaaa", b"first"), (b"bbbb", b"other")] {
        table.extend_from_slice(&[key.len() as u8, 0, value.len() as u8, 0, 0, 0]);
        table.extend_from_slice(key);
        table.extend_from_slice(value);
    }
    vec![repair::table(&table)]
}

/// Two groups, each in blocks of its own, as they lie in a segment.
fn segments() -> Vec<Vec<u8>> {
    let group = hostile::samples().0;
    let mut whole = group.clone();
    whole.resize(whole.len().next_multiple_of(4096), 0);
    whole.extend_from_slice(&group);
    whole.resize(whole.len().next_multiple_of(4096), 0);
    vec![whole]
}

fn row_keys() -> Vec<Vec<u8>> {
    let all = [
        keys::entry(Handle(7), 9, b"name"),
        keys::kept(SessionId(3), Slot(2), 1),
        keys::session(SessionId(3)),
        keys::orphan(Handle(7), ClientId([5; 16])),
        keys::lingering(Time(5), Handle(7)),
    ];
    all.map(|key| key.to_vec()).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_seed_is_a_right_input_of_its_decoder() {
        let rows = |name: &str, bytes: &[u8]| match name {
            "row_inode" => rows::Inode::from_row(bytes).is_ok(),
            "row_dirent" => rows::Dirent::from_row(bytes).is_ok(),
            "row_datafile" => rows::Datafile::from_row(bytes).is_ok(),
            "row_session" => rows::Session::from_row(bytes).is_ok(),
            "row_kept" => rows::Kept::from_row(bytes).is_ok(),
            "row_orphan" => rows::Orphan::from_row(bytes).is_ok(),
            "row_ended" => rows::Ended::from_row(bytes).is_ok(),
            "row_lingering" => rows::Lingering::from_row(bytes).is_ok(),
            "row_reap" => rows::Reap::from_row(bytes).is_ok(),
            "row_pool" => rows::Pool::from_row(bytes).is_ok(),
            "row_grant" => rows::Grant::from_row(bytes).is_ok(),
            "row_batch" => rows::Batch::from_row(bytes).is_ok(),
            "row_new" => rows::New::from_row(bytes).is_ok(),
            "row_unnamed" => rows::Unnamed::from_row(bytes).is_ok(),
            "row_void" => rows::Void::from_row(bytes).is_ok(),
            "row_linked" => rows::Linked::from_row(bytes).is_ok(),
            "row_tx" => rows::Tx::from_row(bytes).is_ok(),
            _ => false,
        };
        let right = |name: &str, bytes: &[u8]| match name {
            "frame" => Frame::take(&mut BytesMut::from(bytes)).is_ok_and(|frame| frame.is_some()),
            "sealed" => sealed::admitted(bytes, bytes[0]) > 0,
            "request" => Request::from_bytes(bytes).is_ok(),
            "reply" => Reply::from_bytes(bytes).is_ok(),
            "hello" => Hello::from_bytes(bytes).is_ok(),
            "challenge" => Challenge::from_bytes(bytes).is_ok(),
            "attach" => Attach::from_bytes(bytes).is_ok(),
            "attached" => Attached::from_bytes(bytes).is_ok(),
            "refusal" => Refusal::from_bytes(bytes).is_ok(),
            "piece" => Piece::from_bytes(bytes).is_ok(),
            "leave" => Leave::from_bytes(bytes).is_ok(),
            "grant" => Grant::from_bytes(bytes).is_ok(),
            "give" => Give::from_bytes(bytes).is_ok(),
            "op" => Op::from_bytes(bytes).is_ok(),
            "answer" => Answer::from_bytes(bytes).is_ok(),
            "actions" => Many::<Action, { limits::ACTIONS_MAX }>::from_bytes(bytes).is_ok(),
            "cluster_map" => ClusterMap::from_bytes(bytes).is_ok(),
            "pattern" => Pattern::from_bytes(bytes).is_ok(),
            "row_stream" => hostile::stream_row(bytes),
            "journal_group" => hostile::journal_group(bytes),
            "journal_records" => hostile::journal_records(bytes),
            "identity" => hostile::identity(bytes),
            "table" => hostile::table(bytes),
            "live" => hostile::live(bytes),
            "journal_segment" => hostile::journal_segment(bytes),
            "lsn" => hostile::lsn(bytes),
            "row_key" => {
                keys::parse_entry(bytes).is_some()
                    || keys::parse_kept(bytes).is_some()
                    || keys::parse_session(bytes).is_some()
                    || keys::parse_orphan(bytes).is_some()
                    || keys::parse_lingering(bytes).is_some()
            }
            "cluster_file" => ClusterFile::parse(text(bytes), Path::new("x")).is_ok(),
            "key_file" => KeyFile::parse(text(bytes), Path::new("x")).is_ok(),
            "server_key_file" => ServerKeyFile::parse(text(bytes), Path::new("x")).is_ok(),
            "address" => text(bytes).parse::<Address>().is_ok(),
            "size" => text(bytes).parse::<ByteSize>().is_ok(),
            name if name.starts_with("composed_") => composed::is_right(name, bytes),
            name if name.starts_with("object_") => objects::is_right(name, bytes),
            name => rows(name, bytes),
        };
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{}", target.name);
            for (i, seed) in seeds.iter().enumerate() {
                assert!(right(target.name, seed), "seed {i} of {}", target.name);
                (target.run)(seed);
            }
        }
    }
}
