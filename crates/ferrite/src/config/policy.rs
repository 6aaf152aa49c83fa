// SPDX-License-Identifier: Apache-2.0
//! What users with roles may do.

use std::path::{Path, PathBuf};

use access_policy::Policy;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::Config;

/// What users with roles may do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PolicySection {
    /// File (YAML or JSON) with policy rules that replace the defaults; by default `policy.yaml` in the
    /// data directory, if it exists. [Policy rules](policy.md) lists all rules.
    pub(crate) file: Option<PathBuf>,
    /// Whether administrators of a project may create and delete nodes that their project owns.
    pub(crate) project_admin_can_manage_own_nodes: bool,
    /// Name of a project whose users with the role `service` have rights on the whole system, as
    /// Nova's user needs. By default there is none.
    pub(crate) service_project: Option<String>,
}

impl Default for PolicySection {
    fn default() -> Self {
        Self { file: None, project_admin_can_manage_own_nodes: true, service_project: None }
    }
}

impl Config {
    /// The policy. Fails if its file cannot be read or is invalid.
    pub(crate) fn access_policy(&self, data_dir: &Path) -> anyhow::Result<Policy> {
        let section = &self.policy;
        let file = section.file.clone().unwrap_or_else(|| data_dir.join("policy.yaml"));
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound && section.file.is_none() =>
            {
                None
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        let policy = Policy::with_overrides(text.as_deref())
            .with_context(|| format!("{} is invalid", file.display()))?;
        Ok(policy.with_service_project(section.service_project.as_deref()))
    }
}

#[cfg(test)]
mod tests {
    use access_policy::{AuthMethod, Caller, CallerScope, PolicyTarget};

    use super::*;

    #[test]
    fn reads_the_policy_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        let reader = Caller {
            scope: CallerScope::Unscoped,
            roles: ["reader".into()].into(),
            ..Caller::unrestricted("me", AuthMethod::Password)
        };
        let allows = |config: &Config| {
            let policy = config.access_policy(dir.path()).unwrap();
            policy.allows("baremetal:driver:get", &reader, &PolicyTarget::NONE)
                || policy.allows("baremetal:node:get", &reader, &PolicyTarget::NONE)
        };
        assert!(!allows(&config));

        std::fs::write(dir.path().join("policy.yaml"), "baremetal:node:get: role:reader").unwrap();
        assert!(allows(&config));

        std::fs::write(dir.path().join("policy.yaml"), "baremetal:node:get: role").unwrap();
        let error = config.access_policy(dir.path()).unwrap_err();
        assert!(format!("{error:#}").contains("\"baremetal:node:get\""), "{error:#}");

        config.policy.file = Some(dir.path().join("missing.yaml"));
        assert!(config.access_policy(dir.path()).is_err(), "a configured file must exist");
    }
}
