//! Addresses, answers of stores, and foreign keys in listings.

use super::answers::WORDS_MAX;
use super::clients::is_near;
use super::settings::may_be_plain;
use super::*;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;

mod faults;

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
    let removed = |words: &str| -> Refusal {
        let source = performed("http://h/b/k", &format!("Server returned non-2xx status code: {words}"));
        StoreError::PermissionDenied { path: "k".to_owned(), source }.into()
    };
    assert!(matches!(removed("403 Forbidden: <Code>AccessDenied</Code>"), Refusal::Denied(_)));
    assert_eq!(removed("404 Not Found: <Code>NoSuchBucket</Code>"), Refusal::NoBucket);
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
}

/// Read a request to its end. Its head.
fn read(connection: &TcpStream) -> String {
    let (mut reader, mut len, mut head) = (BufReader::new(connection), 0, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) < 3 {
            break;
        }
        let lower = line.to_ascii_lowercase();
        len = lower.strip_prefix("content-length:").map_or(len, |text| text.trim().parse().unwrap());
        head.push_str(&line);
    }
    let _ = std::io::copy(&mut reader.take(len), &mut std::io::sink());
    head
}

/// Give each request this answer (none if it is empty), and say so. The port.
fn answers(called: &'static str, answer: &str, said: &mpsc::Sender<&'static str>) -> u16 {
    let (listener, said) = (TcpListener::bind("127.0.0.1:0").unwrap(), said.clone());
    let (port, answer) = (listener.local_addr().unwrap().port(), answer.to_owned());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            read(&connection);
            let _ = said.send(called);
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    port
}

/// An answer with a head and a body.
fn with_body(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// The turn of a test that runs in a process of its own.
const TURN: &str = "SHOAL_OBJECTS_TURN";

fn turn() -> Option<usize> {
    std::env::var(TURN).ok().map(|text| text.parse().unwrap())
}

/// Run a test of this module in a process of its own, with these variables alone.
fn run_again(test: &str, turn: usize, variables: &[(&str, &str)]) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("s3::tests::{test}")]).env_clear().env(TURN, turn.to_string());
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{turn}: {said}");
    // A name that no test has is no failure for the program.
    assert!(said.contains("test result: ok. 1 passed"), "no test {test}: {said}");
}

/// Two variables of the environment.
type Two<'a> = [(&'a str, &'a str); 2];

const KEYS: Two<'_> = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];

/// The refusal of one request to the store of the environment.
fn refusal(verb: &'static str) -> Refusal {
    real::run("test", async move |env: Env| {
        let store = S3::new("bucket").reach(&env).unwrap();
        let refused = match verb {
            "get" => store.get("k", 0..9).await.map(drop),
            "put" => store.put("k", Bytes::from_static(b"x"), When::Absent).await.map(drop),
            "list" => store.list("", None, 1).await.map(drop),
            _ => store.delete("k").await,
        };
        refused.unwrap_err()
    })
}

#[test]
fn a_store_on_this_machine_is_reached_past_the_proxy_of_the_environment() {
    is_reached(
        "a_store_on_this_machine_is_reached_past_the_proxy_of_the_environment",
        &[("127.0.0.1", KEYS, "store"), ("localhost", KEYS, "store")],
    );
}

#[test]
fn a_service_that_gives_credentials_is_reached_as_its_address_says_and_not_as_that_of_the_store() {
    let service = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/keys"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/dev/null"),
    ];
    is_reached(
        "a_service_that_gives_credentials_is_reached_as_its_address_says_and_not_as_that_of_the_store",
        &[("127.0.0.1", service, "proxy")],
    );
    for near in ["127.0.0.1", "[::1]", "LOCALHOST", "169.254.170.2", "169.254.169.254", "[fd00:ec2::23]"] {
        assert!(is_near(near), "{near}");
    }
    for far in ["192.0.2.1", "sts.eu-west-1.amazonaws.com", "[fd00:ec3::23]", "127.0.0.1.example"] {
        assert!(!is_near(far), "{far}");
    }
}

