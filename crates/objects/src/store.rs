//! The requests to an object store that this crate makes.

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use shoal_env::Env;
use shoal_proto::Time;
use std::ops::Range;
use std::rc::Rc;

/// A version of an object, as its store names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tag(pub String);

/// The condition of a put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum When {
    /// No object has the key (`If-None-Match: *`).
    Absent,
    /// The object of the key has this version (`If-Match`).
    Is(Tag),
}

/// An object without its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta {
    /// Its key.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// Its version.
    pub tag: Tag,
    /// When it was put, by the store's clock.
    pub modified: Time,
}

/// Bytes of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectBytes {
    /// The bytes.
    pub data: Bytes,
    /// The version that they are of.
    pub tag: Tag,
}

/// A page of a listing, in the order of the keys' bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// The objects.
    pub found: Vec<Meta>,
    /// There may be more after the last.
    pub has_more: bool,
}

/// Why a store did not do it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No object has the key.
    Absent,
    /// The condition of a put does not hold.
    Condition,
    /// There is no such bucket.
    NoBucket,
    /// The credentials are missing or wrong, or do not allow it. In words.
    Denied(String),
    /// The store does not offer it. In words.
    NotOffered(String),
    /// It may succeed if it is repeated; it may also have been done. In words.
    Passing(String),
    /// Any other reason, in words.
    Other(String),
}

/// The reply to a request.
pub type Reply<T> = LocalBoxFuture<'static, Result<T, Refusal>>;

/// An object store: one bucket. Each call is one request, and is not repeated.
pub trait Store {
    /// The bucket, as errors name it: `s3://BUCKET`.
    fn called(&self) -> String;

    /// The address at which it is reached, and the setting that names it, if it is known.
    fn endpoint(&self) -> Option<String> {
        None
    }

    /// Put an object if the condition holds. Its version.
    fn put(&self, key: &str, data: Bytes, when: When) -> Reply<Tag>;

    /// The bytes of an object in a range, which begins in the object, and is cut at its end.
    fn get(&self, key: &str, range: Range<u64>) -> Reply<ObjectBytes>;

    /// Objects whose keys begin with `prefix` and come after the key `after`, at most `most` of them.
    fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Reply<Keys>;

    /// Remove an object. One that is not there is no error.
    fn delete(&self, key: &str) -> Reply<()>;
}

/// The way to a store. It is sent to the thread on which the store is then used.
pub trait Reaches: Send {
    /// Reach it. No request is made yet.
    ///
    /// # Errors
    /// In words, with the remedy: a setting that is missing or wrong.
    fn reach(&self, env: &Env) -> Result<Rc<dyn Store>, String>;
}
