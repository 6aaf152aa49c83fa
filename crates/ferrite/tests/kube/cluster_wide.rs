// SPDX-License-Identifier: Apache-2.0
//! The operator for all namespaces, as its manifests install it: with the permissions of its
//! ServiceAccount, hosts in several namespaces, objects of every kind that it cannot read, and the loss
//! of the API server.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use fleet_sim::machine::RunningSoftware;
use fleet_sim::{FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use kube::{Client, Resource, ResourceExt as _};
use kube_resources::crds::all_crds;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::bmc_event_subscription::BMCEventSubscription;
use kube_resources::hosts::data_image::DataImage;
use kube_resources::hosts::firmware_schema::FirmwareSchema;
use kube_resources::hosts::hardware_data::HardwareData;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::ironic::database::IronicDatabase;
use kube_resources::ironic::service::Ironic;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use test_cluster::TestCluster;

use crate::cluster::{cluster_with_crds, wait_within};
use crate::hosts_lab::{error_of, is_on, state_of, until_true};
use crate::hosts_service_lab::{DIGEST, serve_files_at};

/// Namespace of the operator.
const OPERATOR: &str = "ferrite-system";
/// Namespace of the service.
const SERVICE: &str = "metal3";
/// Namespaces of hosts, each with the host of the machine with its index.
const TENANTS: [&str; 2] = ["tenant-a", "tenant-b"];
const HOST: &str = "host";
/// Time limit of each step, on two processors.
const LIMIT: Duration = Duration::from_secs(300);

/// A spec of each kind that does not match the schema.
const MALFORMED: [(&str, &str); 13] = [
    ("BareMetalHost", r#"{"online": "yes", "bmc": ["address"]}"#),
    ("BMCEventSubscription", r#"{"hostName": 1, "destination": {}}"#),
    ("DataImage", r#"{"url": {"http": "host"}}"#),
    ("FirmwareSchema", r#"{"schema": 5}"#),
    ("HardwareData", r#"{"hardware": []}"#),
    ("HostClaim", r#"{"poweredOn": "yes", "hostSelector": 1}"#),
    ("HostDeployPolicy", r#"{"hostClaimNamespaces": "all"}"#),
    ("HostFirmwareComponents", r#"{"updates": "bmc"}"#),
    ("HostFirmwareSettings", r#"{"settings": ["a"]}"#),
    ("HostUpdatePolicy", r#"{"firmwareSettings": {"a": 1}}"#),
    ("PreprovisioningImage", r#"{"acceptFormats": "iso"}"#),
    ("Ironic", r#"{"networking": [], "highAvailability": "no"}"#),
    ("IronicDatabase", r#"{"storage": 1, "credentialsRef": []}"#),
];

fn real_crds() -> Vec<CustomResourceDefinition> {
    let documents = all_crds();
    documents.iter().map(|document| serde_saphyr::from_str(document.yaml).unwrap()).collect()
}

/// The CRDs without a schema, so that anything can be stored.
fn permissive_crds() -> Vec<String> {
    let crds = real_crds().into_iter().map(|crd| {
        let mut crd = serde_json::to_value(crd).unwrap();
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
        crd.to_string()
    });
    crds.collect()
}

/// A cluster with unreadable objects, an operator, a service and machines. The logs of the operator are
/// printed if the test fails.
struct ClusterWideLab {
    cluster: &'static TestCluster,
    client: Client,
    fleet: SimulatedFleet,
    files: String,
}

impl ClusterWideLab {
    /// Starts the cluster and the machines; `None` without a control plane.
    async fn start() -> Option<Self> {
        let cluster = cluster_with_crds(permissive_crds()).await?;
        let client = cluster.client().await.unwrap();
        let address = IpAddr::V4(cluster.host_address());
        let agents = SimulatedAgentConfig {
            tls: true,
            ..SimulatedAgentConfig::for_api("http://127.0.0.1:1")
        };
        let fleet = SimulatedFleet::start(FleetConfig {
            bmcs: u32::try_from(TENANTS.len()).unwrap(),
            listen: address,
            personalities: vec![Personality::built_in("generic").unwrap()],
            speed: 100.0,
            agents: Some(agents),
            ..FleetConfig::default()
        })
        .unwrap();
        for namespace in TENANTS.iter().chain([&OPERATOR, &SERVICE]) {
            cluster.kubectl(&["create", "namespace", namespace]).unwrap();
        }
        Some(Self { cluster, client, fleet, files: serve_files_at(address) })
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create<K>(&self, namespace: &str, object: Value)
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
        K::DynamicType: Default,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>(namespace).create(&PostParams::default(), &object).await.unwrap();
    }

    /// Stores two unreadable objects of every kind, and then installs the schemas. Companions of a host
    /// have the name of a valid host.
    async fn store_malformed_objects(&self) {
        let crds = real_crds();
        assert_eq!(crds.len(), MALFORMED.len(), "one row for each kind");
        for (kind, spec) in MALFORMED {
            let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
            let version = GroupVersionKind::gvk(&crd.spec.group, "v1alpha1", kind);
            let resource = ApiResource::from_gvk_with_plural(&version, &crd.spec.names.plural);
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), TENANTS[1], &resource);
            let name = if kind == "BareMetalHost" { "malformed" } else { HOST };
            let spec: Value = serde_json::from_str(spec).unwrap();
            for (name, spec) in [(name, spec), ("text", json!("not a map"))] {
                let object = json!({"apiVersion": resource.api_version, "kind": kind,
                    "metadata": {"name": name}, "spec": spec});
                let object = serde_json::from_value(object).unwrap();
                api.create(&PostParams::default(), &object).await.unwrap();
            }
        }
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for mut crd in crds {
            let name = crd.name_any();
            crd.metadata.resource_version = api.get(&name).await.unwrap().resource_version();
            api.replace(&name, &PostParams::default(), &crd).await.unwrap();
        }
    }

    /// Applies the manifests.
    async fn install_operator(&self) {
        let variables = [("KERNEL", "kernel"), ("RAMDISK", "ramdisk")]
            .map(|(name, file)| format!("--from-literal=DEPLOY_{name}_URL={}/{file}", self.files));
        let mut arguments = vec!["create", "configmap", "ferrite-operator-config", "-n", OPERATOR];
        arguments.extend(variables.iter().map(String::as_str));
        self.cluster.kubectl(&arguments).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifests = root.join("deploy/kubernetes/operator/cluster-wide");
        let folder = manifests.to_str().unwrap();
        let arguments = ["apply", "--server-side", "--force-conflicts", "-k", folder];
        self.cluster.kubectl(&arguments).unwrap();
        let deployments: Api<Deployment> = self.api(OPERATOR);
        let is_ready = |deployment: &Option<Deployment>| {
            let status = deployment.as_ref().and_then(|deployment| deployment.status.as_ref());
            status.is_some_and(|status| status.ready_replicas == Some(2))
        };
        wait_within(LIMIT, "two replicas", &deployments, "ferrite-operator", is_ready).await;
    }

    /// Creates the service, and lets the agents of the machines call it. Returns its URL.
    async fn install_service(&self) -> String {
        let ironic = json!({"metadata": {"name": "ironic"},
            "spec": {"networking": {"disableHostNetwork": true}}});
        self.create::<Ironic>(SERVICE, ironic).await;
        let ready = |ironic: &Option<Ironic>| {
            let status = ironic.as_ref().and_then(|ironic| ironic.status.as_ref());
            status.is_some_and(|status| is_true(&json!(status.conditions), "Ready"))
        };
        wait_within(LIMIT, "the service", &self.api(SERVICE), "ironic", ready).await;
        let parameters = ListParams::default().labels("ironic.metal3.io/ironic=ironic");
        let pods = self.api::<Pod>(SERVICE).list(&parameters).await.unwrap();
        let address = pods.items[0].status.clone().unwrap().pod_ip.unwrap();
        let url = format!("http://{address}:6385");
        self.fleet.set_agent_api(&url);
        url
    }

    async fn create_host(&self, index: usize) {
        let machine = self.fleet.machine(u32::try_from(index).unwrap()).unwrap();
        let address =
            format!("redfish-virtualmedia+http://{}{}", machine.address(), machine.system_path());
        let secret = json!({"metadata": {"name": "bmc"},
            "stringData": {"username": "admin", "password": "password"}});
        self.create::<k8s_openapi::api::core::v1::Secret>(TENANTS[index], secret).await;
        let host = json!({"metadata": {"name": HOST}, "spec": {
            "online": true, "bootMACAddress": machine.macs()[0].to_string(),
            "bmc": {"address": address, "credentialsName": "bmc"}}});
        self.create::<BareMetalHost>(TENANTS[index], host).await;
    }

    async fn until_state(&self, namespace: &str, state: &str) -> BareMetalHost {
        let is_reached = |host: &Option<BareMetalHost>| {
            host.as_ref().is_some_and(|host| {
                state_of(host) == state && is_on(host) && error_of(host).is_empty()
            })
        };
        let what = format!("{namespace}: {state}");
        wait_within(LIMIT, &what, &self.api(namespace), HOST, is_reached).await.unwrap()
    }

    /// Deletes the namespace of a host.
    async fn delete_tenant(&self, index: usize) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let name = TENANTS[index];
        namespaces.delete(name, &DeleteParams::background()).await.unwrap();
        wait_within(LIMIT, "the deletion of the namespace", &namespaces, name, Option::is_none)
            .await;
        let machine = self.fleet.machine(u32::try_from(index).unwrap()).unwrap();
        assert_eq!(machine.disk_image(), None, "the machine of {name} is erased");
    }

    async fn patch<K>(&self, namespace: &str, patch: Value)
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
        K::DynamicType: Default,
    {
        let parameters = PatchParams::default();
        self.api::<K>(namespace).patch(HOST, &parameters, &Patch::Merge(patch)).await.unwrap();
    }
}

impl Drop for ClusterWideLab {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let logs = std::fs::read_dir(self.cluster.folder().join("logs")).into_iter().flatten();
        for log in logs.flatten().filter(|log| log.file_name().to_string_lossy().contains(OPERATOR))
        {
            println!("{}", std::fs::read_to_string(log.path()).unwrap_or_default());
        }
    }
}

fn is_true(conditions: &Value, name: &str) -> bool {
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.any(|found| found["type"] == name && found["status"] == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_all_namespaces_are_provisioned_despite_unreadable_objects() {
    let Some(lab) = ClusterWideLab::start().await else { return };
    lab.store_malformed_objects().await;
    lab.install_operator().await;
    let service = lab.install_service().await;
    let database = json!({"metadata": {"name": "database"}, "spec": {}});
    lab.create::<IronicDatabase>(SERVICE, database).await;
    for index in 0..TENANTS.len() {
        lab.create_host(index).await;
    }
    for tenant in TENANTS {
        lab.until_state(tenant, "available").await;
    }
    // The objects of the first host are used, and each needs permissions.
    let tenant = TENANTS[0];
    let settings = lab.api::<HostFirmwareSettings>(tenant);
    let is_read = |settings: &Option<HostFirmwareSettings>| {
        let status = settings.as_ref().and_then(|settings| settings.status.as_ref());
        status.is_some_and(|status| status.settings.contains_key("SriovGlobalEnable"))
    };
    wait_within(LIMIT, "settings", &settings, HOST, is_read).await;
    let schemas = lab.api::<FirmwareSchema>(tenant).list(&ListParams::default()).await.unwrap();
    assert_eq!(schemas.items.len(), 1);
    let requested = json!({"spec": {"settings": {"SriovGlobalEnable": "Enabled"}}});
    lab.patch::<HostFirmwareSettings>(tenant, requested).await;
    let machine = lab.fleet.machine(0).unwrap();
    until_true("the setting", || {
        machine.bios_attribute("SriovGlobalEnable") == Some(json!("Enabled"))
    })
    .await;
    lab.until_state(tenant, "available").await;
    let subscription = json!({"metadata": {"name": HOST},
        "spec": {"hostName": HOST, "destination": format!("{}/events", lab.files)}});
    lab.create::<BMCEventSubscription>(tenant, subscription).await;
    let is_subscribed = |subscription: &Option<BMCEventSubscription>| {
        let status = subscription.as_ref().and_then(|it| it.status.as_ref());
        status.is_some_and(|status| status.subscription_id.is_some())
    };
    wait_within(LIMIT, "a subscription", &lab.api(tenant), HOST, is_subscribed).await;
    let inspected = lab.api::<HardwareData>(tenant).get(HOST).await.unwrap();
    assert!(inspected.spec.hardware.is_some());

    let image = json!({"spec": {"image": {"url": format!("{}/image.raw", lab.files),
        "checksum": DIGEST, "checksumType": "sha256", "format": "raw"}}});
    for tenant in TENANTS {
        lab.patch::<BareMetalHost>(tenant, image.clone()).await;
    }
    for (index, tenant) in (0..).zip(TENANTS) {
        lab.until_state(tenant, "provisioned").await;
        let machine = lab.fleet.machine(index).unwrap();
        until_true("the image runs", || machine.running_software() == RunningSoftware::Instance)
            .await;
        // As with Metal3, hosts are cleaned before a deployment without overwriting their disks.
        assert!(machine.completed_step_count("erase_devices_metadata") > 0, "{tenant}");
        assert_eq!(machine.completed_step_count("erase_devices"), 0, "{tenant}");
    }
    let data = json!({"metadata": {"name": HOST},
        "spec": {"url": format!("{}/data.iso", lab.files)}});
    lab.create::<DataImage>(tenant, data).await;
    let has_finalizer = |image: &Option<DataImage>| {
        image.as_ref().is_some_and(|image| !image.finalizers().is_empty())
    };
    wait_within(LIMIT, "a finalizer", &lab.api(tenant), HOST, has_finalizer).await;
    let reboot = json!({"metadata": {"annotations": {"reboot.metal3.io": "{\"mode\": \"hard\"}"}}});
    lab.patch::<BareMetalHost>(tenant, reboot).await;
    let is_attached = |image: &Option<DataImage>| {
        let status = image.as_ref().and_then(|image| image.status.as_ref());
        status.is_some_and(|status| status.attached_image.is_some())
    };
    wait_within(LIMIT, "the data image", &lab.api(tenant), HOST, is_attached).await;
    let is_ready = |database: &Option<IronicDatabase>| {
        let status = database.as_ref().and_then(|database| database.status.as_ref());
        status.is_some_and(|status| is_true(&json!(status.conditions), "Ready"))
    };
    wait_within(LIMIT, "the database", &lab.api(SERVICE), "database", is_ready).await;

    // A namespace ends with everything in it.
    lab.delete_tenant(0).await;
    let denied = lab.cluster.denied_requests(OPERATOR, "ferrite-operator").await.unwrap();
    assert_eq!(denied, Vec::<String>::new());

    // The API server is lost while a host is deprovisioned.
    let tenant = TENANTS[1];
    // Agents cannot call the service, so the state lasts until it is observed.
    lab.fleet.set_agent_api("http://127.0.0.1:1");
    lab.patch::<BareMetalHost>(tenant, json!({"spec": {"image": null}})).await;
    let is_started = |host: &Option<BareMetalHost>| {
        host.as_ref().is_some_and(|host| state_of(host) == "deprovisioning")
    };
    wait_within(LIMIT, "deprovisioning", &lab.api(tenant), HOST, is_started).await;
    lab.cluster.stop_api_server().await;
    lab.cluster.start_api_server().await.unwrap();
    lab.fleet.set_agent_api(&service);
    lab.until_state(tenant, "available").await;
    lab.delete_tenant(1).await;
}
