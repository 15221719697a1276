//! Answers to lists, before the crate reads them.
//!
//! **An answer is a page of a listing if it says so**: by its root element, and by `IsTruncated`, with the
//! token of the next page where there is one. Otherwise a store that is none, or one that knows the first
//! version of listings alone, would show an empty directory, and `rmdir` would remove one with files. An
//! error of the store may come with 200, too, and has a code ([`error`]).
//!
//! **A key goes through the crate as hexadecimal digits.** The crate refuses a whole page for one key that is
//! no path of its own (`//`, `.`, `..`, a control character), and takes the `/` of a marker away. Other
//! programs may have put such an object: it comes as it is, and is no name of ours.

use super::xml;

/// Bytes of an answer to a list. A page has 1,000 keys of 1,024 bytes at most, of which each may take six.
pub(super) const PAGE_BYTES_MAX: usize = 16 << 20;

const ROOT: &str = "ListBucketResult";

/// The code of an error that a store says in an answer of 200.
pub(super) fn error(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok().filter(|text| xml::root(text) == Ok("Error"))?;
    let mut code = None;
    xml::read(text, |leaf| {
        if leaf.names == ["Code"] {
            code = Some(leaf.text.trim().to_owned());
        }
    })
    .ok()?;
    code
}

/// A page as the crate is to read it.
///
/// # Errors
/// In words: the answer is no page.
pub(super) fn checked(body: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(body).map_err(|_| wrong("it is no text"))?;
    // It may be long, and need not be a document to its end.
    if xml::root(text).map_err(wrong)? != ROOT {
        return Err(wrong("another element is its root"));
    }
    let (mut is_truncated, mut has_token, mut token) = (None, false, 0..0);
    let (mut page, mut done) = (String::with_capacity(text.len()), 0);
    xml::read(text, |leaf| match leaf.names {
        ["IsTruncated"] => is_truncated = leaf.text.trim().parse::<bool>().ok(),
        ["NextContinuationToken"] => {
            has_token = !leaf.text.trim().is_empty();
            page.push_str(&text[done..leaf.element.start]);
            let begin = page.len();
            page.push_str(&text[leaf.element.clone()]);
            (token, done) = (begin..page.len(), leaf.element.end);
        }
        ["Contents", "Key"] => {
            page.push_str(&text[done..leaf.at.start]);
            digits(leaf.text, &mut page);
            done = leaf.at.end;
        }
        _ => {}
    })
    .map_err(wrong)?;
    page.push_str(&text[done..]);
    match is_truncated {
        Some(true) if has_token => {}
        Some(true) => return Err(wrong("it says that there is more, and has no NextContinuationToken")),
        // The crate takes each token for one of a next page, also an empty one.
        Some(false) => page.replace_range(token, ""),
        None => return Err(wrong("it does not say whether there is more (IsTruncated)")),
    }
    Ok(page)
}

/// A key in hexadecimal digits.
fn digits(key: &str, page: &mut String) {
    for byte in key.bytes() {
        page.extend([byte >> 4, byte & 15].map(|half| char::from_digit(half.into(), 16).unwrap_or('0')));
    }
}

fn wrong(words: &str) -> String {
    format!(
        "the answer is no whole {ROOT} of the second version of listings: {words}; use a store with \
         ListObjectsV2, and set AWS_ENDPOINT_URL to its address"
    )
}

/// The key in such digits.
pub(super) fn key(digits: &str) -> Option<String> {
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}
