// SPDX-License-Identifier: Apache-2.0
//! `clouds.yaml` and `secure.yaml`, as OpenStack's clients read them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::SettingsError;
use crate::openstack::Settings;
use crate::target::{Surroundings, Target};

type Clouds = Map<String, Value>;

/// The cloud of a name.
pub(crate) fn named(surroundings: &Surroundings, name: &str) -> Result<Target, SettingsError> {
    let clouds = clouds(surroundings)?;
    match clouds.get(name) {
        Some(cloud) => settings(name, cloud).target(),
        None => Err(SettingsError::Unknown {
            what: "cloud",
            name: name.to_owned(),
            known: if clouds.is_empty() {
                ": no clouds.yaml was found".to_owned()
            } else {
                known(clouds.keys())
            },
        }),
    }
}

/// The cloud there is, if there is one and no other.
pub(crate) fn only(surroundings: &Surroundings) -> Result<Option<Target>, SettingsError> {
    let clouds = clouds(surroundings)?;
    let mut all = clouds.iter();
    match (all.next(), all.next()) {
        (Some((name, cloud)), None) => settings(name, cloud).target().map(Some),
        _ => Ok(None),
    }
}

/// The names one could have meant.
pub(crate) fn known<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}

/// All clouds of the first file found, with what `secure.yaml` adds.
fn clouds(surroundings: &Surroundings) -> Result<Clouds, SettingsError> {
    let place = |variable: &str, name: &str, folders: &[PathBuf]| -> Option<PathBuf> {
        if let Some(path) = surroundings.variable(variable) {
            return Some(path.into());
        }
        let in_folder = |folder: &PathBuf| {
            ["yaml", "yml"].map(|ending| folder.join(format!("{name}.{ending}")))
        };
        folders.iter().flat_map(in_folder).find(|path| path.exists())
    };
    let Some(path) = place("OS_CLIENT_CONFIG_FILE", "clouds", &surroundings.cloud_folders) else {
        return Ok(Clouds::new());
    };
    let mut clouds = read(&path)?;
    // The secrets of another folder are of other clouds, whatever they are called.
    let beside: Vec<PathBuf> = path.parent().map(Path::to_owned).into_iter().collect();
    if let Some(path) = place("OS_CLIENT_SECURE_FILE", "secure", &beside) {
        for (name, secrets) in read(&path)? {
            if let Some(cloud) = clouds.get_mut(&name) {
                merge(cloud, secrets);
            }
        }
    }
    Ok(clouds)
}

fn read(path: &Path) -> Result<Clouds, SettingsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })?;
    let malformed = |problem: &str| SettingsError::Malformed {
        path: path.to_owned(),
        problem: problem.to_owned(),
    };
    // The reader's own words would show the lines around the mistake, and a password in them.
    let mut file: Value =
        serde_saphyr::from_str(&text).map_err(|_| malformed("it is not valid YAML"))?;
    match file.get_mut("clouds").map(Value::take) {
        Some(Value::Object(clouds)) => Ok(clouds),
        _ => Err(malformed("it has no mapping `clouds`")),
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// What a cloud says, under the names that environment variables have, too.
fn settings(name: &str, cloud: &Value) -> Settings {
    let mut keys = BTreeMap::new();
    let mut add = |members: &Value| {
        for (key, value) in members.as_object().into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => continue,
            };
            keys.insert(key.replace('-', "_"), text);
        }
    };
    add(cloud);
    add(&cloud["auth"]);
    Settings { keys, origin: format!("cloud {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;
    use crate::target::Login;

    const CLOUDS: &str = "
clouds:
  standalone:
    auth_type: http_basic
    auth: {endpoint: 'http://10.0.0.1:6385', username: operator}
    verify: false
  noauth:
    auth_type: none
    baremetal_endpoint_override: http://10.0.0.2:6385/v1
  stock:
    auth:
      auth_url: https://keystone:5000/v3
      username: admin
      password: secret
      project_name: admin
      user_domain_name: Default
      project_domain_name: Default
    region_name: one
    cacert: /etc/ca.pem
  key:
    auth_type: v3applicationcredential
    auth:
      auth_url: https://keystone:5000
      application_credential_id: abc
      application_credential_secret: xyz
";

    fn surroundings(folder: &Path) -> Surroundings {
        std::fs::write(folder.join("clouds.yaml"), CLOUDS).unwrap();
        let secure = "clouds: {standalone: {auth: {password: hidden}}}";
        std::fs::write(folder.join("secure.yaml"), secure).unwrap();
        Surroundings { cloud_folders: vec![folder.to_owned()], ..Surroundings::default() }
    }

    #[test]
    fn clouds_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let surroundings = surroundings(folder.path());
        let standalone = named(&surroundings, "standalone").unwrap();
        assert_eq!(standalone.url.as_deref(), Some("http://10.0.0.1:6385"));
        let password = Secret::new("hidden");
        assert_eq!(standalone.login, Login::Basic { user: "operator".to_owned(), password });
        assert!(standalone.trust.anybody);
        let noauth = named(&surroundings, "noauth").unwrap();
        assert_eq!(noauth.url.as_deref(), Some("http://10.0.0.2:6385"));
        assert_eq!(noauth.login, Login::Nobody);
        let stock = named(&surroundings, "stock").unwrap();
        assert_eq!(stock.url, None);
        assert_eq!(stock.trust.authorities.as_deref(), Some(Path::new("/etc/ca.pem")));
        assert!(matches!(stock.login, Login::Keystone(_)));
        assert!(matches!(named(&surroundings, "key").unwrap().login, Login::Keystone(_)));
    }

    #[test]
    fn secrets_are_those_beside_the_clouds() {
        let [near, far] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut both = surroundings(far.path());
        std::fs::write(near.path().join("clouds.yaml"), CLOUDS).unwrap();
        both.cloud_folders.insert(0, near.path().to_owned());
        let error = named(&both, "standalone").unwrap_err().to_string();
        assert_eq!(error, "cloud standalone does not say a password");
        let file = far.path().join("clouds.yaml").display().to_string();
        both.variables.insert("OS_CLIENT_CONFIG_FILE".to_owned(), file);
        assert!(named(&both, "standalone").is_ok());
    }

    #[test]
    fn a_cloud_that_is_not_there_is_told_with_those_that_are() {
        let folder = tempfile::tempdir().unwrap();
        let error = named(&surroundings(folder.path()), "stok").unwrap_err().to_string();
        assert_eq!(error, "there is no cloud \"stok\"; there are key, noauth, standalone, stock");
    }
}
