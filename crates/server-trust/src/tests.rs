// SPDX-License-Identifier: Apache-2.0
//! Tests of the certificate verifiers.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::CertificateError;
use rustls::pki_types::{ServerName, UnixTime};

use super::*;
use crate::verify::is_validity_error;

/// 2026-01-01, within the validity period of [`params`].
const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2040, 1, 1);
    params
}

fn self_signed(params: CertificateParams) -> CertificateDer<'static> {
    params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
}

fn ca_params() -> CertificateParams {
    let mut params = params(&[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// Returns a CA certificate and a certificate that it signed for `name`.
fn ca_and_signed(name: &str) -> (CertificateDer<'static>, CertificateDer<'static>) {
    let issuer = CertifiedIssuer::self_signed(ca_params(), KeyPair::generate().unwrap()).unwrap();
    let signed = params(&[name]).signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    (issuer.as_ref().der().clone(), signed.der().clone())
}

fn trusted(certificates: &[&CertificateDer<'static>]) -> TrustedCertVerifier {
    let certificates: Vec<_> = certificates.iter().map(|&known| known.clone()).collect();
    trusted_verifier(certificates).unwrap()
}

fn verify(
    verifier: &dyn ServerCertVerifier,
    certificate: &CertificateDer<'static>,
    name: &str,
) -> Result<(), rustls::Error> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(certificate, &[], &name, &[], NOW).map(drop)
}

fn certificate_error(result: Result<(), rustls::Error>) -> CertificateError {
    let error = result.unwrap_err();
    let rustls::Error::InvalidCertificate(problem) = error else { panic!("{error}") };
    problem
}

#[test]
fn accepts_certificate_signed_by_trusted_ca_for_its_name_only() {
    let (ca, signed) = ca_and_signed("bmc.example");
    let verifier = trusted(&[&ca]);
    assert_eq!(verify(&verifier, &signed, "bmc.example"), Ok(()));
    let error = certificate_error(verify(&verifier, &signed, "other.example"));
    assert!(matches!(error, CertificateError::NotValidForNameContext { .. }), "{error:?}");
}

#[test]
fn accepts_trusted_self_signed_certificate_for_its_name_only() {
    let first = self_signed(params(&["first.example"]));
    let second = self_signed(params(&["second.example"]));
    let verifier = trusted(&[&first, &second]);
    assert_eq!(verify(&verifier, &first, "first.example"), Ok(()));
    assert_eq!(verify(&verifier, &second, "second.example"), Ok(()));
    let error = certificate_error(verify(&verifier, &first, "second.example"));
    assert!(matches!(error, CertificateError::NotValidForNameContext { .. }), "{error:?}");
}

#[test]
fn accepts_trusted_ca_certificate_of_a_server() {
    let mut params = params(&["bmc.example"]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = self_signed(params);
    assert_eq!(verify(&trusted(&[&certificate]), &certificate, "bmc.example"), Ok(()));
}

#[test]
fn accepts_trusted_certificate_without_names_for_every_address() {
    let certificate = self_signed(params(&[]));
    let verifier = trusted(&[&certificate]);
    assert_eq!(verify(&verifier, &certificate, "bmc.example"), Ok(()));
    assert_eq!(verify(&verifier, &certificate, "192.0.2.1"), Ok(()));
}

#[test]
fn accepts_certificate_of_trusted_ca_for_any_name() {
    let (ca, signed) = ca_and_signed("database.example");
    let verifier = AnyNameVerifier { trusted: trusted(&[&ca]) };
    for name in ["database.example", "other.example", "192.0.2.1"] {
        assert_eq!(verify(&verifier, &signed, name), Ok(()));
    }
    let (_, signed_by_other) = ca_and_signed("database.example");
    for name in ["database.example", "other.example"] {
        let error = certificate_error(verify(&verifier, &signed_by_other, name));
        // The other CA has the same name and another key.
        assert_eq!(error, CertificateError::BadSignature);
    }
}

#[test]
fn rejects_expired_trusted_certificate() {
    let mut params = params(&["bmc.example"]);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let certificate = self_signed(params);
    let result = verify(&trusted(&[&certificate]), &certificate, "bmc.example");
    let error = certificate_error(result);
    assert!(is_validity_error(&error), "{error:?}");
}

#[test]
fn rejects_unknown_certificates() {
    let (ca, _) = ca_and_signed("bmc.example");
    let (_, signed_by_other) = ca_and_signed("bmc.example");
    let verifier = trusted(&[&ca, &self_signed(params(&["bmc.example"]))]);
    for unknown in [signed_by_other, self_signed(params(&["bmc.example"]))] {
        let error = certificate_error(verify(&verifier, &unknown, "bmc.example"));
        assert!(!is_validity_error(&error), "{error:?}");
    }
}

#[test]
fn needs_at_least_one_usable_certificate() {
    let invalid = CertificateDer::from(b"not a certificate".to_vec());
    assert!(client_config(Vec::new()).is_err());
    assert!(client_config(vec![invalid.clone()]).is_err());
    assert!(client_config(vec![invalid, self_signed(params(&["bmc.example"]))]).is_ok());
    assert!(pinned_client_config("not a certificate").is_err());
}

#[test]
fn accepts_only_the_pinned_certificate() {
    let mut params_expired = params(&["agent.example"]);
    params_expired.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let pinned = self_signed(params_expired);
    let verifier = PinnedCertVerifier { certificate: pinned.clone(), provider: provider() };
    assert_eq!(verify(&verifier, &pinned, "other.example"), Ok(()), "names and dates are ignored");
    let other = self_signed(params(&["agent.example"]));
    let error = verify(&verifier, &other, "agent.example").unwrap_err();
    assert!(is_pin_mismatch(&error));
    assert!(is_pin_mismatch(&io::Error::other(error)), "also inside an I/O error");
}

#[test]
fn unverified_config_accepts_any_certificate() {
    let verifier = AnyCertVerifier { provider: provider() };
    assert_eq!(verify(&verifier, &CertificateDer::from(vec![0]), "bmc.example"), Ok(()));
}

#[test]
fn loads_certificates_of_a_file_and_of_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.pem", "b.pem"] {
        let certificate = params(&[]).self_signed(&KeyPair::generate().unwrap()).unwrap();
        std::fs::write(folder.path().join(name), certificate.pem()).unwrap();
    }
    std::fs::write(folder.path().join("readme"), "not a certificate").unwrap();
    assert_eq!(load_certificates(&folder.path().join("a.pem")).unwrap().len(), 1);
    assert_eq!(load_certificates(folder.path()).unwrap().len(), 2);
    assert!(load_certificates(&folder.path().join("missing")).is_err());
}
