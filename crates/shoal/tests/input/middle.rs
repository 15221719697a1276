//! An attacker on the wire between a program and a real server, which flips single bits of the traffic.

use crate::program::*;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};

/// Which bit is flipped of the bytes that the first connection carries.
#[derive(Clone, Copy, Debug)]
enum Flip {
    /// Of what the client sends, so many bytes after the begin.
    Up(usize),
    /// Of what the server sends.
    Down(usize),
}

/// Passes all on; `flipped` is the place of a byte of which a bit is flipped.
fn pass(mut from: TcpStream, mut to: TcpStream, flipped: Option<usize>) {
    let (mut bytes, mut passed) = (vec![0; 16 << 10], 0);
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if let Some(at) = flipped.and_then(|at| at.checked_sub(passed)).filter(|at| *at < n) {
            bytes[at] ^= 0x10;
        }
        passed += n;
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Where the attacker listens. Further connections pass unchanged.
fn middle(server: SocketAddr, flip: Flip) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut up, mut down) = match flip {
            Flip::Up(at) => (Some(at), None),
            Flip::Down(at) => (None, Some(at)),
        };
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
            let (other, back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (up, down) = (up.take(), down.take());
            std::thread::spawn(move || pass(back, other, down));
            std::thread::spawn(move || pass(client, server, up));
        }
    });
    address
}

fn content() -> String {
    (0..150_000_u32).map(|n| format!("{:07}", n.wrapping_mul(2_654_435_761) % 10_000_000)).collect()
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

#[test]
fn a_middle_man_on_the_wire_changes_nothing_that_a_client_reads_or_writes() {
    let home = Home::new();
    let (up, server, key) = served(&home, "");
    let (name, content) = (name_of(&home), content());
    let file = home.file("f", content.as_bytes());
    let honest = format!("shoal://{server}/{name}");
    for (number, at) in PLACES.into_iter().enumerate() {
        let to = format!("shoal://{}/{name}/f{number}", middle(server, Flip::Up(at)));
        said(&["cp", &file, &to, "--key", &key, "--quiet"]);
        let there = said(&["cat", &format!("{honest}/f{number}"), "--key", &key]);
        assert!(there == content, "a bit was flipped on the way to the server at {at}");
        let from = format!("shoal://{}/{name}/f{number}", middle(server, Flip::Down(at)));
        let read = said(&["cat", &from, "--key", &key]);
        assert!(read == content, "a bit was flipped on the way to the client at {at}");
    }
    let told = up.stop();
    assert!(told.contains("a frame was changed, left out, repeated or added"), "{told}");
}

#[test]
fn without_seals_or_with_those_of_heads_alone_a_middle_man_changes_data() {
    for mac in ["mac = \"off\"", "mac = \"head\""] {
        let home = Home::new();
        let (up, server, key) = served(&home, mac);
        let (name, content) = (name_of(&home), content());
        let file = home.file("f", content.as_bytes());
        let mut changed = 0;
        for (number, at) in PLACES.into_iter().enumerate().skip(1) {
            let to = format!("shoal://{}/{name}/f{number}", middle(server, Flip::Up(at)));
            said(&["cp", &file, &to, "--key", &key, "--quiet"]);
            let there = said(&["cat", &format!("shoal://{server}/{name}/f{number}"), "--key", &key]);
            changed += usize::from(there != content);
        }
        assert!(changed > 0, "{mac}: so the seal of all is what protects data");
        up.stop();
    }
}
