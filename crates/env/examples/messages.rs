//! How many small messages a second the two worlds carry: `cargo run --release --example messages`.
//!
//! A client keeps 1, 16 or 256 connections busy with 64-byte requests and replies. A request and its reply
//! are two messages. In-process streams run between two threads, polling and not.

use shoal_env::sim::{Config, World};
use shoal_env::{Address, Env, Reader, Writer, real};
use std::cell::Cell;
use std::io::IoSlice;
use std::rc::Rc;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 400_000;

async fn exact(reader: &mut Reader, buf: &mut [u8]) -> bool {
    let mut at = 0;
    while at < buf.len() {
        match reader.read(&mut buf[at..]).await {
            Ok(n @ 1..) => at += n,
            _ => return false,
        }
    }
    true
}

async fn send(writer: &mut Writer) -> bool {
    writer.write_all(&mut [IoSlice::new(&[7; 64])]).await.is_ok()
}

async fn serve(env: Env, at: Address, connections: u64) {
    let mut listener = env.listen(&at).await.expect("the address is free");
    let open = Rc::new(Cell::new(connections));
    for _ in 0..connections {
        let mut stream = listener.accept().await.expect("a client comes");
        let open = open.clone();
        env.spawn("answers", async move {
            while exact(&mut stream.reader, &mut [0; 64]).await && send(&mut stream.writer).await {}
            open.set(open.get() - 1);
        });
    }
    while open.get() > 0 {
        env.sleep(Duration::from_millis(1)).await;
    }
}

async fn ask(env: Env, to: Address, connections: u64, rounds: u64) {
    env.sleep(Duration::from_millis(20)).await;
    let open = Rc::new(Cell::new(connections));
    for _ in 0..connections {
        let mut stream = env.connect(&to).await.expect("the server listens");
        let open = open.clone();
        env.spawn("asks", async move {
            for _ in 0..rounds / connections {
                assert!(send(&mut stream.writer).await && exact(&mut stream.reader, &mut [0; 64]).await);
            }
            open.set(open.get() - 1);
        });
    }
    while open.get() > 0 {
        env.sleep(Duration::from_millis(1)).await;
    }
}

fn simulated(connections: u64) -> f64 {
    let world = World::new(1, Config::default());
    let server = world.process("server", world.machine("a"));
    let client = world.process("client", world.machine("b"));
    let address = Address::Local("x".into());
    let at = address.clone();
    world.start(server, move |env| serve(env, at, connections));
    let begun = Instant::now();
    world.complete(client, move |env| ask(env, address, connections, ROUNDS));
    2.0 * ROUNDS as f64 / begun.elapsed().as_secs_f64()
}

fn real_streams(address: &Address, connections: u64, polling: Duration) -> f64 {
    let (at, to) = (address.clone(), address.clone());
    let rounds = ROUNDS / 8;
    let server = real::spawn_thread("server", move |env| async move {
        env.set_polling(polling);
        serve(env, at, connections).await;
    })
    .expect("a thread");
    let begun = Instant::now();
    real::run("client", |env| async move {
        env.set_polling(polling);
        ask(env, to, connections, rounds).await;
    });
    let rate = 2.0 * rounds as f64 / begun.elapsed().as_secs_f64();
    server.join().expect("the server ends");
    rate
}

fn main() {
    for connections in [1, 16, 256] {
        println!("simulated, {connections:4} connections: {:10.0} messages/s", simulated(connections));
    }
    for address in ["local:bench", "tcp:127.0.0.1:17441"] {
        let address: Address = address.parse().expect("an address");
        for connections in [1, 16, 256] {
            for polling in [0, 100] {
                let rate = real_streams(&address, connections, Duration::from_micros(polling));
                println!(
                    "{address}, {connections:4} connections, polling {polling:3} µs: {rate:10.0} messages/s"
                );
            }
        }
    }
}
