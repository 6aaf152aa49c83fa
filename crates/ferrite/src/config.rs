// SPDX-License-Identifier: Apache-2.0
//! The configuration: a TOML file, and environment variables `FERRITE_SECTION__KEY` that override it.
//!
//! The page `docs/configuration.md` is generated from these structs and those of other crates.

mod auth;
mod checks;
mod dhcp;
mod dns;
mod identity_services;
#[cfg(test)]
mod installation_tests;
mod policy;
mod provisioning;
#[cfg(test)]
mod reference;
mod secrets;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use api_server::{ApiConfig, BodyLimits};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub(crate) use auth::{AuthMode, AuthModes};
pub(crate) use checks::check_log_level;
pub(crate) use dhcp::{DhcpNetwork, DhcpSection};
pub(crate) use dns::DnsSection;
pub(crate) use identity_services::AuthSection;
pub(crate) use policy::PolicySection;
pub(crate) use provisioning::{ProvisioningAddress, ProvisioningSection};
pub(crate) use secrets::{SecretsSection, VaultSection};
pub(crate) use tls::{TlsMode, TlsSection};

/// The configuration file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Directory of the database, the key file and the user file.
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) provisioning: ProvisioningSection,
    pub(crate) api: ApiSection,
    pub(crate) auth: AuthSection,
    pub(crate) policy: PolicySection,
    pub(crate) database: DatabaseSection,
    pub(crate) secrets: SecretsSection,
    pub(crate) conductor: conductor::ConductorSettings,
    pub(crate) lifecycle: lifecycle::LifecycleSettings,
    pub(crate) drivers: driver_set::DriverSettings,
    pub(crate) boot: boot_plans::BootServiceSettings,
    pub(crate) images: boot_plans::ImageSettings,
    pub(crate) dhcp: DhcpSection,
    pub(crate) dns: DnsSection,
    pub(crate) inspection: InspectionSection,
    pub(crate) auto_discovery: AutoDiscoverySection,
    pub(crate) agent_logs: AgentLogsSection,
    pub(crate) pxe_filter: conductor::PxeFilterSettings,
    pub(crate) metrics: MetricsSection,
    pub(crate) log: LogSection,
    /// This host's address on the provisioning network, once it is found.
    #[serde(skip)]
    pub(crate) provisioning_address: Option<ProvisioningAddress>,
}

/// The merged configuration file and environment variables. Placeholders for this host's address on the
/// provisioning network are not replaced yet.
pub(crate) struct ConfigSource(Table);

/// The HTTP API.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ApiSection {
    /// Address and port to listen on, such as `0.0.0.0:6385`.
    pub(crate) listen: SocketAddr,
    /// Authentication: `none`, `basic` (the htpasswd file), `local` (users and API tokens in the
    /// database), `oidc` (OpenID Connect), `keystone`, several of them separated by commas, or `auto`, which
    /// is `none` if the API listens on a loopback address and `basic` otherwise.
    pub(crate) auth: AuthModes,
    /// The htpasswd file for `basic`; by default `htpasswd` in the data directory.
    pub(crate) htpasswd_file: Option<PathBuf>,
    /// URL of this API in links; by default the host of each request.
    pub(crate) public_endpoint: Option<String>,
    /// Trust `X-Forwarded-Proto`. Only safe behind a proxy that always sets it.
    pub(crate) trust_forwarded_headers: bool,
    /// Serve `/metrics` without authentication.
    pub(crate) public_metrics: bool,
    /// Maximum number of entries in a page of a list.
    pub(crate) max_limit: u32,
    /// Maximum size of a request body, in KiB.
    pub(crate) max_json_body_size: usize,
    /// Maximum size of a provision request, which may contain a config drive, in KiB.
    pub(crate) max_json_body_size_provision: usize,
    /// Maximum size of inspection data, in KiB.
    pub(crate) max_json_body_size_inspection: usize,
    /// Host names by which clients reach this API, besides `localhost`, IP addresses, the name of this host
    /// and those in `public_endpoint`, `tls.names`, `boot.api_url` and `boot.external_callback_url`. A name that starts
    /// with a dot stands for all its subdomains, `*` for every name. Requests for other names are rejected,
    /// because a web page can make a browser send them.
    pub(crate) allowed_hosts: Vec<String>,
    /// Maximum number of concurrent connections. A further one replaces one that waits for a request.
    pub(crate) max_connections: usize,
    /// Maximum number of concurrent connections of one address (IPv6: of one /64 network) that has not
    /// authenticated in the last 15 minutes.
    pub(crate) max_connections_per_address: usize,
    /// Memory for the bodies of all unauthenticated requests (inspection data, heartbeats, sign-ins), in
    /// MiB. One address uses at most half of it.
    pub(crate) unauthenticated_body_budget: usize,
    /// Unauthenticated requests per second and address, with bursts of ten seconds. Agents and clients that
    /// have authenticated lately may send ten times as many; 0 disables the limit.
    pub(crate) unauthenticated_requests_per_second: u32,
    /// Seconds within which the first request of a connection has to arrive.
    pub(crate) head_timeout: u64,
    /// Seconds after which an idle connection is closed.
    pub(crate) idle_timeout: u64,
    /// Resource class of nodes that are created without one.
    pub(crate) default_resource_class: Option<String>,
    /// Conductor group of nodes that are created without one.
    pub(crate) default_conductor_group: String,
    /// The longest lease of a deployment that a project requests, in seconds, also for deployments that are
    /// requested without one; 0 does not limit leases. Callers with system scope are not limited.
    pub(crate) max_lease: u64,
    /// Unix socket for clients on this host, with full access for root and the user of the server; by
    /// default `ferrite.sock` in the data directory. An empty text disables it.
    pub(crate) unix_socket: Option<PathBuf>,
    /// TLS.
    pub(crate) tls: TlsSection,
}

