//! Checks the project's rules: each test reads the sources or pages, and names the lines that break a rule.
//! STYLE.md and ARCHITECTURE.md state the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The crates that each crate may depend on. Arrows run one way; `server` and `client` never see each other.
const ARROWS: &[(&str, &[&str])] = &[
    ("pattern", &[]),
    ("proto", &["pattern"]),
    ("env", &[]),
    ("store", &["pattern", "proto", "env"]),
    ("server", &["pattern", "proto", "env", "store"]),
    ("vfs", &["pattern", "proto", "env"]),
    ("client", &["pattern", "proto", "env", "vfs"]),
    ("transform", &["pattern", "proto", "env", "vfs"]),
    ("objects", &["pattern", "proto", "env", "vfs"]),
    ("galley", &["pattern", "proto", "env", "vfs"]),
    ("fuse", &["proto", "env", "vfs"]),
    ("world", &["pattern", "proto", "env", "vfs", "transform", "objects", "client", "config"]),
    ("preload", &["proto", "env", "vfs", "world"]),
    ("capi", &["pattern", "proto", "env", "vfs", "world", "config", "client", "galley"]),
    ("config", &["proto", "env", "store"]),
    ("fsck", &["config", "proto", "env", "server", "client"]),
    ("model", &[]),
    ("bench", &["env", "model"]),
    ("sim", &["pattern", "proto", "env", "store", "server", "client", "model"]),
    ("experiment", &["proto", "env", "store", "vfs", "client", "model", "bench", "sim"]),
    (
        "shoal",
        &[
            "pattern",
            "proto",
            "env",
            "store",
            "server",
            "vfs",
            "transform",
            "objects",
            "galley",
            "client",
            "fuse",
            "config",
            "world",
            "fsck",
            "model",
            "bench",
            "sim",
            "experiment",
        ],
    ),
];

/// Crates that study the product.
const LAB: &[&str] = &["model", "bench", "sim", "experiment"];

/// Crates of which no other one names a type: a program, and two libraries of C.
const NAMED_BY_NONE: &[&str] = &["shoal", "preload", "capi"];

/// Crates whose code runs in the simulator: all that can differ between two runs enters through `env`.
const SIMULATED: &[&str] = &["pattern", "proto", "store", "server", "vfs", "client", "objects", "galley"];

/// Crates on whose paths nothing may be unwrapped without a reason.
const CAREFUL: &[&str] =
    &["server", "vfs", "client", "store", "objects", "fuse", "world", "preload", "galley", "capi"];

/// Types with an offset and a length that are not a list of regions: one place each.
const PLACES: &[(&str, &str)] = &[
    // Where the value log keeps a stream's bytes.
    ("store/src/stream_row.rs", "Log"),
    // The group of the journal that is being written.
    ("store/src/disk/journal.rs", "Group"),
    // One write of a client under torture, whose bytes follow from a seed.
    ("shoal/src/lab/torture/hand.rs", "Write"),
    // Records of a composed directory's blocks: one range of a file each.
    ("transform/src/composed/format.rs", "Data"),
    ("transform/src/composed/format.rs", "Hole"),
    // A C program's list, which becomes a pattern at once.
    ("capi/src/patterns.rs", "CRegion"),
];

/// Code that touches the world without `env`, with the reason.
const DOORS: &[(&str, &str)] = &[
    // LMDB maps its own file. The simulator takes its atomic commit as given.
    ("store/src/disk/table/lmdb.rs", "std::fs"),
    // The crate `object_store` has sockets and timers of its own: they are in a thread of their own.
    ("objects/src/s3.rs", "std::thread"),
];

/// Crates whose comments are in plain technical English.
const PLAIN: &[&str] = &[
    "pattern",
    "proto",
    "env",
    "store",
    "server",
    "vfs",
    "client",
    "transform",
    "objects",
    "galley",
    "fuse",
    "config",
    "world",
    "preload",
    "capi",
    "fsck",
    "model",
    "bench",
    "sim",
    "experiment",
    "shoal",
];

/// Words that comments do without (also with a capital), and their replacements.
const BANNED: &[(&str, &str)] = &[
    ("What", "the noun that the clause stands for"),
    ("who", "a noun: client, caller, user, server"),
    ("whom", "a noun"),
    ("whoever", "any client that, each caller that"),
    ("whichever", "any"),
    ("his", "its, their"),
    ("him", "it, them"),
    ("nobody", "no client, no caller"),
    ("somebody", "a client, an operator"),
    ("anybody", "any client"),
    ("told", "returned, reported, informed"),
    ("hear", "receive"),
    ("hears", "receives"),
    ("heard", "received"),
    ("behind", "after"),
    ("mends", "repairs"),
    ("mended", "repaired, fixed"),
    ("mending", "repairs"),
    ("accord", "in the background"),
];

/// Operations that one `match` may tell apart outside their registry.
const OPERATIONS_MATCHED_MAX: usize = 5;

struct Source {
    /// The crate, and the path in it.
    name: String,
    text: String,
    /// Only tests use it.
    is_test: bool,
}

impl Source {
    fn krate(&self) -> &str {
        self.name.split('/').next().unwrap_or("")
    }

    fn is(&self, krates: &[&str]) -> bool {
        !self.is_test && krates.contains(&self.krate())
    }

