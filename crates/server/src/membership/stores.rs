//! The store of each server, and how servers check it.
//!
//! A store is the contents of one folder of one server. Its identity is drawn at random when it is made,
//! and is kept in the folder's identity file. **A new folder is never taken for a lost folder**: each
//! server's map names the stores of the other servers, and a server with a different store is refused, no
//! matter which side connects.
//!
//! * When a server opens its store, it enters the store into its map.
//! * A server learns the store of a peer from the peer's first handshake, durably. From then on it refuses
//!   the peer with any other store.
//! * An operator *gives up* a store that is lost for good. Then the map names a new store, the successor,
//!   and lists the old store among the stores that are refused.
//!
//! # Older copies
//!
//! The journal's durable position of a store only grows. Each server reports this position to some other
//! servers, its *fellows*, with each connection and once a minute; a fellow keeps it as a row. **A server
//! whose position is before the position that a fellow remembers has an older copy of its store, and is
//! refused.** A server asks its fellows when it starts, before it writes anything. It does not wait for a
//! fellow that cannot be reached within [`ASK_TIMEOUT`] or does not answer within [`ANSWER_TIMEOUT`]: it
//! asks this fellow later, and the fellow then compares the position at which the store was opened
//! ([`crate::membership::claims`]). **A server that a peer refuses at any time does not serve from then
//! on** ([`Shard::set_aside`]). A fellow remembers the position of its last row, so a copy that was made
//! after that position passes the check. An operator accepts an older copy explicitly; it continues as a
//! new store (`crate::membership::older_copy`).
//!
//! Modules that keep nothing have no identity ([`StoreId::NONE`]), and are not checked.

use crate::data::status_of;
use crate::membership::claims;
use crate::membership::given_up;
use crate::membership::maps;
use crate::meta::keys;
use crate::recovery;
use crate::shard::{Identity, Shard, apply_own};
use bytes::Bytes;
use futures_util::future::{join_all, select, try_join_all};
use shoal_env::Instant;
use shoal_proto::codec::Codec;
use shoal_proto::{
    Answer, ClusterMap, Handle, Op, Peer, ServerId, ServerInfo, Status, StoreId, TxId, limits,
};
use shoal_store::{Changes, Collection, StoreError, Strength, look};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// How often a server reports to its fellows how far its store is durable, and how often one keeps it at
/// most.
const EVERY: Duration = Duration::from_secs(60);
/// How soon a fellow that did not answer at the beginning is asked again; each further try waits twice as
/// long, up to [`EVERY`].
const AGAIN: Duration = Duration::from_secs(1);
/// A fellow is to be reached within this time by a server that begins, which tries it repeatedly.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// A fellow that was reached is to answer within this time. It is longer, because a busy fellow knows as much
/// as an idle one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const ASK_PAUSE: Duration = Duration::from_millis(50);
/// And this long later.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);

/// Enter the shard's own store into `map`; whether the map changed.
///
/// # Errors
/// `Missing`: the map knows another store of this server, or this one was given up.
pub fn enter_own(shard: &Shard, map: &mut ClusterMap) -> Result<bool, StoreError> {
    let (id, store) = (shard.id(), shard.store());
    let Some(info) = map.servers.0.get_mut(usize::from(id.0)).filter(|_| store.is_known()) else {
        return Ok(false);
    };
    if info.has_retired(store) {
        return Err(StoreError::Missing(given_up::words(id, store)));
    }
    if !info.admits(store) {
        return Err(StoreError::Missing(other(id, store, info.store)));
    }
    let is_new = info.store != store;
    info.store = store;
    Ok(is_new)
}

/// Hold a peer's store against the map.
///
/// # Errors
/// Why the peer is refused: `Forbidden` where its store was given up, which no other map can change.
pub fn check(identity: &Identity, peer: Peer) -> Result<(), Unmet> {
    match identity.map.server(peer.server) {
        Some(info) if info.has_retired(peer.store) => {
            Err(Unmet { status: Status::Forbidden, words: given_up::words(peer.server, peer.store) })
        }
        Some(info) if !info.admits(peer.store) => {
            Err(Unmet::refused(other(peer.server, peer.store, info.store)))
        }
        // One that this server's map does not have yet is in a newer map.
        _ => Ok(()),
    }
}

