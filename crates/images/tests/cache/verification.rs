// SPDX-License-Identifier: Apache-2.0
//! Checksums, formats, conversions and signatures of images.

use std::io::Write;

use images::signature::{PublicKey, SignaturePolicy};
use images::{
    CacheRequest, CacheSettings, ExpectedChecksum, ImageCache, ImageFormat, ImageKind, ImageLimits,
    ImageSource, SignatureSettings, TargetFormat,
};
use ring::signature::{Ed25519KeyPair, KeyPair};

use crate::server::ImageTestServer;
use crate::{
    disk_request, disk_request_with_checksum, error_text, file_count, open, settings, sha256,
    test_bytes,
};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A qcow2 image of one 64 KiB cluster that begins with these bytes.
fn qcow2(content: &[u8]) -> Vec<u8> {
    const CLUSTER: usize = 65_536;
    let mut image = vec![0; 4 * CLUSTER];
    let words: [(usize, u32); 6] =
        [(0, 0x5146_49fb), (4, 3), (20, 16), (28, 65_536), (36, 1), (100, 104)];
    for (offset, word) in words {
        image[offset..offset + 4].copy_from_slice(&word.to_be_bytes());
    }
    for (offset, target) in [(40, CLUSTER), (CLUSTER, 2 * CLUSTER), (2 * CLUSTER, 3 * CLUSTER)] {
        image[offset..offset + 8].copy_from_slice(&(target as u64).to_be_bytes());
    }
    image[3 * CLUSTER..3 * CLUSTER + content.len()].copy_from_slice(content);
    image
}

#[tokio::test]
async fn wrong_checksum_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let content = test_bytes(1000);
    let server = ImageTestServer::with_files(vec![("/a", content.clone())]).await;
    let cache = open(folder.path());
    let url = format!("{}/a", server.url);
    let error = cache.get(&disk_request_with_checksum(&url, b"something else")).await.unwrap_err();
    let words = error_text(&error);
    assert!(words.contains(&format!("its checksum is not sha256:{}", sha256(b"something else"))));
    assert!(!words.contains(&sha256(&content)), "the error identifies the content: {words}");
    assert_eq!(
        (file_count(folder.path(), "blobs"), file_count(folder.path(), "temporary")),
        (0, 0)
    );
    let with = |text: &str| CacheRequest {
        checksum: Some(ExpectedChecksum::parse(text).unwrap()),
        ..disk_request(&url)
    };
    let md5 = with("d41d8cd98f00b204e9800998ecf8427e");
    let error = cache.get(&md5).await.unwrap_err();
    assert!(error_text(&error).contains("MD5 checksums are not allowed"), "{}", error_text(&error));
    let sha512 = ring::digest::digest(&ring::digest::SHA512, &content);
    let digits: String = sha512.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(cache.get(&with(&digits)).await.unwrap().size, 1000);
}

#[tokio::test]
async fn checksum_files_are_fetched_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let content = test_bytes(1000);
    let list = format!("{}  other\n{}  disk 1.raw\n", sha256(b""), sha256(&content));
    let files = vec![("/disk%201.raw", content), ("/SUMS", list.into_bytes())];
    let server = ImageTestServer::with_files(files).await;
    let cache = open(folder.path());
    let sums = Some(ExpectedChecksum::parse(&format!("{}/SUMS", server.url)).unwrap());
    let request = |path: &str| CacheRequest {
        checksum: sums.clone(),
        ..disk_request(&format!("{}{path}", server.url))
    };
    cache.get(&request("/disk%201.raw")).await.unwrap();
    cache.get(&request("/disk%201.raw")).await.unwrap();
    let images = server.requests.lock().unwrap().iter().filter(|it| it.path != "/SUMS").count();
    assert_eq!(images, 1);
    let error = cache.get(&request("/absent.raw")).await.unwrap_err();
    assert!(
        error_text(&error).contains(r#"has no checksum for "absent.raw""#),
        "{}",
        error_text(&error)
    );
}

#[tokio::test]
async fn converts_images_to_raw() {
    let mut raw = vec![0; 65_536];
    raw[..11].copy_from_slice(b"a boot disk");
    let rows = [
        ("/raw", raw.clone()),
        ("/qcow2", qcow2(b"a boot disk")),
        ("/gz", gzip(&raw)),
        ("/qcow2.gz", gzip(&qcow2(b"a boot disk"))),
    ];
    let server = ImageTestServer::with_files(rows.to_vec()).await;
    for (path, content) in rows {
        let folder = tempfile::tempdir().unwrap();
        let cache = open(folder.path());
        let request = disk_request_with_checksum(&format!("{}{path}", server.url), &content);
        let request = CacheRequest { target_format: TargetFormat::Raw, ..request };
        let entry = cache.get(&request).await.unwrap();
        assert_eq!((entry.format, entry.size), (ImageFormat::Raw, 65_536), "{path}");
        assert!(std::fs::read(&entry.path).unwrap() == raw, "{path}");
        let digits: String = entry.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, sha256(&raw), "{path}");
        assert_eq!(
            (file_count(folder.path(), "blobs"), file_count(folder.path(), "temporary")),
            (1, 0)
        );
    }
}

