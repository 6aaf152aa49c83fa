// SPDX-License-Identifier: Apache-2.0
//! Downloads that break, lie, lead astray and say nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use images::{Cache, CacheSettings, Credentials, Expected, Limits, Request};

use crate::server::{Asked, Reply, Server, ok, status, whole};
use crate::{bytes, count, disk, disk_of, open, settings, words};

const TAG: &str = "ETag: \"1\"\r\n";

/// The rest of `content` from where it was asked for, cut off after this many bytes.
fn rest(asked: &Asked, content: &[u8], most: usize) -> Reply {
    let from = asked.range().unwrap_or(0);
    let piece = &content[from..content.len().min(from + most)];
    let left = content.len() - from;
    if asked.range().is_none() {
        return Reply::Bytes(whole("200 OK", TAG, left, piece));
    }
    let range = format!("Content-Range: bytes {from}-{}/{}\r\n", content.len() - 1, content.len());
    Reply::Bytes(whole("206 Partial Content", &range, left, piece))
}

#[tokio::test]
async fn a_download_that_breaks_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let content = bytes(400_000);
    let served = content.clone();
    let server = Server::start(move |asked| rest(asked, &served, 90_000)).await;
    let cache = open(folder.path());
    let url = format!("{}/disk.raw", server.url);
    let entry = cache.get(&disk_of(&url, &content)).await.unwrap();
    assert!(std::fs::read(&entry.path).unwrap() == content);
    let asked = server.asked.lock().unwrap().clone();
    let ranges: Vec<Option<usize>> = asked.iter().map(Asked::range).collect();
    assert_eq!(ranges.len(), 5, "{ranges:?}");
    assert!(ranges.is_sorted() && ranges[0].is_none(), "{ranges:?}");
    assert!(asked[1..].iter().all(|asked| asked.header("if-range") == Some("\"1\"")));
}

/// Each row is a server that breaks off its first answer, and then does something else than to go
/// on; the whole of the new content must come.
#[tokio::test]
async fn what_cannot_go_on_begins_again() {
    let old = bytes(100_000);
    let new: Vec<u8> = old.iter().map(|byte| byte ^ 0x55).collect();
    let wrong_start = "Content-Range: bytes 7-99999/100000\r\n";
    let wrong_total = "Content-Range: bytes 50000-99999/100001\r\n";
    let second_answers: [(&str, Vec<u8>); 5] = [
        ("has changed", whole("200 OK", "", new.len(), &new)),
        ("another start", whole("206 Partial Content", wrong_start, 99_993, &new[7..])),
        ("another total", whole("206 Partial Content", wrong_total, 50_000, &new[50_000..])),
        ("no range at all", whole("206 Partial Content", "", 50_000, &new[50_000..])),
        ("cannot", whole("416 Range Not Satisfiable", "", 0, b"")),
    ];
    for (what, second) in second_answers {
        let folder = tempfile::tempdir().unwrap();
        let (old, served) = (old.clone(), new.clone());
        let turn = AtomicUsize::new(0);
        let server = Server::start(move |_| match turn.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::Bytes(whole("200 OK", TAG, old.len(), &old[..50_000])),
            1 => Reply::Bytes(second.clone()),
            _ => ok(&served, ""),
        })
        .await;
        let url = format!("{}/disk.raw", server.url);
        let entry = open(folder.path()).get(&disk_of(&url, &new)).await;
        let entry = entry.unwrap_or_else(|error| panic!("{what}: {}", words(&error)));
        assert!(std::fs::read(&entry.path).unwrap() == new, "{what}");
    }
}

#[tokio::test]
async fn a_server_without_versions_sends_it_all_again() {
    let folder = tempfile::tempdir().unwrap();
    let content = bytes(100_000);
    let served = content.clone();
    let turn = AtomicUsize::new(0);
    let server = Server::start(move |asked| {
        assert_eq!(asked.range(), None);
        let broken = turn.fetch_add(1, Ordering::SeqCst) < 2;
        let sent = if broken { &served[..60_000] } else { &served[..] };
        Reply::Bytes(whole("200 OK", "", served.len(), sent))
    })
    .await;
    let url = format!("{}/x", server.url);
    let entry = open(folder.path()).get(&disk_of(&url, &content)).await.unwrap();
    assert!(std::fs::read(&entry.path).unwrap() == content);
}

