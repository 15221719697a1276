//! Numbers as people read them.

/// A count with its thousands apart: `23,411`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 file`, `2 files`.
pub fn many(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A rate: `8.1k`, `812`, `0`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e9 => format!("{:.1}G", r / 1e9),
        r if r >= 1e6 => format!("{:.1}M", r / 1e6),
        r if r >= 1e3 => format!("{:.1}k", r / 1e3),
        r if r >= 10.0 || r == 0.0 => format!("{r:.0}"),
        r => format!("{r:.1}"),
    }
}

/// A span of microseconds: `812 µs`, `131 ms`, `17 s`.
pub fn span_us(us: f64) -> String {
    match us {
        us if us >= 1e7 => format!("{:.0} s", us / 1e6),
        us if us >= 1e4 => format!("{:.0} ms", us / 1e3),
        us => format!("{us:.0} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(23_411), "23,411");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(rate(8123.0), "8.1k");
    }
}
