//! Two programs whose data does not fit into memory, on forked files: the transpose of a matrix by panels of
//! columns, and one polarisation of a radio-astronomy data set.
//!
//! ```text
//!   fork `a` of subfile s: rows s·n/4 … of A      a panel: w columns of all rows, one strided request a subfile
//!   fork `b` of subfile s: rows s·n/4 … of Aᵀ     the panel transposed: w whole rows, one write
//! ```
//! The tests check that the bytes are right, and count requests and bytes. A third test compares strided
//! reads of four forks with those of a striped file. With `SHOAL_OUT_OF_CORE=1` the data is 256 MiB to 1 GiB
//! on disk; otherwise it is small and in memory. `--nocapture` shows times, which no test judges.

use crate::cluster::Cluster;
use futures_util::future::join_all;
use shoal_client::Client;
use shoal_env::{Env, real};
use shoal_galley::{FileId, ForkId, Galley};
use shoal_pattern::Pattern;
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Rights};
use shoal_store::ModuleKind;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
/// Servers, and subfiles of each file.
const PARTS: usize = 4;
/// Bytes of an element.
const ELEMENT: usize = 8;
/// Bytes of a plain read or write of much data.
const CHUNK: usize = 4 << 20;

/// How the records of a panel are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// One strided request a subfile.
    Structured,
    /// One read a record, the subfiles at once.
    Single,
}

fn is_long() -> bool {
    std::env::var_os("SHOAL_OUT_OF_CORE").is_some()
}

struct Site {
    env: Env,
    client: Client,
    galley: Galley<Client>,
}

impl Site {
    async fn begin(env: Env, cluster: &Cluster) -> Site {
        let client = Client::connect(env.clone(), cluster.client()).await.unwrap();
        let galley = Galley::gfs_init(env.clone(), client.clone());
        Site { env, client, galley }
    }

    async fn file(&self, name: &str) -> FileId {
        self.galley.gfs_create_file(name.as_bytes(), None, PARTS as u16, OWNER).await.unwrap();
        self.galley.gfs_open_file(name.as_bytes()).await.unwrap()
    }

    async fn forks(&self, file: FileId, name: &str) -> Vec<ForkId> {
        self.galley.gfs_all_create(file, name.as_bytes()).await.unwrap();
        self.galley.gfs_all_open(file, name.as_bytes()).await.unwrap()
    }

    fn messages(&self) -> u64 {
        self.client.counters().messages_all()
    }

    fn received(&self) -> u64 {
        self.client.counters().received_bytes
    }
}

/// Messages that renew leases in a run of minutes.
const RENEWALS_MAX: u64 = 100;

/// An `n` × `n` matrix, whose panels are `w` columns wide.
#[derive(Clone, Copy)]
struct Matrix {
    n: usize,
    w: usize,
}

impl Matrix {
    fn row(&self) -> usize {
        self.n * ELEMENT
    }

    fn rows_of_part(&self) -> usize {
        self.n / PARTS
    }

    fn value(&self, row: usize, column: usize) -> [u8; ELEMENT] {
        ((row * self.n + column) as f64).to_le_bytes()
    }

    /// `A`, written by whole rows.
    async fn fill(&self, site: &Site, forks: &[ForkId]) {
        let rows = (CHUNK / self.row()).clamp(1, self.rows_of_part());
        for (part, &fork) in forks.iter().enumerate() {
            for first in (0..self.rows_of_part()).step_by(rows) {
                let from = part * self.rows_of_part() + first;
                let bytes: Vec<u8> = (from..from + rows)
                    .flat_map(|row| (0..self.n).flat_map(move |column| self.value(row, column)))
                    .collect();
                let (place, len) = ((first * self.row()) as u64, bytes.len() as u64);
                assert_eq!(site.galley.gfs_write(fork, &bytes[..], place, len).await, Ok(len));
            }
        }
    }

