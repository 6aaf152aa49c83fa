// SPDX-License-Identifier: Apache-2.0
//! TLS for our servers: one certificate for the API and the file service, from files or from an own
//! certificate authority.
//!
//! [`ServerTls`] holds the current certificate. [`ServerTls::refresh`] replaces it when the files
//! changed, when it is due for renewal, or when the server has a new name; connections that are open
//! keep the certificate of their handshake. Time and names are parameters, so that the crate has
//! neither a clock nor a timer.

mod authority;
mod certificate_info;
#[cfg(test)]
mod client_certificate_tests;
mod client_certificates;
mod files;
mod names;
mod pem_text;
mod server_tls;
#[cfg(test)]
mod tests;

pub use authority::{
    AUTHORITY_LIFETIME, AuthorityError, AuthorityKey, AuthorityRecord, CERTIFICATE_LIFETIME,
    CertificateAuthority, ServerCertificatePem,
};
pub use certificate_info::{CertificateInfo, MalformedCertificate, earliest_expiry};
pub use client_certificates::{ClientAuthorityError, ClientCertificateTls};
pub use files::{CertificateFileError, CertificateFiles};
pub use names::{CertificateNames, InvalidHostName, url_host};
pub use pem_text::{PemFileError, pem_bundle, read_certificates};
pub use server_tls::{CertificateChange, ServerTls, ServerTlsError};