#[tokio::test]
async fn what_servers_answer_and_what_becomes_of_it() {
    let content = b"content".to_vec();
    type Answer = fn(usize) -> Reply;
    let rows: [(&str, Answer, &str, usize); 6] = [
        (
            "comes back",
            |turn| if turn < 3 { status("503 Busy") } else { ok(b"content", "") },
            "",
            4,
        ),
        ("stays away", |_| status("503 Service Unavailable"), "failed 4 times in a row", 4),
        ("refuses", |_| status("403 Forbidden"), "answers 403 Forbidden: give credentials", 1),
        ("has not", |_| status("404 Not Found"), "answers 404 Not Found: check the address", 1),
        ("says nothing", |_| Reply::Silence(Vec::new()), "says nothing for too long", 4),
        (
            "stops speaking",
            |_| Reply::Silence(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".to_vec()),
            "says nothing for too long",
            4,
        ),
    ];
    for (what, answer, expected, requests) in rows {
        let folder = tempfile::tempdir().unwrap();
        let turn = AtomicUsize::new(0);
        let server = Server::start(move |_| answer(turn.fetch_add(1, Ordering::SeqCst))).await;
        let url = format!("{}/disk.raw", server.url);
        let mut settings = settings(folder.path());
        if expected.contains("says nothing") {
            settings.fetch.silence = Duration::from_millis(50);
        }
        let outcome = Cache::open(settings).unwrap().get(&disk_of(&url, &content)).await;
        match outcome {
            Ok(_) => assert_eq!(expected, "", "{what}"),
            Err(error) => {
                let words = words(&error);
                assert!(!expected.is_empty() && words.contains(expected), "{what}: {words}");
            }
        }
        assert_eq!(server.count(), requests, "{what}");
        assert_eq!(count(folder.path(), "temporary"), 0, "{what}");
    }
}

#[tokio::test]
async fn redirects_are_followed_and_loops_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|asked| {
        let to = |place: &str| {
            Reply::Bytes(whole("302 Found", &format!("Location: {place}\r\n"), 0, b""))
        };
        match asked.path.as_str() {
            "/start" => to("/there"),
            "/there" => ok(b"found", ""),
            "/file" => to("file:///etc/passwd"),
            _ => to("/loop"),
        }
    })
    .await;
    let cache = open(folder.path());
    let get = async |path: &str| cache.get(&disk(&format!("{}{path}", server.url))).await;
    assert_eq!(get("/start").await.unwrap().size, 5);
    let before = server.count();
    let error = get("/loop").await.unwrap_err();
    assert!(words(&error).contains("too many redirects"), "{}", words(&error));
    assert!(server.count() - before <= 12);
    assert!(get("/file").await.is_err());
}

#[tokio::test]
async fn no_more_than_the_limit_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|asked| match asked.path.as_str() {
        "/said" => Reply::Silence(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n".to_vec()),
        _ => {
            let endless = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
            Reply::Silence([endless, vec![7; 5000]].concat())
        }
    })
    .await;
    let limits = Limits { download: 4000, ..Limits::default() };
    let cache = CacheSettings { limits, ..settings(folder.path()) };
    let cache = Cache::open(cache).unwrap();
    for path in ["said", "endless"] {
        let error = cache.get(&disk(&format!("{}/{path}", server.url))).await.unwrap_err();
        assert!(words(&error).contains("more than the 4000 bytes allowed"), "{}", words(&error));
    }
    assert_eq!(server.count(), 2);
}

#[tokio::test]
async fn credentials_are_shown_only_where_they_belong() {
    let folder = tempfile::tempdir().unwrap();
    let content = bytes(1000);
    let sums = format!("{}  disk.raw\n", crate::sha256(&content));
    let elsewhere = Server::with_files(vec![("/SUMS", sums.into_bytes())]).await;
    let served = content.clone();
    let server = Server::start(move |asked| match asked.header("authorization") {
        Some("Basic bWU6aHVzaA==") => ok(&served, ""),
        _ => status("401 Unauthorized"),
    })
    .await;
    let cache = open(folder.path());
    let url = format!("{}/disk.raw", server.url);
    let with = |credentials| Request {
        credentials,
        checksum: Some(Expected::parse(&format!("{}/SUMS", elsewhere.url)).unwrap()),
        ..disk(&url)
    };
    let me = with(Some(Credentials::pull_secret("me:hush")));
    assert_eq!(cache.get(&me).await.unwrap().size, 1000);
    assert!(elsewhere.asked.lock().unwrap().iter().all(|it| it.header("authorization").is_none()));
    // Nor to whom a server sends us.
    let place = format!("Location: {}/moved\r\n", elsewhere.url);
    let moved = Server::start(move |_| Reply::Bytes(whole("302 Found", &place, 0, b""))).await;
    let credentials = Some(Credentials::pull_secret("me:hush"));
    let moved = Request { credentials, ..disk(&format!("{}/disk.raw", moved.url)) };
    assert!(words(&cache.get(&moved).await.unwrap_err()).contains("404"));
    let asked = elsewhere.asked.lock().unwrap().clone();
    assert!(asked.iter().any(|it| it.path == "/moved"));
    assert!(asked.iter().all(|it| it.header("authorization").is_none()), "{asked:?}");
    // It is here now, and still nobody else's.
    for other in [None, Some(Credentials::pull_secret("me:wrong"))] {
        let error = cache.get(&with(other)).await.unwrap_err();
        assert!(words(&error).contains("401") && !words(&error).contains("wrong"));
    }
}
