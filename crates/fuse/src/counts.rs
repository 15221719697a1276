//! Counts of the kernel's requests by kind: one table of atomic counts, shared by the event loops and its
//! readers.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! verbs {
    ($($verb:ident $word:literal,)*) => {
        /// The kinds of requests of the kernel to a mount.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "each is FUSE's operation of that name")]
        pub enum Verb { $($verb,)* }

        impl Verb {
            /// All of them.
            pub const ALL: &'static [Verb] = &[$(Verb::$verb,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Verb::$verb => $word,)* }
            }
        }
    };
}

verbs! {
    Lookup "lookup", Forget "forget", Getattr "getattr", Setattr "setattr", Readlink "readlink", Mknod "mknod",
    Mkdir "mkdir", Unlink "unlink", Rmdir "rmdir", Symlink "symlink", Rename "rename", Link "link", Open "open",
    Read "read", Write "write", Flush "flush", Release "release", Fsync "fsync", Opendir "opendir", Readdir "readdir",
    Readdirplus "readdirplus", Releasedir "releasedir", Fsyncdir "fsyncdir", Statfs "statfs", Setxattr "setxattr",
    Getxattr "getxattr", Listxattr "listxattr", Removexattr "removexattr", Access "access", Create "create",
    Fallocate "fallocate", Lseek "lseek", CopyFileRange "copy_file_range", Ioctl "ioctl", Poll "poll", Getlk "getlk",
    Setlk "setlk",
}

/// Counts of the kernel's requests since the mount began, by operation.
#[derive(Debug)]
pub struct RequestCounts([AtomicU64; Verb::ALL.len()]);

impl Default for RequestCounts {
    fn default() -> RequestCounts {
        RequestCounts([const { AtomicU64::new(0) }; Verb::ALL.len()])
    }
}

impl RequestCounts {
    pub(crate) fn add(&self, verb: Verb) {
        self.0[verb as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often `verb` was requested.
    pub fn of(&self, verb: Verb) -> u64 {
        self.0[verb as usize].load(Ordering::Relaxed)
    }

    /// All operations that were requested at least once.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let counted = Verb::ALL.iter().map(|verb| (verb.name(), self.of(*verb)));
        counted.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_told() {
        let counts = RequestCounts::default();
        counts.add(Verb::Lookup);
        counts.add(Verb::Poll);
        counts.add(Verb::Poll);
        assert_eq!(counts.all(), [("lookup", 1), ("poll", 2)]);
    }
}
