//! Measures round trips of plain echo, without a file system. The *layout* is taken from a real run: the
//! number of its clients and servers, their processes, and their connections.
//!
//! The cost of a file system's operation is compared with an echo of the same shape:
//!
//! * as many clients, each a thread that waits for its answer;
//! * as many servers, as threads of one other process, or each in a process of its own;
//! * the same kind of connection;
//! * requests and replies of the same sizes, each sent by one write.
//!
//! A server is one thread that waits for all its connections at once. The clients are distributed over the
//! servers in turn.
//!
//! ```text
//!   request   len u32 | reply_len u32 | zeros up to len          reply   zeros, reply_len
//! ```
//!
//! The servers' process is this program started again ([`echo_server_main`]); it reports its addresses in a
//! line of JSON, and serves until its input ends. [`Connection::Queue`] is for servers inside the client's
//! own process: threads that hand a message to each other.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::epoll;
use serde::{Deserialize, Serialize};

use crate::counts::cpu_us_of;
use crate::spread::Spread;
use crate::team::process::WorkerCommand;

/// The largest request or reply, bytes.
pub const MESSAGE_MAX: usize = 1 << 20;
/// Length of request and reply stand in front.
const HEADER: usize = 8;
/// Clients and servers, at most.
const CROWD_MAX: usize = 1024;

/// The kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// TCP over loopback.
    Tcp,
    /// A socket of this machine.
    Unix,
    /// From thread to thread within one process.
    Queue,
}

/// Where the servers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Servers {
    /// Threads of one process, which is not the clients'.
    Threads,
    /// A process each.
    Processes,
}

/// The layout of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Clients, a thread each with one request under way.
    pub clients: usize,
    /// Servers.
    pub servers: usize,
    /// Where the servers run.
    pub place: Servers,
    /// The kind of connection.
    pub connection: Connection,
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connection = match self.connection {
            Connection::Tcp => "TCP",
            Connection::Unix => "Unix sockets",
            Connection::Queue => "queues",
        };
        let place = match (self.connection, self.place) {
            (Connection::Queue, _) => "threads of the clients' process",
            (_, Servers::Threads) => "threads of one process",
            (_, Servers::Processes) => "processes",
        };
        write!(f, "{} client threads, {} servers as {place}, {connection}", self.clients, self.servers)
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// All clients together.
    pub per_s: f64,
    /// The middle one.
    pub median_us: f64,
    /// How many there were.
    pub round_trips: u64,
}

/// Echo servers that run, for as many measurements as are wanted.
pub struct Echo {
    layout: Layout,
    processes: Vec<ServerProcess>,
    /// Where the servers listen, in turn.
    addresses: Vec<String>,
}

