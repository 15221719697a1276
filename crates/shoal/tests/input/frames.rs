//! Input over the wire to a running server: other versions, garbage, frames that are cut, and very many
//! connections.

use crate::program::*;
use bytes::BytesMut;
use shoal_client::Options;
use shoal_proto::codec::Codec;
use shoal_proto::message::{
    Attach, Attached, Challenge, Group, Hello, Refusal, Request, VERSION_OF_SEALS, VERSIONS,
};
use shoal_proto::{ClientId, Durability, Frame, FrameKind, Op, Status};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The versions of most connections here: their frames have no seals, so that a test writes what it likes.
const UNSEALED: (u16, u16) = (VERSIONS.0, VERSION_OF_SEALS - 1);

fn frame<T: Codec>(kind: FrameKind, version: u16, message: &T) -> Vec<u8> {
    // The tag of the first frame is the id of the client's key: here the first key.
    let tag = if kind == FrameKind::Hello { 0 } else { 1 };
    let mut bytes = Vec::new();
    Frame::put(kind, version, tag, message, 0, &mut bytes);
    bytes
}

fn first(options: &Options, (version_min, version_max): (u16, u16)) -> Hello {
    Hello { version_min, version_max, fs_id: options.fs_id, nonce: [5; 32] }
}

fn hello(options: &Options, versions: (u16, u16)) -> Vec<u8> {
    frame(FrameKind::Hello, versions.1, &first(options, versions))
}

fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("it accepts");
    stream.set_read_timeout(Some(HANGS)).unwrap();
    stream
}

/// The next frame; `None`: the connection has ended.
fn next(stream: &mut TcpStream, buf: &mut BytesMut) -> Option<Frame> {
    loop {
        if let Some(frame) = Frame::take(buf).expect("the server speaks the protocol") {
            return Some(frame);
        }
        let mut some = [0; 4096];
        match stream.read(&mut some) {
            Ok(0) | Err(_) => return None,
            Ok(n) => buf.extend_from_slice(&some[..n]),
        }
    }
}

fn refusal(stream: &mut TcpStream) -> Option<Refusal> {
    let frame = next(stream, &mut BytesMut::new())?;
    assert_eq!(frame.kind, FrameKind::Refusal);
    Some(frame.message().unwrap())
}

/// A client of its own for each connection: a server takes a few of one.
fn client() -> ClientId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ClientId(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)).to_le_bytes())
}

/// A connection that has attached.
fn attached(server: SocketAddr, options: &Options) -> TcpStream {
    let (mut stream, mut buf) = (connect(server), BytesMut::new());
    stream.write_all(&hello(options, UNSEALED)).unwrap();
    let challenge: Challenge = next(&mut stream, &mut buf).expect("a challenge").message().unwrap();
    let mut attach = Attach {
        proof: [0; 32],
        collection: options.collection,
        client: client(),
        peer: None,
        session: None,
        slots: 1,
        client_key: None,
    };
    attach.prove(&options.key, &first(options, UNSEALED), &challenge, None);
    stream.write_all(&frame(FrameKind::Attach, challenge.version, &attach)).unwrap();
    let last = next(&mut stream, &mut buf).expect("an answer");
    assert_eq!(last.kind, FrameKind::Attached, "{:?}", last.message::<Refusal>());
    let _: Attached = last.message().unwrap();
    stream
}

fn ping() -> Request {
    Request {
        slot: None,
        timeout_ms: 1000,
        durability: Durability::Usual,
        groups: vec![Group { ops: vec![Op::Ping {}].into() }].into(),
    }
}

/// A file system in memory with one file, its address, and its clients' options.
fn served(home: &Home, servers: &str) -> (Serving, String, Options) {
    let data = home.text("data");
    let up = Serving::start(&["up", &data, "--servers", servers, "--module", "memory"]);
    let file = home.file("f", b"content");
    let root = up.root();
    said(&["cp", &file, &format!("{root}/f"), "--key", &home.text("data/key"), "--quiet"]);
    let options = options(up.server(), &home.path("data/key"));
    (up, root, options)
}

/// The file is there, for a new client.
#[track_caller]
fn still_serves(home: &Home, root: &str) {
    assert_eq!(said(&["cat", &format!("{root}/f"), "--key", &home.text("data/key")]), "content");
}

