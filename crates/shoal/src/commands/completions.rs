//! `shoal completions` and `shoal man`: made from the command tree.

use crate::cli::Cli;
use crate::out;
use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// Completions for a shell, to standard output.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "shoal", &mut script);
    out::bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// A man page for each command, into a folder.
pub fn man(folder: &Path, as_json: bool) -> Result<ExitCode> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
    let pages = std::fs::read_dir(folder)?.count();
    if as_json {
        out::json_line(&json!({ "folder": folder.display().to_string(), "pages": pages }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(format!(
        "{pages} pages in {}; read one with: man -l {}/shoal.1",
        folder.display(),
        folder.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}