/// Why a peer is not met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unmet {
    /// `Forbidden`, `OtherStore`: it is not to serve. Else it is this server's own store that failed, and
    /// says nothing of the peer.
    pub status: Status,
    /// The same for people.
    pub words: String,
}

impl Unmet {
    fn refused(words: String) -> Unmet {
        Unmet { status: Status::OtherStore, words }
    }

    fn failed(what: &str, peer: Peer, error: StoreError) -> Unmet {
        let words = format!("{what} of server {}: {error}", peer.server);
        Unmet { status: status_of(error), words }
    }
}

/// A peer connects: check its store, and keep it durably if it is the first one that is known.
///
/// # Errors
/// Why the peer is not met.
pub async fn meet(shard: &Rc<Shard>, peer: Peer) -> Result<(), Unmet> {
    check(&shard.identity(), peer)?;
    remember(shard, peer).await?;
    let is_met = |map: &ClusterMap| map.server(peer.server).is_none_or(|info| info.store.is_known());
    if is_met(&shard.identity().map) || !peer.store.is_known() {
        return Ok(());
    }
    let enter = |map: &mut ClusterMap| {
        if let Some(info) = map.servers.0.get_mut(usize::from(peer.server.0)).filter(|i| !i.store.is_known())
        {
            info.store = peer.store;
        }
    };
    let kept = maps::change(shard, enter).await;
    kept.map_err(|error| Unmet::failed("this server could not keep the store", peer, error))?;
    // If the connections of two stores came at once, one was the first.
    check(&shard.identity(), peer)
}

/// Whether a transaction was begun by a store of its coordinator that was given up.
pub fn is_of_lost_store(identity: &Identity, tx: TxId) -> bool {
    let first = identity.map.server(tx.coordinator()).map_or(0, ServerInfo::handles_from);
    Handle(tx.0).counter() < first
}

/// The servers that remember how far the store of `id` is durable, and that it asks when it begins, where
/// there are `count` servers: server 0 and the two after it.
pub fn fellows(count: usize, id: ServerId) -> BTreeSet<ServerId> {
    let count = count.max(1);
    let next = |step: usize| ServerId(((usize::from(id.0) + step) % count) as u16);
    [ServerId(0), next(1), next(2)].into_iter().filter(|fellow| *fellow != id).collect()
}

/// The key of the row that says how far the store of a peer was durable.
pub fn key_of(peer: ServerId) -> Bytes {
    keys::config(&format!("peer {peer}"))
}

/// The contents of such a row: the store, and its position.
pub fn remembered(row: &[u8]) -> Option<(StoreId, u64)> {
    <(u64, u64)>::from_bytes(row).ok().map(|(store, position)| (StoreId(store), position))
}

/// Compare how far a peer's store is durable with the remembered position, and keep it as a row, once a
/// minute at most.
///
/// # Errors
/// `OtherStore`: more of its store was durable once. Otherwise this server cannot read or keep its own rows.
/// A full disk is no error, because a peer that is not remembered for a while is only checked less.
pub async fn remember(shard: &Rc<Shard>, peer: Peer) -> Result<(), Unmet> {
    let held = hold(shard, peer).await;
    held.unwrap_or_else(|error| Err(Unmet::failed("this server does not know the state", peer, error)))
}

