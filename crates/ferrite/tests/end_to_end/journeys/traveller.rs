// SPDX-License-Identifier: Apache-2.0
//! A machine on its journey: the Ferrite that looks after it, the operator's client, and the stages.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::Baremetal;
use crate::boots::console::Console;
use crate::boots::site::{Site, named_in, url_of};
use crate::ferrite::Home;
use crate::real_bmcs::lab::{Lab, text};

/// Seconds that a stage may take on a busy computer; every one is over long before.
const PATIENCE: &str = "900";
/// What the deployed system says when it has said everything.
const DEPLOYED: &str = "FERRITE-DEPLOYED-DONE";

/// Which agent a machine boots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Agent {
    /// Ours.
    Ferrite,
    /// ironic-python-agent as it is.
    Stock,
}

impl Agent {
    fn files(self) -> (PathBuf, PathBuf) {
        match self {
            Self::Ferrite => {
                (named_in("FERRITE_TEST_AGENT_KERNEL"), named_in("FERRITE_TEST_AGENT_RAMDISK"))
            }
            Self::Stock => {
                (named_in("FERRITE_TEST_IPA_KERNEL"), named_in("FERRITE_TEST_IPA_RAMDISK"))
            }
        }
    }
}

/// A machine, and who looks after it.
pub(super) struct Traveller<'a> {
    pub(super) site: Site<'a>,
    pub(super) client: Baremetal,
    pub(super) node: String,
}

impl<'a> Traveller<'a> {
    /// Starts a Ferrite at the machine's bridge, and enrols the machine with `boot_interface` and
    /// whatever else is said in `more`, as arguments of `node create`.
    pub(super) fn enrol(
        lab: &'a Lab,
        machine: &'static str,
        agent: Agent,
        boot_interface: &str,
        more: &[&str],
    ) -> Option<Self> {
        let dhcp = if boot_interface == "redfish-virtual-media" { "off" } else { "reserve" };
        let (kernel, ramdisk) = agent.files();
        let boot = format!(
            "deploy_kernel = \"{}\"\ndeploy_ramdisk = \"{}\"\nkernel_append_params = \"{}\"\n\
             [drivers.agent]\nerase_devices_priority = 0",
            url_of(&kernel),
            url_of(&ramdisk),
            "console=ttyS0 ipa-insecure=1",
        );
        let site = Site::open(lab, machine, dhcp, &boot);
        let client = Baremetal::at(&site.operator.server.url())?;
        let info = lab.redfish_info(machine);
        let mut arguments: Vec<String> =
            ["node", "create", "--name", machine, "--driver", "redfish"]
                .map(str::to_owned)
                .to_vec();
        for (key, value) in info.as_object().expect("driver_info is an object") {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            arguments.extend(["--driver-info".to_owned(), format!("{key}={value}")]);
        }
        for (interface, name) in [
            ("--boot-interface", boot_interface),
            ("--inspect-interface", "agent"),
            ("--rescue-interface", "agent"),
            ("--raid-interface", "agent"),
        ] {
            arguments.extend([interface.to_owned(), name.to_owned()]);
        }
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let created = client.show(&arguments);
        let node = text(&created["uuid"]).to_owned();
        client.run(&["port", "create", "--node", &node, lab.mac(machine)]);
        Some(Self { site, client, node })
    }

    /// Asks for a verb and waits for what it leads to; tells the timeline if that does not come.
    pub(super) fn go(&mut self, verb: &str, more: &[&str]) {
        let mut arguments = vec!["node", verb, "--wait", PATIENCE];
        arguments.extend(more);
        arguments.push(&self.node);
        if let Err(said) = self.client.try_run(&arguments) {
            let node = self.client.show(&["node", "show", &self.node]);
            panic!(
                "{verb}: {said}\nlast error: {}\n{}\nits console:\n{}",
                node["last_error"],
                self.story(),
                Console::all(self.site.lab.console(self.site.machine)).last(60)
            );
        }
    }

    /// The fields of the node.
    pub(super) fn show(&self) -> Value {
        self.client.show(&["node", "show", &self.node])
    }

    /// Deploys the test image with a config drive that says `word`, and waits until it runs.
    pub(super) fn deploy(&mut self, word: &str, more: &[(&str, &str)]) -> Console {
        self.set_image(&image(), &checksum(&image()), more);
        let console = self.start_deployment(word);
        self.runs(&console, word);
        console
    }

    /// Says which image is to be deployed.
    pub(super) fn set_image(&mut self, image: &Path, checksum: &str, more: &[(&str, &str)]) {
        let mut arguments = vec!["node".to_owned(), "set".to_owned()];
        let fields = [("image_source", url_of(image)), ("image_checksum", checksum.to_owned())];
        let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
        for (key, value) in fields.into_iter().chain(more) {
            arguments.extend(["--instance-info".to_owned(), format!("{key}={value}")]);
        }
        arguments.push(self.node.clone());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.client.run(&arguments);
    }

    fn start_deployment(&mut self, word: &str) -> Console {
        let console = Console::watch(self.site.lab.console(self.site.machine));
        let drive = json!({
            "meta_data": { "hostname": word },
            "user_data": format!("#!/bin/sh\necho {word}\n"),
            "network_data": { "links": [], "networks": [], "services": [] },
        });
        self.go("deploy", &["--config-drive", &drive.to_string()]);
        console
    }

    /// Waits until the deployed system has said everything; checks what it found on its config drive.
    pub(super) fn runs(&self, console: &Console, word: &str) {
        console.until(DEPLOYED, || self.site.operator.log());
        let said = console.said();
        let found =
            said.lines().any(|line| line.contains("FERRITE-CONFIG-DRIVE") && line.contains(word));
        assert!(found, "the config drive does not say {word}:\n{}", console.last(40));
    }

    /// What happened to the machine, in lines.
    pub(super) fn story(&mut self) -> String {
        let timeline = self.site.operator.timeline(&self.node);
        let lines =
            timeline.iter().map(|entry| format!("{} {}", text(&entry["at"]), entry["what"]));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Kills the server on the spot and starts it again on what it kept.
    pub(super) fn kill_server(self) -> Self {
        let Self { site, client, node } = self;
        Self { site: site.killed(), client, node }
    }
}

/// The image that is deployed.
pub(super) fn image() -> PathBuf {
    named_in("FERRITE_TEST_IMAGE")
}

/// The SHA-256 of a file, as `sha256sum` says it.
pub(super) fn checksum(file: &Path) -> String {
    let output = crate::ferrite::output_of(std::process::Command::new("sha256sum").arg(file));
    let said = String::from_utf8(output.stdout).expect("digits and a name");
    said.split_whitespace().next().expect("digits").to_owned()
}

/// A home for files that are made for a test.
pub(super) fn home() -> Home {
    Home::new()
}
