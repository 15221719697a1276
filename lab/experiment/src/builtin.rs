//! The experiments that come with the program: every file of `lab/experiments/`.

use crate::file::{Experiment, FileError};
use std::path::Path;

/// The files, in the order in which they are shown and run.
const FILES: &[(&str, &str)] = &[
    ("pvfs-3a", include_str!("../../experiments/pvfs-3a.toml")),
    ("pvfs-3b", include_str!("../../experiments/pvfs-3b.toml")),
    ("pvfs-tmpfs", include_str!("../../experiments/pvfs-tmpfs.toml")),
    ("pvfs-unstuff", include_str!("../../experiments/pvfs-unstuff.toml")),
    ("pvfs-4", include_str!("../../experiments/pvfs-4.toml")),
    ("pvfs-5", include_str!("../../experiments/pvfs-5.toml")),
    ("pvfs-table1", include_str!("../../experiments/pvfs-table1.toml")),
    ("bgp-7", include_str!("../../experiments/bgp-7.toml")),
    ("bgp-8", include_str!("../../experiments/bgp-8.toml")),
    ("bgp-9", include_str!("../../experiments/bgp-9.toml")),
    ("bgp-table2", include_str!("../../experiments/bgp-table2.toml")),
    ("bgp-ion", include_str!("../../experiments/bgp-ion.toml")),
    ("thesis-4-1", include_str!("../../experiments/thesis-4-1.toml")),
    ("thesis-4-2", include_str!("../../experiments/thesis-4-2.toml")),
    ("thesis-4-3", include_str!("../../experiments/thesis-4-3.toml")),
    ("thesis-4-4", include_str!("../../experiments/thesis-4-4.toml")),
    ("thesis-4-5", include_str!("../../experiments/thesis-4-5.toml")),
    ("thesis-4-6", include_str!("../../experiments/thesis-4-6.toml")),
    ("thesis-7-blocks-library", include_str!("../../experiments/thesis-7-blocks-library.toml")),
    ("thesis-7-blocks-1d-1", include_str!("../../experiments/thesis-7-blocks-1d-1.toml")),
    ("thesis-7-blocks-1d-5", include_str!("../../experiments/thesis-7-blocks-1d-5.toml")),
    ("thesis-7-clients-1d", include_str!("../../experiments/thesis-7-clients-1d.toml")),
    ("thesis-7-blocks-5d-1", include_str!("../../experiments/thesis-7-blocks-5d-1.toml")),
    ("thesis-7-blocks-5d-5", include_str!("../../experiments/thesis-7-blocks-5d-5.toml")),
    ("thesis-7-clients-5d", include_str!("../../experiments/thesis-7-clients-5d.toml")),
    ("thesis-7-1d-5d", include_str!("../../experiments/thesis-7-1d-5d.toml")),
    ("thesis-7-1d-5d-clients", include_str!("../../experiments/thesis-7-1d-5d-clients.toml")),
    ("thesis-7-large-by-small", include_str!("../../experiments/thesis-7-large-by-small.toml")),
    ("thesis-7-large-1d-1", include_str!("../../experiments/thesis-7-large-1d-1.toml")),
    ("thesis-7-large-1d-5", include_str!("../../experiments/thesis-7-large-1d-5.toml")),
    ("thesis-7-large-5d-1", include_str!("../../experiments/thesis-7-large-5d-1.toml")),
    ("thesis-7-large-5d-5", include_str!("../../experiments/thesis-7-large-5d-5.toml")),
    ("thesis-7-large-1d-clients", include_str!("../../experiments/thesis-7-large-1d-clients.toml")),
    ("thesis-7-large-5d-clients", include_str!("../../experiments/thesis-7-large-5d-clients.toml")),
    ("thesis-7-create-library", include_str!("../../experiments/thesis-7-create-library.toml")),
    ("thesis-7-create-1d-1", include_str!("../../experiments/thesis-7-create-1d-1.toml")),
    ("thesis-7-create-1d-5", include_str!("../../experiments/thesis-7-create-1d-5.toml")),
    ("thesis-7-create-5m5d-1", include_str!("../../experiments/thesis-7-create-5m5d-1.toml")),
    ("thesis-7-create-5m5d-5", include_str!("../../experiments/thesis-7-create-5m5d-5.toml")),
    ("thesis-7-clients-6400-1d", include_str!("../../experiments/thesis-7-clients-6400-1d.toml")),
    ("thesis-7-clients-51200-1d", include_str!("../../experiments/thesis-7-clients-51200-1d.toml")),
    ("thesis-7-clients-6400-5m5d", include_str!("../../experiments/thesis-7-clients-6400-5m5d.toml")),
    ("thesis-7-clients-51200-5m5d", include_str!("../../experiments/thesis-7-clients-51200-5m5d.toml")),
    ("thesis-7-create-bounds", include_str!("../../experiments/thesis-7-create-bounds.toml")),
    ("thesis-7-create-1d-5d", include_str!("../../experiments/thesis-7-create-1d-5d.toml")),
    ("thesis-7-1m-5m-1", include_str!("../../experiments/thesis-7-1m-5m-1.toml")),
    ("thesis-7-1m-5m-5", include_str!("../../experiments/thesis-7-1m-5m-5.toml")),
    ("thesis-7-1m-5m-clients", include_str!("../../experiments/thesis-7-1m-5m-clients.toml")),
    ("thesis-7-chiba", include_str!("../../experiments/thesis-7-chiba.toml")),
    ("thesis-10-cache", include_str!("../../experiments/thesis-10-cache.toml")),
    ("lookups", include_str!("../../experiments/lookups.toml")),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// All of them.
///
/// # Errors
/// When one is no experiment.
pub fn all() -> Result<Vec<Experiment>, FileError> {
    FILES.iter().map(|(name, text)| parse(name, text)).collect()
}

/// One that comes with the program by its name, or a file.
///
/// # Errors
/// When there is neither.
pub fn find(words: &str) -> Result<Experiment, FileError> {
    let path = Path::new(words);
    if words.contains('/') || path.extension().is_some_and(|end| end == "toml") {
        return Experiment::read(path);
    }
    let known = FILES.iter().find(|(name, _)| *name == words);
    let (name, text) = known.ok_or_else(|| FileError::Unknown { name: words.to_owned() })?;
    parse(name, text)
}

fn parse(name: &str, text: &str) -> Result<Experiment, FileError> {
    Experiment::parse(text, &format!("lab/experiments/{name}.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_comes_with_the_program_under_its_own_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
        let entries = std::fs::read_dir(folder).expect("it is there");
        let stem = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.expect("readable").path();
            path.file_stem().and_then(|stem| stem.to_str()).expect("text").to_owned()
        };
        let files: BTreeSet<String> = entries.map(stem).collect();
        let known: BTreeSet<String> = names().map(str::to_owned).collect();
        assert_eq!(files, known);
        for experiment in all().expect("all are experiments") {
            assert!(known.contains(&experiment.name), "{}", experiment.name);
        }
    }

    #[test]
    fn what_is_unknown_is_told() {
        let told = find("pvfs-99").expect_err("there is none").to_string();
        assert!(told.contains("pvfs-99") && told.contains("--list"), "{told}");
        assert!(find("./none.toml").expect_err("no file").to_string().contains("none.toml"));
    }
}
