// SPDX-License-Identifier: Apache-2.0
//! The configuration: one TOML file, every key of which can also be set as `FERRITE_SECTION__KEY`.
//!
//! The page `docs/configuration.md` is made from these structs and those of the other crates.

mod dhcp;
#[cfg(test)]
mod reference;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use api_server::{ApiConfig, AuthStrategy, BodyLimits};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub(crate) use dhcp::DhcpSection;

/// Everything that can be configured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Where the database, the key file and the user file are.
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) api: ApiSection,
    pub(crate) database: DatabaseSection,
    pub(crate) conductor: conductor::Settings,
    pub(crate) lifecycle: lifecycle::Settings,
    pub(crate) drivers: bmc_drivers::DriverSettings,
    pub(crate) boot: boot_plans::Settings,
    pub(crate) images: boot_plans::ImageSettings,
    pub(crate) dhcp: DhcpSection,
    pub(crate) inspection: InspectionSection,
    pub(crate) auto_discovery: AutoDiscoverySection,
    pub(crate) agent_logs: AgentLogsSection,
    pub(crate) pxe_filter: conductor::PxeFilterSettings,
    pub(crate) log: LogSection,
}

/// The HTTP API.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ApiSection {
    /// Address and port to listen on, such as `0.0.0.0:6385`.
    pub(crate) listen: SocketAddr,
    /// How callers prove who they are: `none`, `basic`, or `auto`, which is `none` when only this
    /// machine can reach the API and `basic` otherwise.
    pub(crate) auth: Auth,
    /// The htpasswd file for `basic`; by default `htpasswd` in the data directory.
    pub(crate) htpasswd_file: Option<PathBuf>,
    /// The address clients know this API by; by default what each request calls it.
    pub(crate) public_endpoint: Option<String>,
    /// Believe `X-Forwarded-Proto`. Only safe behind a proxy that always sets it.
    pub(crate) trust_forwarded_headers: bool,
    /// Show `/metrics` to callers who have not signed in.
    pub(crate) public_metrics: bool,
    /// The most entries in one page of a list.
    pub(crate) max_limit: u32,
    /// The largest request body, in KiB.
    pub(crate) max_json_body_size: usize,
    /// The largest body of a provision request, which may carry a config drive, in KiB.
    pub(crate) max_json_body_size_provision: usize,
    /// The largest inspection report, in KiB.
    pub(crate) max_json_body_size_inspection: usize,
    /// The most connections served at once.
    pub(crate) max_connections: usize,
    /// Seconds an idle connection is kept.
    pub(crate) idle_timeout: u64,
    /// The resource class of nodes that are enrolled without one.
    pub(crate) default_resource_class: Option<String>,
    /// The conductor group of nodes that are enrolled without one.
    pub(crate) default_conductor_group: String,
}

/// How callers prove who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Auth {
    /// `none` on loopback, `basic` elsewhere.
    Auto,
    /// Everybody may do everything.
    None,
    /// HTTP basic authentication against an htpasswd file.
    Basic,
}

/// The database.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DatabaseSection {
    /// `sqlite:PATH`, `postgresql://user:password@host:port/database` or
    /// `mysql://user:password@host:port/database`; by default SQLite in the data directory.
    pub(crate) url: Option<String>,
    /// Connections to a database server.
    pub(crate) connections: usize,
    /// How hard SQLite makes a commit: `full` survives loss of power, `normal` the end of the
    /// process only.
    pub(crate) synchronous: Synchronous,
}

/// How hard SQLite makes a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Synchronous {
    /// Survives loss of power.
    Full,
    /// Survives the end of the process.
    Normal,
}

