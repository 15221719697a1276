//! Sizes as people write them: `64k`, `1M`, `1.5G`, `4096`.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Reads `4096`, `64k`, `64KiB`, `1M`, `2G`, `1T` (powers of 1024); prints the shortest
/// exact form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteSize(pub u64);

const UNITS: [(&str, u32); 4] = [("k", 10), ("m", 20), ("g", 30), ("t", 40)];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let wrong = || {
            format!("`{text}` is not a size: write a number of bytes, or like 64k, 1M, 2G (powers of 1024)")
        };
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
        let (number, unit) = lower.split_at(digits);
        let unit = unit.trim();
        let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(unit);
        let shift = match unit {
            "" => 0,
            unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1,
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(1 << shift).map(ByteSize).ok_or_else(wrong);
        }
        let fraction: f64 = number.parse().map_err(|_| wrong())?;
        let bytes = (fraction * (1_u64 << shift) as f64).round();
        // A value too large for a number of bytes is an error; it is not cut to the largest size.
        if bytes < 2_f64.powi(64) { Ok(ByteSize(bytes as u64)) } else { Err(wrong()) }
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in UNITS.iter().rev() {
            if self.0 != 0 && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{}", self.0 >> shift, unit.to_ascii_uppercase());
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A size for reading at a glance: `211 MiB`, `1.5 GiB`, `512 B`.
pub fn human(bytes: u64) -> String {
    for (unit, shift) in UNITS.iter().rev() {
        let one = 1_u64 << shift;
        if bytes >= one {
            let value = bytes as f64 / one as f64;
            let digits = if value < 10.0 { 1 } else { 0 };
            return format!("{value:.digits$} {}iB", unit.to_ascii_uppercase());
        }
    }
    format!("{bytes} B")
}

impl serde::Serialize for ByteSize {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_string())
    }
}

impl<'de> serde::Deserialize<'de> for ByteSize {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<ByteSize, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(d)? {
            Written::Number(bytes) => Ok(ByteSize(bytes)),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 65536),
            ("1MiB", 1 << 20),
            ("1.5G", 3 << 29),
            ("2 GB", 2 << 30),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
        }
        assert_eq!(ByteSize(65536).to_string(), "64K");
        assert_eq!(ByteSize(65537).to_string(), "65537");
        for wrong in ["", "k", "12q", "-1", "99999999999G"] {
            assert!(wrong.parse::<ByteSize>().is_err(), "{wrong}");
        }
        assert_eq!(human(1536), "1.5 KiB");
    }
}
