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
//! world's clock. A request has a last moment, by which it is neither begun nor waited for; and one that the
//! world gave up is dropped at once. A request whose bytes are on their way may still be done.
//!
//! Credentials and the address come from the variables that S3 clients share: `AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, or before that one
//! `AWS_ENDPOINT_URL_S3`. The crate reads others too (`docs/using/containers.md` names them). An address
//! without encryption is taken on this machine, and elsewhere with `AWS_ALLOW_HTTP=true`.

mod answers;
mod clients;
mod credentials;
mod pages;
mod settings;
mod xml;

use crate::calls::{Calls, try_time};
use crate::format::{KeySpace, NAMED_BYTES_MAX};
use crate::store::{Keys, Meta, ObjectBytes, Reaches, Refusal, Reply, Store, Tag, When};
use answers::short;
use bytes::{Bytes, BytesMut};
use clients::Clients;
use credentials::{Expired, Kept};
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, Either, select};
use object_store::Error as StoreError;
use object_store::aws::{
    AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider, S3ConditionalPut,
};
use object_store::list::{PaginatedListOptions, PaginatedListStore as _};
use object_store::path::Path;
use object_store::{
    ClientConfigKey, ClientOptions, CredentialProvider, GetOptions, GetRange, ObjectMeta, ObjectStore as _,
    ObjectStoreExt as _, PutMode, PutOptions, PutPayload, RetryConfig, UpdateVersion,
};
use shoal_env::Env;
use shoal_env::real::{self, descriptors};
use shoal_proto::Time;
use std::fmt;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// Time to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Time to find the root of a path, for each request.
const FIND_MAX: Duration = Duration::from_secs(30);

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
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let builder = AmazonS3Builder::from_env();
        let way = settings::read(&builder).map_err(|words| format!("s3://{}: {words}", self.bucket))?;
        let refused =
            |error: StoreError| format!("s3://{}: {}; set the AWS_ variables", self.bucket, short(&error));
        let expired = way.has_service.then(Expired::default);
        let builder = builder
            .with_bucket_name(&self.bucket)
            .with_client_options(ClientOptions::new().with_allow_http(way.is_plain))
            .with_http_connector(Clients(None))
            .with_retry(retry)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // Each store removes a single object; some have no removal of several, and answer 404 to it.
            .with_disable_bulk_delete(true);
        let builder = match expired {
            Some(expired) => {
                // The service may call its own token expired: that says nothing of credentials that it gave.
                let kept = Kept::new(builder.clone(), expired.clone()).map_err(refused)?;
                builder.with_http_connector(Clients(Some(expired))).with_credentials(Arc::new(kept))
            }
            None => builder,
        };
        let store = builder.build().map_err(refused)?;
        let endpoint = way.endpoint.map(|(at, variable)| format!("{at} ({variable})"));
        let no_thread = |error| format!("no thread for requests to s3://{}: {error}", self.bucket);
        let (queue, requests) = mpsc::unbounded();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Threads of the event loop, for look-ups of names.
            .on_thread_start(descriptors::begin_own_thread)
            .build()
            .map_err(no_thread)?;
        std::thread::Builder::new()
            .name("shoal-s3".to_owned())
            .spawn(move || serve(&runtime, requests))
            .map_err(no_thread)?;
        Ok(Rc::new(Bucket { name: self.bucket.clone(), endpoint, store: Arc::new(store), queue }))
    }
}

type Request = BoxFuture<'static, ()>;

