//! The identity file: the owner and the form of the folder's data.
//!
//! The file is written under a new name and then renamed, so it is there whole or not at all. Its name is
//! `collection`. It has 64 bytes; all numbers are little-endian:
//!
//! ```text
//! 0  magic "shoalcol"
//! 8  format version of the folder  u32 (2; 3: there are stream folders)
//! 12 module                        u8 (0 disk)
//! 13 metadata's sync mode          u8 (0 at reply, 1 at fsync, 2 never)
//! 14 data's sync mode              u8 (0 at fsync, 1 at reply)
//! 15 coalescing                    u8 (0 pipelined, 1 per-op, 2 watermark)
//! 16 file system's id              16 bytes
//! 32 collection                    u32
//! 36 server                        u16
//! 38 zero
//! 40 bytes of a journal segment    u64
//! 48 low mark of the coalescing    u16
//! 50 high mark of it               u16
//! 52 store's id                    u64 (drawn at random when the store is made; never zero)
//! 60 CRC-32C of bytes 0..60        u32
//! ```

use crate::{CollectionConfig, DataSync, Identity, MetadataSync, StoreError, SyncModes};
use bytes::Bytes;
use shoal_env::Env;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Coalescing, StoreId};
use std::io;
use std::path::Path;

/// The folder's format. 2: the live bytes of each segment are a row of their own; a program of format 1
/// would take all segments for free.
pub(crate) const VERSION: u32 = 2;
/// The same of a store with stream folders: a program of format 2 would not find their files.
const VERSION_FOLDERS: u32 = 3;
const MAGIC: &[u8; 8] = b"shoalcol";
const LEN: usize = 64;
/// Name of the file.
pub(crate) const FILE: &str = "collection";

/// The content of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub identity: Identity,
    pub modes: SyncModes,
    pub segment_bytes: u64,
    /// Which store this is.
    pub store: StoreId,
    /// It has files of streams in folders of other disks.
    pub has_folders: bool,
}

/// The refusal of data of an older version.
fn older(path: &Path, found: u32) -> StoreError {
    StoreError::Refused(format!(
        "{} is of format version {found}, this program reads version {VERSION}: serve it with the program that wrote it and copy \
         the data out, or begin anew in an empty folder",
        path.display()
    ))
}

/// The refusal of data of a newer version.
pub(crate) fn newer(path: &Path, found: u32, known: u32) -> StoreError {
    StoreError::Refused(format!(
        "{} is of format version {found}, this program knows versions up to {known}: use the program that wrote it, or a \
         newer one",
        path.display()
    ))
}

impl Kept {
    pub fn encode(&self) -> Bytes {
        let mut out = vec![0; LEN];
        out[..8].copy_from_slice(MAGIC);
        let version = if self.has_folders { VERSION_FOLDERS } else { VERSION };
        out[8..12].copy_from_slice(&version.to_le_bytes());
        out[13] = match self.modes.metadata {
            MetadataSync::AtReply => 0,
            MetadataSync::AtFsync => 1,
            MetadataSync::Never => 2,
        };
        out[14] = match self.modes.data {
            DataSync::AtFsync => 0,
            DataSync::AtReply => 1,
        };
        let (coalescing, low, high) = match self.modes.coalescing {
            Coalescing::Pipelined => (0, 0, 0),
            Coalescing::PerOp => (1, 0, 0),
            Coalescing::Watermark { low, high } => (2, low, high),
        };
        out[15] = coalescing;
        out[48..50].copy_from_slice(&low.to_le_bytes());
        out[50..52].copy_from_slice(&high.to_le_bytes());
        out[16..32].copy_from_slice(&self.identity.fs);
        out[32..36].copy_from_slice(&self.identity.collection.to_le_bytes());
        out[36..38].copy_from_slice(&self.identity.server.to_le_bytes());
        out[40..48].copy_from_slice(&self.segment_bytes.to_le_bytes());
        out[52..60].copy_from_slice(&self.store.0.to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out.into()
    }

    pub fn decode(bytes: &[u8], path: &Path) -> Result<Kept, StoreError> {
        let damaged = |what: &str| StoreError::Damaged(format!("{}: {what}", path.display()));
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| damaged("not 64 bytes long"))?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..8] != *MAGIC {
            return Err(damaged("not an identity file"));
        }
        if u32_at(60) != crc32c::crc32c(&bytes[..60]) {
            return Err(damaged("its checksum is wrong"));
        }
        match u32_at(8) {
            VERSION | VERSION_FOLDERS => {}
            found if found < VERSION => return Err(older(path, found)),
            found => return Err(newer(path, found, VERSION_FOLDERS)),
        }
        let metadata = match bytes[13] {
            0 => MetadataSync::AtReply,
            1 => MetadataSync::AtFsync,
            2 => MetadataSync::Never,
            _ => return Err(damaged("an unknown sync mode of metadata")),
        };
        let data = match bytes[14] {
            0 => DataSync::AtFsync,
            1 => DataSync::AtReply,
            _ => return Err(damaged("an unknown sync mode of data")),
        };
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let coalescing = match bytes[15] {
            0 => Coalescing::Pipelined,
            1 => Coalescing::PerOp,
            2 => Coalescing::Watermark { low: u16_at(48), high: u16_at(50) },
            _ => return Err(damaged("an unknown coalescing")),
        };
        let mut fs = [0; 16];
        fs.copy_from_slice(&bytes[16..32]);
        let mut segment_bytes = [0; 8];
        segment_bytes.copy_from_slice(&bytes[40..48]);
        let mut store = [0; 8];
        store.copy_from_slice(&bytes[52..60]);
        Ok(Kept {
            identity: Identity {
                fs,
                collection: u32_at(32),
                server: u16::from_le_bytes([bytes[36], bytes[37]]),
            },
            modes: SyncModes { metadata, data, coalescing },
            segment_bytes: u64::from_le_bytes(segment_bytes),
            store: StoreId(u64::from_le_bytes(store)),
            has_folders: u32_at(8) == VERSION_FOLDERS,
        })
    }
}

