//! Long reads: one request, answered by pieces; what a connection holds for them, and how they end.

use crate::raw::held::held;
use crate::raw::*;
use bytes::Bytes;
use shoal_env::Env;
use shoal_pattern::{Level, Pattern, Region};
use shoal_proto::message::{Piece, Refusal};
use shoal_proto::{
    Answer, Attr, Capability, Frame, FrameKind, Handle, Op, Reply, Seal, Share, Status, Transfer, limits,
    samples,
};
use shoal_server::Settings;
use std::time::Duration;

/// Bytes of the file: too many for the journal, so that they lie in a file of their own.
const LEN: usize = 60_000;
const PIECE: u64 = limits::FLOW_CHUNK_BYTES as u64;

fn byte(at: usize) -> u8 {
    (at % 251) as u8 + 1
}

struct File {
    attr: Attr,
    capability: Option<Capability>,
}

impl File {
    async fn new(client: &mut Raw) -> File {
        let made = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        let file = File { attr: attr.clone(), capability: *capability };
        client.sequence += 1;
        let transfer = file.transfer(Pattern::contiguous(0, LEN as u64).unwrap());
        let op = Op::Write { transfer, len: LEN as u32 };
        let data: Vec<u8> = (0..LEN).map(byte).collect();
        client.send(Some(slot(0, client.sequence)), vec![vec![op]], data.into()).await;
        assert_eq!(client.reply().await.1[0].status, Status::Ok);
        file
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

    /// The file so many times.
    fn times(&self, quantity: u64) -> Transfer {
        self.transfer(Pattern::nested(0, LEN as u64, vec![Level { stride: 0, quantity }]).unwrap())
    }
}

async fn ask(client: &mut Raw, transfer: Transfer) -> u64 {
    client.send(None, vec![vec![Op::Read { transfer }]], Bytes::new()).await
}

/// All pieces of a read, and its reply.
async fn answer(client: &mut Raw, tag: u64) -> (Vec<(Piece, Bytes)>, Reply) {
    let mut pieces: Vec<(Piece, Bytes)> = Vec::new();
    loop {
        let frame = client.frame().await.expect("the connection ended");
        assert_eq!(frame.tag, tag);
        match frame.kind {
            FrameKind::Piece => pieces.push((frame.message().unwrap(), frame.bulk)),
            FrameKind::Reply => {
                pieces.sort_by_key(|(piece, _)| piece.from);
                return (pieces, frame.message().unwrap());
            }
            other => panic!("{other:?}: {:?}", frame.message::<Refusal>()),
        }
    }
}

/// The pieces lie side by side and have the bytes of the pattern, up to where the reply says.
fn check(transfer: &Transfer, (pieces, reply): &(Vec<(Piece, Bytes)>, Reply)) {
    assert_eq!(reply.groups[0].status, Status::Ok);
    let Answer::Sent { upto, facts } = reply.groups[0].answers[0] else { panic!("{reply:?}") };
    assert_eq!(facts.size, LEN as u64);
    let all = transfer.pattern.regions().flat_map(|region| region.offset..region.offset + region.len as i64);
    let all: Vec<usize> = all.map(|at| at as usize).collect();
    let mut at = transfer.window_from;
    for (piece, data) in pieces {
        assert_eq!((piece.from, piece.facts), (at, facts));
        assert!(data.len() as u64 <= PIECE);
        let own = &all[at as usize..(at + piece.len) as usize];
        let inside = own.iter().rposition(|at| *at < LEN).map_or(0, |last| last + 1);
        assert_eq!(data.len(), inside, "what is after the end is left out");
        assert!(own.iter().zip(data).all(|(at, found)| *found == if *at < LEN { byte(*at) } else { 0 }));
        at += piece.len;
    }
    assert_eq!(at, upto);
    let window_end = (transfer.window_from + transfer.window_len) as usize;
    assert!(all[at as usize..window_end].iter().all(|at| *at >= LEN), "more of it is inside the stream");
}

#[test]
fn a_long_read_is_one_request_whose_pieces_cover_it() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let counters = || cluster.shard(0).counters.snapshot();
        for (transfer, count) in [
            (file.times(50), 50 * LEN as u64 / PIECE + 1),
            // The window begins and ends within records.
            (Transfer { window_from: 12_345, window_len: 700_001, ..file.times(50) }, 3),
            (file.transfer(Pattern::contiguous(0, 1 << 20).unwrap()), 1),
            // From after the end backwards: the first piece is after it, and is empty.
            (file.transfer(Pattern::strided(400_000, 4096, -4096, 98).unwrap()), 2),
        ] {
            let before = counters();
            let tag = ask(&mut client, transfer.clone()).await;
            let answer = answer(&mut client, tag).await;
            check(&transfer, &answer);
            assert_eq!(counters().requests - before.requests, 1);
            assert_eq!(answer.0.len() as u64, count, "{}", transfer.pattern);
            assert_eq!(counters().pieces_sent - before.pieces_sent, count);
        }
        assert_eq!(cluster.shard(0).engine().sweep.requests(), 0);
    });
}