/// In-band inspection.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct InspectionSection {
    /// Hooks in the order they run; `$default_hooks` stands for the usual ones.
    pub(crate) hooks: String,
    /// For which network cards ports are created: `all`, `active`, `pxe` or `disabled`.
    pub(crate) add_ports: inspection::AddPorts,
    /// Which existing ports stay after inspection: `all`, `present` or `added`.
    pub(crate) keep_ports: inspection::KeepPorts,
    /// Let `pxe_enabled` of existing ports follow what the machine really booted from.
    pub(crate) update_pxe_enabled: bool,
    /// Leave a GiB of the root disk out of `local_gb`, for partitioning.
    pub(crate) disk_partitioning_spacing: bool,
    /// What happens to a property that is there already when a hook finds another value: `keep`, it
    /// stays unless it is still what the last inspection found, or `overwrite`, as in Ironic. The
    /// same goes for the physical network and the client id of ports.
    pub(crate) existing_properties: inspection::ExistingProperties,
    /// CPU flags and the capability each sets.
    pub(crate) cpu_capabilities: Vec<(String, String)>,
    /// Refuse extra hardware data as a whole if one record of it is bad.
    pub(crate) extra_hardware_strict: bool,
    /// PCI devices that are counted in capabilities, each with `vendor_id`, `product_id` and `name`.
    pub(crate) pci_device_alias: Vec<inspection::PciAlias>,
    /// PCI devices that are accelerators, each with `vendor_id`, `device_id`, `type` and
    /// `device_info`.
    pub(crate) known_accelerators: Vec<inspection::KnownAccelerator>,
    /// Which physical network addresses belong to, such as `10.10.10.0/24:physnet_a`.
    pub(crate) physical_network_cidr_map: Vec<String>,
    /// From which inspection rules secrets are hidden: `always` from all, `sensitive` from those
    /// that are not marked sensitive, `never` from none.
    pub(crate) mask_secrets: inspection::MaskSecrets,
    /// Inspection rules that are there without anybody having created them: tables with
    /// `conditions`, `actions`, `priority`, `description` and `sensitive`.
    pub(crate) built_in_rules: Vec<BuiltInRule>,
    /// The addresses that the rule action `api-call` may ask: each a URL, which stands for
    /// everything below it. None switches the action off.
    pub(crate) api_call_allowed: Vec<String>,
}

/// An inspection rule of the configuration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BuiltInRule {
    description: Option<String>,
    priority: i64,
    sensitive: bool,
    conditions: Vec<serde_json::Value>,
    actions: Vec<serde_json::Value>,
}

/// Machines that nobody enrolled.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AutoDiscoverySection {
    /// Enrol machines whose inspection data no node waits for. Whoever reaches the API can then
    /// make nodes.
    pub(crate) enabled: bool,
    /// The driver of such nodes; needed if it is enabled.
    pub(crate) driver: Option<String>,
}

/// What ramdisks write down.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentLogsSection {
    /// When the logs are kept: `always`, `on_failure` or `never`.
    pub(crate) collect: inspection::CollectLogs,
    /// How many logs are kept for a node; the oldest go first.
    pub(crate) per_node: u32,
    /// The largest log that is kept, in KiB.
    pub(crate) max_size: u64,
}

/// Logging to standard error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogSection {
    /// What is logged, such as `info` or `info,conductor=debug`.
    pub(crate) level: String,
    /// One JSON object per line instead of text.
    pub(crate) json: bool,
}

impl Default for ApiSection {
    fn default() -> Self {
        let api = ApiConfig::default();
        Self {
            listen: api.listen,
            auth: Auth::Auto,
            htpasswd_file: None,
            public_endpoint: None,
            trust_forwarded_headers: api.trust_forwarded_headers,
            public_metrics: api.public_metrics,
            max_limit: api.max_limit,
            max_json_body_size: api.body_limits.small / 1024,
            max_json_body_size_provision: api.body_limits.provision / 1024,
            max_json_body_size_inspection: api.body_limits.inspection / 1024,
            max_connections: api.max_connections,
            idle_timeout: api.idle_timeout.as_secs(),
            default_resource_class: None,
            default_conductor_group: String::new(),
        }
    }
}

impl Default for DatabaseSection {
    fn default() -> Self {
        Self { url: None, connections: 8, synchronous: Synchronous::Full }
    }
}

impl Default for InspectionSection {
    fn default() -> Self {
        let settings = inspection::Settings::default();
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
        let settings = inspection::Settings::default();
        Self {
            collect: settings.collect_logs,
            per_node: settings.kept_logs.per_node,
            max_size: settings.kept_logs.bytes / 1024,
        }
    }
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: "info".to_owned(), json: false }
    }
}

