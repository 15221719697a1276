//! The suite of all file systems over a real store: over the store itself, and of containers over it.
//!
//! ```text
//!   export AWS_ENDPOINT_URL=… AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=…
//!   cargo run -p shoal-objects --features s3 --example suite -- BUCKET PREFIX
//! ```
//!
//! `tests/s3` starts a store and runs this. The prefix must have no files yet.

use shoal_env::real;
use shoal_objects::ObjectsOptions;
use shoal_objects::s3::S3;
use shoal_transform::Container;
use shoal_vfs::conformance::{Promises, check};
use shoal_vfs::{AnyVfs, Connect};

const PROMISES: Promises =
    Promises { xattrs: false, counted_directories: false, links: false, many: 60, ..Promises::ALL };

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(bucket), Some(prefix)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: suite BUCKET PREFIX");
        std::process::exit(2);
    };
    real::run("suite", async |env| {
        let at = |part: &str| ObjectsOptions::new(S3::new(&bucket), format!("{prefix}/{part}"));
        let objects = at("plain").connect(env.clone()).await.expect("the store");
        check(&objects, PROMISES).await;
        println!("plain: {:?}", objects.requests());
        let over = at("containers").connect(env.clone()).await.expect("the store");
        let containers = Container::checked(env, AnyVfs::of(over.clone())).await.expect("a new prefix");
        check(&containers, Promises { many: 30, ..PROMISES }).await;
        println!("containers: {:?}", over.requests());
    });
}