#[test]
fn a_client_of_another_version_is_told_which_the_server_speaks() {
    let home = Home::new();
    let (up, root, options) = served(&home, "1");
    for versions in [(VERSIONS.1 + 1, VERSIONS.1 + 3), (0, 0)] {
        let mut stream = connect(up.server());
        stream.write_all(&hello(&options, versions)).unwrap();
        let told = refusal(&mut stream).expect("it is told");
        assert_eq!(told.status, Status::BadVersion);
        for word in
            [&format!("versions {} to {}", VERSIONS.0, VERSIONS.1), "you speak", "update the older side"]
        {
            assert!(told.words.0.contains(word), "{}", told.words);
        }
    }
    still_serves(&home, &root);
    up.stop();
}

#[test]
fn a_server_of_another_version_is_named_with_what_it_said() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(1);
    let server = TcpListener::bind(("127.0.0.1", ports[0])).unwrap();
    let old = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let _ = next(&mut stream, &mut BytesMut::new());
        let words =
            "this server speaks versions 17 to 19 of the protocol, you speak 1 to 1: update the older side";
        let refusal = Refusal { status: Status::BadVersion, words: words.into() };
        stream.write_all(&frame(FrameKind::Refusal, 9, &refusal)).unwrap();
    });
    refused(
        &["ls", &cluster],
        &["cannot reach", &ports[0].to_string(), "versions 17 to 19", "update the older side"],
    );
    old.join().unwrap();
}

#[test]
fn something_else_that_listens_there_is_not_taken_for_a_server() {
    let home = Home::new();
    let (cluster, ports) = home.cluster(1);
    let other = TcpListener::bind(("127.0.0.1", ports[0])).unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nServer: another one altogether\r\n\r\n");
        // Until the client has seen it and gone.
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.read(&mut [0; 4096]);
    });
    refused(&["ls", &cluster], &["cannot reach", &ports[0].to_string(), "does not speak this protocol"]);
    serving.join().unwrap();
}

