// SPDX-License-Identifier: Apache-2.0
//! Storage, eviction, and recovery after a crash.

use std::sync::atomic::{AtomicUsize, Ordering};

use images::{CacheOpenError, CacheSettings, FilePolicy, ImageCache};

use crate::server::{ImageTestServer, ServerReply, ok};
use crate::{
    disk_request, disk_request_with_checksum, error_text, file_count, open, settings, test_bytes,
};

#[tokio::test]
async fn cached_image_needs_no_server_after_restart() {
    let folder = tempfile::tempdir().unwrap();
    let content = test_bytes(10_000);
    let server = ImageTestServer::with_files(vec![("/disk.raw", content.clone())]).await;
    let request = disk_request_with_checksum(&format!("{}/disk.raw", server.url), &content);
    let cache = open(folder.path());
    let first = cache.get(&request).await.unwrap();
    let second = cache.get(&request).await.unwrap();
    assert_eq!((first.path.clone(), server.request_count()), (second.path, 1));
    drop(cache);
    drop(server);
    let cache = open(folder.path());
    let third = cache.get(&request).await.unwrap();
    assert_eq!((third.path, third.size, third.sha256), (first.path, 10_000, first.sha256));
    assert!(cache.used_bytes() >= 10_000);
}

#[tokio::test]
async fn concurrent_requests_share_one_download() {
    let folder = tempfile::tempdir().unwrap();
    let content = test_bytes(300_000);
    let server = ImageTestServer::with_files(vec![("/disk.raw", content)]).await;
    let cache = open(folder.path());
    let request = disk_request(&format!("{}/disk.raw", server.url));
    let all = (0..64).map(|_| cache.get(&request));
    let all = futures_util::future::join_all(all).await;
    assert!(all.iter().all(|entry| entry.as_ref().is_ok_and(|entry| entry.size == 300_000)));
    assert_eq!(server.request_count(), 1);
    assert_eq!(file_count(folder.path(), "blobs"), 1);
    // Without a checksum or a version, the next one sends a request.
    cache.get(&request).await.unwrap();
    assert_eq!(server.request_count(), 2);
    assert_eq!(file_count(folder.path(), "blobs"), 1);
}

#[tokio::test]
async fn without_checksum_the_server_is_checked_for_changes() {
    let folder = tempfile::tempdir().unwrap();
    static VERSION: AtomicUsize = AtomicUsize::new(1);
    let server = ImageTestServer::start(|request| {
        let version = VERSION.load(Ordering::SeqCst);
        let tag = format!("\"{version}\"");
        if request.header("if-none-match") == Some(&tag) {
            return ServerReply::Bytes(
                b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n".to_vec(),
            );
        }
        ok(format!("version {version}").as_bytes(), &format!("ETag: {tag}\r\n"))
    })
    .await;
    let request = disk_request(&format!("{}/disk.raw", server.url));
    let read = async |cache: &ImageCache| {
        std::fs::read_to_string(cache.get(&request).await.unwrap().path).unwrap()
    };
    let cache = open(folder.path());
    assert_eq!(read(&cache).await, "version 1");
    assert_eq!(read(&cache).await, "version 1");
    VERSION.store(2, Ordering::SeqCst);
    assert_eq!(read(&cache).await, "version 2");
    drop(cache);
    assert_eq!(read(&open(folder.path())).await, "version 2");
    let requests = server.requests.lock().unwrap();
    let tags: Vec<Option<&str>> = requests.iter().map(|it| it.header("if-none-match")).collect();
    assert_eq!(tags, [None, Some("\"1\""), Some("\"1\""), Some("\"2\"")]);
}

#[tokio::test]
async fn changed_files_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let images = tempfile::tempdir().unwrap();
    let path = images.path().join("disk.raw");
    std::fs::write(&path, "one").unwrap();
    let files = FilePolicy { allowed: vec![images.path().to_owned()] };
    let cache = ImageCache::open(CacheSettings { files, ..settings(folder.path()) }).unwrap();
    let request = disk_request(&format!("file://{}", path.display()));
    let first = cache.get(&request).await.unwrap();
    std::fs::write(&path, "another").unwrap();
    let second = cache.get(&request).await.unwrap();
    assert_eq!((first.size, second.size), (3, 7));
    // Images that are in use are unchanged.
    assert_eq!(std::fs::read(&first.path).unwrap(), b"one");
    let outside = disk_request("file:///usr/bin/env");
    let error = cache.get(&outside).await.unwrap_err();
    assert!(error_text(&error).contains("not in an allowed folder"), "{}", error_text(&error));
}