/// Read the folder's identity and compare it with the expected one; make it in an empty folder if
/// requested.
pub(crate) async fn check(env: &Env, config: &CollectionConfig) -> Result<Kept, StoreError> {
    let path = config.dir.join(FILE);
    match env.read_file(&path, LEN).await {
        Ok(bytes) => {
            let kept = Kept::decode(&bytes, &path)?;
            compare(&path, &kept, config)?;
            check_segment_bytes(kept.segment_bytes)?;
            Ok(kept)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(env, config).await,
        Err(error) => Err(StoreError::io(format!("reading {}", path.display()), &error)),
    }
}

fn check_segment_bytes(bytes: u64) -> Result<(), StoreError> {
    let range = CollectionConfig::SEGMENT_BYTES_MIN..=CollectionConfig::SEGMENT_BYTES_MAX;
    if range.contains(&bytes) && bytes.is_multiple_of(4096) {
        return Ok(());
    }
    Err(StoreError::Refused(format!(
        "segments of {bytes} bytes: choose a multiple of 4096 from {} to {}",
        range.start(),
        range.end()
    )))
}

async fn make(env: &Env, config: &CollectionConfig) -> Result<Kept, StoreError> {
    check_free(env, config).await?;
    check_segment_bytes(config.segment_bytes)?;
    let store = match config.store {
        StoreId::NONE => StoreId(env.random_u64() | 1),
        given => given,
    };
    let kept = Kept {
        identity: config.identity,
        modes: config.sync_modes,
        segment_bytes: config.segment_bytes,
        store,
        has_folders: false,
    };
    write(env, &config.dir, &kept).await?;
    Ok(kept)
}

/// Refuse a folder that has contents but no identity file, before anything is made in it.
pub(crate) async fn check_free(env: &Env, config: &CollectionConfig) -> Result<(), StoreError> {
    let dir = config.dir.display();
    let entries = match env.list(&config.dir).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !config.create => {
            return Err(StoreError::Missing(format!("{dir} is not there")));
        }
        entries => entries.map_err(|error| StoreError::io(format!("listing {dir}"), &error))?,
    };
    let named = |names: &[&str]| entries.iter().find(|entry| names.contains(&entry.name.as_str()));
    if named(&[FILE]).is_some() {
        return Ok(());
    }
    if let Some(part) = named(&super::PARTS) {
        return Err(StoreError::Damaged(format!(
            "{dir} holds the `{}` of a collection, and the file `{FILE}` with its identity is missing",
            part.name
        )));
    }
    let is_ours = |name: &str| super::OWN_NAMES.contains(&name);
    let stranger = entries.iter().find(|entry| !is_ours(&entry.name));
    if !config.create && !mutant::is(Mutant::EmptyFolder) {
        let holds =
            stranger.map_or("is empty".to_owned(), |entry| format!("holds `{}` and no store", entry.name));
        return Err(StoreError::Missing(format!("{dir} {holds}")));
    }
    if let Some(entry) = stranger {
        return Err(StoreError::Refused(format!(
            "{dir} is not empty (it holds `{}`) and holds no collection: name an empty folder",
            entry.name
        )));
    }
    Ok(())
}

