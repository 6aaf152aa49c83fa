// SPDX-License-Identifier: Apache-2.0
//! Options of Ironic's configuration file that have a counterpart in the service.

use kube_resources::ironic::service::ExtraConfigOption;
use toml::Value;

use super::configuration::ServiceConfiguration;
use super::support::SupportReport;

/// How the text of an option is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionType {
    Flag,
    Number,
    Text,
    /// Separated by commas.
    List,
}

/// Section and name in Ironic, key in the service, and type.
const OPTIONS: &[(&str, &str, &str, OptionType)] = &[
    ("DEFAULT", "default_resource_class", "api.default_resource_class", OptionType::Text),
    ("DEFAULT", "default_conductor_group", "api.default_conductor_group", OptionType::Text),
    ("DEFAULT", "enabled_hardware_types", "drivers.enabled_hardware_types", OptionType::List),
    ("DEFAULT", "enabled_bios_interfaces", "drivers.enabled_bios_interfaces", OptionType::List),
    ("DEFAULT", "enabled_boot_interfaces", "drivers.enabled_boot_interfaces", OptionType::List),
    ("DEFAULT", "enabled_deploy_interfaces", "drivers.enabled_deploy_interfaces", OptionType::List),
    (
        "DEFAULT",
        "enabled_inspect_interfaces",
        "drivers.enabled_inspect_interfaces",
        OptionType::List,
    ),
    ("DEFAULT", "default_boot_interface", "drivers.default_boot_interface", OptionType::Text),
    ("DEFAULT", "default_deploy_interface", "drivers.default_deploy_interface", OptionType::Text),
    ("DEFAULT", "default_inspect_interface", "drivers.default_inspect_interface", OptionType::Text),
    ("agent", "image_download_source", "drivers.agent.image_download_source", OptionType::Text),
    ("agent", "stream_raw_images", "drivers.agent.stream_raw_images", OptionType::Flag),
    ("agent", "command_timeout", "drivers.agent.command_timeout", OptionType::Number),
    ("api", "max_limit", "api.max_limit", OptionType::Number),
    ("api", "public_endpoint", "api.public_endpoint", OptionType::Text),
    ("api", "ramdisk_heartbeat_timeout", "conductor.ramdisk_heartbeat_timeout", OptionType::Number),
    ("api", "restrict_lookup", "conductor.restrict_lookup", OptionType::Flag),
    ("auto_discovery", "enabled", "auto_discovery.enabled", OptionType::Flag),
    ("auto_discovery", "driver", "auto_discovery.driver", OptionType::Text),
    ("conductor", "automated_clean", "lifecycle.automated_clean", OptionType::Flag),
    ("conductor", "clean_callback_timeout", "lifecycle.clean_callback_timeout", OptionType::Number),
    (
        "conductor",
        "deploy_callback_timeout",
        "lifecycle.deploy_callback_timeout",
        OptionType::Number,
    ),
    ("conductor", "inspect_wait_timeout", "lifecycle.inspect_wait_timeout", OptionType::Number),
    (
        "conductor",
        "rescue_callback_timeout",
        "lifecycle.rescue_callback_timeout",
        OptionType::Number,
    ),
    (
        "conductor",
        "service_callback_timeout",
        "lifecycle.service_callback_timeout",
        OptionType::Number,
    ),
    ("conductor", "heartbeat_interval", "conductor.heartbeat_interval", OptionType::Number),
    ("conductor", "heartbeat_timeout", "conductor.heartbeat_timeout", OptionType::Number),
    (
        "conductor",
        "force_power_state_during_sync",
        "lifecycle.force_power_state_during_sync",
        OptionType::Flag,
    ),
    (
        "conductor",
        "power_state_sync_max_retries",
        "lifecycle.power_state_sync_max_retries",
        OptionType::Number,
    ),
    (
        "conductor",
        "sync_power_state_interval",
        "conductor.sync_power_state_interval",
        OptionType::Number,
    ),
    ("conductor", "max_concurrent_clean", "lifecycle.max_concurrent_clean", OptionType::Number),
    ("conductor", "max_concurrent_deploy", "lifecycle.max_concurrent_deploy", OptionType::Number),
    ("conductor", "poweroff_in_cleanfail", "lifecycle.poweroff_in_cleanfail", OptionType::Flag),
    (
        "conductor",
        "allow_deleting_available_nodes",
        "lifecycle.allow_deleting_available_nodes",
        OptionType::Flag,
    ),
    ("conductor", "file_url_allowed_paths", "images.file_url_allowed_paths", OptionType::List),
    (
        "deploy",
        "erase_devices_priority",
        "drivers.agent.erase_devices_priority",
        OptionType::Number,
    ),
    (
        "deploy",
        "erase_devices_metadata_priority",
        "drivers.agent.erase_devices_metadata_priority",
        OptionType::Number,
    ),
    ("deploy", "fast_track", "lifecycle.fast_track", OptionType::Flag),
    (
        "deploy",
        "power_off_after_deploy_failure",
        "lifecycle.power_off_after_deploy_failure",
        OptionType::Flag,
    ),
    (
        "deploy",
        "shred_random_overwrite_iterations",
        "drivers.agent.shred_random_overwrite_iterations",
        OptionType::Number,
    ),
    (
        "deploy",
        "disk_erasure_concurrency",
        "drivers.agent.disk_erasure_concurrency",
        OptionType::Number,
    ),
    (
        "deploy",
        "continue_if_disk_secure_erase_fails",
        "drivers.agent.continue_if_disk_secure_erase_fails",
        OptionType::Flag,
    ),
    ("inspector", "add_ports", "inspection.add_ports", OptionType::Text),
    ("inspector", "keep_ports", "inspection.keep_ports", OptionType::Text),
    ("inspector", "hooks", "inspection.hooks", OptionType::Text),
    ("inspector", "update_pxe_enabled", "inspection.update_pxe_enabled", OptionType::Flag),
    ("ipmi", "command_retry_timeout", "drivers.ipmi.command_retry_timeout", OptionType::Number),
    ("pxe", "boot_retry_timeout", "lifecycle.boot_retry_timeout", OptionType::Number),
    ("pxe", "kernel_append_params", "boot.kernel_append_params", OptionType::Text),
    ("redfish", "kernel_append_params", "boot.kernel_append_params", OptionType::Text),
];

