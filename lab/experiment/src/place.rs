//! A place on an experiment's axis: a number, or a word where the axis has names (utilities, phases).

use serde::{Deserialize, Serialize};
use std::fmt;

/// A place on the axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AxisPlace {
    /// A number.
    Number(f64),
    /// A name.
    Word(String),
}

impl AxisPlace {
    /// The number, where it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            AxisPlace::Number(number) => Some(*number),
            AxisPlace::Word(_) => None,
        }
    }

    /// As a value of a parameter.
    pub fn value(&self) -> toml::Value {
        match self {
            AxisPlace::Number(number) if number.fract() == 0.0 => toml::Value::Integer(*number as i64),
            AxisPlace::Number(number) => toml::Value::Float(*number),
            AxisPlace::Word(word) => toml::Value::String(word.clone()),
        }
    }
}

impl fmt::Display for AxisPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AxisPlace::Number(number) => f.pad(&number.to_string()),
            AxisPlace::Word(word) => f.pad(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for (place, words) in [
            (AxisPlace::Number(14.0), "14"),
            (AxisPlace::Number(0.5), "0.5"),
            (AxisPlace::Word("a".into()), "a"),
        ] {
            assert_eq!(place.to_string(), words);
        }
        assert_eq!(AxisPlace::Number(14.0).value(), toml::Value::Integer(14));
    }
}