/// The database.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DatabaseSection {
    /// `sqlite:PATH`, `postgresql://user:password@host:port/database` or
    /// `mysql://user:password@host:port/database`; by default SQLite in the data directory.
    /// [TLS of database connections](tls.md#database-connections) is set in the URL.
    /// Several servers are given as `host:port,host:port`; the first that accepts writes is used
    /// ([databases](databases.md)).
    pub(crate) url: Option<String>,
    /// Seconds after which a database server cancels a statement; 0 does not limit them.
    pub(crate) statement_timeout: u64,
    /// Number of connections to a database server.
    pub(crate) connections: usize,
    /// Durability of SQLite commits: `full` survives a power loss, `normal` only the end of the
    /// process.
    pub(crate) synchronous: Synchronous,
    /// Seconds by which the clock of this host may differ from that of a database server, whose clock all
    /// servers use for leases and due times. With a greater difference the server does not start; while it
    /// runs, `ferrite_clock_beyond_tolerance` is 1.
    pub(crate) clock_tolerance: u64,
}

/// Durability of SQLite commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Synchronous {
    /// Survives a power loss.
    Full,
    /// Survives the end of the process.
    Normal,
}

/// In-band inspection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct InspectionSection {
    /// Hooks in execution order; `$default_hooks` stands for the default ones.
    pub(crate) hooks: String,
    /// NICs for which ports are created: `all`, `active`, `pxe` or `disabled`.
    pub(crate) add_ports: inspection::AddPorts,
    /// Existing ports that are kept after inspection: `all`, `present` or `added`.
    pub(crate) keep_ports: inspection::KeepPorts,
    /// Set `pxe_enabled` of existing ports according to the NIC that the machine booted from.
    pub(crate) update_pxe_enabled: bool,
    /// Subtract 1 GiB from `local_gb` for partitioning.
    pub(crate) disk_partitioning_spacing: bool,
    /// What happens to an existing property when a hook finds another value: `keep` changes it only if
    /// it still has the value of the last inspection, `overwrite` always changes it, as Ironic does.
    /// This also applies to the physical network and the client id of ports.
    pub(crate) existing_properties: inspection::ExistingProperties,
    /// CPU flags and the capabilities they set.
    pub(crate) cpu_capabilities: Vec<(String, String)>,
    /// Reject all extra hardware data if one record is malformed.
    pub(crate) extra_hardware_strict: bool,
    /// PCI devices to count in capabilities, each with `vendor_id`, `product_id` and `name`.
    pub(crate) pci_device_alias: Vec<inspection::PciAlias>,
    /// PCI devices that are accelerators, each with `vendor_id`, `device_id`, `type` and
    /// `device_info`.
    pub(crate) known_accelerators: Vec<inspection::KnownAccelerator>,
    /// Physical networks of addresses, such as `10.10.10.0/24:physnet_a`.
    pub(crate) physical_network_cidr_map: Vec<String>,
    /// Inspection rules that get masked secrets: `always` all, `sensitive` those that are not marked
    /// sensitive, `never` none.
    pub(crate) mask_secrets: inspection::MaskSecrets,
    /// Built-in inspection rules: tables with
    /// `conditions`, `actions`, `priority`, `description` and `sensitive`.
    pub(crate) built_in_rules: Vec<BuiltInRule>,
    /// URL prefixes that the rule action `api-call` may request. An empty list disables the action.
    pub(crate) api_call_allowed: Vec<String>,
}

