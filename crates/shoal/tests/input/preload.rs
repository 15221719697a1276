//! `shoal run`: wrong directories, transforms, keys, libraries and programs are refused before a program
//! runs.

use crate::program::{Home, refused, shoal};

#[test]
fn a_directory_that_cannot_show_a_file_system_is_named_with_the_remedy() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir_all(at("one/two")).unwrap();
    std::fs::write(at("file"), "").unwrap();
    let run = |overs: &[String], words: &[&str]| {
        let mut args = vec!["run"];
        overs.iter().for_each(|over| args.extend(["--over", over]));
        args.extend(["--", "true"]);
        refused(&args, words);
    };
    run(&[format!("{}=container", at("missing"))], &["missing", "make it first"]);
    run(&["one=container".into()], &["`one` is relative", "write /"]);
    run(&[format!("{}=plain", at("file"))], &["file", "is not a directory"]);
    run(&["/=plain".into()], &["cannot lie over /"]);
    run(&[at("one")], &["names no file system", "DIR={"]);
    run(&[format!("{}=plain", at("one")), format!("{}=plain", at("one/two"))], &["lie in each other"]);
    run(
        &[format!("{}=composed,buffer=block", at("one"))],
        &["`buffer=block` is for a mount", "leave it out"],
    );
    run(&[format!("{}=composed,files=0", at("one"))], &["`files=0`", "1 to 1024"]);
    run(&[format!("{}=container,index=fast", at("one"))], &["`fast`", "original, flatten or parallel"]);
    run(&[format!("{}=container,files=2", at("one"))], &["`files=2`", "index=original|flatten|parallel"]);
    run(&[format!("{}=zip", at("one"))], &["unknown transform `zip`", "container, composed, plain"]);
}

#[test]
fn a_group_whose_variables_make_no_sense_is_refused_before_the_program_runs() {
    let home = tempfile::tempdir().unwrap();
    let over = format!("{}=container", home.path().display());
    for (variables, reason) in [
        (&[("SHOAL_GROUP_RANK", "1")][..], "both, SHOAL_GROUP_RANK and SHOAL_GROUP_SIZE"),
        (&[("SHOAL_GROUP_RANK", "one"), ("SHOAL_GROUP_SIZE", "4")], "SHOAL_GROUP_RANK is no number"),
        (&[("PMI_RANK", "4"), ("PMI_SIZE", "4")], "ranks are below the size"),
    ] {
        let mut command = shoal();
        command.args(["run", "--over", &over, "--", "true"]).envs(variables.iter().copied());
        let output = command.output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && words.contains(reason), "{words}");
    }
}

#[test]
fn a_file_system_over_a_directory_needs_an_address_and_a_key() {
    let home = Home::new();
    let at = home.0.path().to_str().unwrap().to_owned();
    let run = |what: &str, words: &[&str]| {
        let missing = home.text("no-key");
        refused(&["run", "--over", &format!("{at}={what}"), "--key", &missing, "--", "true"], words);
    };
    run("shoal://127.0.0.1:1", &["names no file system", "shoal://HOST:PORT/NAME"]);
    run("shoal://127.0.0.1:1/demo/part", &["leave out `/part`"]);
    run("shoal://127.0.0.1:1/demo", &["no-key"]);
}

#[test]
fn a_program_that_no_library_can_enter_is_refused_and_so_is_a_library_that_is_none() {
    let home = tempfile::tempdir().unwrap();
    let over = format!("{}=plain", home.path().display());
    let words = |library: &str, program: &std::ffi::OsStr| {
        let mut command = shoal();
        command.args(["run", "--over", &over, "--"]).arg(program).env("SHOAL_PRELOAD_LIB", library);
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let own = env!("CARGO_BIN_EXE_shoal");
    // A program without the header that names a loader.
    let mut bytes = std::fs::read("/proc/self/exe").unwrap();
    bytes[56] = 0;
    bytes.truncate(4096);
    let program = home.path().with_extension("static");
    std::fs::write(&program, bytes).unwrap();
    let told = words(own, program.as_os_str());
    assert!(told.contains("is a static program") && told.contains("shoal mount"), "{told}");
    std::fs::remove_file(&program).unwrap();
    let told = words(own, "no-such-program-anywhere".as_ref());
    assert!(told.contains("no program `no-such-program-anywhere`"), "{told}");
    let told = words("/no/such/library", "true".as_ref());
    assert!(told.contains("/no/such/library") && told.contains("libshoal_preload.so"), "{told}");
}
