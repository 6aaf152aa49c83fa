// SPDX-License-Identifier: Apache-2.0
//! Downloads from servers that interrupt, redirect, stall or send too much.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use images::{
    CacheRequest, CacheSettings, ExpectedChecksum, ImageCache, ImageCredentials, ImageLimits,
};

use crate::server::{ImageTestServer, ServerReply, TestServerRequest, http_response, ok, status};
use crate::{
    disk_request, disk_request_with_checksum, error_text, file_count, open, settings, test_bytes,
};

const TAG: &str = "ETag: \"1\"\r\n";

/// The rest of `content` from the requested offset, truncated after this many bytes.
fn rest(request: &TestServerRequest, content: &[u8], most: usize) -> ServerReply {
    let from = request.range().unwrap_or(0);
    let piece = &content[from..content.len().min(from + most)];
    let left = content.len() - from;
    if request.range().is_none() {
        return ServerReply::Bytes(http_response("200 OK", TAG, left, piece));
    }
    let range = format!("Content-Range: bytes {from}-{}/{}\r\n", content.len() - 1, content.len());
    ServerReply::Bytes(http_response("206 Partial Content", &range, left, piece))
}

#[tokio::test]
async fn interrupted_download_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let content = test_bytes(400_000);
    let served = content.clone();
    let server = ImageTestServer::start(move |request| rest(request, &served, 90_000)).await;
    let cache = open(folder.path());
    let url = format!("{}/disk.raw", server.url);
    let entry = cache.get(&disk_request_with_checksum(&url, &content)).await.unwrap();
    assert!(std::fs::read(&entry.path).unwrap() == content);
    let requests = server.requests.lock().unwrap().clone();
    let ranges: Vec<Option<usize>> = requests.iter().map(TestServerRequest::range).collect();
    assert_eq!(ranges.len(), 5, "{ranges:?}");
    assert!(ranges.is_sorted() && ranges[0].is_none(), "{ranges:?}");
    assert!(requests[1..].iter().all(|request| request.header("if-range") == Some("\"1\"")));
}

/// Each row is a server that interrupts its first response and cannot resume; the new content must be
/// downloaded completely.
#[tokio::test]
async fn download_restarts_if_it_cannot_resume() {
    let old = test_bytes(100_000);
    let new: Vec<u8> = old.iter().map(|byte| byte ^ 0x55).collect();
    let wrong_start = "Content-Range: bytes 7-99999/100000\r\n";
    let wrong_total = "Content-Range: bytes 50000-99999/100001\r\n";
    let other_version = "Content-Range: bytes 50000-99999/100000\r\nETag: \"2\"\r\n";
    let second_responses: [(&str, Vec<u8>); 6] = [
        ("has changed", http_response("200 OK", "", new.len(), &new)),
        ("another start", http_response("206 Partial Content", wrong_start, 99_993, &new[7..])),
        (
            "another total",
            http_response("206 Partial Content", wrong_total, 50_000, &new[50_000..]),
        ),
        (
            "another version",
            http_response("206 Partial Content", other_version, 50_000, &new[50_000..]),
        ),
        ("no range at all", http_response("206 Partial Content", "", 50_000, &new[50_000..])),
        ("cannot", http_response("416 Range Not Satisfiable", "", 0, b"")),
    ];
    for (what, second) in second_responses {
        let folder = tempfile::tempdir().unwrap();
        let (old, served) = (old.clone(), new.clone());
        let turn = AtomicUsize::new(0);
        let server = ImageTestServer::start(move |_| match turn.fetch_add(1, Ordering::SeqCst) {
            0 => ServerReply::Bytes(http_response("200 OK", TAG, old.len(), &old[..50_000])),
            1 => ServerReply::Bytes(second.clone()),
            _ => ok(&served, ""),
        })
        .await;
        let url = format!("{}/disk.raw", server.url);
        let entry = open(folder.path()).get(&disk_request_with_checksum(&url, &new)).await;
        let entry = entry.unwrap_or_else(|error| panic!("{what}: {}", error_text(&error)));
        assert!(std::fs::read(&entry.path).unwrap() == new, "{what}");
    }
}

