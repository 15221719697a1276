//! The turn, the state that it protects, and the lines that name file systems.

use futures_channel::oneshot;
use shoal_env::real::Runtime;
use shoal_proto::{Handle, Owner, Rights};
use shoal_vfs::RenameFlags;
use shoal_world::{Busy, Driven, Inside, Over, ProcessGroup, Shown, Tree, Walk, World};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// A state with a number, and with calls that wait for an answer.
struct State {
    count: u64,
    asked: Vec<oneshot::Sender<u64>>,
    trees: Vec<Rc<dyn Tree>>,
    runtime: Rc<Runtime>,
}

impl State {
    fn new() -> State {
        let runtime = Rc::new(Runtime::shared("test"));
        State { count: 0, asked: Vec::new(), trees: Vec::new(), runtime }
    }
}

impl Driven for State {
    fn runtime(&self) -> &Rc<Runtime> {
        &self.runtime
    }
}

#[test]
fn one_thread_at_a_time_is_in_a_world_and_another_waits_until_its_deadline() {
    static COUNT: World<State> = World::new();
    let (entered, is_in) = channel();
    let (leave, may_leave) = channel::<()>();
    let first = std::thread::spawn(move || {
        COUNT.enter(LONG, State::new, |mut state| {
            entered.send(()).unwrap();
            may_leave.recv().unwrap();
            state.count += 1;
        })
    });
    is_in.recv().unwrap();
    let began = Instant::now();
    assert_eq!(COUNT.enter(Duration::from_millis(50), State::new, |state| state.count), Err(Busy));
    assert!(began.elapsed() >= Duration::from_millis(50));
    leave.send(()).unwrap();
    first.join().unwrap().unwrap();
    let others: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                (0..1000).for_each(|_| COUNT.enter(LONG, State::new, |mut state| state.count += 1).unwrap())
            })
        })
        .collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!(COUNT.enter(LONG, State::new, |state| state.count), Ok(8001));
}

/// Wait for an answer, away from the state or not.
fn ask(world: &World<State>, is_away: bool) -> u64 {
    let wait = |mut state: Inside<'_, State>| {
        let (send, answer) = oneshot::channel();
        state.asked.push(send);
        let runtime = state.runtime.clone();
        let answer = || runtime.block_on(answer).expect("it is answered");
        let answer = if is_away { state.away(answer) } else { answer() };
        state.count += 1;
        answer
    };
    world.enter(LONG, State::new, wait).unwrap()
}

#[test]
fn threads_that_wait_away_from_the_state_let_others_use_it() {
    static WORLD: World<State> = World::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| ask(&WORLD, true))).collect();
        let mut answered = 0;
        while answered < 4 {
            // All four wait at once.
            let waiting = WORLD.enter(LONG, State::new, |mut state| {
                let all = if state.asked.len() == 4 { std::mem::take(&mut state.asked) } else { Vec::new() };
                all.into_iter().zip(10..).map(|(send, n)| send.send(n).expect("it waits")).count()
            });
            answered += waiting.unwrap();
        }
        let mut answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        answers.sort_unstable();
        assert_eq!(answers, [10, 11, 12, 13]);
    });
    assert_eq!(WORLD.enter(LONG, State::new, |state| state.count), Ok(4));
}

#[test]
fn a_thread_that_waits_with_the_state_keeps_it_and_a_fork_waits_for_it() {
    static WORLD: World<State> = World::new();
    let sends = std::sync::Mutex::new(None);
    std::thread::scope(|scope| {
        let (entered, is_in) = channel();
        let sends = &sends;
        let thread = scope.spawn(move || {
            let wait = |state: Inside<'_, State>| {
                let (send, answer) = oneshot::channel();
                *sends.lock().unwrap() = Some(send);
                entered.send(()).unwrap();
                state.runtime.block_on(answer).expect("it is answered")
            };
            WORLD.enter(LONG, State::new, wait)
        });
        is_in.recv().unwrap();
        let soon = Duration::from_millis(50);
        assert_eq!(WORLD.enter(soon, State::new, |state| state.count), Err(Busy));
        assert!(!WORLD.hold(soon));
        sends.lock().unwrap().take().unwrap().send(7).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(7));
    });
    assert!(WORLD.hold(LONG));
    assert_eq!(WORLD.enter(Duration::from_millis(50), State::new, |state| state.count), Err(Busy));
    WORLD.release();
    assert_eq!(WORLD.enter(LONG, State::new, |state| state.count), Ok(0));
}

