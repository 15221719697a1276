//! Mount options as mount(8) and fstab(5) write them: `-o ro,nodev,key=/etc/shoal/key`.
//!
//! If two options contradict each other, the later one counts. Options about the time and the user of a
//! mount (`noauto`, `nofail`, `_netdev`, `x-…`) are for mount(8) and systemd, and are ignored. Options
//! without an effect in ShoalFS are ignored too (`relatime`: reading never changes a time). Any other
//! option is an error: an option that is meant to protect must not be ignored.
//!
//! **As a helper of mount(8)** ([`helper_arguments`]) the program is called `mount.fuse.shoal`, by a symbolic
//! link in `/sbin`:
//!
//! ```text
//!   ln -s "$(command -v shoal)" /sbin/mount.fuse.shoal
//!   shoal://10.0.0.1:7441/demo  /mnt/demo  fuse.shoal  key=/etc/shoal/key,_netdev,nofail  0 0   (/etc/fstab)
//! ```

use anyhow::{Context as _, Result, bail};
use shoal_fuse::MountOptions;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// The words of `-o`; also listed in an error.
pub const OFFERED: &str = "ro, rw, suid, nosuid, dev, nodev, exec, noexec, allow_other, direct, no_stat_ahead, \
     local_locks, \
     attr_timeout=MS, timeout=S, threads=N, key=FILE";
/// For others than us, or without an effect here.
const PASSED_OVER: [&str; 22] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "silent",
];
/// The same, with any ending.
const PASSED_OVER_BEGINNINGS: [&str; 4] = ["x-", "X-", "comment=", "user="];
/// Names under which mount(8) looks for its helper of `-t fuse.shoal` and of `-t shoal`.
const HELPER_NAMES: [&str; 2] = ["mount.fuse.shoal", "mount.shoal"];

/// The contents of a list of options apart from the mount's behaviour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The key file.
    pub key: Option<PathBuf>,
    /// The time limit of operations.
    pub timeout: Option<Duration>,
}

/// Take lists of options in.
pub fn apply(lists: &[String], how: &mut MountOptions) -> Result<Said> {
    let mut said = Said::default();
    for word in lists.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty()) {
        apply_one(word, how, &mut said)?;
    }
    Ok(said)
}

fn apply_one(word: &str, how: &mut MountOptions, said: &mut Said) -> Result<()> {
    match word.split_once('=') {
        None => match word {
            "ro" => how.read_only = true,
            "rw" => how.read_only = false,
            "suid" => how.suid = true,
            "nosuid" => how.suid = false,
            "dev" => how.dev = true,
            "nodev" => how.dev = false,
            "exec" => how.exec = true,
            "noexec" => how.exec = false,
            "allow_other" => how.allow_other = true,
            "direct" => how.direct = true,
            "local_locks" => how.local_locks = true,
            "no_stat_ahead" => how.stat_ahead = false,
            "remount" => bail!(
                "the mount option `remount` is not offered here: unmount and mount again, or, for ro and rw only, \
                 `mount -i -o remount,…`"
            ),
            "sync" | "dirsync" => bail!(
                "the mount option `{word}` is not offered: names are durable when a call returns; for data make the file \
                 system with `--data-sync reply`, or open files with O_SYNC"
            ),
            _ if is_passed_over(word) => {}
            _ => bail!("unknown mount option `{word}`; there are: {OFFERED}"),
        },
        Some((name, value)) => match name {
            "attr_timeout" => how.cache = Duration::from_millis(number(name, value)?),
            "timeout" => said.timeout = Some(Duration::from_secs(number::<u64>(name, value)?.max(1))),
            "threads" => how.threads = number(name, value)?,
            "key" if !value.is_empty() => said.key = Some(PathBuf::from(value)),
            _ if is_passed_over(word) => {}
            _ => bail!("unknown mount option `{word}`; there are: {OFFERED}"),
        },
    }
    Ok(())
}

fn is_passed_over(word: &str) -> bool {
    PASSED_OVER.contains(&word) || PASSED_OVER_BEGINNINGS.iter().any(|beginning| word.starts_with(beginning))
}

