// SPDX-License-Identifier: Apache-2.0
//! TLS configuration, and explanations of TLS errors.

use std::fmt::Display;
use std::path::Path;

use rustls::client::Resumption;
use rustls::{AlertDescription, CertificateError, ClientConfig, SupportedProtocolVersion};

use crate::{CertificateTrust, MinTlsVersion, RedfishError};

/// The number of cached TLS sessions. Resumption saves a BMC the key exchange, which takes its
/// processor a quarter of a second.
const CACHED_SESSIONS: usize = 1024;

/// The advice for a certificate that is not trusted.
const ADVICE: &str = "set redfish_verify_ca to a file with the CA certificate that signed it, or \
                      to false to accept any certificate";

/// The advice for an unsuitable certificate.
const OWN: &str = "give the BMC another one, set redfish_verify_ca to a file with this very \
                   certificate, or to false to accept any certificate";

/// The TLS configuration for the given trust and minimum version, for HTTP/1.1 only.
pub(crate) fn config(
    trust: &CertificateTrust,
    min_tls: MinTlsVersion,
) -> Result<ClientConfig, RedfishError> {
    let versions = versions(min_tls);
    let mut config = match trust {
        CertificateTrust::System => {
            let path = Path::new("/etc/ssl/certs");
            let bad = |why| RedfishError::BadTrust { path: path.to_owned(), why };
            let given = server_trust::system_certificates().map_err(bad)?;
            server_trust::client_config_with_versions(versions, given)
                .map_err(|error| bad(error.to_string()))?
        }
        CertificateTrust::File(path) => {
            let bad = |error: &dyn Display| RedfishError::BadTrust {
                path: path.clone(),
                why: error.to_string(),
            };
            let given = server_trust::load_certificates(path).map_err(|error| bad(&error))?;
            server_trust::client_config_with_versions(versions, given)
                .map_err(|error| bad(&error))?
        }
        CertificateTrust::AnyCertificate => {
            server_trust::unverified_client_config_with_versions(versions)
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(CACHED_SESSIONS);
    Ok(config)
}

/// Explains a TLS error and what to do about it. The original error goes to the debug log.
#[expect(clippy::wildcard_enum_match_arm, reason = "future errors of rustls get the general text")]
pub(crate) fn describe_tls_error(error: &rustls::Error) -> String {
    use rustls::Error as Tls;
    tracing::debug!(%error, "TLS with a BMC failed");
    match error {
        Tls::InvalidCertificate(problem) => describe_certificate_error(problem),
        Tls::InvalidMessage(_) => "that port does not use TLS; is it one for \
                                   http?"
            .to_owned(),
        Tls::NoCertificatesPresented => "it presents no certificate".to_owned(),
        Tls::AlertReceived(
            AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure,
        )
        | Tls::PeerIncompatible(_) => {
            "no common TLS version or cipher (Ferrite supports 1.2 and 1.3, unless \
             redfish_tls_minimum_version is set)"
                .to_owned()
        }
        Tls::AlertReceived(alert) => {
            format!("it aborted the TLS handshake (alert {})", u8::from(*alert))
        }
        _ => "the TLS handshake failed: it sent an invalid message".to_owned(),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "future errors of rustls get the general text")]
fn describe_certificate_error(problem: &CertificateError) -> String {
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
        Bad::BadEncoding => {
            "its certificate cannot be read; give the BMC a new one, or set redfish_verify_ca to \
             false to accept any certificate"
                .to_owned()
        }
        Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => {
            format!("its certificate is not meant for servers; {OWN}")
        }
        Bad::UnsupportedSignatureAlgorithmContext { .. }
        | Bad::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            format!("its certificate is signed in a way that is not trusted any more; {OWN}")
        }
        // CA certificates used as server certificates, and rarer faults.
        _ => format!("its certificate is not one that a server may show; {OWN}"),
    }
}

/// The name in `DnsName("bmc.example")`, as rustls formats it.
fn bare_name(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_end_matches(')').trim_matches('"')
}

fn versions(min_tls: MinTlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static ONLY_1_3: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
    match min_tls {
        MinTlsVersion::V1_2 => rustls::ALL_VERSIONS,
        MinTlsVersion::V1_3 => &ONLY_1_3,
    }
}
