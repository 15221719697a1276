//! Operations on many files at once: the client sends compound messages to each server, and each file has
//! its own status.
//!
//! ```text
//!   items ─▶ groups ─┬─ server 0 ─▶ messages of at most 128 groups and 1 MiB of data ─▶ at most 4 under way
//!                    ├─ server 1 ─▶ …                                                   all servers at once
//!                    └─ …
//!            statuses ◀── in the order of the items; a further message has only the groups to try again
//! ```
//! Each item is a *group* of its own: operations that succeed or fail together, with one status. So one
//! `Exists` does not undo the other creates of its message. If an entry leads to an object on another server,
//! a second round of messages reaches the object; this round goes to all such servers at once. For a large
//! or striped file, and for an item that these rounds do not finish, the operation for a single file is used.
//!
//! **Each compound is an operation with a deadline of its own**, so the time of a call with a million items
//! is not bounded by one number, but by the progress of the servers. A server that does not answer costs only
//! its own items, and the error of each names the item.
//!
//! The small-file paper sends one file in one message (its augmented create); this module sends many.

use crate::core::{Core, HOPS_MAX, Operation, ToldGroup};
use crate::{Client, Error};
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use shoal_proto::message::Loss;
use shoal_proto::op::Answer;
use shoal_proto::{Group, GroupReply, Handle, Name, Op, ServerId, Status, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Parcels under way to one server at once.
const PARCELS_AT_ONCE: usize = 4;
/// Items under way at once that are done by the verbs for one file.
pub(super) const SINGLES_AT_ONCE: usize = 16;
/// The largest body of a group: a name or two, the files held open, a transfer.
const GROUP_BODY_MAX: usize = 8 * limits::HELD_MAX + 2 * limits::NAME_BYTES_MAX + 512;
const _: () = assert!(limits::GROUPS_MAX * GROUP_BODY_MAX <= limits::BODY_BYTES_MAX);

/// Which object an item of [`Client::stat_many`] and its kin means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    /// The object that a name in a directory leads to. A symbolic link is not followed.
    Entry(Handle, Name),
    /// An object by its handle.
    Object(Handle),
}

impl Which {
    /// An error of this item: with the name, where it was given by one.
    pub(super) fn named(&self, error: Error) -> Error {
        match self {
            Which::Entry(dir, name) => of_entry(error, *dir, name),
            Which::Object(object) => error.of(*object),
        }
    }
}

/// An error of an entry, naming it.
pub(super) fn of_entry(error: Error, dir: Handle, name: &Name) -> Error {
    let shown = String::from_utf8_lossy(name.as_bytes());
    let words = match error.words.as_str() {
        "" => format!("the name is `{shown}`"),
        words => format!("the name is `{shown}`; {words}"),
    };
    error.of(dir).because(words)
}

/// A group to be asked: an item's operations, at its server.
pub(super) struct Wanted {
    pub(super) server: ServerId,
    pub(super) ops: Vec<Op>,
    /// Data that goes along.
    pub(super) bulk: Bytes,
    /// Data expected with the reply.
    pub(super) reply_bytes: usize,
}

impl Wanted {
    /// Operations without data.
    pub(super) fn plain(server: ServerId, ops: Vec<Op>) -> Wanted {
        Wanted { server, ops, bulk: Bytes::new(), reply_bytes: 0 }
    }
}

/// Groups of one compound, with the items they are of.
#[derive(Default)]
struct Parcel {
    items: Vec<usize>,
    groups: Vec<Group>,
    bulk: Vec<Bytes>,
    bulk_bytes: usize,
    reply_bytes: Vec<usize>,
}

impl Parcel {
    fn has_room_for(&self, wanted: &Wanted) -> bool {
        let replies: usize = self.reply_bytes.iter().sum();
        self.groups.len() < limits::GROUPS_MAX
            && self.bulk_bytes + wanted.bulk.len() <= limits::BULK_BYTES_MAX
            && replies + wanted.reply_bytes <= limits::BULK_BYTES_MAX
    }

    fn put(&mut self, item: usize, wanted: Wanted) {
        self.items.push(item);
        self.groups.push(Group { ops: wanted.ops.into() });
        self.bulk_bytes += wanted.bulk.len();
        self.bulk.push(wanted.bulk);
        self.reply_bytes.push(wanted.reply_bytes);
    }

    /// Whether a group was sent to a shard, and not to its directory's own server.
    fn is_of_shard(&self, server: ServerId, place: usize) -> bool {
        let first = self.groups[place].ops.first();
        first.and_then(Op::entry).is_some_and(|(dir, _)| dir.server() != server)
    }

