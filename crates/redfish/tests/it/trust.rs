// SPDX-License-Identifier: Apache-2.0
//! TLS: accepted and rejected certificates, and the error messages.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use redfish::{
    CertificateTrust, MinTlsVersion, RedfishClient, RedfishEndpoint, RedfishError, RedfishTimeouts,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::bmc::{BmcTestResponse, ScriptedBmc, client};

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn acceptor(certificate: &Certificate, key: &KeyPair, old: bool) -> TlsAcceptor {
    let versions: &[_] = if old { &[&rustls::version::TLS12] } else { rustls::ALL_VERSIONS };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.der().to_vec())],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut authority = params(&[]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap()
}

fn pem_file(pem: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(pem.as_bytes()).unwrap();
    file
}

fn trusting(bmc: &ScriptedBmc, trust: CertificateTrust) -> RedfishEndpoint {
    RedfishEndpoint { trust, ..RedfishEndpoint::parse(&bmc.address).unwrap() }
}

async fn error_text_of(endpoint: RedfishEndpoint) -> String {
    match client(endpoint).get("/x").await {
        Ok(_) => "welcome".to_owned(),
        Err(RedfishError::Certificate { why, .. }) => why,
        Err(other) => panic!("not about TLS: {other}"),
    }
}

const ADVICE: &str = "set redfish_verify_ca to a file with the CA certificate that signed it, or \
                      to false to accept any certificate";

#[tokio::test]
async fn self_signed_certificates() {
    let key = KeyPair::generate().unwrap();
    let own = params(&["127.0.0.1"]).self_signed(&key).unwrap();
    let bmc = ScriptedBmc::start_tls(acceptor(&own, &key, false)).await;
    let unknown = format!(
        "its certificate is self-signed or signed by a CA that is not trusted here; {ADVICE}"
    );
    assert_eq!(error_text_of(trusting(&bmc, CertificateTrust::System)).await, unknown);
    assert_eq!(error_text_of(trusting(&bmc, CertificateTrust::AnyCertificate)).await, "welcome");
    let file = pem_file(&own.pem());
    assert_eq!(
        error_text_of(trusting(&bmc, CertificateTrust::File(file.path().to_owned()))).await,
        "welcome"
    );
}

