// SPDX-License-Identifier: Apache-2.0
//! Request parsing and responses, without sockets.

use std::net::SocketAddr;
use std::time::Duration;

use boot_media::{Content, ContentSegment};
use expect_test::{Expect, expect};
use node_model::Timestamp;
use proptest::prelude::*;

use crate::http::*;

fn client() -> SocketAddr {
    "192.0.2.7:1234".parse().unwrap()
}

/// Ten bytes in memory and ninety zeros.
fn file() -> HttpFile {
    let mut content = Content::from(b"0123456789".to_vec());
    content.push(ContentSegment::Zeros(90));
    HttpFile {
        content,
        media_type: "application/efi",
        etag: Some("abc".into()),
        title: "the agent's kernel".into(),
        machine: Some("node-7".into()),
    }
}

fn format_response(raw: &str) -> String {
    let now = Timestamp::from_secs(784_111_777);
    let mut out = Vec::new();
    let response = match parse_request(raw.as_bytes(), client()) {
        Ok(Some(parsed)) => {
            let response = file_response(&parsed.request, file());
            response.write_head(parsed.persistence, now, &mut out);
            response
        }
        Ok(None) => return "incomplete".to_owned(),
        Err(malformed) => {
            let response = error_response(BootHttpMethod::Get, malformed);
            response.write_head(ConnectionPersistence::Close, now, &mut out);
            response
        }
    };
    let head = String::from_utf8(out).unwrap().replace("\r\n", "\n");
    format!("{head}({} bytes)\n", response.content.length())
}

fn check(raw: &str, expected: Expect) {
    expected.assert_eq(&format_response(raw));
}

