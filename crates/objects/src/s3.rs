//! Stores that speak S3, by the crate `object_store`.
//!
//! ```text
//!   the world's thread                            the thread "shoal-s3"
//!   Store::put ── a boxed request, one-shot ──▶   a tokio runtime: HTTP, TLS, signatures
//!         ◀────────── its answer ─────────────
//! ```
//!
//! **This module is an exception to the rule that sockets and clocks enter through `env`**: the crate has
//! sockets, timers and name look-ups of its own, which a simulated world could not serve. So they are in a
//! thread of their own, which sees nothing of a world. Deadlines, repeats and pauses are made above, on the
//! world's clock: a request that the world gave up ends in that thread by its own limit of time.
//!
//! Credentials and the address come from the variables that S3 clients share: `AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`.

use crate::calls::{Calls, TRY_MAX};
use crate::format::{KeySpace, NAMED_BYTES_MAX};
use crate::store::{Found, Keys, Meta, Reaches, Refusal, Reply, Store, Tag, When};
use bytes::{Bytes, BytesMut};
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore as _, ObjectStoreExt as _, PutMode,
    PutOptions, PutPayload, RetryConfig, UpdateVersion,
};
use shoal_env::Env;
use shoal_env::real::descriptors;
use shoal_proto::Time;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Time to find the root of a path, for each request.
const FIND_MAX: Duration = Duration::from_secs(30);
/// Words of a store in an error, at most.
const WORDS_MAX: usize = 400;

/// A bucket, reached as the environment of this process says.
#[derive(Clone, Debug)]
pub struct S3 {
    bucket: String,
}

/// A place in a bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Place {
    /// The bucket.
    pub bucket: String,
    /// The prefix of all keys, without `/` at its ends; may be empty.
    pub prefix: String,
}

impl S3Place {
    /// Read `s3://BUCKET[/PREFIX]`; `None`: it is no such address.
    ///
    /// # Errors
    /// In words: a bucket that is none.
    pub fn parse(text: &str) -> Option<Result<S3Place, String>> {
        let rest = text.strip_prefix("s3://")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_plain) {
            return Some(Err(format!(
                "`{bucket}` is no bucket (3 to 63 of a-z, 0-9, `-`, `.`): write s3://BUCKET/PREFIX"
            )));
        }
        Some(Ok(S3Place { bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() }))
    }
}

impl S3Place {
    /// The file system that a path in a bucket lies in: its prefix, and the path from there. The longest
    /// prefix with a root is it.
    ///
    /// # Errors
    /// In words: no part of the path has files, or the store's refusal.
    pub async fn find(&self, env: &Env) -> Result<(S3Place, String), String> {
        let store = S3::new(&self.bucket).reach(env)?;
        let calls = Calls::new(env.clone(), store, FIND_MAX, true);
        let parts: Vec<&str> = self.prefix.split('/').filter(|part| !part.is_empty()).collect();
        for count in (0..=parts.len()).rev() {
            let prefix = parts[..count].join("/");
            let below = if count == 0 { String::new() } else { format!("{prefix}/") };
            let found = calls
                .get("look", &KeySpace(below).root(), NAMED_BYTES_MAX as u64)
                .await
                .map_err(|error| error.words)?;
            if found.is_some() {
                return Ok((S3Place { bucket: self.bucket.clone(), prefix }, parts[count..].join("/")));
            }
        }
        Err(format!(
            "no part of s3://{}/{} has files of ShoalFS: give the bucket and prefix that were given to `--over`",
            self.bucket, self.prefix
        ))
    }
}

impl fmt::Display for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.prefix)
    }
}

impl S3 {
    /// A bucket.
    pub fn new(bucket: impl Into<String>) -> S3 {
        S3 { bucket: bucket.into() }
    }
}

impl Reaches for S3 {
    fn reach(&self, _env: &Env) -> Result<Rc<dyn Store>, String> {
        // Another part of this process may have chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let options = ClientOptions::new()
            .with_timeout(TRY_MAX)
            .with_connect_timeout(CONNECT_MAX)
            .with_allow_http(true);
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let builder = AmazonS3Builder::from_env();
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
        let store = builder
            .with_bucket_name(&self.bucket)
            .with_client_options(options)
            .with_retry(retry)
            .build()
            .map_err(|error| format!("s3://{}: {}; set the AWS_ variables", self.bucket, short(&error)))?;
        let (queue, requests) = mpsc::unbounded();
        std::thread::Builder::new()
            .name("shoal-s3".to_owned())
            .spawn(move || serve(requests))
            .map_err(|error| format!("no thread for s3://{}: {error}", self.bucket))?;
        Ok(Rc::new(Bucket { name: self.bucket.clone(), endpoint, store: Arc::new(store), queue }))
    }
}

type Request = BoxFuture<'static, ()>;

/// Make all requests, until the store is dropped.
fn serve(mut requests: mpsc::UnboundedReceiver<Request>) {
    descriptors::begin_own_thread();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().on_thread_start(descriptors::begin_own_thread).build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!("no event loop for requests to a store: {error}"),
    };
    runtime.block_on(async {
        while let Some(request) = requests.next().await {
            tokio::spawn(request);
        }
    });
}

struct Bucket {
    name: String,
    endpoint: Option<String>,
    store: Arc<AmazonS3>,
    /// Bounded by the calls that wait for answers.
    queue: mpsc::UnboundedSender<Request>,
}

impl Bucket {
    fn request<T: Send + 'static, F>(&self, request: impl FnOnce(Arc<AmazonS3>) -> F) -> Reply<T>
    where
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let work = request(self.store.clone());
        let sent = self.queue.unbounded_send(Box::pin(async move {
            let _ = answer.send(work.await.map_err(|error| refusal(&error)));
        }));
        let lost = || Refusal::Other("the thread of its requests has ended".to_owned());
        Box::pin(async move {
            sent.map_err(|_| lost())?;
            answered.await.map_err(|_| lost())?
        })
    }
}

