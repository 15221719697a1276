//! Patterns from the wire: hostile ones are refused and change nothing, large ones delay no small request.

use crate::raw::*;
use bytes::Bytes;
use shoal_pattern::{Level, Pattern};
use shoal_proto::{Answer, Attr, Capability, Dist, Handle, Op, Share, Status, Transfer, limits};

/// Bytes of the file: too many for the journal, so that they lie in a file of their own.
const LEN: usize = 60_000;

struct File {
    attr: Attr,
    capability: Option<Capability>,
}

impl File {
    /// A file of `LEN` bytes, all alike.
    async fn new(client: &mut Raw) -> File {
        let made = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        let file = File { attr: attr.clone(), capability: *capability };
        let whole = Pattern::contiguous(0, LEN as u64).unwrap();
        assert_eq!(file.write(client, file.transfer(whole), vec![7; LEN].into()).await, Status::Ok);
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

    async fn write(&self, client: &mut Raw, transfer: Transfer, data: Bytes) -> Status {
        client.sequence += 1;
        let op = Op::Write { transfer, len: data.len() as u32 };
        client.send(Some(slot(0, client.sequence)), vec![vec![op]], data).await;
        client.reply().await.1[0].status
    }

    async fn read(&self, client: &mut Raw, transfer: Transfer) -> (Status, Bytes) {
        client.send(None, vec![vec![Op::Read { transfer }]], Bytes::new()).await;
        let (_, replies, data) = client.reply().await;
        (replies[0].status, data)
    }

    async fn is_as_it_was(&self, client: &mut Raw) -> bool {
        let whole = Pattern::contiguous(0, LEN as u64).unwrap();
        let (status, data) = self.read(client, self.transfer(whole)).await;
        status == Status::Ok && data[..] == [7; LEN]
    }
}

/// 2^60 records of a byte, in a few bytes.
fn endless() -> Pattern {
    let level = |stride| Level { stride, quantity: 1 << 20 };
    Pattern::nested(0, 1, vec![level(2), level(0), level(0)]).unwrap()
}

#[test]
fn hostile_patterns_are_refused_and_nothing_of_them_is_done() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let eight = || file.transfer(Pattern::contiguous(0, 8).unwrap());
        let striped = |width, index| Share { dist: Dist::SimpleStripe { strip: 4096 }, width, index };
        let large = Pattern::contiguous(0, 1 + limits::BULK_BYTES_MAX as u64).unwrap();
        for (transfer, status) in [
            (Transfer { window_len: 9, ..eight() }, Status::Invalid),
            (Transfer { window_from: u64::MAX, ..eight() }, Status::Invalid),
            (file.transfer(Pattern::strided(8, 1, -1, 10).unwrap()), Status::Invalid),
            (Transfer { share: striped(3, 3), ..eight() }, Status::Invalid),
            (Transfer { share: striped(u16::MAX, 0), ..eight() }, Status::Invalid),
            (file.transfer(large.clone()), Status::OverLimit),
            (file.transfer(endless()), Status::OverLimit),
        ] {
            let words = format!("{transfer:?}");
            // A read that is too long for a message goes by pieces.
            if transfer.pattern != large {
                assert_eq!(file.read(&mut client, transfer.clone()).await.0, status, "read {words}");
            }
            let data = Bytes::from(vec![1; transfer.window_len.min(8) as usize]);
            assert_eq!(file.write(&mut client, transfer, data).await, status, "write {words}");
        }
        // The lengths do not agree.
        for len in [7, 9] {
            let wrong = file.write(&mut client, eight(), vec![1; len].into()).await;
            assert_eq!(wrong, Status::BadMessage, "{len}");
        }
        assert!(file.is_as_it_was(&mut client).await);
        assert_eq!(cluster.shard(0).engine().sweep.requests(), 0);
    });
}

#[test]
fn a_window_into_an_endless_pattern_is_served() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        // Some records of the middle: all in reach of the file.
        let window = Transfer { window_from: 1 << 40, window_len: 20_000, ..file.transfer(endless()) };
        let (status, data) = file.read(&mut client, window).await;
        assert_eq!((status, &data[..]), (Status::Ok, &[7; 20_000][..]));
    });
}

#[test]
fn small_requests_are_answered_between_the_steps_of_large_ones() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let (mut client, mut other) = (cluster.client(0).await, cluster.client(0).await);
        let file = File::new(&mut client).await;
        // Every second byte, eight times over: many records, bytes and steps.
        let again = Level { stride: 0, quantity: 8 };
        let pattern = Pattern::nested(0, 1, vec![Level { stride: 2, quantity: 30_000 }, again]).unwrap();
        for _ in 0..4 {
            let read = Op::Read { transfer: file.transfer(pattern.clone()) };
            client.send(None, vec![vec![read]], Bytes::new()).await;
        }
        let in_hand = || cluster.shard(0).engine().sweep.requests();
        until(&env, || in_hand() == 4).await;
        assert_eq!(other.ask(vec![lookup(Handle::ROOT, &name("file"))]).await.status, Status::Ok);
        assert!(in_hand() > 0, "the answer waited for all of them");
        for _ in 0..4 {
            let (_, replies, data) = client.reply().await;
            assert_eq!((replies[0].status, data.len()), (Status::Ok, 240_000));
            assert!(data.iter().all(|byte| *byte == 7));
        }
        assert_eq!(in_hand(), 0);
    });
}
