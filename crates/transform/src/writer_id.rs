//! The identity of a writer: 128 random bits, so that no two writers use the same log.

use shoal_env::Env;
use std::fmt;

/// The identity of a writer, and of its two logs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriterId(pub [u8; 16]);

impl WriterId {
    /// A new one.
    pub fn draw(env: &Env) -> WriterId {
        let mut id = [0; 16];
        env.random(&mut id);
        WriterId(id)
    }

    /// A new one, whose logs lie in the folder of a number: processes of consecutive ids, and the writers of
    /// one process, go round the folders.
    pub(crate) fn draw_for(env: &Env, number: u32, folders: u32) -> WriterId {
        let WriterId(mut id) = WriterId::draw(env);
        let drawn = u32::from_le_bytes([id[0], id[1], id[2], id[3]]) >> 1;
        let folders = folders.max(1);
        id[..4].copy_from_slice(&(drawn - drawn % folders + number % folders).to_le_bytes());
        WriterId(id)
    }

    /// From 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<WriterId> {
        let mut id = [0; 16];
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(WriterId(id))
    }

    /// The folder of its logs, of so many.
    pub fn folder(self, folders: u32) -> u32 {
        u32::from_le_bytes([self.0[0], self.0[1], self.0[2], self.0[3]]) % folders.max(1)
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_env::real;

    #[test]
    fn writers_of_one_process_go_round_the_folders() {
        real::run("writer ids", |env| async move {
            for number in 0..100 {
                let (one, other) =
                    (WriterId::draw_for(&env, number, 32), WriterId::draw_for(&env, number, 32));
                assert_eq!(one.folder(32), number % 32);
                assert_ne!(one, other);
            }
        });
    }
}
