//! Workers as processes, in step by lines over pipes.
//!
//! The program starts itself again with hidden arguments of its choice ([`WorkerCommand`]) and there calls
//! [`worker_process_main`]; the two talk in lines of JSON, one request and one answer at a time:
//!
//! ```text
//!   first ──► worker   {"begin": {"spec": "dir:/mnt", "workload": …, "place": …}}      ──► "ready"
//!                      {"run": 0}       all workers are here: take t1, run, take t2    ──► {"ran": {…}}
//!                      "leave"          all workers are here: take the time again      ──► {"left": ns}
//!                      "clean"          another worker failed                          ──► "cleaned"
//!                      (end of file): the worker ends
//! ```
//!
//! A failed worker answers `{"failed": "…"}`. Workers and the first process share standard error.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::directory::Directory;
use crate::target::{Target, Worker};
use crate::team::{Measured, Meter, Timing, need_open_files};
use crate::workload::{Actor, Place, Work, Workload};

/// The longest line either side takes, bytes.
const LINE_MAX: u64 = 1 << 20;

/// How a worker process is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program; it must come to [`worker_process_main`] with these arguments.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

impl WorkerCommand {
    /// This same program with other arguments.
    pub fn this_program(args: &[&str]) -> Result<WorkerCommand> {
        let program =
            std::env::current_exe().context("cannot find this program to start it again as a worker")?;
        Ok(WorkerCommand { program, args: args.iter().map(|&arg| arg.to_owned()).collect() })
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Begin { spec: String, workload: Workload, place: Place },
    Run(usize),
    Leave,
    Clean,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready,
    Ran { begun_ns: u64, ended_ns: u64, work: Work },
    Left(u64),
    Cleaned,
    Failed(String),
}

/// The work of a worker process, instead of the program's usual one, until its input ends. `open_target`
/// opens the targets that are not directories from their [`Target::process_spec`]; a program without such
/// passes `|spec| Err(…)`.
pub fn worker_process_main(open_target: impl Fn(&str) -> Result<Box<dyn Target>>) -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let mut output = std::io::stdout();
    let Some(Request::Begin { spec, workload, place }) = receive(&mut input)? else {
        bail!("a worker process is started by a measurement, not by hand");
    };
    let (mut worker, mut actor) = match begin(&spec, &workload, &place, &open_target) {
        Ok(pair) => pair,
        Err(error) => return send(&mut output, &Answer::Failed(format!("{error:#}"))),
    };
    send(&mut output, &Answer::Ready)?;
    while let Some(request) = receive(&mut input)? {
        let answer = match request {
            Request::Run(phase) => run_phase(actor.as_mut(), phase, worker.as_mut()),
            Request::Leave => Answer::Left(now_ns()),
            Request::Clean => {
                actor.clean(worker.as_mut());
                Answer::Cleaned
            }
            Request::Begin { .. } => Answer::Failed("begun twice".to_owned()),
        };
        send(&mut output, &answer)?;
    }
    Ok(())
}

type Player = (Box<dyn Worker>, Box<dyn Actor>);

fn begin(
    spec: &str,
    workload: &Workload,
    place: &Place,
    open_target: impl Fn(&str) -> Result<Box<dyn Target>>,
) -> Result<Player> {
    workload.validate(place.workers)?;
    need_open_files(workload.open_files())?;
    let target = match Directory::from_spec(spec) {
        Some(directory) => Box::new(directory),
        None => open_target(spec)?,
    };
    Ok((target.worker(place.index)?, workload.actor(place)))
}

fn run_phase(actor: &mut dyn Actor, phase: usize, worker: &mut dyn Worker) -> Answer {
    let begun_ns = now_ns();
    let result = actor.run(phase, worker);
    let ended_ns = now_ns();
    match result {
        Ok(work) => Answer::Ran { begun_ns, ended_ns, work },
        Err(error) => Answer::Failed(format!("{error:#}")),
    }
}

