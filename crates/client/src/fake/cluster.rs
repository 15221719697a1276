//! For the tests: a cluster in memory.

use super::{COLLECTION, FS_ID};
use bytes::{Bytes, BytesMut};
use shoal_pattern::{Distribution, Pattern, View, Window};
use shoal_proto::message::{GroupReply, Loss, Reply, Request};
use shoal_proto::op::{Answer, Entry, OpResult, Transfer};
use shoal_proto::{
    Attr, Capability, ChangeCount, ClusterMap, Dist, Durability, Generation, Handle, Kind, Layout, Move,
    Name, Op, PlaceKey, Rights, Roles, ServerId, ServerInfo, SessionId, Shards, Status, StreamFacts,
    Template, Time,
};
use std::collections::BTreeMap;

/// The key that places names in directories.
const PLACES: PlaceKey = PlaceKey::new([5; 32]);

/// A stream of bytes.
#[derive(Default, Clone)]
pub(crate) struct FakeStream {
    pub(crate) bytes: Vec<u8>,
    pub(crate) generation: Generation,
    pub(crate) written_at: Option<Time>,
    pub(crate) count: ChangeCount,
}

/// See the module's page.
pub(crate) struct FakeCluster {
    pub(crate) map: ClusterMap,
    pub(crate) objects: BTreeMap<Handle, Attr>,
    pub(crate) streams: BTreeMap<Handle, FakeStream>,
    pub(crate) names: BTreeMap<(Handle, Name), Handle>,
    /// Directories that are split, as far as listings go.
    pub(crate) shards: BTreeMap<Handle, Shards>,
    pub(crate) orphans: Vec<Handle>,
    /// By server: the id of the changes that it would lose together.
    pub(crate) loss: Vec<u64>,
    /// The starts of the servers in mode *metadata never*; 0 in the other modes.
    pub(crate) starts: Vec<u64>,
    /// Requests that executed something, in order.
    pub(crate) log: Vec<(ServerId, &'static str)>,
    /// Bytes of entries that listings requested, in order.
    pub(crate) listed_bytes: Vec<u32>,
    /// The servers that listed, in order, and whether each reached the end of its entries.
    pub(crate) listed: Vec<(ServerId, bool)>,
    /// Statuses to be given to the next groups instead of executing them.
    pub(crate) refuse_next: Vec<Status>,
    /// So many layouts are forgotten as soon as they are answered, as a power cut does in mode *never*.
    pub(crate) layouts_lost: u32,
    pub(crate) capability_until: Time,
    kept: BTreeMap<(ServerId, SessionId, u16), (u64, Reply, Bytes)>,
    clock: i64,
    next: u64,
}

/// Attributes of a new file.
pub(crate) fn file_attr(handle: Handle) -> Attr {
    Attr {
        handle,
        kind: Kind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size: 0,
        space: 0,
        atime: Time(0),
        mtime: Time(0),
        ctime: Time(0),
        btime: Time(0),
        generation: Generation(1),
        parent: Handle(0),
        template: Template::default(),
        layout: None,
        shards: shoal_proto::Shards::WHOLE,
    }
}

impl FakeCluster {
    /// `servers` servers whose files have strips of `strip` bytes.
    pub(crate) fn new(servers: u16, strip: u64) -> FakeCluster {
        let template = Template { dist: Dist::SimpleStripe { strip }, width: 0 };
        let infos =
            (0..servers).map(|id| ServerInfo::new(ServerId(id), Vec::new(), Roles::METADATA | Roles::DATA));
        let map = ClusterMap {
            fs_id: FS_ID,
            name: "fake".into(),
            collection: COLLECTION,
            epoch: 1,
            template,
            switches: shoal_proto::Switches::default(),
            servers: infos.collect::<Vec<_>>().into(),
            keys: Vec::new().into(),
        };
        let root = Attr { kind: Kind::Directory, parent: Handle::ROOT, template, ..file_attr(Handle::ROOT) };
        FakeCluster {
            objects: BTreeMap::from([(Handle::ROOT, root)]),
            streams: BTreeMap::new(),
            names: BTreeMap::new(),
            shards: BTreeMap::new(),
            orphans: Vec::new(),
            loss: vec![1; usize::from(servers)],
            starts: vec![0; usize::from(servers)],
            log: Vec::new(),
            listed_bytes: Vec::new(),
            listed: Vec::new(),
            refuse_next: Vec::new(),
            layouts_lost: 0,
            capability_until: Time(i64::MAX),
            kept: BTreeMap::new(),
            clock: 100,
            next: 100,
            map,
        }
    }

