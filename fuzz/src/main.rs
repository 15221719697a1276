//! The fuzzer for the stable compiler. `--help` says how to use it.

use shoal_fuzz::hunt::{Until, hunt, stands};
use shoal_fuzz::{Counting, TARGETS, Target, corpus};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const USAGE: &str = "\
Usage: shoal-fuzz [--seconds N | --runs N] [--target NAME] [--seed N]
       shoal-fuzz --target NAME --repeat FILE
       shoal-fuzz --list | --write-corpus

Feeds every decoder with mutations of right inputs. An input that breaks one is kept in fuzz/crashes/.

  --seconds N    seconds for each target (2)
  --runs N       executions for each target instead: the same inputs every time
  --target NAME  this target alone
  --seed N       another sequence of inputs (1)
  --repeat FILE  run one input
  --list         the targets
  --write-corpus put the right inputs of every target into fuzz/corpus/";

struct Asked {
    seconds: f64,
    runs: Option<u64>,
    target: Option<&'static Target>,
    seed: u64,
    repeat: Option<PathBuf>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Asked>, String> {
    let mut asked = Asked { seconds: 2.0, runs: None, target: None, seed: 1, repeat: None };
    while let Some(word) = words.next() {
        if ["--help", "-h", "--list"].contains(&word.as_str()) {
            let names = TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join("\n");
            println!("{}", if word == "--list" { &names } else { USAGE });
            return Ok(None);
        }
        if word == "--write-corpus" {
            let written = TARGETS.iter().try_for_each(|target| corpus::write(target, corpus::home()));
            return written.map(|()| None).map_err(|error| format!("the corpus cannot be written: {error}"));
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value, or is none of the options"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}: not a number"));
        match word.as_str() {
            "--seconds" => asked.seconds = number()? as f64,
            "--runs" => asked.runs = Some(number()?),
            "--seed" => asked.seed = number()?,
            "--target" => asked.target = Some(named(&value)?),
            "--repeat" => asked.repeat = Some(value.into()),
            _ => return Err(format!("{word} is none of the options")),
        }
    }
    Ok(Some(asked))
}

fn named(name: &str) -> Result<&'static Target, String> {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.ok_or_else(|| format!("no target is named {name}: --list names them"))
}

/// Runs one kept input, with the panic's own words on the standard error.
fn repeat(target: Option<&Target>, path: &Path) -> Result<ExitCode, String> {
    let target = target.ok_or("--repeat needs --target")?;
    let input = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match stands(target, &input) {
        Ok(()) => {
            println!("{} stands it", target.name);
            Ok(ExitCode::SUCCESS)
        }
        Err(_) => Ok(ExitCode::FAILURE),
    }
}

/// No decoder takes nearly so long for one input.
const STUCK_AFTER: Duration = Duration::from_secs(20);

/// The present target, and its start.
type Running = Arc<Mutex<Option<(&'static Target, Vec<u8>, Instant)>>>;

/// Ends the program when one input takes for ever: a decoder that never comes back is broken, too.
fn watch(running: &Running) {
    let running = running.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let Ok(now) = running.lock() else { return };
            if let Some((target, input, since)) = &*now
                && since.elapsed() > STUCK_AFTER
            {
                say_broken(target, input, "it does not come to an end");
                std::process::exit(1);
            }
        }
    });
}

fn say_broken(target: &Target, input: &[u8], words: &str) {
    println!("{} broke: {words}", target.name);
    match corpus::keep_crash(target.name, input, corpus::home()) {
        Ok(path) => {
            println!("  cargo run -p shoal-fuzz -- --target {} --repeat {}", target.name, path.display());
        }
        Err(error) => println!("  and its input could not be kept: {error}"),
    }
}

fn hunt_all(asked: &Asked) -> Result<ExitCode, String> {
    let targets = asked.target.map_or(TARGETS, std::slice::from_ref);
    let mut done = Vec::new();
    let running = Running::default();
    watch(&running);
    for target in targets {
        let inputs =
            corpus::of(target, corpus::home()).map_err(|error| format!("{}: {error}", target.name))?;
        let until = match asked.runs {
            Some(runs) => Until::Runs(runs),
            None => Until::Moment(Instant::now() + Duration::from_secs_f64(asked.seconds)),
        };
        let hunted = hunt(target, &inputs, asked.seed, until, |input| {
            if let Ok(mut running) = running.lock() {
                *running = Some((target, input.to_vec(), Instant::now()));
            }
        });
        if let Some((input, words)) = hunted.broken {
            say_broken(target, &input, &words);
            println!("  (execution {}, seed {})", hunted.runs, asked.seed);
            return Ok(ExitCode::FAILURE);
        }
        done.push(format!("{} {}", target.name, hunted.runs));
    }
    println!("executions (seed {}): {}", asked.seed, done.join(", "));
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let answer = match parse(std::env::args().skip(1)) {
        Ok(None) => return ExitCode::SUCCESS,
        Err(words) => Err(format!("{words}\n\n{USAGE}")),
        Ok(Some(Asked { repeat: Some(path), target, .. })) => repeat(target, &path),
        Ok(Some(asked)) => hunt_all(&asked),
    };
    answer.unwrap_or_else(|words| {
        eprintln!("shoal-fuzz: {words}");
        ExitCode::from(2)
    })
}
