// SPDX-License-Identifier: Apache-2.0
//! Tests of certificates and their replacement.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConnection, RootCertStore, ServerConnection};

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// 2026-01-01.
fn start() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_225_600)
}

fn names(hosts: &[&str]) -> CertificateNames {
    let mut names = CertificateNames::default();
    for host in hosts {
        names.add_host(host).unwrap();
    }
    names
}

/// The certificate that a server presents in a handshake.
fn presented(tls: &ServerTls) -> CertificateDer<'static> {
    let client = Arc::new(server_trust::unverified_client_config());
    let name = ServerName::try_from("a.example").unwrap();
    let mut client = ClientConnection::new(client, name).unwrap();
    let mut server = ServerConnection::new(tls.server_config()).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
    client.peer_certificates().unwrap()[0].clone().into_owned()
}

fn verify(
    ca: &str,
    certificate: &CertificateDer<'_>,
    name: &str,
    now: SystemTime,
) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap());
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(certificate, &[], &name, &[], now).map(drop)
}

fn own(hosts: &[&str]) -> (ServerTls, String) {
    let authority = CertificateAuthority::create(start()).unwrap();
    let ca = authority.certificate().to_owned();
    (ServerTls::from_authority(authority, names(hosts), start()).unwrap(), ca)
}

#[test]
fn own_certificate_is_valid_for_its_names_only() {
    let (tls, ca) = own(&["a.example", "10.0.0.1", "[fd00::1]", "*.b.example"]);
    let certificate = presented(&tls);
    for name in ["a.example", "10.0.0.1", "fd00::1", "x.b.example"] {
        verify(&ca, &certificate, name, start()).unwrap();
    }
    for name in ["c.example", "10.0.0.2"] {
        verify(&ca, &certificate, name, start()).unwrap_err();
    }
    let other = CertificateAuthority::create(start()).unwrap();
    verify(other.certificate(), &certificate, "a.example", start()).unwrap_err();
}

#[test]
fn own_certificate_is_renewed_after_two_thirds_of_its_life() {
    let (tls, ca) = own(&["a.example"]);
    let first = presented(&tls);
    let mut now = start() + 59 * DAY;
    let wanted = names(&["a.example"]);
    assert_eq!(tls.refresh(&wanted, now).unwrap(), CertificateChange::Unchanged);
    now += 2 * DAY;
    let expires_at = now + CERTIFICATE_LIFETIME;
    assert_eq!(tls.refresh(&wanted, now).unwrap(), CertificateChange::Issued { expires_at });
    let second = presented(&tls);
    assert_ne!(first, second);
    verify(&ca, &second, "a.example", now + 89 * DAY).unwrap();
    verify(&ca, &second, "a.example", now + 91 * DAY).unwrap_err();
}

#[test]
fn another_ca_replaces_the_certificate_while_the_server_runs() {
    let (tls, old_ca) = own(&["a.example"]);
    let config = tls.server_config();
    let authority = CertificateAuthority::create(start()).unwrap();
    let new_ca = authority.certificate().to_owned();
    tls.replace_authority(authority, names(&["b.example"]), start()).unwrap();
    assert!(Arc::ptr_eq(&config, &tls.server_config()));
    assert_eq!(tls.authority_certificate(), Some(new_ca.clone()));
    let certificate = presented(&tls);
    verify(&new_ca, &certificate, "b.example", start()).unwrap();
    verify(&old_ca, &certificate, "b.example", start()).unwrap_err();
}

#[test]
fn new_address_causes_a_new_certificate_and_a_lost_one_does_not() {
    let (tls, ca) = own(&["10.0.0.1"]);
    let now = start() + DAY;
    let both = names(&["10.0.0.1", "10.0.0.2"]);
    assert!(matches!(tls.refresh(&both, now).unwrap(), CertificateChange::Issued { .. }));
    verify(&ca, &presented(&tls), "10.0.0.2", now).unwrap();
    for wanted in [names(&["10.0.0.1"]), both] {
        assert_eq!(tls.refresh(&wanted, now).unwrap(), CertificateChange::Unchanged);
    }
    // Lost names are dropped at the renewal.
    let wanted = names(&["10.0.0.1"]);
    tls.refresh(&wanted, now + 61 * DAY).unwrap();
    verify(&ca, &presented(&tls), "10.0.0.2", now + 61 * DAY).unwrap_err();
}

#[test]
fn stored_authority_issues_certificates_for_the_same_ca() {
    let authority = CertificateAuthority::create(start()).unwrap();
    let ca = authority.certificate().to_owned();
    let stored = authority.record().clone();
    assert!(!format!("{stored:?}").contains("PRIVATE"), "the key is in the debug output");
    let opened = CertificateAuthority::open(stored).unwrap();
    let tls = ServerTls::from_authority(opened, names(&["a.example"]), start()).unwrap();
    verify(&ca, &presented(&tls), "a.example", start()).unwrap();
}