    fn draw(&mut self, server: ServerId) -> Handle {
        self.next += 1;
        Handle::new(server, self.next)
    }

    fn tick(&mut self) -> Time {
        self.clock += 1;
        Time(self.clock)
    }

    /// Make an object under a name.
    pub(crate) fn make(&mut self, server: ServerId, dir: Handle, name: Name, kind: Kind) -> Handle {
        let handle = self.draw(server);
        let now = self.tick();
        let template = self.map.template;
        let times = Attr { mtime: now, ctime: now, btime: now, ..file_attr(handle) };
        self.objects.insert(handle, Attr { kind, parent: dir, template, ..times });
        if kind == Kind::File {
            self.streams.insert(handle, FakeStream { generation: Generation(1), ..FakeStream::default() });
        }
        self.names.insert((dir, name), handle);
        handle
    }

    /// Lay a file out over all servers, beginning with its own.
    pub(crate) fn unstuff(&mut self, object: Handle) -> Layout {
        if let Some(layout) = &self.objects[&object].layout {
            return layout.clone();
        }
        let generation = Generation(self.objects[&object].generation.0 + 1);
        let all = self.map.servers.len() as u16;
        let others: Vec<Handle> =
            (1..all).map(|step| self.draw(ServerId((object.server().0 + step) % all))).collect();
        for &stream in &others {
            self.streams.insert(stream, FakeStream { generation, ..FakeStream::default() });
        }
        self.streams.get_mut(&object).unwrap().generation = generation;
        let datafiles: Vec<Handle> = std::iter::once(object).chain(others).collect();
        let attr = self.objects.get_mut(&object).unwrap();
        let layout = Layout { dist: attr.template.dist, datafiles: datafiles.into(), generation };
        attr.generation = generation;
        attr.layout = Some(layout.clone());
        layout
    }

    /// Forget a file's layout, as a server does that is killed in mode *metadata never*.
    pub(crate) fn take_layout_back(&mut self, object: Handle) {
        let attr = self.objects.get_mut(&object).unwrap();
        attr.generation.0 -= 1;
        let (generation, layout) = (attr.generation, attr.layout.take().unwrap());
        self.streams.retain(|stream, _| *stream == object || !layout.datafiles.0.contains(stream));
        self.streams.get_mut(&object).unwrap().generation = generation;
    }

    /// Begin a new generation of a file, as truncate does.
    pub(crate) fn advance(&mut self, object: Handle) {
        let attr = self.objects.get_mut(&object).unwrap();
        attr.generation.0 += 1;
        let generation = attr.generation;
        let mut streams = vec![object];
        if let Some(layout) = &mut attr.layout {
            layout.generation = generation;
            streams = layout.datafiles.0.clone();
        }
        for stream in streams {
            self.streams.get_mut(&stream).unwrap().generation = generation;
        }
    }

    /// Execute a request, or give the reply kept of it.
    pub(crate) fn execute(
        &mut self,
        server: ServerId,
        session: SessionId,
        request: &Request,
        bulk: Bytes,
    ) -> (Reply, Bytes) {
        let kept = request.slot.map(|slot| (server, session, slot.slot.0));
        if let (Some(key), Some(slot)) = (kept, request.slot) {
            let last = self.kept.get(&key).map_or(0, |(sequence, ..)| *sequence);
            if slot.sequence == last {
                let (_, reply, bulk) = &self.kept[&key];
                return (reply.clone(), bulk.clone());
            }
            assert_eq!(slot.sequence, last + 1, "the sequence of {slot:?} grows by one");
        }
        let changes = request.groups.iter().flat_map(|group| group.ops.iter()).any(Op::changes);
        assert_eq!(changes, request.slot.is_some(), "exactly the changes have slots");
        let (mut rest, mut back) = (bulk, BytesMut::new());
        let groups = request.groups.iter().map(|group| {
            // A group has its part of the data, also if it fails before it takes it.
            let takes = |op: &Op| match op {
                Op::Write { len, .. } | Op::Append { len, .. } => *len as usize,
                _ => 0,
            };
            let own: usize = group.ops.iter().map(takes).sum();
            self.group(server, &group.ops, &mut rest.split_to(own), &mut back)
        });
        let groups: Vec<GroupReply> = groups.collect();
        let loss = match request.durability == Durability::Durable && changes {
            true => Loss::default(),
            false => Loss { kept: self.loss[usize::from(server.0)], start: self.start_for(server, request) },
        };
        let reply = Reply { loss, map_epoch: self.map.epoch, groups: groups.into() };
        let back = back.freeze();
        if let (Some(key), Some(slot)) = (kept, request.slot) {
            self.kept.insert(key, (slot.sequence, reply.clone(), back.clone()));
        }
        (reply, back)
    }

