//! A process reads its group from environment variables.
//!
//! ```text
//!   variable             meaning                          default
//!   SHOAL_GROUP_RANK     number of this process           the launcher's variable
//!   SHOAL_GROUP_SIZE     number of members                the launcher's variable
//!   SHOAL_GROUP_JOB      name of the job                  the launcher's job, or `job`
//!   SHOAL_GROUP_LISTEN   address at which member 0        tcp:127.0.0.1:0, or a port of its host
//!                        listens
//!   SHOAL_GROUP_SECONDS  limit of each wait, in seconds   10
//! ```
//!
//! Without `SHOAL_GROUP_RANK` and `SHOAL_GROUP_SIZE` the launcher's variables are used: `PMI_RANK`,
//! `PMI_SIZE` (MPICH, Intel MPI), `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` (Open MPI), `SLURM_PROCID`,
//! `SLURM_NTASKS` (srun). Without `SHOAL_GROUP_LISTEN` member 0 listens at the loopback address if a user
//! named the group, or if the launcher says that all members are on one machine. Otherwise it listens at a
//! port of its host.

use super::Meeting;
use shoal_env::Address;
use std::time::Duration;

/// Rank, size, and the number of members of this machine, by launcher.
const LAUNCHERS: [[&str; 3]; 3] = [
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS"],
];
/// Where a launcher names its job.
const JOBS: [[&str; 2]; 2] = [["SLURM_JOB_ID", "SLURM_STEP_ID"], ["PMIX_NAMESPACE", "PMIX_NAMESPACE"]];
/// Words of a number of machines of a step.
const MACHINES: &str = "SLURM_STEP_NUM_NODES";
const PATIENCE: Duration = Duration::from_secs(10);
const SECONDS_MAX: u64 = 3600;

/// A group as the environment names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// How to meet.
    pub meeting: Meeting,
    /// The user named it, not the launcher alone.
    pub is_users: bool,
}

impl Meeting {
    /// The group that these variables name, if any. `host`: the name of this machine.
    ///
    /// # Errors
    /// In words: a value that is none, or a rank without a size.
    pub fn of_environment(
        variable: impl Fn(&str) -> Option<String>,
        host: Option<&str>,
    ) -> Result<Option<Named>, String> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let number = |name: &str| match variable(name).map(|value| value.parse::<usize>()) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(format!("{name} is no number")),
        };
        let is_users = variable("SHOAL_GROUP_RANK").is_some() || variable("SHOAL_GROUP_SIZE").is_some();
        let launcher =
            LAUNCHERS.iter().find(|[rank, size, _]| variable(rank).is_some() && variable(size).is_some());
        let (rank, size, here) = match (is_users, launcher) {
            (true, _) => (number("SHOAL_GROUP_RANK")?, number("SHOAL_GROUP_SIZE")?, None),
            (false, Some([rank, size, here])) => (number(rank)?, number(size)?, number(here)?),
            (false, None) => return Ok(None),
        };
        let (Some(rank), Some(size)) = (rank, size) else {
            return Err("a group has both, SHOAL_GROUP_RANK and SHOAL_GROUP_SIZE".to_owned());
        };
        let is_one_machine =
            is_users || number(MACHINES)?.map_or(here == Some(size), |machines| machines == 1);
        let listen = match (variable("SHOAL_GROUP_LISTEN"), host) {
            (Some(listen), _) => listen.parse().map_err(|why| format!("SHOAL_GROUP_LISTEN: {why}"))?,
            (None, Some(host)) if !is_one_machine => Address::Host(host.to_owned(), 0),
            _ => Address::Tcp(([127, 0, 0, 1], 0).into()),
        };
        let seconds = number("SHOAL_GROUP_SECONDS")?.map(|seconds| seconds as u64);
        let patience = seconds.map_or(PATIENCE, |seconds| Duration::from_secs(seconds.clamp(1, SECONDS_MAX)));
        let job = variable("SHOAL_GROUP_JOB").unwrap_or_else(|| job_of(variable));
        let meeting = Meeting { job, rank, size, listen, patience };
        meeting.name().map_err(|error| error.words)?;
        Ok(Some(Named { meeting, is_users }))
    }
}

