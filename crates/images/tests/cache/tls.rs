// SPDX-License-Identifier: Apache-2.0
//! Images over TLS, from trusted and untrusted servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use images::{CacheOpenError, CacheSettings, ImageCache, ImageServerTrust};
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::{disk_request, error_text, settings};

/// Starts a server that sends `image`; returns its port, certificate and number of connections.
async fn server() -> (u16, String, Arc<AtomicUsize>) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nimage").await;
            let _ = stream.shutdown().await;
        }
    });
    (port, certificate.pem(), tries)
}

#[tokio::test]
async fn rejects_untrusted_servers() {
    let folder = tempfile::tempdir().unwrap();
    let (port, pem, tries) = server().await;
    let trusted = folder.path().join("ca.pem");
    std::fs::write(&trusted, pem).unwrap();
    let with = |trust: ImageServerTrust, name: &str| {
        let mut settings = settings(&folder.path().join(name));
        settings.fetch.trust = trust;
        settings
    };
    let request = disk_request(&format!("https://localhost:{port}/disk.raw"));
    let cache = ImageCache::open(with(ImageServerTrust::File(trusted), "a")).unwrap();
    assert_eq!(cache.get(&request).await.unwrap().size, 5);
    let before = tries.load(Ordering::SeqCst);
    let cache = ImageCache::open(with(ImageServerTrust::System, "b")).unwrap();
    let error = cache.get(&request).await.unwrap_err();
    assert!(error_text(&error).contains("certificate"), "{}", error_text(&error));
    // The rejection is not retried.
    assert_eq!(tries.load(Ordering::SeqCst), before + 1);
    let nothing: CacheSettings =
        with(ImageServerTrust::File(folder.path().join("absent.pem")), "c");
    assert!(matches!(ImageCache::open(nothing), Err(CacheOpenError::Trust(_))));
}
