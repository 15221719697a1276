//! The decoders of all bytes that are read back from a disk, by name, so that fuzzers can feed them invalid
//! bytes (`fuzz/`). They return only whether they found an error, and not the error itself.

use super::identity::Kept;
use super::journal::group::{Found, HEADER, Header, RecordWriter, next_record, record_len};
use super::journal::recover::walk_alone;
use super::table::{decode_lsn, file, live::Live};
use crate::stream_row::StreamRow;
use crate::{Identity, SyncModes};
use bytes::Bytes;
use std::path::Path;

/// A group of the journal: header and records.
pub fn journal_group(bytes: &[u8]) -> bool {
    match Header::find(bytes) {
        Found::Header(header) => header.body(bytes).is_some_and(journal_records),
        Found::Newer(_) | Found::Nothing => false,
    }
}

/// The records of a group whose checksum is right.
pub fn journal_records(mut body: &[u8]) -> bool {
    loop {
        match next_record(&mut body) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// All of a segment, as recovery walks it and searches after its end.
pub fn journal_segment(bytes: &[u8]) -> bool {
    walk_alone(bytes).is_ok()
}

/// The checkpoint's LSN in the table.
pub fn lsn(bytes: &[u8]) -> bool {
    decode_lsn(Some(bytes)).is_ok()
}

/// A stream's row. Encoding the decoded row gives the same bytes.
pub fn stream_row(bytes: &[u8]) -> bool {
    let row = StreamRow::decode(&Bytes::copy_from_slice(bytes));
    row.is_ok_and(|row| StreamRow::decode(&row.encode()).is_ok_and(|again| again == row))
}

/// The identity file.
pub fn identity(bytes: &[u8]) -> bool {
    Kept::decode(bytes, Path::new("collection")).is_ok()
}

/// A table that is one file.
pub fn table(bytes: &[u8]) -> bool {
    file::decode(&Bytes::copy_from_slice(bytes), Path::new("rows.tab")).is_ok()
}

/// A row that counts what lives in a segment: its key and, in the last 8 bytes, its value.
pub fn live(bytes: &[u8]) -> bool {
    let (key, value) = bytes.split_at(bytes.len().saturating_sub(8));
    Live::default().add_row(key, value).is_ok()
}

/// One whole and right input for [`journal_group`], [`journal_records`] (its body), [`identity`].
pub fn samples() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let rows: [(&[u8], Option<&[u8]>); 2] = [(b"key", Some(b"value")), (b"gone", None)];
    let lens = rows.iter().map(|(key, value)| (key.len(), value.map_or(0, <[u8]>::len)));
    let mut body = vec![0; record_len(4, lens)];
    let mut writer = RecordWriter::new(&mut body, 4);
    writer.bytes(b"data");
    writer.rows(rows.len());
    rows.iter().for_each(|(key, value)| writer.row(key, *value));
    let header = Header {
        body_len: body.len() as u32,
        segment: 1,
        generation: 2,
        sequence: 3,
        first: 4,
        last: 4,
        durable: 3,
        body_crc: crc32c::crc32c(&body),
    };
    let mut group = vec![0; HEADER];
    header.encode(&mut group);
    group.extend_from_slice(&body);
    let kept = Kept {
        identity: Identity { fs: [7; 16], collection: 1, server: 2 },
        store: shoal_proto::StoreId(3),
        modes: SyncModes::default(),
        segment_bytes: 1 << 20,
        has_folders: false,
    };
    (group, body, kept.encode().to_vec())
}
