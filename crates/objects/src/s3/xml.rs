//! Texts of an XML document with the elements that they are in.
//!
//! The crate `object_store` reads answers into records in which each element may be missing: so `<Error/>` is
//! an empty listing for it. This reader says which elements are there. It need not refuse each document that
//! is none, as that crate reads the same answer again.

use std::ops::Range;

/// Elements in each other, at most.
const DEPTH_MAX: usize = 16;

/// An element that ended, and has no elements in it.
pub(super) struct Leaf {
    /// The names of the elements that it is in, without name spaces, from the root on, and its own.
    pub(super) names: Vec<String>,
    /// Its text.
    pub(super) text: String,
    /// Where that lies in the document.
    pub(super) at: Range<usize>,
}

/// Read a document: the name of its root, and all elements without elements in them.
///
/// # Errors
/// In words: it is no document.
pub(super) fn read(document: &str) -> Result<(String, Vec<Leaf>), &'static str> {
    let (mut at, mut leaves, mut root) = (0, Vec::new(), None);
    // The open elements: name, whether one was in it, where its text begins.
    let mut open = Vec::<(String, bool, usize)>::new();
    let mut text = String::new();
    while let Some(length) = document[at..].find('<') {
        text.push_str(&plain(&document[at..at + length])?);
        let (begin, rest) = (at + length, &document[at + length..]);
        if let Some(data) = rest.strip_prefix("<![CDATA[") {
            let end = data.find("]]>").ok_or("it ends in a text")?;
            text.push_str(&data[..end]);
            at = begin + 9 + end + 3;
            continue;
        }
        if rest.starts_with("<!--") || rest.starts_with("<?") {
            let close = if rest.starts_with("<?") { "?>" } else { "-->" };
            at = begin + rest.find(close).ok_or("it ends in a comment")? + close.len();
            continue;
        }
        let end = tag_end(rest).ok_or("it ends in a tag")?;
        let tag = &rest[1..end];
        at = begin + end + 1;
        if tag.starts_with('!') {
            return Err("it has a declaration");
        }
        let is_end = tag.starts_with('/');
        if !is_end {
            if root.is_some() && open.is_empty() || open.len() >= DEPTH_MAX {
                return Err("its elements are too many or too deep");
            }
            if let Some((_, has_elements, _)) = open.last_mut() {
                *has_elements = true;
            }
            let name = local(tag.trim_end_matches('/'));
            root.get_or_insert_with(|| name.clone());
            open.push((name, false, at));
            text.clear();
        }
        if is_end || tag.ends_with('/') {
            let until = if is_end { begin } else { at };
            let names = open.iter().map(|(name, ..)| name.clone()).collect();
            let (name, has_elements, from) = open.pop().ok_or("it ends an element that does not begin")?;
            if is_end && local(&tag[1..]) != name {
                return Err("it ends another element than the last");
            }
            if !has_elements {
                leaves.push(Leaf { names, text: std::mem::take(&mut text), at: from..until });
            }
        }
    }
    match root {
        Some(root) if open.is_empty() => Ok((root, leaves)),
        Some(_) => Err("it ends too early"),
        None => Err("it has no element"),
    }
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

/// The name in a tag, without its name space.
fn local(tag: &str) -> String {
    let name = tag.split_ascii_whitespace().next().unwrap_or("");
    name.rsplit(':').next().unwrap_or("").to_owned()
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
