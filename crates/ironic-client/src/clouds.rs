// SPDX-License-Identifier: Apache-2.0
//! `clouds.yaml` and `secure.yaml`, as OpenStack's clients read them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::TargetError;
use crate::openstack::OpenstackSettings;
use crate::target::{ApiTarget, ClientEnvironment};

type Clouds = Map<String, Value>;

/// Finds a cloud by name. Fails with the available names if it does not exist.
pub(crate) fn find_cloud(
    environment: &ClientEnvironment,
    name: &str,
) -> Result<ApiTarget, TargetError> {
    let clouds = load_clouds(environment)?;
    match clouds.get(name) {
        Some(cloud) => settings(name, cloud).target(),
        None => Err(TargetError::UnknownName {
            kind: "cloud",
            name: name.to_owned(),
            available: if clouds.is_empty() {
                ": no clouds.yaml was found".to_owned()
            } else {
                format_available(clouds.keys())
            },
        }),
    }
}

/// Returns the cloud if there is exactly one.
pub(crate) fn only_cloud(
    environment: &ClientEnvironment,
) -> Result<Option<ApiTarget>, TargetError> {
    let clouds = load_clouds(environment)?;
    let mut all = clouds.iter();
    match (all.next(), all.next()) {
        (Some((name, cloud)), None) => settings(name, cloud).target().map(Some),
        _ => Ok(None),
    }
}

/// Lists the available names for an error message.
pub(crate) fn format_available<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; available: {}", names.join(", ")) }
}

/// Reads all clouds of the first `clouds.yaml` found, merged with its `secure.yaml`.
fn load_clouds(environment: &ClientEnvironment) -> Result<Clouds, TargetError> {
    let find = |variable: &str, name: &str, folders: &[PathBuf]| -> Option<PathBuf> {
        if let Some(path) = environment.variable(variable) {
            return Some(path.into());
        }
        let in_folder = |folder: &PathBuf| {
            ["yaml", "yml"].map(|ending| folder.join(format!("{name}.{ending}")))
        };
        folders.iter().flat_map(in_folder).find(|path| path.exists())
    };
    let Some(path) = find("OS_CLIENT_CONFIG_FILE", "clouds", &environment.cloud_folders) else {
        return Ok(Clouds::new());
    };
    let mut clouds = read_file(&path)?;
    // A `secure.yaml` in another folder belongs to other clouds, even if their names are the same.
    let folder: Vec<PathBuf> = path.parent().map(Path::to_owned).into_iter().collect();
    if let Some(path) = find("OS_CLIENT_SECURE_FILE", "secure", &folder) {
        for (name, secrets) in read_file(&path)? {
            if let Some(cloud) = clouds.get_mut(&name) {
                merge(cloud, secrets);
            }
        }
    }
    Ok(clouds)
}

fn read_file(path: &Path) -> Result<Clouds, TargetError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| TargetError::Unreadable { path: path.to_owned(), source })?;
    let malformed = |problem: &str| TargetError::Malformed {
        path: path.to_owned(),
        problem: problem.to_owned(),
    };
    // The parser's message quotes the lines around the error, which may contain a password.
    let mut file: Value =
        serde_saphyr::from_str(&text).map_err(|_| malformed("it is not valid YAML"))?;
    match file.get_mut("clouds").map(Value::take) {
        Some(Value::Object(clouds)) => Ok(clouds),
        _ => Err(malformed("the mapping `clouds` is missing")),
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

/// Flattens a cloud into keys that match the names of the `OS_*` variables.
fn settings(name: &str, cloud: &Value) -> OpenstackSettings {
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
    OpenstackSettings { keys, origin: format!("cloud {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::HiddenText;
    use crate::target::ApiLogin;

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

    fn environment(folder: &Path) -> ClientEnvironment {
        std::fs::write(folder.join("clouds.yaml"), CLOUDS).unwrap();
        let secure = "clouds: {standalone: {auth: {password: hidden}}}";
        std::fs::write(folder.join("secure.yaml"), secure).unwrap();
        ClientEnvironment { cloud_folders: vec![folder.to_owned()], ..ClientEnvironment::default() }
    }

    #[test]
    fn reads_clouds_with_their_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let environment = environment(folder.path());
        let standalone = find_cloud(&environment, "standalone").unwrap();
        assert_eq!(standalone.url.as_deref(), Some("http://10.0.0.1:6385"));
        let password = HiddenText::new("hidden");
        assert_eq!(standalone.login, ApiLogin::Basic { user: "operator".to_owned(), password });
        assert!(standalone.trust.accept_any);
        let noauth = find_cloud(&environment, "noauth").unwrap();
        assert_eq!(noauth.url.as_deref(), Some("http://10.0.0.2:6385"));
        assert_eq!(noauth.login, ApiLogin::Anonymous);
        let stock = find_cloud(&environment, "stock").unwrap();
        assert_eq!(stock.url, None);
        assert_eq!(stock.trust.ca_file.as_deref(), Some(Path::new("/etc/ca.pem")));
        assert!(matches!(stock.login, ApiLogin::Keystone(_)));
        assert!(matches!(find_cloud(&environment, "key").unwrap().login, ApiLogin::Keystone(_)));
    }

    #[test]
    fn reads_secure_yaml_only_beside_clouds_yaml() {
        let [near, far] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut both = environment(far.path());
        std::fs::write(near.path().join("clouds.yaml"), CLOUDS).unwrap();
        both.cloud_folders.insert(0, near.path().to_owned());
        let error = find_cloud(&both, "standalone").unwrap_err().to_string();
        assert_eq!(error, "cloud standalone: a password is missing");
        let file = far.path().join("clouds.yaml").display().to_string();
        both.variables.insert("OS_CLIENT_CONFIG_FILE".to_owned(), file);
        assert!(find_cloud(&both, "standalone").is_ok());
    }

    #[test]
    fn unknown_cloud_lists_available_clouds() {
        let folder = tempfile::tempdir().unwrap();
        let error = find_cloud(&environment(folder.path()), "stok").unwrap_err().to_string();
        assert_eq!(error, "unknown cloud \"stok\"; available: key, noauth, standalone, stock");
    }
}
