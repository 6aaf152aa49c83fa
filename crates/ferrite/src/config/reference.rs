// SPDX-License-Identifier: Apache-2.0
//! Generates `docs/configuration.md` from the doc comments of the settings and their defaults.

use std::fmt::Write as _;

use toml::{Table, Value};

use super::Config;

/// Sections: name, title, source file of the struct, name of the struct.
const SECTIONS: &[(&str, &str, &str, &str)] = &[
    (
        "provisioning",
        "This host's address on the provisioning network",
        include_str!("provisioning.rs"),
        "ProvisioningSection",
    ),
    ("api", "The HTTP API", include_str!("../config.rs"), "ApiSection"),
    ("api.tls", "TLS of the API and the file service", include_str!("tls.rs"), "TlsSection"),
    (
        "auth.oidc",
        "Users of an OpenID Connect provider",
        include_str!("identity_services.rs"),
        "OidcSection",
    ),
    ("auth.keystone", "Users of Keystone", include_str!("identity_services.rs"), "KeystoneSection"),
    ("policy", "What users with roles may do", include_str!("policy.rs"), "PolicySection"),
    ("database", "The database", include_str!("../config.rs"), "DatabaseSection"),
    ("secrets", "The sealing keys", include_str!("secrets.rs"), "SecretsSection"),
    ("secrets.vault", "Sealing keys in Vault", include_str!("secrets.rs"), "VaultSection"),
    (
        "conductor",
        "The conductor",
        include_str!("../../../conductor/src/settings.rs"),
        "ConductorSettings",
    ),
    (
        "lifecycle",
        "Timeouts and policies",
        include_str!("../../../lifecycle/src/settings.rs"),
        "LifecycleSettings",
    ),
    ("drivers", "Enabled drivers", "", ""),
    (
        "drivers.agent",
        "The agent",
        include_str!("../../../agent-driver/src/settings.rs"),
        "AgentSettings",
    ),
    (
        "drivers.redfish",
        "Redfish BMCs",
        include_str!("../../../redfish-driver/src/settings.rs"),
        "RedfishSettings",
    ),
    (
        "drivers.ipmi",
        "IPMI BMCs",
        include_str!("../../../ipmi-driver/src/settings.rs"),
        "IpmiSettings",
    ),
    (
        "drivers.console",
        "Serial consoles",
        include_str!("../../../ipmi-driver/src/settings.rs"),
        "ConsoleSettings",
    ),
    (
        "boot",
        "Booting machines",
        include_str!("../../../boot-plans/src/settings.rs"),
        "BootServiceSettings",
    ),
    ("images", "Images", include_str!("../../../boot-plans/src/settings.rs"), "ImageSettings"),
    ("dhcp", "DHCP and TFTP", include_str!("dhcp.rs"), "DhcpSection"),
    ("[dhcp.networks]", "A DHCP network", include_str!("dhcp.rs"), "DhcpNetwork"),
    (
        "dns",
        "The DNS forwarder on DHCP networks with `serve_dns`",
        include_str!("dns.rs"),
        "DnsSection",
    ),
    ("inspection", "In-band inspection", include_str!("../config.rs"), "InspectionSection"),
    (
        "auto_discovery",
        "Automatic enrolment of unknown machines",
        include_str!("../config.rs"),
        "AutoDiscoverySection",
    ),
    ("agent_logs", "Logs of ramdisks", include_str!("../config.rs"), "AgentLogsSection"),
    (
        "pxe_filter",
        "Host files for an external dnsmasq",
        include_str!("../../../conductor/src/pxe_filter.rs"),
        "PxeFilterSettings",
    ),
    ("metrics", "A separate port for metrics", include_str!("../config.rs"), "MetricsSection"),
    ("log", "Logging to standard error", include_str!("../config.rs"), "LogSection"),
];

fn page() -> String {
    let mut page = String::from(
        "# Configuration\n\n`ferrite serve --config FILE` reads one TOML file. Every key has a \
         default, and every key can be set in the environment as `FERRITE_SECTION__KEY`, such as \
         `FERRITE_API__LISTEN=0.0.0.0:6385`. Command-line options override both. Unknown keys and \
         unknown `FERRITE_*` variables are errors.\n\nThis page is generated from the source; a test \
         checks that it is up to date.\n\n\
         | top-level key | default | meaning |\n|---|---|---|\n| `data_dir` | \
         `$XDG_DATA_HOME/ferrite` or `~/.local/share/ferrite` | Directory of the database, the key \
         file and the user file. |\n",
    );
    let defaults = Table::try_from(Config::default()).expect("the defaults are TOML");
    for (section, title, source, name) in SECTIONS {
        let _ = write!(
            page,
            "\n## `[{section}]` {title}\n\n| key | default | meaning |\n|---|---|---|\n"
        );
        let mut values = Some(&defaults);
        for part in section.split('.') {
            values = values.and_then(|table| table.get(part)).and_then(Value::as_table);
        }
        for (key, meaning) in section_keys(source, name) {
            let default = default_value(values, &key);
            let _ = writeln!(page, "| `{key}` | {default} | {meaning} |");
        }
    }
    page
}