/// The inner result is the answer to the peer, the outer one is this server's own store.
async fn hold(shard: &Rc<Shard>, peer: Peer) -> Result<Result<(), Unmet>, StoreError> {
    if !peer.store.is_known() {
        return Ok(Ok(()));
    }
    if peer.position > limits::POSITION_MAX {
        let words = format!("server {} says that its store is durable up to {}", peer.server, peer.position);
        return Ok(Err(Unmet { status: Status::BadMessage, words }));
    }
    let key = key_of(peer.server);
    let (row, _) = look(&shard.collection, |view| view.get(&key)).await?;
    let kept = row.and_then(|row| remembered(&row));
    let heard = shard.heard.borrow().get(&peer.server).copied();
    let of_store = |(store, position)| (store == peer.store).then_some(position);
    let known = kept.and_then(of_store).max(heard.and_then(of_store));
    if let Some(known) = known.filter(|known| *known > peer.position) {
        return Ok(Err(Unmet::refused(older(peer, known))));
    }
    let now = shard.env.now();
    let last = shard.remembered.borrow().get(&peer.server).copied();
    let is_due = last.is_none_or(|last| now.since(last) >= EVERY);
    let is_known = known.is_some_and(|known| known == peer.position || !is_due);
    if !shard.may_write.get() {
        shard.heard.borrow_mut().insert(peer.server, (peer.store, peer.position));
        return Ok(Ok(()));
    }
    if is_known {
        return Ok(Ok(()));
    }
    shard.remembered.borrow_mut().insert(peer.server, now);
    let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
    changes.put(key, (peer.store.0, peer.position).to_bytes());
    match apply_own(&shard.collection, changes).await {
        Err(StoreError::NoSpace { .. }) => {
            shard.remembered.borrow_mut().remove(&peer.server);
            Ok(Ok(()))
        }
        kept => kept.map(|_| Ok(())),
    }
}

/// Keep the positions that peers said before rows could be written.
///
/// # Errors
/// When the store fails.
pub async fn keep_heard(shard: &Rc<Shard>) -> Result<(), StoreError> {
    let heard = std::mem::take(&mut *shard.heard.borrow_mut());
    for (server, (store, position)) in heard {
        // A peer that said more meanwhile, or less, has its answer.
        let _answered = hold(shard, Peer { server, store, position }).await?;
    }
    Ok(())
}

/// When a server begins: do its fellows know another store of it, a later state of this one, or a later
/// address?
///
/// # Errors
/// `Missing` if one of them knows another store, or a later state. `Refused` if one knows that the server was
/// moved since its cluster file was written.
pub async fn ask_fellows(shard: &Rc<Shard>) -> Result<(), StoreError> {
    if !shard.store().is_known() {
        return Ok(());
    }
    let reached = shard.env.now() + ASK_TIMEOUT;
    let ask = |fellow| ask(shard, fellow, reached);
    let asked = try_join_all(own_fellows(shard).into_iter().map(ask)).await;
    if let Err(words) = asked {
        // The next start says no more than this one.
        keep_claims(shard).await?;
        return Err(StoreError::Missing(words));
    }
    let is_here = is_where_fellows_know_it(shard).await;
    if is_here.is_err() {
        keep_claims(shard).await?;
    }
    is_here
}

/// The store does not know of a move that was made while no server ran, or while this one was away: the
/// fellows do.
async fn is_where_fellows_know_it(shard: &Rc<Shard>) -> Result<(), StoreError> {
    let maps = join_all(own_fellows(shard).into_iter().map(|fellow| another_map(shard, fellow))).await;
    let own = shard.identity().map.clone();
    let moved = |map: &ClusterMap| map.server(shard.id()).map_or(0, |info| info.moved);
    let mut later = maps.iter().flatten().filter(|map| moved(map) > moved(&own));
    later.try_for_each(|map| recovery::check_address(map, &own, shard.id()))
}

/// The map of a fellow, if that is not the one of this server. A fellow that begins, too, says it as soon as
/// it serves.
async fn another_map(shard: &Rc<Shard>, fellow: ServerId) -> Option<ClusterMap> {
    let (served, answered) = (shard.env.now() + ASK_TIMEOUT, shard.env.now() + ANSWER_TIMEOUT);
    while shard.peers.has_another_map(fellow) {
        match shard.peers.call(fellow, Op::Map {}, answered).await {
            Ok(Answer::Map { map }) => return Some(map),
            Err(Status::Unavailable) if shard.env.now() + ASK_PAUSE < served => {
                shard.env.sleep(ASK_PAUSE).await;
            }
            _ => break,
        }
    }
    None
}

