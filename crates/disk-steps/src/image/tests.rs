// SPDX-License-Identifier: Apache-2.0
//! Images from a server that is as good or as bad as each test wants it, onto files in place of
//! disks.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_protocol::ImageInfo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Error, WriteOptions, Written, write};
use crate::http::{Http, HttpError};

const MIB: usize = 1 << 20;

/// How a server behaves.
#[derive(Clone, Copy)]
struct Manners {
    ranges: bool,
    /// After so many bytes of its first answer it hangs up.
    breaks_at: Option<usize>,
    /// The file changes after the first answer.
    changes: bool,
}

const GOOD: Manners = Manners { ranges: true, breaks_at: None, changes: false };

/// Serves `content` under every name and `SHA256SUMS` with its checksum. Answers the address, and
/// counts requests.
async fn serve(content: Vec<u8>, manners: Manners) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let (content, counted) = (Arc::new(content), Arc::clone(&count));
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (content, counted) = (Arc::clone(&content), Arc::clone(&counted));
            tokio::spawn(async move { answer(connection, &content, manners, &counted).await });
        }
    });
    (address, count)
}

async fn answer(mut connection: TcpStream, content: &[u8], manners: Manners, count: &AtomicUsize) {
    let mut text = Vec::new();
    loop {
        text.clear();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match connection.read(&mut byte).await {
                Ok(1) => text.push(byte[0]),
                Ok(_) | Err(_) => return,
            }
        }
        let request = String::from_utf8_lossy(&text).to_lowercase();
        let nth = count.fetch_add(1, Ordering::SeqCst);
        if request.starts_with("get /sha256sums ") {
            let list = format!("{}  disk.img\n", sha256(content));
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{list}", list.len());
            connection.write_all(head.as_bytes()).await.unwrap();
            continue;
        }
        if request.starts_with("get /secret") && !request.contains("basic djpw") {
            let head = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
            connection.write_all(head.as_bytes()).await.unwrap();
            continue;
        }
        let range = request.split("range: bytes=").nth(1).and_then(|rest| {
            let (start, end) = rest.split("\r\n").next()?.split_once('-')?;
            let end = end.parse().unwrap_or(content.len() - 1);
            Some((start.parse::<usize>().ok()?, end.min(content.len() - 1)))
        });
        let tag = if manners.changes && nth > 0 { "\"two\"" } else { "\"one\"" };
        let if_range = request.split("if-range: ").nth(1);
        let same = if_range.is_none_or(|rest| rest.starts_with(tag));
        let (head, body) = match range.filter(|_| manners.ranges && same) {
            Some((start, end)) => {
                let head = format!(
                    "HTTP/1.1 206 Partial\r\nETag: {tag}\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{end}/{}\r\n\r\n",
                    end + 1 - start,
                    content.len()
                );
                (head, &content[start..=end])
            }
            None => {
                let length = content.len();
                let head =
                    format!("HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: {length}\r\n\r\n");
                (head, content)
            }
        };
        if connection.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        if let Some(end) = manners.breaks_at.filter(|_| nth == 0) {
            let _ = connection.write_all(&body[..end]).await;
            return;
        }
        if connection.write_all(body).await.is_err() {
            return;
        }
    }
}

fn sha256(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn http() -> Http {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Http {
        tls,
        resolver: None,
        connect_timeout: Duration::from_secs(5),
        silence: Duration::from_secs(20),
        retries: 2,
        pause: Duration::from_millis(1),
        longest: None,
    }
}

fn options() -> WriteOptions {
    WriteOptions {
        http: http(),
        md5_allowed: false,
        permitted_formats: ["raw", "gpt", "qcow2", "iso"].map(str::to_owned).to_vec(),
        inspect: true,
        memory: 64 << 20,
    }
}

fn image(address: &str, content: &[u8], format: &str) -> ImageInfo {
    ImageInfo {
        urls: vec![format!("{address}/disk.img")],
        disk_format: Some(format.to_owned()),
        checksum: Some(sha256(content)),
        ..ImageInfo::default()
    }
}

/// A disk full of what was there before.
fn disk(size: usize) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![0xa5; size]).unwrap();
    file
}

async fn write_to(disk: &Path, image: &ImageInfo) -> Result<Written, Error> {
    write(image, disk, &options(), &|_| {}).await
}

/// Data that is not the same anywhere, with a hole of zeroes in its middle.
fn data(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .take(length / 8 + 1)
    .flatten()
    .collect();
    bytes.truncate(length);
    bytes[length / 4..length / 2].fill(0);
    bytes
}

fn assert_written(disk: &Path, content: &[u8], size: usize) {
    let bytes = std::fs::read(disk).unwrap();
    assert_eq!(bytes.len(), size);
    assert!(bytes[..content.len()] == *content, "the image is on the disk");
}

