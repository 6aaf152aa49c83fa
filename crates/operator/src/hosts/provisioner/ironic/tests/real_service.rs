// SPDX-License-Identifier: Apache-2.0
//! Whole life cycles with the real service: with its driver without hardware, and with simulated
//! machines.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use http_probe::ServerProcess;
use ironic_client::{Api, ApiTarget, Method};
use serde_json::{Value, json};

use super::super::{
    IronicProvisioner, IronicProvisionerSettings, IronicTransport, IronicTransportError,
};
use super::machines::{MachineBench, ramdisk_settings};
use crate::hosts::decide::tests::lab::HostLab;

const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// Registers nodes with the driver without hardware, and hides that from the provisioner.
struct WithoutHardware(Api);

#[async_trait]
impl IronicTransport for WithoutHardware {
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, IronicTransportError> {
        let body = body.cloned().map(|mut body| {
            if let Some(node) = body.as_object_mut().filter(|node| node.contains_key("driver")) {
                node.retain(|key, _| !key.ends_with("_interface"));
                node.insert("driver".to_owned(), json!("fake-hardware"));
            }
            if let Some(operations) = body.as_array_mut() {
                operations.retain(|operation| {
                    !operation["path"].as_str().is_some_and(|path| path.ends_with("_interface"))
                });
            }
            body
        });
        let mut response = IronicTransport::request(&self.0, method, path, body.as_ref()).await?;
        if response["driver"] == json!("fake-hardware") {
            response["driver"] = json!("redfish");
        }
        Ok(response)
    }
}

/// The program, which a build of the workspace puts beside the tests.
fn ferrite() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().unwrap().parent().unwrap().join("ferrite");
    assert!(program.exists(), "{} is missing; run cargo build -p ferrite", program.display());
    program
}

async fn reach(lab: &mut HostLab, goal: impl Fn(&HostLab) -> bool) {
    let deadline = Instant::now() + LIMIT;
    loop {
        lab.now = k8s_openapi::jiff::Timestamp::now();
        lab.pass().await;
        if goal(lab) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{} {:?} {:#?}",
            lab.state(),
            lab.memory,
            lab.host.status
        );
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
async fn a_host_lives_with_the_real_service() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(ferrite());
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--auth", "none", "--data-dir"])
        .arg(directory.path().join("data"));
    let server = ServerProcess::start(&mut command, &directory.path().join("log")).unwrap();
    let url = format!("http://{}", server.address());
    let api = Api::new(ApiTarget::at(&url, None, None, "a test").unwrap()).unwrap();
    let provisioner = Arc::new(IronicProvisioner::new(
        Arc::new(WithoutHardware(api)),
        IronicProvisionerSettings::default(),
    ));
    let lab = |mode: &str| {
        let provisioner = Arc::<IronicProvisioner>::clone(&provisioner);
        HostLab::new(provisioner, json!({"inspectionMode": mode}))
    };
    live(lab("disabled")).await;
    inspect_in_vain(lab("agent")).await;
}

/// The driver without hardware finds none.
async fn inspect_in_vain(mut lab: HostLab) {
    reach(&mut lab, |lab| !lab.status().error_message.is_empty()).await;
    assert_eq!(lab.status().error_type.unwrap().as_str(), "inspection error");
    assert!(lab.status().error_message.contains("no inventory"));
    lab.delete();
    reach(&mut lab, |lab| lab.is_gone).await;
}

/// From creation to deletion.
async fn live(mut lab: HostLab) {
    reach(&mut lab, |lab| lab.state() == "available").await;
    assert!(!lab.status().provisioning.id.is_empty());
    lab.edit(json!({"image": {"url": "http://127.0.0.1:9/image.raw", "format": "raw",
        "checksum": "d41d8cd98f00b204e9800998ecf8427e", "checksumType": "md5"}}));
    reach(&mut lab, |lab| lab.state() == "provisioned").await;
    reach(&mut lab, |lab| lab.status().powered_on).await;
    lab.annotate("reboot.metal3.io", r#"{"mode": "hard"}"#);
    reach(&mut lab, |lab| !lab.has_annotation("reboot.metal3.io")).await;
    reach(&mut lab, |lab| lab.status().powered_on).await;
    lab.annotate("baremetalhost.metal3.io/detached", "");
    reach(&mut lab, |lab| lab.status().operational_status.as_str() == "detached").await;
    lab.remove_annotation("baremetalhost.metal3.io/detached");
    reach(&mut lab, |lab| lab.memory.is_adopted).await;
    assert_eq!(lab.state(), "provisioned");
    lab.edit(json!({"image": null}));
    reach(&mut lab, |lab| lab.state() == "available").await;
    lab.delete();
    reach(&mut lab, |lab| lab.is_gone).await;
    assert_eq!(lab.status().error_message, "");
}

#[tokio::test]
async fn a_machine_lives_with_the_real_service() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("ferrite.toml");
    // Simulated machines have no leases, so their agents have no boot proof. The images are on
    // loopback.
    let settings = format!(
        "boot.listen = [\"127.0.0.1:0\"]\nconductor.agent_boot_proof = \"none\"\n\
         images.allow_local_urls = true\nimages.file_url_allowed_paths = [{:?}]\n",
        directory.path()
    );
    std::fs::write(&config, settings).unwrap();
    let mut command = Command::new(ferrite());
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--auth", "none", "--config"])
        .arg(&config)
        .arg("--data-dir")
        .arg(directory.path().join("data"));
    let server = ServerProcess::start(&mut command, &directory.path().join("log")).unwrap();
    let bench = MachineBench::start(&server.url(), 100.0, ramdisk_settings(directory.path()));
    let live = async |index: u32, scheme: &str| {
        let mut host = bench.host(index, scheme);
        bench.register_with_wrong_password(&mut host).await;
        bench.inspect(&host, false).await;
        bench.inspect(&host, true).await;
        bench.prepare_hardware(&host, index).await;
        bench.deploy_and_adopt(&mut host, index).await;
        bench.read_and_subscribe(&host).await;
        bench.service(&host, index).await;
        bench.attach_data_image(&host, index).await;
        bench.deprovision_and_delete(&host).await;
    };
    let deploy_specially = async {
        let host = bench.registered_host(2, "redfish-virtualmedia").await;
        bench.prepare_software_raid(&host, 2).await;
        bench.deploy_specially(&host, 2).await;
        bench.update_firmware(&host).await;
        bench.deprovision_and_delete(&host).await;
    };
    let abort = async {
        bench.delete_during_inspection(3, "redfish").await;
        bench.detach_during_deployment(3, "redfish").await;
    };
    tokio::join!(live(0, "redfish"), live(1, "redfish-virtualmedia"), deploy_specially, abort);
}
