//! Answers that are none of S3's, settings that are wrong, and credentials that end, each in a process of its
//! own, as it reads the environment.

use super::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// A server that answers each request by its first line and its head. The port.
fn serves(answer: impl Fn(&str) -> String + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let head = read(&connection);
            let _ = connection.write_all(answer(&head).as_bytes());
        }
    });
    port
}

fn at(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// A listing with these elements.
fn listing(inner: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inner}\
         </ListBucketResult>"
    )
}

fn listed(key: &str, size: u64) -> String {
    format!(
        "<Contents><Key>{key}</Key><LastModified>2026-11-30T00:00:00.000Z</LastModified><ETag>\"a\"</ETag>\
         <Size>{size}</Size></Contents>"
    )
}

#[test]
fn an_answer_to_a_list_that_is_no_whole_listing_is_refused() {
    let more = "<IsTruncated>true</IsTruncated>";
    let last = "<IsTruncated>false</IsTruncated>";
    let cases = [
        ("<Error/>".to_owned(), "ListBucketResult"),
        ("<html><body>Welcome</body></html>".to_owned(), "ListBucketResult"),
        ("<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>".to_owned(), "ListBucketResult"),
        (String::new(), "ListBucketResult"),
        (listing(""), "IsTruncated"),
        (listing(&format!("{}<IsTruncated>perhaps</IsTruncated>", listed("a", 1))), "IsTruncated"),
        (listing(&format!("<Contents>{last}</Contents>")), "IsTruncated"),
        // The first version of listings.
        (listing(&format!("{more}<NextMarker>a</NextMarker>{}", listed("a", 1))), "NextContinuationToken"),
        (listing(&format!("{more}<NextContinuationToken></NextContinuationToken>")), "NextContinuationToken"),
        (listing(last).replace("</ListBucketResult>", ""), "ends"),
    ];
    if let Some(turn) = turn() {
        return match refusal("list") {
            Refusal::Other(words) => assert!(words.contains(cases[turn].1), "{turn}: {words}"),
            other => panic!("{turn}: {other:?}"),
        };
    }
    for (turn, (body, _)) in cases.into_iter().enumerate() {
        let port = serves(move |_| with_body("200 OK", &body));
        let endpoint = at(port);
        let variables = [&KEYS[..], &[("AWS_ENDPOINT_URL", endpoint.as_str())]].concat();
        run_again("faults::an_answer_to_a_list_that_is_no_whole_listing_is_refused", turn, &variables);
    }
}

#[test]
fn an_error_in_an_answer_of_200_to_a_list_is_judged_by_its_code() {
    let test = "faults::an_error_in_an_answer_of_200_to_a_list_is_judged_by_its_code";
    let codes = ["SlowDown", "InternalError", "AccessDenied", "NoSuchBucket", "NotImplemented", "Odd"];
    if let Some(turn) = turn() {
        let refused = refusal("list");
        let is_it = match (codes[turn], &refused) {
            ("SlowDown" | "InternalError", Refusal::Passing(words))
            | ("AccessDenied", Refusal::Denied(words))
            | ("NotImplemented", Refusal::NotOffered(words))
            | ("Odd", Refusal::Other(words)) => words.contains(codes[turn]),
            ("NoSuchBucket", Refusal::NoBucket) => true,
            _ => false,
        };
        return assert!(is_it, "{}: {refused:?}", codes[turn]);
    }
    for (turn, code) in codes.into_iter().enumerate() {
        let body = format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><Message>m</Message></Error>");
        let port = serves(move |_| with_body("200 OK", &body));
        run_again(test, turn, &[&KEYS[..], &[("AWS_ENDPOINT_URL", at(port).as_str())]].concat());
    }
}

#[test]
fn a_token_after_the_last_page_is_dropped() {
    let test = "faults::a_token_after_the_last_page_is_dropped";
    let last = "<IsTruncated>false</IsTruncated>";
    let pages = [
        format!("{last}{}<NextContinuationToken/>", listed("n/1/a", 7)),
        format!("<NextContinuationToken></NextContinuationToken>{}{last}", listed("n/1/a", 7)),
        format!("{last}<NextContinuationToken>t</NextContinuationToken>{}", listed("n/1/a", 7)),
    ];
    if turn().is_some() {
        let page = page();
        let keys: Vec<&str> = page.found.iter().map(|meta| meta.key.as_str()).collect();
        return assert!(keys == ["n/1/a"] && !page.has_more, "{page:?}");
    }
    for (turn, inner) in pages.into_iter().enumerate() {
        let port = serves(move |_| with_body("200 OK", &listing(&inner)));
        run_again(test, turn, &[&KEYS[..], &[("AWS_ENDPOINT_URL", at(port).as_str())]].concat());
    }
}