impl Echo {
    /// Start the servers; `command` comes to [`echo_server_main`]; sockets are made in `folder`.
    pub fn start(layout: Layout, command: &WorkerCommand, folder: &Path) -> Result<Echo> {
        for (what, n) in [("clients", layout.clients), ("servers", layout.servers)] {
            if n == 0 || n > CROWD_MAX {
                bail!("{what} of an echo must be between 1 and {CROWD_MAX}, not {n}");
            }
        }
        let mut echo = Echo { layout, processes: Vec::new(), addresses: Vec::new() };
        let crowds = match (layout.connection, layout.place) {
            (Connection::Queue, _) => Vec::new(),
            (_, Servers::Threads) => vec![layout.servers],
            (_, Servers::Processes) => vec![1; layout.servers],
        };
        for threads in crowds {
            let (process, addresses) =
                ServerProcess::start(command, layout.connection == Connection::Unix, threads, folder)?;
            echo.processes.push(process);
            echo.addresses.extend(addresses);
        }
        Ok(echo)
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Processor time of the servers' processes so far, microseconds; 0 where they are threads of this one.
    pub fn cpu_us(&self) -> u64 {
        self.processes.iter().map(|process| cpu_us_of(process.0.id())).sum()
    }

    /// Round trips with these sizes, for so long.
    pub fn measure(&self, request: usize, reply: usize, duration: Duration) -> Result<RoundTrips> {
        let sizes = Sizes::new(request, reply)?;
        let mut lines: Vec<Box<dyn Line>> = Vec::new();
        let mut queues = Vec::new();
        match self.layout.connection {
            Connection::Queue => {
                let (made, servers) = queue_lines(&self.layout);
                lines = made;
                queues = servers;
            }
            _ => {
                for client in 0..self.layout.clients {
                    lines.push(connect(&self.addresses[client % self.addresses.len()])?);
                }
            }
        }
        let measured = ping_all(lines, sizes, duration);
        for server in queues {
            let _ = server.join();
        }
        measured
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    request: usize,
    reply: usize,
}

impl Sizes {
    fn new(request: usize, reply: usize) -> Result<Sizes> {
        if request.max(reply) > MESSAGE_MAX {
            bail!("messages of an echo have at most {MESSAGE_MAX} bytes, not {}", request.max(reply));
        }
        Ok(Sizes { request: request.max(HEADER), reply: reply.max(1) })
    }

    fn message(&self) -> Vec<u8> {
        let mut message = vec![0; self.request];
        message[..4].copy_from_slice(&(self.request as u32).to_le_bytes());
        message[4..8].copy_from_slice(&(self.reply as u32).to_le_bytes());
        message
    }
}

/// All clients, for so long.
fn ping_all(lines: Vec<Box<dyn Line>>, sizes: Sizes, duration: Duration) -> Result<RoundTrips> {
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let all: Vec<Result<Vec<f64>>> = std::thread::scope(|scope| {
        let stop = &stop;
        let clients: Vec<_> =
            lines.into_iter().map(|line| scope.spawn(move || ping(line, sizes, stop))).collect();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Vec<f64>>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("an echo client panicked")))
        };
        clients.into_iter().map(join).collect()
    });
    let elapsed = begun.elapsed().as_secs_f64();
    let mut all_us = Vec::new();
    for times_us in all {
        all_us.extend(times_us?);
    }
    let median_us = Spread::of(&all_us).context("an echo answered nothing")?.median;
    Ok(RoundTrips { per_s: all_us.len() as f64 / elapsed, median_us, round_trips: all_us.len() as u64 })
}

/// One client: the time of each round trip, microseconds.
fn ping(mut line: Box<dyn Line>, sizes: Sizes, stop: &AtomicBool) -> Result<Vec<f64>> {
    let (message, mut reply) = (sizes.message(), vec![0; sizes.reply]);
    let mut times_us = Vec::new();
    loop {
        let begun = Instant::now();
        line.round_trip(&message, &mut reply)?;
        times_us.push(begun.elapsed().as_secs_f64() * 1e6);
        if stop.load(Ordering::Relaxed) {
            return Ok(times_us);
        }
    }
}

/// A way to a server.
trait Line: Send {
    fn round_trip(&mut self, message: &[u8], reply: &mut [u8]) -> Result<()>;
}

struct SocketLine<S>(S);

impl<S: Read + Write + Send> Line for SocketLine<S> {
    fn round_trip(&mut self, message: &[u8], reply: &mut [u8]) -> Result<()> {
        self.0.write_all(message).context("an echo server is gone")?;
        self.0.read_exact(reply).context("an echo server is gone")
    }
}

struct QueueLine {
    ask: mpsc::Sender<Asked>,
    index: usize,
    answer: mpsc::Receiver<Vec<u8>>,
}

impl Line for QueueLine {
    fn round_trip(&mut self, message: &[u8], _reply: &mut [u8]) -> Result<()> {
        self.ask.send((self.index, message.to_vec())).ok().context("an echo server is gone")?;
        self.answer.recv().context("an echo server is gone")?;
        Ok(())
    }
}

/// A client's index at its server, and its message.
type Asked = (usize, Vec<u8>);
/// The way back to a client.
type Answering = mpsc::Sender<Vec<u8>>;
type Made = (Vec<Box<dyn Line>>, Vec<std::thread::JoinHandle<()>>);