/// A key, as the crate has it. Ours need no encoding.
fn path(key: &str) -> object_store::Result<Path> {
    Ok(Path::parse(key)?)
}

/// A version. A store that names none cannot hold conditions.
fn tag(tag: Option<String>) -> Tag {
    Tag(tag.unwrap_or_default())
}

fn meta(meta: ObjectMeta) -> Meta {
    let nanos = meta.last_modified.timestamp_nanos_opt().unwrap_or(0);
    Meta { key: meta.location.to_string(), size: meta.size, tag: tag(meta.e_tag), modified: Time(nanos) }
}

impl Store for Bucket {
    fn called(&self) -> String {
        format!("s3://{}", self.name)
    }

    fn endpoint(&self) -> Option<String> {
        self.endpoint.clone()
    }

    fn put(&self, key: &str, data: Bytes, when: When) -> Reply<Tag> {
        let (key, mode) = (
            key.to_owned(),
            match when {
                When::Absent => PutMode::Create,
                When::Is(Tag(tag)) => PutMode::Update(UpdateVersion { e_tag: Some(tag), version: None }),
            },
        );
        self.request(async move |store: Arc<AmazonS3>| {
            let options = PutOptions { mode, ..PutOptions::default() };
            let put = store.put_opts(&path(&key)?, PutPayload::from(data), options).await?;
            Ok(tag(put.e_tag))
        })
    }

    fn get(&self, key: &str, range: Range<u64>) -> Reply<Found> {
        let key = key.to_owned();
        self.request(async move |store: Arc<AmazonS3>| {
            let most = range.end - range.start;
            let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
            let got = store.get_opts(&path(&key)?, options).await?;
            let (tag, mut pieces, mut data) =
                (tag(got.meta.e_tag.clone()), got.into_stream(), BytesMut::new());
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                if (data.len() + piece.len()) as u64 > most {
                    let source =
                        format!("status code: 200, with more than the {most} bytes of the range").into();
                    return Err(object_store::Error::Generic { store: "S3", source });
                }
                data.extend_from_slice(&piece);
            }
            Ok(Found { data: data.freeze(), tag })
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Reply<Keys> {
        let (prefix, offset) = (prefix.to_owned(), after.map(str::to_owned));
        self.request(async move |store: Arc<AmazonS3>| {
            let options =
                PaginatedListOptions { offset, max_keys: Some(most), ..PaginatedListOptions::default() };
            let page = store.list_paginated(Some(&prefix), options).await?;
            let found = page.result.objects.into_iter().map(meta).collect();
            Ok(Keys { found, has_more: page.page_token.is_some() })
        })
    }

    fn delete(&self, key: &str) -> Reply<()> {
        let key = key.to_owned();
        self.request(async move |store: Arc<AmazonS3>| store.delete(&path(&key)?).await)
    }
}

/// The first words of an error.
fn short(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    let mut end = text.len().min(WORDS_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\n', " ")
}

/// The number of an answer, which the crate has in its words only.
fn status(words: &str) -> Option<u16> {
    let (_, rest) = words.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

fn refusal(error: &object_store::Error) -> Refusal {
    let words = short(error);
    match error {
        _ if words.contains("NoSuchBucket") => Refusal::NoBucket,
        object_store::Error::NotFound { .. } => Refusal::Absent,
        object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => {
            Refusal::Condition
        }
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            Refusal::Denied(words)
        }
        // It looked for credentials of a virtual machine, as the variables have none.
        _ if words.contains("169.254.") => Refusal::Denied("no credentials are set".to_owned()),
        object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. } => {
            Refusal::NotOffered(words)
        }
        object_store::Error::Generic { .. } => match status(&words) {
            Some(501) => Refusal::NotOffered(words),
            Some(408 | 429 | 500..) | None => Refusal::Passing(words),
            Some(_) => Refusal::Other(words),
        },
        _ => Refusal::Other(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_bucket_and_a_prefix() {
        let parse = |text| S3Place::parse(text).map(|place| place.map(|place| (place.bucket, place.prefix)));
        let place = |bucket: &str, prefix: &str| Some(Ok((bucket.to_owned(), prefix.to_owned())));
        assert_eq!(parse("s3://bucket/a/b/"), place("bucket", "a/b"));
        assert_eq!(parse("s3://bucket"), place("bucket", ""));
        assert_eq!(parse("/scratch"), None);
        for text in ["s3://", "s3:///a", "s3://ab/x", "s3://Bucket/x"] {
            assert!(parse(text).unwrap().unwrap_err().contains("s3://BUCKET/PREFIX"), "{text}");
        }
    }

    #[test]
    fn an_answer_is_taken_for_what_its_number_says() {
        let generic = |words: &str| {
            refusal(&object_store::Error::Generic { store: "S3", source: words.to_owned().into() })
        };
        assert!(matches!(generic("… status code: 503 Service Unavailable: x"), Refusal::Passing(_)));
        assert!(matches!(generic("… status code: 400 Bad Request: x"), Refusal::Other(_)));
        assert!(matches!(generic("… status code: 501 Not Implemented: x"), Refusal::NotOffered(_)));
        assert!(matches!(generic("error sending request"), Refusal::Passing(_)));
        assert!(matches!(generic("PUT http://169.254.169.254/latest/api/token"), Refusal::Denied(_)));
        assert_eq!(generic("status code: 404: <Code>NoSuchBucket</Code>"), Refusal::NoBucket);
    }
}
