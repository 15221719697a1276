//! Links between machines: when a segment arrives.
//!
//! A segment of n bytes leaves when the sender's card and the link are free. Its first bit arrives after
//! the latency. Its last bit arrives when the link has carried all earlier bytes and these n bytes, and the
//! receiver's card has taken them. So all senders to one receiver share the receiver's card, and all
//! receivers of one sender share the sender's card. Within a machine only the loopback link counts.

use super::config::{Congestion, Link, wire_ns};
use super::connect::Listening;
use super::core::Core;
use super::rng::Rng;
use super::stream::Conn;
use crate::local::Notify;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::{Rc, Weak};

/// Not before the partition heals.
pub(super) const HELD: u64 = u64::MAX - 1;
/// Not at all.
pub(super) const NEVER: u64 = u64::MAX;
/// Dead connections are not swept below this many.
const CONNS_KEPT: usize = 1024;

/// The state of all links, and the listeners.
pub(super) struct Net {
    rng: Rng,
    links: BTreeMap<(usize, usize), Link>,
    link_free: BTreeMap<(usize, usize), u64>,
    card_out_free: BTreeMap<usize, u64>,
    card_in: BTreeMap<usize, CardIn>,
    partitions: BTreeSet<(usize, usize)>,
    /// Wakes tasks that wait for a partition to heal.
    pub(super) healed: Notify,
    pub(super) listeners: BTreeMap<String, Rc<Listening>>,
    /// The machine that last listened at an address: connection attempts travel there, with or without a
    /// listener.
    pub(super) homes: BTreeMap<String, usize>,
    pub(super) next_port: u16,
    /// The machine of an address, for listeners at all addresses of their machine.
    pub(super) addresses: BTreeMap<IpAddr, usize>,
    /// The addresses of host names.
    pub(super) names: BTreeMap<String, Vec<IpAddr>>,
    /// Name servers do not answer.
    pub(super) is_nameless: bool,
    conns: BTreeMap<u64, Weak<Conn>>,
    conns_swept: usize,
    next_conn: u64,
}

impl Net {
    pub(super) fn new(rng: Rng) -> Net {
        Net {
            rng,
            links: BTreeMap::new(),
            link_free: BTreeMap::new(),
            card_out_free: BTreeMap::new(),
            card_in: BTreeMap::new(),
            partitions: BTreeSet::new(),
            healed: Notify::default(),
            listeners: BTreeMap::new(),
            homes: BTreeMap::new(),
            next_port: 49_152,
            addresses: BTreeMap::new(),
            names: BTreeMap::new(),
            is_nameless: false,
            conns: BTreeMap::new(),
            conns_swept: 0,
            next_conn: 0,
        }
    }

    pub(super) fn is_cut(&self, a: usize, b: usize) -> bool {
        !self.partitions.is_empty() && self.partitions.contains(&pair(a, b))
    }

    /// Register a connection for crashes and partitions, as long as an end lives.
    pub(super) fn register(&mut self, make: impl FnOnce(u64) -> Rc<Conn>) -> Rc<Conn> {
        if self.conns.len() > 2 * self.conns_swept + CONNS_KEPT {
            self.conns.retain(|_, conn| conn.strong_count() > 0);
            self.conns_swept = self.conns.len();
        }
        let id = self.next_conn;
        self.next_conn += 1;
        let conn = make(id);
        self.conns.insert(id, Rc::downgrade(&conn));
        conn
    }

    fn living(&self) -> Vec<Rc<Conn>> {
        self.conns.values().filter_map(Weak::upgrade).collect()
    }
}

/// The receiving side of a machine's network card.
#[derive(Default)]
struct CardIn {
    free_at: u64,
    /// Machines whose bytes are on their way into it, and until when.
    senders: BTreeMap<usize, u64>,
}

impl CardIn {
    /// With more senders at once than are free, each further one costs a part of the bandwidth.
    fn congested_ns(&mut self, span_ns: u64, from: usize, now: u64, congestion: &Congestion) -> u64 {
        if congestion.loss_ppm == 0 {
            return span_ns;
        }
        self.senders.retain(|_, until| *until > now);
        let senders = self.senders.len() as u64 + u64::from(!self.senders.contains_key(&from));
        let above = senders.saturating_sub(congestion.free_senders.into());
        let lost_ppm = (above * u64::from(congestion.loss_ppm)).min(congestion.loss_ppm_max.into());
        let left_ppm = 1_000_000_u64.saturating_sub(lost_ppm).max(1);
        (u128::from(span_ns) * 1_000_000 / u128::from(left_ppm)) as u64
    }

    fn hears(&mut self, from: usize, until: u64, congestion: &Congestion) {
        if congestion.loss_ppm > 0 {
            self.senders.insert(from, until);
        }
    }
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

/// The fate of a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It arrives then ([`HELD`]: when the partition heals).
    At(u64),
    /// It breaks its connection.
    Reset,
}

impl Core {
    fn link(&self, net: &Net, from: usize, to: usize) -> Link {
        let usual = if from == to { self.config.loopback } else { self.config.network };
        if net.links.is_empty() { usual } else { net.links.get(&(from, to)).copied().unwrap_or(usual) }
    }

