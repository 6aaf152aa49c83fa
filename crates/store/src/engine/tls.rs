// SPDX-License-Identifier: Apache-2.0
//! TLS settings of a database URL: `sslmode`, `sslrootcert`, `sslcert` and `sslkey`, as in PostgreSQL's
//! clients, or the names of MariaDB's clients (`ssl-mode`, `ssl-ca`, `ssl-cert`, `ssl-key`).

use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

/// Whether a connection uses TLS, and what is verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum TlsRequirement {
    /// No TLS.
    Disable,
    /// TLS without verification if the server supports it.
    #[default]
    Prefer,
    /// TLS without verification. With CA certificates, the same as `VerifyCa`, as in PostgreSQL's clients.
    Require,
    /// The certificate of the server is verified, but not its names.
    VerifyCa,
    /// The certificate of the server and its names are verified.
    VerifyFull,
}

/// The TLS settings of a database URL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DatabaseTls {
    pub(crate) requirement: TlsRequirement,
    /// CA certificates (PEM); by default those of the system.
    pub(crate) root_certificates: Option<PathBuf>,
    /// The certificate and the key of the client (PEM).
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

impl DatabaseTls {
    /// Splits a URL into one without TLS settings, and these.
    pub(crate) fn from_url(url: &str) -> Result<(String, Self), String> {
        let Some((base, query)) = url.split_once('?') else {
            return Ok((url.to_owned(), Self::default()));
        };
        let (mut requirement, mut roots, mut certificate, mut key) = (None, None, None, None);
        let mut rest = Vec::new();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match name.to_lowercase().replace(['-', '_'], "").as_str() {
                "sslmode" => &mut requirement,
                "sslrootcert" | "sslca" => &mut roots,
                "sslcert" => &mut certificate,
                "sslkey" => &mut key,
                _ => {
                    rest.push(pair);
                    continue;
                }
            };
            let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
            *slot = Some(value).filter(|value| !value.is_empty());
        }
        let base =
            if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let requirement = requirement.map(|text| parse(&text)).transpose()?;
        let client = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            (Some(_), None) => return Err("sslcert requires sslkey".to_owned()),
            (None, Some(_)) => return Err("sslkey requires sslcert".to_owned()),
        };
        // The value of PostgreSQL's clients for the CA certificates of the system, which they use only with
        // the name of the server: every server has a certificate of some public CA.
        let is_system = roots.as_deref() == Some("system");
        let root_certificates = roots.filter(|path| path != "system").map(PathBuf::from);
        if is_system {
            return match requirement {
                None | Some(TlsRequirement::VerifyFull) => {
                    let requirement = TlsRequirement::VerifyFull;
                    Ok((base, Self { requirement, root_certificates, client }))
                }
                Some(_) => Err("sslrootcert=system requires sslmode=verify-full".to_owned()),
            };
        }
        let requirement = requirement.unwrap_or_default();
        let requirement = if requirement == TlsRequirement::Require && root_certificates.is_some() {
            TlsRequirement::VerifyCa
        } else {
            requirement
        };
        Ok((base, Self { requirement, root_certificates, client }))
    }

    /// The configuration of rustls; `None` without TLS. The files are read for each connection, so that
    /// renewed certificates are used without a restart.
    pub(crate) fn client_config(&self) -> Result<Option<ClientConfig>, String> {
        let mut config = match self.requirement {
            TlsRequirement::Disable => return Ok(None),
            TlsRequirement::Prefer | TlsRequirement::Require => {
                server_trust::unverified_client_config()
            }
            TlsRequirement::VerifyCa => server_trust::client_config_without_names(self.roots()?)
                .map_err(|error| error.to_string())?,
            TlsRequirement::VerifyFull => {
                server_trust::client_config(self.roots()?).map_err(|error| error.to_string())?
            }
        };
        if let Some((certificate, key)) = &self.client {
            let failed = |path: &PathBuf, error: &dyn std::fmt::Display| {
                format!("{}: {error}", path.display())
            };
            let chain = CertificateDer::pem_file_iter(certificate)
                .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
                .map_err(|error| failed(certificate, &error))?;
            let private = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
            let certified = CertifiedKey::from_der(chain, private, config.crypto_provider())
                .map_err(|error| failed(key, &error))?;
            config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        }
        Ok(Some(config))
    }

    fn roots(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        match &self.root_certificates {
            Some(path) => server_trust::load_certificates(path)
                .map_err(|error| format!("{}: {error}", path.display())),
            None => server_trust::system_certificates(),
        }
    }
}