/// Ask one fellow until it answers. Its refusal is the error.
async fn ask(shard: &Rc<Shard>, fellow: ServerId, reached: Instant) -> Result<(), String> {
    let answered = shard.env.now() + ANSWER_TIMEOUT;
    loop {
        match shard.peers.introduce(fellow, reached, answered).await {
            Err((Status::OtherStore, words)) => return Err(words),
            Err((Status::Unavailable | Status::TimedOut, _)) if shard.env.now() + ASK_PAUSE < reached => {
                shard.env.sleep(ASK_PAUSE).await;
            }
            // One that does not serve itself cannot say anything.
            _ => return Ok(()),
        }
    }
}

/// Keep the positions that the fellows have accepted, before anything else is written.
///
/// # Errors
/// When the store fails.
pub async fn keep_claims(shard: &Rc<Shard>) -> Result<(), StoreError> {
    if !shard.store().is_known() {
        return Ok(());
    }
    claims::keep(shard, &own_fellows(shard)).await
}

/// How far a store counts as durable: as it was when it was served, or refused, before its fellows had
/// accepted it.
///
/// # Errors
/// When the store cannot be read.
pub async fn position_found(store: &Collection) -> Result<u64, StoreError> {
    claims::found(store).await
}

/// Refuse an older copy that was never served here: `known` is the position of server `own`'s store in the
/// record next to the cluster file. The result is the position of the copy, if it is not as far.
///
/// # Errors
/// When the store fails.
pub async fn refused_by_record(
    store: &Collection,
    own: ServerId,
    known: u64,
) -> Result<Option<u64>, StoreError> {
    let position = claims::found_for_record(store, own).await?;
    if position >= known {
        return Ok(None);
    }
    claims::refused_by_record(store, own, position).await.map(|()| Some(position))
}

fn own_fellows(shard: &Shard) -> BTreeSet<ServerId> {
    fellows(shard.identity().map.servers.len(), shard.id())
}

/// The task of a shard that sets it aside as soon as a peer refuses its store.
pub async fn watch(shard: Rc<Shard>) {
    let words = shard.peers.refusal().await;
    shard.set_aside(&words);
}

/// The first of these addresses at which another process serves this server from this store.
pub async fn still_serves(shard: &Rc<Shard>, addresses: &[String]) -> Option<String> {
    let until = shard.env.now() + ASK_TIMEOUT;
    let ask = |at: &String| {
        let at = at.clone();
        async move {
            let asked = shard.peers.who_listens(&at, until).await;
            asked.is_ok_and(|listens| listens == (shard.id(), shard.store())).then_some(at)
        }
    };
    join_all(addresses.iter().map(ask)).await.into_iter().flatten().next()
}

/// The task of a shard that reports to its fellows how far its store is durable. A store is protected from
/// the moment at which a fellow knows it, so a fellow that was away at the beginning is informed soon.
pub async fn run(shard: Rc<Shard>) {
    if !shard.store().is_known() {
        return;
    }
    let mut pause = AGAIN;
    loop {
        let met = std::pin::pin!(shard.met.wait());
        select(std::pin::pin!(shard.env.sleep(pause)), met).await;
        let durable = shard.collection.durable().0;
        let until = shard.env.now() + TELL_TIMEOUT;
        let tell = |fellow| {
            let position = shard.peers.claims().position(fellow, durable);
            shard.peers.call(fellow, Op::Remember { position }, until)
        };
        // One that is away is informed with the next connection.
        let answers = join_all(own_fellows(&shard).into_iter().map(tell)).await;
        let kept = keep_claims(&shard).await;
        let is_done = kept.is_ok() && shard.peers.claims().is_clear() && answers.iter().all(Result::is_ok);
        pause = if is_done { EVERY } else { (pause * 2).min(EVERY) };
    }
}

fn older(peer: Peer, known: u64) -> String {
    format!(
        "store {} of server {} is an older copy: it is durable up to {}, and was up to {known}: changes acknowledged since the \
         copy are not in it",
        peer.store, peer.server, peer.position
    )
}

fn other(id: ServerId, found: StoreId, known: StoreId) -> String {
    format!(
        "server {id} has store {known}, and this is store {found}: mount the disk that holds store {known}, or restore its \
         folder from a copy"
    )
}
