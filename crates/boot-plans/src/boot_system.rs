// SPDX-License-Identifier: Apache-2.0
//! Resolves what a node boots from its fields and the settings, without IO.

use drivers::{DriverError, DriverTarget};
use node_model::{BootImage, BootMethod, BootPurpose, BootSystem, JsonObject, Timestamp};
use serde_json::{Map, Value};

use crate::installer::InstallRequest;
use crate::instance_images::given_config_drive;
use crate::kernel_parameters::{self, KernelParameterError};
use crate::settings::BootServiceSettings;

/// The URLs and the token that the booted agent or installer uses.
#[derive(Debug, Clone)]
pub(crate) struct AgentEndpoints<'a> {
    /// The API.
    pub(crate) api_url: &'a str,
    /// The agent token, if the agent gets it with its kernel parameters.
    pub(crate) token: Option<&'a str>,
    /// The secret that inspection data must be sent with.
    pub(crate) inspection_proof: Option<&'a str>,
    /// The files of the plan.
    pub(crate) files_url: &'a str,
    /// The current time.
    pub(crate) now: Timestamp,
}

/// Returns the system that the node boots for `purpose`.
pub(crate) fn resolve_boot_system(
    target: &DriverTarget<'_>,
    settings: &BootServiceSettings,
    endpoints: &AgentEndpoints<'_>,
    method: BootMethod,
    purpose: BootPurpose,
) -> Result<BootSystem, DriverError> {
    let is_netboot = method != BootMethod::VirtualMedia;
    if is_netboot && !target.ports.iter().any(|port| port.pxe_enabled) {
        return Err(DriverError::MissingParameter {
            name: "ports".to_owned(),
            why: "a network boot needs the MAC address of a NIC; create a port with the MAC address of \
                  the NIC that the machine boots from (pxe_enabled)"
                .to_owned(),
        });
    }
    let system = match purpose {
        BootPurpose::DeployRamdisk
        | BootPurpose::InspectionRamdisk
        | BootPurpose::RescueRamdisk => {
            ramdisk_system(target, settings, endpoints, method, purpose)?
        }
        BootPurpose::Installer => installer_system(target, settings, endpoints, method)?,
        BootPurpose::Instance => instance_system(target, settings, method)?,
    };
    match (&system, method) {
        (BootSystem::Iso { .. }, BootMethod::Pxe) => Err(invalid_parameter(
            "boot_interface",
            "the boot loaders of 'pxe' cannot boot an ISO image; use ipxe, http or \
             redfish-virtual-media, or set a kernel and a ramdisk",
        )),
        (BootSystem::Kernel { parameters, .. }, _) => {
            kernel_parameters::command_line(parameters)
                .map_err(|error| invalid_kernel_parameters(&error))?;
            Ok(system)
        }
        (BootSystem::Iso { .. }, _) => Ok(system),
    }
}

fn ramdisk_system(
    target: &DriverTarget<'_>,
    settings: &BootServiceSettings,
    endpoints: &AgentEndpoints<'_>,
    method: BootMethod,
    purpose: BootPurpose,
) -> Result<BootSystem, DriverError> {
    let rescue = purpose == BootPurpose::RescueRamdisk;
    if method == BootMethod::VirtualMedia {
        let key = if rescue { "rescue_iso" } else { "deploy_iso" };
        if let Some(image) = node_image(target, key)? {
            return Ok(BootSystem::Iso { image });
        }
    }
    let (kernel, ramdisk) = ramdisk_images(target, settings, rescue)?;
    let node_params = append_params(target)?;
    let mut parameters =
        kernel_parameters::ramdisk_parameters(&settings.kernel_append_params, node_params)
            .map_err(|error| invalid_kernel_parameters(&error))?;
    parameters.push(format!("ipa-api-url={}", endpoints.api_url));
    // Our agent sends its log there; other agents ignore the parameter.
    parameters.push(format!(
        "ferrite-log-url={}/v1/ferrite/agents/{}/log",
        endpoints.api_url, target.node.id
    ));
    parameters.extend(clock_parameter(endpoints.api_url, endpoints.now));
    if purpose == BootPurpose::InspectionRamdisk {
        // Agents send the data to this URL without a token, so the URL itself has the proof.
        let proof = endpoints.inspection_proof.map(|proof| format!("?boot_secret={proof}"));
        parameters.push(format!(
            "ipa-inspection-callback-url={}/v1/continue_inspection{}",
            endpoints.api_url,
            proof.unwrap_or_default()
        ));
        let more = kernel_parameters::split(&settings.inspection_kernel_params);
        parameters.extend(more.map_err(|error| invalid_kernel_parameters(&error))?);
    }
    if let Some(token) = endpoints.token {
        parameters.push(format!("ipa-agent-token={token}"));
    }
    parameters.extend(boot_interface_parameter(target, method));
    let mut network_data = JsonObject::empty();
    if method == BootMethod::VirtualMedia {
        parameters.push("boot_method=vmedia".to_owned());
        parameters.push(format!("ir_pub_id={}", target.node.id));
        network_data = target.node.network_data.clone();
    }
    Ok(BootSystem::Kernel { kernel, ramdisk, parameters, network_data })
}