/// Clients that have the previous CA file accept certificates after the CA was renewed.
#[test]
fn renewed_authority_keeps_key_and_name() {
    let authority = CertificateAuthority::create(start()).unwrap();
    let old_ca = authority.certificate().to_owned();
    assert!(!authority.is_renewal_due(start() + 2000 * DAY));
    let now = start() + 2500 * DAY;
    assert!(authority.is_renewal_due(now));
    let renewed = authority.renew(now).unwrap();
    assert!(!renewed.is_renewal_due(now));
    let new_ca = renewed.certificate().to_owned();
    assert_ne!(old_ca, new_ca);
    let tls = ServerTls::from_authority(renewed, names(&["a.example"]), now).unwrap();
    for ca in [&old_ca, &new_ca] {
        verify(ca, &presented(&tls), "a.example", now).unwrap();
    }
}

#[test]
fn certificate_does_not_outlive_its_ca() {
    let authority = CertificateAuthority::create(start()).unwrap();
    let ca = authority.certificate().to_owned();
    let now = start() + AUTHORITY_LIFETIME - 3 * DAY;
    let tls = ServerTls::from_authority(authority, names(&["a.example"]), now).unwrap();
    verify(&ca, &presented(&tls), "a.example", now + 2 * DAY).unwrap();
    verify(&ca, &presented(&tls), "a.example", now + 4 * DAY).unwrap_err();
}

fn write_files(folder: &Path, name: &str) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    CertificateDer::from(made.cert.der().to_vec())
}

#[test]
fn changed_files_are_reloaded_and_a_mismatch_keeps_the_old_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let first = write_files(folder.path(), "a.example");
    let files = CertificateFiles { certificate: path("cert.pem"), key: path("key.pem") };
    let tls = ServerTls::from_files(files).unwrap();
    let refresh = || tls.refresh(&CertificateNames::default(), start());
    assert_eq!(presented(&tls), first);
    assert_eq!(refresh().unwrap(), CertificateChange::Unchanged);
    // The key is replaced first: both do not match for a while.
    let other = tempfile::tempdir().unwrap();
    let second = write_files(other.path(), "a.example");
    fs::rename(other.path().join("key.pem"), path("key.pem")).unwrap();
    let error = refresh().unwrap_err().to_string();
    assert!(error.contains("key.pem cannot be used with the certificate"), "{error}");
    assert_eq!(presented(&tls), first);
    fs::rename(other.path().join("cert.pem"), path("cert.pem")).unwrap();
    assert_eq!(refresh().unwrap(), CertificateChange::Reloaded);
    assert_eq!(presented(&tls), second);
    assert_eq!(refresh().unwrap(), CertificateChange::Unchanged);
    fs::remove_file(path("key.pem")).unwrap();
    assert!(refresh().unwrap_err().to_string().contains("cannot read"));
    assert_eq!(presented(&tls), second);
}

#[test]
fn unusable_files_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_files(folder.path(), "a.example");
    fs::write(path("empty"), "").unwrap();
    for (certificate, key, expected) in [
        ("missing", "key.pem", "cannot read"),
        ("empty", "key.pem", "cannot read PEM certificates"),
        ("cert.pem", "empty", "cannot read a PEM private key"),
    ] {
        let files = CertificateFiles { certificate: path(certificate), key: path(key) };
        let error = ServerTls::from_files(files).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// OpenSSL in strict mode, as Python uses it since 3.13.
#[test]
fn openssl_accepts_certificates_in_strict_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let now = SystemTime::now();
    let authority = CertificateAuthority::create(now).unwrap();
    fs::write(path("ca.pem"), authority.certificate()).unwrap();
    let tls = ServerTls::from_authority(authority, names(&["a.example"]), now).unwrap();
    fs::write(path("cert.pem"), pem_bundle(&[presented(&tls)])).unwrap();
    let verify = |host: &str| {
        let mut command = Command::new("openssl");
        command.args(["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", host]);
        command.arg("-CAfile").arg(path("ca.pem")).arg(path("cert.pem"));
        command.output().unwrap()
    };
    let good = verify("a.example");
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    assert!(!verify("b.example").status.success());
}

#[test]
fn pem_bundle_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let certificates =
        vec![write_files(folder.path(), "a.example"), write_files(folder.path(), "b.example")];
    let path = folder.path().join("bundle.pem");
    fs::write(&path, pem_bundle(&certificates)).unwrap();
    assert_eq!(read_certificates(&path).unwrap(), certificates);
}

#[test]
fn parses_hosts_of_urls_and_rejects_invalid_names() {
    for (url, host) in [
        ("https://a.example:6385/x", Some("a.example")),
        ("http://u:p@10.0.0.1?q", Some("10.0.0.1")),
        ("https://[fd00::1]:6385", Some("fd00::1")),
        ("https:///x", None),
        ("a.example", None),
    ] {
        assert_eq!(url_host(url), host, "{url}");
    }
    for wrong in ["", "a b", "a..b", "ümlaut", "a.*.b", &"x".repeat(64)] {
        assert!(CertificateNames::default().add_host(wrong).is_err(), "{wrong}");
    }
    let mut unspecified = CertificateNames::default();
    unspecified.add_host("0.0.0.0").unwrap();
    assert!(unspecified.is_empty());
}
