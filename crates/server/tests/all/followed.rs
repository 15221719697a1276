//! Layouts that clients follow: a client of an older version is refused what it could not read.

use crate::raw::*;
use shoal_proto::message::{VERSION_OF_FOLLOWED_LAYOUTS, VERSIONS};
use shoal_proto::op::Owner;
use shoal_proto::{Answer, ClientId, Dist, Handle, Op, Status, Template};

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
const LAYOUTS: [Dist; 2] = [Dist::Container { strip: 65_536 }, Dist::Composed { strip: 65_536 }];

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
