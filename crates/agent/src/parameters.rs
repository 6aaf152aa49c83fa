// SPDX-License-Identifier: Apache-2.0
//! Boot parameters, from the kernel command line and virtual media, with the names of
//! ironic-python-agent.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_protocol::{AGENT_PORT, parameters as names};

/// Parameters by name, not interpreted.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct BootParameters(BTreeMap<String, String>);

impl BootParameters {
    /// Parses a kernel command line. Values with spaces are in double quotes; the last value of a
    /// repeated name is used; a name without a value has an empty value.
    #[must_use]
    pub fn from_command_line(line: &str) -> Self {
        let mut parameters = Self::default();
        let mut word = String::new();
        let mut quoted = false;
        for character in line.chars().chain([' ']) {
            match character {
                '"' => quoted = !quoted,
                blank if blank.is_ascii_whitespace() && !quoted => {
                    parameters.insert_assignment(&word);
                    word.clear();
                }
                other => word.push(other),
            }
        }
        parameters.insert_assignment(&word);
        parameters
    }

    /// Adds the parameters of a `parameters.txt`, one `name=value` per line.
    pub fn merge_lines(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            self.insert_assignment(line);
        }
    }

    /// Sets a parameter.
    pub fn insert(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Returns a non-empty value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Parses a boolean. A name without a value is true.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.0.get(name)?.to_ascii_lowercase().as_str() {
            "" | "1" | "t" | "true" | "on" | "y" | "yes" => Some(true),
            _ => Some(false),
        }
    }

    /// Parses a number. Invalid values are ignored.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// Returns values separated by commas.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<String> {
        let value = self.get(name).unwrap_or_default();
        value.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    fn seconds(&self, name: &str, default: u64) -> Duration {
        Duration::from_secs(self.number(name).unwrap_or(default))
    }

    fn insert_assignment(&mut self, word: &str) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        if !name.is_empty() {
            self.insert(name.trim(), value.trim());
        }
    }
}

