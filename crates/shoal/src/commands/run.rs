//! `shoal run`: runs a program with the preload library, in place of this process.
//!
//! The command checks its arguments before it starts the program, and reports a mistake with a message. In
//! the running program the same mistake would only be an error number.
//!
//! A run within a run serves the directories of both.

use crate::cli::Run;
use anyhow::{Context as _, Result, anyhow, bail};
use shoal_world::{Over, ProcessGroup};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The library's file.
const LIBRARY: &str = "libshoal_preload.so";
/// It is named by this variable, for the programs too.
const LIBRARY_VARIABLE: &str = "SHOAL_PRELOAD_LIB";
/// The list of file systems.
const LIST_VARIABLE: &str = "SHOAL_PRELOAD";
/// Variables of a former run that this one must not take over.
const FORMER: &str = "SHOAL_PRELOAD_CWD";
/// Bytes of a program's head that are looked at.
const HEAD_BYTES: u64 = 4096;
/// Interpreters of interpreters, at most.
const INTERPRETERS_MAX: usize = 4;

/// Become the program.
pub fn run(args: Run) -> Result<ExitCode> {
    let key = args.key.key.as_deref();
    let own = args.over.iter().map(|text| Over::parse(text, key)).collect::<Result<Vec<_>>>()?;
    let overs = beside(around(), own)?;
    // A mistake in them is said before the program runs.
    ProcessGroup::of_environment(|name| std::env::var(name).ok(), None)?;
    let library = library()?;
    let (program, arguments) = args.command.split_first().context("name a program")?;
    let mut command = command(&overs, program)?;
    let list: String = overs.iter().map(Over::to_line).collect();
    let error = command
        .args(arguments)
        .env(LIST_VARIABLE, list)
        .env(LIBRARY_VARIABLE, &library)
        .env("LD_PRELOAD", first(&library))
        .env_remove(FORMER)
        .exec();
    Err(anyhow!("cannot run {}: {error}", program.display()))
}

/// The file systems of the run in which this one was started.
fn around() -> Vec<Over> {
    let list = std::env::var(LIST_VARIABLE).unwrap_or_default();
    list.lines().filter_map(Over::from_line).collect()
}

/// Those of a run around this one, and then its own.
fn beside(mut all: Vec<Over>, own: Vec<Over>) -> Result<Vec<Over>> {
    Over::apart(&own)?;
    for over in own {
        match all.iter().find(|other| other.dir == over.dir) {
            Some(same) if same.shown == over.shown => {}
            Some(_) => bail!(
                "{} is served otherwise by the `shoal run` in which this one was started: give the same words, or leave this --over \
                 out",
                over.dir.display()
            ),
            None => all.push(over),
        }
    }
    Over::apart(&all)?;
    Ok(all)
}

/// The libraries to load first: ours, and those that are loaded already.
fn first(library: &Path) -> OsString {
    let others = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let is_there =
        others.as_bytes().split(|byte| b": ".contains(byte)).any(|one| one == library.as_os_str().as_bytes());
    match Some(others).filter(|others| !others.is_empty()) {
        Some(others) if is_there => others,
        Some(others) => [library.as_os_str(), OsStr::new(":"), &others].into_iter().collect(),
        None => library.into(),
    }
}

/// The program: by itself, or, if it lies in a file system that only the library sees, by `env`.
fn command(overs: &[Over], program: &OsStr) -> Result<Command> {
    let is_path = program.as_bytes().contains(&b'/');
    let path = if is_path { PathBuf::from(program) } else { find(program)? };
    let whole = std::path::absolute(&path)?;
    if overs.iter().any(|over| whole.starts_with(&over.dir) || whole.starts_with(&over.given)) {
        let mut command = Command::new("/usr/bin/env");
        command.arg("--").arg(program);
        return Ok(command);
    }
    check(&path, INTERPRETERS_MAX)?;
    Ok(Command::new(program))
}

