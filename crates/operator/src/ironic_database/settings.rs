// SPDX-License-Identifier: Apache-2.0
//! Settings of the operator that apply to all database servers, from its environment.

use kube_resources::ironic::database::DatabaseEngine;

/// Image of MariaDB.
const MARIADB_IMAGE: &str = "docker.io/library/mariadb:11.4";
/// Image of PostgreSQL.
const POSTGRESQL_IMAGE: &str = "docker.io/library/postgres:17";

/// Settings of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IronicDatabaseSettings {
    /// Image of MariaDB, if no `IronicDatabase` names another one.
    pub mariadb_image: String,
    /// Image of PostgreSQL, if no `IronicDatabase` names another one.
    pub postgresql_image: String,
    /// Domain of Services, such as `cluster.local`; `None` if names without it are used.
    pub cluster_domain: Option<String>,
}

impl Default for IronicDatabaseSettings {
    fn default() -> Self {
        Self {
            mariadb_image: MARIADB_IMAGE.to_owned(),
            postgresql_image: POSTGRESQL_IMAGE.to_owned(),
            cluster_domain: None,
        }
    }
}

impl IronicDatabaseSettings {
    /// Reads `MARIADB_IMAGE`, `POSTGRESQL_IMAGE` and `CLUSTER_DOMAIN`. An empty variable is not set.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let default = Self::default();
        Self {
            mariadb_image: variable("MARIADB_IMAGE").unwrap_or(default.mariadb_image),
            postgresql_image: variable("POSTGRESQL_IMAGE").unwrap_or(default.postgresql_image),
            cluster_domain: variable("CLUSTER_DOMAIN"),
        }
    }

    /// The image for a server program.
    pub(super) fn image(&self, engine: &DatabaseEngine) -> &str {
        match engine {
            DatabaseEngine::PostgreSql => &self.postgresql_image,
            DatabaseEngine::MariaDb | DatabaseEngine::Other(_) => &self.mariadb_image,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_come_from_the_environment() {
        let read = |variables: &[(&str, &str)]| {
            IronicDatabaseSettings::from_environment(|name| {
                let found = variables.iter().find(|(variable, _)| *variable == name)?;
                Some(found.1.to_owned())
            })
        };
        assert_eq!(read(&[("MARIADB_IMAGE", "")]), IronicDatabaseSettings::default());
        let settings =
            read(&[("MARIADB_IMAGE", "m"), ("POSTGRESQL_IMAGE", "p"), ("CLUSTER_DOMAIN", "d")]);
        assert_eq!(settings.image(&DatabaseEngine::MariaDb), "m");
        assert_eq!(settings.image(&DatabaseEngine::PostgreSql), "p");
        assert_eq!(settings.cluster_domain.as_deref(), Some("d"));
    }
}