#[test]
fn tiny_records_come_in_pieces_that_do_not_hold_the_thread() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let again = Level { stride: 0, quantity: 12 };
        let pattern = Pattern::nested(0, 1, vec![Level { stride: 2, quantity: 30_000 }, again]).unwrap();
        let transfer = file.transfer(pattern);
        let tag = ask(&mut client, transfer.clone()).await;
        let answer = answer(&mut client, tag).await;
        check(&transfer, &answer);
        assert!(answer.0.iter().all(|(_, data)| data.len() <= 16_384));
    });
}

#[test]
fn a_read_of_a_chunk_or_less_is_answered_by_one_message() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let short = Transfer { window_len: PIECE, ..file.times(5) };
        // Of a long window this stream has a short share.
        let dist = shoal_proto::Dist::SimpleStripe { strip: 4096 };
        let share = Share { dist, width: 16, index: 0 };
        let shared = Transfer { share, ..file.transfer(Pattern::contiguous(0, 14 * LEN as u64).unwrap()) };
        for (transfer, len) in [(short, PIECE as usize), (shared, 53_248)] {
            ask(&mut client, transfer).await;
            let (_, replies, data) = client.reply().await;
            assert_eq!((replies[0].status, data.len()), (Status::Ok, len));
            assert!(matches!(replies[0].answers[0], Answer::Data { .. }));
        }
    });
}

#[test]
fn a_client_that_reads_nothing_has_its_credit_held_and_slows_no_other() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let (mut client, mut other) = (cluster.client(0).await, cluster.client(0).await);
        let file = File::new(&mut client).await;
        let transfer = file.times(400);
        let (first, second) =
            (ask(&mut client, transfer.clone()).await, ask(&mut client, file.times(400)).await);
        let shard = cluster.shard(0);
        let held = || shard.credits.held_bytes();
        until(&env, || held() > limits::CREDIT_BYTES - 2 * limits::FLOW_CHUNK_BYTES).await;
        for _ in 0..20 {
            let own = file.times(40);
            let tag = ask(&mut other, own.clone()).await;
            check(&own, &answer(&mut other, tag).await);
        }
        let room = limits::CREDIT_BYTES + 8192;
        assert!(held() <= room, "{}", held());
        // It reads on: all is there, once.
        let (mut pieces, mut replies) = (Vec::new(), Vec::new());
        while replies.len() < 2 {
            let frame = client.frame().await.unwrap();
            match frame.kind {
                FrameKind::Piece => pieces.push((frame.tag, frame.message::<Piece>().unwrap(), frame.bulk)),
                _ => replies.push((frame.tag, frame.message::<Reply>().unwrap())),
            }
        }
        for (tag, reply) in replies {
            let own =
                pieces.iter().filter(|(of, ..)| *of == tag).map(|(_, piece, data)| (*piece, data.clone()));
            let mut own: Vec<(Piece, Bytes)> = own.collect();
            own.sort_by_key(|(piece, _)| piece.from);
            assert!([first, second].contains(&tag));
            check(&transfer, &(own, reply));
        }
        let most = shard.counters.snapshot().piece_bytes_waiting_max;
        assert!(most <= room as u64, "{most} bytes waited on one connection");
        assert_eq!(held(), 0);
    });
}

