// SPDX-License-Identifier: Apache-2.0
//! Tests of certificate verification with TLS servers.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::error::ErrorClass;

/// Starts a server with a self-signed certificate that is marked as a CA, like those of
/// `openssl req -x509`. Returns its URL and its certificate as PEM.
fn start_self_signed_server() -> (String, String) {
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
            // A client that does not trust the certificate closes the connection.
            if stream.read(&mut [0; 4096]).is_ok() {
                let response = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                              Content-Length: 12\r\nConnection: close\r\n\r\n{\"nodes\":[]}";
                let _ = stream.write_all(response.as_bytes());
            }
        }
    });
    (url, pem)
}

async fn get_nodes(url: &str, trust: TlsTrust) -> Result<Value, IronicClientError> {
    let (url, origin) = (Some(url.to_owned()), "the test".to_owned());
    let login = ApiLogin::Anonymous;
    let target = ApiTarget { url, login, trust, unix_socket: None, project: None, origin };
    Api::new(target)?.get("/v1/nodes").await
}

#[tokio::test]
async fn accepts_only_given_certificates() {
    let (url, pem) = start_self_signed_server();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let with_ca = |ca_file| TlsTrust { ca_file: Some(ca_file), ..TlsTrust::default() };

    let error = get_nodes(&url, TlsTrust::default()).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Unreachable);
    let text = error.to_string();
    assert!(text.contains("cannot be trusted") && text.contains("--cacert"), "{text}");

    let (_, other) = start_self_signed_server();
    let error = get_nodes(&url, with_ca(file("other.pem", &other))).await.unwrap_err();
    assert!(error.to_string().contains("cannot be trusted"), "{error}");

    let error = get_nodes(&url, with_ca(file("empty.pem", ""))).await.unwrap_err();
    assert!(error.to_string().contains("no usable certificate"), "{error}");

    let nodes = serde_json::json!({"nodes": []});
    assert_eq!(get_nodes(&url, with_ca(file("own.pem", &pem))).await.unwrap(), nodes);
    let in_memory = TlsTrust { ca_certificates: Some(pem), ..TlsTrust::default() };
    assert_eq!(get_nodes(&url, in_memory).await.unwrap(), nodes);
    let any = TlsTrust { accept_any: true, ..TlsTrust::default() };
    assert_eq!(get_nodes(&url, any).await.unwrap(), nodes);
}
