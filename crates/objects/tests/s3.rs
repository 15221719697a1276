//! The suite of all file systems over a real store. `tests/s3` starts one and runs this; by itself it needs
//! the variables AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, and SHOAL_S3_BUCKET.

#![cfg(feature = "s3")]

use shoal_env::real;
use shoal_objects::s3::S3;
use shoal_objects::{Objects, ObjectsOptions};
use shoal_proto::Status;
use shoal_transform::ContainerOptions;
use shoal_vfs::Connect;
use shoal_vfs::conformance::{Promises, check};

const PROMISES: Promises =
    Promises { xattrs: false, counted_directories: false, links: false, many: 60, ..Promises::ALL };

fn bucket() -> String {
    std::env::var("SHOAL_S3_BUCKET").expect("SHOAL_S3_BUCKET names a bucket of the store")
}

async fn at(env: shoal_env::Env, bucket: String, prefix: &str) -> shoal_vfs::Result<Objects> {
    ObjectsOptions::new(S3::new(bucket), prefix).connect(env).await
}

#[test]
#[ignore = "needs a store: tests/s3 starts one"]
fn a_file_system_over_a_real_store_conforms() {
    real::run("s3", async |env| {
        let objects = at(env, bucket(), "conformance/plain").await.unwrap();
        check(&objects, PROMISES).await;
        println!("{:?}", objects.requests());
    });
}

#[test]
#[ignore = "needs a store: tests/s3 starts one"]
fn containers_over_a_real_store_conform() {
    real::run("s3", async |env| {
        let over = ObjectsOptions::new(S3::new(bucket()), "conformance/containers");
        let containers = ContainerOptions::new(over).connect(env).await.unwrap();
        check(&containers, Promises { many: 30, ..PROMISES }).await;
        println!("{:?}", containers.over().requests());
    });
}

#[test]
#[ignore = "needs a store: tests/s3 starts one"]
fn a_bucket_that_is_missing_is_named_with_the_remedy() {
    real::run("s3", async |env| {
        let refused = at(env, "shoal-no-such-bucket".to_owned(), "x").await.map(drop).unwrap_err();
        assert_eq!(refused.status, Status::Io, "{refused}");
        assert!(refused.words.contains("make the bucket"), "{refused}");
    });
}
