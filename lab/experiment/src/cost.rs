//! A cost of a machine, named by its key in the machine's file. It can be read and scaled.
//!
//! `cpu.client.message_us` is one number. `sync.sync_us` is the number in every `[[sync]]`, and the rate of
//! syncs changes with it.

use shoal_model::Machine;
use toml::{Table, Value};

/// Rates that say the same as a cost, the other way round.
const RATES: &[(&str, &str)] = &[("sync.sync_us", "sync.sync_per_s")];

/// The cost of this key; of several the first.
///
/// # Errors
/// When the machine has no such number.
pub fn of(machine: &Machine, key: &str) -> Result<f64, String> {
    let mut found = None;
    each(&mut table(machine)?, key, &mut |value| {
        found.get_or_insert(value);
        value
    });
    found.ok_or_else(|| unknown(machine, key))
}

/// The machine with that cost so many times as large.
///
/// # Errors
/// When the machine has no such number.
pub fn scaled(machine: &Machine, key: &str, factor: f64) -> Result<Machine, String> {
    of(machine, key)?;
    let mut table = table(machine)?;
    each(&mut table, key, &mut |value| value * factor);
    for (_, rate) in RATES.iter().filter(|(cost, _)| *cost == key) {
        each(&mut table, rate, &mut |value| value / factor);
    }
    table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}

fn unknown(machine: &Machine, key: &str) -> String {
    format!(
        "the machine {} has no number `{key}`: write a key of its file, as cpu.client.message_us",
        machine.name
    )
}

fn table(machine: &Machine) -> Result<Table, String> {
    Table::try_from(machine).map_err(|error| error.to_string())
}

/// Put `change` of each number of this key in its place.
fn each(table: &mut Table, key: &str, change: &mut dyn FnMut(f64) -> f64) {
    let (here, below) = key.split_once('.').map_or((key, None), |(here, below)| (here, Some(below)));
    match (table.get_mut(here), below) {
        (Some(Value::Table(inner)), Some(below)) => each(inner, below, change),
        (Some(Value::Array(all)), Some(below)) => {
            all.iter_mut().filter_map(Value::as_table_mut).for_each(|inner| each(inner, below, change));
        }
        (Some(value @ Value::Float(_)), None) => {
            *value = Value::Float(change(value.as_float().unwrap_or_default()));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_scaled_by_its_key_and_nothing_else_is() {
        let machine = Machine::named("bgp").expect("it is there");
        let key = "cpu.client.message_us";
        let twice = scaled(&machine, key, 2.0).expect("it has it");
        assert_eq!(of(&twice, key).expect("there"), 2.0 * machine.cpu.client.message_us);
        assert_eq!(scaled(&twice, key, 0.5).expect("it has it"), machine);
        let slow = scaled(&machine, "sync.sync_us", 2.0).expect("it has it");
        assert_eq!(slow.sync[0].sync_us, 2.0 * machine.sync[0].sync_us);
        assert_eq!(slow.sync[0].sync_per_s, machine.sync[0].sync_per_s / 2.0);
    }

    #[test]
    fn a_key_that_the_machine_has_not_is_told() {
        let machine = Machine::named("bgp").expect("it is there");
        for key in ["cpu.client", "cpu.client.time_us", "sync", "name", ""] {
            let words = scaled(&machine, key, 2.0).expect_err(key);
            assert!(words.contains(&format!("`{key}`")) && words.contains("bgp"), "{words}");
        }
    }
}
