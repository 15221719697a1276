//! Finds the subfiles that a forked file lacks. (A forked file consists of subfiles on different servers.)
//!
//! A forked file has a fixed number of subfiles, `0`, `1`, …, and each is an entry of it. Yet a subfile can
//! be lost: with a server's store, or when a program removes the empty subfiles of a file one by one. The
//! commands that show or copy a forked file report its missing subfiles. Reads alone would not show them,
//! because reads of the other subfiles succeed as always. `shoal fsck` names such files, and makes a subfile
//! again if it is sure to have been empty.

use anyhow::Result;
use shoal_client::Client;
use shoal_proto::{Attr, Dist, Kind};
use std::collections::BTreeSet;

/// Numbers that are shown, at most.
const SHOWN_MAX: usize = 8;

/// The number of subfiles that a forked file has by its layout; nothing for another object.
pub fn count(attr: &Attr) -> Option<u16> {
    match attr.template.dist {
        Dist::Forked { subfiles } if attr.kind == Kind::Directory => Some(subfiles),
        _ => None,
    }
}

/// The numbers below `count` that are no name of an entry.
pub fn missing_among<'a>(count: u16, names: impl IntoIterator<Item = &'a [u8]>) -> Vec<u16> {
    let names: BTreeSet<&[u8]> = names.into_iter().collect();
    (0..count).filter(|number| !names.contains(number.to_string().as_bytes())).collect()
}

/// The subfiles that an object lacks: none, if it is no forked file. Lists the file's directory.
///
/// # Errors
/// Those of the listing.
pub async fn missing(client: &Client, attr: &Attr) -> Result<Vec<u16>> {
    let Some(count) = count(attr) else { return Ok(Vec::new()) };
    let (mut listing, mut names) = (client.opendir(attr.handle), Vec::new());
    while let Some(entry) = listing.next(false).await? {
        names.push(entry.name);
    }
    Ok(missing_among(count, names.iter().map(|name| name.as_bytes())))
}

/// The missing subfiles in words; nothing, if all are there.
pub fn words(missing: &[u16]) -> Option<String> {
    let shown: Vec<String> = missing.iter().take(SHOWN_MAX).map(u16::to_string).collect();
    let shown = shown.join(", ");
    match missing.len() {
        0 => None,
        1 => Some(format!("subfile {shown} is missing")),
        all if all > SHOWN_MAX => Some(format!("subfiles {shown} and {} more are missing", all - SHOWN_MAX)),
        _ => Some(format!("subfiles {shown} are missing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_that_is_no_name_is_missing_and_a_name_of_another_form_is_none() {
        let names: [&[u8]; 4] = [b"0", b"02", b"3", b"x"];
        assert_eq!(missing_among(5, names), [1, 2, 4]);
        assert!(missing_among(1, names).is_empty());
    }

    #[test]
    fn words_count_the_missing_subfiles_and_name_the_first_ones() {
        let of = |all: std::ops::Range<u16>| words(&all.collect::<Vec<_>>());
        assert_eq!(of(0..0), None);
        assert_eq!(of(7..8).unwrap(), "subfile 7 is missing");
        assert_eq!(of(1..3).unwrap(), "subfiles 1, 2 are missing");
        assert_eq!(of(0..512).unwrap(), "subfiles 0, 1, 2, 3, 4, 5, 6, 7 and 504 more are missing");
    }
}
