//! Change counts as clients get them: with opens, attributes, facts, reads and writes.

use crate::raw::*;
use bytes::Bytes;
use shoal_pattern::Pattern;
use shoal_proto::{
    Allocation, Answer, Attr, Capability, ChangeCount, Handle, Move, Op, Rights, SetAttr, Share, Status,
    StreamFacts, Time, Transfer,
};

/// More than a record holds.
const BULK: usize = 20_000;

struct File {
    client: Raw,
    attr: Attr,
    capability: Option<Capability>,
}

impl File {
    async fn made(mut client: Raw) -> File {
        let made = client.change(vec![create(Handle::ROOT, &name("file"))]).await;
        let Answer::Made { attr, capability, .. } = &made.answers[0] else { panic!("{made:?}") };
        File { attr: attr.clone(), capability: *capability, client }
    }

    fn transfer(&self, at: usize, len: usize) -> Transfer {
        Transfer {
            stream: self.attr.handle,
            generation: self.attr.generation,
            capability: self.capability,
            pattern: Pattern::contiguous(at as i64, len as u64).unwrap(),
            window_from: 0,
            window_len: len as u64,
            share: Share::WHOLE,
        }
    }

    async fn change(&mut self, op: Op, bulk: Bytes) -> Answer {
        self.client.sequence += 1;
        self.client.send(Some(slot(0, self.client.sequence)), vec![vec![op]], bulk).await;
        let (_, mut replies, _) = self.client.reply().await;
        assert_eq!(replies[0].status, Status::Ok, "{replies:?}");
        replies.remove(0).answers.0.remove(0)
    }

    /// A write's moves and the count after it.
    async fn write(&mut self, at: usize, len: usize) -> (Vec<Move>, ChangeCount) {
        let op = Op::Write { transfer: self.transfer(at, len), len: len as u32 };
        let Answer::Facts { facts, moves } = self.change(op, vec![7; len].into()).await else { panic!() };
        (moves.0, facts.count)
    }

    async fn read(&mut self, len: usize) -> StreamFacts {
        self.client.send(None, vec![vec![Op::Read { transfer: self.transfer(0, len) }]], Bytes::new()).await;
        let (_, replies, _) = self.client.reply().await;
        let Answer::Data { facts, .. } = &replies[0].answers[0] else { panic!("{replies:?}") };
        *facts
    }

    /// The count, as every answer has it.
    async fn count(&mut self, len: usize) -> ChangeCount {
        let object = self.attr.handle;
        let asked = vec![
            Op::Open { object, rights: Rights::READ },
            Op::Getattr { object },
            Op::Streamstat { stream: object },
        ];
        let told = self.client.ask(asked).await;
        let [Answer::Made { count, .. }, Answer::Attr { count: of_attr, .. }, Answer::Facts { facts, .. }] =
            &told.answers[..]
        else {
            panic!("{told:?}")
        };
        assert_ne!(*count, ChangeCount::NONE);
        assert_eq!((*count, *count), (*of_attr, facts.count));
        assert_eq!(self.read(len).await.count, *count);
        *count
    }
}

#[test]
fn every_change_of_bytes_moves_the_count_once_and_for_all_and_a_write_says_from_where() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut file = File::made(cluster.client(0).await).await;
        let mut seen = vec![file.count(1).await];
        for (len, steps) in [(100, 1), (5_000, 1), (BULK, 2), (BULK, 2)] {
            let before = file.count(BULK).await;
            let (moves, after) = file.write(0, len).await;
            assert_eq!(moves.len(), steps, "of {len} bytes");
            assert_eq!((moves[0].from, moves[steps - 1].to), (before, after), "of {len} bytes");
            assert!(moves.windows(2).all(|two| two[0].to == two[1].from), "{moves:?}");
            assert_eq!(file.count(BULK).await, after);
            seen.extend(moves.iter().map(|moved| moved.to));
        }
        let (object, capability) = (file.attr.handle, file.capability);
        let allocate = |mode| Op::Allocate {
            stream: object,
            generation: file.attr.generation,
            capability,
            from: 10,
            len: 5,
            mode,
        };
        let changes = [
            (Op::Append { object, capability, len: 4, laid_out: true }, Bytes::from_static(b"more")),
            (Op::Truncate { object, size: 50, kill_privileges: false }, Bytes::new()),
            (allocate(Allocation::Punch), Bytes::new()),
            (Op::Append { object, capability, len: 1, laid_out: true }, Bytes::from_static(b"x")),
        ];
        for (op, bulk) in changes {
            file.change(op, bulk).await;
            seen.push(file.count(BULK).await);
        }
        let mut distinct = seen.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), seen.len(), "a count was there twice: {seen:?}");

        let set = SetAttr { mtime: Some(Time(5)), mode: Some(0o600), ..SetAttr::default() };
        let told = file.change(Op::Setattr { object, set }, Bytes::new()).await;
        let Answer::Attr { attr, count } = told else { panic!("{told:?}") };
        file.attr = attr;
        assert_eq!(Some(&count), seen.last(), "times and modes are no bytes");
        assert_eq!(file.count(BULK).await, count);
    });
}

#[test]
fn a_retried_write_is_answered_with_the_moves_of_the_first_time() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut file = File::made(cluster.client(0).await).await;
        for len in [100, BULK] {
            let first = file.write(0, len).await;
            let op = Op::Write { transfer: file.transfer(0, len), len: len as u32 };
            let place = slot(0, file.client.sequence);
            file.client.send(Some(place), vec![vec![op]], vec![7; len].into()).await;
            let (_, replies, _) = file.client.reply().await;
            let Answer::Facts { facts, moves } = &replies[0].answers[0] else { panic!("{replies:?}") };
            assert_eq!((moves.0.clone(), facts.count), first);
            assert_eq!(file.count(BULK).await, first.1);
        }
    });
}

#[test]
fn a_restart_of_the_server_gives_every_stream_another_change_count() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let mut file = File::made(cluster.client(0).await).await;
        file.write(0, BULK).await;
        let before = file.count(BULK).await;
        cluster.kill(0);
        cluster.start(0).await;
        file.client = cluster.client(0).await;
        assert_ne!(file.count(BULK).await, before);
    });
}
