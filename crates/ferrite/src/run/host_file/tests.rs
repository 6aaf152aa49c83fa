// SPDX-License-Identifier: Apache-2.0
//! Tests of host files.

use super::*;

const HOST: &str = r#"
name: rack1-u01
driver: redfish
driver_info:
  redfish_address: https://10.0.0.5
  redfish_username: {env: BMC_USER}
  redfish_password: {file: password}
boot_interface: redfish-virtual-media
properties: {capabilities: "boot_mode:uefi"}
ports:
  - 52:54:00:00:00:0A
  - {address: "52:54:00:00:00:02", pxe_enabled: false}
deploy:
  image: https://images.example/debian.qcow2
  checksum: {env: CHECKSUM}
  ssh_keys: [ssh-ed25519 AAAA ann, {file: keys.pub}]
  user_data: {file: user-data}
  network_data: {networks: [{type: ipv4_dhcp}]}
  meta_data: {hostname: web, rack: 1}
  instance_info: {root_gb: 10, image_pull_secret: {env: CHECKSUM}}
  deploy_steps: [{interface: bios, step: apply_configuration, priority: 150}]
clean:
  clean_steps: [{interface: deploy, step: erase_devices}]
"#;

struct HostFolder(tempfile::TempDir);

impl HostFolder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("password", "hush\n");
        folder.write("keys.pub", "ssh-ed25519 BBBB bob\n# a comment\nssh-rsa CCCC cho\n");
        folder.write("user-data", "#cloud-config\n");
        folder
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn read(&self, text: &str, operation: HostOperation) -> Result<HostFile, HostFileError> {
        self.write("host.yaml", text);
        HostFile::read(&self.0.path().join("host.yaml"), operation, &|name| match name {
            "BMC_USER" => Some("root".to_owned()),
            "CHECKSUM" => Some("0a".repeat(32)),
            _ => None,
        })
    }

    fn error(&self, text: &str, operation: HostOperation) -> String {
        match self.read(text, operation) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error.to_string(),
        }
    }
}

#[test]
fn reads_a_complete_host_file() {
    let host = HostFolder::new().read(HOST, HostOperation::Deploy).unwrap();
    assert_eq!(host.name(), "rack1-u01");
    let expected = json!({
        "name": "rack1-u01",
        "driver": "redfish",
        "driver_info": {
            "redfish_address": "https://10.0.0.5",
            "redfish_username": "root",
            "redfish_password": "hush",
        },
        "boot_interface": "redfish-virtual-media",
        "properties": {"capabilities": "boot_mode:uefi"},
    });
    assert_eq!(Value::Object(host.node.clone()), expected);
    assert_eq!(
        json!(host.ports),
        json!([
            {"address": "52:54:00:00:00:0a"},
            {"address": "52:54:00:00:00:02", "pxe_enabled": false},
        ])
    );
    let instance = host.instance.unwrap();
    assert_eq!(
        Value::Object(instance.instance_info.clone()),
        json!({
            "image_source": "https://images.example/debian.qcow2",
            "image_os_hash_algo": "sha256",
            "image_os_hash_value": "0a".repeat(32),
            "root_gb": 10,
            "image_pull_secret": "0a".repeat(32),
        })
    );
    assert_eq!(instance.deploy_steps.len(), 1);
    let drive = instance.config_drive("u", "rack1-u01").unwrap();
    assert_eq!(drive["user_data"], "#cloud-config\n", "unchanged");
    assert_eq!(drive["meta_data"]["hostname"], "web");
    assert_eq!(drive["meta_data"]["rack"], 1);
    let keys =
        json!({"0": "ssh-ed25519 AAAA ann", "1": "ssh-ed25519 BBBB bob", "2": "ssh-rsa CCCC cho"});
    assert_eq!(drive["meta_data"]["public_keys"], keys);
    assert_eq!(host.clean_steps, [] as [Value; 0], "not an argument of this operation");
}

/// A Job for cleaning need not mount the user data of the deployment.
#[test]
fn reads_only_what_the_operation_needs() {
    let folder = HostFolder::new();
    std::fs::remove_file(folder.0.path().join("user-data")).unwrap();
    let host = folder.read(HOST, HostOperation::Clean).unwrap();
    assert_eq!(host.clean_steps.len(), 1);
    assert!(host.instance.is_none());
    let error = folder.error(HOST, HostOperation::Deploy);
    assert!(error.starts_with("deploy.user_data.file: "), "{error}");
}