    /// Only the groups whose places are given, in order.
    fn keep(&mut self, places: &[usize]) {
        let mut kept = Parcel::default();
        for &place in places {
            kept.items.push(self.items[place]);
            kept.groups.push(self.groups[place].clone());
            kept.bulk_bytes += self.bulk[place].len();
            kept.bulk.push(std::mem::take(&mut self.bulk[place]));
            kept.reply_bytes.push(self.reply_bytes[place]);
        }
        *self = kept;
    }
}

/// The result of each item.
pub(super) type Outcomes = Vec<Result<ToldGroup, Error>>;

impl Client {
    /// Whether several groups may go in one message.
    pub(super) fn is_compounding(&self) -> bool {
        self.map().switches.compound
    }

    /// Names of directories were changed, by many groups: the attributes of those directories that were
    /// received before are out of date.
    pub(super) fn changed_directories(&self, dirs: impl Iterator<Item = Handle>) {
        let listener = self.core.cache.borrow().listener.clone();
        let Some(listener) = listener else { return };
        let now = self.core.world.now();
        for dir in dirs.collect::<BTreeSet<Handle>>() {
            listener(dir, now, None);
        }
    }
}

impl Core {
    /// The server that is asked about an entry.
    pub(super) fn home_of_entry(&self, dir: Handle, name: &Name) -> ServerId {
        self.split.borrow_mut().server_of(dir, name)
    }

    /// The server that is asked about an item.
    pub(super) fn home_of(&self, which: &Which) -> ServerId {
        match which {
            Which::Entry(dir, name) => self.home_of_entry(*dir, name),
            Which::Object(object) => object.server(),
        }
    }

    /// Request all groups, in as few compounds as they fit; returns the result of each, in order.
    pub(super) async fn ask_groups(self: &Rc<Core>, op: &'static str, wanted: Vec<Wanted>) -> Outcomes {
        let mut outcomes: Vec<Option<Result<ToldGroup, Error>>> = wanted.iter().map(|_| None).collect();
        let mut left: Vec<(usize, Wanted)> = wanted.into_iter().enumerate().collect();
        for _ in 0..=HOPS_MAX {
            let servers =
                parcels(std::mem::take(&mut left)).into_iter().map(|(server, parcels)| async move {
                    let asked = parcels.into_iter().map(|parcel| self.ask_parcel(op, server, parcel));
                    stream::iter(asked).buffer_unordered(PARCELS_AT_ONCE).collect::<Vec<_>>().await
                });
            for (item, ended) in join_all(servers).await.into_iter().flatten().flatten() {
                match ended {
                    Ended::Told(outcome) => outcomes[item] = Some(outcome),
                    Ended::SentOn(wanted) => left.push((item, wanted)),
                }
            }
            if left.is_empty() {
                break;
            }
        }
        for (item, wanted) in left {
            outcomes[item] = Some(Err(Error::new(Status::Split, op).from(wanted.server)));
        }
        let missing = || Err(Error::new(Status::BadMessage, op));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect()
    }

    /// One compound, and again those of its groups that the server asked to try again.
    async fn ask_parcel(
        self: &Rc<Core>,
        op: &'static str,
        server: ServerId,
        parcel: Parcel,
    ) -> Vec<(usize, Ended)> {
        let o = self.begin(op, None);
        let mut left = parcel;
        let mut done = Vec::with_capacity(left.items.len());
        let mut map_fetched = false;
        loop {
            let bulk = left.bulk.iter().filter(|part| !part.is_empty()).cloned().collect();
            let groups = std::mem::take(&mut left.groups);
            let reply_bytes = left.reply_bytes.iter().map(|&bytes| bytes as u64).sum();
            self.changes_in(server, &groups);
            let answered = match self.call(&o, server, groups, bulk, reply_bytes).await {
                Ok(answered) => answered,
                Err(error) => {
                    done.extend(left.items.into_iter().map(|item| (item, Ended::Told(Err(error.clone())))));
                    return done;
                }
            };
            left.groups = answered.groups;
            self.changes_in(server, &left.groups);
            let told = told_each(&o, server, answered.reply.groups.0, answered.bulk, answered.reply.loss);
            let mut again = Vec::new();
            let mut why = Status::Busy;
            for (place, told) in told.into_iter().enumerate() {
                if let Ok(told) = &told
                    && told.status == Status::Ok
                {
                    self.note_changes(server, &left.groups[place].ops, &told.answers, told.loss);
                }
                match told {
                    Ok(told) if is_to_try_again(&told, map_fetched || left.is_of_shard(server, place)) => {
                        why = told.status;
                        again.push(place);
                    }
                    Ok(told) => match self.sent_on_to(server, &told, &mut left, place) {
                        Some(wanted) => done.push((left.items[place], Ended::SentOn(wanted))),
                        None => done.push((left.items[place], Ended::Told(Ok(told)))),
                    },
                    Err(error) => done.push((left.items[place], Ended::Told(Err(error)))),
                }
            }
            if again.is_empty() {
                return done;
            }
            left.keep(&again);
            let going_on = match why {
                Status::WrongServer => {
                    map_fetched = true;
                    self.fetch_map(&o, server).await
                }
                why => self.back_off(&o, o.error(why).from(server)).await,
            };
            if let Err(error) = going_on {
                done.extend(left.items.into_iter().map(|item| (item, Ended::Told(Err(error.clone())))));
                return done;
            }
        }
    }

