//! A run in which changes of attributes are answered before they are durable, and the power of their server
//! is cut.
//!
//! ```text
//!   maker      chown f3 to 1, chown f0 to 2, …            each is answered when it is written
//!              sometimes: create                          answered when it and all before it are durable
//!   reader     getattr f0 ─▶ owner 2                      answered when the chown to 2 is durable
//!   power cut  after the reader's answer, after the answer to a create, or at any time
//! ```
//! The owner identifies the change. **The remaining state contains all changes up to one of them, and none
//! after it.** The state contains at least these changes: each change that the reader saw, the change before
//! a create that was answered, and each change that was answered a second or more before the power cut.

use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::rng::Rng;
use crate::run::RunReport;
use shoal_client::{Client, Error};
use shoal_env::{Env, Instant};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, SetAttr};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
/// How long servers may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// The file's server, where the root is.
const SERVER: u16 = 0;
/// Files whose owner is changed.
const FILES: usize = 5;
/// The changes that a power cut may take.
const SECOND: Duration = Duration::from_secs(1);

/// A change: the file, and when it was answered.
#[derive(Clone, Copy)]
struct Change {
    file: usize,
    answered: Option<Instant>,
}

/// The known facts about the changes. The number of the first is 1.
#[derive(Default)]
struct Told {
    files: Vec<Handle>,
    changes: Vec<Change>,
    /// Up to here they are seen, or followed by a durable change.
    kept: usize,
    /// Answers to the reader, and to creates.
    reads: u64,
    creates: u64,
}

/// When power is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// When the reader was answered.
    Read,
    /// When a create was.
    Create,
    /// At any time; there is neither a reader nor a create.
    AnyTime,
}

/// Run the story once; broken promises are in the report.
pub fn deferred_changes(seed: u64, #[cfg(feature = "mutants")] mutant: Option<crate::Mutant>) -> RunReport {
    #[cfg(feature = "mutants")]
    shoal_env::mutant::choose(mutant);
    told(seed).0
}

/// The same, and how many changes were lost that had been answered.
fn told(seed: u64) -> (RunReport, usize) {
    let config = ClusterConfig { servers: 1, clients: 3, ..ClusterConfig::default() };
    let cluster = Cluster::new(seed, &config);
    let mut report = RunReport { seed, switches: config.switches, ..RunReport::default() };
    let lost = tell(&cluster, seed, &mut report).unwrap_or_else(|words| {
        report.violations.push(words);
        0
    });
    report.violations.extend(cluster.failures());
    report.trace_hash = cluster.world.trace_hash();
    report.took = cluster.world.now().since(Instant(0));
    (report, lost)
}

fn tell(cluster: &Cluster, seed: u64, report: &mut RunReport) -> Result<usize, String> {
    let world = &cluster.world;
    let begin = || world.run_until_true(world.now() + BEGIN_MAX, || cluster.is_ready());
    if !begin() {
        return Err(format!("the servers did not begin within {BEGIN_MAX:?}"));
    }
    let mut rng = Rng::new(seed, 77);
    let cut = [Cut::Read, Cut::Create, Cut::AnyTime][(seed % 3) as usize];
    let options = cluster.options();
    let made = cluster.complete_client(0, |env| async move { make(&connect(&env, options).await?).await });
    let files = made.map_err(|error| format!("before any fault: {error}"))?;
    let told = Rc::new(RefCell::new(Told { files: files.clone(), ..Told::default() }));
    start(cluster, cut, &told, seed);
    world.run_for(Duration::from_millis(200 + rng.below(3_000)));
    let before = (told.borrow().reads, told.borrow().creates);
    let is_time = || match cut {
        Cut::Read => told.borrow().reads > before.0,
        Cut::Create => told.borrow().creates > before.1,
        Cut::AnyTime => true,
    };
    if !world.run_until_true(world.now() + BEGIN_MAX, is_time) {
        return Err(format!("{cut:?}: no answer within {BEGIN_MAX:?}"));
    }
    let server = cluster.server(SERVER);
    server.keep_stopped();
    world.power_cut(server.machine);
    (0..2).for_each(|client| world.crash(cluster.client_process(client)));
    let at = world.now();
    server.start(world);
    if !begin() {
        return Err(format!("the servers did not begin within {BEGIN_MAX:?} after the power cut"));
    }
    let options = cluster.options();
    let found = cluster.complete_client(2, |env| async move {
        let client = connect(&env, options).await?;
        let mut found = Vec::new();
        for file in files {
            found.push(client.getattr(file).await?.uid as usize);
        }
        Ok::<_, Error>(found)
    });
    let found = found.map_err(|error| format!("after the power cut: {error}"))?;
    let told = told.borrow();
    report.violations.extend(judge(&told, at, &found).into_iter().map(|words| format!("{cut:?}: {words}")));
    let last = found.iter().copied().max().unwrap_or(0);
    let answered = told.changes.iter().rposition(|change| change.answered.is_some());
    Ok(answered.map_or(0, |answered| (answered + 1).saturating_sub(last)))
}

