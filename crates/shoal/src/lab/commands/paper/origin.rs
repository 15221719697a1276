//! The origin of a figure: its program, its time, and its computer.

use crate::words;
use shoal_env::real;
use shoal_experiment::Provenance;
use shoal_proto::Time;

/// Of this program, now and here.
pub fn here() -> Provenance {
    let now = words::time_short(Time(real::wall().0));
    Provenance {
        commit: env!("SHOAL_COMMIT").to_owned(),
        date: now.split('T').next().unwrap_or_default().to_owned(),
        build: env!("SHOAL_BUILD").to_owned(),
        host: host(),
    }
}

/// Processor, cores, memory, kernel.
fn host() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (processor, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
    let gib = kib.and_then(|kib| kib.parse::<f64>().ok()).map(|kib| format!("{:.0} GiB", kib / 1_048_576.0));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{cores} cores of {}, {}, Linux {}",
        model.map_or("an unnamed processor", |(_, model)| model.trim()),
        gib.unwrap_or_else(|| "unknown memory".to_owned()),
        read("/proc/sys/kernel/osrelease").trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn the_version_says_of_which_commit_and_build_a_benchmark_is() {
        let told = Cli::command().render_long_version();
        let Provenance { commit, build, .. } = here();
        assert!(told.contains(&commit) && told.contains(&build), "{told}");
    }

    #[test]
    fn a_run_says_its_commit_or_that_it_is_unknown_its_day_and_its_build() {
        let told = here();
        assert!(told.commit.starts_with("commit ") || told.commit == "unknown commit", "{told}");
        assert!(told.date.len() == 10 && told.date.starts_with("20"), "{told}");
        assert!(told.build.ends_with(", plain") || told.build.ends_with(", profiled"), "{told}");
        assert!(told.host.contains(" cores of ") && told.host.contains("Linux "), "{told}");
    }
}