/// Returns the parameter with which our agent corrects a clock that is very wrong: it could not verify the
/// certificate of the API.
pub(crate) fn clock_parameter(api_url: &str, now: Timestamp) -> Option<String> {
    const MICROSECONDS: i64 = 1_000_000;
    api_url.starts_with("https:").then(|| format!("ferrite-time={}", now.0 / MICROSECONDS))
}

/// Returns the `BOOTIF` parameter if no boot loader adds it and the node has exactly one boot port.
fn boot_interface_parameter(target: &DriverTarget<'_>, method: BootMethod) -> Option<String> {
    let without_loader = matches!(method, BootMethod::VirtualMedia | BootMethod::Http);
    let mut ports = target.ports.iter().filter(|port| port.pxe_enabled);
    match (without_loader, ports.next(), ports.next()) {
        (true, Some(only), None) => Some(format!("BOOTIF={}", only.address)),
        (_, _, _) => None,
    }
}

fn installer_system(
    target: &DriverTarget<'_>,
    settings: &BootServiceSettings,
    endpoints: &AgentEndpoints<'_>,
    method: BootMethod,
) -> Result<BootSystem, DriverError> {
    let instance_image = |key: &str| image_field(target.instance_info, "instance_info", key);
    let required = |key: &str| {
        instance_image(key)?.ok_or_else(|| {
            let why = format!("the installer needs it; set the URL of its {key}");
            missing_instance_info(key, &why)
        })
    };
    let (kernel, ramdisk) = (required("kernel")?, required("ramdisk")?);
    let request = InstallRequest::from_target(target)?;
    let instance_params = append_params(target)?;
    let mut parameters = vec!["text".to_owned()];
    parameters.extend(
        kernel_parameters::instance_parameters(&settings.kernel_append_params, instance_params)
            .map_err(|error| invalid_kernel_parameters(&error))?,
    );
    parameters.extend(request.parameters(endpoints));
    parameters.extend(boot_interface_parameter(target, method));
    Ok(BootSystem::Kernel { kernel, ramdisk, parameters, network_data: JsonObject::empty() })
}

fn append_params<'a>(target: &DriverTarget<'a>) -> Result<Option<&'a str>, DriverError> {
    let key = "kernel_append_params";
    let of_instance = text_field(target.instance_info, "instance_info", key)?;
    Ok(of_instance.or(text_field(target.driver_info, "driver_info", key)?))
}

/// Returns kernel and ramdisk as a pair: both from the node, or both from the settings.
fn ramdisk_images(
    target: &DriverTarget<'_>,
    settings: &BootServiceSettings,
    rescue: bool,
) -> Result<(BootImage, BootImage), DriverError> {
    let (kernel_key, ramdisk_key) = if rescue {
        ("rescue_kernel", "rescue_ramdisk")
    } else {
        ("deploy_kernel", "deploy_ramdisk")
    };
    match (node_image(target, kernel_key)?, node_image(target, ramdisk_key)?) {
        (Some(kernel), Some(ramdisk)) => return Ok((kernel, ramdisk)),
        (None, None) => {}
        (Some(_), None) => return Err(missing_driver_info(ramdisk_key, "only the kernel is set")),
        (None, Some(_)) => return Err(missing_driver_info(kernel_key, "only the ramdisk is set")),
    }
    if rescue
        && let (Some(kernel), Some(ramdisk)) = (&settings.rescue_kernel, &settings.rescue_ramdisk)
    {
        return Ok((configured_image(kernel), configured_image(ramdisk)));
    }
    let arch = target.node.properties.get_str("cpu_arch").unwrap_or_default();
    let kernel = settings.deploy_kernel_by_arch.get(&arch).or(settings.deploy_kernel.as_ref());
    let ramdisk = settings.deploy_ramdisk_by_arch.get(&arch).or(settings.deploy_ramdisk.as_ref());
    match (kernel, ramdisk) {
        (Some(kernel), Some(ramdisk)) => Ok((configured_image(kernel), configured_image(ramdisk))),
        (None, _) => Err(missing_driver_info(
            kernel_key,
            "the agent needs a kernel; set its URL, or configure boot.deploy_kernel",
        )),
        (Some(_), None) => Err(missing_driver_info(
            ramdisk_key,
            "the agent needs a ramdisk; set its URL, or configure boot.deploy_ramdisk",
        )),
    }
}

