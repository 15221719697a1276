//! Listening and connecting: the request to connect travels to the listener, and its reply travels back.

use super::core::Core;
use super::door::Place;
use super::stream::{Conn, End};
use super::timer::Sleep;
use super::trace::Kind;
use crate::{Address, Listener, ListenerImpl, Stream};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Most connections not yet accepted; further ones are refused.
const BACKLOG: usize = 1024;

/// A listener at an address.
pub(super) struct Listening {
    core: Rc<Core>,
    at: Place,
    /// Connections whose end 1 is to be accepted.
    waiting: RefCell<VecDeque<Rc<Conn>>>,
    accepting: RefCell<Option<Waker>>,
    closed: Cell<bool>,
}

impl Listening {
    pub(super) fn is_of(&self, process: usize, incarnation: u64) -> bool {
        (self.at.process, self.at.incarnation) == (process, incarnation)
    }

    /// The listener is gone: waiting connections are reset.
    pub(super) fn close(&self) {
        self.closed.set(true);
        for conn in self.waiting.take() {
            conn.abandon(&self.core, 1);
        }
    }

    /// Take a connection in, if there is room.
    fn offer(&self, conn: &Rc<Conn>) -> bool {
        if self.closed.get() || self.waiting.borrow().len() >= BACKLOG {
            return false;
        }
        self.waiting.borrow_mut().push_back(conn.clone());
        let accepting = self.accepting.take();
        if let Some(waker) = accepting {
            waker.wake();
        }
        true
    }
}

struct SimListener {
    listening: Rc<Listening>,
    address: Address,
}

/// The key of a listener: its address; for one at all addresses of a machine, the machine and port.
fn key_of(address: &Address, machine: usize) -> String {
    match address {
        Address::Host(_, port) => format!("any of {machine}:{port}"),
        address => address.to_string(),
    }
}

/// Time of a lookup at a name server.
const RESOLVE_NS: u64 = 1_000_000;

/// The addresses of a host. Never returns if name servers do not answer.
pub(super) async fn resolve(core: Rc<Core>, host: String) -> io::Result<Vec<IpAddr>> {
    Sleep::new(core.clone(), core.now() + RESOLVE_NS).await;
    if core.net.borrow().is_nameless {
        std::future::pending::<()>().await;
    }
    let found = core.net.borrow().names.get(&host).cloned();
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("cannot find the host {host}")))
}

impl ListenerImpl for SimListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let conn = self.listening.waiting.borrow_mut().pop_front();
        if let Some(conn) = conn {
            return Poll::Ready(Ok(conn.stream(&self.listening.core, 1)));
        }
        self.listening.accepting.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn address(&self) -> Address {
        self.address.clone()
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let name = key_of(&self.address, self.listening.at.machine);
        let mut net = self.listening.core.net.borrow_mut();
        let registered =
            net.listeners.get(&name).is_some_and(|listening| Rc::ptr_eq(listening, &self.listening));
        let gone = if registered { net.listeners.remove(&name) } else { None };
        drop(net);
        drop(gone);
        self.listening.close();
    }
}

fn dead() -> io::Error {
    io::Error::other("the process has ended")
}

/// Listen; port 0 is resolved to a free one.
pub(super) fn listen(core: &Rc<Core>, at: Place, address: &Address) -> io::Result<Listener> {
    if !core.lives(at.process, at.incarnation) {
        return Err(dead());
    }
    let mut net = core.net.borrow_mut();
    let mut address = address.clone();
    if let Address::Tcp(addr) = &mut address
        && addr.port() == 0
    {
        let mut tries = 0..=u16::MAX;
        while addr.port() == 0 || net.listeners.contains_key(&Address::Tcp(*addr).to_string()) {
            tries.next().ok_or(io::ErrorKind::AddrInUse)?;
            *addr = SocketAddr::new(addr.ip(), net.next_port.max(1024));
            net.next_port = net.next_port.wrapping_add(1);
        }
    }
    let name = key_of(&address, at.machine);
    if net.listeners.contains_key(&name) {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{name} is taken")));
    }
    let listening = Rc::new(Listening {
        core: core.clone(),
        at,
        waiting: RefCell::default(),
        accepting: RefCell::default(),
        closed: Cell::new(false),
    });
    net.homes.insert(name.clone(), at.machine);
    net.listeners.insert(name, listening.clone());
    Ok(Listener(Box::new(SimListener { listening, address })))
}

async fn travel(core: &Rc<Core>, from: usize, to: usize) {
    let span = core.one_way_ns(from, to);
    Sleep::new(core.clone(), core.now() + span).await;
}

/// Wait until there is no partition; false if that took too long.
async fn reachable(core: &Rc<Core>, from: usize, to: usize, until: u64) -> bool {
    loop {
        let healed = {
            let net = core.net.borrow();
            if !net.is_cut(from, to) {
                return true;
            }
            net.healed.wait()
        };
        let sleep = Sleep::new(core.clone(), until);
        if let futures_util::future::Either::Right(_) = futures_util::future::select(healed, sleep).await {
            return false;
        }
    }
}

/// Connect. Through a partition it waits until that heals, up to the time limit.
pub(super) async fn connect(core: Rc<Core>, from: Place, address: Address) -> io::Result<Stream> {
    let name = address.to_string();
    let until = core.now().saturating_add(core.config.connect_ns_max);
    // The machine set for the address; else the machine that listened there last.
    let owner = match &address {
        Address::Tcp(at) => core.net.borrow().addresses.get(&at.ip()).map(|machine| (*machine, at.port())),
        _ => None,
    };
    let home = owner.map(|(machine, _)| machine);
    let home = home.or_else(|| core.net.borrow().homes.get(&name).copied()).unwrap_or(from.machine);
    if !reachable(&core, from.machine, home, until).await {
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no way to {name}")));
    }
    travel(&core, from.machine, home).await;
    if !core.lives(from.process, from.incarnation) {
        return Err(dead());
    }
    let any = owner.map(|(machine, port)| key_of(&Address::Host(String::new(), port), machine));
    let listening = {
        let net = core.net.borrow();
        net.listeners.get(&name).or_else(|| net.listeners.get(&any?)).cloned()
    };
    let stream = listening.and_then(|listening| {
        let to = listening.at;
        let near = End { process: from.process, incarnation: from.incarnation, machine: from.machine };
        let far = End { process: to.process, incarnation: to.incarnation, machine: to.machine };
        let conn = core.net.borrow_mut().register(|_| Rc::new(Conn::new([near, far])));
        // The near end first, so that a connection that neither side wants closes like any other.
        listening.offer(&conn).then(|| conn.stream(&core, 0))
    });
    core.trace.add(core.now(), from.process, Kind::Connect, u64::from(stream.is_some()));
    if !reachable(&core, home, from.machine, until).await {
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer from {name}")));
    }
    travel(&core, home, from.machine).await;
    stream.ok_or_else(|| io::Error::new(io::ErrorKind::ConnectionRefused, format!("no listener at {name}")))
}