#[test]
fn an_answer_with_another_root_is_refused_at_its_first_tag_and_each_costs_a_few_times_its_bytes() {
    let test = "faults::an_answer_with_another_root_is_refused_at_its_first_tag_and_each_costs_a_few_times_its_bytes";
    if turn().is_none() {
        return run_again(test, 0, &[]);
    }
    let refused = |body: String| pages::checked(body.as_bytes()).unwrap_err();
    // A page for browsers need be no whole document.
    let words = refused("<!-- x --><html><br></html>".to_owned());
    assert!(words.contains("another element is its root"), "{words}");
    let long = "x".repeat(pages::PAGE_BYTES_MAX - 100);
    assert!(refused(format!("<{long}>")).contains("another element is its root"));
    let below = |inner: &str| listing(&format!("{}{inner}{}", "<a>".repeat(14), "</a>".repeat(14)));
    assert!(refused(below(&"<b/>".repeat(500_000))).contains("IsTruncated"));
    let name = &long[..long.len() / 2 - 200];
    assert!(refused(below(&format!("<{name}></{name}>"))).contains("IsTruncated"));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: usize = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most << 10 < 8 * pages::PAGE_BYTES_MAX, "{most} kB");
}

/// The page of the store of the environment.
fn page() -> Keys {
    real::run("test", async move |env: Env| {
        S3::new("bucket").reach(&env).unwrap().list("n/1/", None, 9).await.unwrap()
    })
}

#[test]
fn keys_of_other_programs_come_in_a_listing_as_they_are() {
    let test = "faults::keys_of_other_programs_come_in_a_listing_as_they_are";
    let keys =
        ["n/1//x", "n/1/../y", "n/1/a", "n/1/a&#1;b", "n/1/a&amp;b", "n/1/a%2Fb", "n/1/<![CDATA[b<c]]>"];
    if turn().is_some() {
        let page = page();
        let keys: Vec<&str> = page.found.iter().map(|meta| meta.key.as_str()).collect();
        assert_eq!(keys, ["n/1//x", "n/1/../y", "n/1/a", "n/1/a\u{1}b", "n/1/a&b", "n/1/a%2Fb", "n/1/b<c"]);
        assert!(page.has_more && page.found.iter().all(|meta| meta.size == 7 && meta.tag.0 == "\"a\""));
        return;
    }
    let mut inner =
        "<!-- a page --><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
            .to_owned();
    // A marker of a folder is dropped, an object with bytes is not.
    inner.push_str(&listed("n/1/", 0));
    keys.iter().for_each(|key| inner.push_str(&listed(key, 7)));
    let port = serves(move |_| with_body("200 OK", &listing(&inner)));
    run_again(test, 0, &[&KEYS[..], &[("AWS_ENDPOINT_URL", at(port).as_str())]].concat());
}

#[test]
fn an_answer_to_a_list_and_one_without_success_are_read_to_a_limit() {
    let test = "faults::an_answer_to_a_list_and_one_without_success_are_read_to_a_limit";
    let cases = [("list", "200 OK"), ("get", "400 Bad Request"), ("put", "503 Service Unavailable")];
    if let Some(turn) = turn() {
        let (begun, (verb, _)) = (real::now(), cases[turn]);
        match refusal(verb) {
            Refusal::Other(words) => assert!(words.contains("bytes"), "{verb}: {words}"),
            other => panic!("{verb}: {other:?} after {:?}", real::now() - begun),
        }
        return;
    }
    for (turn, (_, status)) in cases.into_iter().enumerate() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                read(&connection);
                let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n<ListBucketResult>");
                let _ = connection.write_all(head.as_bytes());
                let piece = "<IsTruncated>false</IsTruncated>".repeat(1000);
                // It is quick: a limit of time alone would cost its memory.
                while connection.write_all(piece.as_bytes()).is_ok() {}
            }
        });
        run_again(test, turn, &[&KEYS[..], &[("AWS_ENDPOINT_URL", at(port).as_str())]].concat());
    }
}

#[test]
fn one_key_is_removed_by_a_request_that_each_store_has() {
    let test = "faults::one_key_is_removed_by_a_request_that_each_store_has";
    if let Some(turn) = turn() {
        let removed =
            real::run("test", async move |env: Env| S3::new("bucket").reach(&env).unwrap().delete("k").await);
        return match turn {
            0 => assert_eq!(removed, Ok(())),
            1 => assert_eq!(removed, Err(Refusal::Absent)),
            _ => assert!(matches!(removed, Err(Refusal::Denied(_))), "{removed:?}"),
        };
    }
    for (turn, answer) in ["204 No Content", "404 Not Found", "403 Forbidden"].into_iter().enumerate() {
        let port = serves(move |head| match head.starts_with("DELETE /bucket/k ") {
            true => with_body(answer, ""),
            // A store without bulk removal.
            false => with_body("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>"),
        });
        run_again(test, turn, &[&KEYS[..], &[("AWS_ENDPOINT_URL", at(port).as_str())]].concat());
    }
}

