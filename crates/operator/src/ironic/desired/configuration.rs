// SPDX-License-Identifier: Apache-2.0
//! The configuration file of the service, and variables whose values are known only in the pod.

use kube_resources::ironic::defaults::{
    EXPORTER_BIND_ADDRESS, IronicPorts, RPC_PORT, SENSOR_COLLECTION_INTERVAL, enabled_exporter,
};
use kube_resources::ironic::names::secret_keys;
use kube_resources::ironic::service::{Ironic, IronicSpec};
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use super::super::facts::content_hash;
use super::super::settings::IronicOperatorSettings;
use super::metadata::{DATABASE_URL_KEY, SEALING_KEYS_KEY, object, object_names};
use super::provisioning::{ServiceAddress, url_host};
use super::support::SupportReport;
use super::{DesiredInput, dhcp, extra_config, provisioning};

/// Key of the ConfigMap, and name of the file.
pub(super) const CONFIGURATION_KEY: &str = "ferrite.toml";
/// Folders in the container.
pub(super) const CONFIGURATION_FOLDER: &str = "/etc/ferrite";
pub(super) const DATA_FOLDER: &str = "/data";
pub(super) const AUTH_FOLDER: &str = "/auth/ironic";
pub(super) const CERTIFICATE_FOLDER: &str = "/certs/ironic";
pub(super) const BMC_CA_FOLDER: &str = "/certs/ca/bmc";
pub(super) const TRUSTED_CA_FOLDER: &str = "/certs/ca/trusted";
pub(super) const DATABASE_CA_FOLDER: &str = "/certs/ca/database";
/// Folder that is shared with the container that downloads a ramdisk.
pub(super) const SHARED_FOLDER: &str = "/shared";
/// Where that container stores kernel and initial file system.
const RAMDISK_FOLDER: &str = "/shared/html/images";
/// Folder that ironic-image allows for images, beside the one with ramdisks.
const TEMPLATES_FOLDER: &str = "/templates";

/// Variable with the sealing keys. Names that start with `FERRITE_` are settings.
pub(super) const SEALING_KEYS_VARIABLE: &str = "IRONIC_SEALING_KEYS";
/// Path below which the Ingress passes requests to the image server.
pub(super) const INGRESS_IMAGE_PATH: &str = "/images";

/// The configuration of an installation.
pub(super) struct ServiceConfiguration {
    /// The file.
    pub(super) table: Table,
    /// Variables of the container.
    pub(super) environment: Vec<Json>,
}

impl ServiceConfiguration {
    /// Sets a key such as `api.listen`.
    pub(super) fn set(&mut self, path: &str, value: impl Into<Value>) {
        let mut table = &mut self.table;
        let mut parts = path.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                table.insert(part.to_owned(), value.into());
                return;
            }
            let entry = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
            let Value::Table(inner) = entry else { return };
            table = inner;
        }
    }

    /// The file as text.
    pub(super) fn text(&self) -> String {
        self.table.to_string()
    }

    /// Hash of the file.
    pub(super) fn hash(&self) -> String {
        content_hash(&[(CONFIGURATION_KEY, self.text().as_bytes())])
    }

    /// The object with the file.
    pub(super) fn config_map(&self, input: &DesiredInput<'_>) -> Json {
        let mut map = object(input, "v1", "ConfigMap", &object_names(input.ironic).config_map);
        map["data"] = json!({CONFIGURATION_KEY: self.text()});
        map
    }
}

/// Maps a spec to the configuration.
pub(super) fn configuration(
    input: &DesiredInput<'_>,
    report: &mut SupportReport,
) -> ServiceConfiguration {
    let mut configuration = ServiceConfiguration { table: Table::new(), environment: Vec::new() };
    metal3_defaults(&mut configuration);
    state(input, &mut configuration);
    listeners(input, &mut configuration);
    certificates(input, &mut configuration);
    addresses(input, &mut configuration);
    ramdisk(input, &mut configuration);
    dhcp::configure(&input.ironic.spec, &mut configuration, report);
    metrics(input, &mut configuration, report);
    without_counterpart(&input.ironic.spec, report);
    extra_config::configure(&input.ironic.spec.extra_config, &mut configuration, report);
    configuration
}