/// All options of the agent with their defaults. Not `Debug`, because it contains the token.
#[derive(Clone)]
pub struct AgentOptions {
    /// `ipa-api-url`: the servers, tried in order; or only `mdns`.
    pub api_urls: Vec<String>,
    /// `ipa-inspection-callback-url`: the URLs for inspection data, tried in order; or only `mdns`.
    pub inspection_urls: Vec<String>,
    /// `ipa-inspection-collectors`: the collectors to run.
    pub collectors: Vec<String>,
    /// `ipa-inspection-benchmarks`: the benchmarks of the collector `extra-hardware`.
    pub benchmarks: Vec<String>,
    /// `ipa-agent-token`: the token, where it is part of the boot medium.
    pub token: Option<String>,
    /// `ipa-insecure`: whether to skip the verification of server certificates.
    pub insecure: bool,
    /// `ipa-cafile`: the CA bundle, instead of the ramdisk's.
    pub ca_file: Option<String>,
    /// `ipa-debug`: whether to log debug messages.
    pub debug: bool,
    /// `ipa-global-request-id`: sent with every request.
    pub request_id: Option<String>,
    /// `ipa-listen-host`: the address of the command API; all by default.
    pub listen_host: Option<String>,
    /// `ipa-listen-port`.
    pub listen_port: u16,
    /// `ipa-advertise-host`: the address in the callback URL.
    pub advertise_host: Option<String>,
    /// `ipa-advertise-port`.
    pub advertise_port: Option<u16>,
    /// `ipa-enable-auto-tls`: whether the command API uses TLS with a self-signed certificate.
    pub tls: bool,
    /// `ipa-tls-certificate-curve`: `p384` or `p256`.
    pub certificate_curve: String,
    /// `ipa-ironic-api-version`: the server's API version, to skip its discovery.
    pub api_version: Option<String>,
    /// `ipa-http-request-timeout`.
    pub request_timeout: Duration,
    /// `ipa-lookup-timeout`: how long the lookup is repeated.
    pub lookup_timeout: Duration,
    /// `ipa-lookup-interval`: the minimum time between two lookups.
    pub lookup_interval: Duration,
    /// `ipa-collect-lldp`: whether to collect LLDP on all interfaces.
    pub collect_lldp: bool,
    /// `ipa-lldp-timeout`: how long to collect LLDP.
    pub lldp_timeout: Duration,
    /// `ipa-inspection-dhcp-wait-timeout`: how long inspection waits for addresses.
    pub inspection_dhcp_wait: Duration,
    /// `ipa-inspection-dhcp-all-interfaces`: whether it waits for all interfaces.
    pub inspection_dhcp_all: bool,
    /// `ipa-hardware-initialization-delay`.
    pub hardware_delay: Duration,
    /// `ipa-disk-wait-attempts` × `ipa-disk-wait-delay`: how long to wait for a disk.
    pub disk_wait: Duration,
    /// `ipa-ntp-server`: the NTP server.
    pub ntp_server: Option<String>,
    /// `ferrite-time`: when the boot was prepared, in seconds since 1970.
    pub boot_time: Option<u64>,
    /// `ipa-enable-vlan-interfaces`: VLAN interfaces to create: `eth0.100,eth1`.
    pub vlan_interfaces: Vec<String>,
    /// `ipa-ignore-bootloader-failure`.
    pub ignore_bootloader_failure: bool,
    /// `ipa-inject-files-priority`.
    pub inject_files_priority: i64,
    /// `ipa-guard-special-filesystems`: whether disks with shared file systems are protected from
    /// erasing.
    pub guard_special_filesystems: bool,
    /// `ipa-image-download-connection-timeout`.
    pub image_timeout: Duration,
    /// `ipa-image-download-connection-retries`.
    pub image_retries: u32,
    /// `ipa-image-download-connection-retry-interval`.
    pub image_retry_interval: Duration,
    /// `ipa-image-download-max-duration`: zero for no limit.
    pub image_max_duration: Duration,
    /// `BOOTIF`: the MAC address of the boot NIC in PXELINUX notation.
    pub boot_interface: Option<String>,
    /// `boot_method=vmedia`: whether virtual media has more parameters.
    pub virtual_media: bool,
    /// `ferrite-log-url`: the URL for the log stream.
    pub log_url: Option<String>,
    /// `ferrite-may-touch-disks`: whether a host process may modify disks.
    pub may_modify_disks: bool,
    /// `ferrite-reboot-after-failure`: seconds after which a machine with a failing agent reboots;
    /// never by default.
    pub reboot_after_failure: Option<Duration>,
}