#[test]
fn a_request_that_came_too_slowly_is_repeated_and_a_wrong_clock_is_named() {
    let of = |status: &str, code: &str| {
        let words =
            format!("Server returned non-2xx status code: {status}: <Error><Code>{code}</Code></Error>");
        generic("http://h/b/RequestTimeout", &words)
    };
    assert!(matches!(of("400 Bad Request", "RequestTimeout"), Refusal::Passing(_)));
    assert!(matches!(of("400 Bad Request", "InvalidRequest"), Refusal::Other(_)));
    match of("400 Bad Request", "ExpiredToken") {
        Refusal::Denied(words) => assert!(words.contains("AWS_SESSION_TOKEN"), "{words}"),
        other => panic!("{other:?}"),
    }
    let words = "Server returned non-2xx status code: 403 Forbidden: <Code>RequestTimeTooSkewed</Code>";
    let source = performed("http://h/b/k", words);
    match Refusal::from(StoreError::PermissionDenied { path: "k".to_owned(), source }) {
        Refusal::Other(words) => assert!(words.contains("clock"), "{words}"),
        other => panic!("{other:?}"),
    }
}

/// The answer of a service of credentials.
fn credentials(token: &str, expires: &str) -> String {
    let text = format!(
        "{{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\",\"Token\":\"{token}\",\"Expiration\":\"{expires}\"}}"
    );
    with_body("200 OK", &text)
}

/// A service of credentials that gives each of these answers once, and the last one for ever.
fn gives(answers: &[String]) -> u16 {
    let left = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
    serves(move |_| {
        let mut left = left.lock().unwrap();
        if left.len() > 1 { left.pop_front().unwrap() } else { left[0].clone() }
    })
}

/// Run a test again with credentials from a service.
fn run_with_service(test: &str, service: u16, store: u16) {
    let (service, store) = (format!("{}/keys", at(service)), at(store));
    let variables = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/dev/null"),
        ("AWS_ENDPOINT_URL", store.as_str()),
    ];
    run_again(test, 0, &variables);
}

const LATER: &str = "2099-01-01T00:00:00Z";

/// The results of requests after each other, with a pause between.
fn results(count: usize) -> Vec<Result<(), Refusal>> {
    real::run("test", async move |env: Env| {
        let (store, mut results) = (S3::new("bucket").reach(&env).unwrap(), Vec::new());
        for _ in 0..count {
            results.push(store.get("k", 0..9).await.map(drop));
            env.sleep(Duration::from_millis(300)).await;
        }
        results
    })
}

const FOUND: &str = "206 Partial Content\r\nContent-Range: bytes 0-0/1\r\nETag: \"a\"\r\nLast-Modified: Mon, 30 Nov 2026 00:00:00 GMT";