pub(super) fn configure(
    options: &[ExtraConfigOption],
    configuration: &mut ServiceConfiguration,
    report: &mut SupportReport,
) {
    for (index, option) in options.iter().enumerate() {
        let path = format!("spec.extraConfig[{index}]");
        let (Some(name), Some(text)) = (&option.name, &option.value) else {
            report.notice(path, "name or value is missing");
            continue;
        };
        let group = option.group.as_deref().unwrap_or("DEFAULT");
        let found = OPTIONS.iter().find(|(section, option, _, _)| {
            section.eq_ignore_ascii_case(group) && option.eq_ignore_ascii_case(name)
        });
        let Some((_, _, key, option_type)) = found else {
            report.reject(
                path,
                format!("the service has no counterpart of [{group}] {name}; remove it"),
            );
            continue;
        };
        match option_type.read(text) {
            Some(value) => configuration.set(key, value),
            None => report.reject(format!("{path}.value"), option_type.problem(text)),
        }
    }
}

impl OptionType {
    /// Reads a value as Ironic does; `None` if it has another type.
    fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Flag => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(Value::from(true)),
                "false" | "0" | "no" | "off" => Some(Value::from(false)),
                _ => None,
            },
            Self::Number => text.trim().parse::<i64>().ok().map(Value::from),
            Self::Text => Some(Value::from(text)),
            Self::List => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Some(Value::from(items.map(Value::from).collect::<Vec<_>>()))
            }
        }
    }

    fn problem(self, text: &str) -> String {
        match self {
            Self::Flag => format!("{text:?} is not a boolean; use true or false"),
            Self::Number | Self::Text | Self::List => format!("{text:?} is not an integer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (_, _, key, _) in OPTIONS {
            let (section, name) = key.rsplit_once('.').unwrap();
            let section =
                page.split("\n## ").find(|part| part.starts_with(&format!("`[{section}]`")));
            let section = section.unwrap_or_else(|| panic!("no section of {key}"));
            assert!(section.contains(&format!("\n| `{name}` |")), "{key}");
        }
    }

    #[test]
    fn values_are_read_as_ironic_does() {
        assert_eq!(OptionType::Flag.read("Yes"), Some(Value::from(true)));
        assert_eq!(OptionType::Flag.read("off"), Some(Value::from(false)));
        assert_eq!(OptionType::Flag.read(""), None);
        assert_eq!(OptionType::Number.read(" 7 "), Some(Value::from(7)));
        assert_eq!(OptionType::Number.read("7s"), None);
        assert_eq!(OptionType::List.read("a, b,"), Some(Value::from(vec!["a", "b"])));
    }
}