/// Runs all phases; returns, phase by phase, the timings of all workers.
pub(super) fn run(
    command: &WorkerCommand,
    target: &dyn Target,
    workload: &Workload,
    workers: usize,
    tag: &str,
) -> Result<Vec<Measured>> {
    let Some(spec) = target.process_spec() else {
        bail!("{} cannot be worked on from other processes; use threads", target.name());
    };
    let mut crew = Vec::with_capacity(workers);
    for index in 0..workers {
        let place = Place { index, workers, tag: tag.to_owned() };
        let begin = Request::Begin { spec: spec.clone(), workload: workload.clone(), place };
        let mut process = Process::start(command, index)?;
        process.send(&begin)?;
        crew.push(process);
    }
    for process in &mut crew {
        let Answer::Ready = process.answer()? else { bail!("worker {} began out of turn", process.index) };
    }
    let mut meter = Meter::new(target);
    let mut timings = Vec::new();
    for phase in 0..workload.phases().len() {
        meter.begin()?;
        let times = run_together(&mut crew, phase)?;
        timings.push((times, meter.end()?));
    }
    for process in crew {
        process.end()?;
    }
    Ok(timings)
}

/// One phase: releases all, waits for all, releases all again.
fn run_together(crew: &mut [Process], phase: usize) -> Result<Vec<Timing>> {
    for process in crew.iter_mut() {
        process.send(&Request::Run(phase))?;
    }
    let ran: Vec<Result<Answer>> = crew.iter_mut().map(Process::answer).collect();
    if let Some(error) = ran.iter().find_map(|answer| answer.as_ref().err()) {
        let error = anyhow!("{error:#}");
        clean(crew);
        return Err(error);
    }
    for process in crew.iter_mut() {
        process.send(&Request::Leave)?;
    }
    let mut timings = Vec::with_capacity(crew.len());
    for (process, ran) in crew.iter_mut().zip(ran) {
        let Answer::Ran { begun_ns, ended_ns, work } = ran? else {
            bail!("worker {} ran out of turn", process.index)
        };
        let Answer::Left(left_ns) = process.answer()? else {
            bail!("worker {} left out of turn", process.index)
        };
        timings.push(Timing { begun_ns, ended_ns, left_ns, work });
    }
    Ok(timings)
}

/// Lets every worker that still lives remove its files; the error that led here is the one to report.
fn clean(crew: &mut [Process]) {
    for process in crew.iter_mut() {
        if process.send(&Request::Clean).is_ok() {
            let _ = process.answer();
        }
    }
}

struct Process {
    index: usize,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(command: &WorkerCommand, index: usize) -> Result<Process> {
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start worker {index}: {}", command.program.display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the worker's output is no pipe")?;
        Ok(Process { index, child, input, output: BufReader::new(output) })
    }

    fn send(&mut self, request: &Request) -> Result<()> {
        let input = self.input.as_mut().context("the worker's input is no pipe")?;
        send(input, request).with_context(|| format!("worker {} is gone", self.index))
    }

    fn answer(&mut self) -> Result<Answer> {
        let answer = receive(&mut self.output).with_context(|| format!("worker {}", self.index))?;
        match answer {
            Some(Answer::Failed(error)) => bail!("worker {} failed: {error}", self.index),
            Some(answer) => Ok(answer),
            None => bail!("worker {} ended unexpectedly", self.index),
        }
    }

    fn end(mut self) -> Result<()> {
        self.input = None;
        let status = self.child.wait().with_context(|| format!("cannot wait for worker {}", self.index))?;
        if !status.success() {
            bail!("worker {} ended with {status}", self.index);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // With its input closed a worker ends by itself; one that hangs in a dead mount must not hang us too.
        if self.input.take().is_some() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn send(output: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    Ok(output.flush()?)
}

/// The next message, or `None` at the end of the stream.
fn receive<M: for<'de> Deserialize<'de>>(input: &mut impl BufRead) -> Result<Option<M>> {
    let mut line = String::new();
    let n = std::io::Read::take(&mut *input, LINE_MAX).read_line(&mut line)?;
    if n == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).with_context(|| format!("no message of ours: {}", line.trim_end()))
}