/// Write the file again.
pub(crate) async fn write(env: &Env, dir: &Path, kept: &Kept) -> Result<(), StoreError> {
    let path = dir.join(FILE);
    let written = env.replace_file(&path, kept.encode()).await;
    written.map_err(|error| StoreError::io(format!("writing {}", path.display()), &error))
}

/// See [`crate::succeed`].
pub(crate) async fn succeed(
    env: &Env,
    config: &CollectionConfig,
    from: StoreId,
    to: StoreId,
) -> Result<(), StoreError> {
    let path = config.dir.join(FILE);
    super::open::lock(env, &config.dir).await?;
    let bytes = env.read_file(&path, LEN).await;
    let bytes = bytes.map_err(|error| StoreError::io(format!("reading {}", path.display()), &error))?;
    let mut kept = Kept::decode(&bytes, &path)?;
    compare(&path, &kept, &CollectionConfig { store: StoreId::NONE, ..config.clone() })?;
    if kept.store == to {
        return Ok(());
    }
    compare(&path, &kept, &CollectionConfig { store: from, ..config.clone() })?;
    kept.store = to;
    write(env, &config.dir, &kept).await
}

fn compare(path: &Path, kept: &Kept, config: &CollectionConfig) -> Result<(), StoreError> {
    let (found, expected) = (kept.identity, config.identity);
    let of = |what: &str, found: String, expected: String| {
        Err(StoreError::Foreign(format!("{} is of {what} {found}, not {expected}", path.display())))
    };
    if found.fs != expected.fs {
        let hex = |id: [u8; 16]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        return of("file system", hex(found.fs), hex(expected.fs));
    }
    if found.server != expected.server {
        return of("server", found.server.to_string(), expected.server.to_string());
    }
    if found.collection != expected.collection {
        return of("collection", found.collection.to_string(), expected.collection.to_string());
    }
    if !kept.store.agrees(config.store) {
        return Err(StoreError::Missing(format!(
            "{} is of store {}, not {}",
            path.display(),
            kept.store,
            config.store
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let identity = Identity { fs: *b"0123456789abcdef", collection: 7, server: 3 };
        let coalescing = Coalescing::Watermark { low: 2, high: 260 };
        let modes = SyncModes { metadata: MetadataSync::Never, data: DataSync::AtReply, coalescing };
        Kept {
            identity,
            modes,
            segment_bytes: 1 << 20,
            store: StoreId(0x0807_0605_0403_0201),
            has_folders: false,
        }
    }

    #[test]
    fn version_2_is_read_as_it_was_first_written() {
        let mut fixture = b"shoalcol\x02\0\0\0\0\x02\x01\x020123456789abcdef\x07\0\0\0\x03\0\0\0".to_vec();
        fixture.extend_from_slice(&(1_u64 << 20).to_le_bytes());
        fixture.extend_from_slice(b"\x02\0\x04\x01\x01\x02\x03\x04\x05\x06\x07\x08");
        let crc = crc32c::crc32c(&fixture);
        fixture.extend_from_slice(&crc.to_le_bytes());
        assert_eq!(kept().encode(), fixture);
        assert_eq!(Kept::decode(&fixture, Path::new("x")).unwrap(), kept());
    }

    #[test]
    fn a_store_with_stream_folders_is_of_version_3() {
        let kept = Kept { has_folders: true, ..kept() };
        let bytes = kept.encode();
        assert_eq!(bytes[8], 3);
        assert_eq!(Kept::decode(&bytes, Path::new("x")).unwrap(), kept);
    }

    #[test]
    fn a_newer_version_is_refused_with_the_remedy() {
        let mut bytes = kept().encode().to_vec();
        bytes[8] = 4;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        let refused = Kept::decode(&bytes, Path::new("/data/collection")).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "/data/collection is of format version 4, this program knows versions up to 3: use the program that wrote \
             it, or a newer one"
        );
    }

    #[test]
    fn an_older_version_is_refused_with_the_remedy() {
        let mut bytes = kept().encode().to_vec();
        bytes[8] = 1;
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        let refused = Kept::decode(&bytes, Path::new("/data/collection")).unwrap_err().to_string();
        assert!(
            refused
                .contains("/data/collection is of format version 1, this program reads version 2: serve it"),
            "{refused}"
        );
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let bytes = kept().encode().to_vec();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Kept::decode(&flipped, Path::new("x")).is_err(), "bit {bit}");
        }
    }
}
