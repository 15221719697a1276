//! Seats (processes of a workload) on real servers. Each client node is a thread with a native client; the
//! node's application processes are tasks of the thread.
//!
//! All application processes of all threads share one barrier. A thread whose processes have reached the
//! barrier sleeps until the last process has reached it. A thread that panics breaks the barrier, so that the
//! others continue and the panic is reported.

use crate::seat::{Calls, Meet, Plan, Seat, Took, take};
use futures_util::future::join_all;
use shoal_client::{Client, Options};
use shoal_env::{Env, real};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The most client nodes of a real run: a thread each.
pub const CLIENTS_MAX: u16 = 256;

/// A barrier of processes in several threads.
#[derive(Clone)]
struct Barrier(Arc<Mutex<Waiting>>);

struct Waiting {
    of: u32,
    arrived: u32,
    round: u64,
    broken: bool,
    wakers: Vec<Waker>,
}

impl Waiting {
    fn release(&mut self) {
        self.arrived = 0;
        self.round += 1;
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Barrier {
    fn new(of: u32) -> Barrier {
        let waiting = Waiting { of, arrived: 0, round: 0, broken: false, wakers: Vec::new() };
        Barrier(Arc::new(Mutex::new(waiting)))
    }

    fn with<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn wait(&self) {
        let round = self.with(|waiting| {
            let round = waiting.round;
            waiting.arrived += 1;
            if waiting.arrived == waiting.of {
                waiting.release();
            }
            round
        });
        poll_fn(|context| {
            self.with(|waiting| {
                if waiting.broken || waiting.round != round {
                    return Poll::Ready(());
                }
                waiting.wakers.push(context.waker().clone());
                Poll::Pending
            })
        })
        .await;
    }

    fn meet(&self, env: &Env) -> Meet {
        let (barrier, env) = (self.clone(), env.clone());
        Rc::new(move || {
            let (barrier, env) = (barrier.clone(), env.clone());
            Box::pin(async move {
                barrier.wait().await;
                env.now().0
            })
        })
    }
}

/// Breaks the barrier where its thread panics.
struct Guard(Barrier);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.with(|waiting| {
                waiting.broken = true;
                waiting.release();
            });
        }
    }
}

/// Run a plan over a file system that is served.
///
/// # Errors
/// When a thread cannot be made, or ends by a panic. A failure within a process is in its [`Took`].
pub fn run(plan: &Plan, options: &Options) -> Result<Vec<Took>, String> {
    let (clients, of) = (plan.setting.clients, plan.setting.process_count());
    if clients > CLIENTS_MAX {
        return Err(format!("a real run has at most {CLIENTS_MAX} clients, not {clients}"));
    }
    let barrier = Barrier::new(of);
    let mut threads = Vec::new();
    for node in 0..u32::from(clients) {
        let (plan, barrier) = (plan.clone(), barrier.clone());
        let mut options = options.clone();
        let cache = Duration::from_millis(plan.setting.client_cache_ms);
        (options.name_cache, options.attr_cache) = (cache, cache);
        // Neighbours in number sit together, as in the simulator.
        let first = |node: u32| (u64::from(node) * u64::from(of) / u64::from(clients)) as u32;
        let indices: Vec<u32> = (first(node)..first(node + 1)).collect();
        let thread = real::spawn_thread(&format!("client-{node}"), move |env| async move {
            let _guard = Guard(barrier.clone());
            node_of(env, options, &plan, &barrier, indices, of).await
        });
        threads.push(thread.map_err(|error| format!("cannot start a thread for client {node}: {error}"))?);
    }
    let mut all: Vec<(u32, Took)> = Vec::new();
    let mut panicked = false;
    for thread in threads {
        match thread.join() {
            Ok(took) => all.extend(took),
            Err(_) => panicked = true,
        }
    }
    if panicked {
        return Err("a client panicked: this is a bug; its output is above".to_owned());
    }
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, took)| took).collect())
}

/// The processes of one client node.
async fn node_of(
    env: Env,
    options: Options,
    plan: &Plan,
    barrier: &Barrier,
    indices: Vec<u32>,
    of: u32,
) -> Vec<(u32, Took)> {
    let client = Client::connect(env.clone(), options).await.map_err(|error| error.to_string());
    let seats = indices.into_iter().map(|index| {
        let seat = Seat {
            env: env.clone(),
            vfs: client.clone(),
            index,
            of,
            meet: barrier.meet(&env),
            calls: Calls::Direct,
        };
        async move { (index, take(seat, plan).await) }
    });
    let took = join_all(seats).await;
    if let Ok(client) = client {
        client.close().await;
    }
    took
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn nobody_leaves_a_barrier_before_all_have_come_and_all_leave_it_again_and_again() {
        let (barrier, come) = (Barrier::new(4), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|at| {
                let (barrier, come) = (barrier.clone(), come.clone());
                let body = move |_: Env| async move {
                    let rounds = (0..2).map(|_| async {
                        for round in 1..=50 {
                            come.fetch_add(1, Ordering::SeqCst);
                            barrier.wait().await;
                            assert!(come.load(Ordering::SeqCst) >= 4 * round);
                            barrier.wait().await;
                        }
                    });
                    join_all(rounds).await;
                };
                real::spawn_thread(&format!("t{at}"), body).expect("a thread")
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(come.load(Ordering::SeqCst), 200);
    }

    #[test]
    fn who_panics_leaves_nobody_waiting() {
        let barrier = Barrier::new(2);
        let other = barrier.clone();
        let thread =
            real::spawn_thread("waits", move |_| async move { other.wait().await }).expect("a thread");
        let falls = real::spawn_thread("falls", move |_| async move {
            let _guard = Guard(barrier);
            panic!("on purpose");
        });
        assert!(falls.expect("a thread").join().is_err());
        thread.join().expect("it goes on");
    }
}
