//! Programs of several clients of one file, each in records of its own.

use super::calls::{Background, Call};
use super::{DIR, Model, ORIGIN, Programs, linear, noise, same};
use futures_util::future::join_all;
use proptest::prelude::*;
use shoal_client::Client;
use shoal_galley::{FileId, ForkId, Galley, SharedBuffer};
use shoal_proto::{Handle, Name};

/// Bytes of a record.
const RECORD: u64 = 96;

/// A strided call on records of a client's own.
#[derive(Clone, Debug)]
struct OwnStep {
    is_write: bool,
    is_blocking: bool,
    first: u64,
    shift: u64,
    size: u64,
    stride: u64,
    quant: u64,
}

fn own_steps() -> impl Strategy<Value = Vec<OwnStep>> {
    let place = (0..40_u64, 0..RECORD / 2, 1..RECORD / 2);
    let step = (any::<bool>(), any::<bool>(), place, 1..4_u64, 0..9_u64);
    let step = step.prop_map(|(is_write, is_blocking, (first, shift, size), stride, quant)| OwnStep {
        is_write,
        is_blocking,
        first,
        shift,
        size,
        stride,
        quant,
    });
    prop::collection::vec(step, 1..16)
}

/// A client among several.
struct User<'a> {
    galley: &'a Galley<Client>,
    fork: ForkId,
    index: u64,
    users: u64,
    /// Its own bytes, up to its last one; those of the others are zeros here.
    own: Vec<u8>,
}

impl User<'_> {
    async fn step(&mut self, number: usize, step: &OwnStep) -> Result<(), String> {
        let &OwnStep { is_write, is_blocking, first, shift, size, stride, quant } = step;
        let offset = (first * self.users + self.index) * RECORD + shift;
        let f_stride = stride * self.users * RECORD;
        let call = Call::Strided(offset, size, f_stride as i64, size as i64, quant);
        let pieces = call.pieces().ok_or("a shape that fits")?;
        let mut buf = noise(number + 7 * self.index as usize);
        if is_write {
            let mut model = Model { bytes: std::mem::take(&mut self.own), settled: 0 };
            let moved = model.write(&pieces, &buf);
            self.own = model.bytes;
            let done = if is_blocking {
                call.write(self.galley, self.fork, &buf).await
            } else {
                let handle = self.galley.gfs_new_handle();
                let on = Background { galley: self.galley, handle: &handle };
                call.begin_write(&on, self.fork, &SharedBuffer::at(buf, ORIGIN))
                    .map_err(|e| e.to_string())?;
                self.galley.gfs_wait(&handle).await
            };
            return same(done, Ok(moved), step);
        }
        let before = buf.clone();
        let done = call.read(self.galley, self.fork, &mut buf).await;
        let (mut moved, mut is_after_end) = (0, false);
        for (file, memory, size) in pieces {
            for at in 0..size {
                let (found, own) = (buf[memory + at], self.own.get(file as usize + at));
                let is_hole = own.is_none() && found == 0;
                is_after_end |= own.is_none() && found != 0;
                // After its own last byte there is a hole before others' bytes, and then nothing.
                let is_right = match own {
                    Some(&own) => found == own,
                    None => is_hole && !is_after_end || found == before[memory + at],
                };
                same((file, at, is_right), (file, at, true), step)?;
                moved += u64::from(own.is_some() || is_hole);
            }
        }
        same(done, Ok(moved), step)
    }
}

/// Do so many programs of several clients on one fork, or one striped file, each in its own records.
///
/// # Errors
/// The first difference.
pub async fn run_shared(
    clients: &[(Client, Galley<Client>)],
    programs: &mut Programs,
    count: usize,
) -> Result<(), String> {
    let (client, galley) = &clients[0];
    galley.gfs_create_file(b"shared", None, 1, DIR).await.unwrap();
    let open_file =
        async |(_, galley): &(Client, Galley<Client>)| galley.gfs_open_file(b"shared").await.unwrap();
    let files: Vec<FileId> = join_all(clients.iter().map(open_file)).await;
    for number in 0..count {
        let is_striped = number % 2 == 1;
        match is_striped {
            true => linear(client, "striped").await,
            false => galley.gfs_create_fork(files[0], 0, b"fork").await.unwrap(),
        }
        let mut users = Vec::new();
        for (index, ((_, galley), file)) in clients.iter().zip(&files).enumerate() {
            let fork = match is_striped {
                true => galley.open_linear(b"striped").await.unwrap(),
                false => galley.gfs_open_fork(*file, 0, b"fork").await.unwrap(),
            };
            let (index, users_count) = (index as u64, clients.len() as u64);
            users.push(User { galley, fork, index, users: users_count, own: Vec::new() });
        }
        let plans: Vec<Vec<OwnStep>> = users.iter().map(|_| programs.next(own_steps())).collect();
        let all = users.iter_mut().zip(&plans).map(|(user, plan)| async move {
            for (number, step) in plan.iter().enumerate() {
                user.step(number, step).await.map_err(|why| format!("client {}: {why}", user.index))?;
            }
            Ok::<(), String>(())
        });
        join_all(all).await.into_iter().collect::<Result<(), String>>()?;
        let mut whole = vec![0; users.iter().map(|user| user.own.len()).max().unwrap_or(0)];
        for user in &users {
            user.own
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte != 0)
                .for_each(|(at, byte)| whole[at] = *byte);
        }
        for user in &users {
            let mut read = vec![1; whole.len() + 9];
            let moved = user.galley.gfs_read(user.fork, &mut read[..], 0, whole.len() as u64 + 9).await;
            same(moved, Ok(whole.len() as u64), &"the whole of what all wrote")?;
            same(read[..whole.len()] == whole, true, &"the whole of what all wrote")?;
            user.galley.gfs_close_fork(user.fork).await.unwrap();
        }
        match is_striped {
            true => client.unlink(Handle::ROOT, &Name::new(b"striped").unwrap()).await.unwrap(),
            false => galley.gfs_delete_fork(files[0], 0, b"fork").await.unwrap(),
        }
    }
    galley.gfs_delete_file(b"shared").await.unwrap();
    Ok(())
}
