//! Locks of files: over clients, leases and restarts.

use crate::raw::*;
use shoal_env::Env;
use shoal_proto::{
    Answer, ClientId, Dist, Generation, Handle, LockClaim, LockKind, LockOwner, LockRange, LockState, Op,
    Rights, ServerId, SessionId, Status, Template,
};
use shoal_server::{Settings, keys};
use std::time::Duration;

const LEASE: Duration = Duration::from_millis(1200);
const WAIT_MS: u32 = 5_000;

async fn servers(env: &Env, count: u16) -> Cluster {
    Cluster::with(env, count, Settings { lease: LEASE, ..Settings::default() }).await
}

async fn client(cluster: &Cluster, id: u8) -> Raw {
    Raw::attach(cluster, 0, Wish { client: ClientId([id; 16]), ..Wish::default() }).await.unwrap()
}

async fn again(cluster: &Cluster, id: u8, session: SessionId) -> Raw {
    let wish = Wish { client: ClientId([id; 16]), session: Some(session), ..Wish::default() };
    Raw::attach(cluster, 0, wish).await.unwrap()
}

async fn file(client: &mut Raw) -> Handle {
    handle_of(&client.change(vec![create(Handle::ROOT, &name("file"))]).await)
}

fn lock(object: Handle, kind: LockKind, call: u64, wait: bool) -> Op {
    let (owner, range) = (LockOwner(5), LockRange { first: 0, last: 9 });
    Op::Lock { object, owner, range, kind, pid: 77, call, wait, wait_ms: if wait { WAIT_MS } else { 0 } }
}

async fn state(client: &mut Raw, op: Op) -> Result<LockState, Status> {
    let reply = client.ask(vec![op]).await;
    match reply.answers[..] {
        [Answer::Locked { state }] => Ok(state),
        _ => Err(reply.status),
    }
}

async fn locks(client: &mut Raw, object: Handle, kind: LockKind, call: u64) -> Result<LockState, Status> {
    state(client, lock(object, kind, call, false)).await
}

async fn unlock(client: &mut Raw, object: Handle) {
    let unlock = Op::Unlock { object, owner: LockOwner(5), range: LockRange::ALL };
    assert_eq!(client.ask(vec![unlock]).await.status, Status::Ok);
}

async fn claim(client: &mut Raw, object: Handle) -> usize {
    let range = LockRange { first: 0, last: 9 };
    let claim = LockClaim { object, owner: LockOwner(5), range, kind: LockKind::Exclusive, pid: 77 };
    let reply = client.ask(vec![Op::Reclaim { claims: vec![claim].into(), last: true }]).await;
    match &reply.answers[..] {
        [Answer::Claimed { refused }] => refused.len(),
        _ => panic!("{reply:?}"),
    }
}

use LockKind::{Exclusive, Shared};
use LockState::{Granted, Queued, Refused};

#[test]
fn a_lock_excludes_other_clients_and_a_wait_for_it_is_answered_when_it_is_given_back() {
    run(|env| async move {
        let cluster = servers(&env, 1).await;
        let (mut one, mut other) = (client(&cluster, 1).await, client(&cluster, 2).await);
        let file = file(&mut one).await;
        assert_eq!(locks(&mut one, file, Exclusive, 1).await, Ok(Granted));
        assert_eq!(locks(&mut one, file, Exclusive, 1).await, Ok(Granted), "a request that is repeated");
        assert_eq!(locks(&mut other, file, Shared, 1).await, Ok(Refused));
        let range = LockRange::ALL;
        let seen =
            other.ask(vec![Op::Getlk { object: file, owner: LockOwner(5), range, kind: Shared }]).await;
        let [Answer::Holder { holder: Some(holder) }] = &seen.answers[..] else { panic!("{seen:?}") };
        assert_eq!((holder.client, holder.pid, holder.range.last), (ClientId([1; 16]), 77, 9));
        let tag = other.send(None, vec![vec![lock(file, Exclusive, 2, true)]], bytes::Bytes::new()).await;
        env.sleep(Duration::from_millis(50)).await;
        unlock(&mut one, file).await;
        let (replied, groups, _) = other.reply().await;
        assert_eq!(replied, tag);
        assert!(matches!(groups[0].answers[..], [Answer::Locked { state: Granted }]), "{groups:?}");
        assert_eq!(locks(&mut one, file, Shared, 2).await, Ok(Refused));
    });
}