#[test]
fn json_and_a_minimal_file_are_accepted() {
    let text = r#"{"driver": "ipmi", "driver_info": {"ipmi_address": "10.0.0.5"}, "name": null}"#;
    let host = HostFolder::new().read(text, HostOperation::Inspect).unwrap();
    assert_eq!(host.name(), "machine");
    let drive =
        json!({"driver": "ipmi", "driver_info": {}, "deploy": {"image": "http://images/a"}});
    let host = HostFolder::new().read(&drive.to_string(), HostOperation::Deploy).unwrap();
    assert_eq!(host.instance.unwrap().config_drive("u", "n"), None);
}

#[test]
fn errors_name_the_path_of_the_key() {
    let folder = HostFolder::new();
    let replaced = |from: &str, to: &str| {
        assert!(HOST.contains(from), "{from}");
        HOST.replace(from, to)
    };
    for (text, expected) in [
        (replaced("driver: redfish\n", ""), "driver: is missing; use redfish or ipmi"),
        (replaced("name: rack1-u01", "nmae: rack1-u01"), "nmae: unknown key; did you mean name?"),
        (replaced("  image:", "  imgae:"), "deploy.imgae: unknown key; did you mean image?"),
        (
            replaced("pxe_enabled: false", "pxe_enable: false"),
            "ports[1].pxe_enable: unknown key; did you mean pxe_enabled?",
        ),
        (replaced("clean_steps", "steps"), "clean.steps: unknown key; "),
        (
            replaced("{env: BMC_USER}", "{env: UNSET}"),
            "driver_info.redfish_username.env: the variable UNSET is not set",
        ),
        (replaced("{file: password}", "{file: none}"), "driver_info.redfish_password.file: "),
        (replaced("{file: password}", "{file: 7}"), "driver_info.redfish_password: needs a text"),
        (replaced("52:54:00:00:00:0A", "52:54"), "ports[0].address: is not a MAC address"),
        (replaced("52:54:00:00:00:0A", "52:54:00:00:00:02"), "ports[1].address: is the address of"),
        (replaced("ssh-ed25519 AAAA ann", "hello"), "deploy.ssh_keys[0] is not a file of public"),
        (replaced("[{type: ipv4_dhcp}]", "{}"), "deploy.network_data is invalid: networks is not"),
        (replaced("https://images.example/", "images/"), "deploy.image: is not an image URL"),
        (replaced("checksum: {env: CHECKSUM}", "checksum: abc"), "deploy.checksum: is neither"),
        (replaced("step: apply_configuration, ", ""), "deploy.deploy_steps[0].step: is missing"),
        (
            replaced("meta_data: {hostname: web, rack: 1}", "meta_data: web"),
            "deploy.meta_data: is not a",
        ),
        ("[]".to_owned(), "it is not a mapping"),
        ("a: [".to_owned(), "it is neither JSON nor YAML"),
        ("driver: redfish\ndriver_info: {}\n".to_owned(), "deploy: is missing"),
        ("driver: redfish\ndriver_info: {}\ndeploy: {}\n".to_owned(), "deploy.image: is missing"),
    ] {
        let error = folder.error(&text, HostOperation::Deploy);
        assert!(error.starts_with(expected), "{error}, expected {expected}");
        assert!(!error.contains("hush"), "{error}");
    }
    let text = "driver: redfish\ndriver_info: {}\nautomated_clean: false\n";
    let error = folder.error(text, HostOperation::Clean);
    assert!(error.starts_with("automated_clean: is false"), "{error}");
}

#[test]
fn fingerprint_covers_what_the_operation_uses() {
    let folder = HostFolder::new();
    let fingerprint = |text: &str, operation| folder.read(text, operation).unwrap().fingerprint;
    let deploy = fingerprint(HOST, HostOperation::Deploy);
    folder.write("password", "changed");
    assert_eq!(fingerprint(HOST, HostOperation::Deploy), deploy, "a changed password");
    let other_image = HOST.replace("debian", "fedora");
    assert_ne!(fingerprint(&other_image, HostOperation::Deploy), deploy);
    let clean = fingerprint(HOST, HostOperation::Clean);
    assert_eq!(fingerprint(&other_image, HostOperation::Clean), clean);
    let reordered = json!({"driver_info": {"b": 1, "a": 2}, "driver": "ipmi"}).to_string();
    let ordered = r#"{"driver": "ipmi", "driver_info": {"a": 2, "b": 1}}"#;
    let of = |text: &str| fingerprint(text, HostOperation::Inspect);
    assert_eq!(of(&reordered), of(ordered));
}
