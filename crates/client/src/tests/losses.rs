//! A server loses a change. The next fsync of the changed object reports the loss once. The tests cover
//! changes of directories, attributes, data and layouts, and also the sync of the whole file system.

use crate::fake::{FakeCluster, Hand, OWNER, name};
use crate::{FileWrite, NewFile, Which};
use shoal_proto::{Durability, Handle, Rights, SetAttr, Status};

const STRIP: u64 = 4096;
const ROOT: Handle = Handle::ROOT;

/// Server 0 loses its memory.
fn forget(hand: &Hand) {
    hand.cluster.borrow_mut().loss[0] += 1;
}

fn io<T>(result: Result<T, crate::Error>) -> bool {
    match result {
        Ok(_) => false,
        Err(error) => error.status == Status::Io,
    }
}

#[test]
fn a_lost_change_of_an_entry_is_told_once_by_the_next_fsync_of_its_directory() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let object = hand.run(hand.client.mkdir(ROOT, &name("other"), OWNER)).unwrap().handle;
    hand.run(hand.client.fsync_directory(ROOT)).unwrap();
    let create = async |text: &str| {
        let made = hand.client.create(ROOT, &name(text), OWNER, true, Rights::READ, None).await;
        made.map(|(attr, ..)| attr.handle)
    };
    let file = hand.run(create("file")).unwrap();
    let changes: [(&str, &dyn Fn() -> bool); 6] = [
        ("create", &|| hand.run(create("created")).is_ok()),
        ("mkdir", &|| hand.run(hand.client.mkdir(ROOT, &name("dir"), OWNER)).is_ok()),
        ("link", &|| hand.run(hand.client.link(file, ROOT, &name("link"))).is_ok()),
        ("unlink", &|| hand.run(hand.client.unlink(ROOT, &name("link"))).is_ok()),
        ("setattr", &|| hand.run(hand.client.setattr(ROOT, SetAttr::default())).is_ok()),
        ("create_many", &|| {
            let files = ["a", "b"].map(|text| NewFile { dir: ROOT, name: name(text), data: "x".into() });
            hand.run(hand.client.create_many(files.to_vec(), OWNER, None)).iter().all(Result::is_ok)
        }),
    ];
    for (what, change) in changes {
        hand.run(hand.client.fsync_directory(ROOT)).unwrap();
        assert!(change(), "{what}");
        forget(&hand);
        assert!(!io(hand.run(hand.client.fsync_directory(object))), "{what}: another directory");
        assert!(io(hand.run(hand.client.fsync_directory(ROOT))), "{what}");
        hand.run(hand.client.fsync_directory(ROOT)).unwrap();
    }
}

#[test]
fn a_lost_change_of_a_file_through_no_open_file_is_told_by_the_next_fsync_of_it() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let data = |text: &'static str| bytes::Bytes::from(text);
    let made = hand.run(hand.client.create_write(ROOT, &name("file"), OWNER, data("first"), None)).unwrap();
    let object = made.handle;
    let fsync = || {
        let file = hand.run(hand.client.open(object, Rights::READ)).unwrap();
        io(hand.run(file.fsync()))
    };
    forget(&hand);
    assert!(fsync(), "what was written as it was made");
    assert!(!fsync());
    let piece = || FileWrite { which: Which::Entry(ROOT, name("file")), offset: 0, data: data("again") };
    let changes: [(&str, &dyn Fn() -> bool); 2] = [
        ("setattr", &|| hand.run(hand.client.setattr(object, SetAttr::default())).is_ok()),
        ("write_many", &|| hand.run(hand.client.write_many(vec![piece()], false)).iter().all(Result::is_ok)),
    ];
    for (what, change) in changes {
        assert!(change(), "{what}");
        forget(&hand);
        assert!(fsync(), "{what}");
        assert!(!fsync(), "{what}");
    }
}

#[test]
fn of_what_is_durable_when_it_is_answered_no_fsync_tells_that_it_is_lost() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    let client = hand.client.with_durability(Durability::Durable);
    let (.., file) = hand.run(client.create(ROOT, &name("file"), OWNER, true, Rights::WRITE, None)).unwrap();
    hand.run(file.write(0, "durable".into())).unwrap();
    hand.run(client.setattr(file.handle(), SetAttr::default())).unwrap();
    forget(&hand);
    hand.run(file.fsync()).unwrap();
    hand.run(client.fsync_directory(ROOT)).unwrap();
    hand.run(client.sync_all()).unwrap();
}

