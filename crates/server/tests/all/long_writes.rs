//! Long writes: one request, whose data is pulled by grants; hostile clients, lost connections, and how they
//! end.

use crate::raw::held::held;
use crate::raw::*;
use bytes::Bytes;
use shoal_env::Env;
use shoal_pattern::Pattern;
use shoal_proto::message::{Grant, Refusal};
use shoal_proto::{
    Answer, Attr, Capability, Frame, FrameKind, GroupReply, Handle, Op, Reply, Share, Status, Transfer,
    limits,
};
use std::time::Duration;

/// Bytes of the window.
const LEN: u64 = 700_001;
const CHUNK: u64 = limits::FLOW_CHUNK_BYTES as u64;

fn byte(at: u64, of: u8) -> u8 {
    (at % 241) as u8 ^ of
}

struct File {
    attr: Attr,
    capability: Option<Capability>,
}

impl File {
    async fn new(client: &mut Raw) -> File {
        let made = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        File { attr: attr.clone(), capability: *capability }
    }

    fn transfer(&self, pattern: Pattern) -> Transfer {
        Transfer {
            stream: self.attr.handle,
            generation: self.attr.generation,
            capability: self.capability,
            window_from: 0,
            window_len: pattern.len(),
            pattern,
            share: Share::WHOLE,
        }
    }

    /// The first bytes.
    fn first(&self, len: u64) -> Transfer {
        self.transfer(Pattern::contiguous(0, len).unwrap())
    }

    /// Records of a thousand bytes, of each two.
    fn strided(&self) -> Transfer {
        Transfer { window_len: LEN, ..self.transfer(Pattern::strided(50, 1000, 1300, 701).unwrap()) }
    }

    async fn read(&self, client: &mut Raw, from: u64, len: u64) -> Bytes {
        let mut all = Vec::new();
        for from in (from..from + len).step_by(100_000) {
            let read = self.transfer(Pattern::contiguous(from as i64, 100_000).unwrap());
            client.send(None, vec![vec![Op::Read { transfer: read }]], Bytes::new()).await;
            let (_, replies, mut data) = client.reply().await;
            assert_eq!(replies[0].status, Status::Ok);
            data.truncate(100_000);
            all.extend_from_slice(&data);
        }
        all.truncate(len as usize);
        all.into()
    }
}

/// Begin a long write in the next sequence of slot 0.
async fn begin(client: &mut Raw, transfer: Transfer) -> u64 {
    client.sequence += 1;
    again(client, transfer).await
}

async fn again(client: &mut Raw, transfer: Transfer) -> u64 {
    let slot = slot(0, client.sequence);
    client.send(Some(slot), vec![vec![Op::Write { transfer, len: 0 }]], Bytes::new()).await
}

/// The next grant, or the reply.
async fn next(client: &mut Raw, tag: u64) -> Result<Grant, GroupReply> {
    let frame = client.frame().await.expect("the connection ended");
    assert_eq!(frame.tag, tag, "{:?}", frame.message::<Refusal>());
    match frame.kind {
        FrameKind::Grant => Ok(frame.message().unwrap()),
        FrameKind::Reply => Err(frame.message::<Reply>().unwrap().groups.0.remove(0)),
        other => panic!("{other:?}: {:?}", frame.message::<Refusal>()),
    }
}

fn bytes(grant: Grant, of: u8) -> Bytes {
    (grant.from..grant.from + grant.len).map(|at| byte(at, of)).collect()
}

/// Give all that is granted; the grants, and the reply.
async fn give_all(client: &mut Raw, tag: u64, of: u8) -> (Vec<Grant>, GroupReply) {
    let mut grants = Vec::new();
    loop {
        match next(client, tag).await {
            Ok(grant) => {
                client.give(tag, grant, bytes(grant, of)).await;
                grants.push(grant);
            }
            Err(reply) => return (grants, reply),
        }
    }
}

/// That nothing is in hand any more, soon.
async fn is_over(env: &Env, cluster: &Cluster) {
    let shard = cluster.shard(0);
    until(env, || shard.engine().sweep.requests() == 0 && shard.credits.held_bytes() == 0).await;
}

#[test]
fn a_long_write_is_one_request_whose_grants_cover_it() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        for (transfer, of) in [(file.first(LEN), 1), (file.strided(), 2)] {
            let before = cluster.shard(0).counters.snapshot();
            let tag = begin(&mut client, transfer.clone()).await;
            let (grants, reply) = give_all(&mut client, tag, of).await;
            let Answer::Facts { facts, .. } = &reply.answers[0] else { panic!("{reply:?}") };
            let (_, end) = transfer.pattern.window_bounds(0, LEN).unwrap();
            assert!(reply.status == Status::Ok && facts.size >= end as u64);
            let after = cluster.shard(0).counters.snapshot();
            assert_eq!(after.requests - before.requests, 1);
            assert_eq!(after.grants_sent - before.grants_sent, grants.len() as u64);
            assert!(grants.iter().all(|grant| grant.len <= CHUNK));
            let mut at = 0;
            for grant in grants {
                assert_eq!(grant.from, at, "side by side");
                at += grant.len;
            }
            assert_eq!(at, LEN);
            let mut packed = 0;
            for region in transfer.pattern.slice(0, LEN).regions().step_by(97) {
                let read = file.read(&mut client, region.offset as u64, region.len).await;
                let from = if of == 1 { region.offset as u64 } else { packed };
                assert!(read.iter().zip(from..).all(|(found, at)| *found == byte(at, of)));
                packed += 97 * region.len;
            }
        }
        is_over(&env, &cluster).await;
    });
}

