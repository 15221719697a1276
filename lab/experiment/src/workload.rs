//! The workloads of the papers, under their own names. Each is written once, over a file system and a
//! barrier, and runs on real servers and under virtual time alike. Only `chapter4` runs nothing: its curves
//! are computed by the model.
//!
//! A workload is a list of phases; before and after each phase all processes meet ([`crate::seat`]). A phase
//! of a process is a loop of calls: as in a program, each call is made after the call before it has returned.
//! Phases check their results (how many entries, how many bytes), so that a phase without work cannot look
//! fast.

mod files;
mod lookups;
mod ls;
mod mdtest;
mod mpi_io_test;
mod mpi_md_more;
mod nine_phases;
mod pvfs2_bench;
mod unstuff;

use crate::seat::{Calls, Plan};
use crate::setting::Setting;
use bytes::Bytes;
use files::OwnDirectory;
use serde::Deserialize;
use shoal_env::Env;
use shoal_proto::{Handle, Name, Owner};
use shoal_vfs::Vfs;
use std::time::Instant;

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Workload {
    /// The small-file paper's microbenchmark, section IV.A.
    NinePhases {},
    /// mdtest with `-u`, as the small-file paper runs it, section IV.B.2.
    Mdtest {},
    /// One shared file in blocks, thesis 6.1.
    MpiIoTest {},
    /// Creates, thesis 6.2.
    MpiMdMore {},
    /// One client, one call over and over, with a rate for each second: thesis 6.3.
    Pvfs2Bench {},
    /// A large directory listed in three manners: the small-file paper, table I.
    Ls {},
    /// Names that are there and names that are not, in order and at random: thesis chapter 9.
    Lookups {},
    /// A file that grows beyond its first strip: the small-file paper, section IV.A.1.
    Unstuff {},
    /// Nothing is run: curves of the thesis's chapter 4, by the model.
    Chapter4 {
        /// Which: `4.1` to `4.6`.
        figure: String,
    },
}

/// The result of a phase of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseWork {
    /// Operations.
    pub ops: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Operations in each second since the phase began, where they are reported.
    pub per_second: Vec<u64>,
}

impl PhaseWork {
    fn ops(ops: u64) -> PhaseWork {
        PhaseWork { ops, ..PhaseWork::default() }
    }

    fn moved(ops: u64, bytes: u64) -> PhaseWork {
        PhaseWork { ops, bytes, ..PhaseWork::default() }
    }
}

/// The clock of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Algorithm 1.
    Longest,
    /// Algorithm 2.
    First,
}

/// The way of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// As all of the machine's programs: forwarded where its file says so.
    Usual,
    /// The program calls the client's library, past kernel and forwarding.
    Library,
}

/// The result of a phase; the words of a failure.
type Done = Result<PhaseWork, String>;

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|&name| name.to_owned()).collect()
}

impl Workload {
    /// As files call it.
    pub fn word(&self) -> &'static str {
        match self {
            Workload::NinePhases {} => "nine_phases",
            Workload::Mdtest {} => "mdtest",
            Workload::MpiIoTest {} => "mpi_io_test",
            Workload::MpiMdMore {} => "mpi_md_more",
            Workload::Pvfs2Bench {} => "pvfs2_bench",
            Workload::Ls {} => "ls",
            Workload::Lookups {} => "lookups",
            Workload::Unstuff {} => "unstuff",
            Workload::Chapter4 { .. } => "chapter4",
        }
    }

    /// Its phases in their order; those called `prepare…` are not of the workload.
    pub fn phases(&self) -> Vec<String> {
        match self {
            Workload::NinePhases {} => names(nine_phases::PHASES),
            Workload::Mdtest {} => names(mdtest::PHASES),
            Workload::MpiIoTest {} => names(mpi_io_test::PHASES),
            Workload::MpiMdMore {} => names(mpi_md_more::PHASES),
            Workload::Pvfs2Bench {} => names(pvfs2_bench::PHASES),
            Workload::Ls {} => names(ls::PHASES),
            Workload::Lookups {} => names(lookups::PHASES),
            Workload::Unstuff {} => names(unstuff::PHASES),
            // A phase is a curve of the figure.
            Workload::Chapter4 { figure } => crate::bound::chapter4_curves(figure),
        }
    }

    /// The parameters that it reads, in addition to those of the cluster.
    pub fn uses(&self) -> &'static [&'static str] {
        match self {
            Workload::NinePhases {} => &["files", "file_bytes"],
            Workload::Mdtest {} => &["files"],
            Workload::MpiIoTest {} => &["total_bytes", "block_bytes"],
            Workload::MpiMdMore {} => &["files", "files_total"],
            Workload::Pvfs2Bench {} => &["files", "files_total", "total_bytes", "block_bytes"],
            Workload::Ls {} => &["files"],
            Workload::Lookups {} => &["files", "files_total", "lookups"],
            Workload::Unstuff {} => &["files", "block_bytes"],
            Workload::Chapter4 { .. } => &[],
        }
    }

    /// Make amounts come out even.
    pub fn settle(&self, setting: &mut Setting) {
        if matches!(self, Workload::MpiIoTest {} | Workload::Pvfs2Bench {}) {
            let round = setting.block_bytes * u64::from(setting.process_count());
            setting.total_bytes = (setting.total_bytes / round).max(1) * round;
        }
    }

    /// Its clock.
    pub fn clock(&self) -> Clock {
        if matches!(self, Workload::Mdtest {}) { Clock::First } else { Clock::Longest }
    }

    /// Nothing is run.
    pub fn is_computed(&self) -> bool {
        matches!(self, Workload::Chapter4 { .. })
    }
}

