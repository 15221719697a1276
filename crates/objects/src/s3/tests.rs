//! Addresses, answers of stores, and foreign keys in listings.

use super::answers::WORDS_MAX;
use super::*;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc;

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

/// An error as the crate makes it: words with the key, and the answer as their source.
#[derive(Debug)]
struct Performed {
    words: String,
    inner: Option<Box<Performed>>,
}

impl fmt::Display for Performed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Error for Performed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.inner.as_deref().map(|inner| inner as _)
    }
}

fn performed(url: &str, answer: &str) -> Box<Performed> {
    let inner = Performed { words: answer.to_owned(), inner: None };
    let words = format!("Error performing PUT {url} in 1ms - {answer}");
    Box::new(Performed { words, inner: Some(Box::new(inner)) })
}

fn generic(url: &str, answer: &str) -> Refusal {
    StoreError::Generic { store: "S3", source: performed(url, answer) }.into()
}

#[test]
fn an_answer_is_taken_for_what_its_number_and_its_code_say_and_not_for_a_word_of_its_key() {
    let keys = ["a", "NoSuchBucket", "status code: 400", &"k".repeat(900)];
    for key in keys {
        for host in ["127.0.0.1", "169.254.169.254"] {
            let url = format!("http://{host}/bucket/{key}");
            let of = |words: &str| generic(&url, &format!("Server returned non-2xx status code: {words}"));
            assert!(matches!(of("503 Service Unavailable: x"), Refusal::Passing(_)), "{url}");
            assert!(matches!(of("400 Bad Request: x"), Refusal::Other(_)), "{url}");
            assert!(matches!(of("501 Not Implemented: x"), Refusal::NotOffered(_)), "{url}");
            let named = format!("404 Not Found: <Code>NoSuchKey</Code><Key>{key}</Key>");
            assert!(matches!(of(&named), Refusal::Other(_)), "{url}");
            assert_eq!(of("404 Not Found: <Error><Code>NoSuchBucket</Code></Error>"), Refusal::NoBucket);
            assert!(matches!(generic(&url, "HTTP error: error sending request"), Refusal::Passing(_)));
            let words = match of(&format!("400 Bad Request: {}", "x".repeat(900))) {
                Refusal::Other(words) => words,
                other => panic!("{other:?}"),
            };
            assert!(words.len() <= WORDS_MAX);
        }
    }
    let credentials = generic("http://169.254.169.254/latest/api/token", "HTTP error: no route");
    assert!(matches!(credentials, Refusal::Denied(_)));
}

#[test]
fn a_refusal_of_a_list_or_of_one_key_of_a_removal_is_one_of_the_credentials() {
    let removed = |code: &str, key: &str| -> Refusal {
        let words = format!("DeleteObjects request failed for key {key}: Access Denied. (code: {code})");
        let source = Box::new(Performed { words, inner: None });
        StoreError::Generic { store: "S3", source }.into()
    };
    for key in ["a", "(code: SlowDown)", "NoSuchBucket"] {
        assert!(matches!(removed("AccessDenied", key), Refusal::Denied(_)), "{key}");
        assert!(matches!(removed("InvalidAccessKeyId", key), Refusal::Denied(_)), "{key}");
        assert!(matches!(removed("SlowDown", key), Refusal::Passing(_)), "{key}");
        assert!(matches!(removed("InternalError", key), Refusal::Passing(_)), "{key}");
        assert!(matches!(removed("NotImplemented", key), Refusal::NotOffered(_)), "{key}");
        assert_eq!(removed("NoSuchBucket", key), Refusal::NoBucket);
    }
    let listed = |words: &str| -> Refusal {
        let inner = performed("http://h/b?list-type=2", &format!("Server returned {words}"));
        let words = format!("Error performing list request: {inner}");
        StoreError::Generic { store: "S3", source: Box::new(Performed { words, inner: Some(inner) }) }.into()
    };
    for words in
        ["non-2xx status code: 403 Forbidden: <Code>AccessDenied</Code>", "non-2xx status code: 401 x: "]
    {
        assert!(matches!(listed(words), Refusal::Denied(_)), "{words}");
    }
    let within = |code: &str| listed(&format!("error response: <Error><Code>{code}</Code></Error>"));
    assert!(matches!(within("AccessDenied"), Refusal::Denied(_)));
    assert!(matches!(within("InternalError"), Refusal::Passing(_)));
    assert!(matches!(within("Odd"), Refusal::Other(_)));
}

/// Answer each request with a refusal, and say so.
fn refuses(called: &'static str, said: &mpsc::Sender<&'static str>) -> String {
    let (listener, said) = (TcpListener::bind("127.0.0.1:0").unwrap(), said.clone());
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 4096]);
            said.send(called).unwrap();
            let _ = connection
                .write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    address
}

