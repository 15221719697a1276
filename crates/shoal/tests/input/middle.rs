//! An attacker on the wire between a program and a real server, which flips single bits of the traffic, or
//! listens to it.

use crate::program::*;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Which bit is flipped of the bytes that the first connection carries.
#[derive(Clone, Copy, Debug)]
enum Flip {
    /// Of what the client sends, so many bytes after the begin.
    Up(usize),
    /// Of what the server sends.
    Down(usize),
}

/// Passes all on; `flipped` is the place of a byte of which a bit is flipped, and counted.
fn pass(mut from: TcpStream, mut to: TcpStream, flipped: Option<usize>, flips: &AtomicUsize) {
    let (mut bytes, mut passed) = (vec![0; 16 << 10], 0);
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if let Some(at) = flipped.and_then(|at| at.checked_sub(passed)).filter(|at| *at < n) {
            bytes[at] ^= 0x10;
            flips.fetch_add(1, Ordering::SeqCst);
        }
        passed += n;
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Where the attacker listens, and how many bits it has flipped. Further connections pass unchanged.
fn middle(server: SocketAddr, flip: Flip) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let flips = Arc::<AtomicUsize>::default();
    let count = flips.clone();
    std::thread::spawn(move || {
        let (mut up, mut down) = match flip {
            Flip::Up(at) => (Some(at), None),
            Flip::Down(at) => (None, Some(at)),
        };
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
            let (other, back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (up, down) = (up.take(), down.take());
            let (one, two) = (count.clone(), count.clone());
            std::thread::spawn(move || pass(back, other, down, &one));
            std::thread::spawn(move || pass(client, server, up, &two));
        }
    });
    (address, flips)
}

