//! The error for a file that is not a valid experiment. It names the file, the place and the remedy.

/// Why an experiment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No such experiment.
    #[error(
        "no experiment is called `{name}`, and no file either: `shoal paper --list` shows those that are"
    )]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read the experiment {file}: {why}")]
    Unreadable {
        /// Which.
        file: String,
        /// Why.
        why: std::io::Error,
    },
    /// It is no experiment.
    #[error(
        "{file} is no experiment: {why}\n       docs/lab/EXPERIMENTS.md says what keys there are; lab/experiments/pvfs-3a.toml is an example"
    )]
    Malformed {
        /// Which.
        file: String,
        /// Where, and which key.
        why: String,
    },
    /// Something in it refers to nothing, or makes no sense.
    #[error("{file}: {what}: {remedy}")]
    Value {
        /// Which.
        file: String,
        /// Where in it.
        what: String,
        /// The remedy.
        remedy: String,
    },
}
