// SPDX-License-Identifier: Apache-2.0
//! Whom to trust in TLS, and what TLS errors mean in words.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme, SupportedProtocolVersion,
};

use crate::{Error, MinTls, Trust};

/// How many BMCs' TLS sessions are remembered, so that coming back costs them no key exchange
/// (which takes a BMC's processor a quarter of a second).
const REMEMBERED_SESSIONS: usize = 1024;

/// What to do about a certificate nobody vouches for.
const ADVICE: &str = "set redfish_verify_ca to a file with the CA certificate that signed it, or \
                      to false to accept any certificate";

/// TLS with ring, the given trust and the given oldest version. Speaks HTTP/1.1 only.
pub(crate) fn config(trust: &Trust, min_tls: MinTls) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(min_tls))
        .expect("ring has suites for every version we name");
    let mut config = match trust {
        Trust::System => builder.with_root_certificates(system_roots()?),
        Trust::File(path) => builder.with_root_certificates(roots_in(path)?),
        Trust::Nobody => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny { provider }))
        }
    }
    .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(REMEMBERED_SESSIONS);
    Ok(config)
}

/// What a TLS error means and what to do about it.
#[expect(clippy::wildcard_enum_match_arm, reason = "what rustls may yet add speaks for itself")]
pub(crate) fn words(error: &rustls::Error) -> String {
    use rustls::Error as Tls;
    match error {
        Tls::InvalidCertificate(problem) => certificate_words(problem),
        Tls::InvalidMessage(_) => "something other than TLS is spoken at that port; is it one for \
                                   http?"
            .to_owned(),
        Tls::NoCertificatesPresented => "it shows no certificate".to_owned(),
        Tls::AlertReceived(
            AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure,
        )
        | Tls::PeerIncompatible(_) => format!(
            "it and we know no version or cipher of TLS in common (we speak 1.2 and 1.3, unless \
             redfish_tls_minimum_version says otherwise): {error}"
        ),
        other => format!("the TLS handshake failed: {other}"),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what rustls may yet add speaks for itself")]
fn certificate_words(problem: &CertificateError) -> String {
    use CertificateError as Bad;
    match problem {
        Bad::Expired | Bad::ExpiredContext { .. } => format!(
            "its certificate has expired; give the BMC a new one (and check the clocks), or {ADVICE}"
        ),
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            format!("its certificate is not valid yet; check the clocks, or {ADVICE}")
        }
        Bad::UnknownIssuer => format!(
            "its certificate is self-signed or signed by a CA that is not trusted here; {ADVICE}"
        ),
        Bad::NotValidForName => {
            format!(
                "its certificate is for another host name; use that name as address, or {ADVICE}"
            )
        }
        Bad::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare_name(name)).collect();
            let names = if names.is_empty() { "no host name".to_owned() } else { names.join(", ") };
            format!(
                "its certificate is for {names} and not for {}; use a name it is for as address, \
                 or {ADVICE}",
                expected.to_str()
            )
        }
        Bad::Revoked => "its certificate was revoked; give the BMC a new one".to_owned(),
        Bad::BadSignature => {
            format!("its certificate is not signed by the CA it names; {ADVICE}")
        }
        other => format!("its certificate cannot be accepted ({other}); {ADVICE}"),
    }
}

/// The name itself, of what rustls writes as `DnsName("bmc.example")`.
fn bare_name(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}

fn versions(min_tls: MinTls) -> &'static [&'static SupportedProtocolVersion] {
    static ONLY_1_3: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
    match min_tls {
        MinTls::V1_2 => rustls::ALL_VERSIONS,
        MinTls::V1_3 => &ONLY_1_3,
    }
}

fn system_roots() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let why = found.errors.first().map_or_else(
        || "this machine has no CA certificates (is ca-certificates installed?)".to_owned(),
        ToString::to_string,
    );
    Err(Error::BadTrust { path: PathBuf::from("/etc/ssl/certs"), why })
}

/// The certificates in a PEM file, or in the PEM files of a directory. Certificates that cannot be
/// used are passed over as long as one can.
fn roots_in(path: &Path) -> Result<RootCertStore, Error> {
    let bad = |why: String| Error::BadTrust { path: path.to_owned(), why };
    let unreadable = |error: std::io::Error| bad(error.to_string());
    let mut roots = RootCertStore::empty();
    let files = if std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        let entries = std::fs::read_dir(path).map_err(unreadable)?;
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect()
    } else {
        vec![path.to_owned()]
    };
    for file in files {
        let Ok(pem) = std::fs::read(&file) else {
            if file == path {
                return Err(bad("it cannot be read".to_owned()));
            }
            continue;
        };
        let certificates = CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok);
        roots.add_parsable_certificates(certificates);
    }
    if roots.is_empty() {
        return Err(bad("there is no certificate in PEM form in it".to_owned()));
    }
    Ok(roots)
}

/// Accepts every certificate and every key, also those rustls cannot work with: old BMCs show
/// 1024-bit RSA keys and certificates nothing else parses. Whoever trusts nobody has asked for it.
#[derive(Debug)]
struct AcceptAny {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.provider.signature_verification_algorithms.supported_schemes();
        schemes.extend([SignatureScheme::RSA_PKCS1_SHA1, SignatureScheme::ECDSA_SHA1_Legacy]);
        schemes
    }
}
