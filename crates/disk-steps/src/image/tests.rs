// SPDX-License-Identifier: Apache-2.0
//! Writes images from servers of various behaviour to files in place of disks.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_protocol::ImageInfo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{ImageWriteError, ImageWriteOptions, ImageWriteReport, write};
use crate::http::{DownloadError, DownloadSettings};

const MIB: usize = 1 << 20;

/// Behaviour of the test server.
#[derive(Clone, Copy)]
struct ServerBehaviour {
    ranges: bool,
    /// Closes the connection after this many bytes of the first response.
    breaks_at: Option<usize>,
    /// The file changes after the first response.
    changes: bool,
}

const WELL_BEHAVED: ServerBehaviour =
    ServerBehaviour { ranges: true, breaks_at: None, changes: false };

/// Serves `content` under every name and its checksum as `SHA256SUMS`. Returns the URL and a request
/// counter.
async fn serve(content: Vec<u8>, behaviour: ServerBehaviour) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let (content, counted) = (Arc::new(content), Arc::clone(&count));
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (content, counted) = (Arc::clone(&content), Arc::clone(&counted));
            tokio::spawn(async move {
                serve_connection(connection, &content, behaviour, &counted).await
            });
        }
    });
    (address, count)
}

async fn serve_connection(
    mut connection: TcpStream,
    content: &[u8],
    behaviour: ServerBehaviour,
    count: &AtomicUsize,
) {
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
        let tag = if behaviour.changes && nth > 0 { "\"two\"" } else { "\"one\"" };
        let if_range = request.split("if-range: ").nth(1);
        let same = if_range.is_none_or(|rest| rest.starts_with(tag));
        let (head, body) = match range.filter(|_| behaviour.ranges && same) {
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
        if let Some(end) = behaviour.breaks_at.filter(|_| nth == 0) {
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
    hex::encode(digest)
}

fn download_settings() -> DownloadSettings {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    DownloadSettings {
        tls,
        resolver: None,
        connect_timeout: Duration::from_secs(5),
        read_timeout: Duration::from_secs(20),
        retries: 2,
        retry_interval: Duration::from_millis(1),
        total_timeout: None,
    }
}

fn options() -> ImageWriteOptions {
    ImageWriteOptions {
        http: download_settings(),
        md5_allowed: false,
        permitted_formats: ["raw", "gpt", "qcow2", "iso"].map(str::to_owned).to_vec(),
        inspect: true,
        memory_limit: 64 << 20,
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

/// Creates a disk with old content.
fn disk(size: usize) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![0xa5; size]).unwrap();
    file
}

async fn write_to(disk: &Path, image: &ImageInfo) -> Result<ImageWriteReport, ImageWriteError> {
    write(image, disk, &options(), &|_| {}).await
}

/// Returns pseudo-random data with zeroes in the middle.
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
async fn writes_and_verifies_raw_images() {
    let content = data(9 * MIB + 700);
    let (address, _) = serve(content.clone(), WELL_BEHAVED).await;
    let disk = disk(16 * MIB);
    let written = write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap();
    assert_eq!((written.downloaded, written.written), (content.len() as u64, content.len() as u64));
    assert_eq!(written.checksum, format!("sha256:{}", sha256(&content)));
    assert_written(disk.path(), &content, 16 * MIB);
    let rest = std::fs::read(disk.path()).unwrap();
    assert!(rest[content.len()..15 * MIB].iter().all(|byte| *byte == 0xa5), "the rest is kept");
    assert!(rest[15 * MIB..].iter().all(|byte| *byte == 0), "the end is cleared");
    // An image with content at the end of the disk keeps it.
    let content = data(16 * MIB);
    let (address, _) = serve(content.clone(), WELL_BEHAVED).await;
    write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap();
    assert_written(disk.path(), &content, 16 * MIB);
}

#[tokio::test]
async fn ignores_stale_backup_gpt() {
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
        let linux = crate::gpt::partition_type::LINUX;
        old.add(None, linux, uuid::Uuid::from_u128(2), "previous").unwrap();
        old.write(&device).unwrap();
        let (address, _) = serve(content.clone(), WELL_BEHAVED).await;
        write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap();
        assert_written(disk.path(), &content, 16 * MIB);
        assert_eq!(crate::gpt::Gpt::read(&device).unwrap(), None);
    }
}

#[tokio::test]
async fn checks_checksums() {
    let content = data(2 * MIB);
    let (address, _) = serve(content.clone(), WELL_BEHAVED).await;
    let disk = disk(4 * MIB);
    let good = image(&address, &content, "raw");
    let by_list = ImageInfo { checksum: Some(format!("{address}/SHA256SUMS")), ..good.clone() };
    write_to(disk.path(), &by_list).await.unwrap();
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
    assert!(matches!(write_to(disk.path(), &md5).await, Err(ImageWriteError::Checksum(_))));
    let none = ImageInfo { checksum: None, ..good };
    assert!(matches!(write_to(disk.path(), &none).await, Err(ImageWriteError::NoChecksum)));
}

#[tokio::test]
async fn resumes_broken_downloads() {
    let content = data(6 * MIB);
    for ranges in [true, false] {
        let behaviour = ServerBehaviour { ranges, breaks_at: Some(3 * MIB + 17), changes: false };
        let (address, count) = serve(content.clone(), behaviour).await;
        let disk = disk(8 * MIB);
        write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap();
        assert_written(disk.path(), &content, 8 * MIB);
        assert_eq!(count.load(Ordering::SeqCst), 2, "one interrupted response and one resumed");
    }
    let behaviour = ServerBehaviour { ranges: true, breaks_at: Some(3 * MIB), changes: true };
    let (address, _) = serve(content.clone(), behaviour).await;
    let disk = disk(8 * MIB);
    let error = write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap_err();
    assert!(
        matches!(error, ImageWriteError::Download(DownloadError::Changed { received, .. }) if received == 3 << 20),
        "{error}"
    );
    assert_wiped(disk.path());
}

#[tokio::test]
async fn tries_next_url_and_sends_credentials() {
    let content = data(2 * MIB);
    let (address, _) = serve(content.clone(), WELL_BEHAVED).await;
    let disk = disk(4 * MIB);
    let refused = ImageInfo {
        urls: vec![format!("{address}/secret/disk.img")],
        ..image(&address, &content, "raw")
    };
    let error = write_to(disk.path(), &refused).await.unwrap_err();
    assert!(error.to_string().contains("401"), "{error}");
    // Nothing was written before the failure.
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
async fn refuses_too_large_image_before_writing() {
    let content = data(3 * MIB);
    let (address, _) = serve(content.clone(), WELL_BEHAVED).await;
    let disk = disk(2 * MIB);
    let error = write_to(disk.path(), &image(&address, &content, "raw")).await.unwrap_err();
    assert!(error.to_string().contains("3145728 bytes"), "{error}");
    assert!(std::fs::read(disk.path()).unwrap().iter().all(|byte| *byte == 0xa5));
}

#[tokio::test]
async fn rejects_images_of_other_formats() {
    let mut content = data(2 * MIB);
    content[..4].copy_from_slice(b"QFI\xfb");
    let (address, _) = serve(content.clone(), WELL_BEHAVED).await;
    let disk = disk(4 * MIB);
    for (content, format) in [(&content, "raw"), (&data(2 * MIB), "vmdk")] {
        let (address, _) = serve(content.clone(), WELL_BEHAVED).await;
        let error = write_to(disk.path(), &image(&address, content, format)).await.unwrap_err();
        assert!(matches!(error, ImageWriteError::Format { .. }), "{error}");
    }
    let error = write_to(disk.path(), &image(&address, &content, "qcow2")).await.unwrap_err();
    assert!(matches!(error, ImageWriteError::Qcow2 { .. }), "{error}");
    assert!(std::fs::read(disk.path()).unwrap().iter().all(|byte| *byte == 0xa5));
}

#[tokio::test]
async fn decompresses_images() {
    let content = data(5 * MIB + 512);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&content).unwrap();
    let packed = gzip.finish().unwrap();
    let (address, _) = serve(packed.clone(), WELL_BEHAVED).await;
    let disk = disk(8 * MIB);
    write_to(disk.path(), &image(&address, &packed, "raw")).await.unwrap();
    assert_written(disk.path(), &content, 8 * MIB);
    // An image that decompresses to more than the disk size is refused while writing.
    let small = self::disk(4 * MIB);
    let error = write_to(small.path(), &image(&address, &packed, "raw")).await.unwrap_err();
    assert!(
        matches!(error, ImageWriteError::TooLarge { image, .. } if image == content.len() as u64)
    );
    assert_wiped(small.path());
}

/// Converts the content to qcow2 with `qemu-img`.
fn qcow2(content: &[u8], options: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (raw, packed) = (directory.path().join("raw"), directory.path().join("qcow2"));
    std::fs::write(&raw, content).unwrap();
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-f", "raw", "-O", "qcow2"]).args(options).arg(&raw).arg(&packed);
    assert!(command.status().expect("qemu-img is installed for tests").success());
    std::fs::read(&packed).unwrap()
}

#[tokio::test]
async fn writes_qcow2_by_ranges_or_from_memory() {
    let content = data(12 * MIB);
    let small_clusters = ["-o", "cluster_size=4096"];
    let zstd = ["-c", "-o", "compression_type=zstd"];
    for options in [&[][..], &["-c"], &small_clusters, &zstd, &["-o", "compat=0.10"]] {
        let packed = qcow2(&content, options);
        for ranges in [true, false] {
            let (address, _) =
                serve(packed.clone(), ServerBehaviour { ranges, ..WELL_BEHAVED }).await;
            let disk = disk(16 * MIB);
            let written = write_to(disk.path(), &image(&address, &packed, "qcow2")).await.unwrap();
            assert_eq!(written.format, "qcow2");
            assert_eq!(written.downloaded, packed.len() as u64);
            assert_eq!(written.written, content.len() as u64);
            assert_written(disk.path(), &content, 16 * MIB);
        }
    }
    let packed = qcow2(&content, &[]);
    let (address, _) = serve(packed.clone(), WELL_BEHAVED).await;
    let disk = disk(11 * MIB);
    let error = write_to(disk.path(), &image(&address, &packed, "qcow2")).await.unwrap_err();
    assert!(
        matches!(error, ImageWriteError::TooLarge { image, .. } if image == 12 << 20),
        "{error}"
    );
    assert!(std::fs::read(disk.path()).unwrap().iter().all(|byte| *byte == 0xa5));
}

/// A qcow2 file with clusters of 64 KiB, of a disk of 5.5 clusters: out-of-order data, a hole, a
/// compressed cluster, an explicit zero cluster, and a truncated last cluster. Returns file and disk.
fn handmade_qcow2() -> (Vec<u8>, Vec<u8>) {
    const CLUSTER: usize = 64 << 10;
    let random = data(2 * CLUSTER);
    let compressible = b"0123456789abcdef".repeat(CLUSTER / 16);
    let mut deflate =
        flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    deflate.write_all(&compressible).unwrap();
    let compressed = deflate.finish().unwrap();
    let tail = vec![0x77; 1000];

    let mut file = vec![0; 3 * CLUSTER];
    let mut set = |offset: usize, bytes: &[u8]| {
        file[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    set(0, b"QFI\xfb");
    set(4, &3_u32.to_be_bytes());
    set(20, &16_u32.to_be_bytes());
    set(24, &((5 * CLUSTER + CLUSTER / 2) as u64).to_be_bytes());
    set(36, &1_u32.to_be_bytes());
    set(40, &(CLUSTER as u64).to_be_bytes());
    set(100, &104_u32.to_be_bytes());
    set(CLUSTER, &(2 * CLUSTER as u64).to_be_bytes());
    let compressed_at = 5 * CLUSTER as u64;
    let sectors = (compressed.len() as u64).div_ceil(512);
    let entries = [
        4 * CLUSTER as u64,
        0,
        3 * CLUSTER as u64,
        (1 << 62) | ((sectors - 1) << 54) | compressed_at,
        (6 * CLUSTER as u64) | 1,
        6 * CLUSTER as u64,
    ];
    for (index, entry) in entries.iter().enumerate() {
        set(2 * CLUSTER + 8 * index, &entry.to_be_bytes());
    }
    file.extend(&random[CLUSTER..]);
    file.extend(&random[..CLUSTER]);
    file.extend(compressed);
    file.resize(6 * CLUSTER, 0);
    file.extend(&tail);

    let mut disk = random[..CLUSTER].to_vec();
    disk.resize(2 * CLUSTER, 0);
    disk.extend(&random[CLUSTER..]);
    disk.extend(compressible);
    disk.resize(5 * CLUSTER, 0);
    disk.extend(tail);
    disk.resize(5 * CLUSTER + CLUSTER / 2, 0);
    (file, disk)
}

#[tokio::test]
async fn writes_handmade_qcow2_by_ranges_or_from_memory() {
    let (file, content) = handmade_qcow2();
    for ranges in [true, false] {
        let (address, _) = serve(file.clone(), ServerBehaviour { ranges, ..WELL_BEHAVED }).await;
        let disk = disk(2 * MIB);
        let written = write_to(disk.path(), &image(&address, &file, "qcow2")).await.unwrap();
        assert_eq!((written.format.as_str(), written.written), ("qcow2", content.len() as u64));
        assert_written(disk.path(), &content, 2 * MIB);
    }
}
