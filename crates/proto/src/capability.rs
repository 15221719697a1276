//! Capabilities: signed rights to the data of one file. Data servers check the capability of every access
//! (decision 0025).
//!
//! A metadata server that opens or creates a file for a client gives the client a capability: the object, the
//! rights, the expiry, and a keyed hash (BLAKE3) over these and the collection. The key of the hash is that
//! of the servers, or is derived from it ([`Keys::signing`](crate::Keys::signing)). A data server verifies a
//! capability without a message to another server: every datafile knows the metafile that owns it.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::wire::wire_struct;
use crate::{CollectionId, Handle, Time};

bitflags::bitflags! {
    /// The rights of a capability.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct Rights: u8 {
        /// Read data.
        const READ = 1;
        /// Write data, append, truncate, allocate.
        const WRITE = 2;
    }
}

impl Codec for Rights {
    fn encode(&self, w: &mut Writer) {
        w.put_u8(self.bits());
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Rights::from_bits(r.get_u8()?).ok_or(DecodeError::Invalid("rights"))
    }
}

wire_struct! {
    /// Permission to access one file's data.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Capability {
        /// The metafile.
        pub object: Handle,
        /// The rights.
        pub rights: Rights,
        /// Expiry, by the servers' wall clock.
        pub expires_at: Time,
        /// The keyed hash.
        pub mac: [u8; 16],
    }
}

/// The file system's secret: 32 bytes, in a file of mode 0600.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

impl SecretKey {
    /// A key from its bytes.
    pub const fn new(bytes: [u8; 32]) -> SecretKey {
        SecretKey(bytes)
    }

    /// As text, for the key file.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// From the text of a key file.
    ///
    /// # Errors
    /// When it is not 64 hexadecimal digits (white space around them is allowed).
    pub fn from_hex(text: &str) -> Result<SecretKey, &'static str> {
        let text = text.trim();
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err("a key is 64 hexadecimal digits");
        }
        let mut key = [0; 32];
        for (i, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| "not hexadecimal")?;
        }
        Ok(SecretKey(key))
    }

    /// A keyed hash of `parts` (each framed by its length). The purpose keeps hashes for different uses
    /// apart.
    pub fn mac(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in std::iter::once(purpose.as_bytes()).chain(parts.iter().copied()) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
    }

    /// The beginning of a hash: it shows whether two keys are equal, and nothing else of them.
    pub fn fingerprint(&self) -> String {
        self.mac("fingerprint", &[])[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Compare two hashes in constant time.
    pub fn equal(a: &[u8], b: &[u8]) -> bool {
        a.len() == b.len() && a.iter().zip(b).fold(0, |acc, (x, y)| acc | (x ^ y)) == 0
    }
}

impl Capability {
    /// A capability signed with `key`.
    pub fn sign(
        key: &SecretKey,
        collection: CollectionId,
        object: Handle,
        rights: Rights,
        expires_at: Time,
    ) -> Capability {
        let mac = Capability::compute(key, collection, object, rights, expires_at);
        Capability { object, rights, expires_at, mac }
    }

    /// Whether it is genuine, not expired at `now`, of `object`, and includes `rights`.
    pub fn allows(
        &self,
        key: &SecretKey,
        collection: CollectionId,
        object: Handle,
        rights: Rights,
        now: Time,
    ) -> bool {
        self.object == object
            && self.rights.contains(rights)
            && self.expires_at > now
            && SecretKey::equal(
                &self.mac,
                &Capability::compute(key, collection, self.object, self.rights, self.expires_at),
            )
    }

    fn compute(
        key: &SecretKey,
        collection: CollectionId,
        object: Handle,
        rights: Rights,
        expires_at: Time,
    ) -> [u8; 16] {
        let full = key.mac(
            "capability",
            &[
                &collection.0.to_le_bytes(),
                &object.0.to_le_bytes(),
                &[rights.bits()],
                &expires_at.0.to_le_bytes(),
            ],
        );
        let mut mac = [0; 16];
        mac.copy_from_slice(&full[..16]);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_of_another_object_right_key_or_time_is_refused() {
        let (key, other) = (SecretKey::new([1; 32]), SecretKey::new([2; 32]));
        let (fs, file) = (CollectionId(7), Handle(42));
        let cap = Capability::sign(&key, fs, file, Rights::READ, Time(100));
        assert!(cap.allows(&key, fs, file, Rights::READ, Time(99)));
        assert!(!cap.allows(&key, fs, file, Rights::READ, Time(100)));
        assert!(!cap.allows(&key, fs, file, Rights::WRITE, Time(99)));
        assert!(!cap.allows(&key, fs, Handle(43), Rights::READ, Time(99)));
        assert!(!cap.allows(&key, CollectionId(8), file, Rights::READ, Time(99)));
        assert!(!cap.allows(&other, fs, file, Rights::READ, Time(99)));
        let forged = Capability { rights: Rights::READ | Rights::WRITE, ..cap };
        assert!(!forged.allows(&key, fs, file, Rights::WRITE, Time(99)));
    }
}
