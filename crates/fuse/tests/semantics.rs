//! Every test that `docs/reference/SEMANTICS.md` names exists.

use std::fs;
use std::path::{Path, PathBuf};

/// Source files under a folder.
fn sources(folder: &Path, found: &mut String) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push_str(&fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/reference/SEMANTICS.md")).unwrap();
    let mut code = String::new();
    for folder in ["crates", "lab"] {
        sources(&root.join(folder), &mut code);
    }
    let mut named = 0;
    let promises = page.lines().filter(|line| line.starts_with("- ")).count();
    let tests = page.lines().filter_map(|line| line.trim().strip_prefix("test: "));
    assert_eq!(tests.clone().count(), promises, "a promise without a line that names its tests, or two");
    for line in tests {
        for name in line.split(", ").map(|name| name.trim_matches('`')) {
            let there = match name.contains('/') {
                true => root.join(name).exists(),
                false => code.contains(&format!("fn {name}(")),
            };
            assert!(there, "SEMANTICS.md names the test {name}, which is nowhere");
            named += 1;
        }
    }
    assert!(named > 0);
}