/// That nothing is in hand any more, soon.
async fn is_over(env: &Env, cluster: &Cluster) {
    let shard = cluster.shard(0);
    until(env, || shard.engine().sweep.requests() == 0 && shard.credits.held_bytes() == 0).await;
}

#[test]
fn of_a_read_that_its_client_leaves_or_that_loses_its_connection_nothing_stays() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let tag = ask(&mut client, file.times(1_000_000)).await;
        client.leave(tag).await;
        // One that is not under way, or is over, is left without an effect.
        client.leave(tag + 100).await;
        let (_, reply) = answer(&mut client, tag).await;
        assert_eq!(reply.groups[0].status, Status::Interrupted);
        client.leave(tag).await;
        let own = file.times(10);
        let next = ask(&mut client, own.clone()).await;
        check(&own, &answer(&mut client, next).await);
        ask(&mut client, file.times(1_000_000)).await;
        let held = || cluster.shard(0).credits.held_bytes();
        until(&env, || held() > limits::FLOW_CHUNK_BYTES).await;
        drop(client);
        is_over(&env, &cluster).await;
    });
}

#[test]
fn a_read_whose_client_takes_nothing_ends_with_its_time_limit() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        client.timeout_ms = 50;
        let tag = ask(&mut client, file.times(1_000_000)).await;
        let requests = || cluster.shard(0).engine().sweep.requests();
        let replies = || cluster.shard(0).counters.snapshot().replies;
        let before = replies();
        until(&env, || replies() > before && requests() == 0).await;
        let (pieces, reply) = answer(&mut client, tag).await;
        assert_eq!(reply.groups[0].status, Status::TimedOut);
        assert!(!pieces.is_empty());
        is_over(&env, &cluster).await;
    });
}

#[test]
fn the_pieces_of_a_lost_connection_do_not_come_on_the_next_one() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let session = Some(client.attached.session);
        let mut first = Raw::attach(&cluster, 0, Wish { session, ..Wish::default() }).await.unwrap();
        let transfer = file.times(300);
        let tag = ask(&mut first, transfer.clone()).await;
        let held = || cluster.shard(0).credits.held_bytes();
        until(&env, || held() > limits::FLOW_CHUNK_BYTES).await;
        let mut second = Raw::attach(&cluster, 0, Wish { session, ..Wish::default() }).await.unwrap();
        assert_eq!(ask(&mut second, transfer.clone()).await, tag);
        check(&transfer, &answer(&mut second, tag).await);
        env.sleep(Duration::from_millis(20)).await;
        let ping = second.ask(vec![Op::Ping {}]).await;
        assert_eq!(ping.status, Status::Ok, "no further piece came before it");
        drop(first);
        is_over(&env, &cluster).await;
    });
}

/// The refusal that ends a connection.
async fn refusal(client: &mut Raw) -> Refusal {
    loop {
        let frame = client.frame().await.expect("a refusal comes before the end");
        if frame.kind == FrameKind::Refusal {
            return frame.message().unwrap();
        }
    }
}

#[test]
fn a_tag_used_twice_and_pieces_from_a_client_are_refused_with_words() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let tag = ask(&mut client, file.times(100_000)).await;
        client.repeat_tag();
        assert_eq!(ask(&mut client, file.times(100_000)).await, tag);
        let refused = refusal(&mut client).await;
        assert_eq!(refused.status, Status::BadMessage);
        assert!(refused.words.0.contains(&format!("the tag {tag} of another one")), "{}", refused.words);
        is_over(&env, &cluster).await;
        for (kind, words) in [(FrameKind::Piece, "only requests are expected"), (FrameKind::Leave, "decoded")]
        {
            let mut client = cluster.client(0).await;
            let mut bytes = Vec::new();
            Frame::put(kind, shoal_proto::message::VERSIONS.1, 1, &samples::piece(), 0, &mut bytes);
            client.put_bytes(&bytes).await;
            let refused = refusal(&mut client).await;
            assert_eq!(refused.status, Status::BadMessage);
            assert!(refused.words.0.contains(words), "{}", refused.words);
        }
    });
}

