//! How a composed directory is opened: the words of its options, and the choice of the block size.

use super::Composed;
use super::format::{BLOCK_MAX, BLOCK_MIN, FILES_MAX, Settings};
use shoal_env::Env;
use shoal_proto::{Dist, Handle, Status};
use shoal_vfs::{AnyVfs, Connect, Error, Result, Vfs};

/// Bytes of a block, where the file system below does not say its stripe.
const BLOCK_USUAL: u32 = 1 << 20;

/// A user's wishes for a composed directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wishes {
    /// Bytes of a block; `None`: as it was made, or what is found.
    pub block: Option<u32>,
    /// Physical files; `None`: as it was made, or one.
    pub files: Option<u16>,
    /// Keep records in this process until their block is full.
    pub buffers_blocks: bool,
    /// No other process makes the same names at the same time.
    pub own_names: bool,
    /// Each write is in the physical file when it returns, and an open writes the merged directory: for
    /// processes that end without closing anything.
    pub publishes_writes: bool,
    /// Change nothing.
    pub read_only: bool,
}

impl Wishes {
    /// From words as `block=4M,files=2,buffer=block,names=own`.
    ///
    /// # Errors
    /// The word that is none, and what may stand there.
    pub fn parse(words: &str) -> std::result::Result<Wishes, String> {
        let mut wishes = Wishes::default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let refused = |may: &str| format!("`{word}`: {may}");
            match key {
                "block" => {
                    let size = size_of(value)
                        .filter(|size| size.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(size));
                    wishes.block =
                        Some(size.ok_or_else(|| refused("a block is a power of two, 16K to 64M"))?);
                }
                "files" => {
                    let count = value.parse().ok().filter(|count| (1..=FILES_MAX).contains(count));
                    wishes.files = Some(count.ok_or_else(|| refused("physical files are 1 to 1024"))?);
                }
                "buffer" => {
                    wishes.buffers_blocks = match value {
                        "block" => true,
                        "close" => false,
                        _ => return Err(refused("the buffer is `close` or `block`")),
                    }
                }
                "names" => {
                    wishes.own_names = match value {
                        "own" => true,
                        "shared" => false,
                        _ => return Err(refused("names are `shared` or `own`")),
                    }
                }
                _ => return Err(refused("the keys are block, files, buffer and names")),
            }
        }
        Ok(wishes)
    }

    /// Whether a directory is as it is wished.
    pub(super) fn agree_with(&self, settings: &Settings) -> Result<()> {
        let refused = |what: &str, is: u64, wished: u64| {
            let words = format!(
                "it was made with {what}={is}, and not with {wished}: leave `{what}` out, or begin with an empty directory"
            );
            Err(Error::new(Status::Invalid, "open").because(words))
        };
        match (self.block, self.files) {
            (Some(block), _) if block != settings.block => {
                refused("block", settings.block.into(), block.into())
            }
            (_, Some(files)) if files != settings.files => {
                refused("files", settings.files.into(), files.into())
            }
            _ => Ok(()),
        }
    }
}

fn size_of(text: &str) -> Option<u32> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    digits.parse::<u32>().ok()?.checked_mul(1 << shift)
}

/// The block that suits the file system below: its stripe, where it says one, else 1 MiB.
pub(super) async fn block_below<B: Vfs>(over: &B) -> u32 {
    if let Ok(Dist::Composed { strip }) = over.getattr(Handle::ROOT).await.map(|attr| attr.template.dist) {
        let strip = u32::try_from(strip).ok();
        let suits = |strip: &u32| strip.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(strip);
        return strip.filter(suits).unwrap_or(BLOCK_USUAL);
    }
    match over.getxattr(Handle::ROOT, b"lustre.lov").await {
        Ok(bytes) => stripe_of(&bytes).unwrap_or(BLOCK_USUAL),
        Err(_) => BLOCK_USUAL,
    }
}

/// The stripe size in Lustre's `lustre.lov`: magic u32 (`LOV_MAGIC_V1` or `V3`), pattern u32, object id 16
/// bytes, stripe size u32, all little endian.
pub(super) fn stripe_of(bytes: &[u8]) -> Option<u32> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let is_known = matches!(word(0)?, 0x0BD1_0BD0 | 0x0BD3_0BD0);
    let stripe = word(24).filter(|_| is_known)?;
    (stripe.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&stripe)).then_some(stripe)
}

/// How composed directories over a file system are reached.
#[derive(Clone, Debug)]
pub struct ComposedOptions<C> {
    /// The file system below.
    pub over: C,
    /// The user's wishes.
    pub wishes: Wishes,
}

impl<C: Connect> Connect for ComposedOptions<C> {
    type Vfs = Composed<AnyVfs>;

    fn under_a_kernel(&mut self, read_only: bool) {
        self.wishes.read_only |= read_only;
        self.over.under_a_kernel(read_only);
    }

    async fn connect(self, env: Env) -> Result<Composed<AnyVfs>> {
        let over = self.over.connect(env.clone()).await?;
        Composed::open(env, AnyVfs::of(over), &self.wishes).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_wishes_and_wrong_words_say_what_may_stand_there() {
        let wishes = Wishes::parse("block=4M,files=2,buffer=block,names=own").unwrap();
        assert_eq!((wishes.block, wishes.files), (Some(4 << 20), Some(2)));
        assert!(wishes.buffers_blocks && wishes.own_names);
        assert_eq!(Wishes::parse(""), Ok(Wishes::default()));
        for wrong in
            ["block=3M", "block=1", "files=0", "buffer=all", "names=mine", "stripes=4", "block=8192M"]
        {
            assert!(Wishes::parse(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_stripe_is_found_in_recorded_bytes_of_lustre() {
        // A file of one stripe of 1 MiB on object storage target 3, as `getfattr -n lustre.lov -e hex` prints
        // it.
        let mut recorded = Vec::new();
        for word in [0x0BD1_0BD0u32, 1, 0x1a2b, 0, 0, 0, 1 << 20, 1, 0x77, 0, 0, 0, 0, 3] {
            recorded.extend(word.to_le_bytes());
        }
        assert_eq!(stripe_of(&recorded), Some(1 << 20));
        recorded[0] = 0;
        assert_eq!(stripe_of(&recorded), None);
        assert_eq!(stripe_of(&[]), None);
    }
}
