//! `shoal sim`: the cluster in one process under virtual time.

use clap::{Args, Subcommand};
use shoal_proto::Switches;
use shoal_sim::{ClusterConfig, Faults, RunConfig};

/// `shoal sim`.
#[derive(Subcommand, Debug)]
pub enum Sim {
    /// The run of one seed.
    #[command(after_help = "\
Example:  shoal sim run --seed 7
          shoal sim run --seed 7 --faults power-cut=3,partition --operations 200
Exit status: 0 every promise was kept, 1 one was broken.")]
    Run {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// The runs.
        #[command(flatten)]
        setup: SimSetup,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// The runs of many seeds, until one breaks a promise.
    #[command(after_help = "\
Example:  shoal sim soak --seeds 1000
          shoal sim soak --seeds 5000..9000 --jobs 2 --minutes 30 --keep-going
Each run that breaks a promise is printed with the command that repeats it and the end of its timeline.
A table shows for each step that must survive a stop how many stops fell just after it, and how often faults hit their
targets: a start refused with an older copy of its folder, an object made on a server that was added.
Exit status: 0 every promise was kept, 1 one was broken (or, with --covered, something of the table was not met).")]
    Soak(SimSoak),
    /// The runs that once broke a promise, and one with each kind of fault.
    #[command(after_help = "\
Example:  shoal sim known
Exit status: 0 every promise was kept, 1 one was broken.")]
    Known {
        /// Threads [default: one for each processor].
        #[arg(long)]
        jobs: Option<usize>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Bugs planted on purpose: how many seeds it takes until each is caught.
    #[cfg(feature = "mutants")]
    Mutants(SimMutants),
    /// The combinations of techniques that tests go over, one a line.
    #[command(after_help = "\
Example:  shoal sim switches            (every single one, and a set that has every pair)
          for s in $(shoal sim switches --covering); do shoal sim soak --seeds 20 --switches $s; done")]
    Switches {
        /// Only those that have every pair.
        #[arg(long)]
        covering: bool,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// The run of one seed, as a log of all events.
    #[command(after_help = "\
Example:  shoal sim replay --seed 7
          shoal sim replay --seed 7 --about c3-12 --about fault
          shoal sim replay --seed 7 --twice --last 0      (is it the same run twice?)
Exit status: 0 every promise was kept, 1 one was broken, or the second run was another.")]
    Replay {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// The runs.
        #[command(flatten)]
        setup: SimSetup,
        /// Only the lines with this word; repeat for further ones.
        #[arg(long, value_name = "WORD")]
        about: Vec<String>,
        /// Only so many lines, the last ones [default: all].
        #[arg(long, value_name = "N")]
        last: Option<usize>,
        /// Run it twice, and see that both are the same.
        #[arg(long)]
        twice: bool,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `shoal sim mutants`.
#[cfg(feature = "mutants")]
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal sim mutants --seeds 2000
Exit status: 0 each was caught, 1 one was not.")]
pub struct SimMutants {
    /// Seeds that are tried for each, from 1 on.
    #[arg(long, value_name = "COUNT", default_value_t = 2000)]
    pub seeds: u64,
    /// Only this one; repeat for further ones.
    #[arg(long, value_name = "MUTANT")]
    pub only: Vec<String>,
    /// Threads [default: one for each processor].
    #[arg(long)]
    pub jobs: Option<usize>,
    /// The runs.
    #[command(flatten)]
    pub setup: SimSetup,
    /// JSON lines.
    #[arg(long)]
    pub json: bool,
}

/// The runs for each seed.
#[derive(Args, Debug, Clone)]
pub struct SimSetup {
    /// Operations of each client.
    #[arg(long, value_name = "N", default_value_t = 80)]
    pub operations: u64,
    /// Servers; each holds metadata and data.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub servers: u16,
    /// Clients.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub clients: u16,
    /// Techniques [default: as the seed draws]: a set (ours, paper, baseline), and the differences:
    /// paper,eager=off.
    #[arg(long, value_name = "WORDS")]
    pub switches: Option<Switches>,
    /// Faults [default: as the seed draws]: `none`, or a list such as crash=2,power-cut,full-disk (a wrong
    /// word lists all).
    #[arg(long, value_name = "LIST")]
    pub faults: Option<Faults>,
    /// Whether clients use forked files, too: true or false [default: as the seed draws].
    #[arg(long, value_name = "BOOL")]
    pub forks: Option<bool>,
}

/// `shoal sim soak`.
#[derive(Args, Debug)]
pub struct SimSoak {
    /// Which seeds: A..B (without B), or how many from 1 on.
    #[arg(long, value_name = "A..B|COUNT", default_value = "100", value_parser = seeds)]
    pub seeds: std::ops::Range<u64>,
    /// Threads [default: one for each processor].
    #[arg(long)]
    pub jobs: Option<usize>,
    /// Begin no further run after so many minutes.
    #[arg(long, value_name = "M")]
    pub minutes: Option<f64>,
    /// Go on after a run that breaks a promise.
    #[arg(long)]
    pub keep_going: bool,
    /// Fail also if there is a step after which no stop has happened, or a target that no fault has hit.
    #[arg(long)]
    pub covered: bool,
    /// The runs.
    #[command(flatten)]
    pub setup: SimSetup,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

fn seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("`{text}`: {error}"));
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => 1..number(text)?.saturating_add(1),
    };
    if range.is_empty() { Err(format!("`{text}` is no seed at all")) } else { Ok(range) }
}

impl SimSetup {
    /// As the simulator takes it.
    pub fn config(&self) -> RunConfig {
        let usual = ClusterConfig::default();
        let cluster = ClusterConfig { servers: self.servers, clients: self.clients, ..usual };
        RunConfig {
            cluster,
            switches: self.switches,
            operations: self.operations,
            faults: self.faults.clone(),
            forks: self.forks,
            ..RunConfig::default()
        }
    }

    /// The command that repeats a seed's run.
    pub fn command(&self, seed: u64) -> String {
        let mut words = format!("shoal sim replay --seed {seed}");
        let usual = RunConfig::default();
        for (option, given, usual) in [
            ("operations", self.operations, usual.operations),
            ("servers", self.servers.into(), usual.cluster.servers.into()),
            ("clients", self.clients.into(), usual.cluster.clients.into()),
        ] {
            if given != usual {
                words.push_str(&format!(" --{option} {given}"));
            }
        }
        if let Some(switches) = &self.switches {
            words.push_str(&format!(" --switches {switches}"));
        }
        if let Some(faults) = &self.faults {
            words.push_str(&format!(" --faults {faults}"));
        }
        if let Some(forks) = self.forks {
            words.push_str(&format!(" --forks {forks}"));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_count_or_a_range() {
        assert_eq!(seeds("3"), Ok(1..4));
        assert_eq!(seeds("7..9"), Ok(7..9));
        assert!(seeds("0").is_err() && seeds("9..9").is_err() && seeds("x").is_err());
    }

    #[test]
    fn the_command_names_what_is_not_customary() {
        let mut setup =
            SimSetup { operations: 80, servers: 4, clients: 8, switches: None, faults: None, forks: None };
        assert_eq!(setup.command(5), "shoal sim replay --seed 5");
        (setup.servers, setup.faults) = (2, Some("crash=2".parse().unwrap()));
        assert_eq!(setup.command(5), "shoal sim replay --seed 5 --servers 2 --faults crash=2");
        (setup.forks, setup.servers) = (Some(true), 2);
        assert_eq!(setup.command(5), "shoal sim replay --seed 5 --servers 2 --faults crash=2 --forks true");
        setup.forks = None;
        (setup.faults, setup.switches) = (None, Some("paper,eager=off".parse().unwrap()));
        assert_eq!(setup.command(5), "shoal sim replay --seed 5 --servers 2 --switches paper,eager=off");
    }
}