#[tokio::test]
async fn download_without_validators_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let content = test_bytes(100_000);
    let served = content.clone();
    let turn = AtomicUsize::new(0);
    let server = ImageTestServer::start(move |request| {
        assert_eq!(request.range(), None);
        let broken = turn.fetch_add(1, Ordering::SeqCst) < 2;
        let sent = if broken { &served[..60_000] } else { &served[..] };
        ServerReply::Bytes(http_response("200 OK", "", served.len(), sent))
    })
    .await;
    let url = format!("{}/x", server.url);
    let entry = open(folder.path()).get(&disk_request_with_checksum(&url, &content)).await.unwrap();
    assert!(std::fs::read(&entry.path).unwrap() == content);
}

#[tokio::test]
async fn retries_server_errors_and_fails_on_client_errors() {
    let content = b"content".to_vec();
    type Respond = fn(usize) -> ServerReply;
    let rows: [(&str, Respond, &str, usize); 6] = [
        (
            "comes back",
            |turn| if turn < 3 { status("503 Busy") } else { ok(b"content", "") },
            "",
            4,
        ),
        ("stays away", |_| status("503 Service Unavailable"), "failed 4 times in a row", 4),
        ("refuses", |_| status("403 Forbidden"), "returned 403 Forbidden: give credentials", 1),
        ("has not", |_| status("404 Not Found"), "returned 404 Not Found: check the address", 1),
        (
            "sends nothing",
            |_| ServerReply::Silence(Vec::new()),
            "the server sent no data in time",
            4,
        ),
        (
            "stops speaking",
            |_| ServerReply::Silence(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".to_vec()),
            "the server sent no data in time",
            4,
        ),
    ];
    for (what, respond, expected, requests) in rows {
        let folder = tempfile::tempdir().unwrap();
        let turn = AtomicUsize::new(0);
        let server =
            ImageTestServer::start(move |_| respond(turn.fetch_add(1, Ordering::SeqCst))).await;
        let url = format!("{}/disk.raw", server.url);
        let mut settings = settings(folder.path());
        if expected.contains("sent no data") {
            settings.fetch.read_timeout = Duration::from_millis(50);
        }
        let outcome = ImageCache::open(settings)
            .unwrap()
            .get(&disk_request_with_checksum(&url, &content))
            .await;
        match outcome {
            Ok(_) => assert_eq!(expected, "", "{what}"),
            Err(error) => {
                let words = error_text(&error);
                assert!(!expected.is_empty() && words.contains(expected), "{what}: {words}");
            }
        }
        assert_eq!(server.request_count(), requests, "{what}");
        assert_eq!(file_count(folder.path(), "temporary"), 0, "{what}");
    }
}

#[tokio::test]
async fn follows_redirects_up_to_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let server = ImageTestServer::start(|request| {
        let to = |place: &str| {
            ServerReply::Bytes(http_response(
                "302 Found",
                &format!("Location: {place}\r\n"),
                0,
                b"",
            ))
        };
        match request.path.as_str() {
            "/start" => to("/there"),
            "/there" => ok(b"found", ""),
            "/file" => to("file:///etc/passwd"),
            _ => to("/loop"),
        }
    })
    .await;
    let cache = open(folder.path());
    let get = async |path: &str| cache.get(&disk_request(&format!("{}{path}", server.url))).await;
    assert_eq!(get("/start").await.unwrap().size, 5);
    let before = server.request_count();
    let error = get("/loop").await.unwrap_err();
    assert!(error_text(&error).contains("too many redirects"), "{}", error_text(&error));
    assert!(server.request_count() - before <= 12);
    assert!(get("/file").await.is_err());
}

