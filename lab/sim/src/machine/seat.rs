//! The seat of an application process in a simulated cluster: its client and its clock, and the barrier of
//! all processes.

use shoal_client::Client;
use shoal_env::local::Notify;
use shoal_env::{Env, Instant};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// One application process.
pub struct Seat {
    /// Its world: clock, sleep.
    pub env: Env,
    /// The client of its node, shared with the node's other processes.
    pub client: Client,
    /// Its number, from 0 on.
    pub index: u32,
    /// How many there are.
    pub of: u32,
    /// Where all of them meet.
    pub together: Barrier,
    pub(super) forwarding: Duration,
}

impl Seat {
    /// A call of the application: on machines whose nodes forward calls it travels to its client and back
    /// (half of the round trip each way); elsewhere it costs nothing. A body that calls its client without
    /// this leaves that travel out.
    pub async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        if self.forwarding.is_zero() {
            return call.await;
        }
        self.env.sleep(self.forwarding / 2).await;
        let value = call.await;
        self.env.sleep(self.forwarding / 2).await;
        value
    }
}

impl Seat {
    /// Meet all others; the moment when the last one came. An application's process on a computer of its own
    /// continues at that moment, whatever the client that it shares with others does meanwhile.
    pub async fn meet(&self) -> Instant {
        let moment = self.together.0.moment.borrow().clone();
        moment.set(moment.get().max(self.env.now()));
        self.together.wait().await;
        moment.get()
    }
}

/// All processes meet here; it costs no simulated time.
#[derive(Clone)]
pub struct Barrier(Rc<Meeting>);

struct Meeting {
    of: u32,
    here: Cell<u32>,
    /// Of this time: when the last one came that has come so far. Some come for the next time before all have
    /// left.
    moment: RefCell<Rc<Cell<Instant>>>,
    all: Notify,
}

impl Barrier {
    /// For so many.
    pub fn new(of: u32) -> Barrier {
        Barrier(Rc::new(Meeting {
            of,
            here: Cell::new(0),
            moment: RefCell::default(),
            all: Notify::default(),
        }))
    }

    /// Wait until all are here; then it can be used again.
    pub async fn wait(&self) {
        let meeting = &self.0;
        meeting.here.set(meeting.here.get() + 1);
        if meeting.here.get() >= meeting.of {
            meeting.here.set(0);
            meeting.moment.take();
            return meeting.all.wake_all();
        }
        meeting.all.wait().await;
    }
}
