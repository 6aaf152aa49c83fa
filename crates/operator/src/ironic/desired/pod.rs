// SPDX-License-Identifier: Apache-2.0
//! The pod that runs the service: containers, volumes, probes and annotations.

use kube_resources::ironic::defaults::IronicPorts;
use kube_resources::ironic::names::{
    API_SECRET_VERSION, APP_LABEL, BMC_CA_VERSION, CONFIGURATION_VERSION, DATABASE_SECRET_VERSION,
    TRUSTED_CA_VERSION,
};
use kube_resources::ironic::service::{CaKind, CaReference};
use serde_json::{Map, Value, json};

use super::configuration::{
    AUTH_FOLDER, BMC_CA_FOLDER, CERTIFICATE_FOLDER, CONFIGURATION_FOLDER, CONFIGURATION_KEY,
    DATA_FOLDER, DATABASE_CA_FOLDER, SHARED_FOLDER, ServiceConfiguration, TRUSTED_CA_FOLDER,
    downloader_image,
};
use super::metadata::{labels, object_names};
use super::provisioning::{ADDRESS_TIMEOUT, ServiceAddress};
use super::support::SupportReport;
use super::{DesiredInput, database_secret, keepalived, overrides};

/// Name of the container, as in Metal3's operator.
pub(super) const SERVICE_CONTAINER: &str = "ironic";
/// Name of the container that downloads a ramdisk, as in Metal3's operator.
pub(super) const DOWNLOADER_CONTAINER: &str = "ramdisk-downloader";
/// Names of ports.
pub(super) const API_PORT_NAME: &str = "ironic-api";
pub(super) const IMAGE_PORT_NAME: &str = "image-svc";
pub(super) const IMAGE_TLS_PORT_NAME: &str = "image-svc-tls";
pub(super) const METRICS_PORT_NAME: &str = "metrics";
/// Name of the volume with the state.
pub(super) const DATA_VOLUME: &str = "ironic-data";
const SHARED_VOLUME: &str = "ironic-shared";
const TEMPORARY_VOLUME: &str = "ironic-tmp";
/// User and group of Metal3's images.
const USER: i64 = 997;
pub(super) const GROUP: i64 = 994;
/// Mode of files from Secrets and ConfigMaps, octal 0440: the group of the pod reads them.
const FILE_MODE: i32 = 0o440;

/// A pod template, and what it needs.
pub(super) struct PodTemplate {
    pub(super) metadata: Value,
    pub(super) spec: Value,
    /// Whether the pod uses the volume claim of the installation.
    pub(super) needs_volume_claim: bool,
}

/// The pods of the workload.
pub(super) fn template(
    input: &DesiredInput<'_>,
    configuration: &ServiceConfiguration,
    report: &mut SupportReport,
) -> PodTemplate {
    let spec = &input.ironic.spec;
    let mut containers = vec![service_container(input, configuration)];
    containers.extend(keepalived::container(input));
    let mut pod = json!({
        "automountServiceAccountToken": false,
        // A Service named ferrite would add variables that the service rejects.
        "enableServiceLinks": false,
        "containers": containers,
        "volumes": volumes(input),
        "hostNetwork": !spec.networking.disable_host_network,
        "dnsPolicy": if spec.networking.disable_host_network {
            "ClusterFirst"
        } else {
            "ClusterFirstWithHostNet"
        },
        // At each start all files on the volume become accessible to the group: with DHCP they belong
        // to root, without it they do not.
        "securityContext": {"fsGroup": GROUP, "fsGroupChangePolicy": "Always"},
        // Running actions get five seconds, and BMC sessions are closed.
        "terminationGracePeriodSeconds": 30,
    });
    if let Some(downloader) = downloader_container(input) {
        pod["initContainers"] = json!([downloader]);
    }
    schedule(input, &mut pod);
    overrides::apply(spec.overrides.as_ref(), &mut pod, report);
    let claim = object_names(input.ironic).volume_claim;
    let needs_volume_claim = pod["volumes"].as_array().into_iter().flatten().any(|volume| {
        volume["name"] == DATA_VOLUME && volume["persistentVolumeClaim"]["claimName"] == *claim
    });
    PodTemplate { metadata: metadata(input, configuration), spec: pod, needs_volume_claim }
}

