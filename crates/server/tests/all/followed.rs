//! Tests of layouts that clients follow: a client of an older version is refused each operation whose result
//! it could not read.

use crate::raw::*;
use shoal_proto::message::{VERSION_OF_FOLLOWED_LAYOUTS, VERSIONS};
use shoal_proto::op::Owner;
use shoal_proto::{Answer, ClientId, Dist, Handle, Kind, Name, Op, Status, Template};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const LAYOUTS: [Dist; 2] = [Dist::Container { strip: 65_536 }, Dist::Composed { strip: 65_536 }];

fn moved(from: (Handle, &Name), to: (Handle, &Name)) -> Op {
    Op::Rename {
        from_dir: from.0,
        from_name: from.1.clone(),
        to_dir: to.0,
        to_name: to.1.clone(),
        no_replace: false,
        exchange: false,
        held: Default::default(),
    }
}

async fn entries(client: &mut Raw, dir: Handle) -> Vec<Name> {
    match &client.ask(vec![list(dir)]).await.answers[..] {
        [Answer::Entries { entries, .. }] => entries.iter().map(|entry| entry.name.clone()).collect(),
        other => panic!("{other:?} is no listing"),
    }
}

fn list(dir: Handle) -> Op {
    Op::Readdir { dir, after: None, bytes_max: 65_536, plus: true, data_max: 0, in_shard: false }
}

/// Whether the one entry of a listing has its attributes.
fn has_attributes(answers: &[Answer]) -> bool {
    match answers {
        [Answer::Entries { entries, .. }] => entries.iter().all(|entry| entry.attr.is_some()),
        other => panic!("{other:?} is no listing"),
    }
}

#[test]
fn a_client_that_does_not_know_a_layout_is_refused_its_directory_and_sees_the_name() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut new = cluster.client(0).await;
        let versions = (VERSIONS.0, VERSION_OF_FOLLOWED_LAYOUTS - 1);
        let wish = Wish { versions, client: ClientId([2; 16]), ..Wish::default() };
        let mut old = Raw::attach(&cluster, 0, wish).await.unwrap();
        for (dist, text) in LAYOUTS.into_iter().zip(["containers", "composed"]) {
            let mkdir = |dir, text: &str| Op::Mkdir { dir, name: name(text), owner: OWNER };
            let above = new.change(vec![mkdir(Handle::ROOT, &format!("above-{text}"))]).await;
            let [Answer::Made { attr: above, .. }] = &above.answers[..] else { panic!("{above:?}") };
            let made = new.change(vec![mkdir(above.handle, text)]).await;
            let [Answer::Made { attr: dir, .. }] = &made.answers[..] else { panic!("{made:?}") };
            let template = Template { dist, width: 0 };
            let set = new.change(vec![Op::Setlayout { object: dir.handle, template }]).await;
            assert_eq!(set.status, Status::Ok);
            let look = Op::Getattr { object: dir.handle };
            assert_eq!(new.ask(vec![look.clone()]).await.status, Status::Ok);
            assert!(has_attributes(&new.ask(vec![list(above.handle)]).await.answers));

            assert_eq!(old.ask(vec![look]).await.status, Status::NotSupported);
            let listed = old.ask(vec![list(above.handle)]).await;
            assert_eq!(listed.status, Status::Ok);
            assert!(!has_attributes(&listed.answers));
            // A change is refused whole.
            let refused = old.change(vec![mkdir(dir.handle, "below")]).await;
            assert_eq!(refused.status, Status::NotSupported);
            let within = new.ask(vec![list(dir.handle)]).await;
            assert!(matches!(&within.answers[..], [Answer::Entries { entries, .. }] if entries.is_empty()));
        }
    });
}

#[test]
fn a_repair_by_a_program_that_does_not_know_the_rows_is_refused() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let versions = (VERSIONS.0, VERSION_OF_FOLLOWED_LAYOUTS - 1);
        let wish = Wish { versions, client: ClientId([2; 16]), ..Wish::default() };
        let mut old = Raw::attach(&cluster, 0, wish).await.unwrap();
        let rows = Op::Rows { prefix: b"c"[..].into(), after: b""[..].into(), limit: 100 };
        let repair = Op::Repair { actions: Vec::new().into() };
        for (op, changes) in [(rows, false), (repair, true)] {
            let words = format!("{op:?}");
            let mut new = cluster.client(0).await;
            let (refused, allowed) = match changes {
                false => (old.ask(vec![op.clone()]).await, new.ask(vec![op]).await),
                true => (old.change(vec![op.clone()]).await, new.change(vec![op]).await),
            };
            assert_eq!((refused.status, allowed.status), (Status::NotSupported, Status::Ok), "{words}");
        }
    });
}