    /// Set the link in both directions.
    pub(super) fn set_link(&self, a: usize, b: usize, link: Link) {
        let mut net = self.net.borrow_mut();
        net.links.insert((a, b), link);
        net.links.insert((b, a), link);
    }

    /// The time from machine to machine for a message without size, now.
    pub(super) fn one_way_ns(&self, from: usize, to: usize) -> u64 {
        let mut net = self.net.borrow_mut();
        let link = self.link(&net, from, to);
        link.latency_ns + if link.jitter_ns > 0 { net.rng.below(link.jitter_ns + 1) } else { 0 }
    }

    /// The arrival of a message without size that is sent now.
    pub(super) fn signal(&self, from: usize, to: usize) -> u64 {
        if self.net.borrow().is_cut(from, to) { HELD } else { self.now() + self.one_way_ns(from, to) }
    }

    /// Send a segment that leaves its process at `leaves`.
    pub(super) fn send(&self, from: usize, to: usize, bytes: usize, leaves: u64) -> Arrival {
        let mut net = self.net.borrow_mut();
        if net.is_cut(from, to) {
            return Arrival::At(HELD);
        }
        let link = self.link(&net, from, to);
        let Net { rng, link_free, card_out_free, card_in, .. } = &mut *net;
        if rng.chance(link.reset_ppm) {
            return Arrival::Reset;
        }
        let bytes = bytes as u64;
        let mut leaves = leaves;
        if from != to {
            leaves = queue(card_out_free.entry(from).or_default(), leaves, self.card_ns(from, bytes));
        }
        leaves = queue(link_free.entry((from, to)).or_default(), leaves, wire_ns(bytes, link.bits_per_s));
        let jitter = if link.jitter_ns > 0 { rng.below(link.jitter_ns + 1) } else { 0 };
        let begins = leaves + link.latency_ns + jitter;
        let mut done = begins + wire_ns(bytes, link.bits_per_s);
        if from != to {
            let taken_ns = self.card_ns(to, bytes);
            let card = card_in.entry(to).or_default();
            let taken_ns = card.congested_ns(taken_ns, from, begins, &self.config.congestion);
            done = done.max(queue(&mut card.free_at, begins, taken_ns) + taken_ns);
            card.hears(from, done, &self.config.congestion);
        }
        if rng.chance(link.loss_ppm) {
            done += link.retransmit_ns;
        }
        Arrival::At(done)
    }

    fn card_ns(&self, machine: usize, bytes: u64) -> u64 {
        wire_ns(bytes, self.machines.borrow()[machine].config.nic_bits_per_s)
    }

    /// Cut or heal the way between two machines.
    pub(super) fn set_partition(self: &Rc<Core>, a: usize, b: usize, cut: bool) {
        let (conns, healed) = {
            let mut net = self.net.borrow_mut();
            let changed =
                if cut { net.partitions.insert(pair(a, b)) } else { net.partitions.remove(&pair(a, b)) };
            if !changed {
                return;
            }
            (net.living(), net.healed.clone())
        };
        self.trace.add(self.now(), a, super::trace::Kind::Fault, 4 + u64::from(cut));
        let word = if cut { "cut" } else { "healed" };
        self.trace.line(self.now(), || format!("the way between machines {a} and {b} is {word}"));
        for conn in conns.iter().filter(|conn| conn.joins(a, b)) {
            if cut { conn.hold(self) } else { conn.release(self) }
        }
        if !cut {
            healed.wake_all();
        }
    }

    /// Break every connection between two machines; with `late`, `b` learns it then.
    pub(super) fn reset_between(self: &Rc<Core>, a: usize, b: usize, late: Option<u64>) {
        self.trace.add(self.now(), a, super::trace::Kind::Fault, 6 + u64::from(late.is_some()));
        let conns = self.net.borrow().living();
        for conn in conns.iter().filter(|conn| conn.joins(a, b)) {
            match late {
                None => conn.break_both(self),
                Some(at) => conn.break_half(self, a, at),
            }
        }
    }

    /// Break every connection of a process; its peers see it after the link's latency.
    pub(super) fn reset_all_of(self: &Rc<Core>, process: usize, incarnation: u64) {
        let (conns, orphans) = {
            let mut net = self.net.borrow_mut();
            let theirs = |listening: &Rc<Listening>| listening.is_of(process, incarnation);
            let names: Vec<String> =
                net.listeners.iter().filter(|(_, l)| theirs(l)).map(|(name, _)| name.clone()).collect();
            let orphans: Vec<_> = names.iter().filter_map(|name| net.listeners.remove(name)).collect();
            (net.living(), orphans)
        };
        for conn in &conns {
            conn.reset_by(self, process, incarnation);
        }
        for listening in orphans {
            listening.close();
        }
    }
}

/// Queue after earlier users; returns when it begins.
fn queue(free: &mut u64, from: u64, span_ns: u64) -> u64 {
    let begins = from.max(*free);
    *free = begins + span_ns;
    begins
}
