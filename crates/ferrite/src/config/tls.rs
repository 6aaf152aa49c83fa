// SPDX-License-Identifier: Apache-2.0
//! TLS of the API and the file service.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use server_tls::CertificateFiles;

use super::Config;

/// TLS of the API and the file service.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TlsSection {
    /// Whether the API uses TLS: `on`, `off`, or `auto`, which is `off` if the API listens on a loopback
    /// address and no certificate is configured, and `on` otherwise.
    pub(crate) mode: TlsMode,
    /// The certificate of the server and its intermediate certificates (PEM). By default an own CA
    /// issues a certificate. The file is read again when it changes.
    pub(crate) certificate: Option<PathBuf>,
    /// The key of that certificate (PEM).
    pub(crate) key: Option<PathBuf>,
    /// CA certificates (PEM) with which agents and other clients verify the API, if they do not know the
    /// issuer of `certificate`, or of a proxy in front of the API. By default the own CA.
    pub(crate) ca_file: Option<PathBuf>,
    /// CA certificates (PEM) that verify the certificates of clients. A client with a certificate is
    /// authenticated as the user whose name is the common name of its subject. The file is read again when it
    /// changes.
    pub(crate) client_ca: Option<PathBuf>,
    /// Whether clients need a certificate of `client_ca`: `optional` or `required`. Agents, health checks and the
    /// Unix socket never do.
    pub(crate) client_certificates: ClientCertificateMode,
    /// More host names and addresses for the certificate of the own CA. It always has those in this
    /// configuration and those of this host.
    pub(crate) names: Vec<String>,
}

/// Whether clients need a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientCertificateMode {
    /// Clients may use a certificate instead of a password or token.
    Optional,
    /// Clients need a certificate. With a password or token in addition, that one selects the user.
    Required,
}

/// Whether the API uses TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TlsMode {
    /// TLS unless the API listens on a loopback address.
    Auto,
    /// TLS.
    On,
    /// No TLS: only for loopback, or behind a proxy with TLS.
    Off,
}

impl Default for TlsSection {
    fn default() -> Self {
        Self {
            mode: TlsMode::Auto,
            certificate: None,
            key: None,
            ca_file: None,
            client_ca: None,
            client_certificates: ClientCertificateMode::Optional,
            names: Vec::new(),
        }
    }
}

impl Config {
    /// Whether the API uses TLS.
    pub(crate) fn has_api_tls(&self) -> bool {
        match self.api.tls.mode {
            TlsMode::On => true,
            TlsMode::Off => false,
            TlsMode::Auto => {
                self.api.tls.certificate.is_some() || !self.api.listen.ip().is_loopback()
            }
        }
    }

    /// Whether clients need a certificate.
    pub(crate) fn requires_client_certificate(&self) -> bool {
        self.api.tls.client_certificates == ClientCertificateMode::Required
    }

    /// Rejects settings of client certificates that cannot work.
    pub(super) fn check_client_certificates(&self) -> anyhow::Result<()> {
        if self.api.tls.client_ca.is_none() {
            ensure!(
                !self.requires_client_certificate(),
                "api.tls.client_certificates = \"required\" requires api.tls.client_ca"
            );
            return Ok(());
        }
        ensure!(
            self.has_api_tls(),
            "api.tls.client_ca requires TLS, which is off (api.tls.mode, --tls)"
        );
        let auth = self.api(Path::new("")).auth;
        ensure!(
            auth.htpasswd.is_some() || auth.local.is_some(),
            "api.tls.client_ca requires users: add basic or local to api.auth"
        );
        Ok(())
    }

    /// The configured certificate; `None` for one of the own CA.
    pub(crate) fn certificate_files(&self) -> anyhow::Result<Option<CertificateFiles>> {
        match (&self.api.tls.certificate, &self.api.tls.key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(CertificateFiles { certificate: certificate.clone(), key: key.clone() }))
            }
            (None, None) => Ok(None),
            (Some(_), None) => bail!("api.tls.certificate requires api.tls.key (--tls-key)"),
            (None, Some(_)) => {
                bail!("api.tls.key requires api.tls.certificate (--tls-certificate)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_the_default_for_remote_clients() {
        for (listen, mode, certificate, expected) in [
            ("127.0.0.1:1", TlsMode::Auto, None, false),
            ("[::1]:1", TlsMode::Auto, None, false),
            ("127.0.0.1:1", TlsMode::Auto, Some("c"), true),
            ("127.0.0.1:1", TlsMode::On, None, true),
            ("0.0.0.0:1", TlsMode::Auto, None, true),
            ("10.0.0.1:1", TlsMode::Auto, None, true),
            ("10.0.0.1:1", TlsMode::Off, None, false),
        ] {
            let mut config = Config::default();
            config.api.listen = listen.parse().unwrap();
            config.api.tls.mode = mode;
            config.api.tls.certificate = certificate.map(PathBuf::from);
            assert_eq!(config.has_api_tls(), expected, "{listen} {mode:?}");
        }
    }

    #[test]
    fn client_certificates_need_tls_and_users() {
        use crate::config::AuthModes;
        let mut config = Config::default();
        config.check_client_certificates().unwrap();
        let assert_error = |config: &Config, expected: &str| {
            let error = config.check_client_certificates().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        config.api.tls.client_certificates = ClientCertificateMode::Required;
        assert_error(&config, "requires api.tls.client_ca");
        config.api.tls.client_ca = Some("ca.pem".into());
        assert_error(&config, "requires TLS");
        config.api.tls.mode = TlsMode::On;
        assert_error(&config, "requires users");
        config.api.auth = "local".parse::<AuthModes>().unwrap();
        config.check_client_certificates().unwrap();
    }

    #[test]
    fn certificate_needs_its_key() {
        let mut config = Config::default();
        assert_eq!(config.certificate_files().unwrap(), None);
        config.api.tls.key = Some("k".into());
        let error = config.certificate_files().unwrap_err().to_string();
        assert!(error.contains("requires api.tls.certificate"), "{error}");
        config.api.tls.certificate = Some("c".into());
        assert!(config.certificate_files().unwrap().is_some());
    }
}