    /// The transpose in two buffers of a panel each; how long the reads took.
    async fn transpose(&self, site: &Site, from: &[ForkId], to: &[ForkId], way: Way) -> Duration {
        let record = self.w * ELEMENT;
        let (mut panel, mut turned) = (vec![0; self.n * record], vec![0; self.n * record]);
        let mut reading = Duration::ZERO;
        for first in (0..self.n).step_by(self.w) {
            let began = site.env.now();
            let parts = panel.chunks_mut(self.rows_of_part() * record).zip(from);
            join_all(parts.map(|(part, &fork)| self.read(site, fork, part, first, way))).await;
            reading += site.env.now().since(began);
            turn(&panel, &mut turned, (self.n, self.w));
            let (part, row) = (first / self.rows_of_part(), first % self.rows_of_part());
            let (place, len) = ((row * self.row()) as u64, turned.len() as u64);
            assert_eq!(site.galley.gfs_write(to[part], &turned[..], place, len).await, Ok(len));
        }
        reading
    }

    /// The columns from `first` on of all rows of a subfile.
    async fn read(&self, site: &Site, fork: ForkId, part: &mut [u8], first: usize, way: Way) {
        let (record, place, row) = ((self.w * ELEMENT) as u64, (first * ELEMENT) as u64, self.row() as u64);
        let (galley, quant) = (&site.galley, self.rows_of_part() as u64);
        if way == Way::Structured {
            let stride = (row as i64, record as i64);
            let read = galley.gfs_read_strided(fork, part, place, record, stride.0, stride.1, quant).await;
            assert_eq!(read, Ok(record * quant));
            return;
        }
        for (index, own) in part.chunks_mut(record as usize).enumerate() {
            let read = galley.gfs_read(fork, own, place + index as u64 * row, record).await;
            assert_eq!(read, Ok(record));
        }
    }

    /// Every element of the transpose is right.
    async fn check(&self, site: &Site, forks: &[ForkId]) {
        let mut row = vec![0; self.row()];
        for index in 0..self.n {
            let (part, place) = (index / self.rows_of_part(), index % self.rows_of_part() * self.row());
            let len = row.len() as u64;
            assert_eq!(site.galley.gfs_read(forks[part], &mut row[..], place as u64, len).await, Ok(len));
            let mut found = row.chunks(ELEMENT).enumerate();
            assert!(found.all(|(column, bytes)| bytes == self.value(column, index)), "row {index}");
        }
    }
}

/// A panel of `n` rows of `w` elements, its rows as columns. By squares, for the processor's caches.
fn turn(panel: &[u8], turned: &mut [u8], (n, w): (usize, usize)) {
    const SIDE: usize = 16;
    for (first, left) in (0..n).step_by(SIDE).flat_map(|row| (0..w).step_by(SIDE).map(move |at| (row, at))) {
        for row in first..(first + SIDE).min(n) {
            for column in left..(left + SIDE).min(w) {
                let (from, to) = ((row * w + column) * ELEMENT, (column * n + row) * ELEMENT);
                turned[to..to + ELEMENT].copy_from_slice(&panel[from..from + ELEMENT]);
            }
        }
    }
}

/// The times of both ways, whole and their reads alone.
fn transpose_both_ways(matrix: Matrix, module: ModuleKind) -> [[Duration; 2]; 2] {
    let cluster = Cluster::start(PARTS as u16, module);
    real::run("client", async |env| {
        let site = Site::begin(env, &cluster).await;
        let file = site.file("matrix").await;
        let from = site.forks(file, "a").await;
        matrix.fill(&site, &from).await;
        let mut times = [[Duration::ZERO; 2]; 2];
        // The first writes the forks' first bytes: not measured.
        for (round, way) in [Way::Structured, Way::Structured, Way::Single].into_iter().enumerate() {
            let to = site.forks(file, &format!("b{round}")).await;
            let (began, messages) = (site.env.now(), site.messages());
            let reading = matrix.transpose(&site, &from, &to, way).await;
            let took = site.env.now().since(began);
            let panels = (matrix.n / matrix.w) as u64;
            let reads = match way {
                Way::Structured => panels * PARTS as u64,
                Way::Single => panels * matrix.n as u64,
            };
            // A long run renews its leases, too.
            let renewals = if is_long() { RENEWALS_MAX } else { 0 };
            let (sent, wanted) = (site.messages() - messages, reads + panels);
            assert!(
                (wanted..=wanted + renewals).contains(&sent),
                "{way:?}: a read, and a write a panel: {sent}"
            );
            times[usize::from(way == Way::Single)] = [took, reading];
            matrix.check(&site, &to).await;
            site.galley.gfs_all_close(&to).await.unwrap();
            site.galley.gfs_all_delete(file, format!("b{round}").as_bytes()).await.unwrap();
        }
        site.client.close().await;
        times
    })
}

