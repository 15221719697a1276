//! The contents of messages between members: lists of bytes, and results. A result carries the failure of
//! one member to all members.
//!
//! ```text
//!   list     count u32, then each: length u32, bytes
//!   result   0, bytes  |  1, status u16, length u32, words (UTF-8)
//! ```

use super::{Group, meeting::MEMBERS_MAX};
use bytes::Bytes;
use shoal_pattern::codec::{DecodeError, Reader, Writer};
use shoal_proto::Status;
use shoal_vfs::{Error, Result};

/// Words of a failure, at most.
const WORDS_MAX: usize = 4096;
/// Bytes of a failure, at most.
pub(super) const FAILURE_BYTES_MAX: usize = WORDS_MAX + 16;

pub(super) fn bad(why: impl ToString) -> Error {
    let words = format!("a member sent a message that is none: {}", why.to_string());
    Error::new(Status::BadMessage, "group").because(words)
}

pub(super) fn join(all: &[Bytes]) -> Bytes {
    let mut w = Writer::new();
    w.put_count(all.len());
    all.iter().for_each(|bytes| w.put_bytes(bytes));
    w.into_vec().into()
}

pub(super) fn split(bytes: &Bytes) -> Result<Vec<Bytes>> {
    let read = || {
        let r = &mut Reader::new(bytes);
        let count = r.get_count(MEMBERS_MAX, 1)?;
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(bytes.slice_ref(r.get_bytes(bytes.len())?));
        }
        r.finish()?;
        Ok::<_, DecodeError>(all)
    };
    read().map_err(bad)
}

/// A failure, for all members.
pub(super) fn failure(error: &Error) -> Bytes {
    let mut w = Writer::new();
    w.put(&error.status);
    let mut words = error.words.clone();
    words.truncate(words.floor_char_boundary(WORDS_MAX));
    w.put_bytes(words.as_bytes());
    w.into_vec().into()
}

pub(super) fn read_failure(bytes: &[u8]) -> Error {
    let read = || {
        let r = &mut Reader::new(bytes);
        let status: Status = r.get()?;
        let words = String::from_utf8_lossy(r.get_bytes(WORDS_MAX)?).into_owned();
        r.finish()?;
        Ok::<_, DecodeError>(Error::new(status, "group").because(words))
    };
    read().unwrap_or_else(bad)
}

fn encode(result: &Result<Bytes>) -> Bytes {
    let (kind, bytes) = match result {
        Ok(bytes) => (0, bytes.clone()),
        Err(error) => (1, failure(error)),
    };
    [&[kind][..], &bytes].concat().into()
}

fn decode(rank: usize, size: usize, bytes: &Bytes) -> Result<Bytes> {
    match bytes.first() {
        Some(0) => Ok(bytes.slice(1..)),
        Some(1) => {
            let error = read_failure(&bytes[1..]);
            let words = format!("member {rank} of {size} failed: {} ({})", error.status, error.words);
            Err(error.because(words))
        }
        _ => Err(bad("no result")),
    }
}

/// The bytes of all members; or the failure of the first that failed (the inner error), at all of them. The
/// outer error: the group itself failed.
pub(crate) async fn share<G: Group>(group: &G, own: Result<Bytes>) -> Result<Result<Vec<Bytes>>> {
    let all = group.all_gather(encode(&own)).await?;
    if all.len() != group.size() {
        return Err(bad("a list of other members"));
    }
    Ok(all.iter().enumerate().map(|(rank, bytes)| decode(rank, group.size(), bytes)).collect())
}

/// The bytes of all members, at member 0; or the first one's failure, as in [`share`]. At the others nothing.
pub(crate) async fn collect<G: Group>(group: &G, own: Result<Bytes>) -> Result<Result<Vec<Bytes>>> {
    let all = group.gather(encode(&own)).await?;
    Ok(all.iter().enumerate().map(|(rank, bytes)| decode(rank, group.size(), bytes)).collect())
}

/// The bytes of member 0; or its failure, at all of them, as in [`share`]. `own`: at member 0.
pub(crate) async fn share_first<G: Group>(group: &G, own: Option<Result<Bytes>>) -> Result<Result<Bytes>> {
    let bytes = own.map_or_else(Bytes::new, |own| encode(&own));
    Ok(decode(0, group.size(), &group.broadcast(bytes).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_failures_are_read_as_they_were_written_and_cut_ones_not_at_all() {
        let all = [Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"three")];
        let list = join(&all);
        assert_eq!(split(&list).unwrap(), all);
        for end in 0..list.len() {
            assert!(split(&list.slice(..end)).is_err(), "{end} bytes");
        }
        let error = Error::new(Status::NoSpace, "open").because("no room");
        let read = decode(3, 8, &encode(&Err(error))).unwrap_err();
        assert_eq!(read.status, Status::NoSpace);
        assert!(read.words.starts_with("member 3 of 8 failed") && read.words.contains("no room"), "{read}");
        assert!(decode(0, 1, &Bytes::new()).is_err());
    }
}