impl AgentOptions {
    /// Parses the options.
    #[must_use]
    pub fn new(parameters: &BootParameters) -> Self {
        let text = |name| parameters.get(name).map(str::to_owned);
        let flag = |name, default| parameters.flag(name).unwrap_or(default);
        let mut api_urls = parameters.list(names::API_URL);
        if api_urls.is_empty() && flag("ipa-use-mdns", false) {
            api_urls.push("mdns".to_owned());
        }
        let attempts: u64 = parameters.number("ipa-disk-wait-attempts").unwrap_or(10);
        let delay: u64 = parameters.number("ipa-disk-wait-delay").unwrap_or(3);
        Self {
            api_urls,
            inspection_urls: parameters.list(names::INSPECTION_CALLBACK_URL),
            collectors: parameters.list(names::INSPECTION_COLLECTORS),
            benchmarks: parameters.list("ipa-inspection-benchmarks"),
            token: text(names::AGENT_TOKEN),
            insecure: flag("ipa-insecure", false),
            ca_file: text("ipa-cafile"),
            debug: flag("ipa-debug", false),
            request_id: text("ipa-global-request-id"),
            listen_host: text("ipa-listen-host"),
            listen_port: parameters.number("ipa-listen-port").unwrap_or(AGENT_PORT),
            advertise_host: text("ipa-advertise-host"),
            advertise_port: parameters.number("ipa-advertise-port"),
            tls: flag("ipa-enable-auto-tls", true),
            certificate_curve: text("ipa-tls-certificate-curve").unwrap_or_else(|| "p384".into()),
            api_version: text("ipa-ironic-api-version"),
            request_timeout: parameters.seconds("ipa-http-request-timeout", 30),
            lookup_timeout: parameters.seconds("ipa-lookup-timeout", 600),
            lookup_interval: parameters.seconds("ipa-lookup-interval", 1),
            collect_lldp: flag("ipa-collect-lldp", false),
            lldp_timeout: parameters.seconds("ipa-lldp-timeout", 30),
            inspection_dhcp_wait: parameters.seconds("ipa-inspection-dhcp-wait-timeout", 60),
            inspection_dhcp_all: flag("ipa-inspection-dhcp-all-interfaces", false),
            hardware_delay: parameters.seconds("ipa-hardware-initialization-delay", 0),
            disk_wait: Duration::from_secs(attempts.saturating_mul(delay)),
            ntp_server: text("ipa-ntp-server"),
            boot_time: parameters.number("ferrite-time"),
            vlan_interfaces: parameters.list("ipa-enable-vlan-interfaces"),
            ignore_bootloader_failure: flag("ipa-ignore-bootloader-failure", false),
            inject_files_priority: parameters.number("ipa-inject-files-priority").unwrap_or(0),
            guard_special_filesystems: flag("ipa-guard-special-filesystems", true),
            image_timeout: parameters.seconds("ipa-image-download-connection-timeout", 60),
            image_retries: parameters.number("ipa-image-download-connection-retries").unwrap_or(9),
            image_retry_interval: parameters
                .seconds("ipa-image-download-connection-retry-interval", 10),
            image_max_duration: parameters.seconds("ipa-image-download-max-duration", 0),
            boot_interface: text(names::BOOT_INTERFACE),
            virtual_media: parameters.get(names::BOOT_METHOD) == Some("vmedia"),
            log_url: text("ferrite-log-url"),
            may_modify_disks: flag("ferrite-may-touch-disks", false),
            reboot_after_failure: parameters
                .number("ferrite-reboot-after-failure")
                .map(Duration::from_secs),
        }
    }

    /// Returns the MAC address of the boot NIC, in lower case with colons.
    #[must_use]
    pub fn boot_mac(&self) -> Option<String> {
        let text = self.boot_interface.as_deref()?.to_ascii_lowercase().replace('-', ":");
        // The prefix `01:` is the hardware type in PXELINUX notation.
        let address = if text.len() == 20 { &text[3..] } else { &text };
        (address.len() == 17).then(|| address.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_kernel_command_line() {
        let parameters = BootParameters::from_command_line(
            "console=tty0 console=ttyS0 ipa-api-url=http://a:6385,http://b ipa-insecure=1 \
             x=\"a b\" \"y=c d\" ipa-debug  BOOTIF=01-52-54-00-AA-bb-01\n",
        );
        assert_eq!(parameters.get("console"), Some("ttyS0"));
        assert_eq!(parameters.get("x"), Some("a b"));
        assert_eq!(parameters.get("y"), Some("c d"));
        let options = AgentOptions::new(&parameters);
        assert_eq!(options.api_urls, ["http://a:6385", "http://b"]);
        assert!(options.insecure && options.debug && options.tls);
        assert_eq!(options.boot_mac().as_deref(), Some("52:54:00:aa:bb:01"));
        assert_eq!(options.lookup_timeout, Duration::from_secs(600));
    }

    #[test]
    fn virtual_media_overrides_command_line() {
        let mut parameters = BootParameters::from_command_line("boot_method=vmedia a=1");
        parameters.merge_lines("a=2\nipa-agent-token=abc\n# no=comment\n\n");
        assert_eq!(parameters.get("a"), Some("2"));
        assert_eq!(parameters.get("no"), None);
        let options = AgentOptions::new(&parameters);
        assert!(options.virtual_media);
        assert_eq!(options.token.as_deref(), Some("abc"));
    }
}