    /// The start of a server in the reply to a request whose changes a kill would take.
    fn start_for(&self, server: ServerId, request: &Request) -> u64 {
        let mut ops = request.groups.iter().flat_map(|group| group.ops.iter());
        match request.durability == Durability::Written && !ops.any(|op| matches!(op, Op::Fsync { .. })) {
            true => 0,
            false => self.starts.get(usize::from(server.0)).copied().unwrap_or(0),
        }
    }

    fn group(&mut self, server: ServerId, ops: &[Op], bulk: &mut Bytes, back: &mut BytesMut) -> GroupReply {
        let mut answers = Vec::new();
        let mut current = Handle(0);
        if !self.refuse_next.is_empty() {
            return GroupReply { status: self.refuse_next.remove(0), answers: answers.into() };
        }
        for op in ops {
            self.log.push((server, op.name()));
            match self.op(server, op, &mut current, bulk, back) {
                Ok(answer) => answers.push(answer),
                Err(Status::Split) => {
                    answers.extend(self.redirect(op));
                    return GroupReply { status: Status::Split, answers: answers.into() };
                }
                Err(status) => return GroupReply { status, answers: answers.into() },
            }
        }
        GroupReply { status: Status::Ok, answers: answers.into() }
    }

    fn attr(&self, object: Handle) -> Result<Attr, Status> {
        let mut attr = self.objects.get(&object).cloned().ok_or(Status::Stale)?;
        if let Some(stream) = self.streams.get(&object) {
            attr.size = stream.bytes.len() as u64;
            attr.mtime = stream.written_at.unwrap_or(attr.mtime);
        }
        Ok(attr)
    }

    fn facts(&self, stream: Handle) -> Result<StreamFacts, Status> {
        let stream = self.streams.get(&stream).ok_or(Status::Stale)?;
        Ok(StreamFacts {
            generation: stream.generation,
            size: stream.bytes.len() as u64,
            space: stream.bytes.len() as u64,
            written_at: stream.written_at,
            count: stream.count,
        })
    }

    fn count(&self, object: Handle) -> ChangeCount {
        self.streams.get(&object).map_or(ChangeCount::NONE, |stream| stream.count)
    }

    fn capability(&self, object: Handle, rights: Rights) -> Option<Capability> {
        (!rights.is_empty())
            .then(|| Capability::sign(&super::KEY, super::COLLECTION, object, rights, self.capability_until))
    }

    fn stream(&mut self, transfer: &Transfer, current: Handle) -> Result<Handle, Status> {
        let stream = if transfer.stream == Handle::CURRENT { current } else { transfer.stream };
        let own = self.streams.get(&stream).ok_or(Status::Stale)?;
        if transfer.stream != Handle::CURRENT {
            if transfer.capability.is_none_or(|cap| cap.expires_at != self.capability_until) {
                return Err(Status::BadCapability);
            }
            if transfer.generation != own.generation {
                return Err(Status::StaleLayout);
            }
        }
        Ok(stream)
    }

    /// A write to the current object treats it as stuffed: after the first strip, it is not.
    fn must_fit_first_strip(&self, transfer: &Transfer, stream: Handle) -> Result<(), Status> {
        let ends = view(transfer)?.into_iter().map(|(physical, len)| physical + len).max().unwrap_or(0);
        let strip = self.attr(stream).map_or(u64::MAX, |attr| attr.template.stuffed_max());
        if transfer.stream == Handle::CURRENT && ends > strip { Err(Status::StaleLayout) } else { Ok(()) }
    }

