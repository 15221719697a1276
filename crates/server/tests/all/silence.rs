//! A server that does not answer the others.

use crate::raw;
use crate::raw::{Cluster, mkdir, name};
use shoal_env::sim::{Config, World};
use shoal_proto::{Answer, Handle, ServerId, Status};
use std::time::Duration;

#[test]
fn new_directories_go_to_other_servers_while_one_does_not_answer_and_to_it_when_it_does() {
    let world = World::new(5, Config::default());
    let machine = world.machine("m");
    let process = world.process("all", machine);
    world.complete(process, |env| async move {
        let away = ServerId(2);
        let mut cluster = Cluster::new(&env, 3).await;
        let mut client = cluster.client(0).await;
        let mut made = 0;
        // How long it took, and on which server it lies.
        let mut make = async |client: &mut raw::Raw| {
            made += 1;
            let begun = env.now();
            let reply = client.change(vec![mkdir(Handle::ROOT, &name(&format!("d{made}")))]).await;
            let at = match reply.answers.first() {
                Some(Answer::Made { attr, .. }) if reply.status == Status::Ok => Some(attr.handle.server()),
                _ => None,
            };
            (env.now().since(begun), at)
        };
        cluster.kill(2);
        let mut waited = 0;
        for _ in 0..40 {
            let (took, at) = make(&mut client).await;
            assert_ne!(at, Some(away));
            waited += u32::from(at.is_none() || took > Duration::from_secs(1));
        }
        assert!(waited <= 1, "{waited} directories waited for it");
        cluster.start(2).await;
        env.sleep(Duration::from_secs(10)).await;
        let mut there = 0;
        for _ in 0..12 {
            there += u32::from(make(&mut client).await.1 == Some(away));
        }
        assert!(there >= 3, "{there} of 12");
    });
}