fn parse(text: &str) -> Result<TlsRequirement, String> {
    match text.to_lowercase().replace('_', "-").as_str() {
        "disable" | "disabled" => Ok(TlsRequirement::Disable),
        "prefer" | "preferred" => Ok(TlsRequirement::Prefer),
        "require" | "required" => Ok(TlsRequirement::Require),
        "verify-ca" => Ok(TlsRequirement::VerifyCa),
        "verify-full" | "verify-identity" => Ok(TlsRequirement::VerifyFull),
        _ => Err(format!(
            "sslmode is {text:?}, but must be disable, prefer, require, verify-ca or verify-full"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_taken_from_the_url() {
        let (url, tls) = DatabaseTls::from_url("postgresql://u:p@h/d").unwrap();
        assert_eq!((url.as_str(), tls), ("postgresql://u:p@h/d", DatabaseTls::default()));
        let (url, tls) = DatabaseTls::from_url(
            "postgresql://h/d?application_name=x&sslmode=verify-full&sslrootcert=/a%20b.pem\
             &sslcert=/c.pem&connect_timeout=3&sslkey=/k.pem",
        )
        .unwrap();
        assert_eq!(url, "postgresql://h/d?application_name=x&connect_timeout=3");
        let expected = DatabaseTls {
            requirement: TlsRequirement::VerifyFull,
            root_certificates: Some("/a b.pem".into()),
            client: Some(("/c.pem".into(), "/k.pem".into())),
        };
        assert_eq!(tls, expected);
        for (query, requirement) in [
            ("sslmode=disable", TlsRequirement::Disable),
            ("ssl-mode=REQUIRED", TlsRequirement::Require),
            ("sslmode=require&sslrootcert=/ca", TlsRequirement::VerifyCa),
            ("sslmode=verify-full&sslrootcert=system", TlsRequirement::VerifyFull),
            ("sslrootcert=system", TlsRequirement::VerifyFull),
            ("ssl-mode=VERIFY_IDENTITY&ssl-ca=/ca", TlsRequirement::VerifyFull),
            ("ssl_mode=verify_ca", TlsRequirement::VerifyCa),
        ] {
            let (url, tls) = DatabaseTls::from_url(&format!("mysql://h/d?{query}")).unwrap();
            assert_eq!((url.as_str(), tls.requirement), ("mysql://h/d", requirement), "{query}");
        }
        for query in ["sslmode=allow", "sslcert=/c", "sslkey=/k"] {
            assert!(DatabaseTls::from_url(&format!("mysql://h/d?{query}")).is_err(), "{query}");
        }
    }

    #[test]
    fn unreadable_files_are_named() {
        let url = "mysql://h/d?sslmode=verify-full&sslrootcert=/nowhere/ca.pem";
        let error = DatabaseTls::from_url(url).unwrap().1.client_config().unwrap_err();
        assert!(error.starts_with("/nowhere/ca.pem: "), "{error}");
        let url = "mysql://h/d?sslmode=require&sslcert=/nowhere/c.pem&sslkey=/nowhere/k.pem";
        let error = DatabaseTls::from_url(url).unwrap().1.client_config().unwrap_err();
        assert!(error.starts_with("/nowhere/c.pem: "), "{error}");
    }
}