fn number<T: FromStr<Err = std::num::ParseIntError>>(name: &str, value: &str) -> Result<T> {
    value.parse().with_context(|| format!("the mount option `{name}={value}`: not a number"))
}

/// If mount(8) calls us as its helper
/// (`mount.fuse.shoal SOURCE PLACE [-sfnv] [-N FILE] [-t KIND] [-o OPTIONS]`): the arguments of our own
/// command; none if it only tries what would be done (`-f`).
pub fn helper_arguments(all: &[OsString]) -> Option<Result<Vec<OsString>>> {
    let (program, arguments) = all.split_first()?;
    let called = Path::new(program).file_name()?;
    HELPER_NAMES.iter().any(|name| called == *name).then(|| translate(arguments))
}

fn translate(arguments: &[OsString]) -> Result<Vec<OsString>> {
    let mut own: Vec<OsString> = vec!["mount".into(), "--background".into()];
    let (mut places, mut is_trial) = (0, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        match &*text {
            "-o" => own.extend(["-o".into(), rest.next().context("no options follow -o")?.clone()]),
            "-t" | "-N" => {
                rest.next();
            }
            flags if flags.starts_with('-') => is_trial |= flags.contains('f'),
            _ => {
                own.push(argument.clone());
                places += 1;
            }
        }
    }
    if places != 2 {
        bail!(
            "a helper of mount(8) is called with a source and a place: {} SOURCE PLACE [-o OPTIONS]",
            HELPER_NAMES[0]
        );
    }
    Ok(if is_trial { Vec::new() } else { own })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn applied(list: &str) -> Result<(MountOptions, Said)> {
        let mut how = MountOptions::default();
        apply(&[list.to_owned()], &mut how).map(|said| (how, said))
    }

    #[test]
    fn options_are_read_as_fstab_writes_them_and_the_later_counts() {
        let (how, said) =
            applied("defaults,ro,suid,dev,noexec,_netdev,x-systemd.automount,key=/k,timeout=7").unwrap();
        assert!(how.read_only && how.suid && how.dev && !how.exec);
        assert_eq!(said, Said { key: Some("/k".into()), timeout: Some(Duration::from_secs(7)) });
        let (how, _) =
            applied("ro,rw,suid,nosuid,dev,nodev,noexec,exec,attr_timeout=0,threads=3,direct").unwrap();
        assert!(!how.read_only && !how.suid && !how.dev && how.exec && how.direct);
        assert_eq!((how.cache, how.threads), (Duration::ZERO, 3));
        assert_eq!(applied("").unwrap().0, MountOptions::default());
    }

    #[test]
    fn an_option_that_is_not_offered_is_refused_in_words() {
        for list in ["ro,acl", "nosuid=1", "key=", "attr_timeout=soon", "sync", "remount,ro"] {
            let word = list.split(',').next_back().filter(|_| list != "remount,ro").unwrap_or("remount");
            let error = applied(list).unwrap_err().to_string();
            assert!(error.contains(word), "{list}: {error}");
        }
        // The remedy is a command that exists.
        let error = applied("sync").unwrap_err().to_string();
        let option = error.split('`').find(|text| text.starts_with("--data-sync ")).unwrap();
        let command = ["shoal", "up", "data"].into_iter().chain(option.split(' '));
        assert!(crate::cli::Cli::command().try_get_matches_from(command).is_ok(), "{option}");
    }

    #[test]
    fn mount_calls_the_program_as_its_helper() {
        let arguments = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        let own = |text: &str| helper_arguments(&arguments(text));
        let translated =
            own("/sbin/mount.fuse.shoal shoal://h:1/fs /mnt -n -v -o ro,key=/k -t fuse.shoal").unwrap();
        assert_eq!(translated.unwrap(), arguments("mount --background shoal://h:1/fs /mnt -o ro,key=/k"));
        assert!(own("mount.shoal shoal://h:1/fs /mnt -f -o ro").unwrap().unwrap().is_empty());
        assert!(own("mount.fuse.shoal shoal://h:1/fs").unwrap().is_err());
        assert!(own("/usr/bin/shoal mount x y").is_none());
    }
}
