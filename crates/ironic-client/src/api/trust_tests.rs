// SPDX-License-Identifier: Apache-2.0
//! Servers with TLS, and whom the client takes them for.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::error::Kind;

/// A server that made its own certificate, as `openssl req -x509` does: marked as an authority's.
/// Gives its address and its certificate as PEM.
fn server_with_its_own_certificate() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let pem = certificate.pem();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.der().to_vec())],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            // Who does not trust us goes away in the middle.
            if stream.read(&mut [0; 4096]).is_ok() {
                let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                              Content-Length: 12\r\nConnection: close\r\n\r\n{\"nodes\":[]}";
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    (url, pem)
}

async fn ask(url: &str, trust: Trust) -> Result<Value, ApiError> {
    let (url, origin) = (Some(url.to_owned()), "the test".to_owned());
    let target = Target { url, login: Login::Nobody, trust, origin };
    Api::new(target)?.get("/v1/nodes").await
}

#[tokio::test]
async fn a_certificate_that_was_given_is_trusted() {
    let (url, pem) = server_with_its_own_certificate();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let given = |authorities| Trust { authorities: Some(authorities), anybody: false };

    let refused = ask(&url, Trust::default()).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Unreachable);
    let told = refused.to_string();
    assert!(told.contains("cannot be trusted") && told.contains("--cacert"), "{told}");

    let (_, other) = server_with_its_own_certificate();
    let refused = ask(&url, given(file("other.pem", &other))).await.unwrap_err();
    assert!(refused.to_string().contains("cannot be trusted"), "{refused}");

    let unusable = ask(&url, given(file("empty.pem", ""))).await.unwrap_err();
    assert!(unusable.to_string().contains("no certificate"), "{unusable}");

    let nodes = serde_json::json!({"nodes": []});
    assert_eq!(ask(&url, given(file("own.pem", &pem))).await.unwrap(), nodes);
    assert_eq!(ask(&url, Trust { authorities: None, anybody: true }).await.unwrap(), nodes);
}