#[test]
fn old_credentials_are_used_while_their_service_is_away() {
    let test = "faults::old_credentials_are_used_while_their_service_is_away";
    if turn().is_some() {
        let results = results(4);
        return assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    // They end so soon that new ones are asked for with each request.
    let soon = credentials("one", "2020-01-01T00:00:00Z");
    let service = gives(&[soon, with_body("500 Internal Server Error", "")]);
    let store = serves(|head| match head.contains("x-amz-security-token: one") {
        true => with_body(FOUND, "x"),
        false => with_body("403 Forbidden", ""),
    });
    run_with_service(test, service, store);
}

#[test]
fn old_credentials_are_used_while_their_service_calls_its_own_token_expired() {
    let test = "faults::old_credentials_are_used_while_their_service_calls_its_own_token_expired";
    if turn().is_some() {
        let results = results(4);
        return assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    let soon = credentials("one", "2020-01-01T00:00:00Z");
    // As the service for web identities says it.
    let expired = "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredTokenException</Code>\
                   <Message>Token expired</Message></Error></ErrorResponse>";
    let service = gives(&[soon, with_body("400 Bad Request", expired)]);
    let store = serves(|head| match head.contains("x-amz-security-token: one") {
        true => with_body(FOUND, "x"),
        false => with_body("403 Forbidden", ""),
    });
    run_with_service(test, service, store);
}

#[test]
fn credentials_that_the_store_calls_expired_are_got_anew() {
    let test = "faults::credentials_that_the_store_calls_expired_are_got_anew";
    if turn().is_some() {
        let results = results(4);
        assert!(matches!(results[0], Err(Refusal::Passing(_))), "{results:?}");
        // The service is away for a moment.
        assert!(matches!(results[1], Err(Refusal::Passing(_))), "{results:?}");
        return assert!(results[2..].iter().all(Result::is_ok), "{results:?}");
    }
    let (one, two) = (credentials("one", LATER), credentials("two", LATER));
    let service = gives(&[one, with_body("403 Forbidden", ""), two]);
    let store = serves(|head| match head.contains("x-amz-security-token: two") {
        true => with_body(FOUND, "x"),
        false => with_body("400 Bad Request", "<Error><Code>ExpiredToken</Code></Error>"),
    });
    run_with_service(test, service, store);
}

#[test]
fn settings_that_are_wrong_are_named_with_the_remedy() {
    let with = |name: &'static str, value: &'static str, said: &'static str| (name, value, said);
    let url = "AWS_ENDPOINT_URL";
    let cases = [
        with(url, "10.0.0.9:9000", "http://"),
        with(url, "localhost:9000", "http://"),
        with(url, "minio", "http://"),
        with(url, "", "unset"),
        with(url, " ", "http://"),
        with(url, "http://", "http://"),
        with(url, "http://:9000", "http://"),
        with(url, "http://127.0.0.1:99999", "http://"),
        with(url, "http://127.0.0.1:port", "http://"),
        with(url, "http://127.0.0.1:9000 ", "http://"),
        with(url, "http://127.0.0.1 :9000", "http://"),
        with(url, "http://[::1", "http://"),
        with(url, "https://h\u{e4}user.example", "http://"),
        with(url, "http://127.0.0.1:9000/?x=y", "http://"),
        with(url, "http://127.0.0.1:9000/#x", "http://"),
        with(url, "ftp://127.0.0.1", "http://"),
        with("AWS_ENDPOINT_URL_S3", "10.0.0.9:9000", "AWS_ENDPOINT_URL_S3"),
        with("AWS_REGION", "eu west", "AWS_REGION"),
        with("AWS_REGION", "", "AWS_REGION"),
        with("AWS_DEFAULT_REGION", "", "AWS_DEFAULT_REGION"),
        with("AWS_ACCESS_KEY_ID", "key\n", "AWS_ACCESS_KEY_ID"),
        with("AWS_SESSION_TOKEN", "a token\n", "AWS_SESSION_TOKEN"),
        with("AWS_CONTAINER_CREDENTIALS_FULL_URI", "keys here", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        with("AWS_METADATA_ENDPOINT", "169.254.169.254", "AWS_METADATA_ENDPOINT"),
        with("AWS_SKIP_SIGNATURE", "perhaps", "AWS_ variables"),
    ];
    if let Some(turn) = turn() {
        return real::run("test", async move |env: Env| {
            let (name, value, said) = cases[turn];
            let refused = match S3::new("bucket").reach(&env) {
                Err(words) => words,
                Ok(store) => format!("accepted, then {:?}", store.get("k", 0..9).await),
            };
            assert!(refused.contains(said) && refused.contains("s3://bucket: "), "{name}={value}: {refused}");
        });
    }
    for (turn, (name, value, _)) in cases.into_iter().enumerate() {
        let has_service = ["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_METADATA_ENDPOINT"].contains(&name);
        let keys = if has_service { &[] } else { &KEYS[..] };
        let variables = [keys, &[(name, value)]].concat();
        run_again("faults::settings_that_are_wrong_are_named_with_the_remedy", turn, &variables);
    }
}

#[test]
fn an_address_of_a_service_may_have_a_query_and_is_not_looked_at_where_keys_are_set() {
    let test = "faults::an_address_of_a_service_may_have_a_query_and_is_not_looked_at_where_keys_are_set";
    if turn().is_some() {
        return assert_eq!(results(1), [Ok(())]);
    }
    let service = serves(|head| match head.starts_with("GET /keys?id=1 ") {
        true => credentials("one", LATER),
        false => with_body("404 Not Found", ""),
    });
    let (store, service) = (at(serves(|_| with_body(FOUND, "x"))), format!("{}/keys?id=1", at(service)));
    let with = |address| {
        [
            ("AWS_ENDPOINT_URL", store.as_str()),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", address),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/dev/null"),
        ]
    };
    run_again(test, 0, &[&KEYS[..], &with("keys here")].concat());
    run_again(test, 1, &with(&service));
}

#[test]
fn an_address_with_a_path_is_taken() {
    let test = "faults::an_address_with_a_path_is_taken";
    if turn().is_some() {
        return assert_eq!(results(1), [Ok(())]);
    }
    let port = serves(|head| match head.starts_with("GET /store/bucket/k ") {
        true => with_body(FOUND, "x"),
        false => with_body("404 Not Found", ""),
    });
    let endpoint = format!("{}/store/", at(port));
    run_again(test, 0, &[&KEYS[..], &[("AWS_ENDPOINT_URL", endpoint.as_str())]].concat());
}

#[test]
#[should_panic(expected = "no test")]
fn a_test_that_is_not_there_is_not_passed_in_a_process_of_its_own() {
    run_again("faults::no_such_test", 0, &[]);
}