#[test]
fn a_thread_that_comes_back_waits_while_another_keeps_the_state() {
    static WORLD: World<State> = World::new();
    std::thread::scope(|scope| {
        let away = scope.spawn(|| {
            let wait = |mut state: Inside<'_, State>| {
                let (send, answer) = oneshot::channel();
                state.asked.push(send);
                let runtime = state.runtime.clone();
                let answer = state.away(|| runtime.block_on(answer)).expect("it is answered");
                (answer, state.count)
            };
            WORLD.enter(LONG, State::new, wait)
        });
        let asked = || WORLD.enter(LONG, State::new, |mut state| state.asked.pop()).unwrap();
        let first = loop {
            if let Some(first) = asked() {
                break first;
            }
        };
        let (entered, is_in) = channel();
        let keeper = scope.spawn(move || {
            let wait = |mut state: Inside<'_, State>| {
                let (send, answer) = oneshot::channel();
                entered.send(send).unwrap();
                let answer = state.runtime.block_on(answer).expect("it is answered");
                state.count += 1;
                answer
            };
            WORLD.enter(LONG, State::new, wait)
        });
        let second: oneshot::Sender<u64> = is_in.recv().unwrap();
        // The state is kept, or the keeper has the turn still.
        while WORLD.enter(Duration::from_millis(20), State::new, |_| ()).is_ok() {}
        first.send(1).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        second.send(2).unwrap();
        assert_eq!(keeper.join().unwrap(), Ok(2));
        assert_eq!(away.join().unwrap(), Ok((1, 1)), "the answer, and the count of after the keeper");
    });
}