#[test]
fn a_retry_of_a_write_whose_connection_was_lost_is_granted_the_whole_again() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut first = cluster.client(0).await;
        let file = File::new(&mut first).await;
        let tag = begin(&mut first, file.first(LEN)).await;
        let grant = next(&mut first, tag).await.unwrap();
        first.give(tag, grant, bytes(grant, 1)).await;
        let wish = Wish { session: Some(first.attached.session), ..Wish::default() };
        let mut second = Raw::attach(&cluster, 0, wish).await.unwrap();
        second.sequence = first.sequence;
        let tag = again(&mut second, file.first(LEN)).await;
        let (grants, reply) = give_all(&mut second, tag, 2).await;
        assert_eq!((reply.status, grants[0].from), (Status::Ok, 0));
        let all = file.read(&mut second, 0, LEN).await;
        assert!(all.iter().zip(0..).all(|(found, at)| *found == byte(at, 2)));
        is_over(&env, &cluster).await;
    });
}

#[test]
fn what_a_lost_connection_gave_does_not_land_on_what_the_next_one_writes() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut first = cluster.client(0).await;
        let file = File::new(&mut first).await;
        let tag = begin(&mut first, file.first(LEN)).await;
        // All but the last part.
        for _ in 0..2 {
            let grant = next(&mut first, tag).await.unwrap();
            first.give(tag, grant, bytes(grant, 1)).await;
        }
        let wish = Wish { session: Some(first.attached.session), ..Wish::default() };
        let mut second = Raw::attach(&cluster, 0, wish).await.unwrap();
        second.sequence = first.sequence;
        let tag = again(&mut second, file.first(LEN)).await;
        assert_eq!(give_all(&mut second, tag, 2).await.1.status, Status::Ok);
        env.sleep(Duration::from_millis(500)).await;
        let all = file.read(&mut second, 0, LEN).await;
        let old = all.iter().zip(0..).filter(|(found, at)| **found != byte(*at, 2)).count();
        assert_eq!(old, 0, "bytes of the lost connection");
    });
}

async fn refusal(client: &mut Raw) -> Refusal {
    loop {
        let frame = client.frame().await.expect("a refusal comes before the end");
        if frame.kind == FrameKind::Refusal {
            return frame.message().unwrap();
        }
    }
}

#[test]
fn what_was_not_granted_or_has_another_length_ends_the_connection_with_words() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let chunk = |from: u64, len: u64| Grant { from, len };
        for (given, bytes, words) in [
            (chunk(CHUNK, CHUNK), CHUNK, "not what was granted next"),
            (chunk(0, CHUNK - 1), CHUNK - 1, "not what was granted next"),
            (chunk(u64::MAX, u64::MAX), 0, "not what was granted next"),
            (chunk(0, CHUNK), CHUNK - 1, "another number of bytes"),
            (chunk(0, CHUNK), CHUNK + 1, "another number of bytes"),
        ] {
            let mut hostile = cluster.client(0).await;
            let tag = begin(&mut hostile, file.first(LEN)).await;
            assert_eq!(next(&mut hostile, tag).await.unwrap(), chunk(0, CHUNK));
            hostile.give(tag, given, vec![9; bytes as usize].into()).await;
            let refused = refusal(&mut hostile).await;
            assert_eq!(refused.status, Status::BadMessage);
            assert!(refused.words.0.contains(words), "{}", refused.words);
            is_over(&env, &cluster).await;
        }
        // Twice; and to no write.
        for twice in [true, false] {
            let mut hostile = cluster.client(0).await;
            let tag = begin(&mut hostile, file.first(CHUNK)).await;
            let grant = next(&mut hostile, tag).await.unwrap();
            if twice {
                hostile.give(tag, grant, bytes(grant, 1)).await;
            }
            hostile.give(tag + u64::from(!twice), grant, bytes(grant, 1)).await;
            let refused = refusal(&mut hostile).await;
            assert_eq!(refused.status, Status::BadMessage);
            is_over(&env, &cluster).await;
        }
        let mut hostile = cluster.client(0).await;
        let mut garbled = Vec::new();
        let message = shoal_proto::samples::piece();
        Frame::put(FrameKind::Give, shoal_proto::message::VERSIONS.1, 1, &message, 0, &mut garbled);
        hostile.put_bytes(&garbled).await;
        assert!(refusal(&mut hostile).await.words.0.contains("cannot be decoded"));
    });
}

