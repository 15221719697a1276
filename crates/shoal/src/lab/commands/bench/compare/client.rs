//! A process of a benchmark that stays up, and runs the benchmark once for each line that it reads: `shoal
//! bench small … --stepwise`.
//!
//! Starting a program takes longer than a short turn, so it is started once.

use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// See the module.
pub(super) struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Start it.
    pub(super) fn start(program: &Path, words: &[String]) -> Result<Client> {
        let child = Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start `shoal {}`", words.join(" ")))?;
        let input = child.stdin.take().context("its input is no pipe")?;
        let output = BufReader::new(child.stdout.take().context("its output is no pipe")?);
        Ok(Client { child, input, output })
    }

    /// Run once; returns its result. The wait is bounded by the benchmark's own operations, each of which has
    /// a deadline.
    pub(super) fn run(&mut self) -> Result<String> {
        let mut line = String::new();
        self.input.write_all(b"\n").context("the benchmark has ended")?;
        if self.output.read_line(&mut line)? == 0 {
            bail!("the benchmark ended with {}; its output is above", self.child.wait()?);
        }
        Ok(line)
    }

    /// End it, and see that it ends well. One that is dropped ends by itself: its input does.
    pub(super) fn stop(self) -> Result<()> {
        let Client { mut child, input, .. } = self;
        drop(input);
        let status = child.wait()?;
        if !status.success() {
            bail!("the benchmark ended with {status}");
        }
        Ok(())
    }
}
