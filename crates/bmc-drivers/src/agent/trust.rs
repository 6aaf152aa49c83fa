// SPDX-License-Identifier: Apache-2.0
//! Whom to trust when speaking TLS to an agent.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};

/// Accepts one certificate. Its names and dates do not matter: an agent makes it before it knows
/// the time.
#[derive(Debug)]
struct OnlyThis {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

/// Trust in the one certificate (PEM) that an agent sent.
pub(super) fn only(certificate: &str) -> Result<ClientConfig, String> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|_| "the certificate it sent cannot be read".to_owned())?;
    let provider = provider();
    let verifier = Arc::new(OnlyThis { certificate, provider: Arc::clone(&provider) });
    Ok(builder(provider)
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// Trust in the authorities of a file, for agents that did not make their own certificate.
pub(super) fn authorities(file: Option<&Path>) -> Result<ClientConfig, String> {
    let Some(file) = file else {
        return Err("the agent speaks https and sent no certificate of its own; configure \
                    agent.verify_ca, the authority that signed the one it has"
            .to_owned());
    };
    let bad = |why: &dyn std::fmt::Display| format!("agent.verify_ca: {}: {why}", file.display());
    let given = server_trust::in_file_or_folder(file).map_err(|error| bad(&error))?;
    server_trust::trusting(given).map_err(|error| bad(&error))
}

/// Trust in nobody, for lines without TLS.
pub(super) fn nobody() -> Arc<ClientConfig> {
    static NOBODY: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let made = NOBODY.get_or_init(|| Arc::new(server_trust::trusting_nobody()));
    Arc::clone(made)
}

/// Whether a request failed because another certificate was shown than the one that is trusted.
pub(super) fn is_another_certificate(error: &reqwest::Error) -> bool {
    server_trust::complaint_in(error) == Some(&ANOTHER)
}

const ANOTHER: CertificateError = CertificateError::ApplicationVerificationFailure;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .expect("ring has suites for every version")
}

impl ServerCertVerifier for OnlyThis {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(ANOTHER.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