/// An inspection rule in the configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BuiltInRule {
    description: Option<String>,
    priority: i64,
    sensitive: bool,
    conditions: Vec<serde_json::Value>,
    actions: Vec<serde_json::Value>,
}

/// Automatic enrolment of unknown machines.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AutoDiscoverySection {
    /// Create a node for inspection data of an unknown machine. Every client that reaches the API can
    /// then create nodes.
    pub(crate) enabled: bool,
    /// Driver of such nodes; required if enabled.
    pub(crate) driver: Option<String>,
}

/// Logs of ramdisks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentLogsSection {
    /// When logs are stored: `always`, `on_failure` or `never`.
    pub(crate) collect: inspection::CollectLogs,
    /// Number of logs that are kept per node; the oldest are deleted first.
    pub(crate) per_node: u32,
    /// Maximum size of a stored log, in KiB.
    pub(crate) max_size: u64,
}

/// A separate port for metrics.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MetricsSection {
    /// Address and port for `/metrics` alone, without TLS and authentication, such as `127.0.0.1:9608`; by
    /// default metrics are on the port of the API only. Combine it with `api.public_metrics = false`.
    pub(crate) listen: Option<SocketAddr>,
}

/// Logging to standard error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogSection {
    /// Log filter, such as `info` or `info,conductor=debug`.
    pub(crate) level: String,
    /// One JSON object per line instead of text.
    pub(crate) json: bool,
}

impl Default for ApiSection {
    fn default() -> Self {
        let api = ApiConfig::default();
        Self {
            listen: api.listen,
            auth: AuthMode::Auto.into(),
            htpasswd_file: None,
            public_endpoint: None,
            trust_forwarded_headers: api.trust_forwarded_headers,
            public_metrics: api.public_metrics,
            max_limit: api.max_limit,
            max_json_body_size: api.body_limits.small / 1024,
            max_json_body_size_provision: api.body_limits.provision / 1024,
            max_json_body_size_inspection: api.body_limits.inspection / 1024,
            allowed_hosts: Vec::new(),
            max_connections: api.max_connections,
            max_connections_per_address: api.max_connections_per_address,
            unauthenticated_body_budget: api.unauthenticated_body_budget / (1024 * 1024),
            unauthenticated_requests_per_second: api.unauthenticated_requests_per_second,
            head_timeout: api.head_timeout.as_secs(),
            idle_timeout: api.idle_timeout.as_secs(),
            default_resource_class: None,
            default_conductor_group: String::new(),
            max_lease: 0,
            unix_socket: None,
            tls: TlsSection::default(),
        }
    }
}

impl Default for DatabaseSection {
    fn default() -> Self {
        Self {
            url: None,
            statement_timeout: 30,
            connections: 8,
            synchronous: Synchronous::Full,
            clock_tolerance: 10,
        }
    }
}

impl Default for InspectionSection {
    fn default() -> Self {
        let settings = inspection::InspectionSettings::default();
        Self {
            hooks: "$default_hooks".to_owned(),
            add_ports: settings.add_ports,
            keep_ports: settings.keep_ports,
            update_pxe_enabled: settings.update_pxe_enabled,
            disk_partitioning_spacing: settings.disk_partitioning_spacing,
            existing_properties: settings.existing_properties,
            cpu_capabilities: settings.cpu_capabilities,
            extra_hardware_strict: settings.extra_hardware_strict,
            pci_device_alias: settings.pci_device_alias,
            known_accelerators: settings.known_accelerators,
            physical_network_cidr_map: Vec::new(),
            mask_secrets: settings.mask_secrets,
            built_in_rules: Vec::new(),
            api_call_allowed: settings.api_call_allowed,
        }
    }
}