/// The documented keys of a section.
fn section_keys(source: &str, name: &str) -> Vec<(String, String)> {
    if source.is_empty() { driver_keys() } else { documented_fields(source, name) }
}

fn default_value(values: Option<&Table>, key: &str) -> String {
    let mut value = values.map(|table| Value::Table(table.clone()));
    for part in key.split('.') {
        value = value.and_then(|value| value.get(part).cloned());
    }
    value.map_or_else(|| "none".to_owned(), |value| format!("`{value}`"))
}

/// Parses the fields of a struct and their doc comments. Fields with `#[serde(skip)]` are not keys.
fn documented_fields(source: &str, name: &str) -> Vec<(String, String)> {
    let opening = format!("struct {name} {{");
    let body = source.split_once(&opening).expect("the struct exists").1;
    let body = body.split_once("\n}").expect("the struct ends").0;
    let mut keys = Vec::new();
    let (mut meaning, mut is_skipped) = (String::new(), false);
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            meaning.push_str(text);
        } else if line == "#[serde(skip)]" {
            is_skipped = true;
        } else if let Some((field, _)) = line.split_once(": ") {
            let key = field.rsplit(' ').next().expect("a field has a name").to_owned();
            // A section within a section has its own table.
            if !is_skipped && !line.ends_with("Section,") {
                keys.push((key, meaning.trim().replace('|', "\\|")));
            }
            meaning.clear();
            is_skipped = false;
        }
    }
    keys
}

/// The keys of the driver settings, which a macro declares: two per interface.
fn driver_keys() -> Vec<(String, String)> {
    let mut keys = vec![
        (
            "enabled_hardware_types".to_owned(),
            "Hardware types that nodes may have as `driver`.".to_owned(),
        ),
        (
            "requests_per_bmc".to_owned(),
            "Number of concurrent requests to a BMC. Most BMCs handle only one.".to_owned(),
        ),
        (
            "install_timeout".to_owned(),
            "Timeout in seconds of an installation with the deploy interface `anaconda`, from its \
             first to its last call; 0 disables it."
                .to_owned(),
        ),
    ];
    for kind in node_model::InterfaceKind::ALL {
        keys.push((
            format!("enabled_{kind}_interfaces"),
            format!("Implementations of the {kind} interface that nodes may choose."),
        ));
        keys.push((
            format!("default_{kind}_interface"),
            format!(
                "Implementation of the {kind} interface for nodes that do not set one; by default the \
                 best enabled one for their hardware type."
            ),
        ));
    }
    for kind in node_model::InterfaceKind::ALL {
        if driver_set::DriverSettings::default().fake.delay(*kind).is_some() {
            keys.push((
                format!("fake.{kind}_delay"),
                format!(
                    "Duration of calls of the fake {kind} interface: seconds, or a range such as \
                     \"1,10\"."
                ),
            ));
        }
    }
    keys
}

#[test]
fn generated_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = page();
    assert!(!page.contains("|  |"), "a key has no description");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == page, "docs/configuration.md is outdated: run `cargo xtask docs`");
}

/// A value of a wrong type is rejected for its type only if the key exists.
#[test]
fn every_documented_key_is_accepted() {
    for (section, _, source, name) in SECTIONS {
        for (key, _) in section_keys(source, name) {
            let text = match section.strip_prefix('[') {
                Some(section) => format!("[[{section}]\n{key} = {{ probe = true }}"),
                None => format!("[{section}]\n{key} = {{ probe = true }}"),
            };
            let table: Table = text.parse().expect("the text is TOML");
            if let Err(error) = Value::Table(table).try_into::<Config>() {
                let error = error.to_string();
                let field = key.split('.').next().unwrap_or_default();
                let is_unknown = error.contains(&format!("unknown field `{field}`"));
                assert!(!is_unknown, "{section}.{key} is documented but not accepted: {error}");
            }
        }
    }
}

#[test]
fn every_key_is_documented() {
    let page = page();
    let defaults = Table::try_from(Config::default()).expect("the defaults are TOML");
    let mut sections: Vec<(String, &Table)> = Vec::new();
    sections.extend(
        defaults.iter().filter_map(|(name, value)| Some((name.clone(), value.as_table()?))),
    );
    while let Some((section, table)) = sections.pop() {
        for (key, value) in table {
            let path = format!("{section}.{key}");
            let nested = value.as_table().filter(|_| page.contains(&format!("`[{path}]`")));
            if let Some(table) = nested {
                sections.push((path, table));
                continue;
            }
            let is_documented =
                page.contains(&format!("`{key}`")) || page.contains(&format!("`{key}."));
            assert!(is_documented, "{path} is not documented");
        }
    }
}
