//! The events of the audit log, and the fields of each event. `docs/operating/care.md` lists them for
//! administrators.
//!
//! The handshake proves the fields `role` and `key`. If a connection is refused before that proof, its role
//! and key are only claimed, and the names of these fields begin with `claimed_`.

use super::queue::Kind;
use super::{Audit, Noted};
use crate::net::connection::{Admitted, Ended, Line, MountUse, Refused};
use crate::net::session::Session;
use crate::ops;
use crate::request::executor::Asker;
use crate::shard::{Identity, Shard};
use serde_json::{Value, json};
use shoal_env::Instant;
use shoal_proto::message::Attach;
use shoal_proto::{ClientId, ClusterMap, KeyLimits, MountKey, MountKeyId, Op, ServerId, Status};
use std::rc::Rc;

/// The reason for the end of a connection with a frame that its other end did not send.
const FORGED: &str = "Forged";

/// The words of a connection about itself, in its handshake; or its key, once that is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    file_system: String,
    role: &'static str,
    key: String,
    client: ClientId,
    is_proved: bool,
}

impl Stated {
    /// By its messages: the mount key that it named, and its introduction.
    pub fn of(identity: &Identity, mount: MountKeyId, attach: &Attach) -> Stated {
        let is_server = attach.peer.is_some();
        Stated {
            file_system: identity.map.name.0.clone(),
            role: if is_server { "server" } else { "client" },
            key: if is_server { "server".to_owned() } else { key_name(&identity.map, mount) },
            client: attach.client,
            is_proved: false,
        }
    }

    /// By the key that it has proved, and the client that its holder is here.
    pub fn proved(identity: &Identity, admitted: Admitted, attach: &Attach) -> Stated {
        let (role, key) = role_and_key(&identity.map, attach.peer, admitted.mount);
        let file_system = identity.map.name.0.clone();
        Stated { file_system, role, key, client: attach.client, is_proved: true }
    }

    /// A revoked key was proved; of any other refusal of a key nothing was.
    fn fields(&self, status: Status) -> Value {
        let Stated { file_system, role, key, client, is_proved } = self;
        match status {
            _ if *is_proved => json!({
                "file_system": file_system, "role": role, "key": key, "client": hex(client),
            }),
            Status::KeyRevoked => json!({
                "file_system": file_system, "role": "mount", "key": key, "claimed_client": hex(client),
            }),
            _ => json!({
                "file_system": file_system, "claimed_role": role, "claimed_key": key, "claimed_client": hex(client),
            }),
        }
    }
}

impl Audit {
    /// The server begins to serve these shards.
    pub(crate) fn started(&self, shards: &[Rc<Shard>]) {
        self.note(Kind::Server, "started", || {
            let of = |shard: &Rc<Shard>| {
                let identity = shard.identity();
                let keys = &identity.keys;
                json!({
                    "name": identity.map.name.0,
                    "fingerprints": {
                        "mount": keys.mount.fingerprint(),
                        "server": keys.server.fingerprint(),
                        "admin": keys.admin.as_ref().map(|key| key.fingerprint()),
                    },
                })
            };
            let shards: Vec<Value> = shards.iter().map(of).collect();
            json!({ "program": env!("CARGO_PKG_VERSION"), "file_systems": shards })
        });
    }

    /// A connection has attached.
    pub(crate) fn connected(&self, shard: &Shard, session: &Session, line: &Line) {
        self.note(kind_of(line, session.peer), "connected", || {
            let limits = line.admitted.get().mount.map_or(KeyLimits::default(), |of| of.limits);
            let of = |limit| limits.contains(limit).then_some(true);
            let more =
                json!({ "read_only": of(KeyLimits::READ_ONLY), "squash_root": of(KeyLimits::SQUASH_ROOT) });
            with(by(shard, line, session.client, session.peer), more)
        });
    }

    /// A connection that had attached at `since` has ended; `refusal`: this server ended it, and why.
    pub(crate) fn disconnected(
        &self,
        shard: &Shard,
        session: &Session,
        line: &Line,
        since: Instant,
        (ended, refusal): (Ended, Option<&Refused>),
    ) {
        self.note(kind_of(line, session.peer), "disconnected", || {
            let reason = match (refusal, ended) {
                (_, Ended::Forged) => FORGED.to_owned(),
                (Some(refused), _) => format!("{:?}", refused.status),
                (None, _) if session.is_revoked.get() => format!("{:?}", Status::KeyRevoked),
                (None, Ended::Closed) => "closed".to_owned(),
                (None, _) => "lost".to_owned(),
            };
            let more = json!({
                "reason": reason,
                "words": refusal.map(|refused| refused.words.as_str()),
                "seconds": shard.env.now().since(since).as_secs(),
            });
            with(by(shard, line, session.client, session.peer), more)
        });
    }

    /// A connection that this server made to a peer has ended, because a frame on it was not the peer's.
    pub(crate) fn forged(&self, map: &ClusterMap, server: ServerId, line: &Line) {
        self.note(Kind::Refusal, "disconnected", || {
            json!({
                "file_system": map.name.0,
                "peer": line.name,
                "peer_server": server.0,
                "role": "server",
                "key": "server",
                "reason": FORGED,
            })
        });
    }

    /// A client's session has begun.
    pub(crate) fn session_began(&self, shard: &Shard, line: &Line, client: ClientId) {
        self.note(Kind::Connection, "session_began", || by(shard, line, client, None));
    }