fn assert_wiped(disk: &Path) {
    let bytes = std::fs::read(disk).unwrap();
    assert!(bytes[..MIB].iter().all(|byte| *byte == 0), "the beginning is wiped");
}

#[tokio::test]
async fn raw_images_are_written_and_verified() {
    let content = data(9 * MIB + 700);
    let (address, _) = serve(content.clone(), GOOD).await;
    let disk = disk(16 * MIB);
    let written = write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap();
    assert_eq!((written.downloaded, written.written), (content.len() as u64, content.len() as u64));
    assert_eq!(written.checksum, format!("sha256:{}", sha256(&content)));
    assert_written(disk.path(), &content, 16 * MIB);
    let rest = std::fs::read(disk.path()).unwrap();
    assert!(rest[content.len()..15 * MIB].iter().all(|byte| *byte == 0xa5), "the rest stays");
    assert!(rest[15 * MIB..].iter().all(|byte| *byte == 0), "the end is cleared");
    // An image that has something there keeps it.
    let content = data(16 * MIB);
    let (address, _) = serve(content.clone(), GOOD).await;
    write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap();
    assert_written(disk.path(), &content, 16 * MIB);
}

#[tokio::test]
async fn a_leftover_table_does_not_come_over_the_image() {
    // Boot code, one partition, and GRUB's core in the sectors after it.
    let mut content = data(6 * MIB);
    content[446..510].fill(0);
    content[446..462].copy_from_slice(&[0x80, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    content[510..512].copy_from_slice(&[0x55, 0xaa]);
    let mut without = data(6 * MIB);
    without[510..512].fill(0);
    for content in [content, without] {
        let disk = disk(16 * MIB);
        let device = crate::device::Device::writable(disk.path()).unwrap();
        let mut old = crate::gpt::Gpt::new(&device, uuid::Uuid::from_u128(1));
        let kind = crate::gpt::kind::LINUX;
        old.add(None, kind, uuid::Uuid::from_u128(2), "the last tenant's").unwrap();
        old.write(&device).unwrap();
        let (address, _) = serve(content.clone(), GOOD).await;
        write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap();
        assert_written(disk.path(), &content, 16 * MIB);
        assert_eq!(crate::gpt::Gpt::read(&device).unwrap(), None);
    }
}

#[tokio::test]
async fn checksums_by_name_in_lists_and_wrong_ones() {
    let content = data(2 * MIB);
    let (address, _) = serve(content.clone(), GOOD).await;
    let disk = disk(4 * MIB);
    let good = image(&address, &content, "raw");
    let listed = ImageInfo { checksum: Some(format!("{address}/SHA256SUMS")), ..good.clone() };
    write_to(disk.path(), &listed).await.unwrap();
    assert_written(disk.path(), &content, 4 * MIB);

    let wrong = ImageInfo {
        os_hash_algo: Some("sha512".to_owned()),
        os_hash_value: Some("ab".repeat(64)),
        ..good.clone()
    };
    let error = write_to(disk.path(), &wrong).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&"ab".repeat(64)) && text.contains("/disk.img"), "{text}");
    assert_wiped(disk.path());

    let md5 = ImageInfo { checksum: Some("ab".repeat(16)), ..good.clone() };
    assert!(matches!(write_to(disk.path(), &md5).await, Err(Error::Checksum(_))));
    let none = ImageInfo { checksum: None, ..good };
    assert!(matches!(write_to(disk.path(), &none).await, Err(Error::NoChecksum)));
}

#[tokio::test]
async fn a_broken_download_goes_on() {
    let content = data(6 * MIB);
    for ranges in [true, false] {
        let manners = Manners { ranges, breaks_at: Some(3 * MIB + 17), changes: false };
        let (address, count) = serve(content.clone(), manners).await;
        let disk = disk(8 * MIB);
        write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap();
        assert_written(disk.path(), &content, 8 * MIB);
        assert_eq!(count.load(Ordering::SeqCst), 2, "one answer broke off, one went on");
    }
    let manners = Manners { ranges: true, breaks_at: Some(3 * MIB), changes: true };
    let (address, _) = serve(content.clone(), manners).await;
    let disk = disk(8 * MIB);
    let error = write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap_err();
    assert!(
        matches!(error, Error::Http(HttpError::Changed { at, .. }) if at == 3 << 20),
        "{error}"
    );
    assert_wiped(disk.path());
}

