// SPDX-License-Identifier: Apache-2.0
//! Whom to trust in TLS, and what TLS errors mean in words.

use std::fmt::Display;
use std::path::Path;

use rustls::client::Resumption;
use rustls::{AlertDescription, CertificateError, ClientConfig, SupportedProtocolVersion};

use crate::{Error, MinTls, Trust};

/// How many BMCs' TLS sessions are remembered, so that coming back costs them no key exchange
/// (which takes a BMC's processor a quarter of a second).
const REMEMBERED_SESSIONS: usize = 1024;

/// What to do about a certificate nobody vouches for.
const ADVICE: &str = "set redfish_verify_ca to a file with the CA certificate that signed it, or \
                      to false to accept any certificate";

/// What to do about a certificate that is not what a server's should be.
const OWN: &str = "give the BMC another one, set redfish_verify_ca to a file with this very \
                   certificate, or to false to accept any certificate";

/// TLS with the given trust and the given oldest version. Speaks HTTP/1.1 only.
pub(crate) fn config(trust: &Trust, min_tls: MinTls) -> Result<ClientConfig, Error> {
    let versions = versions(min_tls);
    let mut config = match trust {
        Trust::System => {
            let path = Path::new("/etc/ssl/certs");
            let bad = |why| Error::BadTrust { path: path.to_owned(), why };
            let given = server_trust::of_this_machine().map_err(bad)?;
            server_trust::trusting_since(versions, given).map_err(|error| bad(error.to_string()))?
        }
        Trust::File(path) => {
            let bad = |error: &dyn Display| Error::BadTrust {
                path: path.clone(),
                why: error.to_string(),
            };
            let given = server_trust::in_file_or_folder(path).map_err(|error| bad(&error))?;
            server_trust::trusting_since(versions, given).map_err(|error| bad(&error))?
        }
        Trust::Nobody => server_trust::trusting_anybody_since(versions),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(REMEMBERED_SESSIONS);
    Ok(config)
}

/// What a TLS error means and what to do about it. Nothing of how rustls writes it: that is for us.
#[expect(clippy::wildcard_enum_match_arm, reason = "what rustls may yet add says no more")]
pub(crate) fn words(error: &rustls::Error) -> String {
    use rustls::Error as Tls;
    tracing::debug!(%error, "TLS with a BMC failed");
    match error {
        Tls::InvalidCertificate(problem) => certificate_words(problem),
        Tls::InvalidMessage(_) => "something other than TLS is spoken at that port; is it one for \
                                   http?"
            .to_owned(),
        Tls::NoCertificatesPresented => "it shows no certificate".to_owned(),
        Tls::AlertReceived(
            AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure,
        )
        | Tls::PeerIncompatible(_) => {
            "it and we know no version or cipher of TLS in common (we speak 1.2 and 1.3, unless \
             redfish_tls_minimum_version says otherwise)"
                .to_owned()
        }
        Tls::AlertReceived(alert) => {
            format!("it broke the TLS handshake off (alert {})", u8::from(*alert))
        }
        _ => "the TLS handshake failed: what it says is not as it should be".to_owned(),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what rustls may yet add says no more")]
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
        // What remains are certificates of an authority shown as a server's, and rarer faults.
        _ => format!("its certificate is not one that a server may show; {OWN}"),
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
