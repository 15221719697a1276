//! A short hunt on every target, with the allocator that counts.

use shoal_fuzz::hunt::{Until, hunt};
use shoal_fuzz::{Counting, TARGETS, Target, corpus, measured};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn every_decoder_stands_its_corpus_and_some_thousand_mutations_of_it() {
    for target in TARGETS {
        let inputs = corpus::of(target, corpus::home()).unwrap();
        let hunted = hunt(target, &inputs, 1, Until::Runs(2000), |_| ());
        assert!(hunted.broken.is_none(), "{}: {:?}", target.name, hunted.broken);
    }
}

#[test]
fn the_allocator_sees_what_is_held_at_once_and_not_what_was_given_back() {
    let ((), held) = measured(|| {
        drop(vec![0_u8; 1000]);
        drop(vec![0_u8; 5000]);
    });
    assert_eq!(held, 5000);
}

#[test]
fn a_target_that_breaks_is_found_with_the_input_that_broke_it() {
    fn fragile(bytes: &[u8]) {
        assert!(bytes.first() != Some(&0xff), "broken by {}", bytes[0]);
    }
    let target = Target { name: "fragile", run: fragile, seeds: || vec![vec![1, 2, 3]] };
    let inputs = (target.seeds)();
    let first = hunt(&target, &inputs, 1, Until::Runs(100_000), |_| ());
    let again = hunt(&target, &inputs, 1, Until::Runs(100_000), |_| ());
    let (input, words) = first.broken.expect("a byte of 255 is soon in front");
    assert_eq!((input[0], words.as_str()), (0xff, "broken by 255"));
    assert_eq!((first.runs, Some(input)), (again.runs, again.broken.map(|(input, _)| input)));
}

#[test]
fn every_target_is_a_program_of_the_guided_fuzzer_too() {
    let manifest = std::fs::read_to_string(corpus::home().join("libfuzzer/Cargo.toml")).unwrap();
    let programs: Vec<&str> =
        manifest.lines().filter_map(|line| line.strip_prefix("name = ")).skip(1).collect();
    let targets: Vec<String> = TARGETS.iter().map(|target| format!("{:?}", target.name)).collect();
    assert_eq!(programs, targets);
}

#[test]
fn every_target_has_a_corpus_with_each_of_its_right_inputs() {
    for target in TARGETS {
        let dir = corpus::home().join("corpus").join(target.name);
        let kept = std::fs::read_dir(&dir).map(|entries| entries.count()).unwrap_or(0);
        let inputs = corpus::of(target, corpus::home()).unwrap();
        let (seeds, files) = inputs.split_at((target.seeds)().len());
        let missing = seeds.iter().filter(|seed| !files.contains(seed)).count();
        assert!(kept > 0 && missing == 0, "{}: `cargo run -p shoal-fuzz -- --write-corpus`", target.name);
    }
}