#[test]
fn a_matrix_is_transposed_by_one_request_a_subfile_and_panel_and_every_element_is_right() {
    let (n, widths, module) = match is_long() {
        true => (8192, &[512, 256, 128][..], ModuleKind::Disk),
        false => (128, &[32][..], ModuleKind::Memory),
    };
    for &w in widths {
        let [structured, single] = transpose_both_ways(Matrix { n, w }, module);
        for (part, at) in [("transpose", 0), ("its reads", 1)] {
            let ratio = single[at].as_secs_f64() / structured[at].as_secs_f64();
            let (fast, slow) = (structured[at], single[at]);
            println!("panels of {w}: {part}: {fast:?} structured, {slow:?} single: {ratio:.1}x");
        }
    }
}

/// A record of the data set: keys, and two polarisations.
const KEYS: usize = 128;
const POLARISATION: usize = 128;
const RECORD: usize = KEYS + 2 * POLARISATION;

/// Bytes received for one polarisation of so many records: of its forks, of the interleaved striped file read
/// whole, and of that by a strided request.
struct Moved {
    forks: u64,
    whole: u64,
    strided: u64,
}

fn one_polarisation(records: usize, module: ModuleKind) -> Moved {
    let cluster = Cluster::start(PARTS as u16, module);
    real::run("client", async |env| {
        let site = Site::begin(env, &cluster).await;
        let each = records / PARTS;
        let file = site.file("visibilities").await;
        let mut forks = Vec::new();
        for (at, name) in ["keys", "xx", "yy"].into_iter().enumerate() {
            forks = site.forks(file, name).await;
            for &fork in &forks {
                write_all(each * POLARISATION, async |place, len| {
                    let bytes = vec![at as u8; len];
                    site.galley.gfs_write(fork, &bytes[..], place, len as u64).await.unwrap();
                })
                .await;
            }
        }
        let name = Name::new(b"interleaved").unwrap();
        let (_, _, striped) = site
            .client
            .create(Handle::ROOT, &name, OWNER, true, Rights::READ | Rights::WRITE, None)
            .await
            .unwrap();
        let record: Vec<u8> = (0..3).flat_map(|at| [at; KEYS]).collect();
        let many = record.repeat(CHUNK / RECORD);
        write_all(records * RECORD, async |place, len| {
            let skip = place as usize % RECORD;
            let bytes: Vec<u8> = many.iter().cycle().skip(skip).take(len).copied().collect();
            striped.write(place, bytes.into()).await.unwrap();
        })
        .await;

        let before = site.received();
        for &fork in &forks {
            let mut buf = vec![0; CHUNK];
            let mut place = 0;
            while place < (each * POLARISATION) as u64 {
                let len = (CHUNK as u64).min((each * POLARISATION) as u64 - place);
                place += site.galley.gfs_read(fork, &mut buf[..], place, len).await.unwrap();
                assert!(buf[..len as usize].iter().all(|byte| *byte == 2));
            }
        }
        let after_forks = site.received();
        write_all(records * RECORD, async |place, len| {
            assert_eq!(striped.read(place, len).await.unwrap().len(), len);
        })
        .await;
        let after_whole = site.received();
        let (a_turn, from) = (CHUNK / POLARISATION, (KEYS + POLARISATION) as i64);
        for first in (0..records).step_by(a_turn) {
            let (count, place) = (a_turn.min(records - first) as u64, from + (first * RECORD) as i64);
            let pattern = Pattern::strided(place, POLARISATION as u64, RECORD as i64, count).unwrap();
            let bytes = striped.read_pattern(&pattern).await.unwrap();
            assert!(bytes.len() as u64 == count * POLARISATION as u64 && bytes.iter().all(|byte| *byte == 2));
        }
        let moved = Moved {
            forks: after_forks - before,
            whole: after_whole - after_forks,
            strided: site.received() - after_whole,
        };
        site.client.close().await;
        moved
    })
}

