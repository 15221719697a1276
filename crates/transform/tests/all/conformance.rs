//! Containers over a directory pass the suite that all file systems pass, but for hard links.

use shoal_env::real;
use shoal_transform::ContainerOptions;
use shoal_vfs::conformance::{Promises, check};
use shoal_vfs::{Connect, LocalOptions};

#[test]
fn containers_over_a_directory_conform() {
    let dir = tempfile::tempdir().unwrap();
    let owners = rustix::process::getuid().is_root();
    let options = ContainerOptions::new(LocalOptions::new(dir.path()));
    real::run("conformance", move |env| async move {
        let container = options.connect(env).await.unwrap();
        check(
            &container,
            Promises {
                links: false,
                counted_directories: false,
                many: 1000,
                xattrs: false,
                owners,
                ..Promises::ALL
            },
        )
        .await;
    });
}