/// A process that runs a workload, and all it holds from phase to phase.
pub struct Process<V: Vfs> {
    env: Env,
    vfs: V,
    calls: Calls,
    setting: Setting,
    index: u32,
    of: u32,
    until: Instant,
    block: Bytes,
    acting: Acting<V::File>,
}

/// The workload's own part.
enum Acting<F> {
    NinePhases(nine_phases::Acting<F>),
    Mdtest(OwnDirectory),
    MpiIoTest(mpi_io_test::Acting<F>),
    MpiMdMore(mpi_md_more::Acting),
    Pvfs2Bench(pvfs2_bench::Acting<F>),
    Ls(OwnDirectory),
    Lookups(OwnDirectory),
    Unstuff(unstuff::Acting<F>),
    Nothing,
}

/// The owner of all objects of workloads: their user needs no other identity.
const DIRECTORY: Owner = Owner { mode: 0o777, uid: 0, gid: 0 };
const FILE: Owner = Owner { mode: 0o666, uid: 0, gid: 0 };

impl<V: Vfs> Process<V> {
    /// A process of a plan.
    pub fn new(env: Env, vfs: V, calls: Calls, plan: &Plan, index: u32, of: u32) -> Process<V> {
        let acting = match &plan.workload {
            Workload::NinePhases {} => Acting::NinePhases(Default::default()),
            Workload::Mdtest {} => Acting::Mdtest(Default::default()),
            Workload::MpiIoTest {} => Acting::MpiIoTest(Default::default()),
            Workload::MpiMdMore {} => Acting::MpiMdMore(Default::default()),
            Workload::Pvfs2Bench {} => Acting::Pvfs2Bench(Default::default()),
            Workload::Ls {} => Acting::Ls(Default::default()),
            Workload::Lookups {} => Acting::Lookups(Default::default()),
            Workload::Unstuff {} => Acting::Unstuff(Default::default()),
            Workload::Chapter4 { .. } => Acting::Nothing,
        };
        let setting = plan.setting.clone();
        // There may be ten thousands of processes: only written data takes memory.
        let used = plan.workload.uses();
        let sizes = [("block_bytes", setting.block_bytes), ("file_bytes", setting.file_bytes)];
        let bytes = sizes.iter().filter(|(key, _)| used.contains(key)).map(|(_, bytes)| *bytes).max();
        let block = Bytes::from(vec![(index % 251) as u8; bytes.unwrap_or(0) as usize]);
        Process { env, vfs, calls, setting, index, of, until: plan.until, block, acting }
    }

    /// Run one phase.
    ///
    /// # Errors
    /// The failure, in words.
    pub async fn run(&mut self, phase: usize) -> Done {
        let mut acting = std::mem::replace(&mut self.acting, Acting::Nothing);
        let done = match &mut acting {
            Acting::NinePhases(acting) => acting.run(self, phase).await,
            Acting::Mdtest(own) => mdtest::run(self, phase, own).await,
            Acting::MpiIoTest(acting) => acting.run(self, phase).await,
            Acting::MpiMdMore(acting) => acting.run(self, phase).await,
            Acting::Pvfs2Bench(acting) => acting.run(self, phase).await,
            Acting::Ls(own) => ls::run(self, phase, own).await,
            Acting::Lookups(own) => lookups::run(self, phase, own).await,
            Acting::Unstuff(acting) => acting.run(self, phase).await,
            Acting::Nothing => Ok(PhaseWork::default()),
        };
        self.acting = acting;
        done
    }

    /// A call of the program, by the way that calls take to their client.
    async fn call<T>(&self, call: impl Future<Output = shoal_vfs::Result<T>>) -> Result<T, String> {
        self.by(Way::Usual, call).await
    }

    /// A call by one of two ways.
    async fn by<T>(&self, way: Way, call: impl Future<Output = shoal_vfs::Result<T>>) -> Result<T, String> {
        let done = match (&self.calls, way) {
            (Calls::Forwarded(seat), Way::Usual) => seat.call(call).await,
            _ => call.await,
        };
        done.map_err(told)
    }

    /// Files that it makes.
    fn files(&self) -> u64 {
        self.setting.files_of(self.index)
    }

    /// So many bytes to write; no copy.
    fn data(&self, bytes: u64) -> Bytes {
        self.block.slice(..bytes as usize)
    }

    /// Between two calls: whether there is time left.
    fn go_on(&self) -> Result<(), String> {
        match Instant::now() < self.until {
            true => Ok(()),
            false => {
                Err("the time for a run is over: use a smaller --scale, or a longer --patience".to_owned())
            }
        }
    }

    /// A directory of its own below the root.
    async fn own_directory(&self) -> Result<(Handle, Name), String> {
        let name = name(format!("p{}", self.index))?;
        let made = self.call(self.vfs.mkdir(Handle::ROOT, &name, DIRECTORY)).await?;
        Ok((made.handle, name))
    }

    /// A directory of all, which the first process makes.
    async fn make_shared(&self) -> Result<(), String> {
        if self.index == 0 {
            self.vfs.mkdir(Handle::ROOT, &name("test".to_owned())?, DIRECTORY).await.map_err(told)?;
        }
        Ok(())
    }

    /// Where it is.
    async fn shared(&self) -> Result<Handle, String> {
        Ok(self.vfs.lookup(Handle::ROOT, &name("test".to_owned())?).await.map_err(told)?.handle)
    }
}

fn name(text: String) -> Result<Name, String> {
    Name::new(text.as_bytes()).map_err(|status| format!("`{text}` is no name: {status}"))
}

fn told(error: shoal_vfs::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
