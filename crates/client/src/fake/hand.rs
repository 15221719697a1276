//! The hand that drives a core: it carries requests and replies, and turns the clock.

use super::{COLLECTION, FS_ID, FakeCluster, KEY};
use crate::core::Core;
use crate::session::Outgoing;
use crate::world::World;
use crate::{Client, Options};
use bytes::{Bytes, BytesMut};
use futures_util::task::noop_waker;
use shoal_env::{Instant, WallTime};
use shoal_proto::message::{Attached, Reply, Request};
use shoal_proto::{ClientId, Frame, FrameKind, ServerId, SessionId};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

#[derive(Default)]
struct Clock {
    now: Cell<u64>,
    wake: Cell<Option<Instant>>,
    chance: Cell<u64>,
    /// Times that there was said to be something to send.
    outgoing: Cell<u64>,
}

struct HandWorld(Rc<Clock>);

impl World for HandWorld {
    fn now(&self) -> Instant {
        Instant(self.0.now.get())
    }
    fn wall(&self) -> WallTime {
        WallTime(self.0.now.get() as i64)
    }
    fn random_u64(&self) -> u64 {
        self.0.chance.set(self.0.chance.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        self.0.chance.get() >> 11
    }
    fn outgoing(&self, _server: ServerId) {
        self.0.outgoing.set(self.0.outgoing.get() + 1);
    }
    fn silent(&self, _server: ServerId) {}
    fn wake_at(&self, at: Instant) {
        let wake = self.0.wake.get().map_or(at, |set| set.min(at));
        self.0.wake.set(Some(wake));
    }
}

/// See the module's page.
pub(crate) struct Hand {
    pub(crate) core: Rc<Core>,
    pub(crate) client: Client,
    pub(crate) cluster: RefCell<FakeCluster>,
    clock: Rc<Clock>,
    /// Which requests are lost on their way, and which replies: called for each with a number.
    pub(crate) loses: RefCell<Box<dyn FnMut() -> Lost>>,
    pub(crate) session: Cell<u64>,
    pub(crate) attached: RefCell<Attached>,
}

/// The fate of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    Nothing,
    /// The connection is lost before the server reads it.
    Request,
    /// The connection is lost after its execution.
    Reply,
}

impl Hand {
    pub(crate) fn new(cluster: FakeCluster) -> Hand {
        Hand::with(cluster, |_| {})
    }

    pub(crate) fn with(cluster: FakeCluster, change: impl FnOnce(&mut Options)) -> Hand {
        let clock = Rc::new(Clock::default());
        clock.now.set(1_000_000_000);
        let mut options = Options::new(Vec::new(), KEY, FS_ID, COLLECTION);
        options.eager_bytes = 1000;
        change(&mut options);
        let core =
            Core::new(Box::new(HandWorld(clock.clone())), options, ClientId([1; 16]), cluster.map.clone());
        Hand {
            client: Client::over(core.clone()),
            core,
            cluster: RefCell::new(cluster),
            clock,
            loses: RefCell::new(Box::new(|| Lost::Nothing)),
            session: Cell::new(50),
            attached: RefCell::new(Attached {
                session: SessionId(0),
                slots: 4,
                lease_ms: 30_000,
                credit_bytes: 1 << 20,
                eager_bytes: 1 << 20,
                map_epoch: 1,
                loss: 1,
            }),
        }
    }

    /// Times that the core said that there is something to send.
    pub(crate) fn outgoing(&self) -> u64 {
        self.clock.outgoing.get()
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(self.clock.now.get())
    }

    pub(crate) fn advance(&self, span: Duration) {
        self.clock.now.set(self.clock.now.get() + span.as_nanos() as u64);
        self.core.tick(Instant(self.clock.now.get()));
    }

    /// Let the server's connection stand, with its present session or a new one.
    pub(crate) fn attach(&self, server: ServerId) {
        let session = self.core.attach_id(server).unwrap_or_else(|| {
            self.session.set(self.session.get() + 1);
            SessionId(self.session.get())
        });
        self.core.attached(server, &Attached { session, ..self.attached.borrow().clone() }, 1, None);
    }

    /// The requests that go to a server now.
    pub(crate) fn take(&self, server: ServerId) -> Vec<(u64, Request, Bytes)> {
        let mut requests = Vec::new();
        let mut out = Outgoing::default();
        while self.core.take(server, &mut out) {
            let mut stream = BytesMut::new();
            let mut from = 0;
            for (at, bulk) in &out.bulks {
                stream.extend_from_slice(&out.bytes[from..*at]);
                bulk.iter().for_each(|part| stream.extend_from_slice(part));
                from = *at;
            }
            stream.extend_from_slice(&out.bytes[from..]);
            while let Some(frame) = Frame::take(&mut stream).unwrap() {
                match frame.kind {
                    FrameKind::Request => requests.push((frame.tag, frame.message().unwrap(), frame.bulk)),
                    // The end of a read, of which nothing is under way here; a part of a write.
                    kind => assert!(matches!(kind, FrameKind::Leave | FrameKind::Give)),
                }
            }
        }
        requests
    }

    pub(crate) fn reply(&self, server: ServerId, tag: u64, reply: Reply, bulk: Bytes) -> Result<(), String> {
        self.core.replied(server, tag, reply, bulk)
    }

    fn servers(&self) -> impl Iterator<Item = ServerId> {
        (0..self.cluster.borrow().map.servers.len() as u16).map(ServerId)
    }

    /// Deliver all messages under way; returns whether there were any.
    pub(crate) fn carry(&self) -> bool {
        self.servers().fold(false, |any, server| self.carry_to(server) | any)
    }

    /// The same, but for one server.
    pub(crate) fn carry_all_but(&self, silent: ServerId) -> bool {
        self.servers()
            .filter(|server| *server != silent)
            .fold(false, |any, server| self.carry_to(server) | any)
    }

    /// Deliver all messages under way to one server; returns whether there were any.
    pub(crate) fn carry_to(&self, server: ServerId) -> bool {
        let mut carried = false;
        if self.core.is_wanted(server) && self.core.batches(server).is_none() {
            self.attach(server);
            carried = true;
        }
        carried | self.answer_all(server)
    }

    /// Deliver to a server the messages under way to it now, and its answers back; returns whether there were
    /// any.
    pub(crate) fn answer_all(&self, server: ServerId) -> bool {
        let mut carried = false;
        let session = self.core.attach_id(server);
        for (tag, request, bulk) in self.take(server) {
            carried = true;
            let lost = (self.loses.borrow_mut())();
            if lost == Lost::Request {
                self.core.lost(server, "cut");
                break;
            }
            let session = session.expect("what sends has a session");
            let (reply, bulk) = self.cluster.borrow_mut().execute(server, session, &request, bulk);
            if lost == Lost::Reply {
                self.core.lost(server, "cut");
                break;
            }
            self.reply(server, tag, reply, bulk).unwrap();
        }
        carried
    }

    /// Drive an operation to its end.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let waker = noop_waker();
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
                return value;
            }
            if !self.carry() {
                let at = self.clock.wake.take().expect("nothing on its way and nothing waited for");
                self.clock.now.set(self.clock.now.get().max(at.0));
                self.clock.wake.set(self.core.tick(Instant(self.clock.now.get())));
            }
        }
    }

    /// One look at an operation.
    pub(crate) fn look<T>(&self, future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
        future.poll(&mut Context::from_waker(&noop_waker()))
    }
}
