// SPDX-License-Identifier: Apache-2.0
//! Translates actions of the state machine into calls of a provisioner.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::ByteString;
use kube_resources::hosts::annotations::{ACCEPT_REPLACED_MACHINE, FORCE_DELETE, HostRebootMode};
use kube_resources::hosts::bare_metal_host::{
    AutomatedCleaningMode, BareMetalHost, HostInspectionMode,
};
use kube_resources::hosts::bmc_address::{BmcAddress, HostBmcCredentials};
use kube_resources::hosts::host_status::{HostErrorType, HostProvisioningState, OperationalStatus};
use kube_resources::hosts::ironic_payloads::config_drive::{
    ConfigDriveInputs, HostConfigDriveError, config_drive,
};
use kube_resources::hosts::preprovisioning_image::PreprovisioningImageStatus;
use serde_json::{Map, Value};

use super::decide::{
    BmcAccessState, HostVerb, HostView, VerbValue, effective_root_device_hints,
    is_accepted_machine_uninspected, is_accepted_machine_unread, preparing_firmware,
    servicing_firmware,
};
use super::provisioner::{
    AbortScope, AdoptionRequest, BmcAccess, DeprovisionRequest, HostDeployRequest, HostProvisioner,
    InspectionRequest, ManagedHost, PowerOffRequest, PreparationRequest, ProvisionerFailureKind,
    PullSecret, RegistrationRequest, ServicingRequest, VerbOutcome, VerbStop,
};

/// Name of the inspection mode that queries the BMC; it is newer than the schema.
const FAST_INSPECTION: &str = "fast";

/// Contents of the Secrets and images of a host.
#[derive(Clone, Debug, Default)]
pub struct HostContents {
    /// Access to the BMC.
    pub bmc: Option<BmcAccess>,
    /// User data.
    pub user_data: Option<String>,
    /// Network data.
    pub network_data: Option<String>,
    /// Metadata.
    pub meta_data: Option<String>,
    /// Network data of the ramdisk.
    pub ramdisk_network_data: Option<String>,
    /// Resource version of the Secret with it.
    pub ramdisk_network_version: Option<String>,
    /// Credentials for an OCI registry.
    pub pull_secret: Option<PullSecret>,
    /// The ramdisk that was built for the host.
    pub ramdisk: Option<PreprovisioningImageStatus>,
}

/// A Secret as it was read.
#[derive(Clone, Copy, Debug)]
pub struct SecretContent<'a> {
    /// Its data.
    pub data: &'a BTreeMap<String, ByteString>,
    /// Its resource version.
    pub version: &'a str,
}

/// Checks the BMC details of a host. `secret` is the Secret they name, if it exists.
#[must_use]
pub fn bmc_access(
    host: &BareMetalHost,
    secret: Option<SecretContent<'_>>,
) -> (BmcAccessState, Option<BmcAccess>) {
    let Some(bmc) = host.spec.bmc.as_ref().filter(|_| host.has_bmc_details()) else {
        return (BmcAccessState::Absent, None);
    };
    let unusable =
        |message: String| (BmcAccessState::Unusable { message, is_missing: false }, None);
    if bmc.credentials_name.is_empty() {
        return unusable(
            "spec.bmc.credentialsName is empty; name the Secret with the BMC's \
                         username and password"
                .to_owned(),
        );
    }
    let address = match BmcAddress::parse(&bmc.address) {
        Ok(address) => address,
        Err(error) => return unusable(format!("spec.bmc.address {error}")),
    };
    let name = &bmc.credentials_name;
    let Some(secret) = secret else {
        let message = format!("the Secret {name} with the BMC credentials does not exist");
        return (BmcAccessState::Unusable { message, is_missing: true }, None);
    };
    let read = |key: &str| {
        let ByteString(bytes) = secret.data.get(key)?;
        let text = String::from_utf8(bytes.clone()).ok()?;
        Some(text).filter(|text| !text.is_empty())
    };
    let (username, password) = match (read("username"), read("password")) {
        (Some(username), Some(password)) => (username, password),
        (username, password) => {
            let missing = match (username, password) {
                (None, None) => "neither the key username nor the key password",
                (None, _) => "no key username",
                (_, _) => "no key password",
            };
            return unusable(format!(
                "the Secret {name} with the BMC credentials has {missing}, or it is empty or no text; add it"
            ));
        }
    };
    let state = BmcAccessState::Usable { secret: name.clone(), version: secret.version.to_owned() };
    let access = BmcAccess {
        address,
        credentials: Arc::new(HostBmcCredentials { username, password }),
        disable_certificate_verification: bmc.disable_certificate_verification,
    };
    (state, Some(access))
}