#[tokio::test]
async fn the_next_address_is_tried_and_credentials_are_shown() {
    let content = data(2 * MIB);
    let (address, _) = serve(content.clone(), GOOD).await;
    let disk = disk(4 * MIB);
    let refused = ImageInfo {
        urls: vec![format!("{address}/secret/disk.img")],
        ..image(&address, &content, "raw")
    };
    let error = write_to(disk.path(), &refused).await.unwrap_err();
    assert!(error.to_string().contains("401"), "{error}");
    // Nothing was written by then.
    assert!(std::fs::read(disk.path()).unwrap().iter().all(|byte| *byte == 0xa5));
    let basic = ImageInfo {
        image_server_auth_strategy: Some("http_basic".to_owned()),
        image_server_user: Some("v".to_owned()),
        image_server_password: Some("pass".to_owned()),
        ..refused.clone()
    };
    write_to(disk.path(), &basic).await.unwrap();
    let given = ImageInfo {
        // "Basic djpwYXNz"
        image_request_authorization: Some("QmFzaWMgZGpwd1lYTno=".to_owned()),
        ..refused.clone()
    };
    write_to(disk.path(), &given).await.unwrap();
    let two = ImageInfo { urls: vec![refused.urls[0].clone(), format!("{address}/x")], ..refused };
    write_to(disk.path(), &two).await.unwrap();
    assert_written(disk.path(), &content, 4 * MIB);
}

#[tokio::test]
async fn what_does_not_fit_leaves_the_disk_alone() {
    let content = data(3 * MIB);
    let (address, _) = serve(content.clone(), GOOD).await;
    let disk = disk(2 * MIB);
    let error = write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap_err();
    assert!(error.to_string().contains("3145728 bytes"), "{error}");
    assert!(std::fs::read(disk.path()).unwrap().iter().all(|byte| *byte == 0xa5));
}

#[tokio::test]
async fn images_are_what_they_say() {
    let mut content = data(2 * MIB);
    content[..4].copy_from_slice(b"QFI\xfb");
    let (address, _) = serve(content.clone(), GOOD).await;
    let disk = disk(4 * MIB);
    for (content, format) in [(&content, "raw"), (&data(2 * MIB), "vmdk")] {
        let (address, _) = serve(content.clone(), GOOD).await;
        let error = write_to(disk.path(), &image(&address, content, format)).await.unwrap_err();
        assert!(matches!(error, Error::Format { .. }), "{error}");
    }
    let error = write_to(disk.path(), &image(&address, &content, "qcow2")).await.unwrap_err();
    assert!(matches!(error, Error::Qcow2 { .. }), "{error}");
    assert!(std::fs::read(disk.path()).unwrap().iter().all(|byte| *byte == 0xa5));
}

#[tokio::test]
async fn compressed_images_are_unpacked() {
    let content = data(5 * MIB + 512);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&content).unwrap();
    let packed = gzip.finish().unwrap();
    let (address, _) = serve(packed.clone(), GOOD).await;
    let disk = disk(8 * MIB);
    write_to(disk.path(), &image(&address, &packed, "raw")).await.unwrap();
    assert_written(disk.path(), &content, 8 * MIB);
    // What unpacks to more than the disk is refused, though nobody said so before.
    let small = self::disk(4 * MIB);
    let error = write_to(small.path(), &image(&address, &packed, "raw")).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { image, .. } if image == content.len() as u64));
    assert_wiped(small.path());
}

/// A qcow2 image with the content, made by QEMU.
fn qcow2(content: &[u8], options: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (raw, packed) = (folder.path().join("raw"), folder.path().join("qcow2"));
    std::fs::write(&raw, content).unwrap();
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-f", "raw", "-O", "qcow2"]).args(options).arg(&raw).arg(&packed);
    assert!(command.status().expect("qemu-img is installed for tests").success());
    std::fs::read(&packed).unwrap()
}

#[tokio::test]
async fn qcow2_images_in_one_pass_or_in_memory() {
    let content = data(12 * MIB);
    let small_clusters = ["-o", "cluster_size=4096"];
    let zstd = ["-c", "-o", "compression_type=zstd"];
    for options in [&[][..], &["-c"], &small_clusters, &zstd, &["-o", "compat=0.10"]] {
        let packed = qcow2(&content, options);
        for ranges in [true, false] {
            let (address, _) = serve(packed.clone(), Manners { ranges, ..GOOD }).await;
            let disk = disk(16 * MIB);
            let written = write_to(disk.path(), &image(&address, &packed, "qcow2")).await.unwrap();
            assert_eq!(written.format, "qcow2");
            assert_eq!(written.downloaded, packed.len() as u64);
            assert_eq!(written.written, content.len() as u64);
            assert_written(disk.path(), &content, 16 * MIB);
        }
    }
    let packed = qcow2(&content, &[]);
    let (address, _) = serve(packed.clone(), GOOD).await;
    let disk = disk(11 * MIB);
    let error = write_to(disk.path(), &image(&address, &packed, "qcow2")).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { image, .. } if image == 12 << 20), "{error}");
    assert!(std::fs::read(disk.path()).unwrap().iter().all(|byte| *byte == 0xa5));
}