#[test]
fn a_wait_that_ends_keeps_its_place_until_it_is_taken_back() {
    run(|env| async move {
        let cluster = servers(&env, 1).await;
        let (mut one, mut other) = (client(&cluster, 1).await, client(&cluster, 2).await);
        let file = file(&mut one).await;
        assert_eq!(locks(&mut one, file, Exclusive, 1).await, Ok(Granted));
        let short = |call| match lock(file, Exclusive, call, true) {
            Op::Lock { object, owner, range, kind, pid, call, wait, .. } => {
                Op::Lock { object, owner, range, kind, pid, call, wait, wait_ms: 10 }
            }
            op => op,
        };
        assert_eq!(state(&mut other, short(1)).await, Ok(Queued));
        unlock(&mut one, file).await;
        assert_eq!(locks(&mut one, file, Shared, 2).await, Ok(Refused), "it was granted to the place");
        let unwait = |call| {
            let range = LockRange { first: 0, last: 9 };
            Op::Unwait { object: file, owner: LockOwner(5), range, kind: Exclusive, call }
        };
        assert_eq!(state(&mut other, unwait(1)).await, Ok(Granted), "granted before it was taken back");
        unlock(&mut other, file).await;
        assert_eq!(locks(&mut one, file, Exclusive, 3).await, Ok(Granted));
        assert_eq!(state(&mut other, short(2)).await, Ok(Queued));
        assert_eq!(state(&mut other, unwait(2)).await, Ok(Refused));
        unlock(&mut one, file).await;
        assert_eq!(locks(&mut one, file, Exclusive, 4).await, Ok(Granted));
        // Whatever comes late of a call that was taken back.
        assert_eq!(state(&mut other, short(2)).await, Ok(Refused));
    });
}

#[test]
fn a_lock_of_a_file_that_is_gone_of_a_directory_of_no_bytes_and_of_a_server_is_refused() {
    run(|env| async move {
        let cluster = servers(&env, 1).await;
        let mut one = client(&cluster, 1).await;
        let file = file(&mut one).await;
        one.change(vec![unlink(Handle::ROOT, &name("file"))]).await;
        assert_eq!(locks(&mut one, file, Shared, 1).await, Err(Status::Stale));
        assert_eq!(locks(&mut one, Handle::ROOT, Shared, 1).await, Err(Status::Invalid));
        let (owner, range) = (LockOwner(1), LockRange { first: 5, last: 4 });
        let empty =
            Op::Lock { object: file, owner, range, kind: Shared, pid: 1, call: 2, wait: false, wait_ms: 0 };
        assert_eq!(state(&mut one, empty).await, Err(Status::Invalid));
        let elsewhere = Handle::new(ServerId(7), 99);
        assert_eq!(locks(&mut one, elsewhere, Shared, 1).await, Err(Status::WrongServer));
        let fence = one.change(vec![Op::Fence { object: file }]).await;
        assert_eq!(fence.status, Status::Forbidden);
    });
}

#[test]
fn the_locks_of_a_client_that_is_silent_for_a_lease_go_to_those_that_wait() {
    run(|env| async move {
        let cluster = servers(&env, 1).await;
        let (mut one, mut other) = (client(&cluster, 1).await, client(&cluster, 2).await);
        let file = file(&mut one).await;
        assert_eq!(locks(&mut one, file, Exclusive, 1).await, Ok(Granted));
        let begun = env.now();
        let mut number = 1;
        while locks(&mut other, file, Exclusive, number).await != Ok(Granted) {
            number += 1;
            env.sleep(LEASE / 20).await;
            assert!(env.now().since(begun) < LEASE * 2, "it is never free");
        }
        assert!(env.now().since(begun) >= LEASE, "before the lease had ended");
        until(&env, || cluster.shard(0).file_locks.totals() == (1, 0)).await;
    });
}