/// The name of a launcher's job, in letters that a job's name has.
fn job_of(variable: impl Fn(&str) -> Option<String>) -> String {
    let named = JOBS.iter().find_map(|names| {
        let parts: Option<Vec<String>> = names.iter().map(|name| variable(name)).collect();
        let mut parts = parts?;
        parts.dedup();
        Some(parts.join("-"))
    });
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    named.unwrap_or_else(|| "job".to_owned()).chars().map(plain).take(super::meeting::JOB_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(variables: &[(&str, &str)]) -> Result<Option<Named>, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Meeting::of_environment(variable, Some("node7"))
    }

    #[test]
    fn a_group_is_the_users_or_else_the_launchers() {
        assert_eq!(named(&[("PATH", "/bin")]), Ok(None));
        let users = named(&[
            ("SHOAL_GROUP_RANK", "1"),
            ("SHOAL_GROUP_SIZE", "4"),
            ("PMI_RANK", "9"),
            ("PMI_SIZE", "10"),
        ]);
        let users = users.unwrap().unwrap();
        assert_eq!((users.meeting.rank, users.meeting.size, users.is_users), (1, 4, true));
        assert_eq!(users.meeting.listen.to_string(), "tcp:127.0.0.1:0");
        assert_eq!((users.meeting.job.as_str(), users.meeting.patience), ("job", PATIENCE));
        for [rank, size, _] in LAUNCHERS {
            let found = named(&[(rank, "3"), (size, "8")]).unwrap().unwrap();
            assert_eq!((found.meeting.rank, found.meeting.size, found.is_users), (3, 8, false), "{rank}");
        }
    }

    #[test]
    fn members_of_one_machine_meet_at_the_loopback_and_others_at_a_port_of_member_0s_host() {
        let of = |more: &[(&str, &str)]| {
            let all = [&[("PMI_RANK", "0"), ("PMI_SIZE", "4")], more].concat();
            named(&all).unwrap().unwrap().meeting.listen.to_string()
        };
        assert_eq!(of(&[("MPI_LOCALNRANKS", "4")]), "tcp:127.0.0.1:0");
        assert_eq!(of(&[("MPI_LOCALNRANKS", "2")]), "tcp:node7:0");
        assert_eq!(of(&[("SLURM_STEP_NUM_NODES", "1")]), "tcp:127.0.0.1:0");
        assert_eq!(of(&[]), "tcp:node7:0");
        assert_eq!(of(&[("SHOAL_GROUP_LISTEN", "tcp:10.0.0.5:0")]), "tcp:10.0.0.5:0");
    }

    #[test]
    fn a_job_has_the_launchers_name_in_plain_letters() {
        let of = |more: &[(&str, &str)]| {
            let all = [&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")], more].concat();
            named(&all).unwrap().unwrap().meeting.job
        };
        assert_eq!(of(&[("SLURM_JOB_ID", "17"), ("SLURM_STEP_ID", "0")]), "17-0");
        assert_eq!(of(&[("PMIX_NAMESPACE", "prterun-n1.x@1")]), "prterun-n1-x-1");
        assert_eq!(of(&[("PMIX_NAMESPACE", "prterun"), ("SHOAL_GROUP_JOB", "mine")]), "mine");
    }

    #[test]
    fn values_that_are_none_are_refused_in_words() {
        for (variables, reason) in [
            (&[("SHOAL_GROUP_RANK", "1")][..], "SHOAL_GROUP_SIZE"),
            (&[("SHOAL_GROUP_RANK", "x"), ("SHOAL_GROUP_SIZE", "4")], "SHOAL_GROUP_RANK is no number"),
            (&[("PMI_RANK", "4"), ("PMI_SIZE", "4")], "ranks are below the size"),
            (&[("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("SHOAL_GROUP_JOB", "a/b")], "no name of a job"),
            (&[("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("SHOAL_GROUP_LISTEN", "node")], "SHOAL_GROUP_LISTEN"),
        ] {
            let words = named(variables).unwrap_err();
            assert!(words.contains(reason), "{words}");
        }
    }
}
