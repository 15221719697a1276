//! Creation and removal driven by the client, one message a step (`compound = off`).
//!
//! The steps leave rows that [`crate::stepwise`] finishes when their client is gone.

pub(crate) mod crdirent;
pub(crate) mod createdata;
pub(crate) mod createmeta;
pub(crate) mod discard;
pub(crate) mod laydata;
pub(crate) mod removedata;
pub(crate) mod removemeta;
pub(crate) mod rmdirent;
pub(crate) mod settle;
pub(crate) mod vouchdata;
pub(crate) mod vouchentry;
