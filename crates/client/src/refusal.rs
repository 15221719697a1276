//! Decides for each status whether it is final or the request may be tried again.

use shoal_proto::Status;

/// Whether a server that says this will say it again.
pub(crate) fn is_refusal(status: Status) -> bool {
    matches!(
        status,
        Status::BadKey
            | Status::KeyRevoked
            | Status::BadVersion
            | Status::BadCollection
            | Status::Forbidden
            | Status::Poisoned
            | Status::NoStore
    )
}