#[test]
fn any_thread_drives_the_file_system_that_another_planted() {
    static PLANTED: World<State> = World::new();
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().canonicalize().unwrap();
    std::os::unix::fs::symlink("..", dir.join("up")).unwrap();
    for shown in [Shown::Plain, Shown::Container(String::new())] {
        let over = Over { dir: dir.clone(), given: dir.clone(), shown };
        let plant = |mut state: Inside<'_, State>| {
            let tree = over.plant(&state.runtime, &ProcessGroup::default()).unwrap();
            state.trees.push(tree);
        };
        PLANTED.enter(LONG, State::new, plant).unwrap();
    }
    let owner = Owner { mode: 0o644, uid: rustix::process::geteuid().as_raw(), gid: 0 };
    let threads: Vec<_> = (0..8_usize)
        .map(|number| {
            std::thread::spawn(move || {
                PLANTED.enter(LONG, State::new, |mut state| {
                    let tree = state.trees[number % 2].clone();
                    let name = shoal_proto::Name::new(format!("f{number}").as_bytes()).unwrap();
                    let rights = Rights::READ | Rights::WRITE;
                    state.away(|| {
                        let (_, _, file) = tree.create(Handle::ROOT, &name, owner, true, rights).unwrap();
                        file.write(3, b"abc".as_slice().into()).unwrap();
                        assert_eq!(&file.read(0, 100).unwrap()[..], b"\0\0\0abc");
                        file.close().unwrap();
                    });
                    drop(tree);
                })
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    let looked = PLANTED.enter(LONG, State::new, |state| {
        let prefix = dir.to_str().unwrap().as_bytes();
        let walk = |path: &str| state.trees[0].walk(prefix, path.as_bytes(), true).unwrap();
        assert!(matches!(walk("/f0"), Walk::Object(found) if found.attr.size == 6 && found.path == b"/f0"));
        assert!(matches!(walk("/none/"), Walk::Missing { must_be_dir: true, .. }));
        let Walk::Outside(path) = walk("/up/x") else { panic!("it leaves") };
        assert_eq!(path, [prefix, b"/../x"].concat());
    });
    looked.unwrap();
}

#[test]
fn what_a_program_removes_is_deleted_when_its_last_call_returns() {
    static PLANTED: World<State> = World::new();
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().canonicalize().unwrap();
    let left = || std::fs::read_dir(dir.join(".shoal")).unwrap().flatten().count();
    let owner = Owner { mode: 0o644, uid: rustix::process::geteuid().as_raw(), gid: 0 };
    let name = |text: &str| shoal_proto::Name::new(text.as_bytes()).unwrap();
    // After each of these the process could end: nothing runs before the next one.
    let call = |work: &dyn Fn(&dyn Tree)| {
        PLANTED.enter(LONG, State::new, |state| work(&*state.trees[0])).unwrap();
    };
    let over = Over { dir: dir.clone(), given: dir.clone(), shown: Shown::Container(String::new()) };
    let plant = |mut state: Inside<'_, State>| {
        let tree = over.plant(&state.runtime, &ProcessGroup::default()).unwrap();
        state.trees.push(tree);
    };
    PLANTED.enter(LONG, State::new, plant).unwrap();
    let make = |tree: &dyn Tree, text: &str| {
        let rights = Rights::READ | Rights::WRITE;
        let (_, _, file) = tree.create(Handle::ROOT, &name(text), owner, true, rights).unwrap();
        file.write(3, b"abc".as_slice().into()).unwrap();
        file
    };

    call(&|tree| make(tree, "removed").close().unwrap());
    call(&|tree| tree.unlink(Handle::ROOT, &name("removed")).unwrap());
    assert_eq!(left(), 0, "removed");

    call(&|tree| ["old", "new"].iter().for_each(|text| make(tree, text).close().unwrap()));
    let flags = RenameFlags::default();
    call(&|tree| tree.rename(Handle::ROOT, &name("new"), Handle::ROOT, &name("old"), flags).unwrap());
    assert_eq!(left(), 0, "replaced");

    // One that is open lives on, and goes with its last close.
    call(&|tree| {
        let file = make(tree, "open");
        tree.unlink(Handle::ROOT, &name("open")).unwrap();
        assert_eq!(left(), 1);
        file.write(6, b"def".as_slice().into()).unwrap();
        assert_eq!(&file.read(0, 100).unwrap()[..], b"\0\0\0abcdef");
        file.close().unwrap();
    });
    assert_eq!(left(), 0, "closed");
}

#[test]
fn a_line_names_the_file_system_that_was_given() {
    let shoal = Shown::Shoal { address: "shoal://h:1/demo".into(), key: "/etc/key".into() };
    let composed = Shown::Composed("block=4M,names=own".into());
    let several = Shown::Federation("backends=/two:/three".into());
    let (alone, parallel) = (Shown::Container(String::new()), Shown::Container("index=parallel".into()));
    for shown in [Shown::Plain, alone, parallel, several, composed, Shown::Composed(String::new()), shoal] {
        let over = Over { dir: "/data/ckpt".into(), given: "/home/ckpt".into(), shown };
        assert_eq!(Over::from_line(over.to_line().trim_end_matches('\n')), Some(over));
    }
    assert_eq!(Over::from_line("relative\trelative\tplain\t"), None);
    assert_eq!(Over::from_line("/data"), None);
}

#[test]
fn wishes_of_a_composed_directory_are_read_and_those_that_a_program_cannot_keep_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().canonicalize().unwrap();
    let parse = |words: &str| Over::parse(&format!("{}={words}", dir.display()), None);
    assert_eq!(parse("composed").unwrap().shown, Shown::Composed(String::new()));
    assert_eq!(parse("composed,files=2").unwrap().shown, Shown::Composed("files=2".into()));
    for (words, reason) in [
        ("composed,buffer=block", "for a mount"),
        ("composed,files=0", "physical files are 1 to 1024"),
        ("composedly", "unknown transform"),
    ] {
        let error = parse(words).unwrap_err().to_string();
        assert!(error.contains(reason), "{words}: {error}");
    }
}
