//! Files of experiments: how settings are put together, and the refusals.

use super::*;

const TEXT: &str = r#"
name = "a"
title = "t"
claim = "c"
machine = "pvfs-linux"
source = { paper = "p", section = "s", reproduces = ["figure 1"] }
workload = { kind = "nine_phases" }
parameters = { servers = 8, files = 1000 }
axis = { varies = "clients", values = [1, 14], label = "clients", value_label = "creates/s" }
real = { scale = 0.1, values = [1, 4] }
quick = { scale = 0.01, values = [2] }

[[series]]
name = "all"
phase = "create"
parameters = { switches = "paper" }

[[published]]
series = "all"
x = 14
value = 7
unit = "/s"
where = "somewhere"
"#;

fn told(from: &str, to: &str) -> String {
    assert!(TEXT.contains(from), "{from}");
    Experiment::parse(&TEXT.replace(from, to), "a.toml").expect_err(to).to_string()
}

#[test]
fn a_setting_is_put_together_from_its_tables() {
    let experiment = Experiment::parse(TEXT, "a.toml").expect("it is right");
    let series = &experiment.series[0];
    let of = |mode, amount: Amount, x: f64| {
        experiment.setting(mode, &amount, series, &AxisPlace::Number(x)).expect("right")
    };
    let real = of(Mode::Real, Amount::default(), 4.0);
    assert_eq!((real.servers, real.clients, real.files, real.switches.as_str()), (8, 4, 100, "paper"));
    assert_eq!(of(Mode::Simulated, Amount::default(), 14.0).files, 1000);
    let quick = Amount { quick: true, ..Amount::default() };
    assert_eq!(of(Mode::Real, quick, 2.0).files, 10);
    let many = Amount { processes: Some(64), ..Amount::default() };
    assert_eq!(of(Mode::Real, many, 2.0).processes, 64);
    let scaled = Amount { scale: Some(0.5), ..Amount::default() };
    assert_eq!(of(Mode::Real, scaled, 2.0).files, 500);
    assert_eq!(experiment.values(Mode::Simulated, &quick), [AxisPlace::Number(2.0)]);
    assert_eq!(experiment.values(Mode::Real, &Amount::default()).len(), 2);
}

#[test]
fn what_refers_to_nothing_is_refused_with_what_there_is() {
    for (from, to, words) in [
        ("title", "headline", "headline"),
        ("phase = \"create\"", "phase = \"make\"", "readdir_stat_empty"),
        ("files = 1000", "blocks = 7", "does not use it"),
        ("files = 1000", "block_bytes = 7", "does not use it"),
        ("series = \"all\"", "series = \"none\"", "name a series"),
        ("unit = \"/s\"", "unit = \"MB/s\"", "has the unit /s"),
        ("varies = \"clients\"", "varies = \"speed\"", "does not use it"),
        ("kind = \"nine_phases\"", "kind = \"ten_phases\"", "ten_phases"),
        ("switches = \"paper\"", "switches = \"pap\"", "no set"),
    ] {
        let told = told(from, to);
        assert!(told.starts_with("a.toml") && told.contains(words), "{to}: {told}");
    }
}