/// Hash of all that registration depends on.
#[must_use]
pub fn registration_digest(
    host: &BareMetalHost,
    access: &BmcAccessState,
    contents: &HostContents,
) -> u64 {
    let mut hasher = DefaultHasher::new();
    let spec = &host.spec;
    if let Some(bmc) = &spec.bmc {
        (&bmc.address, bmc.disable_certificate_verification).hash(&mut hasher);
    }
    if let BmcAccessState::Usable { secret, version } = access {
        (secret, version).hash(&mut hasher);
    }
    (&spec.boot_mac_address, &spec.boot_mode, &spec.architecture).hash(&mut hasher);
    (&spec.automated_cleaning_mode, spec.disable_power_off).hash(&mut hasher);
    (&spec.preprovisioning_network_data_name, &contents.ramdisk_network_version).hash(&mut hasher);
    if let Some(ramdisk) = &contents.ramdisk {
        (&ramdisk.image_url, &ramdisk.kernel_url, &ramdisk.extra_kernel_params).hash(&mut hasher);
    }
    let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    let nics = hardware.map(|hardware| hardware.nics.as_slice()).unwrap_or_default();
    nics.iter().for_each(|nic| nic.mac.hash(&mut hasher));
    hasher.finish()
}

/// The host as provisioners see it.
#[must_use]
pub fn managed_host(view: &HostView<'_>, contents: &HostContents) -> ManagedHost {
    let metadata = &view.host.metadata;
    let id = &view.status.provisioning.id;
    ManagedHost {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        node_id: Some(id.clone()).filter(|id| !id.is_empty()),
        boot_mac_address: view.host.spec.boot_mac_address.clone(),
        bmc: contents.bmc.clone(),
        disable_power_off: view.host.spec.disable_power_off,
    }
}

