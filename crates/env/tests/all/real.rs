//! The suite in the real world, on one thread and as a migratable world, and tests of threads, the kernel's
//! files and sockets.

use crate::suite;
use crate::suite::Place;
use bytes::Bytes;
use shoal_env::{Address, Env, OpenOptions, real};
use std::time::Duration;

macro_rules! in_the_real_world {
    ($($case:ident),* $(,)?) => {
        $(#[test]
        fn $case() {
            for (kind, roams) in [("tcp", false), ("host", false), ("unix", false), ("local", false), ("tcp", true), ("local", true)] {
                let dir = tempfile::tempdir().unwrap();
                let root = dir.path().to_owned();
                let address = match kind {
                    "tcp" => "tcp:127.0.0.1:0".parse().unwrap(),
                    "host" => "tcp:localhost:0".parse().unwrap(),
                    "unix" => Address::Unix(root.join("socket")),
                    _ => Address::Local(format!("{}-{}", stringify!($case), root.display())),
                };
                let case = |env| suite::$case(env, Place { address, root });
                match roams {
                    false => real::run(stringify!($case), case),
                    true => real::spawn_migratable(stringify!($case), case).unwrap().join().expect("as on one thread"),
                }
            }
        })*
    };
}
suite::all!(in_the_real_world);

#[test]
fn local_streams_cross_threads_and_carry_bulk() {
    const BYTES: usize = 20 << 20;
    let name = Address::Local("bulk-across-threads".into());
    let (at, to) = (name.clone(), name);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = real::spawn_thread("bulk-server", move |env: Env| async move {
        let mut listener = env.listen(&at).await.unwrap();
        ready.send(()).unwrap();
        let mut stream = listener.accept().await.unwrap();
        suite::read_to_end(&mut stream.reader).await.unwrap()
    })
    .unwrap();
    is_ready.recv().unwrap();
    let sent: Bytes = suite::pattern(BYTES, 3).into();
    let copy = sent.clone();
    real::run("bulk-client", |env| async move {
        let mut stream = env.connect(&to).await.unwrap();
        stream.writer.write_all(&mut [std::io::IoSlice::new(&copy)]).await.unwrap();
        stream.writer.close().await.unwrap();
    });
    assert!(server.join().unwrap() == sent);
}

#[test]
fn a_panic_in_a_task_ends_the_run_with_that_panic() {
    let ended = std::panic::catch_unwind(|| {
        real::run("panics", |env| async move {
            env.spawn("bad", async { panic!("the reason") });
            env.sleep(Duration::from_secs(600)).await;
        });
    });
    assert_eq!(ended.unwrap_err().downcast_ref::<&str>(), Some(&"the reason"));
}

#[test]
fn the_lock_of_an_ended_environment_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    for _ in 0..2 {
        let path = path.clone();
        real::run("locks", |env| async move { env.lock(&path).await.unwrap() });
    }
}

#[test]
fn a_stale_socket_file_is_replaced_and_a_living_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the file of a killed server");
    real::run("stale", |env| async move {
        let first = env.listen(&Address::Unix(path.clone())).await.unwrap();
        let second = env.listen(&Address::Unix(path.clone())).await;
        assert_eq!(second.err().unwrap().kind(), std::io::ErrorKind::AddrInUse);
        drop(first);
        assert!(!path.exists(), "an orderly end leaves no file");
        std::fs::write(&path, "not a socket").unwrap();
        assert!(env.listen(&Address::Unix(path.clone())).await.is_err());
        assert!(path.exists(), "what is not a socket is never removed");
    });
}

#[test]
fn polling_keeps_answers_coming_and_can_be_ended() {
    real::run("polls", |env| async move {
        env.set_polling(Duration::from_micros(200));
        let address = Address::Local("polls".into());
        let mut listener = env.listen(&address).await.unwrap();
        let mut near = env.connect(&address).await.unwrap();
        let mut far = listener.accept().await.unwrap();
        for round in 0..100u8 {
            near.writer.write_all(&mut [std::io::IoSlice::new(&[round])]).await.unwrap();
            let mut buf = [0; 8];
            assert_eq!(far.reader.read(&mut buf).await.unwrap(), 1);
            assert_eq!(buf[0], round);
        }
        env.sleep(Duration::from_millis(2)).await;
        env.set_polling(Duration::ZERO);
        env.sleep(Duration::from_millis(2)).await;
    });
}

#[test]
fn a_file_system_without_direct_io_falls_back_to_buffered() {
    // /dev/shm is a tmpfs if it exists; kernels differ in whether it takes O_DIRECT, contents must not.
    for root in ["/dev/shm", "/tmp"] {
        let Ok(dir) = tempfile::tempdir_in(root) else { continue };
        let path = dir.path().join("file");
        real::run("direct", |env| async move {
            let options = OpenOptions { create: true, direct: true, dsync: true, ..OpenOptions::default() };
            let file = env.open(&path, options).await.unwrap();
            let mut buf = shoal_env::AlignedBuf::zeroed(8192);
            buf.fill(7);
            let (buf, done) = file.write_aligned(4096, buf).await;
            done.unwrap();
            assert_eq!(buf.len(), 8192);
            assert_eq!(file.len().await.unwrap(), 12288);
            assert_eq!(
                &file.read_at(4000, 200).await.unwrap()[..],
                &[[0; 96].as_slice(), &[7; 104]].concat()
            );
            assert!(file.write_at(5, vec![Bytes::from_static(b"unaligned")]).await.is_err());
        });
    }
}