/// The first request to a store at a host, with these credentials, and a proxy in the environment, goes to
/// the one that is named.
fn is_reached(test: &str, turns: &[(&str, Two<'_>, &str)]) {
    if turn().is_some() {
        return assert!(matches!(refusal("list"), Refusal::Denied(_)));
    }
    let (say, said) = mpsc::channel();
    let refuses = |called| answers(called, &with_body("403 Forbidden", ""), &say);
    let (port, proxy) = (refuses("store"), format!("http://127.0.0.1:{}", refuses("proxy")));
    let proxies = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"].map(|name| (name, proxy.as_str()));
    for (turn, (host, credentials, asked)) in turns.iter().enumerate() {
        let endpoint = format!("http://{host}:{port}");
        let variables = [&proxies[..], credentials, &[("AWS_ENDPOINT_URL", endpoint.as_str())]].concat();
        run_again(test, turn, &variables);
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [*asked], "{host}");
    }
}

#[test]
fn a_redirect_is_not_followed_and_a_user_in_the_address_is_refused_and_not_shown() {
    match turn() {
        Some(0) => match refusal("get") {
            Refusal::Other(words) => {
                return assert!(words.contains("307") && words.contains("AWS_REGION"), "{words}");
            }
            other => panic!("{other:?}"),
        },
        Some(_) => {
            return real::run("test", async |env: Env| {
                let words = S3::new("bucket").reach(&env).err().unwrap();
                assert!(words.contains("AWS_ENDPOINT_URL has a user"), "{words}");
                assert!(!words.contains("someone") && !words.contains("secret"), "{words}");
            });
        }
        None => {}
    }
    let (say, said) = mpsc::channel();
    let other = answers("other", &with_body("200 OK\r\nETag: \"a\"", ""), &say);
    let head = format!("307 Temporary Redirect\r\nLocation: http://127.0.0.1:{other}/bucket/k");
    let store = answers("store", &with_body(&head, ""), &say);
    let test = "a_redirect_is_not_followed_and_a_user_in_the_address_is_refused_and_not_shown";
    for (turn, (user, asked)) in [("", &["store"][..]), ("someone:secret@", &[][..])].into_iter().enumerate()
    {
        let endpoint = format!("http://{user}127.0.0.1:{store}");
        run_again(test, turn, &[&KEYS[..], &[("AWS_ENDPOINT_URL", endpoint.as_str())]].concat());
        assert_eq!(said.try_iter().collect::<Vec<_>>(), asked);
    }
}

#[test]
fn a_request_is_repeated_only_where_its_answer_may_be_another_one_later() {
    let removed = "<Error><Key>k</Key><Code>NoSuchKey</Code><Message>m</Message></Error>";
    let partial = "200 OK\r\nETag: \"a\"\r\nLast-Modified: Mon, 30 Nov 2026 00:00:00 GMT";
    // Words of the refusal; none: it is another one.
    let cases = [
        ("get", with_body("301 Moved Permanently", ""), Some("AWS_REGION")),
        ("get", with_body(partial, "x"), Some("non-partial")),
        ("put", with_body("200 OK", ""), Some("ETag")),
        ("list", with_body("200 OK", "<odd>"), Some("ListBucketResult")),
        ("delete", with_body("404 Not Found", removed), None),
        ("get", String::new(), None),
    ];
    if let Some(turn) = turn() {
        let (verb, _, said) = &cases[turn];
        return match (refusal(verb), said) {
            (Refusal::Other(words), Some(said)) => assert!(words.contains(said), "{words}"),
            (Refusal::Absent, None) => assert_eq!(*verb, "delete"),
            (Refusal::Passing(_), None) => assert_eq!(*verb, "get"),
            other => panic!("{other:?}"),
        };
    }
    for (turn, (_, answer, _)) in cases.iter().enumerate() {
        let port = answers("store", answer, &mpsc::channel().0);
        let endpoint = format!("http://127.0.0.1:{port}");
        let variables = [&KEYS[..], &[("AWS_ENDPOINT_URL", endpoint.as_str())]].concat();
        run_again("a_request_is_repeated_only_where_its_answer_may_be_another_one_later", turn, &variables);
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
    assert!(is_marker(&meta("n/1/", 0)) && is_marker(&meta("n/1/x/", 0)));
    // Others are listed, and their order is checked.
    assert!(!is_marker(&meta("n/1/x", 0)) && !is_marker(&meta("n/1/x/", 9)));
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
