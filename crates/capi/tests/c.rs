//! The library from C: its calls, its header, its symbols and the sizes of its types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

// The dependency has cargo build the library before these tests run.
use shoal as _;

const HEADER: &str = include_str!("../include/shoal.h");
const GALLEY: &str = include_str!("../include/gfs.h");
/// Functions with their versions, types with their sizes: a change needs another number in `build.rs`.
const ABI: &str = include_str!("../abi.txt");

/// The lines of the list that begin with a word: the rest of each, cut at its last space.
fn listed(word: &str) -> Vec<(&'static str, &'static str)> {
    let lines = ABI.lines().filter_map(|line| line.strip_prefix(word)?.trim().rsplit_once(' '));
    lines.collect()
}

fn sizes() -> Vec<(&'static str, usize)> {
    listed("size").into_iter().map(|(name, size)| (name, size.parse().unwrap())).collect()
}

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
    let soname = home.join("libshoal.so.1");
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
}

/// Each exported function has the version in which it came, and a program asks the library for it.
#[test]
fn the_library_exports_the_listed_functions_with_their_versions_and_no_others() {
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only", "--with-symbol-versions"]).arg(library()));
    let words = symbols.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
    let mut exported: Vec<(&str, &str)> =
        words.filter(|words| words[0] == "T").filter_map(|words| words[1].split_once("@@")).collect();
    exported.sort_unstable();
    assert_eq!(exported, listed("function"));
    // Some linkers list the version's own name too.
    let others = symbols.lines().filter(|line| !line.contains(" A SHOAL_")).count() - exported.len();
    assert_eq!(others, 0, "{symbols}");
    assert_eq!(
        exported.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>(),
        declared().into_keys().collect::<Vec<_>>()
    );
    let dynamic = run(Command::new("readelf").arg("-d").arg(library()));
    assert!(dynamic.contains("soname: [libshoal.so.1]"), "{dynamic}");
    let home = tempfile::tempdir().unwrap();
    let program = compile(home.path(), "cc", &["-std=gnu99"], &here().join("tests/calls.c"), "calls");
    let wanted =
        run(Command::new("nm").args(["-D", "--undefined-only", "--with-symbol-versions"]).arg(&program));
    assert!(wanted.contains("shoal_read_many@SHOAL_1.0"), "{wanted}");
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
    for (number, (kind, size)) in sizes().into_iter().enumerate() {
        source += &format!("typedef char size_{number}[sizeof({kind}) == {size} ? 1 : -1];\n");
    }
    source += "int main(void) { return 0; }\n";
    for (compiler, standard, name) in [("cc", "-std=c99", "sizes.c"), ("c++", "-std=c++17", "sizes.cc")] {
        let path = home.path().join(name);
        std::fs::write(&path, &source).unwrap();
        compile(home.path(), compiler, &[standard], &path, "sizes");
    }
    let headers = [HEADER, GALLEY].map(|header| {
        let named = header.matches("typedef struct").count();
        named + header.lines().filter(|line| line.starts_with("struct ") && line.ends_with('{')).count()
    });
    assert_eq!(sizes().len(), headers.iter().sum::<usize>(), "each type is in the list");
    use shoal::{batches, connect::FileSystemId, files::FileId, gfs, listings, names, patterns};
    let of_rust = [
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
        size_of::<batches::CReadEntry>(),
        size_of::<batches::CCreateEntry>(),
        size_of::<gfs::HandleId>(),
        size_of::<gfs::vectors::CStride>(),
        size_of::<gfs::vectors::CBatch>(),
        size_of::<gfs::vectors::CList>(),
    ];
    assert_eq!(of_rust.to_vec(), sizes().into_iter().map(|(_, size)| size).collect::<Vec<_>>());
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
