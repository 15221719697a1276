//! One operation, one file, one name.
