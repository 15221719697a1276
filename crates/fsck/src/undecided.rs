//! Transactions whose coordinator's store was *given up* (declared lost by an operator). A repair ends
//! them; a check without repair reports them.
//!
//! Such a transaction is ended **on all its participants alike**: it is committed if one participant has
//! committed it or all participants have it prepared; otherwise it is aborted. If the row of a transaction
//! on any server is damaged, none is ended, because this row may decide. The rows give the same decision at
//! every moment of a repair, so the next repair completes an interrupted repair. If a repair has committed
//! the transaction on one of several participants, that participant remembers it. If it has aborted the
//! transaction there, that participant no longer has it prepared.
//!
//! These transactions are ended before anything else is repaired: they hold locks for which other repairs
//! would wait. A new look then shows their changes. A repair also aborts a transaction whose coordinator is
//! no server of the file system at all. It leaves all other undecided transactions to their coordinators.

#[cfg(test)]
mod tests;

use super::Problem;
use super::mend::{Offer, Site, Step};
use super::tables::{Tables, Undecided};
use shoal_proto::{Decision, ServerId, TxId};
use std::collections::BTreeSet;

/// Whether a problem is a transaction of a store that was given up.
pub fn is_of_lost_store(problem: &Problem, site: &Site) -> bool {
    matches!(problem, Problem::Undecided { tx, .. } if site.is_of_lost_store(*tx))
}

/// How a transaction is ended on one of its participants.
pub fn end(server: ServerId, tx: TxId, tables: &Tables, site: &Site) -> Offer {
    let finish = |decision, note: &'static str| {
        Offer::Mend(vec![Step::Finish { server, tx, decision }], Some(note.into()))
    };
    if site.is_of_lost_store(tx) {
        if tables.has_damaged_transactions() {
            return Offer::Leave(
                "its coordinator is lost, and a transaction's row of another server is damaged, which may say that this one was \
                 carried out: put that row right from a copy first",
            );
        }
        let (decision, note) = decision(tx, tables);
        return finish(decision, note);
    }
    if site.servers.contains(&tx.coordinator()) {
        return Offer::Leave(
            "its coordinator alone knows whether it was committed, and is asked every two seconds: look at that server's log, and \
             start it again",
        );
    }
    finish(Decision::Abort, "there is no such coordinator, so it was never committed: aborted")
}

/// The effect that a repair would have on a transaction, in words; `None`: the problem is another one.
pub fn foreseen(problem: &Problem, tables: &Tables, site: &Site) -> Option<String> {
    let Problem::Undecided { server, tx, .. } = problem else { return None };
    let option = if site.is_of_lost_store(*tx) { "--repair --lost-stores" } else { "--repair" };
    Some(match end(*server, *tx, tables, site) {
        Offer::Mend(steps, note) => {
            let commits = |step: &Step| matches!(step, Step::Finish { decision: Decision::Commit, .. });
            let deed = if steps.iter().any(commits) { "carries it out" } else { "aborts it" };
            format!("{option} {deed}: {}", note.unwrap_or_default())
        }
        Offer::Leave(words) => format!("{option} leaves it: {words}"),
        Offer::Later => format!("{option} ends it later"),
    })
}

/// How a transaction whose coordinator's store was given up is ended, and why: as any of its participants
/// has ended it; else it is committed if all of them have it prepared.
pub fn decision(tx: TxId, tables: &Tables) -> (Decision, &'static str) {
    if tables.ended.iter().any(|(_, ended)| *ended == tx) {
        let why = "its coordinator is lost, and another server has carried it out: carried out here too";
        return (Decision::Commit, why);
    }
    let rows: Vec<&Undecided> =
        tables.prepared.iter().filter(|((_, prepared), _)| *prepared == tx).map(|(_, row)| row).collect();
    let all: BTreeSet<ServerId> = rows.iter().flat_map(|row| row.participants.iter().copied()).collect();
    let has = |server: &ServerId| {
        tables.prepared.get(&(*server, tx)).is_some_and(|row| !row.participants.is_empty())
    };
    if !all.is_empty() && all.iter().all(has) && rows.iter().all(|row| !row.participants.is_empty()) {
        let why = "its coordinator is lost, and all its other servers have it prepared: carried out";
        return (Decision::Commit, why);
    }
    (Decision::Abort, "its coordinator is lost before all its other servers had it prepared: aborted")
}