/// Otherwise every user who may deploy could read what only this host can.
#[tokio::test]
async fn local_addresses_are_not_used_unless_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let server = ImageTestServer::with_files(vec![("/secret", b"secret".to_vec())]).await;
    let mut strict = settings(folder.path());
    strict.fetch.network.allow_local = false;
    let cache = ImageCache::open(strict).unwrap();
    let port = server.url.rsplit(':').next().unwrap();
    for host in ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "127.1"] {
        let url = format!("http://{host}:{port}/secret");
        let with_checksum = disk_request_with_checksum(&url, b"guess");
        let checksum = Some(ExpectedChecksum::parse(&url).unwrap());
        let checksum_file = CacheRequest { checksum, ..disk_request("http://192.0.2.1/image") };
        for request in [disk_request(&url), with_checksum, checksum_file] {
            let error = cache.get(&request).await.unwrap_err();
            let words = error_text(&error);
            assert!(words.contains("loopback or link-local"), "{host}: {words}");
        }
    }
    assert_eq!(server.request_count(), 0);
}

#[tokio::test]
async fn download_stops_at_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let server = ImageTestServer::start(|request| match request.path.as_str() {
        "/announced" => {
            ServerReply::Silence(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n".to_vec())
        }
        _ => {
            let endless = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
            ServerReply::Silence([endless, vec![7; 5000]].concat())
        }
    })
    .await;
    let limits = ImageLimits { download: 4000, ..ImageLimits::default() };
    let cache = CacheSettings { limits, ..settings(folder.path()) };
    let cache = ImageCache::open(cache).unwrap();
    for path in ["announced", "endless"] {
        let error = cache.get(&disk_request(&format!("{}/{path}", server.url))).await.unwrap_err();
        assert!(
            error_text(&error).contains("more than the 4000 bytes allowed"),
            "{}",
            error_text(&error)
        );
    }
    assert_eq!(server.request_count(), 2);
}

#[tokio::test]
async fn credentials_are_sent_only_to_the_image_server() {
    let folder = tempfile::tempdir().unwrap();
    let content = test_bytes(1000);
    let sums = format!("{}  disk.raw\n", crate::sha256(&content));
    let elsewhere = ImageTestServer::with_files(vec![("/SUMS", sums.into_bytes())]).await;
    let served = content.clone();
    let server = ImageTestServer::start(move |request| match request.header("authorization") {
        Some("Basic bWU6aHVzaA==") => ok(&served, ""),
        _ => status("401 Unauthorized"),
    })
    .await;
    let cache = open(folder.path());
    let url = format!("{}/disk.raw", server.url);
    let with = |credentials| CacheRequest {
        credentials,
        checksum: Some(ExpectedChecksum::parse(&format!("{}/SUMS", elsewhere.url)).unwrap()),
        ..disk_request(&url)
    };
    let me = with(Some(ImageCredentials::pull_secret("me:hush")));
    assert_eq!(cache.get(&me).await.unwrap().size, 1000);
    assert!(
        elsewhere.requests.lock().unwrap().iter().all(|it| it.header("authorization").is_none())
    );
    // They are not sent to the target of a redirect either.
    let place = format!("Location: {}/moved\r\n", elsewhere.url);
    let moved = ImageTestServer::start(move |_| {
        ServerReply::Bytes(http_response("302 Found", &place, 0, b""))
    })
    .await;
    let credentials = Some(ImageCredentials::pull_secret("me:hush"));
    let moved = CacheRequest { credentials, ..disk_request(&format!("{}/disk.raw", moved.url)) };
    assert!(error_text(&cache.get(&moved).await.unwrap_err()).contains("404"));
    let requests = elsewhere.requests.lock().unwrap().clone();
    assert!(requests.iter().any(|it| it.path == "/moved"));
    assert!(requests.iter().all(|it| it.header("authorization").is_none()), "{requests:?}");
    // The cached image is not available without the credentials.
    for other in [None, Some(ImageCredentials::pull_secret("me:wrong"))] {
        let error = cache.get(&with(other)).await.unwrap_err();
        assert!(error_text(&error).contains("401") && !error_text(&error).contains("wrong"));
    }
}