#[test]
fn a_read_longer_than_a_transfer_or_beside_other_operations_is_refused() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let (level, again) = (Level { stride: 0, quantity: 1 << 20 }, Level { stride: 2, quantity: 1 << 20 });
        let endless = Pattern::nested(0, 1, vec![again, level, level]).unwrap();
        assert_eq!(
            client.ask(vec![Op::Read { transfer: file.transfer(endless) }]).await.status,
            Status::OverLimit
        );
        let look = || Op::Getattr { object: file.attr.handle };
        let beside = vec![look(), Op::Read { transfer: file.times(20) }];
        assert_eq!(client.ask(beside).await.status, Status::OverLimit);
        let beside = vec![look(), Op::Read { transfer: file.times(10) }];
        client.send(None, vec![beside], Bytes::new()).await;
        let (_, replies, data) = client.reply().await;
        assert_eq!((replies[0].status, data.len()), (Status::Ok, 10 * LEN));
    });
}

#[test]
fn a_long_read_of_a_file_that_is_cut_meanwhile_ends_stale_and_not_with_zeros_of_its_old_length() {
    run(|env| async move {
        let (cluster, held) = held(&env).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        held.reads_to_hold.set(1);
        let tag = ask(&mut client, file.times(50)).await;
        until(&env, || held.done.get() > 0).await;
        let mut other = cluster.client(0).await;
        let cut = Op::Truncate { object: file.attr.handle, size: 10, kill_privileges: false };
        assert_eq!(other.change(vec![cut]).await.status, Status::Ok);
        held.release();
        let (_, reply) = answer(&mut client, tag).await;
        assert_eq!(reply.groups[0].status, Status::StaleLayout);
        is_over(&env, &cluster).await;
    });
}

#[test]
fn a_long_read_that_begins_far_after_the_end_and_comes_back_has_what_is_inside() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        // More pieces after the end than walks without a byte of the share are allowed.
        let far = Region::new(1 << 31, 300 * PIECE);
        let transfer = file.transfer(Pattern::list(vec![far, Region::new(0, LEN as u64)]).unwrap());
        let tag = ask(&mut client, transfer.clone()).await;
        let (pieces, reply) = answer(&mut client, tag).await;
        assert_eq!(reply.groups[0].status, Status::Ok);
        let found: Vec<u8> = pieces.iter().flat_map(|(_, data)| data.to_vec()).collect();
        assert!(found == (0..LEN).map(byte).collect::<Vec<u8>>(), "{} bytes", found.len());
    });
}

/// A file of a million bytes.
async fn long_file(client: &mut Raw) -> File {
    let file = File::new(client).await;
    for at in (0..1_000_000).step_by(200_000) {
        client.sequence += 1;
        let transfer = file.transfer(Pattern::contiguous(at as i64, 200_000).unwrap());
        let data: Vec<u8> = (at..at + 200_000).map(byte).collect();
        let op = Op::Write { transfer, len: 200_000 };
        client.send(Some(slot(0, client.sequence)), vec![vec![op]], data.into()).await;
        assert_eq!(client.reply().await.1[0].status, Status::Ok);
    }
    file
}

/// The bytes of a pattern, in its order, in a file of `size` bytes.
fn bytes_of(transfer: &Transfer, size: usize) -> Vec<u8> {
    let regions = transfer.pattern.regions();
    let all = regions.flat_map(|region| region.offset..region.offset + region.len as i64);
    all.map(|at| if (at as usize) < size { byte(at as usize) } else { 0 }).collect()
}

/// Records of which each piece has several, and parts of others at its ends.
fn long_records(file: &File) -> Transfer {
    file.transfer(Pattern::strided(31, 47_008, 60_000, 16).unwrap())
}

#[test]
fn long_records_are_sent_from_where_they_were_read() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = long_file(&mut client).await;
        let transfer = long_records(&file);
        let counters = || cluster.shard(0).env.counters().snapshot();
        let before = counters();
        let tag = ask(&mut client, transfer.clone()).await;
        let (pieces, reply) = answer(&mut client, tag).await;
        let copied = counters().since(&before).copied_bytes as usize;
        assert_eq!(reply.groups[0].status, Status::Ok);
        let found: Vec<u8> = pieces.iter().flat_map(|(_, data)| data.clone()).collect();
        assert!(found == bytes_of(&transfer, 1_000_000));
        // Once by the store, which is in memory, and of the sweep only the small parts of records at the ends
        // of pieces.
        assert!(copied <= found.len() + found.len() / 50, "{copied} of {} bytes", found.len());
    });
}

