//! Directories that split by themselves, over the wire: when, the answers to clients, and the operations that
//! stop meanwhile.

use crate::raw::{Cluster, Raw, create, handle_of, lookup, mkdir, name, run, slot, unlink, until};
use shoal_env::Env;
use shoal_proto::{Answer, GroupReply, Handle, Op, ServerId, Shards, Status};
use shoal_server::Settings;
use std::time::Duration;

const ROOT: Handle = Handle::ROOT;
const AT: u32 = 12;

async fn cluster(env: &Env, servers: u16) -> Cluster {
    Cluster::of(env, servers, Settings::default(), |map| map.switches.split_entries = AT).await
}

async fn fill(client: &mut Raw, from: u32, to: u32) {
    for n in from..to {
        let made = client.change(vec![create(ROOT, &name(&format!("f{n}")))]).await;
        assert!(matches!(made.status, Status::Ok | Status::Split), "{made:?}");
    }
}

fn splits(cluster: &Cluster) -> u64 {
    cluster.shard(0).counters.splits.get()
}

fn place(cluster: &Cluster, text: &str) -> u64 {
    cluster.shard(0).identity().place_of(text.as_bytes())
}

fn told(reply: &GroupReply) -> Shards {
    assert_eq!(reply.status, Status::Split);
    match reply.answers.last() {
        Some(Answer::Split { dir: ROOT, shards, .. }) => shards.clone(),
        other => panic!("{other:?}"),
    }
}

fn of_server(cluster: &Cluster, shards: &Shards, server: u16, stem: &str) -> String {
    let mut texts = (0..500).map(|n| format!("{stem}{n}"));
    texts.find(|text| shards.server_of(place(cluster, text)) == Some(ServerId(server))).unwrap()
}

#[test]
fn a_directory_splits_when_it_has_grown_and_who_comes_by_the_old_way_is_sent_on() {
    run(|env| async move {
        let cluster = cluster(&env, 3).await;
        let mut client = cluster.client(0).await;
        fill(&mut client, 0, AT - 1).await;
        assert_eq!(client.ask(vec![lookup(ROOT, &name("f1"))]).await.status, Status::Ok, "it is whole");
        fill(&mut client, AT - 1, AT).await;
        until(&env, || splits(&cluster) == 1).await;
        // Every name is where it was, and where it is said to be.
        let shards = Shards::over([ServerId(0), ServerId(1), ServerId(2)]);
        let mut clients = [client, cluster.client(1).await, cluster.client(2).await];
        for n in 0..AT {
            let text = format!("f{n}");
            let right = shards.server_of(place(&cluster, &text)).unwrap();
            for (server, client) in (0..).map(ServerId).zip(&mut clients) {
                let reply = client.ask(vec![lookup(ROOT, &name(&text))]).await;
                match server == right {
                    true => assert_eq!(handle_of(&reply).server(), ServerId(0), "objects stay"),
                    false => assert_eq!(told(&reply), shards),
                }
            }
        }
        // One message makes a file in its shard, and removes it.
        let new = name(&of_server(&cluster, &shards, 2, "new"));
        assert_eq!(handle_of(&clients[2].change(vec![create(ROOT, &new)]).await).server(), ServerId(2));
        assert_eq!(clients[2].change(vec![unlink(ROOT, &new)]).await.status, Status::Ok);
        // More entries, and it does not split again.
        for client in &mut clients {
            fill(client, 100, 140).await;
        }
        env.sleep(Duration::from_millis(20)).await;
        assert_eq!(splits(&cluster), 1);
    });
}

#[test]
fn a_retry_of_what_was_done_before_the_split_is_answered_as_then() {
    run(|env| async move {
        let cluster = cluster(&env, 2).await;
        let mut client = cluster.client(0).await;
        fill(&mut client, 0, AT - 1).await;
        let shards = Shards::over([ServerId(0), ServerId(1)]);
        let last = name(&of_server(&cluster, &shards, 1, "last"));
        let made = client.change_in(slot(1, 1), vec![create(ROOT, &last)]).await;
        until(&env, || splits(&cluster) == 1).await;
        let again = client.change_in(slot(1, 1), vec![create(ROOT, &last)]).await;
        assert_eq!(handle_of(&made), handle_of(&again), "the slot is looked up before the way");
        assert_eq!(told(&client.change_in(slot(1, 2), vec![create(ROOT, &last)]).await), shards);
    });
}

#[test]
fn while_a_server_is_away_a_directory_stays_whole_and_usable_and_splits_when_it_is_back() {
    run(|env| async move {
        let mut cluster = cluster(&env, 2).await;
        cluster.kill(1);
        let mut client = cluster.client(0).await;
        let began = env.now();
        fill(&mut client, 0, 3 * AT).await;
        assert!(env.now().since(began) < Duration::from_millis(900), "nobody waits for the other server");
        until(&env, || cluster.shard(0).counters.splits_given_up.get() > 0).await;
        assert_eq!(splits(&cluster), 0);
        cluster.start(1).await;
        let mut n = 1000;
        while splits(&cluster) == 0 {
            fill(&mut client, n, n + 1).await;
            n += 1;
            env.sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_split_that_was_decided_is_finished_after_a_restart_of_its_servers() {
    run(|env| async move {
        let mut cluster = cluster(&env, 2).await;
        let mut client = cluster.client(0).await;
        fill(&mut client, 0, AT).await;
        until(&env, || splits(&cluster) == 1).await;
        for server in [1, 0] {
            cluster.kill(server);
            cluster.start(server).await;
        }
        let shards = Shards::over([ServerId(0), ServerId(1)]);
        let mut clients = [cluster.client(0).await, cluster.client(1).await];
        for n in 0..AT {
            let text = format!("f{n}");
            let right = shards.index_of(place(&cluster, &text));
            assert_eq!(clients[right].ask(vec![lookup(ROOT, &name(&text))]).await.status, Status::Ok);
            assert_eq!(told(&clients[1 - right].ask(vec![lookup(ROOT, &name(&text))]).await), shards);
        }
    });
}

#[test]
fn only_a_server_splits_a_directory() {
    run(|env| async move {
        let cluster = cluster(&env, 2).await;
        let mut client = cluster.client(0).await;
        let split = Op::Split { dir: ROOT, entries: 1 };
        assert_eq!(client.change(vec![split]).await.status, Status::Forbidden);
        assert_eq!(client.change(vec![mkdir(ROOT, &name("d"))]).await.status, Status::Ok);
    });
}
