// SPDX-License-Identifier: Apache-2.0
//! The sample Job deploys a simulated machine. Its first pod is killed, and the next one continues.

use std::net::IpAddr;
use std::time::Duration;

use fleet_sim::machine::RunningSoftware;
use fleet_sim::{FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::cluster::{JOB_NODE, TestNamespace, wait_within};
use crate::hosts_lab::until_true;
use crate::hosts_service_lab::serve_files_at;

const SAMPLE: &str = include_str!("../../../../deploy/kubernetes/samples/run-deploy-job.yaml");
const JOB: &str = "rack1-u01-deploy";
const CONTAINER: &str = "ferrite";
/// Port of the API in the sample.
const API_PORT: u16 = 6385;
/// Time limit of the Job. The controller waits some seconds before it replaces a failed pod.
const OPERATION_LIMIT: Duration = Duration::from_secs(300);

/// The objects of the sample for another machine. Pods run on a node whose ports no other test uses.
fn adapted_sample(fleet: &SimulatedFleet, files: &str) -> Value {
    let machine = fleet.machine(0).unwrap();
    let enrolment = machine.redfish_enrolment(None);
    let text = SAMPLE.replace("https://images.example", files);
    let documents = text.split("\n---\n").skip(1);
    let mut objects: Vec<Value> =
        documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect();
    for object in &mut objects {
        match object["kind"].as_str().unwrap() {
            "ConfigMap" => {
                let host = object["data"]["host.yaml"].as_str().unwrap();
                let mut host: Value = serde_saphyr::from_str(host).unwrap();
                for key in ["redfish_address", "redfish_system_id"] {
                    host["driver_info"][key] = enrolment.driver_info[key].clone();
                }
                host["ports"] = json!([enrolment.ports[0].address]);
                object["data"]["host.yaml"] = json!(host.to_string());
            }
            "Job" => {
                let pod = &mut object["spec"]["template"]["spec"];
                pod["nodeSelector"] = json!({"kubernetes.io/hostname": JOB_NODE});
                pod["tolerations"] = json!([{"operator": "Exists"}]);
                // Simulated agents trust no CA.
                pod["containers"][0]["env"] =
                    json!([{"name": "FERRITE_API__TLS__MODE", "value": "off"}]);
            }
            _ => {}
        }
    }
    json!({"apiVersion": "v1", "kind": "List", "items": objects})
}

/// A line of a container's output.
fn output_line(namespace: &TestNamespace, pod: &str, kind: &str) -> Option<Value> {
    let output = namespace.cluster.logs(&namespace.name, pod, CONTAINER);
    let mut lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.find(|line| line["kind"] == kind)
}

/// The name of a pod of the Job that is not `other`, once it exists.
async fn pod_besides(namespace: &TestNamespace, other: Option<&str>) -> String {
    let jobs: Api<Job> = namespace.api();
    let expected = if other.is_some() { 2 } else { 1 };
    let is_created = |job: &Option<Job>| {
        let status = job.as_ref().and_then(|job| job.status.as_ref());
        status.is_some_and(|status| {
            status.active.unwrap_or_default() + status.failed.unwrap_or_default() >= expected
        })
    };
    wait_within(OPERATION_LIMIT, "a pod", &jobs, JOB, is_created).await;
    let pods = namespace.api::<Pod>().list(&ListParams::default()).await.unwrap();
    let mut names = pods.iter().map(kube::ResourceExt::name_any);
    names.find(|name| Some(name.as_str()) != other).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_job_deploys_a_machine_although_a_pod_is_killed() {
    let Some(namespace) = TestNamespace::create("sample-job").await else { return };
    let address = IpAddr::V4(namespace.cluster.host_address());
    let agents = SimulatedAgentConfig {
        tls: true,
        downloads_images: true,
        ..SimulatedAgentConfig::for_api("http://127.0.0.1:1")
    };
    let fleet = SimulatedFleet::start(FleetConfig {
        bmcs: 1,
        listen: address,
        tls: true,
        personalities: vec![Personality::built_in("generic").unwrap()],
        speed: 100.0,
        agents: Some(agents),
        ..FleetConfig::default()
    })
    .unwrap();
    let machine = fleet.machine(0).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("objects.json");
    let objects = adapted_sample(&fleet, &serve_files_at(address));
    std::fs::write(&path, objects.to_string()).unwrap();
    let arguments = ["apply", "-n", &namespace.name, "-f", path.to_str().unwrap()];
    namespace.cluster.kubectl(&arguments).unwrap();

    // The agent runs and has read its token from the boot image, but cannot find the service.
    let first = pod_besides(&namespace, None).await;
    let log = || namespace.cluster.logs(&namespace.name, &first, CONTAINER);
    until_true(&format!("the agent runs on the machine of pod {first}"), || {
        assert!(output_line(&namespace, &first, "result").is_none(), "{}", log());
        machine.agent().is_some()
    })
    .await;
    namespace.cluster.kill_container(&namespace.name, &first, CONTAINER).unwrap();

    let second = pod_besides(&namespace, Some(&first)).await;
    until_true("the next pod starts", || output_line(&namespace, &second, "started").is_some())
        .await;
    let started = output_line(&namespace, &second, "started").unwrap();
    assert_eq!(started["resumed"], true, "{started}");
    let pod = namespace.api::<Pod>().get(&second).await.unwrap();
    let node = pod.status.unwrap().host_ip.unwrap();
    fleet.set_agent_api(&format!("http://{node}:{API_PORT}"));
    let ended = |job: &Option<Job>| {
        let status = job.as_ref().and_then(|job| job.status.as_ref());
        let mut conditions =
            status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|found| {
            matches!(found.type_.as_str(), "Complete" | "Failed") && found.status == "True"
        })
    };
    let jobs: Api<Job> = namespace.api();
    let job = wait_within(OPERATION_LIMIT, "the end of the Job", &jobs, JOB, ended).await.unwrap();
    let output = namespace.cluster.logs(&namespace.name, &second, CONTAINER);
    let status = job.status.unwrap();
    assert_eq!((status.succeeded, status.failed), (Some(1), Some(1)), "{output}");
    assert_eq!(machine.completed_step_count("write_image"), 1, "{output}");
    until_true("the image runs", || machine.running_software() == RunningSoftware::Instance).await;
    fleet.stop().await;
    namespace.delete().await;
}
