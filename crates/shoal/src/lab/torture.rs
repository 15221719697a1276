//! Torture: runs a file system of real processes in a throwaway folder, and checks whether it keeps its
//! promises.
//!
//! The torture has three parts. **Together**: several clients, on mounts and native, do concurrent operations
//! ([`together`]). **Single checks**: an idle client, a replaced file, a lost disk and a silent server, each
//! with a file system of its own ([`idle`], [`replaced`], [`lost_disk`], [`silent`]); they need mounts.
//! **Killed under load**: clients run a load and keep ledgers, while servers, mounts and clients are killed
//! or stopped, and disks are filled. Then everything that was acknowledged must be there.
//!
//! All processes are this program: `shoal serve` with one server each, `shoal mount`, and a [`hand`] for
//! each client, which does one act at a time. Only this process decides, remembers and judges, so any other
//! process may die at any moment. A violation is a sentence in the [`report`], and the torture continues.

mod check;
mod crew;
mod disk;
pub mod errno;
mod faults;
mod gang;
pub mod hand;
mod idle;
mod ledger;
mod load;
mod lost_disk;
mod replaced;
pub mod report;
mod silent;
pub mod site;
mod together;

use anyhow::Result;
use disk::Disk;
use faults::Rounds;
use report::Report;
use site::{Site, Wish};
use std::time::Duration;

/// The options.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file system.
    pub wish: Wish,
    /// How often the concurrent checks are done.
    pub together: usize,
    /// How often something is killed.
    pub rounds: usize,
    /// How long the load runs in each round.
    pub span: Duration,
    /// Clients of the load on each mount, and native ones.
    pub clients: usize,
    /// Draws the load and the faults.
    pub seed: u64,
}

/// Do it. `end` fails when it is to end early; `tell` says how far it is.
///
/// # Errors
/// When the torture itself cannot continue: the report then has the results up to there.
pub fn torture(
    plan: &Plan,
    listen: &[String],
    report: &mut Report,
    end: &dyn Fn() -> Result<()>,
    tell: &dyn Fn(&str),
) -> Result<()> {
    // Unmounted when all that uses it has ended.
    let disk = (plan.rounds > 0).then(|| Disk::new(&plan.wish.folder));
    let disk = disk.and_then(|disk| {
        disk.inspect_err(|error| report.skipped.push(format!("no disk was filled: {error:#}"))).ok()
    });
    let mut site = Site::begin(&plan.wish, listen, disk.as_ref().map(Disk::folder))?;
    // A client's own time limit ends an operation; a longer wait has found one that does not end.
    let patience = Duration::from_secs(plan.wish.timeout_s + 10);
    if plan.together > 0 {
        let together = together::Together::new(&site, patience, plan.together);
        let mut done = |name: &str, took: Duration, failed: Option<String>| {
            tell(&format!("{}: {}", name.replace('_', " "), failed.as_deref().unwrap_or("ok")));
            report.checked(name, took, failed);
        };
        together::run_all(&together, &mut done, end)?;
        if plan.wish.mounts > 0 {
            end()?;
            idle::run(&plan.wish, &mut done);
            end()?;
            replaced::run(&plan.wish, &mut done);
            end()?;
            lost_disk::run(&plan.wish, &mut done);
            end()?;
            silent::run(&plan.wish, done);
        }
    }
    if plan.rounds > 0 {
        let mut rounds = Rounds {
            site: &mut site,
            disk: disk.as_ref(),
            rounds: plan.rounds,
            span: plan.span,
            patience,
            clients: plan.clients,
            seed: plan.seed,
        };
        rounds.run(&plan.wish.folder.join("ledger"), report, end, tell)?;
    }
    site.end()
}
