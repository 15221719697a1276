//! A line of the audit log: one JSON object, in plain ASCII.
//!
//! ```text
//!   {"time":"2026-11-28T21:25:00.123456Z","server":0,"event":"refused","peer":"tcp:10.0.0.9:40112",…}
//! ```
//! Time, server and event come first. The other fields follow in the order of their names; the long fields
//! `object`, `words` and `claimed_words` come last. A text has at most [`TEXT_BYTES_MAX`] bytes in the line,
//! with its escapes; a text that is cut ends with `...`. A list has at most [`ITEMS_MAX`] entries. A line has
//! at most [`LINE_BYTES_MAX`] bytes: a field without room is left out, and `"cut":true` is added at the end.
//! **All but printable ASCII is escaped.** So no text from a peer can end a line. No such text can move the
//! cursor of a terminal that shows the log.

use serde_json::Value;
use shoal_env::WallTime;
use shoal_proto::ServerId;
use std::fmt::Write as _;
use std::time::Duration;

/// Each line begins so.
pub(super) const BEGIN: &[u8] = b"{\"time\":\"";
/// Bytes of one text as it is written, at most.
const TEXT_BYTES_MAX: usize = 800;
/// Entries of one list, at most.
const ITEMS_MAX: usize = 16;
/// Bytes of one line, at most: fields that have no room are left out, and the line says that it was cut.
pub(super) const LINE_BYTES_MAX: usize = 16 << 10;
/// These fields come last: they are long, and the others name the key, the peer and the result.
const LAST: [&str; 3] = ["object", "words", "claimed_words"];
/// How a line ends that was cut.
const CUT: &str = ",\"cut\":true";
/// The last second that is written with a year of four digits.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The line of an event. Fields that are null are left out.
pub(super) fn line(time: WallTime, server: ServerId, event: &str, fields: Value) -> Vec<u8> {
    let mut line = format!("{{\"time\":\"{}\",\"server\":{server},\"event\":\"{event}\"", moment(time));
    let Value::Object(fields) = fields else { return ended(line, false) };
    let (last, first): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(name, _)| LAST.contains(&name.as_str()));
    let mut is_cut = false;
    for (name, mut value) in first.into_iter().chain(last).filter(|(_, value)| !value.is_null()) {
        bound(&mut value);
        let field = ascii(&format!(",\"{name}\":{value}"));
        if line.len() + field.len() + CUT.len() + "}\n".len() <= LINE_BYTES_MAX {
            line.push_str(&field);
        } else {
            is_cut = true;
        }
    }
    ended(line, is_cut)
}

fn ended(mut line: String, is_cut: bool) -> Vec<u8> {
    line.push_str(if is_cut { CUT } else { "" });
    line.push_str("}\n");
    line.into_bytes()
}

/// RFC 3339, UTC, microseconds. A clock before 1970 or after 9999 is written as the nearer of these.
fn moment(WallTime(nanos): WallTime) -> String {
    let since_1970 = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    let since_1970 = since_1970.min(Duration::from_secs(SECONDS_MAX));
    humantime::format_rfc3339_micros(std::time::UNIX_EPOCH + since_1970).to_string()
}

fn bound(value: &mut Value) {
    match value {
        Value::String(text) => {
            let mut bytes = 0;
            let end = text.char_indices().find(|(_, c)| {
                bytes += written_bytes(*c);
                bytes > TEXT_BYTES_MAX
            });
            if let Some((end, _)) = end {
                text.truncate(end);
                text.push_str("...");
            }
        }
        Value::Array(items) => {
            items.truncate(ITEMS_MAX);
            items.iter_mut().for_each(bound);
        }
        Value::Object(fields) => fields.values_mut().for_each(bound),
        _ => {}
    }
}

/// Bytes of a character of a text in a line.
fn written_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        ' ' => 1,
        _ if c.is_ascii_graphic() => 1,
        _ => 6 * c.len_utf16(),
    }
}

/// JSON with all characters beyond printable ASCII escaped. They stand in its texts only.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii_graphic() || c == ' ' {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(fields: Value) -> String {
        String::from_utf8(line(WallTime(1_700_000_000_000_001_999), ServerId(3), "managed", fields)).unwrap()
    }

    #[test]
    fn a_line_begins_with_time_server_and_event_and_leaves_out_what_is_not_known() {
        assert_eq!(
            text(json!({ "peer": "tcp:10.0.0.9:1", "key": null, "object": { "n": 1 } })),
            "{\"time\":\"2023-11-14T22:13:20.000001Z\",\"server\":3,\"event\":\"managed\",\
             \"peer\":\"tcp:10.0.0.9:1\",\"object\":{\"n\":1}}\n"
        );
        assert!(text(json!({})).as_bytes().starts_with(BEGIN));
        for (nanos, year) in [(i64::MIN, "1970-01-01T00:00:00"), (i64::MAX, "2262-04-11T23:47:16")] {
            assert!(moment(WallTime(nanos)).starts_with(year), "{nanos}");
        }
    }

    #[test]
    fn hostile_texts_stay_one_line_of_ascii_that_means_them() {
        let hostile = "a\"b\\c\n{\"event\":\"managed\"}\r\0\u{1b}[2J\u{7f}\u{9b}2J\u{202e}ä\u{1f980}\u{2028}";
        let line = text(json!({ "words": hostile, "object": { "addresses": [hostile] } }));
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.trim_end().bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{line}");
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["words"], &read["object"]["addresses"][0]), (&json!(hostile), &json!(hostile)));
        assert_eq!(read["event"], "managed");
    }

    #[test]
    fn a_line_that_would_be_too_long_leaves_out_the_object_and_still_says_who_did_it() {
        for c in ["\u{1f980}", "\0", "\"", "a", "\u{7f}"] {
            let long = c.repeat(100_000);
            let text = text(json!({ "words": &long }));
            assert!(text.len() < 100 + TEXT_BYTES_MAX, "{}", text.len());
            assert!(text.len() > TEXT_BYTES_MAX, "{}", text.len());
            let read: Value = serde_json::from_str(&text).unwrap();
            assert!(read["words"].as_str().unwrap().starts_with(c));
            assert!(read["words"].as_str().unwrap().ends_with("..."));
        }
        let long = "\u{1f980}".repeat(100_000);
        let lists = vec![vec!["\u{1f980}".repeat(1_000); 20]; 20];
        let many = text(json!({
            "object": lists, "peer": &long, "key": &long, "role": "admin", "client": "ab", "result": "Ok",
            "operation": "renew", "file_system": &long, "words": "why",
        }));
        assert!(many.len() <= LINE_BYTES_MAX, "{}", many.len());
        let read: Value = serde_json::from_str(&many).unwrap();
        assert_eq!((&read["cut"], &read["object"]), (&json!(true), &Value::Null));
        for (name, value) in [
            ("event", "managed"),
            ("role", "admin"),
            ("client", "ab"),
            ("result", "Ok"),
            ("operation", "renew"),
        ] {
            assert_eq!(read[name], value, "{name}");
        }
        assert!(read["peer"].as_str().is_some_and(|peer| peer.starts_with('\u{1f980}')));
        assert!(read["key"].is_string() && read["file_system"].is_string());
    }
}
