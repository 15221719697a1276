//! The figures of chapter 4 (4.1 to 4.6) as curves, over the number of clients or the size of blocks. They
//! use the same counts as the numbers of the chapter.

use super::{HUGE, KBYTE, MBYTE, WAITING, contiguous, create, least, setting, split};
use crate::bound::{Access, Bound, Limit, Servers};
use crate::curve::{Curve, Figure, places};
use crate::machine::Machine;

/// The disk as the thesis varies it, and the names of its curves.
const DISKS: [(&str, Option<Access>); 4] = [
    ("no disk access", None),
    ("track to track", Some(Access::Track)),
    ("average access", Some(Access::Average)),
    ("worst access", Some(Access::Worst)),
];

fn counted(clients: f64) -> u32 {
    clients.round() as u32
}

/// The chapter's figures, 4.1 to 4.6, for a machine.
pub fn figures(machine: &Machine) -> Vec<Figure> {
    let small = |number, most, what| small_one_client(machine, number, most, what);
    vec![
        creates(machine),
        large(machine),
        small("4.3", 10.0 * MBYTE, "0 to 10 MByte"),
        small("4.4", 512.0 * KBYTE, "0 to 512 KByte"),
        small("4.5", 32.0 * KBYTE, "0 to 32 KByte"),
        small_many_clients(machine),
    ]
}

fn creates(machine: &Machine) -> Figure {
    let clients = places(1.0, 15.0, 15);
    let bound = |clients: f64, disk| {
        Bound::of(&create(1), machine, &setting(counted(clients), Servers::Both(1), disk))
    };
    let mut curves = vec![
        Curve::of("network latency", &clients, |n| least(&bound(n, None), WAITING)),
        Curve::of("CPU", &clients, |n| least(&bound(n, None), &[Limit::ServerCpu, Limit::Cpu])),
    ];
    for (name, disk) in &DISKS[1..] {
        curves.push(Curve::of(&format!("synced, {name}"), &clients, |n| bound(n, *disk).per_s()));
    }
    figure("4.1", "Estimated upper bounds for the create operation", "clients", "creates/s", curves)
}

fn large(machine: &Machine) -> Figure {
    let clients = places(1.0, 10.0, 10);
    let servers = split(machine.nodes.data_servers);
    let links = |machine: &Machine, n| {
        let bound = Bound::of(&contiguous(MBYTE, true), machine, &setting(counted(n), servers, None));
        least(&bound, &[Limit::ClientLink, Limit::ServerLink])
    };
    let disks = |n| {
        let bound =
            Bound::of(&contiguous(HUGE, true), machine, &setting(counted(n), servers, Some(Access::Average)));
        least(&bound, &[Limit::ClientLink, Limit::ServerLink, Limit::Disk]) * HUGE / MBYTE
    };
    let mut medium = machine.clone();
    medium.link.bandwidth_mb_per_s = machine.link.medium_mb_per_s.unwrap_or(machine.link.bandwidth_mb_per_s);
    let curves = vec![
        Curve::of("medium", &clients, |n| links(&medium, n)),
        Curve::of("network throughput", &clients, |n| links(machine, n)),
        Curve::of("I/O subsystem", &clients, disks),
    ];
    let title = format!("Estimated upper bounds for large I/O requests, {} data servers", servers.data());
    figure("4.2", &title, "clients", "MByte/s", curves)
}

fn small_one_client(machine: &Machine, number: &str, most: f64, what: &str) -> Figure {
    let unit = if most > MBYTE { ("MByte", MBYTE) } else { ("KByte", KBYTE) };
    let blocks = places(0.0, most / unit.1, 129);
    let curves = DISKS.iter().map(|(name, disk)| {
        Curve::of(name, &blocks, |block| {
            let bytes = block * unit.1;
            let bound = Bound::of(&contiguous(bytes, true), machine, &setting(1, split(1), *disk));
            least(&bound, WAITING) * bytes / MBYTE
        })
    });
    let title = format!("Estimated upper bounds for one client using small I/O requests, {what}");
    figure(number, &title, &format!("block size, {}", unit.0), "MByte/s", curves.collect())
}

