//! Numbers as people read them.

/// A number with its thousands or millions, in three digits that say something: `6.58`, `481`, `2800`,
/// `41.2 k`, `1.06 M`. All that is printed of rates is written so, by benchmarks and bounds alike.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "no limit".to_owned();
    }
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// Microseconds: `520 µs`, `8.5 ms`.
pub(crate) fn time(us: f64) -> String {
    if us >= 1000.0 { format!("{} ms", plain(us / 1000.0)) } else { format!("{} µs", plain(us)) }
}

/// Times: `10 ×`; a fraction keeps the significant digits.
pub(crate) fn plain(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        v if v < 0.01 => 5,
        v if v < 1.0 => 3,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// `1 message`, `0.5 messages`.
pub(crate) fn many(value: f64, what: &str) -> String {
    format!("{} {what}{}", plain(value), if value == 1.0 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_what_says_something() {
        assert_eq!(
            [0.5, 6.5755, 337.0, 480.77, 2800.0, 9_870.4, 41_234.0, 1.06e6].map(short),
            ["0.50", "6.58", "337", "481", "2800", "9870", "41.2 k", "1.06 M"]
        );
        assert_eq!(short(f64::INFINITY), "no limit");
        assert_eq!([520.0, 8500.0, 1.25].map(time), ["520 µs", "8.5 ms", "1.25 µs"]);
        assert_eq!([10.0, 0.004, 0.5, 0.0].map(plain), ["10", "0.004", "0.5", "0"]);
        assert_eq!([many(1.0, "sync"), many(0.5, "sync")], ["1 sync", "0.5 syncs"]);
    }
}