#[test]
fn a_store_on_this_machine_is_reached_past_the_proxy_of_the_environment() {
    const IS_CHILD: &str = "SHOAL_OBJECTS_ONE_REQUEST";
    if std::env::var_os(IS_CHILD).is_some() {
        return real::run("test", async |env: Env| {
            let store = S3::new("bucket").reach(&env).unwrap();
            assert!(matches!(store.list("", None, 1).await, Err(Refusal::Denied(_))));
        });
    }
    let (say, said) = mpsc::channel();
    let (store, proxy) = (refuses("store", &say), refuses("proxy", &say));
    let port = store.rsplit(':').next().unwrap();
    for host in ["127.0.0.1", "localhost"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([
            "--exact",
            "s3::tests::a_store_on_this_machine_is_reached_past_the_proxy_of_the_environment",
        ]);
        child.env(IS_CHILD, "1").env("AWS_ENDPOINT_URL", format!("http://{host}:{port}"));
        child.env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b");
        for variable in ["AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP", "NO_PROXY", "no_proxy", "REQUEST_METHOD"] {
            child.env_remove(variable);
        }
        for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            child.env(variable, &proxy);
        }
        let output = child.output().unwrap();
        assert!(output.status.success(), "{host}: {}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(said.try_iter().collect::<Vec<_>>(), ["store"], "{host}");
    }
}

#[test]
fn a_conflict_with_another_request_is_no_answer_to_a_condition() {
    let conflict = |code: &str| -> Refusal {
        let words = format!("Server returned non-2xx status code: 409 Conflict: <Code>{code}</Code>");
        let source = performed("http://h/b/k", &words);
        StoreError::AlreadyExists { path: "k".to_owned(), source }.into()
    };
    assert!(matches!(conflict("ConditionalRequestConflict"), Refusal::Passing(_)));
    assert!(matches!(conflict("OperationAborted"), Refusal::Passing(_)));
    assert_eq!(conflict("KeyAlreadyExists"), Refusal::Condition);
    let source = performed("http://h/b/k", "Server returned non-2xx status code: 412 Precondition Failed: ");
    let exists = StoreError::AlreadyExists { path: "k".to_owned(), source };
    assert_eq!(Refusal::from(exists), Refusal::Condition);
}

#[test]
fn a_key_that_cannot_be_read_is_named_with_the_remedy() {
    let source = Path::parse("a//b").unwrap_err();
    match Refusal::from(StoreError::InvalidPath { source }) {
        Refusal::Other(words) => {
            assert!(words.contains("a//b") && words.contains("remove that object"), "{words}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn markers_of_folders_are_dropped_from_a_listing() {
    let meta = |key: &str, size| Meta { key: key.to_owned(), size, tag: tag(None), modified: Time(0) };
    let left = |found: &[(&str, u64)], after: Option<&str>| -> Vec<String> {
        let found = found.iter().map(|(key, size)| meta(key, *size)).collect();
        without_markers(found, "n/1/", after).into_iter().map(|meta| meta.key).collect()
    };
    // As the crate gives them: `n/1/`, `n/1/x/` after `n/1/x` and after `n/1/x-y`.
    assert_eq!(left(&[("n/1", 0), ("n/1/a", 90)], None), ["n/1/a"]);
    assert_eq!(left(&[("n/1/x", 90), ("n/1/x", 0)], None), ["n/1/x"]);
    assert_eq!(left(&[("n/1/x-y", 90), ("n/1/x", 0), ("n/1/z", 90)], None), ["n/1/x-y", "n/1/z"]);
    assert_eq!(left(&[("n/1/x", 0)], Some("n/1/x-y")), Vec::<String>::new());
    // Objects with bytes are no markers: their order is checked.
    assert_eq!(left(&[("n/1/x-y", 90), ("n/1/x", 90)], None), ["n/1/x-y", "n/1/x"]);
}

#[test]
fn an_address_without_encryption_is_taken_on_this_machine_or_by_the_user_s_word() {
    for plain in ["http://127.0.0.1:9000", "http://localhost", "HTTP://[::1]:9000/x", "http://127.8.0.1/"] {
        assert_eq!(may_be_plain(Some(plain), false), Ok(true), "{plain}");
    }
    for coded in [None, Some("https://s3.example")] {
        assert_eq!(may_be_plain(coded, false), Ok(false));
    }
    for away in ["http://10.0.0.9:9000", "http://localhost@10.0.0.9", "http://127.0.0.1.example"] {
        assert!(may_be_plain(Some(away), false).unwrap_err().contains("AWS_ALLOW_HTTP=true"), "{away}");
        assert_eq!(may_be_plain(Some(away), true), Ok(true));
    }
}