#[test]
fn after_a_restart_a_client_that_had_locks_claims_them_and_the_others_wait_for_that() {
    run(|env| async move {
        let mut cluster = servers(&env, 1).await;
        let (mut one, other) = (client(&cluster, 1).await, client(&cluster, 2).await);
        let file = file(&mut one).await;
        assert_eq!(locks(&mut one, file, Exclusive, 1).await, Ok(Granted));
        let (first, second) = (one.attached.session, other.attached.session);
        cluster.kill(0);
        cluster.start(0).await;
        let (mut one, mut other) = (again(&cluster, 1, first).await, again(&cluster, 2, second).await);
        assert_eq!(locks(&mut other, file, Shared, 1).await, Err(Status::Unavailable));
        assert_eq!(claim(&mut other, file).await, 1, "it had none");
        assert_eq!(claim(&mut one, file).await, 0);
        assert_eq!(locks(&mut other, file, Shared, 2).await, Ok(Refused));
        assert_eq!(claim(&mut one, file).await, 0, "on each new connection");
        unlock(&mut one, file).await;
        assert_eq!(locks(&mut other, file, Shared, 3).await, Ok(Granted));
        assert_eq!(claim(&mut one, file).await, 1, "another has it by now");
    });
}

#[test]
fn a_client_that_does_not_claim_within_a_lease_has_lost_its_locks_and_its_session() {
    run(|env| async move {
        let mut cluster = servers(&env, 1).await;
        let (mut one, other) = (client(&cluster, 1).await, client(&cluster, 2).await);
        let file = file(&mut one).await;
        assert_eq!(locks(&mut one, file, Exclusive, 1).await, Ok(Granted));
        let (first, second) = (one.attached.session, other.attached.session);
        cluster.kill(0);
        cluster.start(0).await;
        let begun = env.now();
        let mut other = again(&cluster, 2, second).await;
        let mut call = 1;
        // It asks again and again, so that its own lease goes on.
        while locks(&mut other, file, Exclusive, call).await != Ok(Granted) {
            call += 1;
            env.sleep(LEASE / 20).await;
            assert!(env.now().since(begun) < LEASE * 4, "it is never free");
        }
        assert!(env.now().since(begun) >= LEASE * 9 / 10, "before the lease had ended");
        let wish = Wish { client: ClientId([1; 16]), session: Some(first), ..Wish::default() };
        let refused = Raw::attach(&cluster, 0, wish).await.err().map(|refusal| refusal.status);
        assert_eq!(refused, Some(Status::NoSession));
    });
}

#[test]
fn the_row_of_a_client_with_locks_is_made_with_its_first_and_goes_after_its_last() {
    run(|env| async move {
        let cluster = servers(&env, 1).await;
        let mut one = client(&cluster, 1).await;
        let file = file(&mut one).await;
        let (store, key) = (cluster.stores[0].clone(), keys::locker(ClientId([1; 16])));
        let is_there = || !matches!(store.lookup(&key, &Default::default()), shoal_store::Lookup::Absent(_));
        assert!(!is_there());
        assert_eq!(locks(&mut one, file, Shared, 1).await, Ok(Granted));
        assert!(is_there());
        unlock(&mut one, file).await;
        let begun = env.now();
        while is_there() {
            one.ask(vec![Op::Ping {}]).await;
            env.sleep(LEASE / 10).await;
            assert!(env.now().since(begun) < LEASE * 2, "it stays");
        }
        assert_eq!(locks(&mut one, file, Shared, 2).await, Ok(Granted));
        assert!(is_there());
    });
}

fn has_row(cluster: &Cluster, id: u8) -> bool {
    let key = keys::locker(ClientId([id; 16]));
    !matches!(cluster.stores[0].lookup(&key, &Default::default()), shoal_store::Lookup::Absent(_))
}