impl Default for AgentLogsSection {
    fn default() -> Self {
        let settings = inspection::InspectionSettings::default();
        Self {
            collect: settings.collect_logs,
            per_node: settings.log_limits.per_node,
            max_size: settings.log_limits.bytes / 1024,
        }
    }
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: "info".to_owned(), json: false }
    }
}

impl ConfigSource {
    /// Reads the file, if one is given, and applies the environment variables.
    pub(crate) fn read(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> anyhow::Result<Self> {
        let mut table = match file {
            None => Table::new(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the configuration {}", path.display()))?;
                text.parse::<Table>()
                    .with_context(|| format!("{} is not valid TOML", path.display()))?
            }
        };
        // The file is checked separately, so that the error names the right source.
        if let Some(path) = file {
            let mut value = Value::Table(table.clone());
            ProvisioningAddress::stand_in()
                .substitute(&mut value)
                .and_then(|_| Ok(value.try_into::<Config>()?))
                .with_context(|| format!("{} is invalid", path.display()))?;
        }
        for (name, text) in environment {
            if let Some(key) = name.strip_prefix("FERRITE_") {
                set_from_environment(&mut table, key, &text)?;
            }
        }
        Ok(Self(table))
    }

    /// Returns the configuration with this host's address on the provisioning network; without it, the
    /// settings that contain the address cannot be used.
    pub(crate) fn config(&self, address: Option<ProvisioningAddress>) -> anyhow::Result<Config> {
        const SOURCE: &str = "a FERRITE_* environment variable is invalid";
        let mut value = Value::Table(self.0.clone());
        let used = address.clone().unwrap_or_else(ProvisioningAddress::stand_in);
        let has_placeholders = used.substitute(&mut value).context(SOURCE)?;
        let mut config: Config = value.try_into().context(SOURCE)?;
        if has_placeholders && !config.provisioning.is_set() {
            bail!(
                "the configuration uses the address of the provisioning network, which is not configured; \
                 set provisioning.interface, mac_addresses, address or network"
            );
        }
        config.provisioning_address = address;
        Ok(config)
    }
}

impl Config {
    /// Reads the configuration, for commands that do not use the provisioning network.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> anyhow::Result<Self> {
        ConfigSource::read(file, environment)?.config(None)
    }

