// SPDX-License-Identifier: Apache-2.0
//! Where the keys come from that encrypt the secrets in the database.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use store::{KeyCommand, KeyFile, KeySource, KeyVariable};

use super::Config;
use crate::vault_keys::VaultKeys;

/// Where the keys come from that encrypt the secrets in the database. At most one source may be set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SecretsSection {
    /// The key file; by default `secrets.key` in the data directory.
    pub(crate) key_file: Option<PathBuf>,
    /// Name of an environment variable with the keys, separated by commas. It must not start with
    /// `FERRITE_`.
    pub(crate) key_variable: Option<String>,
    /// A command that prints the keys: the program and its arguments.
    pub(crate) key_command: Vec<String>,
    /// Timeout in seconds of `key_command` and of requests to Vault.
    pub(crate) key_timeout: u64,
    /// A server with Vault's HTTP API.
    pub(crate) vault: VaultSection,
}

/// A server with Vault's HTTP API and the secrets engine KV version 2.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct VaultSection {
    /// URL of the server, such as `https://vault.example:8200`. By default Vault is not used.
    pub(crate) address: Option<String>,
    /// Mount path of the secrets engine.
    pub(crate) mount: String,
    /// Path of the secret.
    pub(crate) path: String,
    /// Field of the secret that contains the keys, separated by white space or commas.
    pub(crate) field: String,
    /// File with the token; by default the environment variable `VAULT_TOKEN`. The file is read for each
    /// request.
    pub(crate) token_file: Option<PathBuf>,
    /// Namespace of the secret.
    pub(crate) namespace: Option<String>,
    /// CA certificates (PEM) that verify the server; by default those of the system.
    pub(crate) ca_file: Option<PathBuf>,
}

impl Default for SecretsSection {
    fn default() -> Self {
        Self {
            key_file: None,
            key_variable: None,
            key_command: Vec::new(),
            key_timeout: 10,
            vault: VaultSection::default(),
        }
    }
}

impl Default for VaultSection {
    fn default() -> Self {
        Self {
            address: None,
            mount: "secret".to_owned(),
            path: "ferrite".to_owned(),
            field: "keys".to_owned(),
            token_file: None,
            namespace: None,
            ca_file: None,
        }
    }
}

impl Config {
    /// The configured source of the sealing keys; `None` for the file in the data directory. Fails if there
    /// are several sources, or if one is invalid.
    pub(crate) fn key_source(&self) -> anyhow::Result<Option<Arc<dyn KeySource>>> {
        let SecretsSection { key_file, key_variable, key_command, key_timeout, vault } =
            &self.secrets;
        let timeout = Duration::from_secs((*key_timeout).max(1));
        let mut sources: Vec<(&str, Arc<dyn KeySource>)> = Vec::new();
        if let Some(path) = key_file {
            sources.push(("secrets.key_file", Arc::new(KeyFile(path.clone()))));
        }
        if let Some(name) = key_variable {
            if name.starts_with("FERRITE_") || name.is_empty() || name.contains(['=', '\0']) {
                bail!("secrets.key_variable: {name:?} is not a usable name");
            }
            sources.push(("secrets.key_variable", Arc::new(KeyVariable(name.clone()))));
        }
        if !key_command.is_empty() {
            let command = KeyCommand { command: key_command.clone(), timeout };
            sources.push(("secrets.key_command", Arc::new(command)));
        }
        if vault.address.is_some() {
            let keys = VaultKeys::new(vault, timeout).context("secrets.vault")?;
            sources.push(("secrets.vault.address", Arc::new(keys)));
        }
        if sources.len() > 1 {
            let names: Vec<&str> = sources.iter().map(|(name, _)| *name).collect();
            bail!("{} exclude each other; set one of them", names.join(" and "));
        }
        Ok(sources.pop().map(|(_, source)| source))
    }

    /// Settings of the database with the sealing keys.
    pub(crate) fn store_with_keys(&self, data_dir: &Path) -> anyhow::Result<store::StoreSettings> {
        Ok(store::StoreSettings { key_source: self.key_source()?, ..self.store(data_dir) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(change: impl FnOnce(&mut SecretsSection)) -> Result<Option<String>, String> {
        let mut config = Config::default();
        change(&mut config.secrets);
        let source = config.key_source().map_err(|error| format!("{error:#}"))?;
        Ok(source.map(|source| source.describe()))
    }

    #[test]
    fn one_source_is_used() {
        assert_eq!(describe(|_| {}), Ok(None));
        let found = describe(|secrets| secrets.key_file = Some("/k".into())).unwrap();
        assert_eq!(found.as_deref(), Some("the key file /k"));
        let found = describe(|secrets| secrets.key_variable = Some("KEYS".to_owned())).unwrap();
        assert_eq!(found.as_deref(), Some("the environment variable KEYS"));
        let found = describe(|secrets| secrets.key_command = vec!["k".to_owned()]).unwrap();
        assert_eq!(found.as_deref(), Some("the output of the key command \"k\""));
        let found = describe(|secrets| secrets.vault.address = Some("https://v:8200/".to_owned()));
        assert_eq!(
            found.unwrap().as_deref(),
            Some("the field keys of the secret https://v:8200/v1/secret/data/ferrite")
        );
    }

    #[test]
    fn unusable_sources_are_rejected() {
        let both = describe(|secrets| {
            secrets.key_file = Some("/k".into());
            secrets.key_command = vec!["k".to_owned()];
        });
        let expected =
            "secrets.key_file and secrets.key_command exclude each other; set one of them";
        assert_eq!(both, Err(expected.to_owned()));
        for name in ["FERRITE_KEYS", "", "a=b"] {
            let error = describe(|secrets| secrets.key_variable = Some(name.to_owned()));
            assert!(error.unwrap_err().contains("secrets.key_variable"), "{name}");
        }
        for address in ["vault", "ftp://vault", "https://user:pw@vault"] {
            let error = describe(|secrets| secrets.vault.address = Some(address.to_owned()));
            assert!(error.unwrap_err().contains("secrets.vault"), "{address}");
        }
    }
}
