//! Settings of containers, as users write them: `backends=DIR2:DIR3,index=parallel`.
//!
//! There are three designs of reading the indexes of many writers, from PLFS. They differ in cost, never in
//! the bytes of a file, and programs with different designs may use the same file:
//!
//! | design | N readers of N writers open | a close |
//! |---|---|---|
//! | original | N² index logs | makes no index |
//! | flatten | one flattened index each, if it exists | the last of many writers makes it |
//! | parallel | N index logs together, or one flattened index | as with `flatten` |

use crate::group::{Meeting, Named};
use std::path::PathBuf;

/// How the indexes of many writers are read. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IndexDesign {
    /// Each reader reads the index logs of all writers.
    Original,
    /// The last writer that closes makes one index of all.
    #[default]
    Flatten,
    /// The members of a group read the index logs together.
    Parallel,
}

/// A user's settings for containers in a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContainerSettings {
    /// Further directories for files and logs.
    pub backends: Vec<PathBuf>,
    /// The design, if one was named.
    pub index: Option<IndexDesign>,
}

impl ContainerSettings {
    /// Read `backends=DIR2:DIR3` and `index=DESIGN`, each at most once, with commas between.
    ///
    /// # Errors
    /// In words: another setting, or a value that is none.
    pub fn parse(words: &str) -> Result<ContainerSettings, String> {
        let mut settings = ContainerSettings::default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("backends", dirs)) => settings.backends.extend(directories(dirs)?),
                Some(("index", design)) => settings.index = Some(IndexDesign::parse(design)?),
                _ => {
                    return Err(format!(
                        "unknown setting `{word}`; `container` has `backends=DIR2:DIR3` and \
                         `index=original|flatten|parallel`"
                    ));
                }
            }
        }
        Ok(settings)
    }

    /// The design, and the group of this process. If no design is named, a group that the user named (and not
    /// the launcher alone) reads in parallel.
    pub fn design(&self, group: Option<&Named>) -> (IndexDesign, Option<Meeting>) {
        let index = match (self.index, group) {
            (None, Some(named)) if named.is_users => IndexDesign::Parallel,
            (index, _) => index.unwrap_or_default(),
        };
        let group = group.filter(|_| index == IndexDesign::Parallel);
        (index, group.map(|named| named.meeting.clone()))
    }
}

impl IndexDesign {
    fn parse(text: &str) -> Result<IndexDesign, String> {
        match text {
            "original" => Ok(IndexDesign::Original),
            "flatten" => Ok(IndexDesign::Flatten),
            "parallel" => Ok(IndexDesign::Parallel),
            _ => Err(format!("there is no index design `{text}`: name original, flatten or parallel")),
        }
    }
}

fn directories(dirs: &str) -> Result<Vec<PathBuf>, String> {
    let absolute = |dir: &str| {
        let dir = PathBuf::from(dir);
        match dir.is_absolute() {
            true => Ok(dir),
            false => Err(format!("the backend `{}` is no absolute path: write it from / on", dir.display())),
        }
    };
    dirs.split(':').map(absolute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn settings_are_read_and_others_refused_with_the_remedy() {
        let parse = ContainerSettings::parse;
        assert_eq!(parse(""), Ok(ContainerSettings::default()));
        let both = parse("index=parallel,backends=/two:/three").unwrap();
        assert_eq!(both.backends, [PathBuf::from("/two"), PathBuf::from("/three")]);
        assert_eq!(both.index, Some(IndexDesign::Parallel));
        for (words, reason) in [
            ("index=fast", "original, flatten or parallel"),
            ("indexes=flatten", "index=original|flatten|parallel"),
            ("backends=two", "from / on"),
        ] {
            assert!(parse(words).unwrap_err().contains(reason), "{words}");
        }
    }

    #[test]
    fn a_group_reads_in_parallel_if_a_user_named_it_or_the_design() {
        let listen = "tcp:127.0.0.1:0".parse().unwrap();
        let patience = Duration::from_secs(1);
        let meeting = Meeting { job: "job".to_owned(), rank: 0, size: 2, listen, patience };
        let named = |is_users| Named { meeting: meeting.clone(), is_users };
        let design = |words: &str, group: Option<Named>| {
            let (index, group) = ContainerSettings::parse(words).unwrap().design(group.as_ref());
            (index, group.is_some())
        };
        assert_eq!(design("", Some(named(true))), (IndexDesign::Parallel, true));
        assert_eq!(design("", Some(named(false))), (IndexDesign::Flatten, false));
        assert_eq!(design("index=parallel", Some(named(false))), (IndexDesign::Parallel, true));
        assert_eq!(design("index=parallel", None), (IndexDesign::Parallel, false));
        assert_eq!(design("index=original", Some(named(true))), (IndexDesign::Original, false));
    }
}