    /// Rejects values that have the right type but cannot work.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        checks::check(self)
    }

    /// Settings of the API. The user file is in `data_dir` by default.
    pub(crate) fn api(&self, data_dir: &Path) -> ApiConfig {
        const KIB: usize = 1024;
        let api = &self.api;
        let file = api.htpasswd_file.clone().unwrap_or_else(|| data_dir.join("htpasswd"));
        ApiConfig {
            listen: api.listen,
            auth: api.auth.settings(api.listen.ip(), file, data_dir, &self.auth),
            public_endpoint: api.public_endpoint.clone(),
            requires_client_certificate: self.requires_client_certificate(),
            trust_forwarded_headers: api.trust_forwarded_headers,
            public_metrics: api.public_metrics,
            max_limit: api.max_limit,
            body_limits: BodyLimits {
                small: api.max_json_body_size * KIB,
                provision: api.max_json_body_size_provision * KIB,
                inspection: api.max_json_body_size_inspection * KIB,
            },
            idle_timeout: Duration::from_secs(api.idle_timeout),
            allowed_hosts: self.allowed_hosts(),
            max_connections: api.max_connections,
            max_connections_per_address: api.max_connections_per_address,
            unauthenticated_body_budget: api.unauthenticated_body_budget * KIB * KIB,
            unauthenticated_requests_per_second: api.unauthenticated_requests_per_second,
            head_timeout: Duration::from_secs(api.head_timeout),
            default_resource_class: api.default_resource_class.clone(),
            default_conductor_group: api.default_conductor_group.to_lowercase(),
            project_admin_can_manage_own_nodes: self.policy.project_admin_can_manage_own_nodes,
            conductor_timeout: Duration::from_secs(self.conductor.heartbeat_timeout),
            max_lease: (api.max_lease > 0).then(|| Duration::from_secs(api.max_lease)),
            ..ApiConfig::default()
        }
    }

    /// The host names by which clients reach the API.
    fn allowed_hosts(&self) -> Vec<String> {
        let mut hosts = self.api.allowed_hosts.clone();
        hosts.extend(self.api.tls.names.iter().cloned());
        let urls = [&self.boot.api_url, &self.boot.external_callback_url];
        hosts.extend(urls.into_iter().flatten().filter_map(|url| {
            let (_, rest) = url.split_once("://")?;
            let authority = rest.split(['/', '?']).next()?;
            let name = authority.rsplit_once(':').map_or(authority, |(name, _)| name);
            (!name.is_empty() && !name.ends_with(']')).then(|| name.to_owned())
        }));
        hosts.extend(self.conductor.host.clone());
        let own = crate::service::host_name();
        hosts.push(format!("{own}.local"));
        hosts.push(own);
        hosts
    }

    /// Settings of the database.
    pub(crate) fn store(&self, data_dir: &Path) -> store::StoreSettings {
        store::StoreSettings {
            url: self.database.url.clone(),
            connections: self.database.connections,
            synchronous: match self.database.synchronous {
                Synchronous::Full => store::SqliteSynchronous::Full,
                Synchronous::Normal => store::SqliteSynchronous::Normal,
            },
            clock_tolerance: Duration::from_secs(self.database.clock_tolerance),
            statement_timeout: Duration::from_secs(self.database.statement_timeout),
            ..store::StoreSettings::in_dir(data_dir)
        }
    }

    /// Settings of inspection.
    pub(crate) fn inspection(&self) -> anyhow::Result<inspection::InspectionSettings> {
        let section = &self.inspection;
        let networks = section.physical_network_cidr_map.iter().map(|entry| entry.parse());
        for address in &section.api_call_allowed {
            if !conductor::is_allowed_url(address, std::slice::from_ref(address)) {
                bail!("inspection.api_call_allowed: {address:?} is not an http or https URL");
            }
        }
        Ok(inspection::InspectionSettings {
            hooks: inspection::parse_hooks(&section.hooks).context("inspection.hooks")?,
            add_ports: section.add_ports,
            keep_ports: section.keep_ports,
            update_pxe_enabled: section.update_pxe_enabled,
            disk_partitioning_spacing: section.disk_partitioning_spacing,
            existing_properties: section.existing_properties,
            cpu_capabilities: section.cpu_capabilities.clone(),
            extra_hardware_strict: section.extra_hardware_strict,
            pci_device_alias: section.pci_device_alias.clone(),
            known_accelerators: section.known_accelerators.clone(),
            physical_network_cidr_map: networks
                .collect::<Result<_, _>>()
                .context("inspection.physical_network_cidr_map")?,
            mask_secrets: section.mask_secrets,
            built_in_rules: self.built_in_rules()?,
            auto_discovery: self.auto_discovery()?,
            api_call_allowed: section.api_call_allowed.clone(),
            collect_logs: self.agent_logs.collect,
            log_limits: node_model::AgentLogLimits {
                per_node: self.agent_logs.per_node,
                bytes: self.agent_logs.max_size.saturating_mul(1024),
            },
        })
    }

    fn built_in_rules(&self) -> anyhow::Result<Vec<node_model::InspectionRule>> {
        let section = &self.inspection;
        let rules = section.built_in_rules.iter().enumerate().map(|(index, rule)| {
            let location = || format!("inspection.built_in_rules[{index}]");
            inspection::validate_rule(&rule.conditions, &rule.actions).with_context(location)?;
            let has_api_call = rule.actions.iter().any(|action| action["op"] == "api-call");
            if has_api_call && section.api_call_allowed.is_empty() {
                bail!("{}: api-call needs inspection.api_call_allowed", location());
            }
            Ok(node_model::InspectionRule {
                // Distinct ids, so that the timeline distinguishes the rules; as in Ironic.
                id: node_model::RuleId(uuid::Uuid::from_u128(index as u128)),
                created_at: node_model::Timestamp(0),
                updated_at: None,
                description: rule.description.clone(),
                priority: rule.priority,
                phase: None,
                sensitive: if rule.sensitive {
                    node_model::Sensitive::Yes
                } else {
                    node_model::Sensitive::No
                },
                conditions: rule.conditions.clone().into(),
                actions: rule.actions.clone().into(),
            })
        });
        rules.collect()
    }

    fn auto_discovery(&self) -> anyhow::Result<Option<inspection::AutoDiscovery>> {
        let section = &self.auto_discovery;
        if !section.enabled {
            return Ok(None);
        }
        let Some(driver) = section.driver.clone().filter(|driver| !driver.is_empty()) else {
            bail!(
                "auto_discovery.enabled requires auto_discovery.driver, the driver of the new nodes"
            );
        };
        if !self.drivers.enabled_hardware_types.contains(&driver) {
            bail!(
                "auto_discovery.driver is {driver}, which is not in drivers.enabled_hardware_types"
            );
        }
        Ok(Some(inspection::AutoDiscovery {
            driver,
            conductor_group: self.api.default_conductor_group.to_lowercase(),
            resource_class: self.api.default_resource_class.clone(),
        }))
    }

    /// The configured data directory, else the default of the XDG base directory specification.
    pub(crate) fn data_dir(&self) -> anyhow::Result<PathBuf> {
        if let Some(configured) = &self.data_dir {
            return Ok(configured.clone());
        }
        if let Some(data) = std::env::var_os("XDG_DATA_HOME").filter(|data| !data.is_empty()) {
            return Ok(PathBuf::from(data).join("ferrite"));
        }
        match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
            Some(home) => Ok(PathBuf::from(home).join(".local/share/ferrite")),
            None => bail!("HOME is not set; give --data-dir"),
        }
    }
}