/// Bytes that are no frame, or a cut one, after the request of an admitted client or without it.
fn garbage(options: &Options) -> Vec<(bool, Vec<u8>)> {
    let (hello, request) = (hello(options, VERSIONS), frame(FrameKind::Request, VERSIONS.1, &ping()));
    let mut flipped = request.clone();
    flipped[40] ^= 0xff;
    // A right head that promises more than any frame may hold, and one that promises bytes that never come.
    let head = |body: u32, bulk: u32| {
        let mut head = request[..32].to_vec();
        head[16..20].copy_from_slice(&body.to_le_bytes());
        head[20..24].copy_from_slice(&bulk.to_le_bytes());
        let sum = crc32c::crc32c(&head[..28]);
        head[28..].copy_from_slice(&sum.to_le_bytes());
        head
    };
    let strange = frame(FrameKind::Attached, VERSIONS.1, &ping());
    let mut all = vec![
        (false, Vec::new()),
        (false, vec![0; 5000]),
        (false, vec![0xff; 200_000]),
        (false, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        (false, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        (false, hello[..hello.len() / 2].to_vec()),
        (false, [&hello[..], &hello[..]].concat()),
        (false, request.clone()),
        (false, head(1 << 20, 1 << 20)),
        (true, vec![0x55; 100]),
        (true, request[..request.len() - 1].to_vec()),
        (true, flipped),
        (true, strange),
        (true, head(u32::MAX, u32::MAX)),
        (true, head(1 << 20, 1 << 20)),
        (true, [&request[..], &[1, 2, 3]].concat()),
    ];
    let noise: Vec<u8> = (0..60_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    all.push((false, noise.clone()));
    all.push((true, noise));
    all
}

#[test]
fn garbage_and_cut_frames_harm_nobody_but_their_sender() {
    let home = Home::new();
    let (up, root, options) = served(&home, "1");
    let mut honest = attached(up.server(), &options);
    let mut left_open = Vec::new();
    for (i, (after_attach, bytes)) in garbage(&options).into_iter().enumerate() {
        let mut stream = if after_attach { attached(up.server(), &options) } else { connect(up.server()) };
        // It may be cut off before all is sent.
        let _ = stream.write_all(&bytes);
        // One after the other: the end, a half end, silence.
        match i % 3 {
            0 => drop(stream),
            1 => {
                let _ = stream.shutdown(Shutdown::Write);
                while next(&mut stream, &mut BytesMut::new()).is_some() {}
            }
            _ => left_open.push(stream),
        }
    }
    // The earlier client is served, and so is a new one.
    honest.write_all(&frame(FrameKind::Request, VERSIONS.1, &ping())).unwrap();
    assert_eq!(next(&mut honest, &mut BytesMut::new()).unwrap().kind, FrameKind::Reply);
    still_serves(&home, &root);
    drop(left_open);
    up.stop();
}

#[test]
fn garbage_is_answered_with_words() {
    let home = Home::new();
    let (up, _, options) = served(&home, "1");
    for (mut stream, bytes) in [
        (connect(up.server()), b"GET / HTTP/1.1\r\nHost: localhost:7441\r\n\r\n".to_vec()),
        (attached(up.server(), &options), b"GET / HTTP/1.1\r\nHost: localhost:7441\r\n\r\n".to_vec()),
        (attached(up.server(), &options), frame(FrameKind::Attached, VERSIONS.1, &ping())),
    ] {
        stream.write_all(&bytes).unwrap();
        let told = refusal(&mut stream).expect("it is told");
        assert_eq!(told.status, Status::BadMessage, "{}", told.words);
        assert!(!told.words.0.is_empty());
    }
    up.stop();
}

/// Bytes of memory the process has now.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// How many connections a test may hold, with its other files; as far as the system lets it.
fn many(wanted: usize) -> usize {
    let may = shoal_env::raise_open_files(wanted as u64 + 500) as usize;
    if may < wanted + 500 {
        let fewer = may - 500;
        skipped(&format!("only {may} open files are allowed: {fewer} connections instead of {wanted}"));
    }
    wanted.min(may - 500)
}

/// Memory that one idle connection may take of a server.
const CONNECTION_BYTES_MAX: u64 = 16 * 1024;

#[test]
fn ten_thousand_idle_connections_take_little_and_keep_nobody_out() {
    let home = Home::new();
    let (up, root, options) = served(&home, "1");
    let count = many(10_000);
    let (server, pid) = (up.server(), up.child.id());
    still_serves(&home, &root);
    let before = resident(pid);
    // Half of them never say a word.
    let silent: Vec<TcpStream> = (0..count / 2).map(|_| connect(server)).collect();
    let begin = Instant::now();
    still_serves(&home, &root);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(5), "who comes behind the silent ones is not made to wait: {took:?}");
    // The other half are sessions that ask nothing.
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let options = options.clone();
            std::thread::spawn(move || -> Vec<TcpStream> {
                (0..count / 16).map(|_| attached(server, &options)).collect()
            })
        })
        .collect();
    let mut idle: Vec<TcpStream> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    still_serves(&home, &root);
    let each = resident(pid).saturating_sub(before) / (silent.len() + idle.len()) as u64;
    println!("{} silent and {} attached connections take {each} bytes each", silent.len(), idle.len());
    assert!(each <= CONNECTION_BYTES_MAX, "{each} bytes for a connection");
    for stream in idle.iter_mut().step_by(500) {
        stream.write_all(&frame(FrameKind::Request, VERSIONS.1, &ping())).unwrap();
        assert_eq!(next(stream, &mut BytesMut::new()).unwrap().kind, FrameKind::Reply);
    }
    drop((silent, idle));
    still_serves(&home, &root);
    up.stop();
}

#[test]
fn without_descriptors_new_connections_wait_and_the_others_are_served() {
    let home = Home::new();
    let (up, root, options) = served(&home, "1");
    let mut honest = attached(up.server(), &options);
    let pid = rustix::process::Pid::from_child(&up.child);
    let open = std::fs::read_dir(format!("/proc/{}/fd", up.child.id())).unwrap().count() as u64;
    let was = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit { current: Some(open + 10), maximum: was.maximum };
    rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, few).unwrap();
    // The kernel takes them; the server cannot.
    let waiting: Vec<TcpStream> = (0..50).map(|_| connect(up.server())).collect();
    soon("the server says that it cannot accept", || up.told().contains("no connection can be accepted"));
    honest.write_all(&frame(FrameKind::Request, VERSIONS.1, &ping())).unwrap();
    assert_eq!(next(&mut honest, &mut BytesMut::new()).unwrap().kind, FrameKind::Reply);
    // It continues as soon as some are gone.
    drop(waiting);
    still_serves(&home, &root);
    let told = up.stop();
    assert!(
        told.matches("no connection can be accepted").count() < 10,
        "it is said once, not at every try: {told}"
    );
}