/// Servers as threads of this process; they end with their clients.
fn queue_lines(layout: &Layout) -> Made {
    let mut answers: Vec<Vec<Answering>> = vec![Vec::new(); layout.servers];
    let (asks, asked): (Vec<_>, Vec<_>) = (0..layout.servers).map(|_| mpsc::channel()).unzip();
    let mut lines: Vec<Box<dyn Line>> = Vec::new();
    for client in 0..layout.clients {
        let server = client % layout.servers;
        let (answer, answered) = mpsc::channel();
        let index = answers[server].len();
        answers[server].push(answer);
        lines.push(Box::new(QueueLine { ask: asks[server].clone(), index, answer: answered }));
    }
    let serve = |(asked, answers): (mpsc::Receiver<Asked>, Vec<Answering>)| {
        std::thread::spawn(move || {
            for (client, message) in asked {
                let reply_len = message.get(4..8).map_or(1, length);
                let _ = answers[client].send(vec![0; reply_len.min(MESSAGE_MAX)]);
            }
        })
    };
    (lines, asked.into_iter().zip(answers).map(serve).collect())
}

fn length(bytes: &[u8]) -> usize {
    bytes.try_into().map_or(0, u32::from_le_bytes) as usize
}

fn connect(address: &str) -> Result<Box<dyn Line>> {
    let words = || format!("cannot connect to the echo server at {address}");
    match address.strip_prefix("unix:") {
        Some(path) => Ok(Box::new(SocketLine(UnixStream::connect(path).with_context(words)?))),
        None => {
            let stream = TcpStream::connect(address).with_context(words)?;
            stream.set_nodelay(true)?;
            Ok(Box::new(SocketLine(stream)))
        }
    }
}

/// The options of a process of echo servers.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    servers: usize,
    /// Where to make sockets; TCP where there is none.
    sockets: Option<PathBuf>,
}

struct ServerProcess(Child);