/// Variables `FERRITE_*` that are not configuration keys: `FERRITE_PROFILE`, `FERRITE_URL` and
/// `FERRITE_TOKEN` of the client,
/// `FERRITE_BMC_PASSWORD` of `ferrite bmc record`, those of tests, and those that Kubernetes sets for
/// a Service named `ferrite`.
fn is_other_variable(key: &str) -> bool {
    matches!(key, "PROFILE" | "URL" | "TOKEN" | "BMC_PASSWORD" | "PORT")
        || ["TEST_", "PORT_", "SERVICE_"].iter().any(|prefix| key.starts_with(prefix))
}

/// Sets `SECTION__KEY`, or the top-level key `DATA_DIR`. The text is parsed as a TOML value if
/// possible, else taken as a string, so that strings need no quotes. Fails if there is no such key.
fn set_from_environment(table: &mut Table, key: &str, text: &str) -> anyhow::Result<()> {
    if is_other_variable(key) {
        return Ok(());
    }
    let path: Vec<String> = key.split("__").map(str::to_lowercase).collect();
    let Some((last, sections)) = path.split_last() else { return Ok(()) };
    if sections.is_empty() && last != "data_dir" {
        bail!("the environment variable FERRITE_{key} is not a configuration key{}", hint(last));
    }
    let value = format!("v = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut parsed| parsed.remove("v"))
        .unwrap_or_else(|| Value::String(text.to_owned()));
    let mut parent = table;
    for section in sections {
        let entry = parent.entry(section.clone()).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(inner) = entry else {
            bail!("the environment variable FERRITE_{key}: {section} is not a section");
        };
        parent = inner;
    }
    parent.insert(last.clone(), value);
    Ok(())
}

/// Suggests variables for a key that was given without its section.
fn hint(key: &str) -> String {
    let defaults = Table::try_from(Config::default()).unwrap_or_default();
    let sections = defaults.iter().filter(|(_, section)| section.get(key).is_some());
    let names: Vec<String> = sections
        .map(|(section, _)| format!("FERRITE_{}__{}", section.to_uppercase(), key.to_uppercase()))
        .collect();
    if names.is_empty() {
        "; keys are set as FERRITE_SECTION__KEY (see docs/configuration.md)".to_owned()
    } else {
        format!("; did you mean {}?", names.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(environment: &[(&str, &str)]) -> anyhow::Result<Config> {
        let pairs: Vec<(String, String)> = environment
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        Config::load(None, pairs.into_iter())
    }

    #[test]
    fn empty_configuration_is_valid() {
        let config = load(&[]).unwrap();
        assert_eq!(config.api.listen.to_string(), "127.0.0.1:6385");
        assert_eq!(config.api(Path::new("d")).auth, authentication::AuthSettings::default());
        config.inspection().unwrap();
    }

    #[test]
    fn environment_variables_set_keys() {
        let config = load(&[
            ("FERRITE_API__LISTEN", "0.0.0.0:80"),
            ("FERRITE_API__MAX_LIMIT", "10"),
            ("FERRITE_LIFECYCLE__AUTOMATED_CLEAN", "false"),
            ("FERRITE_DRIVERS__FAKE__POWER_DELAY", "\"1,2\""),
            ("FERRITE_DATA_DIR", "/srv/ferrite"),
            ("FERRITE_TEST_SERVERS", "required"),
            ("FERRITE_PROFILE", "lab"),
            ("PATH", "ignored"),
        ])
        .unwrap();
        assert_eq!(config.api.max_limit, 10);
        assert!(!config.lifecycle.automated_clean);
        assert_eq!(config.drivers.fake.power_delay, "1,2");
        assert_eq!(config.data_dir().unwrap(), Path::new("/srv/ferrite"));
    }

    #[test]
    fn converts_inspection_settings() {
        let config = load(&[
            ("FERRITE_AUTO_DISCOVERY__ENABLED", "true"),
            ("FERRITE_AUTO_DISCOVERY__DRIVER", "ipmi"),
            ("FERRITE_API__DEFAULT_RESOURCE_CLASS", "metal"),
            ("FERRITE_AGENT_LOGS__COLLECT", "always"),
            ("FERRITE_AGENT_LOGS__MAX_SIZE", "2"),
            ("FERRITE_INSPECTION__EXISTING_PROPERTIES", "overwrite"),
            ("FERRITE_INSPECTION__PHYSICAL_NETWORK_CIDR_MAP", "[\"10.0.0.0/8:a\"]"),
            ("FERRITE_INSPECTION__API_CALL_ALLOWED", "[\"https://cmdb.example/x\"]"),
        ]);
        let settings = config.unwrap().inspection().unwrap();
        let rule: Table = "[[inspection.built_in_rules]]\npriority = 7\n\
                           [[inspection.built_in_rules.actions]]\nop = \"add-trait\"\n\
                           args = {name = \"CUSTOM_A\"}\n"
            .parse()
            .unwrap();
        let with_rule: Config = Value::Table(rule).try_into().unwrap();
        let rules = with_rule.inspection().unwrap().built_in_rules;
        assert_eq!((rules.len(), rules[0].priority), (1, 7));
        let discovery = settings.auto_discovery.unwrap();
        assert_eq!(discovery.driver, "ipmi");
        assert_eq!(discovery.resource_class.as_deref(), Some("metal"));
        assert_eq!(settings.log_limits.bytes, 2048);
        assert_eq!(settings.physical_network_cidr_map[0].name, "a");
        for (name, text, expected) in [
            ("FERRITE_AUTO_DISCOVERY__ENABLED", "true", "auto_discovery.driver"),
            ("FERRITE_INSPECTION__API_CALL_ALLOWED", "[\"cmdb\"]", "api_call_allowed"),
            ("FERRITE_INSPECTION__PHYSICAL_NETWORK_CIDR_MAP", "[\"10\"]", "cidr_map"),
            (
                "FERRITE_INSPECTION__BUILT_IN_RULES",
                "[{actions = [{op = \"api-call\", args = {url = \"http://x\"}}]}]",
                "api_call_allowed",
            ),
            ("FERRITE_INSPECTION__BUILT_IN_RULES", "[{priority = 1}]", "built_in_rules[0]"),
        ] {
            let error = load(&[(name, text)]).unwrap().inspection().unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }

    #[test]
    fn remote_api_requires_a_password() {
        let config = load(&[("FERRITE_API__LISTEN", "[::]:6385")]).unwrap();
        let auth = config.api(Path::new("d")).auth;
        assert_eq!(auth.htpasswd.as_deref(), Some(Path::new("d/htpasswd")));
    }

    #[test]
    fn rejects_unknown_keys_and_values() {
        for (name, text, expected) in [
            ("FERRITE_API__LISTN", "x", "listn"),
            ("FERRITE_API__MAX_LIMIT", "many", "max_limit"),
            ("FERRITE_APII__LISTEN", "x", "apii"),
            ("FERRITE_LISTEN", "0.0.0.0:80", "FERRITE_API__LISTEN or FERRITE_BOOT__LISTEN"),
            ("FERRITE_MAX_LIMIT", "1", "did you mean FERRITE_API__MAX_LIMIT?"),
            ("FERRITE_DATADIR", "/srv", "keys are set as FERRITE_SECTION__KEY"),
        ] {
            let error = format!("{:#}", load(&[(name, text)]).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