/// Settings of Metal3's image that differ from the defaults of the service.
#[must_use]
pub fn metal3_settings() -> [(&'static str, Value); 8] {
    [
        ("lifecycle.fast_track", true.into()),
        ("lifecycle.deploy_callback_timeout", 4800.into()),
        ("drivers.agent.erase_devices_priority", 0.into()),
        ("drivers.agent.erase_devices_metadata_priority", 10.into()),
        ("drivers.ipmi.power_state_change_timeout", 120.into()),
        ("inspection.add_ports", "all".into()),
        ("inspection.keep_ports", "present".into()),
        ("inspection.hooks", "$default_hooks,parse-lldp".into()),
    ]
}

fn metal3_defaults(configuration: &mut ServiceConfiguration) {
    for (path, value) in metal3_settings() {
        configuration.set(path, value);
    }
    let folders = [RAMDISK_FOLDER, TEMPLATES_FOLDER];
    configuration.set("images.file_url_allowed_paths", folders.map(Value::from).to_vec());
}

/// Variables with the sealing keys and the database. Sealing keys are in a Secret, so that all
/// replicas have the same ones.
pub(super) fn state_environment(input: &DesiredInput<'_>) -> Vec<Json> {
    let names = object_names(input.ironic);
    let mut environment = vec![json!({
        "name": SEALING_KEYS_VARIABLE,
        "valueFrom": {"secretKeyRef": {"name": names.sealing_keys, "key": SEALING_KEYS_KEY}},
    })];
    if input.facts.database.is_some() {
        environment.push(json!({
            "name": "FERRITE_DATABASE__URL",
            "valueFrom": {"secretKeyRef": {"name": names.database_secret, "key": DATABASE_URL_KEY}},
        }));
    }
    environment
}

fn state(input: &DesiredInput<'_>, configuration: &mut ServiceConfiguration) {
    configuration.set("data_dir", DATA_FOLDER);
    configuration.set("secrets.key_variable", SEALING_KEYS_VARIABLE);
    configuration.environment.extend(state_environment(input));
    if input.ironic.spec.high_availability {
        configuration.environment.push(json!({
            "name": "FERRITE_CONDUCTOR__HOST",
            "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
        }));
    } else {
        // The leases of the previous pod stay valid, on whichever node the new one runs.
        configuration.set("conductor.host", object_names(input.ironic).service);
    }
}

fn listeners(input: &DesiredInput<'_>, configuration: &mut ServiceConfiguration) {
    let spec = &input.ironic.spec;
    let ports = IronicPorts::of(&spec.networking);
    let host = ServiceAddress::of(spec).listen_host(input);
    configuration.set("api.listen", format!("{host}:{}", ports.api));
    configuration.set("api.auth", "basic");
    configuration.set("api.htpasswd_file", format!("{AUTH_FOLDER}/{}", secret_keys::HTPASSWD));
    configuration.set("boot.listen", vec![Value::from(format!("{host}:{}", ports.image_server))]);
    if spec.has_tls() {
        let listen = format!("{host}:{}", ports.image_server_tls);
        configuration.set("boot.tls_listen", vec![Value::from(listen)]);
    }
    let hosts = service_hosts(input.ironic, input.settings)
        .into_iter()
        .map(Value::from)
        .collect::<Vec<_>>();
    configuration.set("api.allowed_hosts", hosts);
}

/// Host names by which clients reach the API.
pub(in super::super) fn service_hosts(
    ironic: &Ironic,
    settings: &IronicOperatorSettings,
) -> Vec<String> {
    let metadata = &ironic.metadata;
    let name = metadata.name.as_deref().unwrap_or_default();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let mut hosts =
        vec![name.to_owned(), format!("{name}.{namespace}"), format!("{name}.{namespace}.svc")];
    let domain = settings.cluster_domain.as_deref().unwrap_or("cluster.local");
    hosts.push(format!("{name}.{namespace}.svc.{domain}"));
    let ingress = ironic.spec.networking.ingress.as_ref();
    hosts.extend(ingress.and_then(|ingress| ingress.host.clone()));
    hosts
}

fn certificates(input: &DesiredInput<'_>, configuration: &mut ServiceConfiguration) {
    let facts = input.facts;
    let file = |key: &str| format!("{CERTIFICATE_FOLDER}/{key}");
    let trusted = facts.trusted_ca.as_ref().and_then(|content| {
        let reference = input.ironic.spec.tls.effective_trusted_ca();
        let key = reference.and_then(|reference| reference.key);
        Some(format!("{TRUSTED_CA_FOLDER}/{}", key.or_else(|| content.keys.first().cloned())?))
    });
    match &facts.certificate {
        None => configuration.set("api.tls.mode", "off"),
        Some(certificate) => {
            configuration.set("api.tls.mode", "on");
            configuration.set("api.tls.certificate", file(secret_keys::TLS_CERTIFICATE));
            configuration.set("api.tls.key", file(secret_keys::TLS_KEY));
            let own = certificate.has_key(secret_keys::TLS_CA).then(|| file(secret_keys::TLS_CA));
            if let Some(ca) = own.or_else(|| trusted.clone()) {
                configuration.set("api.tls.ca_file", ca);
            }
        }
    }
    if facts.bmc_ca.is_some() {
        configuration.set("drivers.redfish.verify_ca", BMC_CA_FOLDER);
    }
    if let Some(trusted) = trusted {
        configuration.set("images.ca_file", trusted);
    }
}

/// URLs for machines, agents and BMCs.
fn addresses(input: &DesiredInput<'_>, configuration: &mut ServiceConfiguration) {
    let spec = &input.ironic.spec;
    let networking = &spec.networking;
    let ports = IronicPorts::of(networking);
    let address = ServiceAddress::of(spec);
    provisioning::configure(input, configuration);
    let api_scheme = if spec.has_tls() { "https" } else { "http" };
    let api_url = |host: &str| format!("{api_scheme}://{host}:{}", ports.api);
    let http_url = |host: &str| format!("http://{host}:{}", ports.image_server);
    let https_url = |host: &str| format!("https://{host}:{}", ports.image_server_tls);
    let has_media_tls = spec.has_tls() && !spec.tls.disable_virtual_media_tls;
    let media_url = |host: &str| if has_media_tls { https_url(host) } else { http_url(host) };
    address.set_boot_url(input, configuration, "api_url", api_url);
    address.set_boot_url(input, configuration, "http_url", http_url);
    if spec.has_tls() {
        address.set_boot_url(input, configuration, "https_url", https_url);
    }
    if networking.ingress.is_some() {
        configuration.set("boot.path_prefix", INGRESS_IMAGE_PATH);
    }
    let ingress = networking.ingress.as_ref().and_then(|ingress| ingress.host.as_deref());
    let external = networking.external_ip.as_deref().and_then(|address| address.parse().ok());
    let external = external.map(url_host);
    let callback = networking
        .external_callback_url
        .clone()
        .or_else(|| ingress.map(|host| format!("https://{host}")))
        .or_else(|| external.as_deref().map(api_url));
    if let Some(url) = callback {
        configuration.set("boot.external_callback_url", url);
    }
    let images = networking
        .image_server_external_url
        .clone()
        .or_else(|| ingress.map(|host| format!("https://{host}{INGRESS_IMAGE_PATH}")))
        .or_else(|| external.as_deref().map(media_url));
    match images {
        Some(url) => configuration.set("boot.external_http_url", url),
        None if has_media_tls => {
            address.set_boot_url(input, configuration, "external_http_url", media_url);
        }
        None => {}
    }
}

fn ramdisk(input: &DesiredInput<'_>, configuration: &mut ServiceConfiguration) {
    /// Parameters without those of the `Ironic`.
    const KERNEL_PARAMETERS: &str = "nofb vga=normal";
    const INSPECTION_PARAMETERS: &str = "ipa-collect-lldp=1";
    let spec = &input.ironic.spec;
    let mut parameters = KERNEL_PARAMETERS.to_owned();
    if let Some(key) = spec.deploy_ramdisk.ssh_key.as_deref().map(str::trim) {
        parameters = format!("{parameters} sshkey=\"{key}\"");
    }
    if let Some(more) = spec.deploy_ramdisk.extra_kernel_params.as_deref().map(str::trim) {
        parameters = format!("{parameters} {more}");
    }
    if parameters != KERNEL_PARAMETERS {
        configuration.set("boot.kernel_append_params", parameters);
    }
    let mut parameters = INSPECTION_PARAMETERS.to_owned();
    for (name, values) in [
        ("ipa-inspection-collectors", &spec.inspection.collectors),
        ("ipa-enable-vlan-interfaces", &spec.inspection.vlan_interfaces),
    ] {
        if !values.is_empty() {
            parameters = format!("{parameters} {name}={}", values.join(","));
        }
    }
    if parameters != INSPECTION_PARAMETERS {
        configuration.set("boot.inspection_kernel_params", parameters);
    }
    let images = spec.overrides.as_ref().map(|overrides| overrides.agent_images.as_slice());
    let images = images.unwrap_or_default();
    if images.is_empty() && downloader_image(input).is_some() {
        let file = |suffix: &str| format!("file://{RAMDISK_FOLDER}/ironic-python-agent.{suffix}");
        configuration.set("boot.deploy_kernel", file("kernel"));
        configuration.set("boot.deploy_ramdisk", file("initramfs"));
    }
    for image in images {
        let suffix = image
            .architecture
            .as_ref()
            .map(|architecture| format!("_by_arch.{architecture}"))
            .unwrap_or_default();
        configuration.set(&format!("boot.deploy_kernel{suffix}"), image.kernel.as_str());
        configuration.set(&format!("boot.deploy_ramdisk{suffix}"), image.initramfs.as_str());
    }
}

/// Image that downloads a ramdisk, if one is downloaded. By default the service uses the ramdisk of
/// its own image.
pub(super) fn downloader_image<'a>(input: &DesiredInput<'a>) -> Option<&'a str> {
    let spec = &input.ironic.spec;
    let image = spec.images.deploy_ramdisk_downloader.as_deref();
    let image = image.or(input.settings.ramdisk_downloader_image.as_deref());
    image.filter(|_| !spec.deploy_ramdisk.disable_downloader)
}