#[tokio::test]
async fn cached_image_is_converted_without_a_download() {
    let folder = tempfile::tempdir().unwrap();
    let files = [("/q", qcow2(b"x")), ("/r", test_bytes(70_000))];
    let server = ImageTestServer::with_files(files.to_vec()).await;
    let cache = open(folder.path());
    for (path, content) in files {
        let before = server.request_count();
        let as_is = disk_request_with_checksum(&format!("{}{path}", server.url), &content);
        let kept = cache.get(&as_is).await.unwrap();
        assert_eq!(kept.size, content.len() as u64);
        let raw = CacheRequest { target_format: TargetFormat::Raw, ..as_is };
        assert!(cache.get(&raw).await.unwrap().format.is_raw());
        cache.get(&raw).await.unwrap();
        assert_eq!(server.request_count(), before + 1, "{path}");
    }
    assert_eq!(file_count(folder.path(), "blobs"), 3);
}

#[tokio::test]
async fn rejects_unexpected_formats() {
    let mut iso = vec![0; 0x9000];
    iso[0x8001..0x8006].copy_from_slice(b"CD001");
    let mut backed = qcow2(b"x");
    backed[8..16].copy_from_slice(&500_u64.to_be_bytes());
    let vmdk = b"KDMV and so on".to_vec();
    let (qcow2_image, twice) = (qcow2(b"x"), gzip(&gzip(b"x")));
    let nested = qcow2(b"QFI\xfb\0\0\0\x03");
    let files = vec![
        ("/iso", iso),
        ("/backed", backed),
        ("/vmdk", vmdk),
        ("/qcow2", qcow2_image),
        ("/twice", twice),
        ("/nested", nested),
        ("/gz", gzip(b"x")),
        ("/raw", test_bytes(600)),
        ("/bomb", gzip(&vec![0; 1 << 20])),
    ];
    let server = ImageTestServer::with_files(files).await;
    let folder = tempfile::tempdir().unwrap();
    let limits = ImageLimits { unpacked: 100_000, ..ImageLimits::default() };
    let cache = ImageCache::open(CacheSettings { limits, ..settings(folder.path()) }).unwrap();
    let (raw, as_is) = (TargetFormat::Raw, TargetFormat::AsIs);
    let (disk_image, iso) = (ImageKind::DiskImage, ImageKind::Iso);
    let rows = [
        (
            "/qcow2",
            disk_image,
            Some(ImageFormat::Raw),
            as_is,
            "was declared to be raw and is qcow2",
        ),
        ("/raw", disk_image, Some(ImageFormat::Qcow2), raw, "was declared to be qcow2 and is raw"),
        ("/vmdk", disk_image, None, as_is, "of format vmdk are not allowed"),
        ("/vmdk", disk_image, Some(ImageFormat::Raw), as_is, "was declared to be raw and is vmdk"),
        ("/gz", disk_image, None, as_is, "of format gzip are not allowed"),
        ("/backed", disk_image, None, as_is, "has a backing file"),
        ("/backed", disk_image, None, raw, "has a backing file"),
        ("/nested", disk_image, None, raw, "there is qcow2 in the qcow2"),
        ("/twice", disk_image, None, raw, "there is gzip in the gzip"),
        ("/bomb", disk_image, None, raw, "more than the 100000 bytes allowed"),
        ("/raw", iso, None, as_is, "of format raw are not allowed"),
        ("/iso", iso, Some(ImageFormat::Iso), as_is, ""),
        ("/iso", disk_image, None, raw, ""),
        ("/gz", ImageKind::Ramdisk, None, as_is, ""),
        ("/vmdk", ImageKind::Kernel, None, as_is, ""),
    ];
    for (path, kind, declared_format, target_format, expected) in rows {
        let source = ImageSource::parse(&format!("{}{path}", server.url)).unwrap();
        let request =
            CacheRequest { declared_format, target_format, ..CacheRequest::new(source, kind) };
        let words =
            cache.get(&request).await.map_or_else(|error| error_text(&error), |_| String::new());
        assert!(words.contains(expected), "{path}: {words}");
        assert_eq!(words.is_empty(), expected.is_empty(), "{path}: {words}");
        assert_eq!(file_count(folder.path(), "temporary"), 0, "{path}");
    }
}