    fn op(
        &mut self,
        server: ServerId,
        op: &Op,
        current: &mut Handle,
        bulk: &mut Bytes,
        back: &mut BytesMut,
    ) -> OpResult {
        let of = |object: Handle, current: Handle| if object == Handle::CURRENT { current } else { object };
        Ok(match op {
            Op::Ping {} | Op::Sync {} => Answer::Done {},
            Op::Statfs {} => Answer::Space { total: 1000, available: 400, objects: 3, disk: 0 },
            Op::Map {} => Answer::Map { map: self.map.clone() },
            Op::Lookup { dir, path } => {
                let (mut at, mut resolved) = (*dir, 0);
                for name in path.iter() {
                    at = *self.names.get(&(at, name.clone())).ok_or(Status::NotFound)?;
                    resolved += 1;
                    if at.server() != server || self.objects[&at].kind == Kind::Symlink {
                        break;
                    }
                }
                *current = at;
                let attr = if at.server() == server { Some(self.attr(at)?) } else { None };
                Answer::Looked { resolved, handle: at, kind: self.objects[&at].kind, attr }
            }
            Op::Getattr { object } => {
                let object = of(*object, *current);
                Answer::Attr { attr: self.attr(object)?, count: self.count(object) }
            }
            Op::Setattr { object, set } => {
                let attr = self.objects.get_mut(object).ok_or(Status::Stale)?;
                attr.mode = set.mode.unwrap_or(attr.mode);
                Answer::Attr { attr: self.attr(*object)?, count: self.count(*object) }
            }
            Op::Create { dir, name, exclusive, open, .. } => {
                let found = self.names.get(&(*dir, name.clone())).copied();
                if found.is_some() && *exclusive {
                    return Err(Status::Exists);
                }
                let handle = match found {
                    Some(handle) => handle,
                    None => self.make(server, *dir, name.clone(), Kind::File),
                };
                *current = handle;
                let capability = self.capability(handle, *open);
                Answer::Made {
                    attr: self.attr(handle)?,
                    capability,
                    created: found.is_none(),
                    count: self.count(handle),
                }
            }
            Op::Mkdir { dir, name, .. } => {
                let place = ServerId((server.0 + 1) % self.map.servers.len() as u16);
                let handle = self.make(place, *dir, name.clone(), Kind::Directory);
                Answer::Made {
                    attr: self.attr(handle)?,
                    capability: None,
                    created: true,
                    count: ChangeCount::NONE,
                }
            }
            Op::Link { object, dir, name } => {
                self.names.insert((*dir, name.clone()), *object);
                Answer::Attr { attr: self.attr(*object)?, count: self.count(*object) }
            }
            Op::Readlink { .. } => Answer::Bytes { bytes: b"../target"[..].into() },
            Op::Open { object, rights } => {
                let object = of(*object, *current);
                if object.server() != server {
                    return Err(Status::WrongServer);
                }
                *current = object;
                Answer::Made {
                    attr: self.attr(object)?,
                    capability: self.capability(object, *rights),
                    created: false,
                    count: self.count(object),
                }
            }
            Op::Unlink { dir, name, held } => {
                let handle = self.names.remove(&(*dir, name.clone())).ok_or(Status::NotFound)?;
                let orphaned = held.holds(handle);
                if orphaned {
                    self.orphans.push(handle);
                } else {
                    self.objects.remove(&handle);
                }
                Answer::Removed { handle, kind: Kind::File, orphaned }
            }
            Op::Rmdirent { dir, name } => {
                let handle = self.names.remove(&(*dir, name.clone())).ok_or(Status::NotFound)?;
                Answer::Unnamed { handle, kind: Kind::File, ticket: self.draw(server) }
            }
            Op::Removemeta { object, .. } => {
                self.objects.remove(object).ok_or(Status::Stale)?;
                Answer::Parted { datafiles: Vec::new().into(), orphaned: false, linked: false }
            }
            Op::Release { object } => {
                self.orphans.retain(|orphan| orphan != object);
                self.objects.remove(object);
                Answer::Done {}
            }
            Op::Readdir { dir, after, bytes_max, plus, data_max, in_shard } => {
                self.listed_bytes.push(*bytes_max);
                match (self.shards.contains_key(dir), in_shard) {
                    (true, false) => return Err(Status::Split),
                    (false, true) => return Err(Status::WrongServer),
                    _ => {}
                }
                let after = after.as_ref().map_or(0, |a| a.hash);
                let (entries, end) = self.list(server, *dir, after, *plus)?;
                self.listed.push((server, end));
                let contents: Vec<Option<u32>> = match data_max {
                    0 => Vec::new(),
                    max => entries.iter().map(|entry| self.content_of(entry, *max, back)).collect(),
                };
                Answer::Entries { entries: entries.into(), end, contents: contents.into() }
            }
            Op::Streamstat { stream } => {
                Answer::Facts { facts: self.facts(*stream)?, moves: Vec::new().into() }
            }
            // Its values are never requested.
            Op::Setxattr { object, .. } | Op::Removexattr { object, .. } => {
                self.attr(*object)?;
                Answer::Done {}
            }
            Op::Fsync { stream, .. }
                if self.objects.get(stream).is_some_and(|attr| attr.kind == Kind::Directory) =>
            {
                Answer::Synced {}
            }
            Op::Fsync { stream, generation } => {
                let facts = self.facts(*stream)?;
                if *generation != Generation(0) && *generation != facts.generation {
                    return Err(Status::StaleLayout);
                }
                Answer::Synced {}
            }
            Op::Unstuff { object } => {
                let layout = self.unstuff(*object);
                if self.layouts_lost > 0 {
                    self.layouts_lost -= 1;
                    self.take_layout_back(*object);
                }
                Answer::Laid { layout }
            }
            Op::Truncate { object, size, .. } => {
                let attr = self.attr(*object)?;
                let streams = match &attr.layout {
                    None if *size > attr.template.stuffed_max() => return Err(Status::StaleLayout),
                    None => vec![(*object, *size)],
                    Some(layout) => (layout.datafiles.iter().zip(0..))
                        .map(|(stream, index)| (*stream, layout.striping().physical_size(index, *size)))
                        .collect(),
                };
                for (stream, size) in streams {
                    self.streams.get_mut(&stream).unwrap().bytes.resize(size as usize, 0);
                }
                Answer::Attr { attr: self.attr(*object)?, count: self.count(*object) }
            }
            Op::Read { transfer } => {
                let stream = self.stream(transfer, *current)?;
                let (bytes, mut share, mut needed) = (&self.streams[&stream].bytes, Vec::new(), 0);
                for (physical, len) in view(transfer)? {
                    let from = (physical as usize).min(bytes.len());
                    let end = (from + len as usize).min(bytes.len());
                    let at = share.len();
                    share.extend_from_slice(&bytes[from..end]);
                    needed = if end > from { share.len() } else { needed };
                    share.resize(at + len as usize, 0);
                }
                // Bytes after the stream's end are not sent, if nothing else follows.
                share.truncate(needed);
                back.extend_from_slice(&share);
                let len = needed as u32;
                Answer::Data { len, facts: self.facts(stream)? }
            }
            Op::Write { transfer, len } => {
                let stream = self.stream(transfer, *current)?;
                let mut data = bulk.split_to(*len as usize);
                self.must_fit_first_strip(transfer, stream)?;
                for (physical, len) in view(transfer)? {
                    let piece = data.split_to(len as usize);
                    put(&mut self.streams.get_mut(&stream).unwrap().bytes, physical as usize, &piece);
                }
                assert!(data.is_empty(), "the data is as long as the view");
                let now = self.tick();
                let own = self.streams.get_mut(&stream).unwrap();
                own.written_at = Some(now);
                let from = std::mem::replace(&mut own.count, ChangeCount(now.0 as u64));
                let moved = Move { from, to: own.count };
                Answer::Facts { facts: self.facts(stream)?, moves: vec![moved].into() }
            }
            Op::Append { object, len, laid_out, .. } => {
                let data = bulk.split_to(*len as usize);
                let attr = self.attr(*object)?;
                if attr.layout.is_some() && !laid_out {
                    return Err(Status::StaleLayout);
                }
                if let Some(layout) = &attr.layout {
                    return self.append_laid_out(layout, &data);
                }
                if attr.size + u64::from(*len) > attr.template.stuffed_max() {
                    return Err(Status::StaleLayout);
                }
                self.streams.get_mut(object).unwrap().bytes.extend_from_slice(&data);
                Answer::Appended { offset: attr.size, size: attr.size + u64::from(*len) }
            }
            Op::Allocate { stream, from, len, mode, .. } => {
                let bytes = &mut self.streams.get_mut(stream).ok_or(Status::Stale)?.bytes;
                let end = (from + len) as usize;
                if *mode == shoal_proto::Allocation::Extend && bytes.len() < end {
                    bytes.resize(end, 0);
                }
                if *mode == shoal_proto::Allocation::Punch {
                    let end = end.min(bytes.len());
                    bytes[(*from as usize).min(end)..end].fill(0);
                }
                Answer::Facts { facts: self.facts(*stream)?, moves: Vec::new().into() }
            }
            _ => return Err(Status::NotSupported),
        })
    }

