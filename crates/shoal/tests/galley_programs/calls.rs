//! One call of Galley's: its arguments, and the single pieces that it stands for.

use super::{ORIGIN, ROOM};
use proptest::prelude::*;
use shoal_client::Client;
use shoal_galley::{
    Batch, BatchBody, Errno, ForkId, Galley, ListEntry, Memory, OperationHandle, SharedBuffer, Stride,
};

/// The pieces of a call: place in the fork, place in the buffer, bytes.
pub type Pieces = Vec<(u64, usize, usize)>;

/// A transfer's shape, as its arguments.
#[derive(Clone, Debug)]
pub enum Call {
    Plain(u64, u64),
    Strided(u64, u64, i64, i64, u64),
    Nested(u64, u64, Vec<Stride>),
    Batched(Vec<Batch>),
    List(Vec<ListEntry>),
}

impl Call {
    /// Its single pieces, in order: place in the fork, place in memory, bytes. None: it is impossible.
    pub fn pieces(&self) -> Option<Pieces> {
        let mut all = Vec::new();
        match self {
            Call::Plain(offset, size) => all.push((*offset as i64, 0, *size)),
            Call::Strided(offset, size, f_stride, m_stride, quant) => {
                for turn in 0..*quant as i64 {
                    all.push((*offset as i64 + turn * f_stride, turn * m_stride, *size));
                }
            }
            Call::Nested(offset, size, list) => nest(&mut all, *offset as i64, 0, *size, list),
            Call::Batched(vector) => batch(&mut all, 0, 0, vector),
            Call::List(list) => {
                all.extend(list.iter().map(|e| (e.file_offset as i64, e.memory_offset, e.size)));
            }
        }
        all.retain(|piece| piece.2 > 0);
        let piece = |(file, memory, size): (i64, i64, u64)| {
            let to = ORIGIN as i64 + memory;
            let fits = file >= 0 && to >= 0 && to as u64 + size <= ROOM as u64;
            fits.then_some((file as u64, to as usize, size as usize))
        };
        all.into_iter().map(piece).collect()
    }

    pub async fn read(&self, galley: &Galley<Client>, fork: ForkId, buf: &mut [u8]) -> Result<u64, Errno> {
        let buf = Memory::at(buf, ORIGIN);
        match self {
            Call::Plain(offset, size) => galley.gfs_read(fork, buf, *offset, *size).await,
            Call::Strided(offset, size, f, m, quant) => {
                galley.gfs_read_strided(fork, buf, *offset, *size, *f, *m, *quant).await
            }
            Call::Nested(offset, size, list) => galley.gfs_read_nested(fork, buf, *offset, *size, list).await,
            Call::Batched(vector) => galley.gfs_read_batched(fork, buf, vector).await,
            Call::List(list) => galley.gfs_read_listio(fork, buf, list).await,
        }
    }

    pub async fn write(&self, galley: &Galley<Client>, fork: ForkId, buf: &[u8]) -> Result<u64, Errno> {
        let buf = Memory::at(buf, ORIGIN);
        match self {
            Call::Plain(offset, size) => galley.gfs_write(fork, buf, *offset, *size).await,
            Call::Strided(offset, size, f, m, quant) => {
                galley.gfs_write_strided(fork, buf, *offset, *size, *f, *m, *quant).await
            }
            Call::Nested(offset, size, list) => {
                galley.gfs_write_nested(fork, buf, *offset, *size, list).await
            }
            Call::Batched(vector) => galley.gfs_write_batched(fork, buf, vector).await,
            Call::List(list) => galley.gfs_write_listio(fork, buf, list).await,
        }
    }

    pub fn begin_read(&self, on: &Background<'_>, fork: ForkId, buf: &SharedBuffer) -> Result<(), Errno> {
        let Background { galley, handle } = on;
        match self {
            Call::Plain(offset, size) => galley.gfs_nb_read(handle, fork, buf, *offset, *size),
            Call::Strided(offset, size, f, m, quant) => {
                galley.gfs_nb_read_strided(handle, fork, buf, *offset, *size, *f, *m, *quant)
            }
            Call::Nested(offset, size, list) => {
                galley.gfs_nb_read_nested(handle, fork, buf, *offset, *size, list)
            }
            Call::Batched(vector) => galley.gfs_nb_read_batched(handle, fork, buf, vector),
            Call::List(list) => galley.gfs_nb_read_listio(handle, fork, buf, list),
        }
    }

