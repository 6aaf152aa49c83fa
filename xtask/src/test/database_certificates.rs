// SPDX-License-Identifier: Apache-2.0
//! Certificates of the temporary database servers and of their clients.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use tempfile::TempDir;

/// A folder with the files that clients need: `ca.pem`, `other-ca.pem`, `client.pem` and `client.key`.
pub(crate) struct DatabaseCertificates {
    folder: TempDir,
    /// The CA certificate.
    pub(crate) ca: String,
    /// The certificate of the servers, for 127.0.0.1 only.
    pub(crate) server: String,
    /// Its key.
    pub(crate) server_key: String,
}

impl DatabaseCertificates {
    /// The database user for which the client certificate is issued.
    pub(crate) const USER: &str = "ferrite_tls";

    /// Issues all certificates.
    pub(crate) fn issue() -> Result<Self> {
        let ca = CertifiedIssuer::self_signed(authority("Test CA")?, KeyPair::generate()?)?;
        let other = CertifiedIssuer::self_signed(authority("Other CA")?, KeyPair::generate()?)?;
        let (server_key, client_key) = (KeyPair::generate()?, KeyPair::generate()?);
        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::CommonName, Self::USER);
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let folder = tempfile::Builder::new().prefix("ferrite-test-").tempdir()?;
        for (name, text) in [
            ("ca.pem", ca.pem()),
            ("other-ca.pem", other.pem()),
            ("client.pem", client.signed_by(&client_key, &ca)?.pem()),
            ("client.key", client_key.serialize_pem()),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Self {
            folder,
            ca: ca.pem(),
            server: server.signed_by(&server_key, &ca)?.pem(),
            server_key: server_key.serialize_pem(),
        })
    }

    /// The folder with the files of clients.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn authority(name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}
