// SPDX-License-Identifier: Apache-2.0
//! The command-line client against the real server: output in all formats and exit codes.
//!
//! Snapshots contain standard output and the final error line; progress messages depend on the speed of the
//! machines.

mod common_commands;
mod invalid_input;
mod job_queue;
mod lost_responses;
mod snapshot_mask;
mod stock_ironic;
mod users;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use expect_test::{Expect, expect};
use serde_json::Value;

use crate::test_process::{TestHome, ferrite};
use snapshot_mask::mask;

/// A user with an empty home directory.
struct CliUser {
    home: TestHome,
    url: String,
}

/// The result of a command.
struct CommandOutput {
    code: i32,
    out: String,
    err: String,
}

impl CliUser {
    fn new(url: &str) -> Self {
        Self { home: TestHome::new(), url: url.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ferrite();
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("OS_") || text.to_lowercase().ends_with("_proxy") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .current_dir(self.path(""))
            .env("HOME", self.path(""))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("OS_AUTH_TYPE", "none")
            .env("OS_ENDPOINT", &self.url)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> CommandOutput {
        self.run_arguments(&line.split_whitespace().collect::<Vec<_>>())
    }

    fn run_arguments(&self, arguments: &[&str]) -> CommandOutput {
        run_command(self.command(arguments))
    }

    /// Runs commands and compares their output.
    fn session(&self, lines: &[&str], expected: &Expect) {
        let mut shown = String::new();
        for line in lines {
            let done = self.run(line);
            shown.push_str(&format!("$ ferrite {line}\n{}", done.out));
            for last in done.err.lines().filter(|line| line.starts_with("ferrite:")) {
                shown.push_str(&format!("{last}\n"));
            }
            if done.code != 0 {
                shown.push_str(&format!("[{}]\n", done.code));
            }
        }
        expected.assert_eq(&mask(&shown.replace(&self.url, "URL")));
    }

    /// Runs a command that must succeed, and parses its JSON.
    fn json(&self, line: &str) -> Value {
        let done = self.run(&format!("{line} -o json"));
        assert_eq!(done.code, 0, "ferrite {line}: {}{}", done.out, done.err);
        serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {}", done.out))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Three machines, `rack1-01` to `rack1-03`.
    fn enrol_rack(&self) {
        let nodes: String = (1..=3)
            .map(|number| {
                format!(
                    "- name: rack1-0{number}\n  uuid: 00000000-0000-4000-8000-00000000000{number}\n  \
                     driver: fake-hardware\n  resource_class: big\n  traits: [CUSTOM_GPU]\n  \
                     ports: ['52:54:00:00:00:0{number}']\n"
                )
            })
            .collect();
        let file = self.write("rack.yaml", &nodes);
        let done = self.run(&format!("node create --file {file}"));
        assert_eq!(done.code, 0, "{}", done.err);
    }
}

fn run_command(mut command: Command) -> CommandOutput {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

#[test]
fn deletion_of_a_deployed_machine_fails_with_a_hint() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    for line in ["node manage rack1-01 -w", "node provide rack1-01 -wy", "node deploy rack1-01 -wy"]
    {
        let done = user.run(line);
        assert_eq!(done.code, 0, "ferrite {line}: {}{}", done.out, done.err);
    }
    let refused = user.run("node delete rack1-01");
    assert_eq!(refused.code, 4, "{}{}", refused.out, refused.err);
    let text = format!("{}{}", refused.out, refused.err);
    for expected in ["state active", "`ferrite node undeploy rack1-01 --wait`"] {
        assert!(text.contains(expected), "{text}");
    }
    // The commands of the hint work.
    for line in ["node undeploy rack1-01 --wait -y", "node delete rack1-01"] {
        let done = user.run(line);
        assert_eq!(done.code, 0, "ferrite {line}: {}{}", done.out, done.err);
    }
}

#[test]
fn lists_shows_and_changes_nodes() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    user.session(
        &[
            "node list",
            "node list --resource-class small",
            "node list rack1-[01-03] --state enroll -o name",
            "node set rack1-[01-02] -f owner=blue -f extra.rack=7 -f driver_info.password=0123",
            "node show rack1-01",
            "node list --owner blue -o name",
            "node unset rack1-01 -f owner -f extra.rack",
            "node set rack1-03 --trait CUSTOM_FAST",
            "node maintenance on rack1-03 --reason fan",
            "node list --maintenance",
            "node maintenance off rack1-03",
            "node list --with-trait CUSTOM_FAST,CUSTOM_GPU -o name",
            "node validate rack1-01",
            "port list --node rack1-02",
            "node delete rack1-03",
            "node list -o name",
        ],
        &expect![[r#"
            $ ferrite node list
            NAME      STATE   POWER  CLASS  DRIVER         NOTE
            rack1-01  enroll  ?      big    fake-hardware
            rack1-02  enroll  ?      big    fake-hardware
            rack1-03  enroll  ?      big    fake-hardware
            $ ferrite node list --resource-class small
            NAME  STATE  POWER  CLASS  DRIVER  NOTE
            $ ferrite node list rack1-[01-03] --state enroll -o name
            rack1-01
            rack1-02
            rack1-03
            $ ferrite node set rack1-[01-02] -f owner=blue -f extra.rack=7 -f driver_info.password=0123
            rack1-01: changed
            rack1-02: changed
            $ ferrite node show rack1-01
            bios_interface        fake
            boot_interface        fake
            conductor             HOST
            console_enabled       false
            console_interface     fake
            created_at            TIME
            deploy_interface      fake
            disable_power_off     false
            driver                fake-hardware
            driver_info.password  ******
            extra.rack            7
            firmware_interface    fake
            inspect_interface     fake
            maintenance           false
            management_interface  fake
            name                  rack1-01
            network_interface     noop
            owner                 blue
            power_interface       fake
            protected             false
            provision_state       enroll
            raid_interface        fake
            rescue_interface      fake
            resource_class        big
            retired               false
            storage_interface     noop
            traits                CUSTOM_GPU
            updated_at            TIME
            uuid                  00000000-0000-4000-8000-000000000001
            vendor_interface      fake
            $ ferrite node list --owner blue -o name
            rack1-01
            rack1-02
            $ ferrite node unset rack1-01 -f owner -f extra.rack
            rack1-01: changed
            $ ferrite node set rack1-03 --trait CUSTOM_FAST
            rack1-03: changed
            $ ferrite node maintenance on rack1-03 --reason fan
            rack1-03: in maintenance
            $ ferrite node list --maintenance
            NAME      STATE   POWER  CLASS  DRIVER         NOTE
            rack1-03  enroll  ?      big    fake-hardware  maintenance: fan
            $ ferrite node maintenance off rack1-03
            rack1-03: out of maintenance
            $ ferrite node list --with-trait CUSTOM_FAST,CUSTOM_GPU -o name
            rack1-03
            $ ferrite node validate rack1-01
            INTERFACE   RESULT  REASON
            bios        ok
            boot        ok
            console     ok
            deploy      ok
            firmware    ok
            inspect     ok
            management  ok
            network     ok
            power       ok
            raid        ok
            rescue      ok
            storage     ok
            $ ferrite port list --node rack1-02
            ADDRESS            NODE      PXE   SWITCH  SWITCH PORT  UUID
            52:54:00:00:00:02  rack1-02  true                       UUID
            $ ferrite node delete rack1-03
            rack1-03: deleted
            $ ferrite node list -o name
            rack1-01
            rack1-02
        "#]],
    );
    let wide = user.run("node list rack1-02 -o wide").out;
    assert!(wide.contains("CONDUCTOR") && wide.contains("-000000000002"), "{wide}");
    let nodes = user.json("node list");
    assert_eq!(nodes[0]["driver_info"]["password"], "******");
    let node = user.json("node show rack1-02");
    assert_eq!((&node["extra"]["rack"], &node["owner"]), (&"7".into(), &"blue".into()));
    let yaml = user.run("node show rack1-02 -o yaml").out;
    assert!(yaml.contains("owner: blue\n"), "{yaml}");
}

#[test]
fn runs_provision_and_power_verbs() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    user.session(
        &[
            "node manage rack1-[01-03]",
            "node wait rack1-[01-03]",
            "node provide rack1-[01-03] --wait",
            "node provide rack1-[01-03] --wait --yes",
            "node provide rack1-01",
            "node explain rack1-01 provide",
            "node explain rack1-01 deploy",
            "node explain rack1-01 depoly",
            "node power off --state available --wait --yes",
            "node list",
            "node deploy rack1-01 --wait",
            "node rebuild rack1-01 --wait",
            "node undeploy rack1-01 --wait",
            "node manage rack1-02 --wait",
            "node inspect rack1-02 --wait",
            "node clean rack1-02 --wait --steps [{\"interface\":\"deploy\",\"step\":\"erase_devices\"}]",
            "node power",
        ],
        &expect![[r#"
            $ ferrite node manage rack1-[01-03]
            rack1-01: manage requested
            rack1-02: manage requested
            rack1-03: manage requested
            $ ferrite node wait rack1-[01-03]
            rack1-01: manageable
            rack1-02: manageable
            rack1-03: manageable
            $ ferrite node provide rack1-[01-03] --wait
            ferrite: cannot prompt for confirmation to provide 3 machines without a terminal; give --yes
            [2]
            $ ferrite node provide rack1-[01-03] --wait --yes
            rack1-01: available
            rack1-02: available
            rack1-03: available
            $ ferrite node provide rack1-01
            ferrite: The requested action "provide" can not be performed on node "rack1-01" while it is in state "available". Possible now: active, manage.
            [4]
            $ ferrite node explain rack1-01 provide
            rack1-01 is available: provide is not possible
              obstacle: The requested action "provide" can not be performed on node "rack1-01" while it is in state "available". Possible now: active, manage.
            ferrite: provide is not possible on rack1-01
            [4]
            $ ferrite node explain rack1-01 deploy
            rack1-01 is available: deploy is possible and ends in active
               1. available -> deploying
               2. prepare deployment
               3. list deploy steps
               4. run deploy step deploy.deploy (priority 100)
               5. deploying -> active
            $ ferrite node explain rack1-01 depoly
            ferrite: unknown verb "depoly"; did you mean "deploy"?
            [2]
            $ ferrite node power off --state available --wait --yes
            rack1-01: power off
            rack1-02: power off
            rack1-03: power off
            $ ferrite node list
            NAME      STATE      POWER  CLASS  DRIVER         NOTE
            rack1-01  available  off    big    fake-hardware
            rack1-02  available  off    big    fake-hardware
            rack1-03  available  off    big    fake-hardware
            $ ferrite node deploy rack1-01 --wait
            rack1-01: active
            $ ferrite node rebuild rack1-01 --wait
            rack1-01: active
            $ ferrite node undeploy rack1-01 --wait
            rack1-01: available
            $ ferrite node manage rack1-02 --wait
            rack1-02: manageable
            $ ferrite node inspect rack1-02 --wait
            rack1-02: manageable
            $ ferrite node clean rack1-02 --wait --steps [{"interface":"deploy","step":"erase_devices"}]
            rack1-02: manageable
            $ ferrite node power
            [2]
        "#]],
    );
    let managed = user.run("node manage rack1-[01-03] -o json");
    assert_eq!(managed.code, 1, "{}", managed.err);
    let rows: Value = serde_json::from_str(&managed.out).unwrap();
    let oks: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["ok"]).collect();
    assert_eq!(oks, [&Value::from(true), &Value::from(false), &Value::from(true)], "{rows}");
    let timeline = user.run("node timeline rack1-01 --last 3").out;
    assert_eq!(timeline.lines().count(), 3, "{timeline}");
    assert!(timeline.contains("→ manageable"), "{timeline}");
}

#[test]
fn exit_codes_report_the_kind_of_error() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    let secured = TestHome::new();
    let with_password = secured.serve_with(&["--auth", "basic"]);
    let secret = with_password.url();
    let empty = user.write("empty", "# no names\n");
    let twice = user.write(
        "twice.yaml",
        "- {name: other, driver: fake-hardware, ports: ['52:54:00:00:00:01']}\n",
    );
    for (line, code, expected) in [
        (&*format!("node delete @{empty} --yes"), 2, "contains no names"),
        (&format!("node undeploy @{empty} --yes"), 2, "contains no names"),
        (&format!("node maintenance on @{empty}"), 2, "contains no names"),
        ("node manage -", 2, "contains no names"),
        (&format!("node create --file {twice}"), 1, "other: "),
        ("node show ..", 3, ""),
        ("node wait rack1-01 --for availabel", 2, "did you mean \"available\"?"),
        ("node list", 0, ""),
        ("node provide rack1-01,rack1-02 --yes", 1, "2 of 2 machines failed"),
        ("node manage", 2, "no machines selected"),
        ("node delete --all", 2, "give --yes"),
        ("node show r[1-", 2, "has a [ without a ]"),
        ("node list --cloud nowhere", 2, "no clouds.yaml was found"),
        ("node set rack1-01", 2, "nothing to change"),
        ("node show rack1-1", 3, "did you mean \"rack1-01\"?"),
        ("node manage rack1-[01-09]", 3, "nothing was done"),
        ("template show CUSTOM_X", 3, "unknown deploy template"),
        ("node provide rack1-01", 4, "Possible now: manage"),
        ("node set rack1-01 -f driver=no-such-driver", 4, "no-such-driver"),
        (&format!("node list --url {secret}"), 5, "--password-file"),
        ("node list --url http://127.0.0.1:1", 6, "cannot reach http://127.0.0.1:1"),
    ] {
        let done = user.run(line);
        assert_eq!(done.code, code, "ferrite {line}: {}{}", done.out, done.err);
        assert!(done.err.contains(expected), "ferrite {line}: {}", done.err);
    }
}

#[test]
fn signs_in_with_all_kinds_of_credentials() {
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "basic"]);
    let password = std::fs::read_to_string(home.path("data/admin-password")).unwrap();
    let password = password.trim();
    let url = server.url();
    let user = CliUser::new("http://127.0.0.1:1");
    let file = home.path("data/admin-password");
    let file = file.to_str().unwrap();
    user.write(
        "config/ferrite/profiles.toml",
        &format!(
            "[profiles.lab]\nurl = \"{url}\"\nuser = \"admin\"\npassword_file = \"{file}\"\n\
             [profiles.wrong]\nurl = \"{url}\"\nuser = \"admin\"\npassword = \"hush-hush\"\n"
        ),
    );
    user.write(
        "clouds.yaml",
        &format!(
            "clouds:\n  site:\n    auth_type: http_basic\n    auth:\n      endpoint: {url}\n      \
             username: admin\n      password: {password}\n"
        ),
    );
    let inside = url.replace("://", &format!("://admin:{password}@"));
    for (line, code) in [
        (format!("node list --url {url} --user admin --password-file {file}"), 0),
        (format!("node list --url {inside}"), 0),
        ("node list --profile lab".to_owned(), 0),
        ("node list --cloud site".to_owned(), 0),
        ("node list --profile wrong".to_owned(), 5),
        (format!("node list --url {url}"), 5),
    ] {
        let done = user.run(&line);
        assert_eq!(done.code, code, "ferrite {line}: {}", done.err);
        assert!(!done.err.contains("hush-hush") && !done.err.contains(password), "{}", done.err);
    }
    let mut with_variables = user.command(&["node", "list"]);
    with_variables
        .env("OS_AUTH_TYPE", "http_basic")
        .env("OS_ENDPOINT", &url)
        .env("OS_USERNAME", "admin")
        .env("OS_PASSWORD", password);
    assert_eq!(run_command(with_variables).code, 0);
}

#[test]
fn deploys_an_image() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    for line in ["node manage --all -w", "node provide --all -wy", "node power off --all -wy"] {
        assert_eq!(user.run(line).code, 0);
    }
    user.write("key.pub", "ssh-ed25519 AAAA ann\n");
    user.write(
        "network.json",
        "{\"links\": [], \"networks\": [{\"ip_address\": \"192.0.2.5/24\"}]}",
    );
    user.write("key", "-----BEGIN OPENSSH PRIVATE KEY-----\n");
    user.session(
        &[
            "deploy --image http://images/a.raw --resource-class big --candidate rack1-02 --dry-run",
            "deploy --image http://images/a.raw --resource-class big --hostname web --count 4",
            "deploy --image http://images/a.raw --resource-class big --hostname web-[1-2] --count 3",
            "deploy --image http://images/a.raw --resource-class big --ssh-key key",
            "allocation list",
            "deploy --image http://images/a.raw --resource-class big --trait CUSTOM_GPU --candidate \
             rack1-02 --hostname web --ssh-key key.pub --network network.json",
            "allocation list",
            "undeploy web",
            "allocation list",
            "node list",
        ],
        &expect![[r#"
            $ ferrite deploy --image http://images/a.raw --resource-class big --candidate rack1-02 --dry-run
            instance_info.image_source  http://images/a.raw
            machines_that_fit           rack1-02
            machines_wanted             1
            $ ferrite deploy --image http://images/a.raw --resource-class big --hostname web --count 4
            ferrite: only 3 of 4 machines are available: no machine could be allocated: Failed to process allocation UUID: no node of resource class big is available, unassociated, with known power and out of maintenance; run again with --dry-run to see why for each machine
            [4]
            $ ferrite deploy --image http://images/a.raw --resource-class big --hostname web-[1-2] --count 3
            ferrite: --hostname has 2 names, but --count is 3
            [2]
            $ ferrite deploy --image http://images/a.raw --resource-class big --ssh-key key
            ferrite: key is a private key; give the public key (.pub) instead
            [2]
            $ ferrite allocation list
            NAME  STATE  CLASS  TRAITS  NODE  UUID  NOTE
            $ ferrite deploy --image http://images/a.raw --resource-class big --trait CUSTOM_GPU --candidate rack1-02 --hostname web --ssh-key key.pub --network network.json
            HOSTNAME  NODE      STATE   ADDRESSES  MACS
            web       rack1-02  active  192.0.2.5  52:54:00:00:00:02
            $ ferrite allocation list
            NAME  STATE   CLASS  TRAITS      NODE      UUID                                  NOTE
            web   active  big    CUSTOM_GPU  rack1-02  UUID
            $ ferrite undeploy web
            rack1-02: available
            $ ferrite allocation list
            NAME  STATE  CLASS  TRAITS  NODE  UUID  NOTE
            $ ferrite node list
            NAME      STATE      POWER  CLASS  DRIVER         NOTE
            rack1-01  available  off    big    fake-hardware
            rack1-02  available  off    big    fake-hardware
            rack1-03  available  off    big    fake-hardware
        "#]],
    );
    // Failed deployments leave nothing behind.
    for node in user.json("node list").as_array().unwrap() {
        assert!(node["instance_info"]["image_source"].is_null(), "{node}");
        assert!(node["instance_info"]["display_name"].is_null(), "{node}");
        assert!(node["instance_uuid"].is_null(), "{node}");
    }
}

#[test]
fn manages_other_resources() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    let steps = "[{\"interface\":\"deploy\",\"step\":\"deploy\",\"priority\":10,\"args\":{}}]";
    user.write("template.json", &format!("{{\"name\": \"CUSTOM_A\", \"steps\": {steps}}}"));
    user.write(
        "runbook.yaml",
        "name: CUSTOM_R\ntraits: [CUSTOM_R]\nsteps:\n- {interface: deploy, step: erase, order: 1, args: {}}\n",
    );
    user.write(
        "rule.yaml",
        "description: mark\nactions:\n- {op: set-attribute, args: [owner, blue]}\n",
    );
    user.write(
        "flavour.yaml",
        "name: large\nresource_class: large\nconditions:\n- {op: ge, args: ['{inventory.cpu.count}', 64]}\n",
    );
    user.session(
        &[
            "port create rack1-01 52:54:00:00:01:01 -f pxe_enabled:=false",
            "port list --node rack1-01",
            "template create --file template.json",
            "template list",
            "template set CUSTOM_A -f extra.why=test",
            "template show CUSTOM_A",
            "template delete CUSTOM_B",
            "template delete CUSTOM_A",
            "runbook create --file runbook.yaml",
            "runbook list",
            "runbook set CUSTOM_R -f traits:=[\"CUSTOM_S\"] -f description=erase",
            "runbook list",
            "rule create --file rule.yaml",
            "rule list -o wide",
            "flavour create --file flavour.yaml",
            "flavour list",
            "flavour matches large",
            "flavour delete large",
            "allocation create mine --resource-class none",
            "allocation delete mine",
            "sighting list",
            "sighting enrol 52:54:00:99:99:99 --driver fake-hardware",
            "topology",
            "image list",
            "image cached",
            "driver list",
        ],
        &expect![[r#"
            $ ferrite port create rack1-01 52:54:00:00:01:01 -f pxe_enabled:=false
            UUID
            $ ferrite port list --node rack1-01
            ADDRESS            NODE      PXE    SWITCH  SWITCH PORT  UUID
            52:54:00:00:00:01  rack1-01  true                        UUID
            52:54:00:00:01:01  rack1-01  false                       UUID
            $ ferrite template create --file template.json
            CUSTOM_A
            $ ferrite template list
            NAME      STEPS          UUID
            CUSTOM_A  deploy.deploy  UUID
            $ ferrite template set CUSTOM_A -f extra.why=test
            CUSTOM_A: changed
            $ ferrite template show CUSTOM_A
            created_at  TIME
            extra.why   test
            name        CUSTOM_A
            steps       {"args":{},"interface":"deploy","priority":10,"step":"deploy"}
            updated_at  TIME
            uuid        UUID
            $ ferrite template delete CUSTOM_B
            ferrite: unknown deploy template "CUSTOM_B"; did you mean "CUSTOM_A"?
            [3]
            $ ferrite template delete CUSTOM_A
            CUSTOM_A: deleted
            $ ferrite runbook create --file runbook.yaml
            CUSTOM_R
            $ ferrite runbook list
            NAME      STEPS         TRAITS    OWNER  PUBLIC  UUID
            CUSTOM_R  deploy.erase  CUSTOM_R         false   UUID
            $ ferrite runbook set CUSTOM_R -f traits:=["CUSTOM_S"] -f description=erase
            CUSTOM_R: changed
            $ ferrite runbook list
            NAME      STEPS         TRAITS    OWNER  PUBLIC  UUID
            CUSTOM_R  deploy.erase  CUSTOM_S         false   UUID
            $ ferrite rule create --file rule.yaml
            UUID
            $ ferrite rule list -o wide
            PRIORITY  PHASE  DESCRIPTION  CONDITIONS  ACTIONS        UUID
            0         main   mark                     set-attribute  UUID
            $ ferrite flavour create --file flavour.yaml
            large
            $ ferrite flavour list
            NAME   PRIORITY  CLASS  TRAITS  DESCRIPTION
            large  0         large
            $ ferrite flavour matches large
            NODE  CLASS  DECIDES CLASS  INSPECTED
            $ ferrite flavour delete large
            large: deleted
            $ ferrite allocation create mine --resource-class none
            mine
            $ ferrite allocation delete mine
            mine: deleted
            $ ferrite sighting list
            MAC  IP  MACHINE  TIMES  LAST SEEN  LAST REQUEST
            $ ferrite sighting enrol 52:54:00:99:99:99 --driver fake-hardware
            ferrite: No machine with the MAC address 52:54:00:99:99:99 was seen.
            [3]
            $ ferrite topology
            SWITCH  PORT  NODE  INTERFACE  MAC  STATE
            $ ferrite image list
            IMAGE  MACHINES  ACTIVE  EXAMPLES
            $ ferrite image cached
            SHA256  FORMAT  BYTES  ON DISK  IN USE  LAST USED
            $ ferrite driver list
            NAME           TYPE     CONDUCTORS
            fake-hardware  dynamic  HOST
            idrac          dynamic  HOST
            ipmi           dynamic  HOST
            redfish        dynamic  HOST
        "#]],
    );
}

#[test]
fn follows_events() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    let mut events = user
        .command(&["events", "--after", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    user.enrol_rack();
    let lines = BufReader::new(events.stdout.take().unwrap()).lines();
    let enrolled = lines.map_while(Result::ok).find(|line| line.contains("rack1-03"));
    events.kill().unwrap();
    events.wait().unwrap();
    assert!(enrolled.unwrap().contains("enrolled"));
}

#[test]
fn reads_names_from_files_and_standard_input() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    let file = user.write("machines", "rack1-[01-02] # the first two\n\nrack1-02\n");
    assert_eq!(user.run(&format!("node list @{file} -o name")).out, "rack1-01\nrack1-02\n");
    let mut listing = user
        .command(&["node", "list", "-", "-o", "name"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    listing.stdin.take().unwrap().write_all(b"rack1-03\n").unwrap();
    let output = listing.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "rack1-03\n");
}

#[test]
fn writes_completions_and_manual_pages() {
    let user = CliUser::new("http://127.0.0.1:1");
    for shell in ["bash", "zsh", "fish"] {
        let done = user.run(&format!("completions {shell}"));
        assert!(done.code == 0 && done.out.contains("undeploy"), "{shell}");
    }
    assert_eq!(user.run("man --dir pages").code, 0);
    let page = std::fs::read_to_string(user.path("pages/ferrite-node-list.1")).unwrap();
    assert!(page.contains("List machines"), "{page}");
}

#[test]
fn imports_from_another_server() {
    let (old_home, new_home) = (TestHome::new(), TestHome::new());
    let (old, new) = (old_home.serve(), new_home.serve());
    let source = CliUser::new(&old.url());
    source.enrol_rack();
    for line in [
        "node set rack1-02 -f driver_info.fake_password=1234",
        "node manage rack1-[01-02] -w",
        "node provide rack1-01 -w",
        "node set rack1-01 -f instance_info.image_source=http://images/a.raw -f instance_info.image_checksum=abc",
        "node deploy rack1-01 -w",
    ] {
        let done = source.run(line);
        assert_eq!(done.code, 0, "ferrite {line}: {}", done.err);
    }
    let destination = CliUser::new(&new.url());
    destination.write("secrets.yaml", "rack1-02: {fake_password: '1234'}\n");
    let from = format!("import --from {}", old.url());
    let dry = destination.run(&format!("{from} --dry-run -o json"));
    assert_eq!(
        (dry.code, destination.json("node list")),
        (0, serde_json::json!([])),
        "{}",
        dry.err
    );
    let first = destination.run(&from);
    assert_eq!(first.code, 1, "{}", first.err);
    assert!(first.err.contains("1 of 3 machines need secrets"), "{}", first.err);
    // With the secret, and once more with nothing left to do.
    for _ in 0..2 {
        let done = destination.run(&format!("{from} --secrets secrets.yaml"));
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
        let nodes = destination.json("node list");
        let states: Vec<&str> = nodes
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|node| node["provision_state"].as_str())
            .collect();
        assert_eq!(states, ["active", "manageable", "enroll"]);
    }
    assert_eq!(destination.json("port list").as_array().unwrap().len(), 3);
    assert_eq!(destination.json("node show rack1-01")["traits"], serde_json::json!(["CUSTOM_GPU"]));
}