    /// A client's session has ended.
    pub(crate) fn session_ended(&self, shard: &Shard, session: &Session) {
        self.note(Kind::Connection, "session_ended", || {
            let map = shard.identity().map.clone();
            let silent = shard.env.now().since(session.heard.get()) > shard.settings.lease;
            let reason = match (session.is_revoked.get(), silent) {
                (true, _) => "KeyRevoked",
                (false, true) => "lease",
                (false, false) => "given up",
            };
            json!({
                "file_system": map.name.0,
                "client": hex(&session.client),
                "key": session.key.get().map(|id| key_name(&map, id)),
                "reason": reason,
            })
        });
    }

    /// A connection was refused before it had attached.
    pub(crate) fn refused(&self, peer: &str, refused: &Refused) {
        self.note(Kind::Refusal, "refused", || {
            let Refused { status, words, stated, is_theirs } = refused;
            let more = stated.as_ref().map_or(Value::Null, |stated| stated.fields(*status));
            let (reason, words) = (format!("{status:?}"), words.as_str());
            let why = match is_theirs {
                true => {
                    json!({ "reason": "RefusedByPeer", "claimed_reason": reason, "claimed_words": words })
                }
                false => json!({ "reason": reason, "words": words }),
            };
            with(with(json!({ "peer": peer }), why), more)
        });
    }

    /// Operations were refused, because the connection's key gives no right to them.
    pub(crate) fn refused_operations(
        &self,
        shard: &Shard,
        line: &Line,
        client: ClientId,
        ops: &[Op],
        status: Status,
    ) {
        self.note(Kind::Refusal, "refused", || {
            let names: Vec<&str> = ops.iter().map(Op::name).collect();
            let more = json!({
                "operation": names.join(","),
                "reason": format!("{status:?}"),
                "words": status.words(),
            });
            with(by(shard, line, client, None), more)
        });
    }

    /// An administrator's operation has ended. Its reply waits for the line, unless it only looks. A retry
    /// that is answered by the kept reply is noted again.
    pub(crate) fn managed(
        &self,
        shard: &Shard,
        line: &Line,
        asker: Asker,
        op: &Op,
        status: Status,
        is_again: bool,
    ) -> Option<Noted> {
        let facts = ops::of(op);
        let kind = if facts.only_looks { Kind::Look } else { Kind::Server };
        let noted = self.note(kind, "managed", || {
            let more = json!({
                "operation": op.name(),
                "object": (facts.object)(op),
                "result": format!("{status:?}"),
                "again": is_again.then_some(true),
            });
            with(by(shard, line, asker.client, asker.peer), more)
        });
        noted.filter(|_| !facts.only_looks)
    }

    /// Another server's map was taken, and is not the one before.
    pub(crate) fn map_taken(&self, shard: &Shard, server: ServerId, before: &ClusterMap) {
        self.note(Kind::Map, "map_taken", || {
            let map = shard.identity().map.clone();
            let sessions = shard.peer_sessions.borrow();
            let line = sessions.get(&server).and_then(|session| session.line.borrow().clone());
            let is_new = |key: &&MountKey| !before.keys.contains(key);
            let keys = map.keys.iter().filter(is_new);
            let keys = keys.map(|key| json!({ "key": key.name.0, "revoked": key.revoked }));
            json!({
                "file_system": map.name.0,
                "peer": line.map(|line| line.name.clone()),
                "peer_server": server.0,
                "role": "server",
                "key": "server",
                "object": { "epoch": map.epoch, "before": before.epoch, "keys": keys.collect::<Vec<_>>() },
            })
        });
    }
}

/// The kind of a connection's lines: those with the admin key stay whatever others do.
fn kind_of(line: &Line, peer: Option<ServerId>) -> Kind {
    match (peer, line.admitted.get().mount) {
        (None, None) => Kind::Admin,
        _ => Kind::Connection,
    }
}

/// By the key that was proved.
fn role_and_key(
    map: &ClusterMap,
    peer: Option<impl Sized>,
    mount: Option<MountUse>,
) -> (&'static str, String) {
    match (peer, mount) {
        (Some(_), _) => ("server", "server".to_owned()),
        (None, Some(of)) => ("mount", key_name(map, of.id)),
        (None, None) => ("admin", "admin".to_owned()),
    }
}

/// The fields of an attached connection.
fn by(shard: &Shard, line: &Line, client: ClientId, peer: Option<ServerId>) -> Value {
    let Admitted { manages, mount } = line.admitted.get();
    let map = shard.identity().map.clone();
    let (role, key) = role_and_key(&map, peer, mount);
    json!({
        "file_system": map.name.0,
        "peer": line.name,
        "peer_server": peer.map(|server| server.0),
        "role": role,
        "key": key,
        "client": if peer.is_some() { None } else { Some(hex(&client)) },
        // No admin key was made: the mount key has its rights.
        "manages": (manages && mount.is_some()).then_some(true),
    })
}

/// The name of a mount key; its id, if it has none here.
fn key_name(map: &ClusterMap, id: MountKeyId) -> String {
    match map.mount_key(id) {
        Some(key) => key.name.0.clone(),
        None if id == MountKeyId::FIRST => MountKey::FIRST_NAME.to_owned(),
        None => id.to_string(),
    }
}

/// The fields of both.
fn with(mut fields: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    fields
}

fn hex(client: &ClientId) -> String {
    client.0.iter().map(|byte| format!("{byte:02x}")).collect()
}