impl ServerProcess {
    fn start(
        command: &WorkerCommand,
        unix: bool,
        servers: usize,
        folder: &Path,
    ) -> Result<(ServerProcess, Vec<String>)> {
        let mut child = std::process::Command::new(&command.program)
            .args(&command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start an echo server: {}", command.program.display()))?;
        let (input, output) = (child.stdin.as_mut(), child.stdout.take());
        let mut input = input.context("the echo server's input is no pipe")?;
        let told = Told { servers, sockets: unix.then(|| folder.to_path_buf()) };
        serde_json::to_writer(&mut input, &told)?;
        input.write_all(b"\n")?;
        let mut line = String::new();
        BufReader::new(output.context("the echo server's output is no pipe")?).read_line(&mut line)?;
        let process = ServerProcess(child);
        let addresses: Vec<String> =
            serde_json::from_str(&line).context("the echo server did not say where it listens")?;
        if addresses.len() != servers {
            bail!("{} echo servers began instead of {servers}", addresses.len());
        }
        Ok((process, addresses))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The work of a process of echo servers, instead of the program's usual one, until its input ends.
pub fn echo_server_main() -> Result<()> {
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line)?;
    let told: Told =
        serde_json::from_str(&line).context("an echo server is started by a measurement, not by hand")?;
    let mut addresses = Vec::new();
    let mut paths = Vec::new();
    for index in 0..told.servers.min(CROWD_MAX) {
        match &told.sockets {
            Some(folder) => {
                let path = socket_path(folder, index);
                let listener = UnixListener::bind(&path)
                    .with_context(|| format!("cannot listen at {}", path.display()))?;
                addresses.push(format!("unix:{}", path.display()));
                paths.push(path);
                std::thread::spawn(move || serve(listener));
            }
            None => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
                addresses.push(listener.local_addr()?.to_string());
                std::thread::spawn(move || serve(listener));
            }
        }
    }
    println!("{}", serde_json::to_string(&addresses)?);
    // Until the measurement ends, or its process.
    std::io::copy(&mut input, &mut std::io::sink())?;
    for path in paths {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn socket_path(folder: &Path, index: usize) -> PathBuf {
    static SOCKETS: AtomicU64 = AtomicU64::new(0);
    let n = SOCKETS.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("echo.{}-{n}-{index}", std::process::id()))
}

/// The listener of a server.
trait Listener: AsFd {
    type Stream: Read + Write + AsFd;
    fn next(&self) -> std::io::Result<Self::Stream>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    fn next(&self) -> std::io::Result<TcpStream> {
        let (stream, _) = self.accept()?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    fn next(&self) -> std::io::Result<UnixStream> {
        Ok(self.accept()?.0)
    }
}

/// The listener's place in the poll set; connections have their index.
const LISTENING: u64 = u64::MAX;

/// One server, until the process ends.
fn serve<L: Listener>(listener: L) -> Result<()> {
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    watch(&waiting, listener.as_fd(), LISTENING)?;
    let mut served: Vec<Option<Served<L::Stream>>> = Vec::new();
    let (mut zeros, mut buffer) = (vec![0; MESSAGE_MAX], vec![0; 64 << 10]);
    let mut events = Vec::with_capacity(256);
    loop {
        events.clear();
        match epoll::wait(&waiting, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        for event in &events {
            let at = event.data.u64();
            if at == LISTENING {
                let stream = listener.next()?;
                watch(&waiting, stream.as_fd(), served.len() as u64)?;
                served.push(Some(Served { stream, begun: Vec::new() }));
                continue;
            }
            let Some(slot) = served.get_mut(at as usize) else { continue };
            let open = slot.as_mut().is_some_and(|one| one.answer(&mut buffer, &mut zeros).unwrap_or(false));
            if !open {
                *slot = None;
            }
        }
    }
}

fn watch(waiting: &impl AsFd, fd: BorrowedFd<'_>, at: u64) -> Result<()> {
    Ok(epoll::add(waiting, fd, epoll::EventData::new_u64(at), epoll::EventFlags::IN)?)
}

/// A connection, and the received part of a request that is not whole yet.
struct Served<S> {
    stream: S,
    begun: Vec<u8>,
}

impl<S: Read + Write> Served<S> {
    /// Read the available bytes, once, and answer every whole request with a write of its own; `false` at the
    /// end.
    fn answer(&mut self, buffer: &mut [u8], zeros: &mut [u8]) -> std::io::Result<bool> {
        let n = match self.stream.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        self.begun.extend_from_slice(&buffer[..n]);
        while let Some(header) = self.begun.get(..HEADER) {
            let (len, reply) = (length(&header[..4]), length(&header[4..]));
            if !(HEADER..=MESSAGE_MAX).contains(&len) || reply > MESSAGE_MAX {
                return Ok(false);
            }
            if self.begun.len() < len {
                break;
            }
            self.stream.write_all(&zeros[..reply])?;
            self.begun.drain(..len);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(clients: usize, connection: Connection) -> Layout {
        Layout { clients, servers: 2, place: Servers::Threads, connection }
    }

    #[test]
    fn requests_in_pieces_and_several_at_once_are_answered_one_by_one() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let mut served = Served { stream: theirs, begun: Vec::new() };
        let (mut buffer, mut zeros) = (vec![0; 100], vec![0; MESSAGE_MAX]);
        let message = Sizes::new(60, 7).expect("sizes").message();
        ours.write_all(&message[..5]).expect("sent");
        assert!(served.answer(&mut buffer, &mut zeros).expect("open"));
        ours.write_all(&[&message[5..], &message[..]].concat()).expect("sent");
        for _ in 0..2 {
            assert!(served.answer(&mut buffer, &mut zeros).expect("open"));
        }
        let mut replies = [1; 14];
        ours.read_exact(&mut replies).expect("two replies");
        assert_eq!(replies, [0; 14]);
    }

    #[test]
    fn a_request_of_no_sense_ends_its_connection() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let mut served = Served { stream: theirs, begun: Vec::new() };
        ours.write_all(&[0xff; 8]).expect("sent");
        assert!(!served.answer(&mut [0; 100], &mut [0; 8]).expect("answered"));
    }

    #[test]
    fn queues_carry_messages_between_threads() {
        let nowhere = WorkerCommand { program: "/nonexistent".into(), args: Vec::new() };
        let echo = Echo::start(layout(3, Connection::Queue), &nowhere, Path::new(".")).expect("started");
        let measured = echo.measure(64, 64, Duration::from_millis(10)).expect("measured");
        assert!(measured.per_s > 0.0 && measured.median_us > 0.0);
    }

    #[test]
    fn nobody_and_messages_too_large_are_refused() {
        let nowhere = WorkerCommand { program: "/nonexistent".into(), args: Vec::new() };
        assert!(Echo::start(layout(0, Connection::Queue), &nowhere, Path::new(".")).is_err());
        assert!(Sizes::new(MESSAGE_MAX + 1, 1).is_err());
    }
}