#[tokio::test]
async fn self_signed_certificates_marked_as_an_authority_s() {
    let key = KeyPair::generate().unwrap();
    let marked = |names: &[&str]| {
        let mut params = params(names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    let past = |mut params: CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        params
    };
    let expired = "its certificate has expired";
    let not_ours = "its certificate is for bmc.example and not for 127.0.0.1";
    for (what, params, expected) in [
        ("as OpenSSL makes them", marked(&["127.0.0.1"]), "welcome"),
        ("without any name", marked(&[]), "welcome"),
        ("without any name or mark", params(&[]), "welcome"),
        ("for another host", marked(&["bmc.example"]), not_ours),
        ("of another time", past(marked(&["127.0.0.1"])), expired),
        ("of another time, without any name", past(params(&[])), expired),
    ] {
        let own = params.self_signed(&key).unwrap();
        let file = pem_file(&format!("{}{}", authority().pem(), own.pem()));
        let bmc = ScriptedBmc::start_tls(acceptor(&own, &key, false)).await;
        let text =
            error_text_of(trusting(&bmc, CertificateTrust::File(file.path().to_owned()))).await;
        assert!(text.starts_with(expected), "{what}: {text}");
    }
}

#[tokio::test]
async fn explains_an_untrusted_ca_certificate() {
    let key = KeyPair::generate().unwrap();
    let mut marked = params(&["127.0.0.1"]);
    marked.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let marked = marked.self_signed(&key).unwrap();
    let bmc = ScriptedBmc::start_tls(acceptor(&marked, &key, false)).await;
    let file = pem_file(&authority().pem());
    assert_eq!(
        error_text_of(trusting(&bmc, CertificateTrust::File(file.path().to_owned()))).await,
        "its certificate is not one that a server may show; give the BMC another one, set \
         redfish_verify_ca to a file with this very certificate, or to false to accept any \
         certificate"
    );
}

#[tokio::test]
async fn trusts_a_certificate_in_the_file_with_any_issuer() {
    let key = KeyPair::generate().unwrap();
    let signed = params(&["127.0.0.1"]).signed_by(&key, &authority()).unwrap();
    let bmc = ScriptedBmc::start_tls(acceptor(&signed, &key, false)).await;
    let file = pem_file(&signed.pem());
    assert_eq!(
        error_text_of(trusting(&bmc, CertificateTrust::File(file.path().to_owned()))).await,
        "welcome"
    );
}

#[tokio::test]
async fn certificates_of_a_ca_of_ones_own() {
    let authority = authority();
    let file = pem_file(&format!("some words\n{}", authority.pem()));
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.pem"), authority.pem()).unwrap();
    std::fs::write(directory.path().join("README"), "no certificate").unwrap();
    let by_file = CertificateTrust::File(file.path().to_owned());

    let key = KeyPair::generate().unwrap();
    let good = params(&["127.0.0.1"]).signed_by(&key, &authority).unwrap();
    let bmc = ScriptedBmc::start_tls(acceptor(&good, &key, false)).await;
    assert_eq!(error_text_of(trusting(&bmc, by_file.clone())).await, "welcome");
    assert_eq!(
        error_text_of(trusting(&bmc, CertificateTrust::File(directory.path().to_owned()))).await,
        "welcome"
    );

    let other = params(&["bmc.example"]).signed_by(&key, &authority).unwrap();
    let bmc = ScriptedBmc::start_tls(acceptor(&other, &key, false)).await;
    assert_eq!(
        error_text_of(trusting(&bmc, by_file.clone())).await,
        format!(
            "its certificate is for bmc.example and not for 127.0.0.1; use a name it is for as \
             address, or {ADVICE}"
        )
    );

    let mut past = params(&["127.0.0.1"]);
    past.not_before = rcgen::date_time_ymd(2001, 1, 1);
    past.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let past = past.signed_by(&key, &authority).unwrap();
    let bmc = ScriptedBmc::start_tls(acceptor(&past, &key, false)).await;
    assert_eq!(
        error_text_of(trusting(&bmc, by_file.clone())).await,
        format!(
            "its certificate has expired; give the BMC a new one (and check the clocks), or {ADVICE}"
        )
    );
    assert_eq!(error_text_of(trusting(&bmc, CertificateTrust::AnyCertificate)).await, "welcome");

    let mut future = params(&["127.0.0.1"]);
    future.not_before = rcgen::date_time_ymd(4000, 1, 1);
    future.not_after = rcgen::date_time_ymd(4001, 1, 1);
    let future = future.signed_by(&key, &authority).unwrap();
    let bmc = ScriptedBmc::start_tls(acceptor(&future, &key, false)).await;
    assert_eq!(
        error_text_of(trusting(&bmc, by_file)).await,
        format!("its certificate is not valid yet; check the clocks, or {ADVICE}")
    );
}

#[tokio::test]
async fn versions_of_tls() {
    let key = KeyPair::generate().unwrap();
    let own = params(&["127.0.0.1"]).self_signed(&key).unwrap();
    let bmc = ScriptedBmc::start_tls(acceptor(&own, &key, true)).await;
    let endpoint = trusting(&bmc, CertificateTrust::AnyCertificate);
    assert_eq!(error_text_of(endpoint.clone()).await, "welcome");
    let strict = error_text_of(RedfishEndpoint { min_tls: MinTlsVersion::V1_3, ..endpoint }).await;
    assert!(strict.starts_with("no common TLS version or cipher"), "{strict}");
}

#[tokio::test]
async fn http_where_https_was_expected() {
    let bmc = ScriptedBmc::start(|_| BmcTestResponse::nothing(200)).await;
    let address = bmc.address.replace("http://", "https://");
    let endpoint = RedfishEndpoint {
        trust: CertificateTrust::AnyCertificate,
        ..RedfishEndpoint::parse(&address).unwrap()
    };
    assert_eq!(error_text_of(endpoint).await, "that port does not use TLS; is it one for http?");
}

#[test]
fn ca_files_that_are_none() {
    let made = |path: PathBuf| {
        let endpoint = RedfishEndpoint {
            trust: CertificateTrust::File(path),
            ..RedfishEndpoint::parse("bmc").unwrap()
        };
        RedfishClient::new(endpoint, RedfishTimeouts::default(), Arc::new(Semaphore::new(1)))
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(
        made(PathBuf::from("/nowhere/ca.pem")).unwrap(),
        "the CA certificates in /nowhere/ca.pem cannot be used: No such file or directory (os \
         error 2); check redfish_verify_ca"
    );
    let file = pem_file("no certificate");
    assert_eq!(
        made(file.path().to_owned()).unwrap(),
        format!(
            "the CA certificates in {} cannot be used: no usable certificate in PEM format; \
             check redfish_verify_ca",
            file.path().display()
        )
    );
}

#[tokio::test]
async fn a_ca_file_that_changed_is_read_again() {
    let key = KeyPair::generate().unwrap();
    let own = params(&["127.0.0.1"]).self_signed(&key).unwrap();
    let bmc = ScriptedBmc::start_tls(acceptor(&own, &key, false)).await;
    let file = pem_file(&authority().pem());
    let client = client(trusting(&bmc, CertificateTrust::File(file.path().to_owned())));
    let error = client.get("/x").await.unwrap_err();
    assert!(matches!(error, RedfishError::Certificate { .. }), "{error}");
    std::fs::write(file.path(), own.pem()).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    file.as_file().set_modified(later).unwrap();
    client.get("/x").await.unwrap();
    std::fs::remove_file(file.path()).unwrap();
    let error = client.get("/x").await.unwrap_err();
    assert!(matches!(error, RedfishError::BadTrust { .. }), "{error}");
}
