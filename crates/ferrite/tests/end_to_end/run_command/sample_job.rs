// SPDX-License-Identifier: Apache-2.0
//! The sample Kubernetes Job, run with its own arguments and host file and other addresses.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::run_rig::RunRig;
use crate::test_process::ferrite;

const SAMPLE: &str = include_str!("../../../../../deploy/kubernetes/samples/run-deploy-job.yaml");

/// The object of this kind in the sample.
fn object(kind: &str) -> Value {
    let mut objects = SAMPLE.split("\n---\n").skip(1).map(|document| {
        serde_saphyr::from_str::<Value>(document).unwrap_or_else(|error| panic!("{error}"))
    });
    objects.find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// The folder on this host for each path that the container mounts.
struct MountedFolders<'a> {
    rig: &'a RunRig,
    mounts: Vec<(String, PathBuf)>,
}

impl<'a> MountedFolders<'a> {
    /// Creates the folders with the contents of the volumes.
    fn create(rig: &'a RunRig, pod: &Value) -> Self {
        let mut mounts = Vec::new();
        for mount in pod["containers"][0]["volumeMounts"].as_array().unwrap() {
            let name = mount["name"].as_str().unwrap();
            let volumes = pod["volumes"].as_array().unwrap();
            let volume = volumes.iter().find(|volume| volume["name"] == name).unwrap();
            let folder = rig.path(&format!("volume-{name}"));
            std::fs::create_dir(&folder).unwrap();
            for (source, field, kind, data) in [
                ("configMap", "name", "ConfigMap", "data"),
                ("secret", "secretName", "Secret", "stringData"),
            ] {
                if volume[source].is_null() {
                    continue;
                }
                let object = object(kind);
                assert_eq!(volume[source][field], object["metadata"]["name"]);
                for (file, text) in object[data].as_object().unwrap() {
                    std::fs::write(folder.join(file), text.as_str().unwrap()).unwrap();
                }
            }
            mounts.push((mount["mountPath"].as_str().unwrap().to_owned(), folder));
        }
        let claim = object("PersistentVolumeClaim");
        let state = &pod["volumes"][2]["persistentVolumeClaim"]["claimName"];
        assert_eq!(*state, claim["metadata"]["name"]);
        Self { rig, mounts }
    }

    /// A path of the container on this host.
    fn translate(&self, text: &str) -> String {
        let mounted = self.mounts.iter().find_map(|(path, folder)| {
            let rest = text.strip_prefix(path.as_str())?;
            (rest.is_empty() || rest.starts_with('/'))
                .then(|| format!("{}{rest}", folder.display()))
        });
        mounted.unwrap_or_else(|| text.to_owned())
    }

    /// Replaces the addresses in the host file by those of the simulated machine.
    fn adapt_host_file(&self, path: &str) {
        let path = self.translate(path);
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("https://images.example", &self.rig.image_server);
        let mut host: Value = serde_saphyr::from_str(&text).unwrap();
        let enrolment = self.rig.machine().redfish_enrolment(None);
        for key in ["redfish_address", "redfish_system_id"] {
            host["driver_info"][key] = enrolment.driver_info[key].clone();
        }
        for key in ["redfish_username", "redfish_password"] {
            let file = host["driver_info"][key]["file"].as_str().unwrap();
            host["driver_info"][key]["file"] = json!(self.translate(file));
        }
        host["ports"][0] = json!(enrolment.ports[0].address);
        std::fs::write(path, host.to_string()).unwrap();
    }
}

/// Boot images for virtual media are built with a file of systemd.
fn has_efi_stub() -> bool {
    let stub = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
    let exists = std::fs::exists(stub).unwrap();
    assert!(
        exists || std::env::var_os("FERRITE_TEST_SERVERS").is_none(),
        "there is no {stub}; install systemd-boot-efi"
    );
    exists
}

#[test]
fn sample_job_deploys_a_machine() {
    if !has_efi_stub() {
        return;
    }
    let rig = RunRig::new();
    let job = object("Job");
    let pod = &job["spec"]["template"]["spec"];
    let folders = MountedFolders::create(&rig, pod);
    let mut command: Command = ferrite();
    let mut state_dir = None;
    for argument in pod["containers"][0]["args"].as_array().unwrap() {
        let argument = argument.as_str().unwrap();
        match argument.split_once('=') {
            Some(("--listen", _)) => command.arg("--listen=127.0.0.1:0"),
            Some(("--boot-listen", _)) => command.arg("--boot-listen=127.0.0.1:0"),
            Some((option, path)) => {
                if option == "--host" {
                    folders.adapt_host_file(path);
                }
                if option == "--state-dir" {
                    state_dir = Some(folders.translate(path));
                }
                command.arg(format!("{option}={}", folders.translate(path)))
            }
            None => command.arg(argument),
        };
    }
    let mut process = rig.spawn(&mut command);
    process.connect_agents();
    let (code, lines) = process.finish();
    assert_eq!(code, 0, "{lines:#?}");
    assert_eq!(rig.machine().completed_step_count("write_image"), 1);
    assert!(std::fs::exists(format!("{}/run.json", state_dir.unwrap())).unwrap());
    let rules = &job["spec"]["podFailurePolicy"]["rules"];
    assert_eq!(rules[0]["onExitCodes"]["values"], json!([2, 5]));
}
