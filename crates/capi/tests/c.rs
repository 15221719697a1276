//! The library from C: its calls, its header, its symbols and the sizes of its types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

// The dependency has cargo build the library before these tests run.
use shoal as _;

const HEADER: &str = include_str!("../include/shoal.h");
const GALLEY: &str = include_str!("../include/gfs.h");
/// The types that programs hold: a change needs another number in `build.rs`.
const SIZES: &[(&str, usize)] = &[
    ("shoal_fs", 8),
    ("shoal_file", 8),
    ("shoal_dir", 8),
    ("shoal_pattern", 8),
    ("shoal_time", 16),
    ("shoal_stat_t", 104),
    ("shoal_entry", 272),
    ("shoal_level", 16),
    ("shoal_region", 16),
    ("shoal_branch", 56),
    ("gfs_handle", 8),
];
/// Those that have no name of their own.
const STRUCTS: &[(&str, usize)] = &[("gfs_stride", 24), ("gfs_batch", 64), ("gfs_list", 24)];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    [deps.clone(), deps.join("..")]
        .map(|dir| dir.join("libshoal.so"))
        .into_iter()
        .find(|at| at.exists())
        .unwrap()
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}{err}", done.status);
    out.into_owned()
}

/// The declared or defined functions: the name, and the number of arguments.
fn functions(text: &str, before: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (at, _) in text.match_indices(before) {
        let rest = &text[at + before.rfind(' ').map_or(0, |space| space + 1)..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some(arguments) = rest[name.len()..].strip_prefix('(') else { continue };
        let arguments = arguments[..arguments.find(')').unwrap()].trim().trim_end_matches(',');
        let is_none = arguments.is_empty() || arguments == "void";
        found.insert(name, if is_none { 0 } else { arguments.split(',').count() });
    }
    found
}

fn declared() -> BTreeMap<String, usize> {
    let code = |header: &str| -> String {
        header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect()
    };
    let mut declared = functions(&code(HEADER), "shoal_");
    declared.extend(functions(&code(GALLEY), "gfs_"));
    declared
}

fn compile(home: &Path, compiler: &str, options: &[&str], source: &Path, out: &str) -> PathBuf {
    let (out, library) = (home.join(out), library());
    run(Command::new(compiler)
        .args(options)
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-I"])
        .arg(here().join("include"))
        .arg(source)
        .arg("-o")
        .arg(&out)
        .arg(&library)
        .arg("-pthread"));
    out
}

fn started(program: &Path, home: &Path) -> Command {
    let soname = home.join("libshoal.so.0");
    if !soname.exists() {
        std::os::unix::fs::symlink(library(), &soname).unwrap();
    }
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", home);
    command
}

#[test]
fn the_header_declares_what_the_library_exports_with_as_many_arguments() {
    let mut defined = BTreeMap::new();
    for dir in ["src", "src/gfs"] {
        for file in std::fs::read_dir(here().join(dir)).unwrap() {
            let path = file.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            defined.extend(functions(&text, "extern \"C\" fn shoal_"));
            defined.extend(functions(&text, "extern \"C\" fn gfs_"));
        }
    }
    assert_eq!(declared(), defined);
    assert!(declared().len() > 80, "the rule sees them");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let exported: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let names: Vec<String> = declared().into_keys().collect();
    let mut ours: Vec<&str> = exported
        .iter()
        .copied()
        .filter(|name| name.starts_with("shoal_") || name.starts_with("gfs_"))
        .collect();
    ours.sort_unstable();
    assert_eq!(ours, names);
}

#[test]
fn the_manual_pages_name_every_call() {
    let named = |page: &str, prefix: &str| -> Vec<String> {
        let text = std::fs::read_to_string(here().join("man").join(page)).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix(".B \""));
        lines.flat_map(|line| functions(line, prefix).into_keys()).collect()
    };
    let mut all = [named("libshoal.3", "shoal_"), named("gfs.3", "gfs_")].concat();
    all.sort();
    assert_eq!(all, declared().into_keys().collect::<Vec<_>>());
}

#[test]
fn the_header_compiles_as_c99_and_as_cpp17_and_types_keep_their_sizes() {
    let home = tempfile::tempdir().unwrap();
    let mut source = "#include <gfs.h>\n".to_owned();
    let structs = STRUCTS.iter().map(|(name, size)| (format!("struct {name}"), name, size));
    for (kind, name, size) in SIZES.iter().map(|(name, size)| (name.to_string(), name, size)).chain(structs) {
        source += &format!("typedef char size_of_{name}[sizeof({kind}) == {size} ? 1 : -1];\n");
    }
    source += "int main(void) { return 0; }\n";
    for (compiler, standard, name) in [("cc", "-std=c99", "sizes.c"), ("c++", "-std=c++17", "sizes.cc")] {
        let path = home.path().join(name);
        std::fs::write(&path, &source).unwrap();
        compile(home.path(), compiler, &[standard], &path, "sizes");
    }
    assert_eq!(
        SIZES.len(),
        HEADER.matches("typedef struct").count() + GALLEY.matches("typedef struct").count()
    );
    use shoal::{connect::FileSystemId, files::FileId, gfs, listings, names, patterns};
    let sizes = [
        size_of::<FileSystemId>(),
        size_of::<FileId>(),
        size_of::<listings::ListingId>(),
        size_of::<patterns::PatternId>(),
        size_of::<names::CTime>(),
        size_of::<names::CStat>(),
        size_of::<listings::CEntry>(),
        size_of::<patterns::CLevel>(),
        size_of::<patterns::CRegion>(),
        size_of::<patterns::CBranch>(),
        size_of::<gfs::HandleId>(),
        size_of::<gfs::vectors::CStride>(),
        size_of::<gfs::vectors::CBatch>(),
        size_of::<gfs::vectors::CList>(),
    ];
    assert_eq!(sizes.to_vec(), SIZES.iter().chain(STRUCTS).map(|(_, size)| *size).collect::<Vec<_>>());
}

#[test]
fn every_call_works_and_refuses_from_c_over_a_directory_plain() {
    let home = tempfile::tempdir().unwrap();
    let program = compile(home.path(), "cc", &["-std=gnu99", "-g"], &here().join("tests/calls.c"), "calls");
    let dir = home.path().join("data");
    std::fs::create_dir(&dir).unwrap();
    let said = run(started(&program, home.path()).arg(format!("{}=plain", dir.display())));
    assert_eq!(said, "calls: ok\n");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}