#[test]
fn a_kill_that_takes_the_share_of_an_append_at_another_server_is_found_by_the_next_fsync() {
    for asks in [Durability::Usual, Durability::Written, Durability::Unheld] {
        let hand = Hand::new(FakeCluster::new(2, STRIP));
        hand.cluster.borrow_mut().starts = vec![1; 2];
        let client = hand.client.with_durability(asks);
        let made = hand.run(client.create(ROOT, &name("file"), OWNER, true, Rights::WRITE, None));
        let file = made.unwrap().2;
        hand.run(file.write(0, vec![1; STRIP as usize + 1].into())).unwrap();
        hand.run(file.fsync()).unwrap();
        hand.run(file.append(vec![2; 100].into())).unwrap();
        hand.cluster.borrow_mut().starts[1] = 2;
        assert!(io(hand.run(file.fsync())), "{asks:?}");
        hand.run(file.fsync()).unwrap();
    }
}

#[test]
fn a_write_in_a_layout_that_is_taken_back_is_lost_and_the_next_fsync_says_so() {
    for relaid in [false, true] {
        let hand = Hand::new(FakeCluster::new(3, STRIP));
        let (name, both) = (name("f"), Rights::READ | Rights::WRITE);
        let file = hand.run(hand.client.create(ROOT, &name, OWNER, true, both, None)).unwrap().2;
        hand.run(file.write(0, vec![1; 10].into())).unwrap();
        hand.run(file.fsync()).unwrap();
        hand.cluster.borrow_mut().unstuff(file.handle());
        hand.advance(std::time::Duration::from_secs(1));
        let file = hand.run(hand.client.open(file.handle(), both)).unwrap();
        hand.run(file.write(STRIP, vec![2; 10].into())).unwrap();
        hand.cluster.borrow_mut().take_layout_back(file.handle());
        forget(&hand);
        if relaid {
            hand.cluster.borrow_mut().unstuff(file.handle());
        }
        let synced = hand.run(file.fsync());
        let found = hand.run(file.read(STRIP, 10)).unwrap();
        assert!(io(synced) || found == [2; 10][..], "relaid {relaid}: found {found:?}");
        hand.run(file.fsync()).unwrap();
    }
}

#[test]
fn a_write_in_a_layout_that_is_taken_back_is_lost_and_a_sync_of_all_says_so_once() {
    for (is_taken_back, relaid) in [(false, false), (true, false), (true, true)] {
        let hand = Hand::new(FakeCluster::new(3, STRIP));
        let (name, both) = (name("f"), Rights::READ | Rights::WRITE);
        let file = hand.run(hand.client.create(ROOT, &name, OWNER, true, both, None)).unwrap().2;
        hand.run(file.write(0, vec![1; 10].into())).unwrap();
        hand.run(hand.client.sync_all()).unwrap();
        hand.cluster.borrow_mut().unstuff(file.handle());
        hand.advance(std::time::Duration::from_secs(1));
        let file = hand.run(hand.client.open(file.handle(), both)).unwrap();
        hand.run(file.write(STRIP, vec![2; 10].into())).unwrap();
        if is_taken_back {
            hand.cluster.borrow_mut().take_layout_back(file.handle());
        }
        forget(&hand);
        if relaid {
            hand.cluster.borrow_mut().unstuff(file.handle());
        }
        assert_eq!(io(hand.run(hand.client.sync_all())), is_taken_back, "relaid {relaid}");
        hand.run(hand.client.sync_all()).unwrap();
    }
}

#[test]
fn a_sync_of_all_reaches_a_server_that_was_added() {
    let hand = Hand::new(FakeCluster::new(1, STRIP));
    hand.run(hand.client.ping(shoal_proto::ServerId(0))).unwrap();
    {
        let mut cluster = hand.cluster.borrow_mut();
        cluster.map = shoal_proto::ClusterMap { epoch: 2, ..FakeCluster::new(2, STRIP).map };
        cluster.loss.push(1);
    }
    hand.run(hand.client.sync_all()).unwrap();
    let log = hand.cluster.borrow().log.clone();
    assert!(log.contains(&(shoal_proto::ServerId(1), "sync")), "{log:?}");
}