/// Labels and annotations. Users can add to the built-in ones and cannot change them.
fn metadata(input: &DesiredInput<'_>, configuration: &ServiceConfiguration) -> Value {
    let facts = input.facts;
    let mut annotations = overrides::annotations(input.ironic);
    let mut annotate = |name: &str, hash: Option<String>| {
        annotations.extend(hash.map(|hash| (name.to_owned(), json!(hash))));
    };
    // The service reads these at start. Certificates are read again when they change, and the user
    // file too, but its annotation is on pods in Metal3's operator.
    annotate(CONFIGURATION_VERSION, Some(configuration.hash()));
    annotate(DATABASE_SECRET_VERSION, database_secret::hash(input));
    annotate(BMC_CA_VERSION, facts.bmc_ca.as_ref().map(|content| content.hash.clone()));
    annotate(TRUSTED_CA_VERSION, facts.trusted_ca.as_ref().map(|content| content.hash.clone()));
    annotate(API_SECRET_VERSION, Some(facts.api_credentials.hash.clone()));
    let mut all = overrides::labels(input.ironic);
    all.extend(labels(input));
    all.insert(APP_LABEL.to_owned(), json!(object_names(input.ironic).workload));
    json!({"labels": all, "annotations": annotations})
}

fn service_container(input: &DesiredInput<'_>, configuration: &ServiceConfiguration) -> Value {
    let spec = &input.ironic.spec;
    let mut container = json!({
        "name": SERVICE_CONTAINER,
        "image": service_image(input),
        "args": ["serve", "--config", format!("{CONFIGURATION_FOLDER}/{CONFIGURATION_KEY}")],
        "env": configuration.environment,
        "ports": ports(input),
        "volumeMounts": mounts(input),
        "securityContext": if spec.networking.dhcp.is_some() {
            // Ports below 1024 and raw sockets. Only root gets added capabilities.
            security_context(0, &["NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"])
        } else {
            security_context(USER, &[])
        },
        "livenessProbe": liveness_probe(input),
        "readinessProbe": readiness_probe(input),
    });
    if let Some(probe) = startup_probe(input) {
        container["startupProbe"] = probe;
    }
    container
}

/// Image of the service.
pub(super) fn service_image<'a>(input: &DesiredInput<'a>) -> &'a str {
    let image = input.ironic.spec.images.ironic.as_deref();
    image.unwrap_or(&input.settings.service_image)
}