fn small_many_clients(machine: &Machine) -> Figure {
    let clients = places(1.0, 20.0, 20);
    let bound = |n: f64, servers, disk| {
        Bound::of(&contiguous(KBYTE, true), machine, &setting(counted(n), split(servers), disk))
    };
    let rate = |per_s: f64| per_s * KBYTE / MBYTE;
    let all = machine.nodes.data_servers;
    let mut curves = vec![
        Curve::of("network latency", &clients, |n| rate(least(&bound(n, 1, None), WAITING))),
        Curve::of("one server's link", &clients, |n| rate(least(&bound(n, 1, None), &[Limit::ServerLink]))),
    ];
    for (name, disk) in &DISKS[1..] {
        for servers in if all > 1 { vec![1, all] } else { vec![1] } {
            let words =
                if servers == 1 { "1 data server".to_owned() } else { format!("{servers} data servers") };
            let value = |n| rate(least(&bound(n, servers, *disk), &[Limit::Disk]));
            curves.push(Curve::of(&format!("{name}, {words}"), &clients, value));
        }
    }
    figure(
        "4.6",
        "Estimated upper bounds for multiple clients using 1 KByte I/O requests",
        "clients",
        "MByte/s",
        curves,
    )
}

fn figure(number: &str, title: &str, x_label: &str, y_label: &str, curves: Vec<Curve>) -> Figure {
    Figure {
        number: number.to_owned(),
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        curves,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{assert_is, cluster};
    use super::*;

    #[test]
    fn figure_4_1_rises_with_the_clients_up_to_the_cpu_and_is_flat_where_it_syncs() {
        let figures = figures(&cluster());
        let figure = &figures[0];
        let at = |name: &str, n| figure.curve(name).expect(name).at(n).expect("a place");
        assert_is(at("network latency", 5.0), 5.0 * 1e3 / 2.08);
        assert_is(at("CPU", 1.0), 2800.0);
        assert!(at("network latency", 6.0) > at("CPU", 6.0) && at("network latency", 5.0) < at("CPU", 5.0));
        for (name, low, high) in
            [("average", 11.4, 11.8), ("worst", 6.5, 6.7), ("track to track", 76.4, 91.0)]
        {
            let name = match name {
                "track to track" => "synced, track to track".to_owned(),
                name => format!("synced, {name} access"),
            };
            for n in 1..=15 {
                assert!(
                    (low..high).contains(&at(&name, f64::from(n))),
                    "{name}, {n} clients: {}",
                    at(&name, f64::from(n))
                );
            }
        }
    }

    #[test]
    fn figure_4_2_rises_to_535_and_200() {
        let figure = &figures(&cluster())[1];
        let at = |name: &str, n| figure.curve(name).expect(name).at(n).expect("a place");
        assert_is(at("network throughput", 3.0), 321.0);
        assert_is(at("network throughput", 10.0), 535.0);
        assert!(
            (at("I/O subsystem", 10.0) - 200.0).abs() < 1e-3
                && (at("I/O subsystem", 1.0) - 107.0).abs() < 1e-3
        );
        assert_is(at("medium", 10.0), 625.0);
    }

    #[test]
    fn figures_4_3_to_4_5_are_one_formula_over_three_ranges() {
        let figures = figures(&cluster());
        let at =
            |figure: usize, name: &str, x| figures[figure].curve(name).expect(name).at(x).expect("a place");
        assert_is(at(2, "no disk access", 10.0), 10.0 * 1e3 / (1e4 / 107.0 + 0.52));
        assert_is(at(3, "no disk access", 512.0), 512.0 / (512.0 / 107.0 + 0.52));
        assert_is(at(4, "no disk access", 32.0), 32.0 / (32.0 / 107.0 + 0.52));
        assert_is(at(4, "average access", 32.0), 32.0 / (32.0 / 40.0 + 8.5 + 0.52));
        for figure in &figures[2..5] {
            for curve in &figure.curves {
                assert_eq!(curve.points[0].1, 0.0, "{}", curve.name);
                assert!(curve.points.is_sorted_by(|a, b| a.1 <= b.1), "{} falls", curve.name);
            }
        }
    }

    #[test]
    fn figure_4_6_rises_with_the_clients_and_its_disks_are_flat() {
        let figure = &figures(&cluster())[5];
        let at = |name: &str, n| figure.curve(name).expect(name).at(n).expect("a place");
        assert_is(at("network latency", 20.0), 20.0 * at("network latency", 1.0));
        assert_eq!(format!("{:.1}", at("network latency", 1.0)), "1.9");
        let disk = 1.0 / (1.0 / 40.0 + 8.5);
        assert_is(at("average access, 1 data server", 7.0), disk);
        assert_is(at("average access, 5 data servers", 7.0), 5.0 * disk);
    }
}
