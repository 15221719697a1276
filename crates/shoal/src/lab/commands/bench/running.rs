//! A process that a benchmark starts: servers or a mount, by this program or by a different version of it.
//! The process ends with the benchmark, even if the benchmark is killed, because its standard input ends
//! then.

use crate::stop::ENDS_WITH_INPUT;
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One that was not stopped has so long to end by itself before it is killed: a killed process leaves its
/// mount.
const GRACE: Duration = Duration::from_secs(10);

/// This program.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program to start it again")
}

/// A process that has said it is ready.
pub struct Running(Child);

impl Running {
    /// Start this program, or another version of it, with these words, and wait for its first line.
    pub fn start(program: &Path, words: &[&str]) -> Result<Running> {
        let mut child = Command::new(program)
            .args(words)
            .env(ENDS_WITH_INPUT, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `shoal {}`", words.join(" ")))?;
        let output = child.stdout.take();
        let running = Running(child);
        let mut line = String::new();
        BufReader::new(output.context("its output is no pipe")?).read_line(&mut line)?;
        if !line.contains("ready") {
            bail!("`shoal {}` did not start; its output is above", words.join(" "));
        }
        Ok(running)
    }

    /// Which process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Stop it, and see that it ends well.
    pub fn stop(mut self) -> Result<()> {
        self.terminate().context("a process of the benchmark is gone")?;
        let status = self.0.wait()?;
        if !status.success() {
            bail!("a process of the benchmark ended with {status}");
        }
        Ok(())
    }

    fn terminate(&self) -> rustix::io::Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        let _ = self.terminate();
        let begun = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) {
            if begun.elapsed() > GRACE {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