/// Make all requests, until the store is dropped.
fn serve(runtime: &Runtime, mut requests: mpsc::UnboundedReceiver<Request>) {
    descriptors::begin_own_thread();
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
    /// Make a request with so many bytes.
    fn request<T: Send + 'static, F>(&self, bytes: u64, request: impl FnOnce(Arc<AmazonS3>) -> F) -> Reply<T>
    where
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        let (until, wall) = (real::now() + try_time(bytes), real::wall());
        let (mut answer, answered) = oneshot::channel();
        let work = request(self.store.clone());
        let sent = self.queue.unbounded_send(Box::pin(async move {
            // A process that was stopped may come to it late, or a machine that was suspended.
            let (now, passed) = (real::now(), u128::from(real::wall().0.abs_diff(wall.0)));
            if now >= until || passed >= try_time(bytes).as_nanos() || answer.is_canceled() {
                return;
            }
            let mut work = pin!(work);
            let done = match timeout(until - now, select(&mut work, answer.cancellation())).await {
                Ok(Either::Left((done, _))) => done,
                Ok(Either::Right(_)) => return,
                Err(_) => Err(Refusal::Passing("the store does not answer".to_owned())),
            };
            let _ = answer.send(done);
        }));
        let lost = || Refusal::Other("the thread of its requests has ended".to_owned());
        let broken = || {
            let words = "the request ended without an answer: look at the AWS_ variables, as one may be no such value";
            Refusal::Other(words.to_owned())
        };
        Box::pin(async move {
            sent.map_err(|_| lost())?;
            answered.await.map_err(|_| broken())?
        })
    }
}

/// A key, as the crate has it. Ours need no encoding.
fn path(key: &str) -> Result<Path, Refusal> {
    Path::parse(key).map_err(|source| StoreError::InvalidPath { source }.into())
}

/// A version. A store that names none cannot hold conditions.
fn tag(tag: Option<String>) -> Tag {
    Tag(tag.unwrap_or_default())
}

/// An object of a page, whose key the crate has in digits.
fn meta(meta: ObjectMeta) -> Result<Meta, Refusal> {
    let nanos = meta.last_modified.timestamp_nanos_opt().unwrap_or(0);
    let key = pages::key(meta.location.as_ref());
    let key = key.ok_or_else(|| Refusal::Other("a listing that was not checked".to_owned()))?;
    Ok(Meta { key, size: meta.size, tag: tag(meta.e_tag), modified: Time(nanos) })
}

/// Whether it is the marker of a folder that consoles and copying programs make.
fn is_marker(meta: &Meta) -> bool {
    meta.size == 0 && meta.key.ends_with('/')
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
        self.request(data.len() as u64, async move |store: Arc<AmazonS3>| {
            let options = PutOptions { mode, ..PutOptions::default() };
            let put = store.put_opts(&path(&key)?, PutPayload::from(data), options).await?;
            Ok(tag(put.e_tag))
        })
    }

    fn get(&self, key: &str, range: Range<u64>) -> Reply<ObjectBytes> {
        let key = key.to_owned();
        self.request(range.end - range.start, async move |store: Arc<AmazonS3>| {
            let most = range.end - range.start;
            let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
            let got = store.get_opts(&path(&key)?, options).await?;
            let (tag, mut pieces, mut data) =
                (tag(got.meta.e_tag.clone()), got.into_stream(), BytesMut::new());
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                if (data.len() + piece.len()) as u64 > most {
                    let words = format!("the store answers with more than the {most} bytes of the range");
                    return Err(Refusal::Other(words));
                }
                data.extend_from_slice(&piece);
            }
            Ok(ObjectBytes { data: data.freeze(), tag })
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Reply<Keys> {
        let (prefix, offset) = (prefix.to_owned(), after.map(str::to_owned));
        self.request(0, async move |store: Arc<AmazonS3>| {
            let mut page_token = None;
            loop {
                let options = PaginatedListOptions {
                    offset: offset.clone(),
                    max_keys: Some(most),
                    page_token,
                    ..PaginatedListOptions::default()
                };
                let page = store.list_paginated(Some(&prefix), options).await?;
                let is_empty = page.result.objects.is_empty();
                let found = page.result.objects.into_iter().map(meta);
                let found = found.filter(|meta| !meta.as_ref().is_ok_and(is_marker));
                let found: Vec<Meta> = found.collect::<Result<_, _>>()?;
                page_token = page.page_token;
                // A page of markers alone.
                if page_token.is_none() || is_empty || !found.is_empty() {
                    return Ok(Keys { found, has_more: page_token.is_some() });
                }
            }
        })
    }

    fn delete(&self, key: &str) -> Reply<()> {
        let key = key.to_owned();
        self.request(0, async move |store: Arc<AmazonS3>| Ok(store.delete(&path(&key)?).await?))
    }
}

#[cfg(test)]
mod tests;