fn metrics(
    input: &DesiredInput<'_>,
    configuration: &mut ServiceConfiguration,
    report: &mut SupportReport,
) {
    configuration.set("api.public_metrics", false);
    let Some(exporter) = enabled_exporter(&input.ironic.spec) else { return };
    let given = exporter.bind_address.as_deref().unwrap_or(EXPORTER_BIND_ADDRESS);
    // The default of the schema also stands for all addresses of clusters with IPv6.
    let host = match given.parse() {
        Ok(address) if given != EXPORTER_BIND_ADDRESS => url_host(address),
        _ if input.settings.has_ipv6_addresses => "[::]".to_owned(),
        _ => EXPORTER_BIND_ADDRESS.to_owned(),
    };
    let port = IronicPorts::of(&input.ironic.spec.networking).metrics;
    configuration.set("metrics.listen", format!("{host}:{port}"));
    if exporter
        .sensor_collection_interval
        .is_some_and(|interval| interval != SENSOR_COLLECTION_INTERVAL)
    {
        report.notice(
            "spec.prometheusExporter.sensorCollectionInterval",
            "sensors are read when a client requests them, and are not among the metrics",
        );
    }
}

/// Fields for parts that the service does not have.
fn without_counterpart(spec: &IronicSpec, report: &mut SupportReport) {
    const NO_RPC: &str = "replicas share the database and make no calls to each other";
    let networking = &spec.networking;
    if IronicPorts::of(networking).rpc != RPC_PORT {
        report.notice("spec.networking.rpcPort", NO_RPC);
    }
    if spec.tls.insecure_rpc.is_some() {
        report.notice("spec.tls.insecureRPC", NO_RPC);
    }
    let service = spec.networking_service.as_ref();
    if service.is_some_and(|service| service.enabled) {
        report.reject(
            "spec.networkingService.enabled",
            "the service does not manage switches; set it to false",
        );
    } else if let Some(service) = service {
        for (field, is_set) in [
            ("providerNetworks", !service.provider_networks.is_empty()),
            ("switchConfigSecretName", service.switch_config_secret_name.is_some()),
            ("switchCredentialsSecretName", service.switch_credentials_secret_name.is_some()),
        ] {
            if is_set {
                let path = format!("spec.networkingService.{field}");
                report.notice(path, "the networking service is not enabled");
            }
        }
    }
}