#[test]
fn the_row_of_a_client_goes_soon_after_its_connection_unless_it_has_a_lock_or_comes_back() {
    run(|env| async move {
        let cluster = Cluster::new(&env, 1).await;
        let mut all = Vec::new();
        for id in 1..=3 {
            all.push(client(&cluster, id).await);
        }
        let file = file(&mut all[0]).await;
        for client in &mut all {
            assert_eq!(locks(client, file, Shared, 1).await, Ok(Granted));
        }
        unlock(&mut all[0], file).await;
        unlock(&mut all[2], file).await;
        let back = all[2].attached.session;
        drop(all);
        let _back = again(&cluster, 3, back).await;
        until(&env, || !has_row(&cluster, 1)).await;
        env.sleep(Duration::from_millis(500)).await;
        assert!(has_row(&cluster, 2), "it has a lock, until its lease ends");
        assert!(has_row(&cluster, 3), "it is back");
    });
}

#[test]
fn a_clean_stop_leaves_rows_of_clients_with_locks_alone() {
    run(|env| async move {
        let mut cluster = Cluster::new(&env, 1).await;
        let (mut one, mut other) = (client(&cluster, 1).await, client(&cluster, 2).await);
        let file = file(&mut one).await;
        assert_eq!(locks(&mut one, file, Exclusive, 1).await, Ok(Granted));
        unlock(&mut one, file).await;
        assert_eq!(locks(&mut other, file, Shared, 1).await, Ok(Granted));
        assert!(has_row(&cluster, 1) && has_row(&cluster, 2));
        cluster.servers[0].take().unwrap().stop().await.unwrap();
        assert!(!has_row(&cluster, 1), "it gave its lock back");
        assert!(has_row(&cluster, 2), "it claims its lock");
    });
}

#[test]
fn a_lost_exclusive_lock_begins_a_generation_on_all_datafiles_before_another_has_it() {
    run(|env| async move {
        let cluster = servers(&env, 2).await;
        let (mut one, mut other) = (client(&cluster, 1).await, client(&cluster, 2).await);
        let template = Template { dist: Dist::SimpleStripe { strip: 65_536 }, width: 2 };
        let made = Op::Create {
            dir: Handle::ROOT,
            name: name("file"),
            owner: shoal_proto::Owner { mode: 0o644, uid: 0, gid: 0 },
            exclusive: true,
            open: Rights::WRITE,
            template: Some(template),
        };
        let file = handle_of(&one.change(vec![made]).await);
        assert_eq!(one.change(vec![Op::Unstuff { object: file }]).await.status, Status::Ok);
        let generation = async |client: &mut Raw| {
            let reply = client.ask(vec![Op::Getattr { object: file }]).await;
            let [Answer::Attr { attr, .. }] = &reply.answers[..] else { panic!("{reply:?}") };
            (attr.generation, attr.layout.clone().unwrap().datafiles)
        };
        let (before, datafiles) = generation(&mut other).await;
        for (kind, advances) in [(Shared, 0), (Exclusive, 1)] {
            let mut lost = client(&cluster, 7 + advances as u8).await;
            assert_eq!(locks(&mut lost, file, kind, 1).await, Ok(Granted));
            let mut number = 10;
            while locks(&mut other, file, Exclusive, number).await != Ok(Granted) {
                number += 1;
                env.sleep(LEASE / 20).await;
            }
            unlock(&mut other, file).await;
            let (now, _) = generation(&mut other).await;
            assert_eq!(now, Generation(before.0 + advances), "{kind:?}");
        }
        let on_other = datafiles.iter().find(|datafile| datafile.server() == ServerId(1)).unwrap();
        let mut second = Raw::attach(&cluster, 1, Wish::default()).await.unwrap();
        let facts = second.ask(vec![Op::Streamstat { stream: *on_other }]).await;
        let [Answer::Facts { facts, .. }] = &facts.answers[..] else { panic!("{facts:?}") };
        assert_eq!(facts.generation, Generation(before.0 + 1));
    });
}
