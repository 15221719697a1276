//! Repeats looks (readings of all tables) and rounds of repairs, until no problem is left that can be
//! repaired, or `ROUNDS_MAX` rounds were made.

use super::aside::Aside;
use super::mend::{Offer, Site, Step, mend, server_of};
use super::pools::{Unowned, unowned_runs};
use super::subfiles::NewSubfile;
use super::{Problem, Tables, check, collect, undecided};
use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
use shoal_client::{Client, ForkedFile};
use shoal_config::numbers;
use shoal_env::Env;
use shoal_proto::{Action, Handle, Name, Owner, ServerId, Status, Time};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Rounds of repairs, at most: each repairs the problems that the one before uncovered.
const ROUNDS_MAX: usize = 8;
/// How many further looks between two rounds of repairs: they look at rows that were wrong before, or at
/// their neighbours.
const LOOKS_OF_ROUNDS: usize = 2;
/// Rows requested at once.
const BATCH: u32 = 1024;

/// The result of a check.
pub struct CheckResult {
    /// The last look.
    pub tables: Tables,
    /// The problems that all looks found alike.
    pub problems: BTreeSet<Problem>,
}

/// The result for a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum Mending {
    /// It was repaired; the text names values that the repair made up or lost.
    Mended(Option<Cow<'static, str>>),
    /// Another repair has to come first.
    Later,
    /// Nothing was done; advice for the user.
    Left(&'static str),
    /// It could not be done.
    Failed(String),
}

/// Repairs between two words of how far they are.
const WORDS_EVERY: usize = 64;

/// A check of a running file system.
pub struct Checker<'a> {
    /// The world.
    pub env: &'a Env,
    /// Of the file system.
    pub client: &'a Client,
    /// Receives the count of rows.
    pub bar: &'a ProgressBar,
    /// Pauses before the further looks at the suspects of the first look.
    pub pauses: &'a [Duration],
}

