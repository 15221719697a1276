//! Real runs of an experiment. Each run has a file system of its own, made by `shoal up` in a new folder.
//! Its servers are threads of one process, and the clients are threads of this process.

use crate::connect;
use crate::lab::commands::bench::cluster::Cluster;
use shoal_experiment::seat::{Plan, Took};
use shoal_experiment::setting::{Setting, Storage};
use shoal_experiment::{Ground, Mode, real};
use shoal_model::Machine;
use std::path::PathBuf;
use std::time::Duration;

/// Every wait of a client ends: the longest of one operation of a crowd.
const OPERATION_MAX: Duration = Duration::from_secs(60);

/// Servers and clients on this machine.
pub struct RealGround {
    folder: Option<PathBuf>,
    tmpfs: PathBuf,
    machine: Option<Machine>,
}

impl RealGround {
    /// Folders are made in `folder`, or where a run wants memory in `tmpfs`; bounds are those of `machine`.
    pub fn new(folder: Option<PathBuf>, tmpfs: PathBuf, machine: Option<Machine>) -> RealGround {
        RealGround { folder, tmpfs, machine }
    }
}

/// The words of `shoal up` for a setting.
fn up(setting: &Setting) -> Vec<String> {
    let mut words = vec![
        ("--module", setting.module.word().to_owned()),
        ("--switches", setting.switches.clone()),
        ("--metadata-sync", setting.metadata_sync.word().to_owned()),
        ("--data-sync", setting.data_sync.word().to_owned()),
        ("--strip", setting.strip_bytes.to_string()),
    ];
    if setting.cache_bytes > 0 {
        words.push(("--cache", setting.cache_bytes.to_string()));
    }
    words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect()
}

impl Ground for RealGround {
    fn mode(&self) -> Mode {
        Mode::Real
    }

    fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    fn run(&mut self, plan: &Plan) -> Result<Vec<Took>, String> {
        let setting = &plan.setting;
        if setting.metadata_only > 0 {
            return Err("real servers all hold data: leave metadata_only out of real runs".to_owned());
        }
        let words = |error: anyhow::Error| format!("{error:#}");
        let base = match setting.storage {
            Storage::Disk => self.folder.as_deref(),
            Storage::Tmpfs => Some(self.tmpfs.as_path()),
        };
        let up = up(setting);
        let up: Vec<&str> = up.iter().map(String::as_str).collect();
        let cluster = Cluster::start(base, setting.servers, &up).map_err(words)?;
        let mut options = connect::options(&cluster.place().map_err(words)?).map_err(words)?;
        options.timeout = OPERATION_MAX;
        let took = real::run(plan, &options);
        cluster.stop().map_err(words)?;
        took
    }
}