    /// Lines of code, numbered from 1: no comments, nothing from the tests' module on.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut lines = self.text.lines().enumerate().peekable();
        let mut ended = false;
        std::iter::from_fn(move || {
            let (at, line) = lines.next()?;
            let tests_follow = line.trim() == "#[cfg(test)]"
                && lines.peek().is_some_and(|(_, next)| next.starts_with("mod ") && next.ends_with('{'));
            ended |= tests_follow;
            (!ended).then_some((at + 1, line))
        })
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Comments, numbered from 1, each with whether it is in a picture or an example (between fences).
    fn comments(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let mut fenced = false;
        self.text.lines().enumerate().filter_map(move |(at, line)| {
            let whole = line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']));
            let Some(text) = whole else {
                fenced = false;
                return line.split_once("; // ").map(|(_, text)| (at + 1, text, false));
            };
            let is_fence = text.trim_start().starts_with("```");
            fenced ^= is_fence;
            Some((at + 1, text, fenced || is_fence))
        })
    }
}

/// Words of a comment, without code; a path is one word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split('`').step_by(2);
    let between = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    prose.flat_map(move |prose| prose.split(between)).map(|word| word.trim_matches(':'))
}

/// The word to say instead of one that is banned.
fn instead_of(word: &str) -> Option<&'static str> {
    let lower = word.to_lowercase();
    let is = |banned: &str| word == banned || lower == banned;
    BANNED.iter().find(|(banned, _)| is(banned)).map(|(_, instead)| *instead)
}

/// The folder of all: the product's crates lie in `crates`, those that study it in `lab`.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where a crate lies.
fn folder(krate: &str) -> PathBuf {
    root().join(if LAB.contains(&krate) { "lab" } else { "crates" }).join(krate)
}

fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        match path.is_dir() {
            true => files(&path, ending, found),
            false if path.extension().is_some_and(|e| e == ending) => found.push(path),
            false => {}
        }
    }
}