impl Checker<'_> {
    /// Look; look again at apparent problems; those that all looks found alike are real.
    ///
    /// # Errors
    /// When a server does not answer.
    pub async fn find(&self) -> Result<CheckResult> {
        self.look_often(self.pauses).await
    }

    async fn look_often(&self, pauses: &[Duration]) -> Result<CheckResult> {
        self.bar.set_message("reading");
        let progress = |rows| self.bar.inc(rows);
        let mut tables = collect::look(self.client, &progress).await?;
        let mut problems = check::check(&tables);
        for &pause in pauses {
            if problems.is_empty() {
                break;
            }
            let suspicions = numbers::many(problems.len() as u64, "suspicion");
            self.bar.set_message(format!("looking again at {suspicions}"));
            self.env.sleep(pause).await;
            tables = collect::look(self.client, &progress).await?;
            problems = problems.intersection(&check::check(&tables)).cloned().collect();
        }
        Ok(CheckResult { tables, problems })
    }

    /// Repair in rounds; returns the remaining problems. `mended` receives the result for each problem.
    ///
    /// # Errors
    /// When a server does not answer, or `/lost+found` cannot be made.
    pub async fn repair(
        &self,
        found: &CheckResult,
        aside: &mut Aside,
        mended: &mut BTreeMap<Problem, Mending>,
    ) -> Result<BTreeSet<Problem>> {
        let (mut tables, mut problems) = (found.tables.clone(), found.problems.clone());
        for _ in 0..ROUNDS_MAX {
            let mut site = self.site();
            let mut progressed = false;
            // They hold locks, and the other problems were found without their changes: those are for the
            // next round.
            for problem in problems.iter().filter(|problem| undecided::is_of_lost_store(problem, &site)) {
                progressed |= self.mend_one(problem, &tables, &site, aside, mended).await;
            }
            if progressed {
                (tables, problems) = self.look_between().await?;
                continue;
            }
            // The root first: whatever has lost its name gets one below it.
            if problems.contains(&Problem::RootMissing) {
                progressed |= self.mend_one(&Problem::RootMissing, &tables, &site, aside, mended).await;
            }
            site.lost_and_found = self.lost_and_found(site.owner).await?;
            progressed |= self.retire(&problems, mended).await;
            let is_done = |problem: &Problem| {
                matches!(problem, Problem::RootMissing | Problem::PrecreatedUnowned { .. })
            };
            for (at, problem) in problems.iter().filter(|problem| !is_done(problem)).enumerate() {
                if at % WORDS_EVERY == 0 {
                    self.bar.set_message(format!("repairing {at} of {}", problems.len()));
                }
                progressed |= self.mend_one(problem, &tables, &site, aside, mended).await;
            }
            if !progressed {
                break;
            }
            (tables, problems) = self.look_between().await?;
            if problems.is_empty() {
                break;
            }
        }
        Ok(problems)
    }

    /// Use up the datafiles that were made ahead of need and lie in no pool: an older copy that was accepted
    /// leaves tens of thousands. Those of one batch that follow each other go by one message. Whether
    /// something was done.
    async fn retire(&self, problems: &BTreeSet<Problem>, mended: &mut BTreeMap<Problem, Mending>) -> bool {
        let (mut done, mut seen) = (false, 0);
        let runs = unowned_runs(problems);
        let all: usize = runs.iter().map(|run| usize::from(run.count)).sum();
        for run in runs {
            self.bar.set_message(format!("removing unused datafiles, {seen} of {all}"));
            let Unowned { pool, first, count } = run;
            let retired =
                self.client.repair(first.server(), vec![Action::Retire { pool, first, count }]).await;
            let outcome = match retired {
                Ok(()) => Mending::Mended(None),
                Err(error) => Mending::Failed(format!("{error:#}")),
            };
            done |= matches!(outcome, Mending::Mended(_));
            for datafile in (0..u64::from(count)).map(|step| Handle(first.0 + step)) {
                mended.insert(Problem::PrecreatedUnowned { datafile, pool }, outcome.clone());
            }
            seen += usize::from(count);
        }
        done
    }

    async fn look_between(&self) -> Result<(Tables, BTreeSet<Problem>)> {
        let looks = self.pauses.len().min(LOOKS_OF_ROUNDS);
        let CheckResult { tables, problems } = self.look_often(&self.pauses[..looks]).await?;
        Ok((tables, problems))
    }

    fn site(&self) -> Site {
        let owner = Owner {
            mode: 0o700,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        Site::of(&self.client.map(), owner, Time(self.env.wall().0))
    }

    async fn lost_and_found(&self, owner: Owner) -> Result<Handle> {
        let name = Name::new(b"lost+found").map_err(|status| anyhow::anyhow!(status))?;
        let looked = self.client.lookup(Handle::ROOT, &name).await;
        let made = match looked {
            Err(error) if error.status == Status::NotFound => {
                self.client.mkdir(Handle::ROOT, &name, owner).await
            }
            looked => looked,
        };
        let dir = made.context("cannot make /lost+found")?.handle;
        // The answer to any name shows whether it is split.
        let name = Name::new(b"#").map_err(|status| anyhow::anyhow!(status))?;
        match self.client.lookup(dir, &name).await {
            Err(error) if error.status != Status::NotFound => {
                Err(error).context("cannot look into /lost+found")
            }
            _ => Ok(dir),
        }
    }

    /// Whether something was done.
    async fn mend_one(
        &self,
        problem: &Problem,
        tables: &Tables,
        site: &Site,
        aside: &mut Aside,
        mended: &mut BTreeMap<Problem, Mending>,
    ) -> bool {
        let outcome = match mend(problem, tables, site) {
            Offer::Later => Mending::Later,
            Offer::Leave(words) => Mending::Left(words),
            Offer::Mend(steps, note) => match self.carry_out(steps, aside).await {
                Ok(()) => Mending::Mended(note),
                Err(error) => Mending::Failed(format!("{error:#}")),
            },
        };
        let done = matches!(outcome, Mending::Mended(_));
        mended.insert(problem.clone(), outcome);
        done
    }

    async fn carry_out(&self, steps: Vec<Step>, aside: &mut Aside) -> Result<()> {
        for step in steps {
            match step {
                Step::Act(action) => {
                    let action = self.in_its_shard(action);
                    self.client.repair(server_of(&action), vec![action]).await?;
                }
                Step::Aside { server, key, all } => self.move_aside(server, &key, all, aside).await?,
                Step::Subfile(new) => self.make_subfile(&new).await?,
                Step::Finish { server, tx, decision } => self.client.finish(server, tx, decision).await?,
            }
        }
        Ok(())
    }

    /// It is made as the one subfile of a forked file in `/lost+found`, and then gets its place.
    async fn make_subfile(&self, new: &NewSubfile) -> Result<()> {
        let text = format!("subfile {} of {}, {}", new.number, new.file, new.time.0);
        let name = Name::new(text.as_bytes()).map_err(|status| anyhow::anyhow!(status))?;
        let zero = Name::new(b"0").map_err(|status| anyhow::anyhow!(status))?;
        let forked = ForkedFile { subfiles: 1, servers: vec![new.server], replace: false };
        let made = self.client.mkforked(new.within, &name, new.owner, &forked).await?.handle;
        let subfile = self.client.lookup(made, &zero).await?.handle;
        for action in new.moved(made, &zero, subfile) {
            self.client.repair(server_of(&action), vec![action]).await?;
        }
        Ok(self.client.rmdir(new.within, &name).await?)
    }

    /// An entry that is added to a split directory goes to the shard that holds its place.
    fn in_its_shard(&self, action: Action) -> Action {
        match action {
            Action::EntryPut { shard, dir, name, handle, kind, expect, subdirs, time } => {
                let is_home = shard == dir.server();
                let shard = if is_home { self.client.server_of_entry(dir, &name) } else { shard };
                Action::EntryPut { shard, dir, name, handle, kind, expect, subdirs, time }
            }
            other => other,
        }
    }

    async fn move_aside(&self, server: ServerId, key: &[u8], all: bool, aside: &mut Aside) -> Result<()> {
        loop {
            // Found entries are removed, so each look begins anew.
            let (mut rows, end) = self.client.rows(server, key, b"", BATCH).await?;
            rows.retain(|row| all || *row.key == *key);
            for row in &rows {
                aside.keep(server, &row.key, &row.value)?;
                let (key, expect) = (row.key.clone(), row.value.clone());
                self.client.repair(server, vec![Action::RowRemove { server, key, expect }]).await?;
            }
            if end || !all {
                return Ok(());
            }
        }
    }
}
