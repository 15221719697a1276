//! Checks that memory and queues are bounded, by the servers' own figures when everything is at rest.

use serde_json::Value;
use shoal_client::{Client, Error};
use shoal_proto::ServerId;

/// The places in a server's status, and the amounts that may be there at rest: the judging client and the
/// servers have their sessions, everything else is done.
const AT_REST: &[(&str, u64)] = &[
    ("/sessions", SESSIONS_MAX),
    ("/transactions/deciding", 0),
    ("/transactions/finishing", 0),
    ("/transactions/prepared", 0),
    ("/transactions/locks_held_by", 0),
    // The request for the status itself may be counted.
    ("/queues/requests_parked", 1),
    ("/queues/replies_gated", 1),
];
/// The judge's, and one or two of each peer (one that ended its connection keeps its session for its lease).
const SESSIONS_MAX: u64 = 12;
/// Rows that a table in memory may hold: those of the bound it is frozen at, in the active and two frozen
/// ones, and the rows that one batch may add.
const TABLE_ROWS_MAX: u64 = 3 * 300 + 200;

/// Ask every server.
///
/// # Errors
/// When one does not answer.
pub(crate) async fn judge(client: &Client, servers: u16) -> Result<Vec<String>, Error> {
    let mut wrong = Vec::new();
    for server in (0..servers).map(ServerId) {
        let status = client.status(server).await?;
        wrong.extend(
            judge_status(&status).into_iter().map(|words| format!("server {server} at rest: {words}")),
        );
    }
    Ok(wrong)
}

fn judge_status(status: &str) -> Vec<String> {
    let Ok(status) = serde_json::from_str::<Value>(status) else {
        return vec!["expected its status, found no JSON".to_owned()];
    };
    let mut wrong = Vec::new();
    let bounds = AT_REST.iter().copied().chain([("/store/table_rows", TABLE_ROWS_MAX)]);
    for (place, bound) in bounds {
        match status.pointer(place).and_then(Value::as_u64) {
            Some(count) if count <= bound => {}
            found => wrong.push(format!("{place}: expected at most {bound}, found {found:?}")),
        }
    }
    if status.pointer("/health").and_then(Value::as_str) != Some("well") {
        wrong.push(format!("expected it well, found {:?}", status.pointer("/health")));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_over_is_told() {
        let status = |gated: u64, deciding: u64| {
            serde_json::json!({
                "sessions": 3, "health": "well", "store": { "table_rows": 10 },
                "transactions": { "deciding": deciding, "finishing": 0, "prepared": 0, "locks_held_by": 0 },
                "queues": { "requests_parked": 0, "replies_gated": gated },
            })
            .to_string()
        };
        assert!(judge_status(&status(0, 0)).is_empty());
        assert_eq!(judge_status(&status(2, 0)).len(), 1);
        assert_eq!(judge_status(&status(2, 1)).len(), 2);
        assert_eq!(judge_status("{}").len(), AT_REST.len() + 2);
        assert_eq!(judge_status("").len(), 1);
    }
}
