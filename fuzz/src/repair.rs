//! Corrects the checksums of mutated inputs, so that mutations reach the code that runs after the checks.

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

/// The same of a sealed one, whose seal stays; an encrypted one has no checksum of its body.
pub(crate) fn sealed(bytes: &[u8], is_encrypted: bool) -> Vec<u8> {
    let mut bytes = frame(bytes);
    if bytes.len() >= 32 {
        bytes[5] = 1;
        if is_encrypted {
            bytes[5] = 2;
            put(&mut bytes, 24, 0);
        }
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

/// The object of a name in an object store: magic, version, checksum.
pub(crate) fn object_name(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 14 {
        bytes[..10].copy_from_slice(b"shoalnam\x01\0");
        let crc = crc32c::crc32c(&bytes[14..]);
        put(&mut bytes, 10, crc);
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

/// Settings, a merged directory or a block's header: the sum of all after it, up to `end`.
pub(crate) fn composed(bytes: &[u8], magic: &[u8; 8], end: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= 14 {
        bytes[..8].copy_from_slice(magic);
        let end = end.min(bytes.len());
        let crc = crc32c::crc32c(&bytes[12..end]);
        put(&mut bytes, 8, crc);
    }
    bytes
}

/// The records of a block.
pub(crate) fn records(bytes: &[u8], mut at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    while let Some(end) = word(&bytes, at + 4).and_then(|len| (at + 9).checked_add(len)) {
        let Some(body) = bytes.get(at + 4..end) else { break };
        let crc = crc32c::crc32c(body);
        put(&mut bytes, at, crc);
        at = end;
    }
    bytes
}
