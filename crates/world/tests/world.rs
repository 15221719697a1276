//! The turn, the state that it protects, and the lines that name file systems.

use shoal_env::real::Runtime;
use shoal_proto::{Handle, Owner, Rights};
use shoal_world::{Busy, Over, ProcessGroup, Shown, Tree, Walk, World};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn one_thread_at_a_time_is_in_a_world_and_another_waits_until_its_deadline() {
    static COUNT: World<u64> = World::new();
    let (entered, is_in) = channel();
    let (leave, may_leave) = channel::<()>();
    let first = std::thread::spawn(move || {
        COUNT.enter(
            LONG,
            || 0,
            |count| {
                entered.send(()).unwrap();
                may_leave.recv().unwrap();
                *count += 1;
            },
        )
    });
    is_in.recv().unwrap();
    let began = Instant::now();
    assert_eq!(COUNT.enter(Duration::from_millis(50), || 0, |count| *count), Err(Busy));
    assert!(began.elapsed() >= Duration::from_millis(50));
    leave.send(()).unwrap();
    first.join().unwrap().unwrap();
    let others: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                (0..1000).for_each(|_| COUNT.enter(LONG, || 0, |count| *count += 1).unwrap())
            })
        })
        .collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    assert_eq!(COUNT.enter(LONG, || 0, |count| *count), Ok(8001));
}

#[test]
fn any_thread_drives_the_file_system_that_another_planted() {
    struct State {
        trees: Vec<Box<dyn Tree>>,
    }
    static PLANTED: World<State> = World::new();
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().canonicalize().unwrap();
    std::os::unix::fs::symlink("..", dir.join("up")).unwrap();
    for shown in [Shown::Plain, Shown::Container(String::new())] {
        let over = Over { dir: dir.clone(), given: dir.clone(), shown };
        let plant = move || {
            let runtime = Rc::new(Runtime::new("test"));
            over.plant(&runtime, &ProcessGroup::default()).unwrap()
        };
        let make = || State { trees: Vec::new() };
        PLANTED.enter(LONG, make, |state| state.trees.push(plant())).unwrap();
    }
    let owner = Owner { mode: 0o644, uid: rustix::process::geteuid().as_raw(), gid: 0 };
    let threads: Vec<_> = (0..8_usize)
        .map(|number| {
            std::thread::spawn(move || {
                let make = || State { trees: Vec::new() };
                PLANTED.enter(LONG, make, |state| {
                    let tree = &state.trees[number % 2];
                    let name = shoal_proto::Name::new(format!("f{number}").as_bytes()).unwrap();
                    let rights = Rights::READ | Rights::WRITE;
                    let (_, _, file) = tree.create(Handle::ROOT, &name, owner, true, rights).unwrap();
                    file.write(3, b"abc".as_slice().into()).unwrap();
                    assert_eq!(&file.read(0, 100).unwrap()[..], b"\0\0\0abc");
                    file.close().unwrap();
                })
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    PLANTED
        .enter(
            LONG,
            || State { trees: Vec::new() },
            |state| {
                let prefix = dir.to_str().unwrap().as_bytes();
                let walk = |path: &str| state.trees[0].walk(prefix, path.as_bytes(), true).unwrap();
                assert!(
                    matches!(walk("/f0"), Walk::Object(found) if found.attr.size == 6 && found.path == b"/f0")
                );
                assert!(matches!(walk("/none/"), Walk::Missing { must_be_dir: true, .. }));
                let Walk::Outside(path) = walk("/up/x") else { panic!("it leaves") };
                assert_eq!(path, [prefix, b"/../x"].concat());
            },
        )
        .unwrap();
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