    fn append_laid_out(&mut self, layout: &Layout, data: &[u8]) -> OpResult {
        let facts: Result<Vec<StreamFacts>, Status> =
            layout.datafiles.iter().map(|s| self.facts(*s)).collect();
        let offset = crate::ops::logical_size(layout, &facts?);
        let pattern = Pattern::contiguous(offset as i64, data.len() as u64).unwrap();
        for (stream, index) in layout.datafiles.iter().zip(0..) {
            let striping = layout.striping();
            for run in View::new(&pattern, Window::all(&pattern), &striping, index).unwrap() {
                let piece = &data[run.packed as usize..(run.packed + run.len) as usize];
                put(&mut self.streams.get_mut(stream).unwrap().bytes, run.physical as usize, piece);
            }
        }
        Ok(Answer::Appended { offset, size: offset + data.len() as u64 })
    }

    /// A small file's content, put into the reply.
    fn content_of(&self, entry: &Entry, max: u32, back: &mut BytesMut) -> Option<u32> {
        let attr = entry.attr.as_ref().filter(|a| a.kind == Kind::File && a.layout.is_none())?;
        let bytes = &self.streams[&entry.handle].bytes;
        (attr.size <= u64::from(max)).then(|| {
            back.extend_from_slice(bytes);
            bytes.len() as u32
        })
    }

