//! Texts of an XML document with the elements that they are in.
//!
//! The crate `object_store` reads answers into records in which each element may be missing: so `<Error/>` is
//! an empty listing for it. This reader says which elements are there. It need not refuse each document that
//! is none, as that crate reads the same answer again.

use std::ops::Range;

/// Elements in each other, at most.
const DEPTH_MAX: usize = 16;

/// An element that ended, and has no elements in it.
pub(super) struct Leaf<'a> {
    /// The names of the elements that it is in, without name spaces, and its own. The root's is left out.
    pub(super) names: &'a [&'a str],
    /// Its text.
    pub(super) text: &'a str,
    /// Where that lies in the document.
    pub(super) at: Range<usize>,
    /// Where the element lies, with its tags.
    pub(super) element: Range<usize>,
}

/// The name of a document's root, which is read no further than its first tag.
///
/// # Errors
/// In words: it is no document.
pub(super) fn root(document: &str) -> Result<&str, &'static str> {
    let (mut at, mut text) = (0, String::new());
    while let Some(length) = document[at..].find('<') {
        let rest = &document[at + length..];
        match no_tag(rest, &mut text)? {
            Some(skipped) => at += length + skipped,
            None => return tag_end(rest).map(|end| name(&rest[1..end])).ok_or("it ends in a tag"),
        }
    }
    Err("it has no element")
}

/// Read a document: each element without elements in it.
///
/// # Errors
/// In words: it is no document.
pub(super) fn read(document: &str, mut leaf: impl FnMut(Leaf<'_>)) -> Result<(), &'static str> {
    let (mut at, mut text, mut has_root) = (0, String::new(), false);
    // The open elements: their names, and whether one was in it, where it begins, and where its text does.
    let (mut names, mut open) = (Vec::<&str>::new(), Vec::<(bool, usize, usize)>::new());
    while let Some(length) = document[at..].find('<') {
        text.push_str(&plain(&document[at..at + length])?);
        let (begin, rest) = (at + length, &document[at + length..]);
        if let Some(skipped) = no_tag(rest, &mut text)? {
            at = begin + skipped;
            continue;
        }
        let end = tag_end(rest).ok_or("it ends in a tag")?;
        let tag = &rest[1..end];
        at = begin + end + 1;
        let is_end = tag.starts_with('/');
        if !is_end {
            if (has_root && open.is_empty()) || open.len() >= DEPTH_MAX {
                return Err("its elements are too many or too deep");
            }
            if let Some((has_elements, ..)) = open.last_mut() {
                *has_elements = true;
            }
            has_root = true;
            names.push(name(tag));
            open.push((false, begin, at));
            text.clear();
        }
        if is_end || tag.ends_with('/') {
            let until = if is_end { begin } else { at };
            let (has_elements, from_tag, from) =
                open.pop().ok_or("it ends an element that does not begin")?;
            if is_end && names.last() != Some(&local(&tag[1..])) {
                return Err("it ends another element than the last");
            }
            if !has_elements {
                leaf(Leaf { names: &names[1..], text: &text, at: from..until, element: from_tag..at });
                text.clear();
            }
            names.pop();
        }
    }
    match has_root {
        true if open.is_empty() => Ok(()),
        true => Err("it ends too early"),
        false => Err("it has no element"),
    }
}

/// The bytes of what begins here, if that is no tag. A text in it is added.
fn no_tag(rest: &str, text: &mut String) -> Result<Option<usize>, &'static str> {
    const DATA: &str = "<![CDATA[";
    if let Some(data) = rest.strip_prefix(DATA) {
        let end = data.find("]]>").ok_or("it ends in a text")?;
        text.push_str(&data[..end]);
        return Ok(Some(DATA.len() + end + 3));
    }
    let close = match rest {
        _ if rest.starts_with("<!--") => "-->",
        _ if rest.starts_with("<?") => "?>",
        _ if rest.starts_with("<!") => return Err("it has a declaration"),
        _ => return Ok(None),
    };
    Ok(Some(rest.find(close).ok_or("it ends in a comment")? + close.len()))
}

/// Where a tag's `>` is.
fn tag_end(rest: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in rest.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '>' => return Some(at),
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None => {}
        }
    }
    None
}

/// The name in the tag with which an element begins.
fn name(tag: &str) -> &str {
    local(tag.trim_end_matches('/'))
}

/// The name in a tag, without its name space.
fn local(tag: &str) -> &str {
    let name = tag.split_ascii_whitespace().next().unwrap_or("");
    name.rsplit(':').next().unwrap_or("")
}

/// A text without references to characters.
fn plain(text: &str) -> Result<String, &'static str> {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('&') {
        let (name, left) = after.split_once(';').ok_or("it has a `&` without a name")?;
        plain.push_str(before);
        plain.push(character(name).ok_or("it has a character that is none")?);
        rest = left;
    }
    plain.push_str(rest);
    Ok(plain)
}

fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}
