//! Checksums set right again, so that mutations reach the code after them.

/// Little-endian at `at`, if there are so many bytes.
fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(word)).ok()
}

fn put(bytes: &mut [u8], at: usize, crc: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

/// A frame of the wire: magic, checksums of body and head.
pub(crate) fn frame(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 32 {
        bytes[..4].copy_from_slice(b"SHOL");
        bytes[5] = 0;
        let body = word(&bytes, 16).and_then(|len| bytes.get(32..32_usize.checked_add(len)?));
        let crc = body.map_or(0, crc32c::crc32c);
        put(&mut bytes, 24, crc);
        let crc = crc32c::crc32c(&bytes[..28]);
        put(&mut bytes, 28, crc);
    }
    bytes
}

/// A group of the journal: magic, version, checksums of records and header.
pub(crate) fn journal_group(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 80 {
        bytes[..12].copy_from_slice(b"shoaljrn\x01\0\0\0");
        let body = word(&bytes, 12).and_then(|len| bytes.get(80..80_usize.checked_add(len)?));
        let crc = body.map_or(0, crc32c::crc32c);
        put(&mut bytes, 64, crc);
        let crc = crc32c::crc32c(&bytes[..76]);
        put(&mut bytes, 76, crc);
    }
    bytes
}

/// The identity file: length, magic, version, checksum.
pub(crate) fn identity(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(64, 0);
    bytes[..12].copy_from_slice(b"shoalcol\x01\0\0\0");
    let crc = crc32c::crc32c(&bytes[..60]);
    put(&mut bytes, 60, crc);
    bytes
}

/// A table that is one file: magic, version, checksum.
pub(crate) fn table(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 16 {
        bytes[..12].copy_from_slice(b"shoaltab\x01\0\0\0");
        let crc = crc32c::crc32c(&bytes[16..]);
        put(&mut bytes, 12, crc);
    }
    bytes
}
