// SPDX-License-Identifier: Apache-2.0
//! Checks of values that have the right type but cannot work.

use anyhow::{bail, ensure};

use super::Config;

/// Rejects values with which the server would start but not work. The error names the key.
pub(super) fn check(config: &Config) -> anyhow::Result<()> {
    let at_least = [
        ("api.max_limit", u64::from(config.api.max_limit), 1),
        ("api.max_connections", config.api.max_connections as u64, 1),
        ("database.connections", config.database.connections as u64, 1),
        ("conductor.heartbeat_interval", config.conductor.heartbeat_interval, 1),
        ("conductor.lease_seconds", config.conductor.lease_seconds, 3),
        ("lifecycle.max_concurrent_deploy", config.lifecycle.max_concurrent_deploy, 1),
        ("lifecycle.max_concurrent_clean", config.lifecycle.max_concurrent_clean, 1),
    ];
    for (key, value, minimum) in at_least {
        ensure!(value >= minimum, "{key} = {value} is too small: the minimum is {minimum}");
    }
    let (interval, timeout) =
        (config.conductor.heartbeat_interval, config.conductor.heartbeat_timeout);
    ensure!(
        timeout > interval,
        "conductor.heartbeat_timeout = {timeout} must be larger than conductor.heartbeat_interval = {interval}"
    );
    if let Some(url) = &config.api.public_endpoint {
        ensure!(
            url.starts_with("http://") || url.starts_with("https://"),
            "api.public_endpoint = {url:?} is not a URL; use one such as https://ferrite.example:6385"
        );
    }
    if let Some(file) = &config.api.htpasswd_file
        && config.api.auth.uses_htpasswd(config.api.listen.ip())
    {
        ensure!(
            file.exists(),
            "api.htpasswd_file {} does not exist; create it with `htpasswd -B -c`, or remove the key \
             to have one created in the data directory",
            file.display()
        );
    }
    config.provisioning.check()?;
    config.check_client_certificates()?;
    check_step_names(config)?;
    check_log_level("log.level", &config.log.level)
}

/// A misspelt step would be neither blocked nor given another priority.
fn check_step_names(config: &Config) -> anyhow::Result<()> {
    let rules = &config.lifecycle;
    let lists = [
        ("disallowed_clean_steps", &rules.disallowed_clean_steps),
        ("disallowed_deploy_steps", &rules.disallowed_deploy_steps),
        ("disallowed_service_steps", &rules.disallowed_service_steps),
    ];
    let maps = [
        ("clean_step_priority_override", &rules.clean_step_priority_override),
        ("deploy_step_priority_override", &rules.deploy_step_priority_override),
        ("verify_step_priority_override", &rules.verify_step_priority_override),
    ];
    let listed = lists.iter().flat_map(|(key, names)| names.iter().map(move |name| (*key, name)));
    let mapped = maps.iter().flat_map(|(key, names)| names.keys().map(move |name| (*key, name)));
    for (key, name) in listed.chain(mapped) {
        let is_qualified = name
            .split_once('.')
            .is_some_and(|(interface, step)| !interface.is_empty() && !step.is_empty());
        ensure!(
            is_qualified,
            "lifecycle.{key} contains {name:?}, which is not INTERFACE.STEP, such as deploy.erase_devices"
        );
    }
    Ok(())
}

/// Rejects a log filter with an unknown level, naming the `setting` it comes from. A single word that is not
/// a level would be the name of a module and silence all others.
pub(crate) fn check_log_level(setting: &str, filter: &str) -> anyhow::Result<()> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    // Conditions on spans and fields may contain commas and equals signs.
    if filter.contains('[') {
        return Ok(());
    }
    for directive in filter.split(',') {
        let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
        if !LEVELS.contains(&level.trim().to_ascii_lowercase().as_str()) {
            bail!(
                "{setting}: {level:?} is not a level; use {}, or a list such as info,MODULE=debug",
                LEVELS.join(", ")
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_cannot_work_are_rejected_with_their_key() {
        check(&Config::default()).unwrap();
        let cases = [
            ("api.max_limit = 0", "api.max_limit"),
            ("api.max_connections = 0", "api.max_connections"),
            ("api.public_endpoint = \"foo\"", "api.public_endpoint"),
            ("api.auth = \"basic\"\napi.htpasswd_file = \"/nonexistent\"", "api.htpasswd_file"),
            (
                "api.listen = \"0.0.0.0:6385\"\napi.htpasswd_file = \"/nonexistent\"",
                "api.htpasswd_file",
            ),
            ("database.connections = 0", "database.connections"),
            ("conductor.heartbeat_interval = 0", "conductor.heartbeat_interval"),
            ("conductor.heartbeat_timeout = 5", "conductor.heartbeat_timeout"),
            ("conductor.lease_seconds = 0", "conductor.lease_seconds"),
            ("lifecycle.max_concurrent_deploy = 0", "lifecycle.max_concurrent_deploy"),
            ("lifecycle.disallowed_clean_steps = [\"foo\"]", "disallowed_clean_steps"),
            ("lifecycle.clean_step_priority_override = {foo = 3}", "clean_step_priority_override"),
            ("log.level = \"loud\"", "log.level"),
            ("log.level = \"info,loud\"", "log.level"),
            ("log.level = \"info,store=loud\"", "log.level"),
            ("log.level = \"\"", "log.level"),
        ];
        for (text, key) in cases {
            let config: Config = toml::from_str(text).unwrap();
            let error = check(&config).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
        for filter in
            ["warn,store=debug", "INFO", "info, store::sqlite=trace", "a[b{c=1,d=2}]=info"]
        {
            check_log_level("log.level", filter).unwrap();
        }
    }
}