/// Compare the found state with the known facts.
fn judge(told: &Told, cut: Instant, found: &[usize]) -> Vec<String> {
    let mut wrong = Vec::new();
    let left = found.iter().copied().max().unwrap_or(0);
    for (file, found) in found.iter().enumerate() {
        let of_file = |(_, change): &(usize, &Change)| change.file == file;
        let done = told.changes.iter().take(left).enumerate().rfind(of_file);
        let expected = done.map_or(0, |(index, _)| index + 1);
        if *found != expected {
            wrong.push(format!(
                "change {left} is there, and file {file} is as change {found} left it, not {expected}"
            ));
        }
    }
    if left < told.kept {
        wrong.push(format!("changes up to {left} are left, and those up to {} were to be kept", told.kept));
    }
    let is_old = |change: &Change| change.answered.is_some_and(|at| cut.since(at) >= SECOND);
    let old = told.changes.iter().rposition(is_old).map_or(0, |index| index + 1);
    if left < old {
        wrong.push(format!(
            "changes up to {left} are left, and that of {old} was answered more than {SECOND:?} before"
        ));
    }
    wrong
}

fn start(cluster: &Cluster, cut: Cut, told: &Rc<RefCell<Told>>, seed: u64) {
    let (own, options) = (told.clone(), cluster.options());
    cluster.start_client(0, move |env| async move {
        if let Ok(client) = connect(&env, options).await {
            drop(change(&env, &client, cut, &own, Rng::new(seed, 78)).await);
        }
    });
    if cut == Cut::AnyTime {
        return;
    }
    let (own, mut options) = (told.clone(), cluster.options());
    // Its results come from the server.
    options.attr_cache = Duration::ZERO;
    cluster.start_client(1, move |env| async move {
        if let Ok(client) = connect(&env, options).await {
            drop(read(&env, &client, &own, Rng::new(seed, 79)).await);
        }
    });
}

async fn change(
    env: &Env,
    client: &Client,
    cut: Cut,
    told: &RefCell<Told>,
    mut rng: Rng,
) -> Result<(), Error> {
    loop {
        let file = rng.below(FILES as u64) as usize;
        let (number, handle) = {
            let mut told = told.borrow_mut();
            told.changes.push(Change { file, answered: None });
            (told.changes.len(), told.files[file])
        };
        let set = SetAttr { uid: Some(number as u32), ..SetAttr::default() };
        client.setattr(handle, set).await?;
        told.borrow_mut().changes[number - 1].answered = Some(env.now());
        if cut != Cut::AnyTime && rng.below(10) == 0 {
            client
                .create_write(Handle::ROOT, &name(&format!("made-{number}")), OWNER, "".into(), None)
                .await?;
            let mut told = told.borrow_mut();
            (told.kept, told.creates) = (number, told.creates + 1);
        }
        env.sleep(Duration::from_micros(rng.below(40_000))).await;
    }
}

async fn read(env: &Env, client: &Client, told: &RefCell<Told>, mut rng: Rng) -> Result<(), Error> {
    loop {
        let file = told.borrow().files[rng.below(FILES as u64) as usize];
        let seen = client.getattr(file).await?.uid as usize;
        {
            let mut told = told.borrow_mut();
            told.reads += u64::from(seen > told.kept);
            told.kept = told.kept.max(seen);
        }
        env.sleep(Duration::from_micros(rng.below(60_000))).await;
    }
}

async fn make(client: &Client) -> Result<Vec<Handle>, Error> {
    let mut files = Vec::new();
    for file in 0..FILES {
        let made =
            client.create_write(Handle::ROOT, &name(&format!("f{file}")), OWNER, "".into(), None).await?;
        files.push(made.handle);
    }
    Ok(files)
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the names are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_takes_changes_of_attributes_of_a_last_second_in_order_and_none_that_was_seen_or_followed()
    {
        let mut lost = 0;
        for seed in 1..=60 {
            let (report, of_seed) = told(seed);
            assert!(report.violations.is_empty(), "seed {seed}: {:?}", report.violations);
            lost += of_seed;
        }
        assert!(lost > 0, "none was lost: this test says nothing");
    }

    #[test]
    fn what_is_left_is_a_beginning_of_what_was_done() {
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let change = |file, answered| Change { file, answered: Some(at(answered)) };
        let told =
            Told { changes: vec![change(0, 1), change(1, 2), change(0, 3)], kept: 1, ..Told::default() };
        let judged = |cut, found: &[usize]| judge(&told, at(cut), found).len();
        assert_eq!((judged(3, &[3, 2]), judged(3, &[1, 2]), judged(3, &[1, 0])), (0, 0, 1));
        assert_eq!(judged(3, &[3, 0]), 1, "the second is gone, and the third is there");
        assert_eq!(judged(2, &[1, 0]), 0);
        assert_eq!(judged(2, &[0, 0]), 2, "it was seen, and is old");
    }
}