fn find(program: &OsStr) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file());
    found.with_context(|| format!("there is no program `{}` in $PATH", program.display()))
}

/// Whether the library can be loaded into a program.
fn check(path: &Path, interpreters: usize) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot run {}", path.display()))?;
    let mode =
        file.metadata().with_context(|| format!("cannot run {}", path.display()))?.permissions().mode();
    if mode & 0o6000 != 0 && !rustix::process::geteuid().is_root() {
        bail!(
            "{} runs with another user's rights, so it ignores the library: run it as that user",
            path.display()
        );
    }
    let mut head = Vec::new();
    file.take(HEAD_BYTES)
        .read_to_end(&mut head)
        .with_context(|| format!("cannot read {}", path.display()))?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line).trim_ascii();
        let interpreter = line.split(u8::is_ascii_whitespace).next().unwrap_or(line);
        let interpreter = PathBuf::from(OsString::from_vec(interpreter.to_vec()));
        return if interpreters == 0 { Ok(()) } else { check(&interpreter, interpreters - 1) };
    }
    match is_static(&head) {
        Some(true) => bail!(
            "{} is a static program: it calls no C library, so no library can answer its calls. Build it without -static, or \
             use a mount (`shoal mount`)",
            path.display()
        ),
        _ => Ok(()),
    }
}

/// Whether a 64-bit ELF program names no loader; `None`: it is no such program.
fn is_static(head: &[u8]) -> Option<bool> {
    const LOADER: u32 = 3;
    let number = |at: usize, len: usize| {
        let bytes = head.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, each, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
    let mut kinds = (0..count).map_while(|index| number(table.checked_add(index * each)?, 4));
    Some(!kinds.any(|kind| kind == u64::from(LOADER)))
}

/// The library: as the environment names it, or beside this program.
fn library() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(LIBRARY_VARIABLE) {
        let named = std::path::absolute(PathBuf::from(named))?;
        if !named.is_file() {
            bail!("{LIBRARY_VARIABLE} names {}, which is no file: name {LIBRARY}", named.display());
        }
        return Ok(named);
    }
    let program = std::env::current_exe().context("cannot find this program, and the library beside it")?;
    let beside = program.parent().unwrap_or(Path::new("/")).to_owned();
    let places = [
        beside.join(LIBRARY),
        beside.join("../lib").join(LIBRARY),
        beside.join("../lib/shoal").join(LIBRARY),
    ];
    places.into_iter().find(|place| place.is_file()).with_context(|| {
        format!(
            "{LIBRARY} is not beside {}: build it (`cargo build -p shoal-preload`), or name it in {LIBRARY_VARIABLE}",
            program.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_world::Shown;

    #[test]
    fn a_run_within_a_run_serves_the_directories_of_both_and_none_in_two_ways() {
        let over = |dir: &str, shown| Over { dir: dir.into(), given: dir.into(), shown };
        let container = |dir| over(dir, Shown::Container(String::new()));
        let both = beside(vec![container("/a")], vec![over("/b", Shown::Plain), container("/a")]).unwrap();
        assert_eq!(both, [container("/a"), over("/b", Shown::Plain)]);
        let refused = beside(vec![container("/a")], vec![over("/a", Shown::Plain)]).unwrap_err().to_string();
        assert!(refused.contains("/a is served otherwise"), "{refused}");
        let refused =
            beside(vec![container("/a")], vec![over("/a/b", Shown::Plain)]).unwrap_err().to_string();
        assert!(refused.contains("lie in each other"), "{refused}");
    }

    #[test]
    fn a_program_with_a_loader_is_not_static_and_one_without_is() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let head = &own[..own.len().min(HEAD_BYTES as usize)];
        assert_eq!(is_static(head), Some(false));
        let mut without = head.to_vec();
        without[56] = 0;
        assert_eq!(is_static(&without), Some(true));
        assert_eq!(is_static(b"#!/bin/sh\n"), None);
        assert_eq!(is_static(b"\x7fELF\x02\x01"), None);
    }
}
