//! The controller's side of a [hand](super::hand) (a client process): starts the process, and has its input
//! and its output.

use super::hand::{Act, Said, Spec};
use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a wait for an answer checks whether to end.
const GLANCE: Duration = Duration::from_millis(10);
/// A hand begins within this time: it connects.
const BEGIN: Duration = Duration::from_secs(60);

/// The result of an act, and the bytes read.
pub type Heard = (Said, Vec<u8>);

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The process is gone.
    Gone,
    /// It said nothing for so long.
    Silent(Duration),
}

/// A hand's process. It is killed when this is dropped.
pub struct Hand {
    child: Child,
    tell: ChildStdin,
    heard: Receiver<Heard>,
}

impl Hand {
    /// Start one; [`Hand::ready`] waits for it.
    pub fn start(spec: &Spec) -> Result<Hand> {
        let program = std::env::current_exe().context("cannot find this program to start it again")?;
        let mut child = Command::new(program)
            .arg("torture-hand")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start a client's process")?;
        let (Some(mut tell), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("a client's process has no pipes");
        };
        let (send, heard) = channel();
        std::thread::Builder::new()
            .name("hand".into())
            .spawn(move || {
                let mut out = BufReader::new(out);
                while let Ok(Some(one)) = hear(&mut out) {
                    if send.send(one).is_err() {
                        break;
                    }
                }
            })
            .context("cannot listen to a client's process")?;
        writeln!(tell, "{}", serde_json::to_string(spec)?).context("a client's process ended at once")?;
        Ok(Hand { child, tell, heard })
    }

    /// Start some, all at once.
    pub fn start_all<'a>(specs: impl IntoIterator<Item = &'a Spec>) -> Result<Vec<Hand>> {
        let mut hands = specs.into_iter().map(Hand::start).collect::<Result<Vec<_>>>()?;
        for hand in &mut hands {
            hand.ready()?;
        }
        Ok(hands)
    }

    /// Wait until it can begin.
    pub fn ready(&mut self) -> Result<()> {
        match self.hear(BEGIN, || false) {
            Ok((Said::Ready, _)) => Ok(()),
            Ok((said, _)) => bail!("a client's process began with {said:?}"),
            Err(Trouble::Gone) => bail!("a client's process ended before it was ready"),
            Err(Trouble::Silent(waited)) => {
                bail!("a client's process is not ready after {} s", waited.as_secs())
            }
        }
    }

    /// Have it begin an act.
    pub fn tell(&mut self, act: &Act) -> Result<(), Trouble> {
        let mut line = serde_json::to_vec(act).map_err(|_| Trouble::Gone)?;
        line.push(b'\n');
        self.tell.write_all(&line).map_err(|_| Trouble::Gone)
    }

    /// Its result. `end` may end the wait: the process is then killed.
    pub fn hear(&mut self, patience: Duration, end: impl Fn() -> bool) -> Result<Heard, Trouble> {
        let begun = Instant::now();
        loop {
            match self.heard.recv_timeout(GLANCE) {
                Ok(heard) => return Ok(heard),
                Err(RecvTimeoutError::Disconnected) => return Err(Trouble::Gone),
                Err(RecvTimeoutError::Timeout) if end() => {
                    self.kill();
                    return Err(Trouble::Gone);
                }
                Err(RecvTimeoutError::Timeout) if begun.elapsed() > patience => {
                    return Err(Trouble::Silent(begun.elapsed()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// One act, to its end.
    pub fn ask(&mut self, act: &Act, patience: Duration) -> Result<Heard, Trouble> {
        self.tell(act)?;
        self.hear(patience, || false)
    }

    /// SIGKILL. A process that hangs in a call of a mount ends with the mount: it is not awaited here.
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.kill();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(GLANCE / 10);
        }
    }
}

fn hear(out: &mut BufReader<ChildStdout>) -> Result<Option<Heard>> {
    let mut line = String::new();
    if out.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let said: Said = serde_json::from_str(&line)?;
    let mut bytes = Vec::new();
    if let Said::Bytes { len, .. } = said {
        bytes.resize(len, 0);
        out.read_exact(&mut bytes)?;
    }
    Ok(Some((said, bytes)))
}