    pub fn begin_write(&self, on: &Background<'_>, fork: ForkId, buf: &SharedBuffer) -> Result<(), Errno> {
        let Background { galley, handle } = on;
        match self {
            Call::Plain(offset, size) => galley.gfs_nb_write(handle, fork, buf, *offset, *size),
            Call::Strided(offset, size, f, m, quant) => {
                galley.gfs_nb_write_strided(handle, fork, buf, *offset, *size, *f, *m, *quant)
            }
            Call::Nested(offset, size, list) => {
                galley.gfs_nb_write_nested(handle, fork, buf, *offset, *size, list)
            }
            Call::Batched(vector) => galley.gfs_nb_write_batched(handle, fork, buf, vector),
            Call::List(list) => galley.gfs_nb_write_listio(handle, fork, buf, list),
        }
    }
}

pub struct Background<'a> {
    pub galley: &'a Galley<Client>,
    pub handle: &'a OperationHandle,
}

/// The innermost level is the first, so the last turns slowest.
fn nest(all: &mut Vec<(i64, i64, u64)>, file: i64, memory: i64, size: u64, list: &[Stride]) {
    let Some((outer, inner)) = list.split_last() else {
        all.push((file, memory, size));
        return;
    };
    for turn in 0..outer.quant as i64 {
        nest(all, file + turn * outer.f_off, memory + turn * outer.m_off, size, inner);
    }
}

fn batch(all: &mut Vec<(i64, i64, u64)>, file: i64, memory: i64, vector: &[Batch]) {
    for node in vector {
        let file = if node.f_absolute { node.f_off } else { file + node.f_off };
        let memory = if node.m_absolute { node.m_off } else { memory + node.m_off };
        for turn in 0..node.quant as i64 {
            let (file, memory) = (file + turn * node.f_stride, memory + turn * node.m_stride);
            match &node.body {
                BatchBody::Size(size) => all.push((file, memory, *size)),
                BatchBody::SubVector(vector) => batch(all, file, memory, vector),
            }
        }
    }
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let node = |body: BoxedStrategy<BatchBody>| {
        let places = (0..200_i64, -50..200_i64, any::<bool>(), any::<bool>());
        let turns = (0..4_u64, -60..300_i64, -60..200_i64);
        (places, turns, body).prop_map(|((f_off, m_off, f_absolute, m_absolute), turns, body)| {
            let (quant, f_stride, m_stride) = turns;
            Batch { f_off, m_off, f_absolute, m_absolute, quant, f_stride, m_stride, body }
        })
    };
    let leaf = node((0..40_u64).prop_map(BatchBody::Size).boxed()).boxed();
    let tree = leaf.prop_recursive(2, 8, 3, move |inner| {
        node(prop::collection::vec(inner, 0..3).prop_map(BatchBody::SubVector).boxed()).boxed()
    });
    prop::collection::vec(tree, 0..4)
}

pub fn calls(strip: u64) -> impl Strategy<Value = Call> {
    let base = 0..3 * strip;
    let stride = (-200..400_i64, -100..100_i64, 0..4_u64).prop_map(|(f_off, m_off, quant)| Stride {
        f_off,
        m_off,
        quant,
    });
    let entry = (base.clone(), -100..1500_i64, 0..100_u64)
        .prop_map(|(file_offset, memory_offset, size)| ListEntry { file_offset, memory_offset, size });
    prop_oneof![
        (base.clone(), 0..2000_u64).prop_map(|(offset, size)| Call::Plain(offset, size)),
        (base.clone(), 0..50_u64, -100..40_000_i64, -30..60_i64, 0..12_u64)
            .prop_map(|(offset, size, f, m, quant)| Call::Strided(offset, size, f, m, quant)),
        (base, 0..30_u64, prop::collection::vec(stride, 0..4))
            .prop_map(|(offset, size, list)| Call::Nested(offset, size, list)),
        batches().prop_map(Call::Batched),
        prop::collection::vec(entry, 0..6).prop_map(Call::List),
    ]
}