#[test]
fn long_writes_that_cannot_be_are_refused_and_nothing_of_them_is_done() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let level = |stride| shoal_pattern::Level { stride, quantity: 1 << 20 };
        let endless = Pattern::nested(0, 1, vec![level(2), level(0), level(0)]).unwrap();
        let beyond = Pattern::contiguous(1 << 40, LEN).unwrap();
        for (transfer, status) in [
            (Transfer { window_len: LEN + 1, ..file.first(LEN) }, Status::Invalid),
            (Transfer { window_from: u64::MAX, ..file.first(LEN) }, Status::Invalid),
            (file.transfer(Pattern::strided(8, 1, -1, 10).unwrap()), Status::Invalid),
            (file.transfer(endless), Status::OverLimit),
            (file.transfer(beyond), Status::StaleLayout),
            (Transfer { generation: shoal_proto::Generation(99), ..file.first(LEN) }, Status::StaleLayout),
            (Transfer { capability: None, ..file.first(LEN) }, Status::BadCapability),
        ] {
            let words = format!("{transfer:?}");
            let tag = begin(&mut client, transfer).await;
            assert_eq!(next(&mut client, tag).await.unwrap_err().status, status, "{words}");
        }
        // Without a slot, and beside another operation.
        let op = || Op::Write { transfer: file.first(LEN), len: 0 };
        client.send(None, vec![vec![op()]], Bytes::new()).await;
        assert_eq!(client.reply().await.1[0].status, Status::BadMessage);
        let beside = vec![Op::Getattr { object: file.attr.handle }, op()];
        assert_eq!(client.change(beside).await.status, Status::BadMessage);
        assert_eq!(cluster.shard(0).counters.snapshot().grants_sent, 0);
        assert!(file.read(&mut client, 0, 10).await.is_empty());
    });
}

#[test]
fn a_client_that_gives_nothing_holds_its_credit_until_its_time_limit_and_slows_no_other() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let (mut silent, mut other) = (cluster.client(0).await, cluster.client(0).await);
        let file = File::new(&mut other).await;
        silent.timeout_ms = 1000;
        for slot_number in 0..4 {
            let op = Op::Write { transfer: file.first(LEN), len: 0 };
            silent.send(Some(slot(slot_number, 1)), vec![vec![op]], Bytes::new()).await;
        }
        let shard = cluster.shard(0);
        until(&env, || shard.credits.held_bytes() > 0).await;
        let tag = begin(&mut other, file.first(LEN)).await;
        assert_eq!(give_all(&mut other, tag, 5).await.1.status, Status::Ok);
        assert!(shard.credits.held_bytes() <= limits::CREDIT_BYTES);
        // Its connection ends, without a reply to any of them.
        while let Some(frame) = silent.frame().await {
            assert_eq!(frame.kind, FrameKind::Grant);
        }
        is_over(&env, &cluster).await;
        let all = file.read(&mut other, 0, LEN).await;
        assert!(all.iter().zip(0..).all(|(found, at)| *found == byte(at, 5)));
    });
}

#[test]
fn a_long_write_that_finds_the_disk_full_ends_with_whole_pieces_written_and_can_be_repeated() {
    run(|env| async move {
        let (cluster, held) = held(&env).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        // Room for one piece and a part of the next.
        held.admits_bytes.set(Some(CHUNK + CHUNK / 2));
        let tag = begin(&mut client, file.first(LEN)).await;
        let (grants, reply) = give_all(&mut client, tag, 3).await;
        assert_eq!(reply.status, Status::NoSpace);
        is_over(&env, &cluster).await;
        // The file ends with the last piece that was written.
        let mut all = file.read(&mut client, 0, LEN).await.to_vec();
        all.resize(LEN as usize, 0);
        let is_of = |grant: &Grant, of: u8| {
            let piece = &all[grant.from as usize..(grant.from + grant.len) as usize];
            piece.iter().zip(grant.from..).all(|(found, at)| *found == if of == 0 { 0 } else { byte(at, of) })
        };
        let whole = grants.iter().filter(|grant| is_of(grant, 3)).count();
        let untouched = grants.iter().filter(|grant| is_of(grant, 0)).count();
        assert!(whole >= 1 && untouched >= 1 && whole + untouched == grants.len(), "{whole}, {untouched}");
        held.admits_bytes.set(None);
        let tag = begin(&mut client, file.first(LEN)).await;
        assert_eq!(give_all(&mut client, tag, 4).await.1.status, Status::Ok);
        let all = file.read(&mut client, 0, LEN).await;
        assert!(all.iter().zip(0..).all(|(found, at)| *found == byte(at, 4)));
    });
}

#[test]
fn a_server_that_stops_ends_long_writes_at_once_and_their_client_asks_again() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let tag = begin(&mut client, file.first(LEN)).await;
        let grant = next(&mut client, tag).await.unwrap();
        client.give(tag, grant, bytes(grant, 1)).await;
        assert_eq!(next(&mut client, tag).await.unwrap().from, CHUNK);
        let server = cluster.servers[0].take().unwrap();
        let until = env.now() + Duration::from_secs(5);
        // The time limit of the write is longer.
        env.deadline(until, server.stop()).await.expect("the stop waits for the client").unwrap();
        let status = loop {
            if let Err(reply) = next(&mut client, tag).await {
                break reply.status;
            }
        };
        assert_eq!(status, Status::Unavailable);
    });
}
