//! A matrix in one file, divided among four processes by five distributions. Each process writes its part by
//! one request, and reads it by another: `cargo run -p shoal-vfs --example distributions -- DIR`.
//!
//! ```text
//!   BLOCK, BLOCK    CYCLIC(2), *    Vesta 2 x 2     with borders     irregular
//!   0 0 1 1         0 0 0 0         0 1 0 1         0 0+ 1 1         0 0 2 2
//!   0 0 1 1         0 0 0 0         2 3 2 3         0 0+ 1 1         1 0 2 1
//!   2 2 3 3         1 1 1 1         0 1 0 1         + +  + +         1 1 2 2
//!   2 2 3 3         1 1 1 1         2 3 2 3         2 2+ 3 3         1 0 0 0
//! ```
//! The numbers are processes; `+` are elements of several processes. High Performance Fortran's
//! distributions, Vesta's views and blocks are constructors of the pattern algebra ([`hpf`], [`vesta`],
//! [`subarray`]). Vesta's views are disjoint and rectangular. So they cannot express the last two: blocks
//! that share their borders, and an irregular partition (Nieuwejaar and Kotz, "The Galley Parallel File
//! System", section 5). Both are patterns like the others here. The file system is any [`Vfs`]: here a
//! directory, in the same way a ShoalFS by `shoal_client::Client`.

use shoal_env::{Env, real};
use shoal_pattern::{ArrayError, BlockAxis, Dealing, DealtAxis, VestaView, hpf, subarray, vesta};
use shoal_pattern::{Pattern, Region};
use shoal_proto::{Handle, Name, Owner, Rights};
use shoal_vfs::{Connect, LocalOptions, Vfs, VfsFile};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Rows and columns of the matrix, and bytes of an element.
const SIDE: u64 = 64;
const ELEMENT: u64 = 8;
/// Processes, in a grid of two by two.
const PROCESSES: u64 = 4;

/// A distribution: its name, and the part of each process.
type Dealt = (&'static str, Vec<Pattern>);

fn main() -> Result<(), Box<dyn Error>> {
    let Some(dir) = std::env::args_os().nth(1) else {
        return Err("name the directory for the file: distributions DIR".into());
    };
    for line in in_directory(&PathBuf::from(dir))? {
        println!("{line}");
    }
    Ok(())
}

fn in_directory(dir: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let options = LocalOptions::new(dir);
    real::run("distributions", async |env: Env| {
        let vfs = options.connect(env).await?;
        let mut lines = Vec::new();
        for dealt in distributions()? {
            lines.push(written_and_read(&vfs, dealt).await?);
        }
        vfs.close().await;
        Ok(lines)
    })
}

/// The five distributions.
fn distributions() -> Result<Vec<Dealt>, Box<dyn Error>> {
    let grid = |process: u64| (process / 2, process % 2);
    let dealt = |dealing, processes, process| DealtAxis { extent: SIDE, dealing, processes, process };
    let block = |process| {
        let (down, across) = grid(process);
        hpf(ELEMENT, &[dealt(Dealing::Block, 2, down), dealt(Dealing::Block, 2, across)])
    };
    let cyclic =
        |process| hpf(ELEMENT, &[dealt(Dealing::Cyclic(2), PROCESSES, process), dealt(Dealing::Whole, 1, 0)]);
    let view = VestaView {
        record_bytes: ELEMENT,
        cells: SIDE,
        rows: SIDE,
        rows_block: 1,
        rows_parts: 2,
        cells_block: 1,
        cells_parts: 2,
    };
    // A quarter, and one row and column of each neighbour.
    let bordered = |process| {
        let (down, across) = grid(process);
        let axis = |part: u64| BlockAxis { extent: SIDE, start: part * (SIDE / 2 - 1), count: SIDE / 2 + 1 };
        subarray(ELEMENT, &[axis(down), axis(across)])
    };
    let of_all = |part: &dyn Fn(u64) -> Result<Pattern, ArrayError>| {
        (0..PROCESSES).map(part).collect::<Result<Vec<_>, _>>()
    };
    Ok(vec![
        ("BLOCK, BLOCK", of_all(&block)?),
        ("CYCLIC(2), *", of_all(&cyclic)?),
        ("Vesta, 2 x 2", of_all(&|process| vesta(&view, process / 2, process % 2))?),
        ("with borders", of_all(&bordered)?),
        ("irregular", (0..PROCESSES).map(irregular).collect::<Result<Vec<_>, _>>()?),
    ])
}

/// As a partitioner of a mesh deals elements: by no rule. Regions of one to sixteen elements.
fn irregular(process: u64) -> Result<Pattern, shoal_pattern::PatternError> {
    let (mut at, mut draw, mut own) = (0, 1_u64, Vec::new());
    while at < SIDE * SIDE {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let count = ((draw >> 33) % 16 + 1).min(SIDE * SIDE - at);
        if (draw >> 45) % PROCESSES == process {
            own.push(Region::new((at * ELEMENT) as i64, count * ELEMENT));
        }
        at += count;
    }
    Pattern::list(own)
}

/// The element at a place of the file.
fn element(place: u64) -> [u8; ELEMENT as usize] {
    (place / ELEMENT).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// The bytes of a part, in its order.
fn bytes_of(part: &Pattern) -> Vec<u8> {
    let places = part.regions().flat_map(|region| {
        let from = region.offset as u64;
        (from..from + region.len).step_by(ELEMENT as usize)
    });
    places.flat_map(element).collect()
}

/// Every process writes its part by one request, and reads it by another; then the whole file is compared.
async fn written_and_read<V: Vfs>(vfs: &V, (name, parts): Dealt) -> Result<String, Box<dyn Error>> {
    let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
    let file_name = Name::new(b"matrix").map_err(|status| status.to_string())?;
    let rights = Rights::READ | Rights::WRITE;
    let (_, _, file) = vfs.create(Handle::ROOT, &file_name, owner, true, rights).await?;
    for part in &parts {
        file.write_pattern(part, bytes_of(part).into()).await?;
    }
    for (process, part) in parts.iter().enumerate() {
        if file.read_pattern(part).await? != bytes_of(part) {
            return Err(format!("{name}: process {process} reads other bytes than it wrote").into());
        }
    }
    let whole = file.read(0, (SIDE * SIDE * ELEMENT) as usize).await?;
    let expected: Vec<u8> = (0..SIDE * SIDE).flat_map(|at| element(at * ELEMENT)).collect();
    if whole != expected {
        return Err(format!("{name}: the parts are not the whole matrix").into());
    }
    file.close().await?;
    vfs.unlink(Handle::ROOT, &file_name).await?;
    let bytes: Vec<String> = parts.iter().map(|part| part.len().to_string()).collect();
    Ok(format!("{name:14} the {PROCESSES} processes have {} bytes, one request each", bytes.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_distributions_are_written_and_read_by_one_request_of_each_process() {
        let dir = tempfile::tempdir().unwrap();
        let lines = in_directory(dir.path()).unwrap();
        assert_eq!(lines.len(), 5);
        assert!(lines[0].contains("8192, 8192, 8192, 8192"), "{lines:?}");
        assert!(lines[3].contains("8712, 8712, 8712, 8712"), "borders are in two parts: {lines:?}");
    }
}
