//! Servers with several disks: `streams` in the cluster file, a disk that is added, one that is not mounted.

use crate::program::*;
use shoal_client::Client;
use shoal_env::real;
use shoal_proto::{Handle, Name, Rights};
use std::path::{Path, PathBuf};

/// Two servers, of which the second may have further disks.
struct Site {
    home: Home,
    cluster: String,
    root: String,
}

impl Site {
    fn new() -> Site {
        let home = Home::new();
        let (cluster, ports) = home.cluster(2);
        let root = format!("shoal://127.0.0.1:{},127.0.0.1:{}/demo", ports[0], ports[1]);
        Site { home, cluster, root }
    }

    fn disk(&self, number: usize) -> PathBuf {
        let disk = self.home.path(&format!("disk{number}"));
        std::fs::create_dir_all(&disk).unwrap();
        disk
    }

    /// Name the first so many disks in the cluster file.
    fn name(&self, disks: usize) {
        let path = Path::new(&self.cluster).join("cluster.toml");
        let mut table: toml::Table = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let named = (1..=disks).map(|n| toml::Value::from(self.disk(n).to_str().unwrap())).collect();
        let server = table["server"].as_array_mut().unwrap()[1].as_table_mut().unwrap();
        server.insert("streams".to_owned(), toml::Value::Array(named));
        std::fs::write(&path, toml::to_string(&table).unwrap()).unwrap();
    }

    fn serve(&self) -> [Serving; 2] {
        ["0", "1"].map(|id| Serving::start(&["serve", "--config", &self.cluster, "--server", id]))
    }

    fn key(&self) -> String {
        format!("{}/key", self.cluster)
    }

    fn copy_in(&self, name: &str) {
        let bytes: Vec<u8> = (0..1_500_000).map(|at| (at % 249) as u8).collect();
        let file = self.home.file(name, &bytes);
        said(&["cp", &file, &format!("{}/{name}", self.root), "--key", &self.key(), "--quiet"]);
    }

    fn is_there(&self, name: &str) {
        let back = self.home.text("back");
        let _ = std::fs::remove_file(&back);
        said(&["cp", &format!("{}/{name}", self.root), &back, "--key", &self.key(), "--quiet"]);
        assert!(std::fs::read(&back).unwrap() == std::fs::read(self.home.path(name)).unwrap(), "{name}");
    }

    /// An fsync of each file: before its first one nothing of it is promised.
    fn sync(&self) {
        let address = self.root.trim_start_matches("shoal://").split(',').next().unwrap();
        let options = options(address.parse().unwrap(), Path::new(&self.key()));
        real::run("client", |env| async move {
            let client = Client::connect(env, options).await.unwrap();
            for n in 0..8 {
                let name = Name::new(format!("f{n}").as_bytes()).unwrap();
                let file = client.lookup(Handle::ROOT, &name).await.unwrap().handle;
                let open = client.open(file, Rights::READ).await.unwrap();
                open.fsync().await.unwrap();
                open.close().await.unwrap();
            }
            client.close().await;
        });
    }

    /// Files of streams on a disk.
    fn files(&self, disk: usize) -> usize {
        let parts = std::fs::read_dir(self.disk(disk).join("demo")).unwrap().map(|part| part.unwrap().path());
        parts.filter(|part| part.is_dir()).map(|part| std::fs::read_dir(part).unwrap().count()).sum()
    }
}

fn stop(servers: [Serving; 2]) {
    for server in servers {
        server.stop();
    }
}

#[test]
fn disks_are_added_to_a_server_and_one_that_is_not_mounted_is_named_and_nothing_is_lost() {
    let site = Site::new();
    stop(site.serve());
    site.name(2);
    let servers = site.serve();
    for n in 0..8 {
        site.copy_in(&format!("f{n}"));
    }
    stop(servers);
    let counts = [site.files(1), site.files(2)];
    assert!(counts[0] > 0 && counts[1] > 0 && counts[0] + counts[1] == 8, "{counts:?}");
    // The mount point is there, the disk is not.
    let (at, away) = (site.disk(2), site.home.path("away"));
    std::fs::rename(&at, &away).unwrap();
    std::fs::create_dir(&at).unwrap();
    let words = ["stream folder 2", at.to_str().unwrap(), "not mounted", "mount"];
    let told = refused(&["serve", "--config", &site.cluster, "--server", "1"], &words);
    assert!(!told.contains("--new-store"), "the store is there: {told}");
    assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0, "nothing was made in the mount point");
    std::fs::remove_dir(&at).unwrap();
    std::fs::rename(&away, &at).unwrap();
    // Taken out of the configuration by mistake.
    site.name(1);
    refused(&["serve", "--config", &site.cluster, "--server", "1"], &["stream folder 2", "name it again"]);
    site.name(3);
    let servers = site.serve();
    for n in 0..8 {
        site.is_there(&format!("f{n}"));
        site.copy_in(&format!("g{n}"));
    }
    assert!(site.files(3) > 0, "the new disk is used");
    said(&["fsck", &site.cluster, "--quiet"]);
    stop(servers);
}

#[test]
fn files_whose_bytes_were_on_a_disk_that_lost_them_are_named_by_fsck_and_the_others_are_whole() {
    let site = Site::new();
    stop(site.serve());
    site.name(2);
    let servers = site.serve();
    for n in 0..8 {
        site.copy_in(&format!("f{n}"));
    }
    site.sync();
    stop(servers);
    let parts = std::fs::read_dir(site.disk(2).join("demo")).unwrap().map(|part| part.unwrap().path());
    let files = parts.filter(|part| part.is_dir()).flat_map(|part| std::fs::read_dir(part).unwrap());
    let lost = files.map(|file| std::fs::remove_file(file.unwrap().path()).unwrap()).count();
    assert!((1..8).contains(&lost), "{lost} of 8");
    let servers = site.serve();
    let found = run(&["fsck", &site.cluster, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let problems = report["problems"].as_array().unwrap();
    assert!(problems.iter().all(|problem| problem["problem"] == "file_lost"), "{report}");
    assert_eq!((problems.len(), report["clean"].as_bool()), (lost, Some(false)), "{report}");
    for name in (0..8).map(|n| format!("f{n}")) {
        let is_named =
            |problem: &serde_json::Value| problem["words"].as_str().unwrap().contains(&format!("`/{name}`"));
        if !problems.iter().any(is_named) {
            site.is_there(&name);
            continue;
        }
        refused(
            &[
                "cp",
                &format!("{}/{name}", site.root),
                &site.home.text("back"),
                "--key",
                &site.key(),
                "--quiet",
            ],
            &[&name],
        );
    }
    // Where the first bytes are lost nothing can be made of the file; another has a hole.
    let repaired = run(&["fsck", &site.cluster, "--repair", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&repaired.stdout).unwrap();
    for problem in report["problems"].as_array().unwrap() {
        let words = problem["mending"].as_str().unwrap();
        assert!(
            words.contains("a hole there now") || words.contains("remove it and write it again"),
            "{report}"
        );
    }
    stop(servers);
}