fn sources() -> Vec<Source> {
    let mut texts: Vec<(String, String)> = Vec::new();
    for (krate, _) in ARROWS {
        let mut found = Vec::new();
        for part in ["src", "tests", "examples", "benches"] {
            files(&folder(krate).join(part), "rs", &mut found);
        }
        texts.extend(found.iter().map(|path| {
            let name = path.strip_prefix(folder(krate)).expect("in the crate").to_str().expect("text");
            (format!("{krate}/{name}"), std::fs::read_to_string(path).expect("a readable source"))
        }));
    }
    texts.sort();
    let tests = test_modules(&texts);
    let is_test = |name: &str| {
        !name.contains("/src/")
            || name.contains("/tests/")
            || tests.iter().any(|stem| {
                name.strip_prefix(stem.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
    };
    texts.into_iter().map(|(name, text)| Source { is_test: is_test(&name), name, text }).collect()
}

/// Modules in files of their own that only tests see (`#[cfg(test)] mod name;`), as the files' names without
/// their ending.
fn test_modules(texts: &[(String, String)]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (name, text) in texts {
        let stem = name.trim_end_matches(".rs");
        let stem = ["/mod", "/lib", "/main"].iter().find_map(|own| stem.strip_suffix(own)).unwrap_or(stem);
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if line.trim() == "#[cfg(test)]"
                && let Some(module) =
                    lines.peek().and_then(|next| next.trim().strip_prefix("mod ")?.strip_suffix(';'))
            {
                found.insert(format!("{stem}/{module}"));
            }
        }
    }
    found
}

fn manifest(krate: &str) -> toml::Table {
    let text = std::fs::read_to_string(folder(krate).join("Cargo.toml")).expect("its manifest");
    toml::from_str(&text).expect("TOML")
}

fn dependencies(manifest: &toml::Table, section: &str) -> Vec<String> {
    manifest.get(section).and_then(toml::Value::as_table).map_or(Vec::new(), |t| t.keys().cloned().collect())
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

/// Lines of code of some sources that hold a word, without those that are excepted.
fn holding(
    sources: &[Source],
    pick: impl Fn(&Source) -> bool,
    word: &str,
    except: &[(&str, &str)],
) -> Vec<String> {
    let excepted = |name: &str| except.iter().any(|(file, w)| *file == name && word.starts_with(w));
    let picked = sources.iter().filter(|s| pick(s) && !excepted(&s.name));
    let lines = picked.flat_map(|s| s.code().map(move |(at, line)| (s, at, line)));
    lines
        .filter(|(_, _, line)| line.contains(word))
        .map(|(s, at, line)| format!("{}:{at}: {}", s.name, line.trim()))
        .collect()
}

#[test]
fn arrows_run_one_way() {
    let known: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for room in ["crates", "lab"] {
        for entry in std::fs::read_dir(root().join(room)).unwrap().map(Result::unwrap) {
            let (name, is_crate) = (entry.file_name(), entry.path().join("Cargo.toml").exists());
            let name = name.to_str().unwrap();
            assert!(!is_crate || known.contains_key(name), "say in ARROWS what {room}/{name} may stand on");
            assert!(!is_crate || folder(name) == root().join(room).join(name), "{room}/{name} is not in LAB");
        }
    }
    for (krate, allowed) in ARROWS {
        for dependency in dependencies(&manifest(krate), "dependencies") {
            if let Some(own) = dependency.strip_prefix("shoal-") {
                assert!(allowed.contains(&own), "{krate} must not stand on {own}");
            }
        }
    }
}

/// The product stands without the laboratory: no crate of it depends on one of the laboratory's, but the
/// program by a feature, whose code is in `shoal/src/lab`.
#[test]
fn the_product_never_names_its_laboratory() {
    let product: Vec<&str> = ARROWS.iter().map(|(krate, _)| *krate).filter(|k| !LAB.contains(k)).collect();
    for krate in &product {
        let manifest = manifest(krate);
        let table = manifest.get("dependencies").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        for lab in LAB {
            let is_optional = |d: &toml::Value| d.get("optional").is_some_and(|o| o.as_bool() == Some(true));
            let known = table.get(&format!("shoal-{lab}"));
            assert!(known.is_none_or(is_optional), "{krate} cannot be built without {lab}");
        }
    }
    let is_product = |s: &Source| s.is(&product) && !s.name.starts_with("shoal/src/lab");
    let sources = sources();
    for lab in LAB {
        assert_none(
            "the product names its laboratory",
            &holding(&sources, is_product, &format!("shoal_{lab}"), &[]),
        );
    }
    let named = holding(&sources, is_product, "crate::lab::", &[]);
    let gates: Vec<&String> =
        named.iter().filter(|line| !line.starts_with("shoal/src/commands.rs")).collect();
    assert_eq!(gates.len(), 1, "the command tree alone names its branch of studies: {gates:?}");
}

/// Bugs planted on purpose never get into a program for users: their feature is in no default, and no
/// manifest but by the feature of the same name turns it on.
#[test]
fn no_build_has_mutants_unless_it_is_asked_for() {
    for (krate, _) in ARROWS {
        let text = std::fs::read_to_string(folder(krate).join("Cargo.toml")).unwrap();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
        let found: Vec<&str> = lines.filter(|line| line.contains("mutants")).collect();
        assert!(found.iter().all(|line| line.starts_with("mutants = [")), "{krate}: {found:?}");
        let features = manifest(krate);
        let default = features.get("features").and_then(|f| f.get("default"));
        assert!(default.is_none_or(|d| !d.to_string().contains("mutants")), "{krate} has mutants by default");
    }
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(!workspace.contains("mutants"), "the workspace turns mutants on");
}

/// The crate `object_store` needs a runtime. It has one in a thread of its own, which one module starts; its
/// clients are made in another.
const RUNTIME_OF_ITS_OWN: (&str, [&str; 2]) = ("objects", ["objects/src/s3.rs", "objects/src/s3/clients.rs"]);

#[test]
fn no_runtime_is_known_above_env() {
    for (krate, _) in ARROWS.iter().filter(|(krate, _)| !["env", RUNTIME_OF_ITS_OWN.0].contains(krate)) {
        let manifest = manifest(krate);
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for runtime in ["tokio", "async-std", "smol", "mio"] {
                assert!(
                    !dependencies(&manifest, section).iter().any(|d| d.starts_with(runtime)),
                    "{krate} depends on {runtime}"
                );
            }
        }
    }
    let (krate, files) = RUNTIME_OF_ITS_OWN;
    let sources = sources();
    for runtime in ["tokio", "object_store::", "reqwest"] {
        let except = files.map(|file| (file, runtime));
        assert_none(runtime, &holding(&sources, |source| source.krate() == krate, runtime, &except));
    }
}

#[test]
fn the_world_is_reached_through_env_alone() {
    let sources = sources();
    for word in
        ["std::fs", "std::net", "std::thread", "SystemTime", "Instant::now", "getrandom", "RandomState"]
    {
        let found = holding(&sources, |s| s.is(SIMULATED), word, DOORS);
        assert_none(&format!("`{word}` above env"), &found);
    }
}

#[test]
fn code_in_worlds_keeps_nothing_in_variables_of_a_thread() {
    // A world may be polled by one thread after the other (`env::real::migratable`).
    let known = [
        ("env/src/real/migratable.rs", "thread_local!"),
        // A pool's threads are in no world.
        ("env/src/real/pool.rs", "thread::current"),
        // Simulations stay on their thread.
        ("env/src/mutant.rs", "thread_local!"),
        ("env/src/sim/image.rs", "thread_local!"),
    ];
    let sources = sources();
    let in_worlds = |s: &Source| s.is(SIMULATED) || s.is(&["env", "fuse", "shoal"]);
    for word in ["thread_local!", "thread::current", "ThreadId"] {
        assert_none(word, &holding(&sources, in_worlds, word, &known));
    }
    assert_eq!(holding(&sources, in_worlds, "thread_local!", &[]).len(), 3, "the rule sees them");
}

#[test]
fn nothing_above_env_depends_on_an_order_that_differs_from_run_to_run() {
    let sources = sources();
    let simulated = |s: &Source| s.is(SIMULATED) || s.krate() == "sim";
    assert_none(
        "`select!` draws its order: use `select_biased!`",
        &holding(&sources, simulated, "select!", &[]),
    );
    let mut found = Vec::new();
    for source in sources.iter().filter(|s| simulated(s)) {
        for name in hash_maps(source) {
            for (at, line) in source.code().filter(|(_, line)| iterates(line, &name)) {
                found.push(format!("{}:{at}: {}", source.name, line.trim()));
            }
        }
    }
    assert_none("a HashMap's order differs from run to run: use a BTreeMap where it is gone through", &found);
}

/// Names of the fields and variables that are hash maps or sets; `0` of a tuple.
fn hash_maps(source: &Source) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, line) in source.code().filter(|(_, l)| l.contains("HashMap<") || l.contains("HashSet<")) {
        let before = line.split("Hash").next().unwrap_or("");
        match before.rsplit_once(": ") {
            Some((name, _)) => {
                let name = name.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
                names.insert(name.to_owned());
            }
            None if before.contains("struct ") => {
                names.insert("0".to_owned());
            }
            None => {}
        }
    }
    names
}

fn iterates(line: &str, name: &str) -> bool {
    let walks =
        [".iter()", ".iter_mut()", ".keys()", ".values()", ".values_mut()", ".drain(", ".into_iter()"];
    let line = line.replace(".borrow()", "").replace(".borrow_mut()", "");
    walks
        .iter()
        .any(|walk| line.contains(&format!(".{name}{walk}")) || line.contains(&format!(" {name}{walk}")))
        || [format!("in &self.{name} "), format!("in &{name} "), format!("in self.{name} ")]
            .iter()
            .any(|w| line.contains(w))
}