/// All of so many bytes, in chunks of whole places.
async fn write_all(bytes: usize, each: impl AsyncFn(u64, usize)) {
    for place in (0..bytes).step_by(CHUNK) {
        each(place as u64, CHUNK.min(bytes - place)).await;
    }
}

#[test]
fn one_polarisation_of_three_equal_columns_moves_a_third_of_the_bytes_of_the_interleaved_file() {
    let (records, module) = match is_long() {
        true => ((1 << 30) / RECORD / PARTS * PARTS, ModuleKind::Disk),
        false => (40_000, ModuleKind::Memory),
    };
    let Moved { forks, whole, strided } = one_polarisation(records, module);
    println!(
        "bytes received: {forks} of the forks, {whole} of the whole file, {strided} by strided requests"
    );
    assert!(forks * 100 <= whole * 35, "{forks} of {whole}");
    assert_eq!(forks, strided, "a strided request moves no more from the striped file, either");
}

/// Bytes of a record, and from one to the next, in four forks and in a striped file.
const BESIDE: (u64, i64) = (4096, 16_384);

#[test]
fn four_forks_read_strided_at_once_give_the_bytes_that_a_striped_file_gives() {
    let (bytes, module) = match is_long() {
        true => (256 << 20, ModuleKind::Disk),
        false => (1 << 20, ModuleKind::Memory),
    };
    let cluster = Cluster::start(PARTS as u16, module);
    real::run("client", async |env| {
        let site = Site::begin(env, &cluster).await;
        let (record, stride) = BESIDE;
        let (part, quant) = (bytes / PARTS, (bytes / PARTS) as u64 / stride as u64);
        let file = site.file("forked").await;
        let forks = site.forks(file, "a").await;
        for &fork in &forks {
            write_all(part, async |place, len| {
                site.galley.gfs_write(fork, &vec![7; len][..], place, len as u64).await.unwrap();
            })
            .await;
        }
        let name = Name::new(b"striped").unwrap();
        let made = site
            .client
            .create(Handle::ROOT, &name, OWNER, true, Rights::READ | Rights::WRITE, None)
            .await
            .unwrap();
        write_all(bytes, async |place, len| {
            made.2.write(place, vec![7; len].into()).await.map(drop).unwrap()
        })
        .await;
        let striped = site.galley.open_linear(b"striped").await.unwrap();
        let mut buffers: Vec<Vec<u8>> = (0..PARTS).map(|_| vec![0; (quant * record) as usize]).collect();
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..22 {
            let is_forked = round % 2 == 0;
            let began = site.env.now();
            join_all(buffers.iter_mut().enumerate().map(async |(at, buffer)| {
                let (fork, place) = if is_forked { (forks[at], 0) } else { (striped, (at * part) as u64) };
                let (galley, to) = (&site.galley, &mut buffer[..]);
                let read =
                    galley.gfs_read_strided(fork, to, place, record, stride, record as i64, quant).await;
                assert_eq!(read, Ok(quant * record));
                assert!(buffer.iter().all(|byte| *byte == 7));
            }))
            .await;
            // The first of each is not counted.
            if round >= 2 {
                times[usize::from(!is_forked)].push(site.env.now().since(began));
            }
        }
        for (what, times) in ["four forks", "a striped file"].into_iter().zip(&mut times) {
            times.sort();
            println!(
                "{what}: median {:?} of {:?} to {:?}",
                times[times.len() / 2],
                times[0],
                times[times.len() - 1]
            );
        }
        let ratio = times[0][times[0].len() / 2].as_secs_f64() / times[1][times[1].len() / 2].as_secs_f64();
        println!("forks take {ratio:.2} of the time of the striped file");
        site.client.close().await;
    });
}