fn instance_system(
    target: &DriverTarget<'_>,
    settings: &BootServiceSettings,
    method: BootMethod,
) -> Result<BootSystem, DriverError> {
    if given_config_drive(target).is_some() && method != BootMethod::VirtualMedia {
        return Err(invalid_parameter(
            "instance_info/configdrive",
            "a ramdisk instance that boots from the network cannot have one: every client on that \
             network could read it; use redfish-virtual-media, or remove it",
        ));
    }
    let instance_image = |key: &str| image_field(target.instance_info, "instance_info", key);
    if let Some(image) = instance_image("boot_iso")? {
        return Ok(BootSystem::Iso { image });
    }
    match (instance_image("kernel")?, instance_image("ramdisk")?) {
        (Some(kernel), Some(ramdisk)) => {
            let params =
                text_field(target.instance_info, "instance_info", "ramdisk_kernel_arguments")?
                    .or(text_field(target.instance_info, "instance_info", "kernel_append_params")?);
            let parameters =
                kernel_parameters::instance_parameters(&settings.kernel_append_params, params)
                    .map_err(|error| invalid_kernel_parameters(&error))?;
            let network_data = target.node.network_data.clone();
            Ok(BootSystem::Kernel { kernel, ramdisk, parameters, network_data })
        }
        (Some(_), None) => Err(missing_instance_info("ramdisk", "only the kernel is set")),
        (None, Some(_)) => Err(missing_instance_info("kernel", "only the ramdisk is set")),
        (None, None) => Err(missing_instance_info(
            "kernel",
            "a ramdisk instance boots kernel and ramdisk, or boot_iso; set one of them",
        )),
    }
}

pub(crate) fn missing_instance_info(key: &str, why: &str) -> DriverError {
    DriverError::MissingParameter { name: format!("instance_info/{key}"), why: why.to_owned() }
}

/// Returns an image from `instance_info`, or else from `driver_info`.
fn node_image(target: &DriverTarget<'_>, key: &str) -> Result<Option<BootImage>, DriverError> {
    match image_field(target.instance_info, "instance_info", key)? {
        Some(image) => Ok(Some(image)),
        None => image_field(target.driver_info, "driver_info", key),
    }
}

pub(crate) fn image_field(
    object: &Map<String, Value>,
    name: &str,
    key: &str,
) -> Result<Option<BootImage>, DriverError> {
    let Some(source) = text_field(object, name, key)? else { return Ok(None) };
    if !is_bmc_only_url(source) {
        images::ImageSource::parse(source)
            .map_err(|error| invalid_parameter(&format!("{name}/{key}"), &error.to_string()))?;
    }
    let checksum = text_field(object, name, &format!("{key}_checksum"))?;
    if let Some(checksum) = checksum {
        images::ExpectedChecksum::parse(checksum).map_err(|error| {
            invalid_parameter(&format!("{name}/{key}_checksum"), &error.to_string())
        })?;
    }
    Ok(Some(BootImage {
        source: source.to_owned(),
        checksum: checksum.map(str::to_owned),
        pull_secret: text_field(object, name, "image_pull_secret")?.map(str::to_owned),
    }))
}

/// Returns whether only a BMC can fetch the URL.
pub(crate) fn is_bmc_only_url(source: &str) -> bool {
    let scheme = source.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("nfs" | "cifs" | "smb"))
}

fn configured_image(source: &str) -> BootImage {
    BootImage { source: source.to_owned(), checksum: None, pull_secret: None }
}

pub(crate) fn text_field<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    key: &str,
) -> Result<Option<&'a str>, DriverError> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(invalid_parameter(&format!("{name}/{key}"), "it must be a string"))
        }
    }
}

pub(crate) fn invalid_parameter(name: &str, why: &str) -> DriverError {
    DriverError::InvalidParameter { name: name.to_owned(), why: why.to_owned() }
}

fn missing_driver_info(key: &str, why: &str) -> DriverError {
    DriverError::MissingParameter { name: format!("driver_info/{key}"), why: why.to_owned() }
}

fn invalid_kernel_parameters(error: &KernelParameterError) -> DriverError {
    invalid_parameter("kernel_append_params", &error.to_string())
}