/// An offset-length list that is no `Pattern` would begin with a type of an offset and a length.
#[test]
fn no_offset_length_type_stands_beside_pattern() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|s| !s.is_test && s.krate() != "pattern") {
        let code: Vec<&str> = source.code().map(|(_, line)| line.trim()).collect();
        for (name, fields) in bodies(&code) {
            let has = |words: &[&str]| words.iter().any(|word| fields.contains(*word));
            let place = PLACES.contains(&(source.name.as_str(), name.as_str()));
            if has(&["offset"]) && has(&["len", "length"]) && !place && !is_message(&source.name) {
                found.push(format!("{}: {name}", source.name));
            }
        }
        let is_list = |l: &&&str| l.contains("Vec<(u64, u64)>") || l.contains("[(u64, u64)]");
        for line in code.iter().filter(|l| !l.starts_with("let ")).filter(is_list) {
            found.push(format!("{}: {line}", source.name));
        }
    }
    assert_none("use Pattern for lists of regions (or say in PLACES what this is)", &found);
}

/// Sources of interfaces. They know names, files and patterns.
const INTERFACES: &[&str] = &[
    "fuse/src/",
    "preload/src/",
    "capi/src/",
    "galley/src/",
    "world/src/",
    "shoal/src/copy",
    "shoal/src/commands/cp",
];
/// Words of code that knows where bytes lie.
const OF_LAYOUTS: &[&str] = &[
    "Layout",
    "Striping",
    "Share",
    "Placement",
    "Distribution",
    "Deal",
    "View",
    "locate",
    "place_of",
    "datafiles",
];

#[test]
fn no_interface_knows_a_layout() {
    let knows = |line: &str| {
        line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| OF_LAYOUTS.contains(&word))
    };
    assert!(knows("let at = striping.place_of(offset);") && !knows("file.fallocate(offset)"));
    let is_interface = |source: &&Source| INTERFACES.iter().any(|place| source.name.starts_with(place));
    let (all, mut found) = (sources(), Vec::new());
    for place in INTERFACES {
        assert!(all.iter().any(|source| source.name.starts_with(place)), "{place} is there");
    }
    for source in all.iter().filter(|source| !source.is_test).filter(is_interface) {
        let lines = source.code().filter(|(_, line)| knows(line));
        found.extend(lines.map(|(at, line)| format!("{}:{at}: {}", source.name, line.trim())));
    }
    assert_none("an interface asks the file system where bytes lie (Vfs)", &found);
}

/// Operations have operands of one offset and one length, once: they are no lists.
fn is_message(name: &str) -> bool {
    matches!(name, "proto/src/op.rs" | "proto/src/tx.rs")
}

/// The text between braces.
struct Body {
    name: String,
    fields: BTreeSet<String>,
    is_enum: bool,
    is_type: bool,
}

/// Names and fields of structs and of enums' variants.
fn bodies(code: &[&str]) -> Vec<(String, BTreeSet<String>)> {
    let mut found: Vec<(String, BTreeSet<String>)> = Vec::new();
    let mut open: Vec<Body> = Vec::new();
    for line in code {
        if line.ends_with('{') {
            let head =
                ["struct ", "enum "].iter().find_map(|word| Some(line.split_once(word)?.1)).unwrap_or(line);
            let name = head.split(['<', '(', '=', '{', ' ']).next().unwrap_or("").to_owned();
            let is_variant = open.last().is_some_and(|body| body.is_enum);
            let (is_enum, is_type) = (line.contains("enum "), line.contains("struct ") || is_variant);
            open.push(Body { name, fields: BTreeSet::new(), is_enum, is_type });
        } else if line.starts_with('}') {
            found.extend(open.pop().filter(|body| body.is_type).map(|body| (body.name, body.fields)));
        } else if let (Some((name, _)), Some(body)) = (line.split_once(": "), open.last_mut()) {
            body.fields.insert(name.rsplit(' ').next().unwrap_or("").to_owned());
        }
    }
    found
}

/// One operation, one file: each file of a room under `ops/` states the facts of the operation of its name,
/// and the registry finds them there. No other file lists operations.
#[test]
fn an_operation_is_its_file_its_wire_form_and_a_line_of_the_registry() {
    const REGISTRY: &str = "server/src/ops.rs";
    let sources = sources();
    let registry = &sources.iter().find(|s| s.name == REGISTRY).expect("the registry").text;
    let (mut operations, mut wrong, mut lists) = (0, Vec::new(), Vec::new());
    for source in sources.iter().filter(|s| !s.is_test) {
        if let Some((room, name)) = room_of(&source.name) {
            operations += 1;
            let variant = name[..1].to_uppercase() + &name[1..];
            // One is a word of the language.
            let module = if name == "yield" { "r#yield" } else { name };
            let line = format!("Op::{variant} {{ .. }} => &{room}::{module}::FACTS,\n");
            let has = |word: &str| source.text.contains(word);
            if !registry.contains(&line)
                || !has(&format!("//! {name}: "))
                || !has("pub const FACTS: OpFacts =")
            {
                wrong.push(source.name.clone());
            }
        }
        // The environment simulates disks by operations of its own.
        if source.krate() != "env" && source.name != REGISTRY && source.name != "proto/src/op.rs" {
            let code: Vec<&str> = source.code().map(|(_, line)| line).collect();
            let most = matched_operations(&code.join("\n"));
            lists.extend((most > OPERATIONS_MATCHED_MAX).then(|| format!("{}: {most}", source.name)));
        }
    }
    assert_none(
        "state `FACTS` there, in a file of the operation's name, and enter it in the registry",
        &wrong,
    );
    assert_eq!(operations, shoal_proto::Op::NAMES.len(), "an operation has a file of its own");
    assert_none("a list of operations: make it a fact of each", &lists);
}

