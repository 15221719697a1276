//! A run of a seed: `cargo run -p shoal-sim --example run -- 7`; of many: `-- 7 50` (seeds 7 to 56); with six
//! faults of each of four kinds (crash, power cut, partition, pause) and more operations: `-- 7 50 rough`.
//! Further words show the operations of a single run whose descriptions contain them: `-- 7 1 c3-8 3.84`.

use shoal_sim::RunConfig;

fn main() {
    let mut words = std::env::args().skip(1);
    let mut number = || words.next().map_or(1, |word| word.parse::<u64>().expect("seeds are numbers"));
    let (first, count) = (number(), number());
    let rough = RunConfig {
        operations: 200,
        faults: "crash=6,power-cut=6,partition=6,pause=6".parse().ok(),
        ..RunConfig::default()
    };
    let mut rest: Vec<String> = words.collect();
    let config = match rest.first().is_some_and(|word| word == "rough") {
        true => {
            rest.remove(0);
            rough
        }
        false => RunConfig::default(),
    };
    let mut bad = 0;
    for seed in first..first + count {
        let began = std::time::Instant::now();
        let report = shoal_sim::run_with(seed, &config);
        println!(
            "seed {seed}: {} operations ({} acknowledged, {} refused, {} unknown), {:?} of virtual time in {:?}, trace {:016x}",
            report.operations,
            report.acknowledged,
            report.refused,
            report.unknown,
            report.took,
            began.elapsed(),
            report.trace_hash
        );
        if count == 1 || !report.violations.is_empty() {
            report.faults.iter().for_each(|fault| println!("  {fault}"));
        }
        if count == 1 {
            println!("  {} registers judged, {} not", report.registers, report.registers_skipped);
            let shown = |line: &&String| rest.iter().any(|word| line.contains(word.as_str()));
            report.history.iter().filter(shown).for_each(|line| println!("  {line}"));
            report.kinds.iter().for_each(|(kind, counts)| println!("  {kind:>12} {counts:?}"));
        }
        report.violations.iter().for_each(|words| println!("  VIOLATION {words}"));
        bad += u64::from(!report.violations.is_empty());
    }
    if bad > 0 {
        println!("{bad} of {count} runs broke a promise");
        std::process::exit(1);
    }
}
