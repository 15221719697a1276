//! Tests of the bytes that readers see while others write, append or truncate the file, and of the appends
//! that may be done twice if the server is killed.

use crate::raw::held::held;
use crate::raw::*;
use bytes::Bytes;
use shoal_env::Env;
use shoal_pattern::Pattern;
use shoal_proto::{Answer, Attr, Capability, Handle, Op, Rights, Share, Status, Transfer};

/// A file, as its clients know it.
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

    async fn send_write(&self, client: &mut Raw, at: usize, data: Bytes) {
        client.sequence += 1;
        let op = Op::Write { transfer: self.transfer(at, data.len()), len: data.len() as u32 };
        client.send(Some(slot(0, client.sequence)), vec![vec![op]], data).await;
    }

    async fn write(&self, client: &mut Raw, at: usize, data: Bytes) {
        self.send_write(client, at, data).await;
        done(client).await;
    }

    async fn read(&self, client: &mut Raw, len: usize) -> Bytes {
        client.send(None, vec![vec![Op::Read { transfer: self.transfer(0, len) }]], Bytes::new()).await;
        let (_, replies, data) = client.reply().await;
        assert_eq!(replies[0].status, Status::Ok);
        data
    }
}

async fn done(client: &mut Raw) {
    let (_, replies, _) = client.reply().await;
    assert_eq!(replies[0].status, Status::Ok);
}

async fn clients(env: &Env) -> (Cluster, [Raw; 2]) {
    let cluster = Cluster::new(env, 1).await;
    let (one, two) = (cluster.client(0).await, cluster.client(0).await);
    (cluster, [one, two])
}

#[test]
fn a_read_sees_every_write_that_returned_before_it_began() {
    run(|env| async move {
        let (_cluster, [mut one, mut two]) = clients(&env).await;
        let file = File::new(&mut one).await;
        let mut expected = vec![0; 60_000];
        file.write(&mut one, 0, expected.clone().into()).await;
        for round in 0..120_usize {
            // Small and large, at odd places, by one and the other.
            let (at, len) = (round * 397 % 30_000, [1, 700, 5_000, 29_999][round % 4]);
            expected[at..at + len].fill(round as u8 + 1);
            let (writer, reader) = if round % 2 == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
            file.write(writer, at, vec![round as u8 + 1; len].into()).await;
            assert!(file.read(reader, 60_000).await == expected, "round {round}");
        }
    });
}

#[test]
fn a_read_that_begins_after_a_truncation_gets_nothing_that_an_earlier_read_has_in_hand() {
    run(|env| async move {
        let (cluster, held) = held(&env).await;
        let (mut one, mut two) = (cluster.client(0).await, cluster.client(0).await);
        let file = File::new(&mut one).await;
        file.write(&mut one, 0, vec![7; 60_000].into()).await;
        held.reads_to_hold.set(1);
        let read = || vec![vec![Op::Read { transfer: file.transfer(0, 60_000) }]];
        one.send(None, read(), Bytes::new()).await;
        until(&env, || held.done.get() == 1).await;
        for size in [20_000, 60_000] {
            let object = file.attr.handle;
            let set = two.change(vec![Op::Truncate { object, size, kill_privileges: false }]).await;
            assert_eq!(set.status, Status::Ok);
        }
        two.send(None, read(), Bytes::new()).await;
        let in_hand = || cluster.shard(0).engine().sweep.requests();
        until(&env, || in_hand() == 2).await;
        held.release();
        assert!(one.reply().await.2[..] == [7; 60_000], "the first read began before the truncation");
        let late = two.reply().await.2;
        assert!(late[..20_000] == [7; 20_000] && late[20_000..] == [0; 40_000], "bytes that were cut");
    });
}

#[test]
fn where_two_writes_overlap_each_byte_is_one_writers() {
    run(|env| async move {
        let (_cluster, [mut one, mut two]) = clients(&env).await;
        let file = File::new(&mut one).await;
        for (round, len) in [100, 9_000, 30_000, 9_000, 30_000, 100].into_iter().enumerate() {
            file.write(&mut one, 0, vec![b'-'; 60_000].into()).await;
            let half = len / 2;
            file.send_write(&mut one, 0, vec![b'a'; len].into()).await;
            file.send_write(&mut two, half, vec![b'b'; len].into()).await;
            done(&mut one).await;
            done(&mut two).await;
            let read = file.read(&mut two, 60_000).await;
            assert!(read[..half].iter().all(|byte| *byte == b'a'), "round {round}");
            assert!(read[half..len].iter().all(|byte| *byte == b'a' || *byte == b'b'), "round {round}");
            assert!(read[len..half + len].iter().all(|byte| *byte == b'b'), "round {round}");
            assert!(read[half + len..].iter().all(|byte| *byte == b'-'), "round {round}");
        }
    });
}

#[test]
fn who_writes_to_the_current_object_reaches_the_first_strip_of_a_laid_out_file_only() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 2).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let object = file.attr.handle;
        let strip = file.attr.template.stuffed_max();
        client.change(vec![Op::Unstuff { object }]).await;
        for (at, status) in [(strip - 8, Status::Ok), (strip - 4, Status::StaleLayout)] {
            client.sequence += 1;
            let pattern = Pattern::contiguous(at as i64, 8).unwrap();
            let stream = Handle::CURRENT;
            let transfer = Transfer { stream, capability: None, pattern, ..file.transfer(0, 8) };
            let ops = vec![Op::Open { object, rights: Rights::WRITE }, Op::Write { transfer, len: 8 }];
            client.send(Some(slot(0, client.sequence)), vec![ops], Bytes::from_static(b"eight...")).await;
            assert_eq!(client.reply().await.1[0].status, status, "at {at}");
        }
    });
}

#[test]
fn an_append_whose_server_is_killed_before_its_answer_may_be_done_twice_but_whole() {
    run(|env| async move {
        let (mut cluster, held) = held(&env).await;
        let mut client = cluster.client(0).await;
        let file = File::new(&mut client).await;
        let append = |client: &mut Raw| {
            let (object, capability) = (file.attr.handle, file.capability);
            client.sequence = 2;
            vec![vec![Op::Append { object, capability, len: 30_000, laid_out: true }]]
        };
        held.stalls.set(1);
        let groups = append(&mut client);
        client.send(Some(slot(0, 2)), groups, vec![b'x'; 30_000].into()).await;
        until(&env, || held.done.get() == 1).await;
        // The bytes are there; the record with the answer is not.
        cluster.kill(0);
        cluster.start(0).await;
        let again = Wish { session: Some(client.attached.session), ..Wish::default() };
        let mut client = Raw::attach(&cluster, 0, again).await.unwrap();
        let groups = append(&mut client);
        client.send(Some(slot(0, 2)), groups, vec![b'x'; 30_000].into()).await;
        let (_, replies, _) = client.reply().await;
        let Some(Answer::Appended { offset, size }) = replies[0].answers.first() else {
            panic!("{replies:?}")
        };
        assert_eq!((*offset, *size), (30_000, 60_000), "what was answered is one of the two");
        assert!(file.read(&mut client, 100_000).await == vec![b'x'; 60_000]);
    });
}