#[tokio::test]
async fn opening_removes_leftovers_of_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let content = test_bytes(5_000);
    let server = ImageTestServer::with_files(vec![("/a", content.clone())]).await;
    let request = disk_request_with_checksum(&format!("{}/a", server.url), &content);
    let cache = open(folder.path());
    assert!(matches!(ImageCache::open(settings(folder.path())), Err(CacheOpenError::InUse { .. })));
    let entry = cache.get(&request).await.unwrap();
    drop(cache);
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("temporary/7"), "half a download").unwrap();
    std::fs::write(at("records/dead"), r#"{"sha256": "00", "format": "raw", "version": {}}"#)
        .unwrap();
    std::fs::write(at("records/torn"), r#"{"sha2"#).unwrap();
    let cache = open(folder.path());
    assert_eq!(
        (file_count(folder.path(), "temporary"), file_count(folder.path(), "records")),
        (0, 1)
    );
    // Another program removes the file.
    std::fs::remove_file(&entry.path).unwrap();
    let again = cache.get(&request).await.unwrap();
    assert!(std::fs::read(again.path).unwrap() == content);
    assert_eq!(server.request_count(), 2);
}

#[tokio::test]
async fn download_ends_when_its_request_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let server = ImageTestServer::start(|_| {
        ServerReply::Silence(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome".to_vec())
    })
    .await;
    let mut settings = settings(folder.path());
    settings.fetch.read_timeout = std::time::Duration::from_secs(3600);
    let cache = ImageCache::open(settings).unwrap();
    let request = disk_request(&format!("{}/a", server.url));
    let mut get = Box::pin(cache.get(&request));
    while file_count(folder.path(), "temporary") == 0 || server.request_count() == 0 {
        assert!(futures_util::FutureExt::now_or_never(&mut get).is_none());
        tokio::task::yield_now().await;
    }
    drop(get);
    assert_eq!(file_count(folder.path(), "temporary"), 0);
}

#[tokio::test]
async fn evicts_least_recently_used_images_that_are_not_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["/a", "/b", "/c", "/d"];
    let contents: Vec<Vec<u8>> =
        (1..=4).map(|n| test_bytes(40_000).iter().map(|b| b ^ n).collect()).collect();
    let files = names.into_iter().zip(contents.clone()).collect();
    let server = ImageTestServer::with_files(files).await;
    let bounded = |max_bytes| CacheSettings { max_bytes, ..settings(folder.path()) };
    let request =
        |n: usize| disk_request_with_checksum(&format!("{}{}", server.url, names[n]), &contents[n]);
    {
        let cache = ImageCache::open(bounded(100_000)).unwrap();
        let a = cache.get(&request(0)).await.unwrap();
        let b = cache.get(&request(1)).await.unwrap();
        drop(b);
        // a is older but in use, so b is evicted.
        let c = cache.get(&request(2)).await.unwrap();
        assert!(a.path.exists() && c.path.exists());
        assert_eq!(file_count(folder.path(), "blobs"), 2);
        let full = cache.get(&request(3)).await.unwrap_err();
        assert!(
            error_text(&full).contains("are in use: raise images.cache_size"),
            "{}",
            error_text(&full)
        );
        drop(a);
        drop(c);
        // c is used again after a.
        cache.get(&request(0)).await.unwrap();
        cache.get(&request(2)).await.unwrap();
        let d = cache.get(&request(3)).await.unwrap();
        let kept: Vec<bool> =
            [&blob_name(&contents[0]), &blob_name(&contents[2]), &blob_name(&contents[3])]
                .into_iter()
                .map(|name| folder.path().join("blobs").join(name).exists())
                .collect();
        assert_eq!(kept, [false, true, true]);
        assert!(cache.used_bytes() <= 100_000);
        drop(d);
    }
    let cache = ImageCache::open(bounded(50_000)).unwrap();
    assert!(cache.used_bytes() <= 50_000);
    assert_eq!((file_count(folder.path(), "blobs"), file_count(folder.path(), "records")), (1, 1));
    let error = ImageCache::open(bounded(1)).unwrap_err();
    assert!(error.to_string().contains("in use by another process"));
}

fn blob_name(content: &[u8]) -> String {
    crate::sha256(content)
}