impl Config {
    /// Reads the file, if there is one, and lays the environment over it.
    pub(crate) fn load(
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
        let from_file = match file {
            None => "the configuration".to_owned(),
            Some(path) => path.display().to_string(),
        };
        // Tried on its own first, so that a mistake is blamed on where it is.
        Value::Table(table.clone())
            .try_into::<Self>()
            .with_context(|| format!("{from_file} has a mistake"))?;
        for (name, text) in environment {
            if let Some(key) = name.strip_prefix("FERRITE_") {
                overlay(&mut table, key, &text);
            }
        }
        Value::Table(table)
            .try_into()
            .context("a FERRITE_ variable of the environment has a mistake")
    }

    /// The settings of the API. `data_dir` is where the user file is unless it is named.
    pub(crate) fn api(&self, data_dir: &Path) -> ApiConfig {
        const KIB: usize = 1024;
        let api = &self.api;
        let basic = match api.auth {
            Auth::None => false,
            Auth::Basic => true,
            Auth::Auto => !api.listen.ip().is_loopback(),
        };
        let file = api.htpasswd_file.clone().unwrap_or_else(|| data_dir.join("htpasswd"));
        ApiConfig {
            listen: api.listen,
            auth: if basic { AuthStrategy::Basic { file } } else { AuthStrategy::None },
            public_endpoint: api.public_endpoint.clone(),
            trust_forwarded_headers: api.trust_forwarded_headers,
            public_metrics: api.public_metrics,
            max_limit: api.max_limit,
            body_limits: BodyLimits {
                small: api.max_json_body_size * KIB,
                provision: api.max_json_body_size_provision * KIB,
                inspection: api.max_json_body_size_inspection * KIB,
            },
            idle_timeout: Duration::from_secs(api.idle_timeout),
            max_connections: api.max_connections,
            default_resource_class: api.default_resource_class.clone(),
            default_conductor_group: api.default_conductor_group.to_lowercase(),
            conductor_timeout: Duration::from_secs(self.conductor.heartbeat_timeout),
            ..ApiConfig::default()
        }
    }

    /// The settings of the database.
    pub(crate) fn store(&self, data_dir: &Path) -> store::Settings {
        store::Settings {
            url: self.database.url.clone(),
            connections: self.database.connections,
            synchronous: match self.database.synchronous {
                Synchronous::Full => store::Synchronous::Full,
                Synchronous::Normal => store::Synchronous::Normal,
            },
            ..store::Settings::in_dir(data_dir)
        }
    }

    /// The settings of inspection.
    pub(crate) fn inspection(&self) -> anyhow::Result<inspection::Settings> {
        let section = &self.inspection;
        let networks = section.physical_network_cidr_map.iter().map(|entry| entry.parse());
        for address in &section.api_call_allowed {
            if !conductor::is_allowed(address, std::slice::from_ref(address)) {
                bail!("inspection.api_call_allowed: {address:?} is no http or https address");
            }
        }
        Ok(inspection::Settings {
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
            kept_logs: node_model::KeptLogs {
                per_node: self.agent_logs.per_node,
                bytes: self.agent_logs.max_size.saturating_mul(1024),
            },
        })
    }

