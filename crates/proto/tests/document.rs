//! Holds `docs/reference/WIRE.md` against the code: every operation, answer, action, status and limit stands
//! in it as in the code.

use shoal_proto::codec::Codec;
use shoal_proto::{Status, samples};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/WIRE.md");
    std::fs::read_to_string(path).expect("docs/reference/WIRE.md is part of the source")
}

/// The rows of the table under a heading.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let part = page.split_once(&format!("\n## {heading}\n")).expect("the heading is there").1;
    let part = part.split("\n## ").next().unwrap_or_default();
    part.lines().filter(|line| line.starts_with("| `")).collect()
}

fn expect(rows: &[&str], heads: Vec<String>) {
    for head in &heads {
        assert!(rows.iter().any(|row| row.starts_with(head)), "docs/reference/WIRE.md has no row `{head}`");
    }
    assert_eq!(rows.len(), heads.len(), "docs/reference/WIRE.md has rows of what is no more");
}

/// A name and its tag: the first byte of any message of it.
fn tagged<T: Codec>(all: &[T], name: fn(&T) -> &'static str) -> Vec<String> {
    all.iter().map(|one| format!("| `{}` | {} |", name(one), one.to_bytes()[0])).collect()
}

#[test]
fn every_operation_answer_and_action_stands_in_the_document_with_its_tag() {
    let page = page();
    expect(&rows(&page, "Operations"), tagged(&samples::ops(), shoal_proto::Op::name));
    expect(&rows(&page, "Answers"), tagged(&samples::answers(), shoal_proto::Answer::name));
    expect(&rows(&page, "Transactions"), tagged(&samples::actions(), shoal_proto::Action::name));
}

#[test]
fn what_needs_a_slot_and_what_only_servers_ask_is_said_rightly() {
    let page = page();
    let operations = rows(&page, "Operations");
    for op in samples::ops() {
        let head = format!("| `{}` |", op.name());
        let row = operations.iter().find(|row| row.starts_with(&head)).expect("it stands there");
        let cells: Vec<&str> = row.split(" | ").collect();
        assert_eq!(cells[2] == "server", op.is_peers(), "{row}");
        assert_eq!(cells[2].starts_with("admin"), op.is_management(), "{row}");
        assert_eq!(cells[3], if op.changes() { "yes" } else { "no" }, "{row}");
    }
}

#[test]
fn every_status_stands_in_the_document() {
    let head = |status: &Status| {
        format!("| `{status:?}` | {} | {} | {} |", *status as u16, status.errno(), status.words())
    };
    expect(&rows(&page(), "Statuses"), Status::ALL.iter().map(head).collect());
}

#[test]
fn every_limit_stands_in_the_document_as_the_source_has_it() {
    let source = include_str!("../src/limits.rs");
    let constants = source.lines().filter_map(|line| line.strip_prefix("pub const "));
    let head = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let value = rest.split_once(" = ")?.1.strip_suffix(';')?;
        Some(format!("| `{name}` | {value} |"))
    };
    expect(&rows(&page(), "Limits"), constants.filter_map(head).collect());
}