/// Calls the provisioner.
pub async fn execute(
    provisioner: &dyn HostProvisioner,
    view: &HostView<'_>,
    contents: &HostContents,
    verb: &HostVerb,
) -> VerbOutcome<VerbValue> {
    let host = managed_host(view, contents);
    let nothing = |(): ()| VerbValue::Nothing;
    let restart = |kind: HostErrorType| view.status.error_type == Some(kind);
    let is_retry = view.status.error_count > 0;
    match verb {
        HostVerb::Register => {
            let request = registration_request(view, contents)?;
            Ok(VerbValue::Registration(provisioner.register(&host, &request).await))
        }
        HostVerb::CheckCapacity => provisioner.has_capacity(&host).await.map(VerbValue::Capacity),
        HostVerb::Inspect { refresh, is_forced } => {
            let spec = &view.host.spec;
            let fast = HostInspectionMode::Other(FAST_INSPECTION.to_owned());
            let request = InspectionRequest {
                boot_mode: spec.boot_mode.clone(),
                architecture: spec.architecture.clone(),
                is_fast: spec.inspection_mode == Some(fast),
                refresh: *refresh,
                restart_on_failure: restart(HostErrorType::Inspection),
                is_forced: *is_forced,
            };
            let hardware = provisioner.inspect(&host, &request).await?;
            Ok(VerbValue::Hardware(Box::new(hardware)))
        }
        HostVerb::Prepare => {
            let request = PreparationRequest {
                raid: view.host.spec.raid.clone(),
                applied_raid: view.status.provisioning.raid.clone(),
                has_root_device_hints: effective_root_device_hints(view.host).is_some(),
                firmware: preparing_firmware(view),
                is_start: !view.memory.is_change_started,
                restart_on_failure: restart(HostErrorType::Preparation),
            };
            provisioner.prepare(&host, &request).await.map(nothing)
        }
        HostVerb::Provision { is_forced } => {
            let request = provision_request(view, contents, *is_forced)?;
            provisioner.provision(&host, &request).await.map(nothing)
        }
        HostVerb::Deprovision => {
            let request = DeprovisionRequest {
                automated_cleaning: view.host.spec.automated_cleaning_mode.clone(),
                restart_on_failure: restart(HostErrorType::Provisioning),
            };
            provisioner.deprovision(&host, &request).await.map(nothing)
        }
        HostVerb::Adopt => {
            let request = AdoptionRequest {
                restart_on_failure: restart(HostErrorType::ProvisionedRegistration),
            };
            provisioner.adopt(&host, &request).await.map(nothing)
        }
        HostVerb::Observe => provisioner.observe(&host).await.map(VerbValue::Observation),
        HostVerb::PowerOn => {
            let is_forced = restart(HostErrorType::PowerManagement);
            provisioner.power_on(&host, is_forced).await.map(nothing)
        }
        HostVerb::PowerOff { mode } => {
            let request = PowerOffRequest {
                // A soft power off that failed is not repeated.
                mode: if is_retry { HostRebootMode::Hard } else { mode.clone() },
                is_forced: restart(HostErrorType::PowerManagement),
                aborts: AbortScope::Nothing,
            };
            provisioner.power_off(&host, &request).await.map(nothing)
        }
        HostVerb::PowerOffBeforeDelete => {
            let request = PowerOffRequest {
                mode: HostRebootMode::Hard,
                is_forced: restart(HostErrorType::PowerManagement),
                aborts: deletion_scope(view),
            };
            provisioner.power_off(&host, &request).await.map(nothing)
        }
        HostVerb::Service => {
            let request = ServicingRequest {
                firmware: servicing_firmware(view),
                is_start: !view.memory.is_change_started,
                restart_on_failure: restart(HostErrorType::Servicing),
            };
            provisioner.service(&host, &request).await.map(nothing)
        }
        HostVerb::AttachDataImage { url } => {
            provisioner.attach_data_image(&host, url).await.map(nothing)
        }
        HostVerb::DetachDataImage => provisioner.detach_data_image(&host).await.map(nothing),
        HostVerb::Detach { is_forced } => provisioner.detach(&host, *is_forced).await.map(nothing),
        HostVerb::Delete => {
            let scope = match view.host.annotation(FORCE_DELETE) {
                Some(_) => AbortScope::Forced,
                None => deletion_scope(view),
            };
            provisioner.delete(&host, scope).await.map(nothing)
        }
    }
}

/// What a deletion aborts unless it is forced.
fn deletion_scope(view: &HostView<'_>) -> AbortScope {
    match view.memory.aborts_cleaning {
        true => AbortScope::Everything,
        false => AbortScope::AllButErasure,
    }
}