/// Where the attacker listens, and all bytes that were said over it, each way.
fn listener(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::<Mutex<Vec<u8>>>::default();
    let all = heard.clone();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            for (mut from, mut to) in [(client, server), back] {
                let all = all.clone();
                std::thread::spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(n @ 1..) = from.read(&mut bytes) {
                        all.lock().unwrap().extend_from_slice(&bytes[..n]);
                        if to.write_all(&bytes[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, heard)
}

/// Less than a strip. `cp` writes several parts of a file at once, and the one that ends beyond the first
/// strip lays the file out. The bytes before it are sent again then, and a bit that was flipped in those of
/// the first time is in no file.
fn content() -> String {
    (0..120_000_u32).map(|n| format!("{:07}", n.wrapping_mul(2_654_435_761) % 10_000_000)).collect()
}

/// A cluster of one server, the address of its file system, and its key; `mac` is a line of its file.
fn served(home: &Home, mac: &str) -> (Serving, SocketAddr, String) {
    let (cluster, ports) = home.cluster(1);
    let path = home.path("cluster/cluster.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let at = text.find("key = ").unwrap();
    std::fs::write(&path, format!("{}{mac}\n{}", &text[..at], &text[at..])).unwrap();
    let up = Serving::start(&["serve", "--config", &cluster]);
    (up, SocketAddr::from((Ipv4Addr::LOCALHOST, ports[0])), home.text("cluster/key"))
}

fn name_of(home: &Home) -> String {
    let table: toml::Table =
        toml::from_str(&std::fs::read_to_string(home.path("cluster/cluster.toml")).unwrap()).unwrap();
    table["collection"][0]["name"].as_str().unwrap().to_owned()
}

/// Places in the middle of the data, and in the requests before it.
const PLACES: [usize; 4] = [400, 150_000, 400_000, 700_001];

/// A file system of one server, reached over attackers, and the content of a file.
struct Attacked {
    server: SocketAddr,
    name: String,
    key: String,
    file: String,
    content: String,
}

impl Attacked {
    fn at(&self, server: SocketAddr, number: usize) -> String {
        format!("shoal://{server}/{}/f{number}", self.name)
    }

    /// The content of the file after it was written over an attacker.
    fn written(&self, number: usize, at: usize) -> String {
        let (middle, flips) = middle(self.server, Flip::Up(at));
        said(&["cp", &self.file, &self.at(middle, number), "--key", &self.key, "--quiet"]);
        assert_eq!(flips.load(Ordering::SeqCst), 1, "a bit was flipped on the way to the server at {at}");
        said(&["cat", &self.at(self.server, number), "--key", &self.key])
    }

    /// The content that a program reads over an attacker.
    fn read(&self, number: usize, at: usize) -> String {
        let (middle, flips) = middle(self.server, Flip::Down(at));
        let output = run(&["cat", &self.at(middle, number), "--key", &self.key]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(flips.load(Ordering::SeqCst), 1, "a bit was flipped on the way to the client at {at}");
        // A changed byte may be no text any more.
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Forged frames that the server has counted.
    fn forged(&self) -> u64 {
        let place = format!("shoal://{}/{}", self.server, self.name);
        let counters = said(&["status", &place, "--key", &self.key, "--counters"]);
        let row = counters.lines().find(|line| line.contains("forged_frames")).expect("it is counted");
        row.split_whitespace().last().unwrap().parse().unwrap()
    }
}

fn attacked(home: &Home, mac: &str) -> (Serving, Attacked) {
    let (up, server, key) = served(home, mac);
    let (name, content) = (name_of(home), content());
    let file = home.file("f", content.as_bytes());
    (up, Attacked { server, name, key, file, content })
}

#[test]
fn a_middle_man_on_the_wire_changes_nothing_that_a_client_reads_or_writes() {
    for mac in ["", "mac = \"encrypt\""] {
        let home = Home::new();
        let (up, attacked) = attacked(&home, mac);
        for (number, at) in PLACES.into_iter().enumerate() {
            assert!(attacked.written(number, at) == attacked.content, "{mac} {at}");
            assert!(attacked.read(number, at) == attacked.content, "{mac} {at}");
        }
        // Checksums find a flipped bit of a head or body, and seals one of the data.
        let forged = attacked.forged();
        assert!((PLACES.len() as u64 - 1..=PLACES.len() as u64).contains(&forged), "{mac} {forged}");
        let told = up.stop();
        let warnings = told.matches("a frame was changed, left out, repeated or added").count() as u64;
        assert!((1..=forged).contains(&warnings), "{mac} {warnings}: {told}");
    }
}

#[test]
fn a_listener_reads_names_and_data_unless_they_are_encrypted() {
    for (mac, is_read) in [("mac = \"all\"", true), ("mac = \"encrypt\"", false)] {
        let home = Home::new();
        let (up, attacked) = attacked(&home, mac);
        let (middle, heard) = listener(attacked.server);
        let place = format!("shoal://{middle}/{}/of-nobody-else", attacked.name);
        said(&["cp", &attacked.file, &place, "--key", &attacked.key, "--quiet"]);
        assert!(said(&["cat", &place, "--key", &attacked.key]) == attacked.content, "{mac}");
        up.stop();
        let heard = heard.lock().unwrap();
        assert!(heard.len() > 2 * attacked.content.len(), "{mac}: all passed by there");
        let holds = |part: &[u8]| heard.windows(part.len()).any(|bytes| bytes == part);
        assert_eq!(holds(b"of-nobody-else"), is_read, "{mac}: the name");
        for at in [0, attacked.content.len() / 2, attacked.content.len() - 24] {
            assert_eq!(holds(&attacked.content.as_bytes()[at..at + 24]), is_read, "{mac}: data at {at}");
        }
    }
}

#[test]
fn without_seals_or_with_those_of_heads_alone_a_middle_man_changes_data() {
    for mac in ["mac = \"off\"", "mac = \"head\""] {
        let home = Home::new();
        let (up, attacked) = attacked(&home, mac);
        let (mut written, mut read) = (0, 0);
        for (number, at) in PLACES.into_iter().enumerate().skip(1) {
            let there = attacked.written(number, at);
            written += usize::from(there != attacked.content);
            read += usize::from(attacked.read(number, at) != there);
        }
        assert!(written > 0 && read > 0, "{mac}: so the seal of all is what protects data: {written} {read}");
        assert_eq!(attacked.forged(), 0, "{mac}");
        up.stop();
    }
}

#[test]
fn an_attacker_that_passes_connections_on_to_the_servers_own_socket_takes_no_seals_away() {
    let home = Home::new();
    let data = home.text("data");
    let up = Serving::start(&["up", &data]);
    let (root, key) = (up.root(), home.text("data/key"));
    let socket = home.path("data/server-0/socket");
    assert!(UnixStream::connect(&socket).is_ok(), "the server listens there");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let middle = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, UnixStream::connect(&socket)) else { return };
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || std::io::copy(&mut &server, &mut &client));
        }
    });
    said(&["ls", &root, "--key", &key]);
    let name = root.trim_end_matches('/').rsplit('/').next().unwrap();
    refused(&["ls", &format!("shoal://{middle}/{name}"), "--key", &key], &["passed on to a socket"]);
    up.stop();
}

#[test]
fn the_protection_that_init_and_up_are_given_stands_in_the_cluster_file_until_another_is_given() {
    let home = Home::new();
    let (cluster, folder) = (home.text("cluster"), home.text("s0"));
    said(&["init", &cluster, "--server", &format!("tcp:127.0.0.1:7441={folder}"), "--mac", "encrypt"]);
    let in_file = |path: &str| {
        let text = std::fs::read_to_string(home.path(path)).unwrap();
        text.parse::<toml::Table>().unwrap().get("mac").map(|mac| mac.as_str().unwrap().to_owned())
    };
    assert_eq!(in_file("cluster/cluster.toml").as_deref(), Some("encrypt"));
    let data = home.text("data");
    for (given, kept) in [
        (&[][..], None),
        (&["--mac", "head"][..], Some("head")),
        (&[][..], Some("head")),
        (&["--mac", "encrypt"][..], Some("encrypt")),
    ] {
        Serving::start(&[&["up", &data, "--servers", "1"], given].concat()).stop();
        assert_eq!(in_file("data/cluster.toml").as_deref(), kept, "{given:?}");
    }
    refused(&["up", &data, "--mac", "most"], &["'most'", "--mac"]);
}