#[test]
fn no_operation_of_a_client_that_does_not_know_a_layout_reaches_the_objects_in_such_a_directory() {
    LAYOUTS.into_iter().for_each(|dist| run(move |env| refuses_the_old(env, dist)));
}

async fn refuses_the_old(env: shoal_env::Env, dist: Dist) {
    let cluster = Cluster::new(&env, 4).await;
    let mut new = Vec::new();
    let mut old = Vec::new();
    for server in 0..4 {
        new.push(cluster.client(server).await);
        let versions = (VERSIONS.0, VERSION_OF_FOLLOWED_LAYOUTS - 1);
        let wish = Wish { versions, client: ClientId([2; 16]), ..Wish::default() };
        old.push(Raw::attach(&cluster, server, wish).await.unwrap());
    }
    let (_, plain) = cluster.directory_on(&mut new[0], 1).await;
    let file = name("file");
    let object = handle_of(&new[1].change(vec![create(plain, &file)]).await);
    let (_, dir) = cluster.directory_on(&mut new[0], 2).await;
    let template = Template { dist, width: 0 };
    let set = new[2].change(vec![Op::Setlayout { object: dir, template }]).await;
    assert_eq!(set.status, Status::Ok);
    let log = name("log");
    handle_of(&new[2].change(vec![create(dir, &log)]).await);
    handle_of(&new[2].change(vec![mkdir(dir, &name("sub"))]).await);
    let further = name("further");
    let changes = [
        (2, create(dir, &further)),
        (2, mkdir(dir, &further)),
        (2, Op::Mknod { dir, name: further.clone(), owner: OWNER, kind: Kind::Fifo, rdev: 0 }),
        (2, Op::Link { object, dir, name: further.clone() }),
        (2, unlink(dir, &log)),
        (2, Op::Rmdir { dir, name: name("sub") }),
        (2, moved((dir, &log), (dir, &further))),
        (2, moved((plain, &file), (dir, &further))),
        (1, moved((dir, &log), (plain, &further))),
        (0, moved((dir, &log), (Handle::ROOT, &further))),
    ];
    for (server, op) in changes {
        let words = format!("{op:?}");
        let refused = old[server].change(vec![op]).await;
        assert_eq!(refused.status, Status::NotSupported, "{words}");
    }
    for op in [lookup(dir, &log), list(dir), entry(dir, &log)] {
        let words = format!("{op:?}");
        assert_eq!(old[2].ask(vec![op]).await.status, Status::NotSupported, "{words}");
    }
    assert_eq!(entries(&mut new[2], dir).await.len(), 2);
    assert_eq!(entries(&mut new[1], plain).await, std::slice::from_ref(&file));
    // Outside of such directories it is served.
    let made = old[1].change(vec![create(plain, &name("by-the-old-one"))]).await;
    assert_eq!(made.status, Status::Ok);
}

#[test]
fn no_forked_file_is_made_in_a_directory_whose_layout_clients_follow_or_in_place_of_one() {
    LAYOUTS.into_iter().for_each(|dist| run(move |env| refuses_forked_files(env, dist)));
}

async fn refuses_forked_files(env: shoal_env::Env, dist: Dist) {
    let cluster = Cluster::new(&env, 4).await;
    let mut root = cluster.client(0).await;
    let mut there = cluster.client(2).await;
    let (text, dir) = cluster.directory_on(&mut root, 2).await;
    let template = Template { dist, width: 0 };
    let set = there.change(vec![Op::Setlayout { object: dir, template }]).await;
    assert_eq!(set.status, Status::Ok);
    let forked = |dir, name: &Name, replace| Op::Mkforked {
        dir,
        name: name.clone(),
        owner: OWNER,
        subfiles: 2,
        servers: Vec::new().into(),
        replace,
    };
    let refused = there.change(vec![forked(dir, &name("forked"), false)]).await;
    assert_eq!(refused.status, Status::NotPermitted);
    let refused = root.change(vec![forked(Handle::ROOT, &text, true)]).await;
    assert_eq!(refused.status, Status::NotPermitted);
    assert!(entries(&mut there, dir).await.is_empty());
    assert_eq!(handle_of(&root.ask(vec![lookup(Handle::ROOT, &text)]).await), dir);
}
