//! Round trips over loopback TCP.
//!
//! The server is one thread, which waits for all its connections at once and returns the bytes of each. Each
//! client is a thread, which sends a message and waits until the message returns. So one connection measures
//! the limit of a single synchronous client, and 16 connections measure the limit of one server thread.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

/// The largest message, bytes.
pub const MESSAGE_MAX: usize = 1 << 20;

/// The behaviour of both sides while they wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EchoKind {
    /// They sleep in the kernel.
    Sleeping,
    /// They poll and keep their cores awake.
    Polling,
}

impl std::fmt::Display for EchoKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            EchoKind::Sleeping => "sleeping",
            EchoKind::Polling => "polling",
        })
    }
}

/// Total round trips per second over `connections` connections.
pub fn measure(connections: usize, message: usize, kind: EchoKind, duration: Duration) -> Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on loopback")?;
    let address = listener.local_addr()?;
    let mut clients = Vec::with_capacity(connections);
    let mut served = Vec::with_capacity(connections);
    for _ in 0..connections {
        clients.push(prepared(TcpStream::connect(address).context("cannot connect over loopback")?, kind)?);
        served.push(prepared(listener.accept()?.0, EchoKind::Polling)?);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(served, message, kind));
        let stop = &stop;
        let begun = Instant::now();
        let threads: Vec<_> =
            clients.into_iter().map(|client| scope.spawn(move || ping(client, message, stop))).collect();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        let mut round_trips = 0;
        for thread in threads {
            round_trips += thread.join().map_err(|_| anyhow!("an echo client panicked"))??;
        }
        let elapsed = begun.elapsed();
        server.join().map_err(|_| anyhow!("the echo server panicked"))??;
        Ok(round_trips as f64 / elapsed.as_secs_f64())
    })
}

fn prepared(stream: TcpStream, kind: EchoKind) -> Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(kind == EchoKind::Polling)?;
    Ok(stream)
}

fn ping(mut stream: TcpStream, message: usize, stop: &AtomicBool) -> Result<u64> {
    let mut buffer = vec![7u8; message];
    let mut round_trips = 0;
    // Makes at least one round trip, even if this thread starts late: no measurement is empty.
    loop {
        write_whole(&mut stream, &buffer)?;
        read_whole(&mut stream, &mut buffer)?;
        round_trips += 1;
        if stop.load(Ordering::Relaxed) {
            return Ok(round_trips);
        }
    }
}

fn write_whole(stream: &mut TcpStream, mut data: &[u8]) -> Result<()> {
    while !data.is_empty() {
        match stream.write(data) {
            Ok(n) => data = &data[n..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn read_whole(stream: &mut TcpStream, mut buffer: &mut [u8]) -> Result<()> {
    while !buffer.is_empty() {
        match stream.read(buffer) {
            Ok(0) => return Err(anyhow!("the echo's other side is gone")),
            Ok(n) => buffer = &mut buffer[n..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Echoes until every client has closed.
fn serve(mut streams: Vec<TcpStream>, message: usize, kind: EchoKind) -> Result<()> {
    let timeout = match kind {
        EchoKind::Sleeping => None,
        EchoKind::Polling => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
    };
    let mut buffer = vec![0u8; message];
    while !streams.is_empty() {
        let mut fds: Vec<PollFd<'_>> =
            streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno).context("the echo server cannot wait"),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        let mut failure = None;
        streams.retain_mut(|stream| {
            if !ready.next().unwrap_or(false) {
                return true;
            }
            match echo(stream, &mut buffer) {
                Ok(open) => open,
                Err(error) => {
                    failure = Some(error);
                    false
                }
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }
    }
    Ok(())
}

/// Returns the available bytes; `false` at the end of the stream.
fn echo(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<bool> {
    match stream.read(buffer) {
        Ok(0) => Ok(false),
        Ok(n) => write_whole(stream, &buffer[..n]).map(|()| true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_over_one_and_several_connections_sleeping_and_polling() {
        for (connections, kind) in [(1, EchoKind::Sleeping), (3, EchoKind::Sleeping), (1, EchoKind::Polling)]
        {
            let rate = measure(connections, 64, kind, Duration::from_millis(20)).expect("echo");
            assert!(rate > 0.0, "{connections} connections, {kind}");
        }
    }
}