    fn built_in_rules(&self) -> anyhow::Result<Vec<node_model::InspectionRule>> {
        let section = &self.inspection;
        let rules = section.built_in_rules.iter().enumerate().map(|(index, rule)| {
            let place = || format!("inspection.built_in_rules[{index}]");
            inspection::validate_rule(&rule.conditions, &rule.actions).with_context(place)?;
            let asks = rule.actions.iter().any(|action| action["op"] == "api-call");
            if asks && section.api_call_allowed.is_empty() {
                bail!("{}: api-call needs inspection.api_call_allowed", place());
            }
            Ok(node_model::InspectionRule {
                // Ids of their own, so that the timeline can tell them apart; as in Ironic.
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
            bail!("auto_discovery.enabled needs auto_discovery.driver: what shall such nodes be?");
        };
        if !self.drivers.enabled_hardware_types.contains(&driver) {
            bail!(
                "auto_discovery.driver is {driver}, which drivers.enabled_hardware_types does not \
                 name"
            );
        }
        Ok(Some(inspection::AutoDiscovery {
            driver,
            conductor_group: self.api.default_conductor_group.to_lowercase(),
            resource_class: self.api.default_resource_class.clone(),
        }))
    }

    /// Where data are kept: as configured, else where this system keeps the data of programs.
    pub(crate) fn data_dir(&self) -> anyhow::Result<PathBuf> {
        if let Some(configured) = &self.data_dir {
            return Ok(configured.clone());
        }
        if let Some(data) = std::env::var_os("XDG_DATA_HOME").filter(|data| !data.is_empty()) {
            return Ok(PathBuf::from(data).join("ferrite"));
        }
        match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
            Some(home) => Ok(PathBuf::from(home).join(".local/share/ferrite")),
            None => bail!("there is no HOME to keep data in; give --data-dir"),
        }
    }
}

/// Sets `SECTION__KEY` (or just `KEY`) in the table. The text is taken as TOML if it is a value,
/// else as a string, so that neither numbers nor words need quotes.
fn overlay(table: &mut Table, key: &str, text: &str) {
    let path: Vec<String> = key.split("__").map(str::to_lowercase).collect();
    // `FERRITE_TEST_…` and the like are for others: a top-level key is `data_dir` only.
    if path.len() == 1 && path[0] != "data_dir" {
        return;
    }
    let value = format!("v = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut parsed| parsed.remove("v"))
        .unwrap_or_else(|| Value::String(text.to_owned()));
    let mut place = table;
    let (last, sections) = match path.split_last() {
        Some(split) => split,
        None => return,
    };
    for section in sections {
        let entry = place.entry(section.clone()).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(inner) = entry else { return };
        place = inner;
    }
    place.insert(last.clone(), value);
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
    fn everything_has_a_default() {
        let config = load(&[]).unwrap();
        assert_eq!(config.api.listen.to_string(), "127.0.0.1:6385");
        assert_eq!(config.api(Path::new("d")).auth, AuthStrategy::None);
        config.inspection().unwrap();
    }

    #[test]
    fn the_environment_sets_any_key() {
        let config = load(&[
            ("FERRITE_API__LISTEN", "0.0.0.0:80"),
            ("FERRITE_API__MAX_LIMIT", "10"),
            ("FERRITE_LIFECYCLE__AUTOMATED_CLEAN", "false"),
            ("FERRITE_DRIVERS__FAKE__POWER_DELAY", "\"1,2\""),
            ("FERRITE_DATA_DIR", "/srv/ferrite"),
            ("FERRITE_TEST_SERVERS", "required"),
            ("PATH", "ignored"),
        ])
        .unwrap();
        assert_eq!(config.api.max_limit, 10);
        assert!(!config.lifecycle.automated_clean);
        assert_eq!(config.drivers.fake.power_delay, "1,2");
        assert_eq!(config.data_dir().unwrap(), Path::new("/srv/ferrite"));
    }

    #[test]
    fn inspection_is_configured() {
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
        assert_eq!(settings.kept_logs.bytes, 2048);
        assert_eq!(settings.physical_network_cidr_map[0].name, "a");
        for (name, text, words) in [
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
            let refused = load(&[(name, text)]).unwrap().inspection().unwrap_err();
            assert!(format!("{refused:#}").contains(words), "{refused:#}");
        }
    }

    #[test]
    fn an_api_that_others_can_reach_asks_for_a_password() {
        let config = load(&[("FERRITE_API__LISTEN", "[::]:6385")]).unwrap();
        let AuthStrategy::Basic { file } = config.api(Path::new("d")).auth else {
            panic!("nobody is asked");
        };
        assert_eq!(file, Path::new("d/htpasswd"));
    }

    #[test]
    fn a_mistake_is_named() {
        let error = load(&[("FERRITE_API__LISTN", "x")]).unwrap_err();
        assert!(format!("{error:#}").contains("listn"), "{error:#}");
        let error = load(&[("FERRITE_API__MAX_LIMIT", "many")]).unwrap_err();
        assert!(
            format!("{error:#}").contains("max_limit") || format!("{error:#}").contains("many")
        );
    }
}
