// SPDX-License-Identifier: Apache-2.0
//! The environment variables, command and downward API fields of a container.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Service};
use kube::ResourceExt as _;

use super::contents::{ContentSource, Contents};
use crate::images::TestImage;

/// What the variables of a container depend on.
pub(super) struct EnvironmentInput<'a> {
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    pub(super) contents: &'a Contents,
    pub(super) pod_address: Ipv4Addr,
    pub(super) node_address: Ipv4Addr,
    /// Services of the namespace of the pod.
    pub(super) services: &'a [std::sync::Arc<Service>],
    pub(super) api_address: Ipv4Addr,
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variables of a container. The error is a message for its status.
pub(super) fn variables(input: &EnvironmentInput<'_>) -> Result<BTreeMap<String, String>, String> {
    let pod = input.pod;
    let mut variables = BTreeMap::from([
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOSTNAME".to_owned(), pod.name_any()),
        ("HOME".to_owned(), "/".to_owned()),
        ("KUBERNETES_SERVICE_HOST".to_owned(), input.api_address.to_string()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned()),
    ]);
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
    if links {
        input.services.iter().for_each(|service| variables.extend(service_links(service)));
    }
    let namespace = pod.namespace().unwrap_or_default();
    for source in input.container.env_from.iter().flatten() {
        let (kind, name, optional) = match (&source.secret_ref, &source.config_map_ref) {
            (Some(secret), _) => (ContentSource::Secret, &secret.name, secret.optional),
            (None, Some(map)) => (ContentSource::ConfigMap, &map.name, map.optional),
            (None, None) => continue,
        };
        let prefix = source.prefix.clone().unwrap_or_default();
        match input.contents.get(kind, &namespace, name) {
            Some(entries) => variables.extend(
                entries.into_iter().map(|(key, value)| (format!("{prefix}{key}"), text(value))),
            ),
            None if optional == Some(true) => {}
            None => return Err(format!("{} {name:?} not found", kind.name())),
        }
    }
    for variable in input.container.env.iter().flatten() {
        if let Some(value) = value_of(input, &namespace, variable, &variables)? {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

fn value_of(
    input: &EnvironmentInput<'_>,
    namespace: &str,
    variable: &EnvVar,
    defined: &BTreeMap<String, String>,
) -> Result<Option<String>, String> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), defined)));
    };
    let (kind, name, key, optional) =
        match (&source.secret_key_ref, &source.config_map_key_ref, &source.field_ref) {
            (Some(from), _, _) => (ContentSource::Secret, &from.name, &from.key, from.optional),
            (_, Some(from), _) => (ContentSource::ConfigMap, &from.name, &from.key, from.optional),
            (_, _, Some(field)) => {
                let path = field.field_path.as_str();
                return match path {
                    "status.podIP" | "status.podIPs" => Ok(Some(input.pod_address.to_string())),
                    "status.hostIP" | "status.hostIPs" => Ok(Some(input.node_address.to_string())),
                    _ => pod_field(input.pod, path).map(Some),
                };
            }
            _ => return Err(format!("the source of the variable {} is not known", variable.name)),
        };
    let content = input.contents.get(kind, namespace, name);
    match content.and_then(|mut content| content.remove(key)) {
        Some(value) => Ok(Some(text(value))),
        None if optional == Some(true) => Ok(None),
        None => Err(format!("couldn't find key {key} in {} {namespace}/{name}", kind.name())),
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A field of the downward API.
pub(super) fn pod_field(pod: &Pod, path: &str) -> Result<String, String> {
    let spec = pod.spec.clone().unwrap_or_default();
    let entry = |map: &BTreeMap<String, String>, prefix: &str| {
        let key = path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.get(key).cloned().unwrap_or_default())
    };
    let list = |map: &BTreeMap<String, String>| {
        map.iter().map(|(key, value)| format!("{key}={value:?}\n")).collect::<String>()
    };
    let value = match path {
        "metadata.name" => Some(pod.name_any()),
        "metadata.namespace" => pod.namespace(),
        "metadata.uid" => pod.uid(),
        "metadata.labels" => Some(list(pod.labels())),
        "metadata.annotations" => Some(list(pod.annotations())),
        "spec.nodeName" => spec.node_name,
        "spec.serviceAccountName" => spec.service_account_name,
        _ => entry(pod.labels(), "metadata.labels")
            .or_else(|| entry(pod.annotations(), "metadata.annotations")),
    };
    value.ok_or_else(|| format!("the field {path} is not known"))
}

/// The variables that announce a Service of the same namespace.
fn service_links(service: &Service) -> Vec<(String, String)> {
    let spec = service.spec.clone().unwrap_or_default();
    let address = spec.cluster_ip.filter(|address| address != "None" && !address.is_empty());
    let (Some(address), Some(port)) = (address, spec.ports.iter().flatten().next()) else {
        return Vec::new();
    };
    let name = service.name_any().to_uppercase().replace('-', "_");
    vec![
        (format!("{name}_SERVICE_HOST"), address.clone()),
        (format!("{name}_SERVICE_PORT"), port.port.to_string()),
        (format!("{name}_PORT"), format!("tcp://{address}:{}", port.port)),
    ]
}

/// The program and its arguments.
pub(super) fn command(
    image: &TestImage,
    container: &Container,
    variables: &BTreeMap<String, String>,
) -> Vec<String> {
    let given = |list: &Option<Vec<String>>| {
        list.clone()
            .filter(|list| !list.is_empty())
            .map(|list| list.iter().map(|text| expand(text, variables)).collect::<Vec<_>>())
    };
    let arguments = given(&container.args);
    let mut command = match given(&container.command) {
        Some(command) => command,
        None => image.entrypoint.clone(),
    };
    command.extend(arguments.unwrap_or_default());
    command
}

/// Replaces `$(NAME)` by the value of a variable; unknown names stay, and `$$` is a dollar sign.
pub(super) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').and_then(|inner| inner.split_once(')'))
        {
            match variables.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_variables_are_replaced() {
        let variables = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expected) in [
            ("plain", "plain"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(B)"),
            ("$$(A)", "$(A)"),
            ("5$ and $A", "5$ and $A"),
            ("$(A", "$(A"),
        ] {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }
}
