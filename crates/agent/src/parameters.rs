// SPDX-License-Identifier: Apache-2.0
//! What the machine was told when it booted: parameters of the kernel's command line and of virtual
//! media, by the names ironic-python-agent gave them.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_protocol::{AGENT_PORT, parameters as names};

/// Names and values as they were written.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Reads a kernel command line. Values with spaces are in double quotes; of a name that occurs
    /// twice the last counts; a name without a value has an empty one.
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

    /// Takes over what a `parameters.txt` says, one `name=value` per line.
    pub fn merge_lines(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            self.insert_assignment(line);
        }
    }

    /// Sets one.
    pub fn insert(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// A value that is not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether something was switched on; a name alone switches on.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.0.get(name)?.to_ascii_lowercase().as_str() {
            "" | "1" | "t" | "true" | "on" | "y" | "yes" => Some(true),
            _ => Some(false),
        }
    }

    /// A number; what is none counts as not said.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }

    /// Values separated by commas.
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

/// Everything the agent lets itself be told, with what it does when it is not told.
/// Not to be printed: the token is among them.
#[derive(Clone)]
pub struct Settings {
    /// `ipa-api-url`: the servers, tried in turn; or only `mdns`.
    pub api_urls: Vec<String>,
    /// `ipa-inspection-callback-url`: where inspection data go, tried in turn; or only `mdns`.
    pub inspection_urls: Vec<String>,
    /// `ipa-inspection-collectors`: what to collect, if anybody said.
    pub collectors: Vec<String>,
    /// `ipa-inspection-benchmarks`: what to measure with the collector `extra-hardware`.
    pub benchmarks: Vec<String>,
    /// `ipa-agent-token`: the token, where it came with the boot medium.
    pub token: Option<String>,
    /// `ipa-insecure`: whether servers' certificates go unchecked.
    pub insecure: bool,
    /// `ipa-cafile`: the certificates of those who vouch for servers, instead of the ramdisk's.
    pub ca_file: Option<String>,
    /// `ipa-debug`: whether to log much.
    pub debug: bool,
    /// `ipa-global-request-id`: sent with every request.
    pub request_id: Option<String>,
    /// `ipa-listen-host`: the address commands are taken on; all if none.
    pub listen_host: Option<String>,
    /// `ipa-listen-port`.
    pub listen_port: u16,
    /// `ipa-advertise-host`: the address the server is told.
    pub advertise_host: Option<String>,
    /// `ipa-advertise-port`.
    pub advertise_port: Option<u16>,
    /// `ipa-enable-auto-tls`: whether to serve commands with a certificate of its own making.
    pub tls: bool,
    /// `ipa-tls-certificate-curve`: `p384` or `p256`.
    pub certificate_curve: String,
    /// `ipa-ironic-api-version`: the server's version, if it need not be asked.
    pub api_version: Option<String>,
    /// `ipa-http-request-timeout`.
    pub request_timeout: Duration,
    /// `ipa-lookup-timeout`: how long to go on asking which node this is.
    pub lookup_timeout: Duration,
    /// `ipa-lookup-interval`: the shortest time between two questions.
    pub lookup_interval: Duration,
    /// `ipa-collect-lldp`: whether to listen to LLDP on every card.
    pub collect_lldp: bool,
    /// `ipa-lldp-timeout`: how long.
    pub lldp_timeout: Duration,
    /// `ipa-inspection-dhcp-wait-timeout`: how long inspection waits for addresses.
    pub inspection_dhcp_wait: Duration,
    /// `ipa-inspection-dhcp-all-interfaces`: whether it waits for all of them.
    pub inspection_dhcp_all: bool,
    /// `ipa-hardware-initialization-delay`.
    pub hardware_delay: Duration,
    /// `ipa-disk-wait-attempts` × `ipa-disk-wait-delay`: how long to wait for a disk.
    pub disk_wait: Duration,
    /// `ipa-ntp-server`: where to ask what time it is.
    pub ntp_server: Option<String>,
    /// `ipa-enable-vlan-interfaces`: VLANs to use beside the cards: `eth0.100,eth1`.
    pub vlan_interfaces: Vec<String>,
    /// `ipa-ignore-bootloader-failure`.
    pub ignore_bootloader_failure: bool,
    /// `ipa-inject-files-priority`.
    pub inject_files_priority: i64,
    /// `ipa-guard-special-filesystems`: whether disks with file systems shared by machines are safe
    /// from erasing.
    pub guard_special_filesystems: bool,
    /// `ipa-image-download-connection-timeout`.
    pub image_timeout: Duration,
    /// `ipa-image-download-connection-retries`.
    pub image_retries: u32,
    /// `ipa-image-download-connection-retry-interval`.
    pub image_retry_interval: Duration,
    /// `ipa-image-download-max-duration`: zero for no bound.
    pub image_longest: Duration,
    /// `BOOTIF`: the card the machine booted from, as its boot loader wrote it.
    pub boot_interface: Option<String>,
    /// `boot_method=vmedia`: whether there is a CD with more to read.
    pub virtual_media: bool,
    /// `ferrite-log-url`: where to stream the log.
    pub log_url: Option<String>,
    /// `ferrite-may-touch-disks`: whether an agent on somebody else's machine may change its disks.
    pub may_touch_disks: bool,
    /// `ferrite-reboot-after-failure`: seconds after which a machine whose agent cannot go on
    /// reboots; never if not said.
    pub reboot_after_failure: Option<Duration>,
}