/// Room and name of an operation's file.
fn room_of(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("server/src/ops/")?.strip_suffix(".rs")?.split_once('/')
}

/// The most operations that one `match` of some code tells apart.
fn matched_operations(code: &str) -> usize {
    let words = code.match_indices("match ").chain(code.match_indices("matches!("));
    let counts = words.map(|(at, word)| {
        let open = if word == "match " { '{' } else { '(' };
        let rest = &code[at + word.len() - usize::from(open == '(')..];
        let body = rest.find(open).map_or("", |from| &rest[from..from + enclosed(&rest[from..])]);
        let operations = body.match_indices("Op::").filter(|(at, _)| {
            let is_word = body[..*at].ends_with(|c: char| c.is_alphanumeric());
            let name = body[at + 4..].find(|c: char| !c.is_alphanumeric()).unwrap_or(0);
            let fields = body[at + 4 + name..].trim_start();
            let after = fields.get(enclosed(fields)..).unwrap_or("").trim_start();
            !is_word && fields.starts_with('{') && ["=>", "|", "if "].iter().any(|end| after.starts_with(end))
        });
        operations.count()
    });
    counts.max().unwrap_or(0)
}

/// The length of the text in brackets that some text begins with.
fn enclosed(text: &str) -> usize {
    let mut depth = 0;
    let end = text.char_indices().find(|(_, c)| {
        depth += i32::from("({[".contains(*c)) - i32::from(")}]".contains(*c));
        depth <= 0
    });
    end.map_or(text.len(), |(at, c)| at + c.len_utf8())
}

#[test]
fn nothing_is_left_to_do_and_no_test_is_ignored() {
    let sources = sources();
    let own = |s: &Source| s.name != "shoal/tests/house.rs";
    for word in ["todo!(", "unimplemented!(", "#[ignore", "dbg!("] {
        assert_none(word, &holding(&sources, own, word, &[]));
    }
}

#[test]
fn nothing_is_unwrapped_without_a_reason() {
    let sources = sources();
    for word in [".unwrap()", ".expect(\"\")", "panic!(\"\")"] {
        assert_none(word, &holding(&sources, |s| s.is(CAREFUL), word, &[]));
    }
}

#[test]
fn comments_are_plain_and_fit_a_page() {
    let format: toml::Table =
        toml::from_str(&std::fs::read_to_string(root().join("rustfmt.toml")).unwrap()).unwrap();
    let width = usize::try_from(format["max_width"].as_integer().unwrap()).unwrap();
    let (mut wide, mut unclear) = (Vec::new(), Vec::new());
    for source in sources().iter().filter(|s| PLAIN.contains(&s.krate())) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (at, text, is_fenced) in source.comments() {
            let line = lines[at - 1];
            if !is_fenced && line.trim_start().starts_with("//") && line.chars().count() > width {
                wide.push(format!("{}:{at}", source.name));
            }
            let banned = words(text).filter_map(|word| Some((word, instead_of(word)?)));
            unclear.extend(banned.map(|(word, instead)| {
                format!("{}:{at}: `{word}`: say {instead}: {}", source.name, line.trim())
            }));
        }
    }
    assert_none(&format!("wrap comments at {width} columns"), &wide);
    assert_none("write subject, verb, object, with the field's nouns", &unclear);
}

#[test]
fn every_module_says_what_it_is() {
    let silent: Vec<String> =
        sources().into_iter().filter(|s| !s.text.starts_with("//!")).map(|s| s.name).collect();
    assert_none("begin with `//!`: the idea, the invariants, the picture", &silent);
}

#[test]
fn no_file_has_a_name_that_says_nothing() {
    let vague = |s: &Source| ["manager", "helper", "util"].iter().any(|word| s.name.contains(word));
    let found: Vec<String> = sources().into_iter().filter(vague).map(|s| s.name).collect();
    assert_none("name it by what it does", &found);
}

#[test]
fn modules_have_one_style() {
    // A test's shared module has to be `NAME/mod.rs`, or it would be a test of its own.
    let old = |s: &Source| s.name.contains("/src/") && s.name.ends_with("/mod.rs");
    let found: Vec<String> = sources().into_iter().filter(old).map(|s| s.name).collect();
    assert_none("write `NAME.rs` beside `NAME/`", &found);
}