    /// Where a group of a parcel is to be asked instead: at the shard that holds its entry, or, where there
    /// is no such shard, at the directory's own server.
    fn sent_on_to(
        &self,
        asked: ServerId,
        told: &ToldGroup,
        parcel: &mut Parcel,
        place: usize,
    ) -> Option<Wanted> {
        let group = std::slice::from_ref(&parcel.groups[place]);
        let (dir, _) = group[0].ops.first().and_then(Op::entry)?;
        match told.status {
            Status::Split => {
                let Some(Answer::Split { dir, shards, key }) = told.answers.last() else { return None };
                self.split.borrow_mut().learn(*dir, shards, Some(*key));
            }
            // There is no such shard. After an answer, it is the entry's object that is on another server.
            Status::WrongServer if asked != dir.server() && told.answers.is_empty() => {
                self.forget_shards(group)
            }
            _ => return None,
        }
        let server = self.placed(dir.server(), group);
        (server != asked).then(|| Wanted {
            server,
            ops: std::mem::take(&mut parcel.groups[place].ops.0),
            bulk: std::mem::take(&mut parcel.bulk[place]),
            reply_bytes: parcel.reply_bytes[place],
        })
    }
}

/// The result of one round for an item.
enum Ended {
    Told(Result<ToldGroup, Error>),
    /// It is to be asked of another server.
    SentOn(Wanted),
}

fn is_to_try_again(told: &ToldGroup, map_fetched: bool) -> bool {
    match told.status {
        Status::Busy | Status::Changed | Status::Unavailable => true,
        Status::WrongServer => !map_fetched && told.answers.is_empty(),
        _ => false,
    }
}

/// Parcels by server, each as full as its bounds allow, in the order of the items.
fn parcels(wanted: Vec<(usize, Wanted)>) -> BTreeMap<ServerId, Vec<Parcel>> {
    let mut by_server: BTreeMap<ServerId, Vec<Parcel>> = BTreeMap::new();
    for (item, wanted) in wanted {
        let parcels = by_server.entry(wanted.server).or_default();
        match parcels.last_mut() {
            Some(last) if last.has_room_for(&wanted) => last.put(item, wanted),
            _ => {
                let mut parcel = Parcel::default();
                parcel.put(item, wanted);
                parcels.push(parcel);
            }
        }
    }
    by_server
}

/// Each group's part of a reply, with its share of the data: the lengths in its answers, in order.
fn told_each(
    o: &Operation,
    server: ServerId,
    replies: Vec<GroupReply>,
    bulk: Bytes,
    loss: Loss,
) -> Vec<Result<ToldGroup, Error>> {
    let mut rest = bulk;
    let mut each = |reply: GroupReply| {
        let says = |answer: &Answer| match answer {
            Answer::Data { len, .. } => *len as usize,
            _ => 0,
        };
        let len: usize = match reply.status {
            Status::Ok => reply.answers.iter().map(says).sum(),
            _ => 0,
        };
        if len > rest.len() {
            let words = "its answers speak of more data than came";
            return Err(o.error(Status::BadMessage).from(server).because(words));
        }
        let bulk = rest.split_to(len);
        let answers = reply.answers.0;
        Ok(ToldGroup { server, status: reply.status, answers, bulk, loss, pieces: Vec::new() })
    };
    replies.into_iter().map(&mut each).collect()
}

/// The items left over, each by itself, some at once; their results are put in their places.
pub(super) async fn singly<T>(
    results: &mut [Option<Result<T, Error>>],
    one: impl AsyncFn(usize) -> Result<T, Error>,
) {
    let left: Vec<usize> = (0..results.len()).filter(|&item| results[item].is_none()).collect();
    let one = &one;
    let done = stream::iter(left).map(|item| async move { (item, one(item).await) });
    for (item, result) in done.buffer_unordered(SINGLES_AT_ONCE).collect::<Vec<_>>().await {
        results[item] = Some(result);
    }
}

/// All results, in order.
pub(super) fn all<T>(op: &'static str, results: Vec<Option<Result<T, Error>>>) -> Vec<Result<T, Error>> {
    let missing = || Err(Error::new(Status::BadMessage, op));
    results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
}