#[test]
fn a_frame_of_several_buffers_has_one_seal_over_all_of_them() {
    run(|env| async move {
        for seal in [Seal::Head, Seal::All, Seal::Encrypted] {
            let settings = Settings { seal_within: seal, ..Settings::default() };
            let cluster = Cluster::with(&env, 1, settings).await;
            let mut client = cluster.client(0).await;
            assert!(client.ends.is_some(), "each frame that comes is checked");
            let file = long_file(&mut client).await;
            let transfer = long_records(&file);
            // Pieces, and one reply that has all the data.
            let tag = ask(&mut client, transfer.clone()).await;
            let (pieces, reply) = answer(&mut client, tag).await;
            assert_eq!((reply.groups[0].status, pieces.len()), (Status::Ok, 3));
            let found: Vec<u8> = pieces.iter().flat_map(|(_, data)| data.clone()).collect();
            assert!(found == bytes_of(&transfer, 1_000_000));
            ask(&mut client, Transfer { window_len: PIECE, ..transfer.clone() }).await;
            let (_, replies, data) = client.reply().await;
            assert_eq!(replies[0].status, Status::Ok);
            assert!(data[..] == bytes_of(&transfer, 1_000_000)[..PIECE as usize]);
            // The connection goes on.
            assert_eq!(client.ask(vec![Op::Ping {}]).await.status, Status::Ok);
            assert_eq!(cluster.shard(0).counters.snapshot().forged_frames, 0);
        }
    });
}

#[test]
fn a_read_of_several_bursts_has_its_short_and_long_records_in_order() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = long_file(&mut client).await;
        // A burst has 2048 records: long ones come in the middle of the second and at the end of the third.
        let short = |from: i64| (0..2500).map(move |at| Region::new(from + 64 * at, 10));
        let long = |from: i64| [Region::new(from, 40_000), Region::new(from + 50_000, 70_000)];
        let regions = short(7).chain(long(300_031)).chain(short(500_003)).chain(long(700_000));
        let regions: Vec<Region> = regions.collect();
        let transfer = file.transfer(Pattern::compressed(&regions).unwrap());
        assert!(transfer.window_len > PIECE);
        let tag = ask(&mut client, transfer.clone()).await;
        let (pieces, reply) = answer(&mut client, tag).await;
        assert_eq!(reply.groups[0].status, Status::Ok);
        let found: Vec<u8> = pieces.iter().flat_map(|(_, data)| data.clone()).collect();
        assert!(found == bytes_of(&transfer, 1_000_000));
        // The first chunk by one message.
        ask(&mut client, Transfer { window_len: PIECE, ..transfer.clone() }).await;
        let (_, replies, data) = client.reply().await;
        assert_eq!(replies[0].status, Status::Ok);
        assert!(data[..] == bytes_of(&transfer, 1_000_000)[..PIECE as usize]);
    });
}

#[test]
fn a_record_in_which_the_stream_ends_is_zeros_from_there_on_beside_records_that_it_has() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let at = |offset: usize, len: u64| Region::new(offset as i64, len);
        for regions in [
            vec![at(LEN - 10_000, 47_008), at(5, 40_000)],
            vec![at(LEN + 100_000, 40_000), at(LEN - 1, 40_000), at(5, 40_000)],
            vec![at(LEN - 10_000, 20), at(LEN - 10, 30), at(LEN + 7, 100), at(5, 40_000), at(LEN - 900, 50)],
        ] {
            let transfer = file.transfer(Pattern::list(regions).unwrap());
            ask(&mut client, transfer.clone()).await;
            let (_, replies, data) = client.reply().await;
            assert_eq!(replies[0].status, Status::Ok);
            assert!(data[..] == bytes_of(&transfer, LEN)[..], "{}", transfer.pattern);
        }
    });
}