/// The public types of a source.
fn public_types(source: &Source) -> impl Iterator<Item = &str> {
    source.code().filter_map(|(_, line)| {
        let (kind, rest) = line.trim_start().strip_prefix("pub ")?.split_once(' ')?;
        let is_type = ["struct", "enum", "union", "trait", "type"].contains(&kind);
        is_type.then(|| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
    })
}

/// In a third room a name does not say any more which type is meant. `Result` is each crate's
/// own by custom.
#[test]
fn no_type_name_stands_in_three_crates() {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources().iter().filter(|s| s.name.contains("/src/") && !s.is_test && !s.is(NAMED_BY_NONE))
    {
        for name in public_types(source).filter(|name| *name != "Result") {
            crates.entry(name.to_owned()).or_default().insert(source.krate().to_owned());
        }
    }
    assert!(crates.len() > 500, "the sources are read");
    let found = crates.iter().filter(|(_, all)| all.len() > 2).map(|(name, all)| format!("{name}: {all:?}"));
    assert_none("give each type a name of its own", &found.collect::<Vec<_>>());
}

#[test]
fn the_pages_name_files_that_exist() {
    let root = root();
    let mut found = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        // Histories name files as they were.
        if page.ends_with("BUGS.md") || text.starts_with("# Changelog") {
            continue;
        }
        for name in named_paths(&text) {
            let places = [root.join(name), root.join("crates").join(name), root.join("docs").join(name)];
            if !places.iter().any(|place| place.exists()) {
                found.push(format!("{}: {name}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert_none("name a file that exists", &found);
}

/// Cargo runs a build script in every build that watches a file which is not there.
#[test]
fn the_sources_that_the_build_script_watches_exist() {
    let script = std::fs::read_to_string(folder("shoal").join("build.rs")).unwrap();
    let list = script.split_once("const SOURCES: &[&str] = &[").unwrap().1.split_once(']').unwrap().0;
    let missing =
        list.split(", ").map(|name| name.trim_matches('"')).filter(|name| !root().join(name).exists());
    assert_none("watch sources that exist", &missing.map(str::to_owned).collect::<Vec<_>>());
}

/// Users search the page for a message: each that it explains is one of the program's.
#[test]
fn messages_that_troubleshooting_explains_exist() {
    let page = std::fs::read_to_string(root().join("docs/using/troubleshooting.md")).unwrap();
    let all = sources().into_iter().filter(|s| s.name.contains("/src/"));
    let text: String = all.map(|source| joined(&source.text)).collect();
    let explained: Vec<&str> = explained(&page).collect();
    assert!(explained.len() > 30, "the page is read");
    let is_there = |message: &&str| {
        let fixed = message.split('…').map(str::trim).filter(|part| part.len() > 5);
        fixed.clone().next().is_some() && fixed.clone().all(|part| text.contains(part))
    };
    let missing: Vec<String> = explained.iter().filter(|m| !is_there(m)).map(ToString::to_string).collect();
    assert_none("explain messages of the program", &missing);
}

/// The messages in the first column of the tables whose head is `message`.
fn explained(page: &str) -> impl Iterator<Item = &str> {
    let mut is_within = false;
    let rows = page.lines().filter(move |line| {
        is_within = line.starts_with("| message |") || is_within && line.starts_with('|');
        is_within && line.starts_with("| `")
    });
    rows.filter_map(|row| row.trim_start_matches("| `").split_once('`').map(|(message, _)| message))
}

/// A source with the pieces of each long text joined.
fn joined(source: &str) -> String {
    let mut pieces = source.split("\\\n");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text += piece.trim_start();
    }
    text
}

/// Every page: those beside the README, and all of `docs/`.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let beside = ["README", "ARCHITECTURE", "STYLE", "CONTRIBUTING", "CHANGELOG", "SECURITY"];
    let mut pages: Vec<PathBuf> = beside.iter().map(|name| root.join(format!("{name}.md"))).collect();
    files(&root.join("docs"), "md", &mut pages);
    pages
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut found = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.clone(),
                path => page.parent().unwrap().join(path),
            };
            let has_heading =
                || std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).any(|one| one == anchor));
            let is_page = target.extension().is_some_and(|ending| ending == "md");
            if !target.exists() || !anchor.is_empty() && is_page && !has_heading() {
                found.push(format!("{}: {link}", page.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert_none("link to a file, and a heading in it, that exist", &found);
}

/// Pages that describe the present are in plain technical English, as comments are. Headings and questions
/// may begin with an interrogative.
#[test]
fn pages_are_plain() {
    let is_history = |page: &Path| page.ends_with("BUGS.md") || page.ends_with("STYLE.md");
    let studies = ["docs/lab", "docs/decisions"].map(|folder| root().join(folder));
    let is_study = |page: &Path| studies.iter().any(|folder| page.starts_with(folder));
    let is_held = |page: &PathBuf| !is_history(page) && (!is_study(page) || page.ends_with("PERFORMANCE.md"));
    let mut unclear = Vec::new();
    for page in pages().into_iter().filter(is_held) {
        let text = std::fs::read_to_string(&page).unwrap();
        let prose = outside_fences(&text).filter(|line| !line.starts_with("  test: "));
        let banned = prose
            .flat_map(words)
            .filter(|word| *word != "What")
            .filter_map(|word| Some((word, instead_of(word)?)));
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        unclear.extend(banned.map(|(word, instead)| format!("{name}: `{word}`: say {instead}")));
    }
    assert_none("write subject, verb, object, with the field's nouns", &unclear);
}

/// Programs, tests and scripts name pages by their paths from the root: `docs/FOLDER/NAME.md`.
#[test]
fn pages_that_sources_name_exist() {
    let root = root();
    let mut named = pages();
    for (folder, ending) in
        [("crates", "rs"), ("lab", "rs"), ("lab", "toml"), ("tests", "sh"), ("tests", "rs"), ("fuzz", "rs")]
    {
        files(&root.join(folder), ending, &mut named);
    }
    named.extend(["Makefile", "tests/performance", "tests/run"].map(|name| root.join(name)));
    let mut found = Vec::new();
    for file in named.into_iter().filter(|file| !file.ends_with("house.rs")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let words = text.split(|c: char| !(c.is_alphanumeric() || "./-_".contains(c)));
        for word in words.filter_map(|word| word.find("docs/").map(|at| &word[at..])) {
            let path = word.trim_end_matches(['.', '/']);
            if path.ends_with(".md") && !root.join(path).exists() {
                found.push(format!("{}: {path}", file.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert_none("name a page that exists", &found);
}

/// The links of a page that lead to files of this repository, and to headings; not those in code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    outside_fences(text)
        .flat_map(|line| line.split("](").skip(1))
        .filter_map(|rest| rest.split_once(')').map(|(link, _)| link))
        .filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
}

/// Lines of a page without those between fences.
fn outside_fences(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// The anchors of a page's headings, as forges make them: small letters, no punctuation, hyphens for spaces.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    outside_fences(text).filter(|line| line.starts_with('#')).map(|line| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// Paths of source files and their folders in a page: `crate/src/name.rs`, `lab/crate/src/folder/`.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| "`()[] \n|".contains(c));
    words
        .filter(|word| word.contains("/src/") && !word.contains(['*', '{', '<']) && !word.contains("NAME"))
        .map(|word| word.trim_start_matches("../").trim_end_matches(['.', ',', ':', ';']))
        .map(|word| word.split_once('#').map_or(word, |(path, _)| path))
}

/// Files with invariants that no assert, test or type holds, once for each: to become fewer.
const UNHELD: &[&str] = &[
    // The sizes of replies.
    "server/src/request/executor/compound/reply.rs",
    // The end of a local file after a failed write.
    "store/src/disk/streams/large.rs",
    // Numbers in papers.
    "experiment/src/lib.rs",
];

/// How a comment says that something holds an invariant, before the names.
const HOLDERS: &[&str] =
    &["asserted in ", "test: ", "tests: ", "held by the type: ", "held by the compiler: "];

/// Each invariant in an essay says in its paragraph which assert, test or type holds it. The compiler holds
/// it if the named function is not `async`, or by the named lint of clippy.
#[test]
fn every_invariant_names_the_assert_or_the_test_that_holds_it() {
    let sources = sources();
    let mut fuzz = Vec::new();
    files(&root().join("fuzz"), "rs", &mut fuzz);
    let fuzz: Vec<String> = fuzz.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let texts = sources.iter().map(|source| &source.text).chain(&fuzz);
    let tests: BTreeSet<&str> = texts.flat_map(|text| tests_in(text)).collect();
    let (mut missing, mut unheld, mut claims) = (Vec::new(), BTreeMap::<&str, usize>::new(), 0);
    for source in sources.iter().filter(|source| !source.is_test) {
        for (at, paragraph) in paragraphs(source) {
            for claim in paragraph.split("Invariant").skip(1) {
                claims += 1;
                let found = holders(claim);
                if found.is_empty() {
                    *unheld.entry(&source.name).or_default() += 1;
                }
                let lacks = found.iter().filter(|(way, name)| match *way {
                    "test: " | "tests: " if name.contains('/') => !root().join(name).exists(),
                    "test: " | "tests: " => !tests.contains(name),
                    way => !is_held(&sources, source, way, name),
                });
                missing.extend(lacks.map(|(way, name)| format!("{}:{at}: {way}`{name}`", source.name)));
            }
        }
    }
    assert!(claims > 60, "the rule sees them: {claims}");
    assert_none("name an assert, a test or a type that exists", &missing);
    let mut listed = BTreeMap::<&str, usize>::new();
    UNHELD.iter().for_each(|name| *listed.entry(name).or_default() += 1);
    assert_eq!(unheld, listed, "name what holds the invariant, or take its file off the list");
}

/// Paragraphs of comments, each with the number of its first line; nothing between fences.
fn paragraphs(source: &Source) -> Vec<(usize, String)> {
    let (mut found, mut last) = (Vec::<(usize, String)>::new(), 0);
    for (at, text, is_fenced) in source.comments() {
        let text = text.trim();
        if text.is_empty() || is_fenced {
            last = 0;
            continue;
        }
        match found.last_mut() {
            Some((_, paragraph)) if at == last + 1 => *paragraph += &format!(" {text}"),
            _ => found.push((at, text.to_owned())),
        }
        last = at;
    }
    found
}

/// The names after each of [`HOLDERS`], up to a semicolon or the bracket's end.
fn holders(claim: &str) -> Vec<(&'static str, &str)> {
    let mut found = Vec::new();
    for way in HOLDERS {
        for (at, _) in claim.match_indices(&format!("{way}`")) {
            let rest = &claim[at + way.len()..];
            let names = &rest[..rest.find([')', ';']).unwrap_or(rest.len())];
            found.extend(names.split('`').skip(1).step_by(2).map(|name| (*way, name)));
        }
    }
    found
}

/// The tests of a source.
fn tests_in(text: &str) -> Vec<&str> {
    let (mut found, mut is_next) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        is_next |= line == "#[test]";
        if is_next && let Some(rest) = line.strip_prefix("fn ") {
            found.extend(rest.split(['(', '<']).next());
            is_next = false;
        }
    }
    found
}

/// Whether a function, a type or a lint that a source names holds something.
fn is_held(sources: &[Source], source: &Source, way: &str, name: &str) -> bool {
    match way {
        "asserted in " => match name.split_once("::") {
            None => asserts(source, name),
            Some((path, function)) => {
                let is_meant =
                    |s: &&Source| s.krate() == source.krate() && s.name.ends_with(&format!("/{path}"));
                sources.iter().filter(is_meant).any(|s| asserts(s, function))
            }
        },
        "held by the type: " => sources.iter().any(|s| s.code().any(|(_, line)| defines(line, name))),
        _ if name.starts_with("clippy::") => {
            let run = std::fs::read_to_string(root().join("tests/run")).unwrap();
            let allowed = ["allow(", "expect("].map(|word| format!("{word}{name}"));
            run.contains("-- -D warnings")
                && !sources.iter().any(|s| allowed.iter().any(|word| s.text.contains(word)))
        }
        _ => {
            source.text.contains(&format!("fn {name}("))
                && !source.text.contains(&format!("async fn {name}("))
        }
    }
}

/// Whether a line defines a type.
fn defines(line: &str, name: &str) -> bool {
    let is_name = |rest: &str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next() == Some(name);
    ["struct ", "enum ", "trait ", "type "]
        .iter()
        .any(|word| line.split_once(word).is_some_and(|(_, rest)| is_name(rest)))
}

/// Whether a function of this name has an assert.
fn asserts(source: &Source, function: &str) -> bool {
    let lines: Vec<&str> = source.code().map(|(_, line)| line).collect();
    let heads = [format!("fn {function}("), format!("fn {function}<")];
    lines.iter().enumerate().any(|(at, line)| {
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let mut body = lines[at..].iter().take_while(|line| **line != end);
        heads.iter().any(|head| line.contains(head)) && body.any(|line| line.contains("assert"))
    })
}

#[test]
fn the_rules_see_what_they_are_to_see() {
    let page = "See `server/src/x.rs`, [y](../crates/y/src/z.rs#L3) and `ops/NAME.rs`: a/src/b.";
    let paths: Vec<&str> = named_paths(page).collect();
    assert_eq!(paths, ["server/src/x.rs", "crates/y/src/z.rs", "a/src/b"]);
    let page = "# A *b*, `c`: 4.1\n[x](y.md#z), [u](https://v)\n```\n# d\n[e](f)\n```\n## g-h\n";
    assert_eq!(links(page).collect::<Vec<_>>(), ["y.md#z"]);
    assert_eq!(anchors(page).collect::<Vec<_>>(), ["a-b-c-41", "g-h"]);
    let source = |text: &str| Source { name: "server/src/x.rs".into(), text: text.into(), is_test: false };
    let code = source("//! x\nlet a = 1; // b\n// c\n#[cfg(test)]\nmod tests {\n  x.unwrap()\n}\n");
    assert_eq!(code.code().collect::<Vec<_>>(), [(2, "let a = 1; // b")]);
    let comments = source("//! a\n//! ```text\n//!   b\n//! ```\n//! c\nlet d = 1; // e\n");
    let found: Vec<_> = comments.comments().map(|(at, text, fenced)| (at, text.trim(), fenced)).collect();
    let fence = "```";
    assert_eq!(
        found,
        [
            (1, "a", false),
            (2, "```text", true),
            (3, "b", true),
            (4, fence, true),
            (5, "c", false),
            (6, "e", false)
        ]
    );
    assert!(words("Who: `told` [`x`]: a::hear_it::told").filter_map(instead_of).count() == 1);
    assert!(instead_of("What").is_some() && instead_of("what").is_none());
    assert_eq!(room_of("server/src/ops/admin/ping.rs"), Some(("admin", "ping")));
    assert_eq!(room_of("server/src/ops/make.rs"), None);
    let list = "f(match op { Op::A { x, .. } | Op::B {} => Op::C { y: [(1)] }, Op::D { .. } if z => 1 })";
    assert_eq!(matched_operations(list), 3);
    assert_eq!(matched_operations("matches!(op, Op::A { .. } | Op::B { .. })"), 1);
    let maps = source("struct A(Rc<HashMap<u8, u8>>);\n    open: RefCell<HashMap<u8, u8>>,\n");
    assert_eq!(hash_maps(&maps), BTreeSet::from(["0".to_owned(), "open".to_owned()]));
    assert!(iterates("for x in self.open.borrow().values() {", "open"));
    assert!(!iterates("self.reopened.values()", "open"));
    let lines =
        ["enum Way {", "Far {", "offset: u64,", "len: u64,", "},", "}", "impl A {", "fn f(", "offset: u64,"];
    let found = bodies(&lines);
    assert_eq!(found, [("Far".to_owned(), BTreeSet::from(["offset".to_owned(), "len".to_owned()]))]);
    let essay = source(
        "//! **Invariant: a** (asserted in `f`;\n//! tests: `g`, `h`). Invariants: b\n//!\n//! c\n\
         fn f() {\n    assert!(d);\n}\nfn g() {\n}\n",
    );
    let found = paragraphs(&essay);
    assert_eq!((found.len(), found[0].0, &found[1]), (2, 1, &(4, "c".to_owned())));
    let claims: Vec<_> = found[0].1.split("Invariant").skip(1).map(holders).collect();
    assert_eq!(claims, [vec![("asserted in ", "f"), ("tests: ", "g"), ("tests: ", "h")], Vec::new()]);
    assert!(asserts(&essay, "f") && !asserts(&essay, "g"));
    assert!(is_held(&[], &essay, "held by the compiler: ", "g"));
    assert!(!is_held(&[], &source("async fn g() {}"), "held by the compiler: ", "g"));
    assert!(defines("pub type Handler = fn();", "Handler") && !defines("struct Handlers;", "Handler"));
    let types = source("pub struct A<T>(T);\n    pub trait B {\nstruct C;\npub fn d() {}\npub type E = F;\n");
    assert_eq!(public_types(&types).collect::<Vec<_>>(), ["A", "B", "E"]);
    assert_eq!(tests_in("#[test]\n#[cfg(a)]\n    fn a() {\nfn b() {\n"), ["a"]);
}

/// Files of 500 lines and more without their tests' module: to be split, or one `impl` of a foreign trait.
const LONG: &[&str] = &[
    "bench/src/passthrough/protocol.rs",
    "client/src/core.rs",
    "client/src/session.rs",
    "env/src/sim/disk.rs",
    "fuse/src/adapter.rs",
    "model/src/machine.rs",
    "pattern/src/codec.rs",
    "proto/src/op.rs",
    "server/src/net/connection/handshake.rs",
    "server/src/net/peers.rs",
    "server/src/request/executor/compound.rs",
    "shoal/src/lab/cli/bench.rs",
    "shoal/src/node.rs",
    "sim/src/workload.rs",
    "store/src/module.rs",
];

#[test]
fn a_file_has_fewer_than_500_lines_and_no_exception_is_left_over() {
    let is_long = |source: &Source| !source.is_test && source.code().last().is_some_and(|(at, _)| at >= 500);
    let found: BTreeSet<String> = sources()
        .into_iter()
        .filter(is_long)
        .map(|source| source.name.replace("/src/src/", "/src/"))
        .collect();
    let listed: BTreeSet<String> = LONG.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, listed, "split the file by its roles, or take it off the list");
}
