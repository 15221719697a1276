//! Measures bytes in one direction through one connection, from memory to memory. This gives the rate of a
//! link, and its cost for the core of each side.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of one call.
const BLOCK: usize = 256 * 1024;

/// The result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamRates {
    /// 10^6 bytes a second.
    pub mb_per_s: f64,
    /// Processor time of the sender for 10^6 bytes, microseconds.
    pub sender_us: f64,
    /// And of the receiver.
    pub receiver_us: f64,
}

/// For so long, at least one block.
pub fn measure(duration: Duration) -> Result<StreamRates> {
    let (mut sender, mut receiver) = UnixStream::pair().context("cannot make a pair of sockets")?;
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || -> Result<f64> {
            let block = vec![7_u8; BLOCK];
            let begun = Instant::now();
            loop {
                sender.write_all(&block).context("the stream's receiver is gone")?;
                if begun.elapsed() >= duration {
                    return Ok(thread_us());
                }
            }
        });
        let mut block = vec![0_u8; BLOCK];
        let (begun, before_us) = (Instant::now(), thread_us());
        let mut bytes = 0;
        loop {
            match receiver.read(&mut block) {
                Ok(0) => break,
                Ok(n) => bytes += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("stream: read"),
            }
        }
        let (elapsed, receiver_us) = (begun.elapsed().as_secs_f64(), thread_us() - before_us);
        let sender_us = sending.join().map_err(|_| anyhow!("the stream's sender panicked"))??;
        let megabytes = bytes as f64 / 1e6;
        Ok(StreamRates {
            mb_per_s: megabytes / elapsed,
            sender_us: sender_us / megabytes,
            receiver_us: receiver_us / megabytes,
        })
    })
}

/// Processor time of this thread so far, microseconds.
fn thread_us() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_through_and_cost_both_sides_something() {
        let stream = measure(Duration::from_millis(10)).expect("measured");
        assert!(stream.mb_per_s > 0.0 && stream.sender_us > 0.0 && stream.receiver_us > 0.0, "{stream:?}");
    }
}