    fn redirect(&self, op: &Op) -> Option<Answer> {
        let Op::Readdir { dir, .. } = op else { return None };
        Some(Answer::Split { dir: *dir, shards: self.shards.get(dir)?.clone(), key: PLACES })
    }

    fn list(
        &self,
        server: ServerId,
        dir: Handle,
        after: u64,
        plus: bool,
    ) -> Result<(Vec<Entry>, bool), Status> {
        let shards = self.shards.get(&dir);
        let here = self.names.iter().filter(|((of, _), _)| *of == dir);
        let places = here.map(|((_, name), &handle)| (PLACES.place_of(name.as_bytes()), name, handle));
        let own = |place: u64| shards.is_none_or(|shards| shards.server_of(place) == Some(server));
        let mut wanted: Vec<_> = places.filter(|(place, ..)| *place > after && own(*place)).collect();
        wanted.sort();
        let mut entries = Vec::new();
        for (place, name, handle) in wanted {
            let attr = if plus && handle.server() == server { Some(self.attr(handle)?) } else { None };
            let kind = self.objects.get(&handle).ok_or(Status::Stale)?.kind;
            entries.push(Entry { name: name.clone(), handle, kind, place, attr });
        }
        let end = entries.len() <= 3;
        entries.truncate(3);
        Ok((entries, end))
    }
}

fn view(transfer: &Transfer) -> Result<Vec<(u64, u64)>, Status> {
    let window = Window::new(transfer.window_from, transfer.window_len);
    let striping = transfer.share.striping();
    let view = View::new(&transfer.pattern, window, &striping, u32::from(transfer.share.index));
    Ok(view.map_err(|_| Status::Invalid)?.map(|run| (run.physical, run.len)).collect())
}

fn put(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    if bytes.len() < at + piece.len() {
        bytes.resize(at + piece.len(), 0);
    }
    bytes[at..at + piece.len()].copy_from_slice(piece);
}
