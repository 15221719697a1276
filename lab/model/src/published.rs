//! A paper's numbers for a machine, next to the numbers that this crate computes for the machine.
//!
//! A machine's file names a *case*: a number of chapter 4 (`chapter4.create.average`), or an operation with a
//! set of techniques (`create.paper`). An operation also needs a number of clients, and may have a number of
//! servers. Numbers that a paper *computed* must come out the same; numbers that it *measured* should be
//! below the bound.

use crate::Servers;
use crate::bound::{Bound, Setting};
use crate::chapter4::NUMBERS;
use crate::machine::Machine;
use crate::operations::{Operation, Set};
use crate::words::many;
use serde::{Deserialize, Serialize};

/// A published number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The case.
    pub case: String,
    /// The number; operations or 10^6 bytes a second.
    pub value: f64,
    /// Where it is printed.
    pub from: String,
    /// Clients that wait at once, for an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Servers that hold metadata and data each; the machine's data servers where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<u32>,
    /// Operations that one sync completed, where that differs from the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_sync: Option<u32>,
    /// Where the paper's own arithmetic has a slip: the result of its words without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<f64>,
    /// The slip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slip: Option<String>,
}

/// The description of a case.
enum Case {
    Chapter4(usize),
    Operation(Operation, Set),
}

/// A published number next to ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The published value.
    pub published: Published,
    /// For people.
    pub title: String,
    /// Its unit.
    pub unit: &'static str,
    /// Our value.
    pub here: f64,
    /// How.
    pub arithmetic: String,
    /// It was computed there too, so it should be the same; else it was measured, and this is its bound.
    pub computed: bool,
}

impl Compared {
    /// A computed number (without its slip) is the same to a unit of its last digit; a measured one is below
    /// its bound.
    pub fn agrees(&self) -> bool {
        let said = self.published.corrected.unwrap_or(self.published.value);
        match self.computed {
            true => (self.here - said).abs() <= self.unit_of_last_digit(),
            false => self.published.value <= self.here,
        }
    }

    fn unit_of_last_digit(&self) -> f64 {
        let text = self.published.value.to_string();
        text.split_once('.').map_or(1.0, |(_, digits)| 10_f64.powi(-(digits.len() as i32)))
    }
}

impl Published {
    fn case(&self) -> Option<Case> {
        if let Some(name) = self.case.strip_prefix("chapter4.") {
            return NUMBERS.iter().position(|number| number.name == name).map(Case::Chapter4);
        }
        let (operation, set) = self.case.split_once('.')?;
        let operation = Operation::all().iter().find(|one| one.word() == operation)?;
        let set = Set::all().iter().find(|one| one.word() == set)?;
        Some(Case::Operation(*operation, *set))
    }

    /// Whether it names its case; else the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        let words = |words: Vec<&str>| words.join(", ");
        match self.case() {
            Some(Case::Chapter4(_)) => Ok(()),
            Some(Case::Operation(..)) if self.clients.is_some_and(|n| n > 0) && self.servers != Some(0) => {
                Ok(())
            }
            Some(Case::Operation(..)) => {
                Err("say with how many `clients` (and `servers`), 1 or more".to_owned())
            }
            None => Err(format!(
                "write chapter4. and one of {}; or OPERATION.SET of {} and {}",
                words(NUMBERS.iter().map(|n| n.name).collect()),
                words(Operation::all().iter().map(|o| o.word()).collect()),
                words(Set::all().iter().map(|s| s.word()).collect()),
            )),
        }
    }
}

/// All published numbers of a machine, next to ours.
pub fn compare(machine: &Machine) -> Vec<Compared> {
    machine.published.iter().filter_map(|published| one(machine, published)).collect()
}

fn one(machine: &Machine, published: &Published) -> Option<Compared> {
    match published.case()? {
        Case::Chapter4(at) => {
            let number = &NUMBERS[at];
            let (here, arithmetic) = number.of(machine);
            let (title, unit) = (number.title.to_owned(), number.unit);
            Some(Compared { published: published.clone(), title, unit, here, arithmetic, computed: true })
        }
        Case::Operation(operation, set) => {
            let (clients, servers) =
                (published.clients?, published.servers.unwrap_or(machine.nodes.data_servers));
            let setting = Setting {
                servers: Servers::Both(servers),
                per_sync: published.per_sync.or(set.per_sync()),
                ..Setting::of(machine, clients)
            };
            let bound = Bound::of(&operation.counts(set, servers), machine, &setting);
            let scale = operation.large_bytes().map_or(1.0, |bytes| bytes / 1e6);
            let binds = bound.terms.first();
            Some(Compared {
                published: published.clone(),
                title: format!(
                    "{}, {}, {}, {}",
                    operation.name(),
                    set.word(),
                    many(clients.into(), "client"),
                    many(servers.into(), "server")
                ),
                unit: if operation.large_bytes().is_some() { "MB/s" } else { "/s" },
                here: bound.per_s() * scale,
                arithmetic: binds.map_or(String::new(), |t| format!("{}: {}", t.limit, t.arithmetic)),
                computed: false,
            })
        }
    }
}

impl Operation {
    /// Its bound on a machine with so many servers that hold metadata and data each.
    pub fn bound(self, set: Set, machine: &Machine, clients: u32, servers: Servers, awake: bool) -> Bound {
        let setting = Setting { servers, awake, per_sync: set.per_sync(), ..Setting::of(machine, clients) };
        Bound::of(&self.counts(set, servers.data()), machine, &setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_the_thesis_computes_comes_out_again() {
        let machine = Machine::named("thesis-cluster").expect("it is there");
        let compared = compare(&machine);
        assert_eq!(compared.len(), machine.published.len());
        for one in &compared {
            assert!(
                one.computed && one.agrees(),
                "{}: {} and not {}",
                one.title,
                one.here,
                one.published.value
            );
        }
    }

    #[test]
    fn what_was_measured_is_below_its_bound() {
        for name in crate::builtin() {
            let machine = Machine::named(name).expect(name);
            for one in compare(&machine).iter().filter(|one| !one.computed) {
                assert!(one.agrees(), "{name}, {}: {} exceeds {}", one.title, one.published.value, one.here);
            }
        }
    }

    #[test]
    fn a_case_that_nobody_knows_is_told_with_those_that_are_known() {
        let published = |case: &str, clients| Published {
            case: case.to_owned(),
            value: 1.0,
            from: String::new(),
            clients,
            servers: None,
            per_sync: None,
            corrected: None,
            slip: None,
        };
        let words = published("create", None).check().expect_err("no set");
        assert!(words.contains("create.average") && words.contains("baseline"), "{words}");
        let words = published("create.paper", None).check().expect_err("no clients");
        assert!(words.contains("`clients`"), "{words}");
        assert!(published("create.paper", Some(4)).check().is_ok());
        assert!(published("chapter4.create.cpu", None).check().is_ok());
    }
}