/// Converting 500 GiB of nothing would take minutes of processor time.
#[tokio::test]
async fn rejects_large_empty_disks() {
    const ENTRIES: usize = 1000;
    let mut empty = vec![0; 65_536 + ENTRIES * 8];
    let words: [(usize, u32); 5] =
        [(0, 0x5146_49fb), (4, 3), (20, 16), (36, ENTRIES as u32), (100, 104)];
    for (offset, word) in words {
        empty[offset..offset + 4].copy_from_slice(&word.to_be_bytes());
    }
    empty[24..32].copy_from_slice(&(500_u64 << 30).to_be_bytes());
    empty[40..48].copy_from_slice(&65_536_u64.to_be_bytes());
    let server = ImageTestServer::with_files(vec![("/empty", empty)]).await;
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let mut request = disk_request(&format!("{}/empty", server.url));
    assert_eq!(cache.get(&request).await.unwrap().format, ImageFormat::Qcow2, "as it is");
    request.target_format = TargetFormat::Raw;
    let error = cache.get(&request).await.unwrap_err();
    assert!(error_text(&error).contains("images.largest_expansion"), "{}", error_text(&error));
}

#[tokio::test]
async fn stricter_rules_apply_to_cached_images() {
    let folder = tempfile::tempdir().unwrap();
    let content = b"KDMV and so on".to_vec();
    let server = ImageTestServer::with_files(vec![("/vmdk", content.clone())]).await;
    let request = disk_request_with_checksum(&format!("{}/vmdk", server.url), &content);
    let permitted_formats = vec![ImageFormat::Vmdk];
    let lax =
        ImageCache::open(CacheSettings { permitted_formats, ..settings(folder.path()) }).unwrap();
    assert_eq!(lax.get(&request).await.unwrap().format, ImageFormat::Vmdk);
    drop(lax);
    let error = open(folder.path()).get(&request).await.unwrap_err();
    assert!(error_text(&error).contains("vmdk are not allowed"), "{}", error_text(&error));
}

#[tokio::test]
async fn signatures_follow_the_policy() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    let keys = vec![PublicKey::Ed25519(pair.public_key().as_ref().to_vec())];
    let sign = |content: &[u8]| pair.sign(sha256(content).as_bytes()).as_ref().to_vec();
    let (good, changed) = (test_bytes(700), test_bytes(800));
    let files = vec![
        ("/signed", good.clone()),
        ("/signed.sig", sign(&good)),
        ("/changed", changed.clone()),
        ("/changed.sig", sign(&good)),
        ("/unsigned", changed.clone()),
        ("/elsewhere", sign(&changed)),
    ];
    let server = ImageTestServer::with_files(files).await;
    let rows = [
        (SignaturePolicy::Required, "/signed", None, ""),
        (SignaturePolicy::Required, "/changed", None, "none of the 1 configured keys verifies"),
        (
            SignaturePolicy::Required,
            "/unsigned",
            None,
            "is not signed, and only signed ones are allowed",
        ),
        (SignaturePolicy::Required, "/unsigned", Some("/elsewhere"), ""),
        (SignaturePolicy::Required, "/unsigned", Some("/absent"), "is not signed"),
        (SignaturePolicy::WhenPresent, "/signed", None, ""),
        (SignaturePolicy::WhenPresent, "/changed", None, "none of the 1 configured keys verifies"),
        (SignaturePolicy::WhenPresent, "/unsigned", None, ""),
        (SignaturePolicy::WhenPresent, "/unsigned", Some("/absent"), "is not signed"),
        (SignaturePolicy::Off, "/changed", None, ""),
    ];
    // One cache for all rows: an image accepted by one policy is checked again by another.
    let folder = tempfile::tempdir().unwrap();
    for (policy, path, signature, expected) in rows.iter().chain(rows.iter().rev()) {
        let signatures =
            SignatureSettings { keys: keys.clone(), kernel: *policy, ..Default::default() };
        let cache =
            ImageCache::open(CacheSettings { signatures, ..settings(folder.path()) }).unwrap();
        let place = |path: &str| ImageSource::parse(&format!("{}{path}", server.url)).unwrap();
        let content = if *path == "/signed" { &good } else { &changed };
        let checksum = Some(ExpectedChecksum::parse(&sha256(content)).unwrap());
        let signature = signature.map(place);
        let request = CacheRequest {
            checksum,
            signature,
            ..CacheRequest::new(place(path), ImageKind::Kernel)
        };
        let words =
            cache.get(&request).await.map_or_else(|error| error_text(&error), |_| String::new());
        assert!(words.contains(expected), "{policy:?} {path}: {words}");
        assert_eq!(words.is_empty(), expected.is_empty(), "{policy:?} {path}: {words}");
    }
}
