// SPDX-License-Identifier: Apache-2.0
//! Makes the page `docs/configuration.md` from the source of the settings and their defaults.

use std::fmt::Write as _;

use toml::{Table, Value};

use super::Config;

/// A section of the file, the source its keys are described in, and the struct's name there.
const SECTIONS: &[(&str, &str, &str, &str)] = &[
    ("api", "The HTTP API", include_str!("../config.rs"), "ApiSection"),
    ("database", "The database", include_str!("../config.rs"), "DatabaseSection"),
    (
        "conductor",
        "How machines are looked after",
        include_str!("../../../conductor/src/settings.rs"),
        "Settings",
    ),
    (
        "lifecycle",
        "How decisions are taken",
        include_str!("../../../lifecycle/src/settings.rs"),
        "Settings",
    ),
    ("drivers", "Which drivers may be used", "", ""),
    (
        "drivers.agent",
        "How agents are used",
        include_str!("../../../bmc-drivers/src/agent/settings.rs"),
        "AgentSettings",
    ),
    (
        "drivers.redfish",
        "How Redfish BMCs are talked to",
        include_str!("../../../bmc-drivers/src/redfish/settings.rs"),
        "RedfishSettings",
    ),
    (
        "drivers.ipmi",
        "How IPMI BMCs are talked to",
        include_str!("../../../bmc-drivers/src/ipmi/settings.rs"),
        "IpmiSettings",
    ),
    (
        "drivers.console",
        "Where serial consoles are served",
        include_str!("../../../bmc-drivers/src/ipmi/settings.rs"),
        "ConsoleSettings",
    ),
    ("boot", "How machines boot", include_str!("../../../boot-plans/src/settings.rs"), "Settings"),
    (
        "images",
        "Where images come from",
        include_str!("../../../boot-plans/src/settings.rs"),
        "ImageSettings",
    ),
    ("dhcp", "DHCP, and TFTP with it", include_str!("dhcp.rs"), "DhcpSection"),
    (
        "[dhcp.networks]",
        "A network whose machines are answered",
        include_str!("dhcp.rs"),
        "Network",
    ),
    ("inspection", "In-band inspection", include_str!("../config.rs"), "InspectionSection"),
    (
        "auto_discovery",
        "Machines that nobody enrolled",
        include_str!("../config.rs"),
        "AutoDiscoverySection",
    ),
    ("agent_logs", "What ramdisks write down", include_str!("../config.rs"), "AgentLogsSection"),
    (
        "pxe_filter",
        "Whom a dnsmasq of yours answers",
        include_str!("../../../conductor/src/pxe_filter.rs"),
        "PxeFilterSettings",
    ),
    ("log", "Logging to standard error", include_str!("../config.rs"), "LogSection"),
];

fn page() -> String {
    let mut page = String::from(
        "# Configuration\n\n`ferrite serve --config FILE` reads one TOML file. Every key has a \
         default, and every key can be set in the environment as `FERRITE_SECTION__KEY`, such as \
         `FERRITE_API__LISTEN=0.0.0.0:6385`. Command-line options win over both. A key that does \
         not exist is an error.\n\nThis page is made from the source; a test keeps it fresh.\n\n\
         | top-level key | default | meaning |\n|---|---|---|\n| `data_dir` | \
         `$XDG_DATA_HOME/ferrite` or `~/.local/share/ferrite` | Where the database, the key file \
         and the user file are. |\n",
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
        let keys = if source.is_empty() { driver_keys() } else { described(source, name) };
        for (key, meaning) in keys {
            let default = value_of(values, &key);
            let _ = writeln!(page, "| `{key}` | {default} | {meaning} |");
        }
    }
    page
}

fn value_of(values: Option<&Table>, key: &str) -> String {
    let mut value = values.map(|table| Value::Table(table.clone()));
    for part in key.split('.') {
        value = value.and_then(|value| value.get(part).cloned());
    }
    value.map_or_else(|| "none".to_owned(), |value| format!("`{value}`"))
}

/// The fields of a struct and their doc comments, read from its source.
fn described(source: &str, name: &str) -> Vec<(String, String)> {
    let opening = format!("struct {name} {{");
    let body = source.split_once(&opening).expect("the struct is there").1;
    let body = body.split_once("\n}").expect("the struct ends").0;
    let mut keys = Vec::new();
    let mut meaning = String::new();
    for line in body.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("///") {
            meaning.push_str(words);
        } else if let Some((field, _)) = line.split_once(": ") {
            let key = field.rsplit(' ').next().expect("a field has a name").to_owned();
            keys.push((key, meaning.trim().replace('|', "\\|")));
            meaning.clear();
        }
    }
    keys
}

/// The driver settings are made by a macro, one pair of keys per interface.
fn driver_keys() -> Vec<(String, String)> {
    let mut keys = vec![
        (
            "enabled_hardware_types".to_owned(),
            "Hardware types that nodes may have as `driver`.".to_owned(),
        ),
        (
            "requests_per_bmc".to_owned(),
            "How many requests a BMC gets at a time. Most of them cope with one only.".to_owned(),
        ),
        (
            "install_timeout".to_owned(),
            "Seconds an installer of the deploy interface `anaconda` may take from its first call to \
             its last; 0 waits for ever."
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
                "Implementation of the {kind} interface for nodes that choose none; by default the \
                 best enabled one for their hardware type."
            ),
        ));
    }
    for kind in node_model::InterfaceKind::ALL {
        if bmc_drivers::FakeSettings::default().delay(*kind).is_some() {
            keys.push((
                format!("fake.{kind}_delay"),
                format!(
                    "How long calls of the fake {kind} interface take: seconds, or two numbers \
                     (\"1,10\") for something between."
                ),
            ));
        }
    }
    keys
}

#[test]
fn generated_configuration_page_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = page();
    assert!(!page.contains("|  |"), "a key is not described");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == page, "docs/configuration.md is stale: run `cargo xtask docs`");
}

#[test]
fn every_key_of_every_section_is_on_the_page() {
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
            let told = page.contains(&format!("`{key}`")) || page.contains(&format!("`{key}."));
            assert!(told, "{path} is not described");
        }
    }
}