#[test]
fn writes_response_heads() {
    check(
        "GET /kernel HTTP/1.1\r\nHost: a\r\n\r\n",
        expect![[r#"
            HTTP/1.1 200 OK
            Date: Sun, 06 Nov 1994 08:49:37 GMT
            Content-Length: 100
            Content-Type: application/efi
            ETag: "abc"
            Accept-Ranges: bytes

            (100 bytes)
        "#]],
    );
    check(
        "HEAD /kernel HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
        expect![[r#"
            HTTP/1.1 200 OK
            Date: Sun, 06 Nov 1994 08:49:37 GMT
            Content-Length: 100
            Content-Type: application/efi
            ETag: "abc"
            Accept-Ranges: bytes
            Connection: keep-alive

            (0 bytes)
        "#]],
    );
    check(
        "GET /kernel HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=5-14\r\n\r\n",
        expect![[r#"
            HTTP/1.1 206 Partial Content
            Date: Sun, 06 Nov 1994 08:49:37 GMT
            Content-Length: 10
            Content-Type: application/efi
            ETag: "abc"
            Content-Range: bytes 5-14/100
            Accept-Ranges: bytes
            Connection: close

            (10 bytes)
        "#]],
    );
    check(
        "GET /kernel HTTP/1.1\r\nHost: a\r\nRange: bytes=100-\r\n\r\n",
        expect![[r#"
            HTTP/1.1 416 Range Not Satisfiable
            Date: Sun, 06 Nov 1994 08:49:37 GMT
            Content-Length: 0
            ETag: "abc"
            Content-Range: bytes */100

            (0 bytes)
        "#]],
    );
    check(
        "GET /kernel HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"abc\"\r\n\r\n",
        expect![[r#"
            HTTP/1.1 304 Not Modified
            Date: Sun, 06 Nov 1994 08:49:37 GMT
            ETag: "abc"

            (0 bytes)
        "#]],
    );
    check(
        "DELETE /kernel HTTP/1.1\r\nHost: a\r\n\r\n",
        expect![[r#"
        HTTP/1.1 405 Method Not Allowed
        Date: Sun, 06 Nov 1994 08:49:37 GMT
        Content-Length: 32
        Content-Type: text/plain; charset=utf-8
        Allow: GET, HEAD
        Connection: close

        (32 bytes)
    "#]],
    );
}

#[test]
fn combines_conditions_and_ranges() {
    for (fields, expected) in [
        ("", "200 100"),
        ("Range: bytes=0-9\r\n", "206 10"),
        ("Range: bytes=-5\r\n", "206 5"),
        ("Range: bytes=0-1,5-6\r\n", "200 100"),
        ("Range: bytes=0-1\r\nRange: bytes=5-6\r\n", "200 100"),
        ("Range: chapters=1-2\r\n", "200 100"),
        ("Range: bytes=200-\r\n", "416 0"),
        ("Range: bytes=0-9\r\nIf-Range: \"abc\"\r\n", "206 10"),
        ("Range: bytes=0-9\r\nIf-Range: \"old\"\r\n", "200 100"),
        ("Range: bytes=0-9\r\nIf-Range: W/\"abc\"\r\n", "200 100"),
        ("Range: bytes=0-9\r\nIf-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "200 100"),
        ("Range: bytes=200-\r\nIf-Range: \"old\"\r\n", "200 100"),
        ("If-None-Match: \"abc\"\r\n", "304 0"),
        ("If-None-Match: W/\"abc\", \"x\"\r\n", "304 0"),
        ("If-None-Match: *\r\n", "304 0"),
        ("If-None-Match: \"old\"\r\n", "200 100"),
        ("If-None-Match: \"old\"\r\nRange: bytes=0-9\r\n", "206 10"),
        ("If-None-Match: \"abc\"\r\nRange: bytes=200-\r\n", "304 0"),
    ] {
        let raw = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let parsed = parse_request(raw.as_bytes(), client()).unwrap().unwrap();
        let response = file_response(&parsed.request, file());
        let summary = format!("{} {}", response.status.code(), response.content.length());
        assert_eq!(summary, expected, "{fields}");
    }
}

#[test]
fn refusals_have_status_and_retry_after() {
    let why = HttpRefusalReason::Unavailable {
        reason: "no image yet".into(),
        retry_after: Duration::ZERO,
    };
    for (reason, code) in [
        (HttpRefusalReason::NotFound, 404),
        (HttpRefusalReason::Gone, 410),
        (HttpRefusalReason::Forbidden, 403),
        (why, 503),
    ] {
        let response = refusal_response(BootHttpMethod::Get, &reason);
        assert_eq!(response.status.code(), code);
        assert_eq!(response.content_length, Some(response.content.length()));
        let mut head = Vec::new();
        response.write_head(ConnectionPersistence::KeepAlive, Timestamp(0), &mut head);
        let head = String::from_utf8(head).unwrap();
        assert_eq!(head.contains("Retry-After: 1\r\n"), code == 503, "{head}");
        let without = refusal_response(BootHttpMethod::Head, &reason);
        assert_eq!(
            (without.content_length, without.content.length()),
            (response.content_length, 0)
        );
    }
}

#[test]
fn rejects_malformed_requests() {
    let long_path = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(MAX_TARGET_BYTES));
    let longer_path = format!("GET /{}", "a".repeat(MAX_HEAD_BYTES));
    let long_field = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(MAX_HEAD_BYTES));
    let many_fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(100));
    for (raw, expected) in [
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            BootHttpRequestError::Method,
        ),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n", BootHttpRequestError::Method),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", BootHttpRequestError::Body),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            BootHttpRequestError::Body,
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
            BootHttpRequestError::Expectation,
        ),
        ("GET / HTTP/1.1\r\n\r\n", BootHttpRequestError::Host),
        ("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", BootHttpRequestError::Host),
        ("GET / HTTP/2.0\r\n\r\n", BootHttpRequestError::Version),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BootHttpRequestError::Version),
        ("GET /\r\n\r\n", BootHttpRequestError::Syntax),
        ("\u{16}\u{3}\u{1}\u{2}", BootHttpRequestError::Syntax),
        ("GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", BootHttpRequestError::Syntax),
        (
            "GET /../a HTTP/1.1\r\nHost: a\r\n\r\n",
            BootHttpRequestError::Path(RequestPathError::Segment),
        ),
        (
            "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
            BootHttpRequestError::Path(RequestPathError::NotAPath),
        ),
        (&long_path, BootHttpRequestError::TargetTooLong),
        (&longer_path, BootHttpRequestError::TargetTooLong),
        (&long_field, BootHttpRequestError::HeadTooLong),
        (&many_fields, BootHttpRequestError::HeadTooLong),
    ] {
        let found = parse_request(raw.as_bytes(), client());
        assert_eq!(found.err(), Some(expected), "{}", &raw[..raw.len().min(60)]);
    }
}

#[test]
fn parses_requests() {
    let raw = "GET http://boot:8080/a%20b?x=1&y HTTP/1.1\r\nHost: other\r\nUser-Agent: iPXE/1.21\r\n\
               Content-Length: 0\r\nConnection: TE, Close\r\n\r\nGET /next";
    let parsed = parse_request(raw.as_bytes(), client()).unwrap().unwrap();
    let request = parsed.request;
    assert_eq!((&*request.path, request.query), ("/a b", Some("x=1&y")));
    assert_eq!((request.host, request.user_agent), (Some("boot:8080"), Some("iPXE/1.21")));
    assert_eq!(parsed.persistence, ConnectionPersistence::Close);
    assert_eq!(&raw[parsed.length..], "GET /next");
}

proptest! {
    #[test]
    fn no_bytes_panic_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..MAX_HEAD_BYTES + 99)) {
        let full = bytes.len() >= MAX_HEAD_BYTES;
        match parse_request(&bytes, client()) {
            Ok(Some(parsed)) => prop_assert!(parsed.length <= bytes.len().min(MAX_HEAD_BYTES)),
            Ok(None) => prop_assert!(!full, "the buffered head is bounded"),
            Err(_) => {}
        }
    }

    /// Inputs that resemble requests reach more of the parser.
    #[test]
    fn no_fields_panic_the_parser(
        target in "[/a.%?#0-9A-Za-z\\\\]{0,40}",
        fields in prop::collection::vec(
            ("(Range|Host|Connection|If-Range|If-None-Match|Content-Length|X)", "[ -~]{0,40}"), 0..6
        ),
        range in "bytes=[0-9]{0,22}-[0-9]{0,22}",
        cut in 0_usize..400,
    ) {
        let mut raw = format!("GET /{target} HTTP/1.1\r\nRange: {range}\r\n");
        for (name, value) in fields {
            raw.push_str(&format!("{name}: {value}\r\n"));
        }
        raw.push_str("\r\n");
        // An incomplete request is never accepted.
        let beginning = &raw.as_bytes()[..cut.min(raw.len() - 1)];
        prop_assert!(!matches!(parse_request(beginning, client()), Ok(Some(_))));
        if let Ok(Some(parsed)) = parse_request(raw.as_bytes(), client()) {
            let path = &*parsed.request.path;
            prop_assert!(path.starts_with('/') && !path.contains(['\0', '\\']));
            prop_assert!(path == "/" || path[1..].split('/').all(|part| !matches!(part, "" | "." | "..")));
            let response = file_response(&parsed.request, file());
            prop_assert!(response.content_length.is_none_or(|length| length == response.content.length()));
            prop_assert!(response.content.length() <= 100);
        }
    }
}
