// SPDX-License-Identifier: Apache-2.0
//! Tests of client certificates, with certificates made by OpenSSL.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, ServerConnection};

use super::*;

fn openssl(folder: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Creates `NAME.pem` and `NAME.key`: a CA, or a certificate of a CA.
fn create(folder: &Path, name: &str, subject: &str, issuer: Option<&str>) -> PathBuf {
    let (pem, key) = (format!("{name}.pem"), format!("{name}.key"));
    let common = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let common = [&common, &["-subj", subject, "-days", "30", "-keyout", &key, "-out", &pem][..]];
    let common = common.concat();
    match issuer {
        None => openssl(folder, &common),
        Some(issuer) => {
            let (ca, ca_key) = (format!("{issuer}.pem"), format!("{issuer}.key"));
            let more = ["-CA", &ca, "-CAkey", &ca_key, "-addext", "basicConstraints=CA:FALSE"];
            openssl(folder, &[&common[..], &more].concat());
        }
    }
    folder.join(pem)
}

fn server(ca_file: PathBuf) -> (Arc<ServerTls>, ClientCertificateTls) {
    let now = SystemTime::now();
    let authority = CertificateAuthority::create(now).unwrap();
    let names = CertificateNames::default();
    let tls = Arc::new(ServerTls::from_authority(authority, names, now).unwrap());
    let clients = ClientCertificateTls::new(Arc::clone(&tls), ca_file).unwrap();
    (tls, clients)
}

fn client(certificate: Option<&Path>) -> Arc<ClientConfig> {
    let mut config = server_trust::unverified_client_config();
    if let Some(path) = certificate {
        let chain = read_certificates(path).unwrap();
        let key = PrivateKeyDer::from_pem_file(path.with_extension("key")).unwrap();
        let certified = CertifiedKey::from_der(chain, key, config.crypto_provider()).unwrap();
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
    }
    Arc::new(config)
}

/// Performs a handshake. Returns the name in the certificate of the client.
fn handshake(
    server: Arc<rustls::ServerConfig>,
    client: &Arc<ClientConfig>,
) -> Result<Option<String>, rustls::Error> {
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    // A few rounds more than the handshake takes, so that the client receives its tickets.
    for _ in 0..6 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    let certificate = server.peer_certificates().and_then(|chain| chain.first());
    Ok(certificate
        .map(|certificate| CertificateInfo::parse(certificate).unwrap().common_name.unwrap()))
}

#[test]
fn certificates_of_the_ca_are_optional_and_others_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let ca = create(folder.path(), "ca", "/CN=Staff CA", None);
    create(folder.path(), "other", "/CN=Staff CA", None);
    let alice = create(folder.path(), "alice", "/O=Lab/CN=alice", Some("ca"));
    let mallory = create(folder.path(), "mallory", "/CN=alice", Some("other"));
    let (tls, clients) = server(ca);
    let config = || clients.server_config();
    assert_eq!(handshake(config(), &client(Some(&alice))), Ok(Some("alice".to_owned())));
    assert_eq!(handshake(config(), &client(None)), Ok(None));
    handshake(config(), &client(Some(&mallory))).unwrap_err();
    // The file service uses the same certificate, and requests none.
    assert_eq!(handshake(tls.server_config(), &client(Some(&alice))), Ok(None));
}

/// A client of a CA that was removed cannot resume its session either.
#[test]
fn changed_ca_applies_to_new_connections() {
    let folder = tempfile::tempdir().unwrap();
    let ca = create(folder.path(), "ca", "/CN=Staff CA", None);
    let alice = create(folder.path(), "alice", "/CN=alice", Some("ca"));
    let (_, clients) = server(ca.clone());
    assert!(!clients.refresh().unwrap());
    let alice = client(Some(&alice));
    for _ in 0..2 {
        assert_eq!(handshake(clients.server_config(), &alice), Ok(Some("alice".to_owned())));
    }
    std::fs::write(&ca, "not a certificate").unwrap();
    clients.refresh().unwrap_err();
    assert_eq!(handshake(clients.server_config(), &alice), Ok(Some("alice".to_owned())));
    let new = create(folder.path(), "new", "/CN=Staff CA", None);
    std::fs::rename(new, &ca).unwrap();
    assert!(clients.refresh().unwrap());
    handshake(clients.server_config(), &alice).unwrap_err();
}

#[test]
fn reads_name_and_expiry() {
    let folder = tempfile::tempdir().unwrap();
    for (subject, expected) in [
        ("/CN=alice", Some("alice")),
        ("/O=Lab/OU=Ops/CN=Zoë", Some("Zoë")),
        ("/O=Lab", None),
        // Which one is the user is not certain.
        ("/CN=alice/CN=admin", None),
    ] {
        let path = folder.path().join("a.pem");
        let made = ["req", "-x509", "-utf8", "-newkey", "ed25519", "-nodes", "-keyout", "a.key"];
        let more = ["-subj", subject, "-days", "30", "-out", "a.pem"];
        openssl(folder.path(), &[&made[..], &more].concat());
        let chain = read_certificates(&path).unwrap();
        let info = CertificateInfo::parse(&chain[0]).unwrap();
        assert_eq!(info.common_name.as_deref(), expected, "{subject}");
        let days =
            info.expires_at.duration_since(SystemTime::now()).unwrap().as_secs_f64() / 86400.0;
        assert!((29.9..30.1).contains(&days), "{days}");
        assert_eq!(earliest_expiry(&chain).unwrap(), Some(info.expires_at));
    }
    assert_eq!(earliest_expiry(&[]).unwrap(), None);
    assert!(CertificateInfo::parse(&CertificateDer::from(vec![0x30, 0x80])).is_err());
}

#[test]
fn expiry_of_the_own_certificates_is_known() {
    let now = UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    let authority = CertificateAuthority::create(now).unwrap();
    let tls = ServerTls::from_authority(authority, CertificateNames::default(), now).unwrap();
    assert_eq!(tls.certificate_expiry(), Some(now + CERTIFICATE_LIFETIME));
    assert_eq!(tls.authority_expiry(), Some(now + AUTHORITY_LIFETIME));
    assert!(!tls.is_from_files());
}