impl Settings {
    /// Reads them.
    #[must_use]
    pub fn new(parameters: &Parameters) -> Self {
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
            vlan_interfaces: parameters.list("ipa-enable-vlan-interfaces"),
            ignore_bootloader_failure: flag("ipa-ignore-bootloader-failure", false),
            inject_files_priority: parameters.number("ipa-inject-files-priority").unwrap_or(0),
            guard_special_filesystems: flag("ipa-guard-special-filesystems", true),
            image_timeout: parameters.seconds("ipa-image-download-connection-timeout", 60),
            image_retries: parameters.number("ipa-image-download-connection-retries").unwrap_or(9),
            image_retry_interval: parameters
                .seconds("ipa-image-download-connection-retry-interval", 10),
            image_longest: parameters.seconds("ipa-image-download-max-duration", 0),
            boot_interface: text(names::BOOT_INTERFACE),
            virtual_media: parameters.get(names::BOOT_METHOD) == Some("vmedia"),
            log_url: text("ferrite-log-url"),
            may_touch_disks: flag("ferrite-may-touch-disks", false),
            reboot_after_failure: parameters
                .number("ferrite-reboot-after-failure")
                .map(Duration::from_secs),
        }
    }

    /// The hardware address of the card the machine booted from, in small letters with colons.
    #[must_use]
    pub fn boot_mac(&self) -> Option<String> {
        let written = self.boot_interface.as_deref()?.to_ascii_lowercase().replace('-', ":");
        // `01:` in front is the kind of network, in the way PXELINUX writes it.
        let address = if written.len() == 20 { &written[3..] } else { &written };
        (address.len() == 17).then(|| address.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_read() {
        let parameters = Parameters::from_command_line(
            "console=tty0 console=ttyS0 ipa-api-url=http://a:6385,http://b ipa-insecure=1 \
             x=\"a b\" \"y=c d\" ipa-debug  BOOTIF=01-52-54-00-AA-bb-01\n",
        );
        assert_eq!(parameters.get("console"), Some("ttyS0"));
        assert_eq!(parameters.get("x"), Some("a b"));
        assert_eq!(parameters.get("y"), Some("c d"));
        let settings = Settings::new(&parameters);
        assert_eq!(settings.api_urls, ["http://a:6385", "http://b"]);
        assert!(settings.insecure && settings.debug && settings.tls);
        assert_eq!(settings.boot_mac().as_deref(), Some("52:54:00:aa:bb:01"));
        assert_eq!(settings.lookup_timeout, Duration::from_secs(600));
    }

    #[test]
    fn a_medium_adds_to_the_command_line() {
        let mut parameters = Parameters::from_command_line("boot_method=vmedia a=1");
        parameters.merge_lines("a=2\nipa-agent-token=abc\n# no=comment\n\n");
        assert_eq!(parameters.get("a"), Some("2"));
        assert_eq!(parameters.get("no"), None);
        let settings = Settings::new(&parameters);
        assert!(settings.virtual_media);
        assert_eq!(settings.token.as_deref(), Some("abc"));
    }
}