fn registration_request(
    view: &HostView<'_>,
    contents: &HostContents,
) -> VerbOutcome<RegistrationRequest> {
    use HostProvisioningState as State;
    let (spec, status) = (&view.host.spec, &view.status);
    let state = &status.provisioning.state;
    let nics =
        status.hardware.as_ref().map(|hardware| hardware.nics.as_slice()).unwrap_or_default();
    let runs_foreign_system = *state == State::ExternallyProvisioned
        || (*state == State::Registering && spec.externally_provisioned);
    let has_deployment = matches!(state, State::Provisioned | State::Deprovisioning);
    let credentials_changed = match &view.companions.bmc_access {
        BmcAccessState::Usable { secret, version } => {
            let namespace = view.host.metadata.namespace.as_deref().unwrap_or_default();
            !status.tried_credentials.matches(namespace, secret, version)
        }
        BmcAccessState::Absent | BmcAccessState::Unusable { .. } => false,
    };
    let is_cleaned = spec.automated_cleaning_mode != Some(AutomatedCleaningMode::Disabled);
    let needs_ramdisk = matches!(state, State::Inspecting | State::Preparing)
        || (*state == State::Deprovisioning && is_cleaned)
        || status.operational_status == OperationalStatus::Servicing;
    let accepts_replaced_machine = view.host.annotation(ACCEPT_REPLACED_MACHINE).is_some();
    Ok(RegistrationRequest {
        boot_mode: spec.boot_mode.clone(),
        architecture: spec.architecture.clone(),
        automated_cleaning: spec.automated_cleaning_mode.clone(),
        nic_mac_addresses: nics.iter().filter_map(|nic| nic.mac.clone()).collect(),
        current_image: status.provisioning.deployed_image().filter(|_| has_deployment).cloned(),
        current_custom_deploy: status
            .provisioning
            .custom_deploy
            .as_ref()
            .filter(|_| has_deployment)
            .cloned(),
        runs_foreign_system,
        accepts_replaced_machine,
        has_other_nics: accepts_replaced_machine || is_accepted_machine_uninspected(status),
        leaves_ports: *state == State::PoweringOffBeforeDelete,
        is_accepted_machine_unread: is_accepted_machine_unread(status),
        credentials_changed,
        restart_on_failure: matches!(
            status.error_type,
            Some(HostErrorType::Registration | HostErrorType::ProvisionedRegistration)
        ),
        needs_ramdisk,
        is_new_host: *state == State::Registering
            && !runs_foreign_system
            && status.provisioning.id.is_empty(),
        ramdisk: contents.ramdisk.clone(),
        ramdisk_network_data: ramdisk_network_data(contents)?,
    })
}

fn ramdisk_network_data(contents: &HostContents) -> VerbOutcome<Option<Map<String, Value>>> {
    let Some(text) = contents.ramdisk_network_data.as_deref() else { return Ok(None) };
    // The same parser as for the config drive, which contains it as an object.
    let inputs = ConfigDriveInputs { network_data: Some(text), ..ConfigDriveInputs::default() };
    let drive = config_drive(None, &inputs)
        .map_err(|error| config_error(ProvisionerFailureKind::Registration, &error))?;
    let network = drive.as_ref().and_then(|drive| drive["network_data"].as_object());
    Ok(network.cloned())
}

fn config_error(kind: ProvisionerFailureKind, error: &HostConfigDriveError) -> VerbStop {
    VerbStop::failed(kind, error.to_string())
}

fn provision_request(
    view: &HostView<'_>,
    contents: &HostContents,
    is_forced: bool,
) -> VerbOutcome<HostDeployRequest> {
    let (spec, metadata) = (&view.host.spec, &view.host.metadata);
    let inputs = ConfigDriveInputs {
        uid: metadata.uid.as_deref().unwrap_or_default(),
        namespace: metadata.namespace.as_deref().unwrap_or_default(),
        name: metadata.name.as_deref().unwrap_or_default(),
        user_data: contents.user_data.as_deref(),
        network_data: contents.network_data.as_deref(),
        preprovisioning_network_data: contents.ramdisk_network_data.as_deref(),
        meta_data: contents.meta_data.as_deref(),
    };
    let config_drive = config_drive(spec.image.as_ref(), &inputs)
        .map_err(|error| config_error(ProvisionerFailureKind::Provisioning, &error))?;
    Ok(HostDeployRequest {
        image: spec.image.clone(),
        pull_secret: contents.pull_secret.clone(),
        custom_deploy: spec.custom_deploy.clone(),
        config_drive,
        root_device_hints: effective_root_device_hints(view.host),
        boot_mode: spec.boot_mode.clone(),
        automated_cleaning: spec.automated_cleaning_mode.clone(),
        is_forced,
        restart_on_failure: view.status.error_type == Some(HostErrorType::Provisioning),
    })
}