/// The restricted profile, except for the user and the given capabilities.
fn security_context(user: i64, capabilities: &[&str]) -> Value {
    let mut context = json!({
        "runAsUser": user,
        "runAsGroup": GROUP,
        "runAsNonRoot": user != 0,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    if !capabilities.is_empty() {
        context["capabilities"]["add"] = json!(capabilities);
    }
    context
}

/// The security context of containers that need no capabilities.
pub(super) fn unprivileged() -> Value {
    security_context(USER, &[])
}

fn ports(input: &DesiredInput<'_>) -> Vec<Value> {
    let spec = &input.ironic.spec;
    let ports = IronicPorts::of(&spec.networking);
    let mut list = vec![(API_PORT_NAME, ports.api), (IMAGE_PORT_NAME, ports.image_server)];
    if spec.has_tls() {
        list.push((IMAGE_TLS_PORT_NAME, ports.image_server_tls));
    }
    if input.has_exporter() {
        list.push((METRICS_PORT_NAME, ports.metrics));
    }
    let declare = |(name, port): (&str, u16)| {
        let mut declared = json!({"name": name, "containerPort": port, "protocol": "TCP"});
        if !spec.networking.disable_host_network {
            declared["hostPort"] = json!(port);
        }
        declared
    };
    list.into_iter().map(declare).collect()
}

/// Checks with the timings of Metal3's operator. `command` is used if the address is not known here.
fn probe(input: &DesiredInput<'_>, path: &str, command: &[&str]) -> Value {
    let spec = &input.ironic.spec;
    let mut probe = json!({
        "initialDelaySeconds": 1,
        "timeoutSeconds": 5,
        "failureThreshold": 12,
    });
    if ServiceAddress::is_bound_to_unknown(spec) {
        let socket = format!("unix:{DATA_FOLDER}/ferrite.sock");
        let command: Vec<&str> =
            ["ferrite"].iter().chain(command).chain(&["--url", &socket]).copied().collect();
        probe["exec"] = json!({"command": command});
        return probe;
    }
    probe["httpGet"] = json!({
        "path": path,
        "port": API_PORT_NAME,
        "scheme": if spec.has_tls() { "HTTPS" } else { "HTTP" },
    });
    // By default the kubelet uses the address of the pod.
    if let Some(address) =
        spec.networking.ip_address.as_ref().filter(|_| spec.networking.bind_interface)
    {
        probe["httpGet"]["host"] = json!(address);
    }
    probe
}

/// Allows the service to wait for its address, and to report that it did not appear.
fn startup_probe(input: &DesiredInput<'_>) -> Option<Value> {
    const PERIOD: u16 = 2;
    const SPARE_SECONDS: u16 = 60;
    if ServiceAddress::of(&input.ironic.spec) == ServiceAddress::OfPod {
        return None;
    }
    let mut probe = liveness_probe(input);
    probe["periodSeconds"] = json!(PERIOD);
    probe["failureThreshold"] = json!((ADDRESS_TIMEOUT + SPARE_SECONDS) / PERIOD);
    Some(probe)
}

fn liveness_probe(input: &DesiredInput<'_>) -> Value {
    probe(input, "/healthz", &["whoami"])
}

/// Also reads the database.
fn readiness_probe(input: &DesiredInput<'_>) -> Value {
    probe(input, "/readyz", &["driver", "list"])
}

/// Volume and folder of each thing that containers of the service read or write.
fn mounts(input: &DesiredInput<'_>) -> Vec<Value> {
    let facts = input.facts;
    let mut mounts = vec![
        json!({"name": DATA_VOLUME, "mountPath": DATA_FOLDER}),
        json!({"name": TEMPORARY_VOLUME, "mountPath": "/tmp"}),
        json!({"name": "ironic-config", "mountPath": CONFIGURATION_FOLDER, "readOnly": true}),
        json!({"name": "ironic-auth", "mountPath": AUTH_FOLDER, "readOnly": true}),
    ];
    if downloader_image(input).is_some() {
        mounts.push(json!({"name": SHARED_VOLUME, "mountPath": SHARED_FOLDER}));
    }
    for (is_used, name, folder) in [
        (facts.certificate.is_some(), "cert-ironic", CERTIFICATE_FOLDER),
        (facts.bmc_ca.is_some(), "cert-bmc", BMC_CA_FOLDER),
        (facts.trusted_ca.is_some(), "trusted-ca", TRUSTED_CA_FOLDER),
    ] {
        if is_used {
            mounts.push(json!({"name": name, "mountPath": folder, "readOnly": true}));
        }
    }
    mounts.extend(database_mount(input));
    mounts
}

/// The CA of the database, if there is one.
pub(super) fn database_mount(input: &DesiredInput<'_>) -> Option<Value> {
    input.facts.database.as_ref()?.ca.as_ref()?;
    Some(json!({"name": "cert-database", "mountPath": DATABASE_CA_FOLDER, "readOnly": true}))
}

fn volumes(input: &DesiredInput<'_>) -> Vec<Value> {
    let facts = input.facts;
    let names = object_names(input.ironic);
    let data = if facts.database.is_some() {
        // Only caches; the state is in the database.
        json!({"name": DATA_VOLUME, "emptyDir": {}})
    } else {
        json!({"name": DATA_VOLUME, "persistentVolumeClaim": {"claimName": names.volume_claim}})
    };
    let mut volumes = vec![
        data,
        json!({"name": TEMPORARY_VOLUME, "emptyDir": {}}),
        configuration_volume(input),
        secret_volume("ironic-auth", &facts.api_credentials.name),
    ];
    if downloader_image(input).is_some() {
        volumes.push(json!({"name": SHARED_VOLUME, "emptyDir": {}}));
    }
    if let Some(certificate) = &facts.certificate {
        volumes.push(secret_volume("cert-ironic", &certificate.name));
    }
    let tls = &input.ironic.spec.tls;
    volumes.extend(tls.effective_bmc_ca().map(|ca| ca_volume("cert-bmc", &ca)));
    volumes.extend(tls.effective_trusted_ca().map(|ca| ca_volume("trusted-ca", &ca)));
    volumes.extend(database_volume(input));
    volumes
}

/// The volume with the configuration file.
fn configuration_volume(input: &DesiredInput<'_>) -> Value {
    let name = object_names(input.ironic).config_map;
    json!({"name": "ironic-config", "configMap": {"name": name, "defaultMode": FILE_MODE}})
}

/// The volume with the CA of the database, if there is one.
pub(super) fn database_volume(input: &DesiredInput<'_>) -> Option<Value> {
    let ca = input.facts.database.as_ref()?.ca.as_ref()?;
    let mut volume = secret_volume("cert-database", &ca.secret_name);
    volume["secret"]["items"] = json!([{"key": ca.key, "path": ca.key}]);
    Some(volume)
}

fn secret_volume(name: &str, secret: &str) -> Value {
    json!({"name": name, "secret": {"secretName": secret, "defaultMode": FILE_MODE}})
}

fn ca_volume(name: &str, ca: &CaReference) -> Value {
    match ca.kind {
        CaKind::Secret => secret_volume(name, &ca.name),
        CaKind::ConfigMap | CaKind::Other(_) => {
            json!({"name": name, "configMap": {"name": ca.name, "defaultMode": FILE_MODE}})
        }
    }
}

/// Stores a ramdisk in the shared folder before the service starts.
fn downloader_container(input: &DesiredInput<'_>) -> Option<Value> {
    let image = downloader_image(input)?;
    let mut environment: Vec<Value> = Vec::new();
    if let Some(branch) = &input.ironic.spec.images.deploy_ramdisk_branch {
        environment.push(json!({"name": "IPA_BRANCH", "value": branch}));
    }
    let variables = &input.settings.downloader_environment;
    environment.extend(variables.iter().map(|(name, value)| json!({"name": name, "value": value})));
    Some(json!({
        "name": DOWNLOADER_CONTAINER,
        "image": image,
        "env": environment,
        "volumeMounts": [
            {"name": SHARED_VOLUME, "mountPath": SHARED_FOLDER},
            {"name": TEMPORARY_VOLUME, "mountPath": "/tmp"},
        ],
        "securityContext": unprivileged(),
    }))
}

/// On which nodes pods run. Replicas run on all control-plane nodes unless the spec selects others.
pub(super) fn schedule(input: &DesiredInput<'_>, pod: &mut Value) {
    const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
    let spec = &input.ironic.spec;
    let mut tolerations: Vec<Value> =
        spec.tolerations.iter().map(|toleration| Value::Object(toleration.clone())).collect();
    let mut selector: Map<String, Value> =
        spec.node_selector.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    if spec.high_availability && selector.is_empty() {
        selector.insert(CONTROL_PLANE.to_owned(), json!(""));
        tolerations
            .push(json!({"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}));
    }
    if !selector.is_empty() {
        pod["nodeSelector"] = Value::Object(selector);
    }
    if !tolerations.is_empty() {
        pod["tolerations"] = json!(tolerations);
    }
    if let Some(affinity) = &spec.affinity {
        pod["affinity"] = Value::Object(affinity.clone());
    }
}
