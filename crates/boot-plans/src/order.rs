// SPDX-License-Identifier: Apache-2.0
//! What a node says is to be booted: from its fields and the settings to a system, without IO.

use bmc_drivers::{Error, Target};
use node_model::{BootImage, BootPurpose, BootSystem, BootWay, JsonObject};
use serde_json::{Map, Value};

use crate::installer::Order;
use crate::parameters::{self, ParameterError};
use crate::settings::Settings;

/// Where the agent finds us.
#[derive(Debug, Clone)]
pub(crate) struct Home<'a> {
    /// The API.
    pub(crate) api_url: &'a str,
    /// Its token, where it gets one on its way.
    pub(crate) token: Option<&'a str>,
    /// The files of the plan.
    pub(crate) files: &'a str,
}

/// What the node says is to be booted.
pub(crate) fn system(
    target: &Target<'_>,
    settings: &Settings,
    home: &Home<'_>,
    way: BootWay,
    purpose: BootPurpose,
) -> Result<BootSystem, Error> {
    let by_network = way != BootWay::VirtualMedia;
    if by_network && !target.ports.iter().any(|port| port.pxe_enabled) {
        return Err(Error::MissingParameter {
            name: "ports".to_owned(),
            why: "a machine that boots from the network is known by its cards; create a port with \
                  the MAC address of one that it boots from (pxe_enabled)"
                .to_owned(),
        });
    }
    let found = match purpose {
        BootPurpose::DeployRamdisk
        | BootPurpose::InspectionRamdisk
        | BootPurpose::RescueRamdisk => ramdisk(target, settings, home, way, purpose)?,
        BootPurpose::Installer => installer(target, settings, home, way)?,
        BootPurpose::Instance => instance(target, settings, way)?,
    };
    match (&found, way) {
        (BootSystem::Iso { .. }, BootWay::Pxe) => Err(invalid(
            "boot_interface",
            "the boot loaders of 'pxe' cannot boot an ISO image; use ipxe, http or \
             redfish-virtual-media, or give a kernel and a ramdisk",
        )),
        (BootSystem::Kernel { parameters, .. }, _) => {
            parameters::line(parameters).map_err(|error| wrong_parameters(&error))?;
            Ok(found)
        }
        (BootSystem::Iso { .. }, _) => Ok(found),
    }
}

fn ramdisk(
    target: &Target<'_>,
    settings: &Settings,
    home: &Home<'_>,
    way: BootWay,
    purpose: BootPurpose,
) -> Result<BootSystem, Error> {
    let rescue = purpose == BootPurpose::RescueRamdisk;
    if way == BootWay::VirtualMedia {
        let key = if rescue { "rescue_iso" } else { "deploy_iso" };
        if let Some(image) = image(target, key)? {
            return Ok(BootSystem::Iso { image });
        }
    }
    let (kernel, ramdisk) = ramdisk_images(target, settings, rescue)?;
    let of_node = append_params(target)?;
    let mut parameters = parameters::of_ramdisk(&settings.kernel_append_params, of_node)
        .map_err(|error| wrong_parameters(&error))?;
    parameters.push(format!("ipa-api-url={}", home.api_url));
    // Our own agent says there what it does; others do not know the parameter.
    parameters
        .push(format!("ferrite-log-url={}/v1/ferrite/agents/{}/log", home.api_url, target.node.id));
    if purpose == BootPurpose::InspectionRamdisk {
        parameters
            .push(format!("ipa-inspection-callback-url={}/v1/continue_inspection", home.api_url));
        let more = parameters::split(&settings.inspection_kernel_params);
        parameters.extend(more.map_err(|error| wrong_parameters(&error))?);
    }
    if let Some(token) = home.token {
        parameters.push(format!("ipa-agent-token={token}"));
    }
    parameters.extend(card(target, way));
    let mut network_data = JsonObject::empty();
    if way == BootWay::VirtualMedia {
        parameters.push("boot_method=vmedia".to_owned());
        parameters.push(format!("ir_pub_id={}", target.node.id));
        network_data = target.node.network_data.clone();
    }
    Ok(BootSystem::Kernel { kernel, ramdisk, parameters, network_data })
}

/// The parameter with the card, where no boot loader adds it and there is only one.
fn card(target: &Target<'_>, way: BootWay) -> Option<String> {
    let no_loader_tells = matches!(way, BootWay::VirtualMedia | BootWay::Http);
    let mut cards = target.ports.iter().filter(|port| port.pxe_enabled);
    match (no_loader_tells, cards.next(), cards.next()) {
        (true, Some(only), None) => Some(format!("BOOTIF={}", only.address)),
        (_, _, _) => None,
    }
}

fn installer(
    target: &Target<'_>,
    settings: &Settings,
    home: &Home<'_>,
    way: BootWay,
) -> Result<BootSystem, Error> {
    let of_instance = |key: &str| image_in(target.instance_info, "instance_info", key);
    let needed = |key: &str| {
        of_instance(key)?.ok_or_else(|| {
            let why = format!("the installer has to be booted; give the URL of its {key}");
            missing_in_instance(key, &why)
        })
    };
    let (kernel, ramdisk) = (needed("kernel")?, needed("ramdisk")?);
    let order = Order::of(target)?;
    let given = append_params(target)?;
    let mut parameters = vec!["text".to_owned()];
    parameters.extend(
        parameters::of_instance(&settings.kernel_append_params, given)
            .map_err(|error| wrong_parameters(&error))?,
    );
    parameters.extend(order.parameters(home));
    parameters.extend(card(target, way));
    Ok(BootSystem::Kernel { kernel, ramdisk, parameters, network_data: JsonObject::empty() })
}

fn append_params<'a>(target: &Target<'a>) -> Result<Option<&'a str>, Error> {
    let key = "kernel_append_params";
    let of_instance = text(target.instance_info, "instance_info", key)?;
    Ok(of_instance.or(text(target.driver_info, "driver_info", key)?))
}

/// Kernel and ramdisk belong together: both of the node, or both of the settings.
fn ramdisk_images(
    target: &Target<'_>,
    settings: &Settings,
    rescue: bool,
) -> Result<(BootImage, BootImage), Error> {
    let (kernel_key, ramdisk_key) = if rescue {
        ("rescue_kernel", "rescue_ramdisk")
    } else {
        ("deploy_kernel", "deploy_ramdisk")
    };
    match (image(target, kernel_key)?, image(target, ramdisk_key)?) {
        (Some(kernel), Some(ramdisk)) => return Ok((kernel, ramdisk)),
        (None, None) => {}
        (Some(_), None) => return Err(missing(ramdisk_key, "there is only a kernel")),
        (None, Some(_)) => return Err(missing(kernel_key, "there is only a ramdisk")),
    }
    if rescue
        && let (Some(kernel), Some(ramdisk)) = (&settings.rescue_kernel, &settings.rescue_ramdisk)
    {
        return Ok((configured(kernel), configured(ramdisk)));
    }
    let arch = target.node.properties.get_str("cpu_arch").unwrap_or_default();
    let kernel = settings.deploy_kernel_by_arch.get(&arch).or(settings.deploy_kernel.as_ref());
    let ramdisk = settings.deploy_ramdisk_by_arch.get(&arch).or(settings.deploy_ramdisk.as_ref());
    match (kernel, ramdisk) {
        (Some(kernel), Some(ramdisk)) => Ok((configured(kernel), configured(ramdisk))),
        (None, _) => Err(missing(
            kernel_key,
            "the agent has to be booted; give the URL of its kernel, or configure boot.deploy_kernel",
        )),
        (Some(_), None) => Err(missing(
            ramdisk_key,
            "the agent has to be booted; give the URL of its ramdisk, or configure \
             boot.deploy_ramdisk",
        )),
    }
}

fn instance(target: &Target<'_>, settings: &Settings, way: BootWay) -> Result<BootSystem, Error> {
    let drive = target.instance_info.get("configdrive");
    let has_drive = drive.is_some_and(|drive| !drive.is_null() && drive != "");
    if has_drive && way != BootWay::VirtualMedia {
        return Err(invalid(
            "instance_info/configdrive",
            "an instance that lives in memory and boots from the network cannot have one: whoever \
             is on that network could read it; use redfish-virtual-media, or leave it out",
        ));
    }
    let of_instance = |key: &str| image_in(target.instance_info, "instance_info", key);
    if let Some(image) = of_instance("boot_iso")? {
        return Ok(BootSystem::Iso { image });
    }
    match (of_instance("kernel")?, of_instance("ramdisk")?) {
        (Some(kernel), Some(ramdisk)) => {
            let given = text(target.instance_info, "instance_info", "ramdisk_kernel_arguments")?
                .or(text(target.instance_info, "instance_info", "kernel_append_params")?);
            let parameters = parameters::of_instance(&settings.kernel_append_params, given)
                .map_err(|error| wrong_parameters(&error))?;
            let network_data = target.node.network_data.clone();
            Ok(BootSystem::Kernel { kernel, ramdisk, parameters, network_data })
        }
        (Some(_), None) => Err(missing_in_instance("ramdisk", "there is only a kernel")),
        (None, Some(_)) => Err(missing_in_instance("kernel", "there is only a ramdisk")),
        (None, None) => Err(missing_in_instance(
            "kernel",
            "an instance that lives in memory boots kernel and ramdisk, or boot_iso; give one of them",
        )),
    }
}

pub(crate) fn missing_in_instance(key: &str, why: &str) -> Error {
    Error::MissingParameter { name: format!("instance_info/{key}"), why: why.to_owned() }
}

/// An image that the instance or else the node names.
fn image(target: &Target<'_>, key: &str) -> Result<Option<BootImage>, Error> {
    match image_in(target.instance_info, "instance_info", key)? {
        Some(image) => Ok(Some(image)),
        None => image_in(target.driver_info, "driver_info", key),
    }
}

pub(crate) fn image_in(
    object: &Map<String, Value>,
    name: &str,
    key: &str,
) -> Result<Option<BootImage>, Error> {
    let Some(source) = text(object, name, key)? else { return Ok(None) };
    if !is_for_bmcs(source) {
        images::Source::parse(source)
            .map_err(|error| invalid(&format!("{name}/{key}"), &error.to_string()))?;
    }
    let checksum = text(object, name, &format!("{key}_checksum"))?;
    if let Some(checksum) = checksum {
        images::Expected::parse(checksum)
            .map_err(|error| invalid(&format!("{name}/{key}_checksum"), &error.to_string()))?;
    }
    Ok(Some(BootImage {
        source: source.to_owned(),
        checksum: checksum.map(str::to_owned),
        pull_secret: text(object, name, "image_pull_secret")?.map(str::to_owned),
    }))
}

/// Whether only a BMC can fetch it.
pub(crate) fn is_for_bmcs(source: &str) -> bool {
    let scheme = source.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("nfs" | "cifs" | "smb"))
}

fn configured(source: &str) -> BootImage {
    BootImage { source: source.to_owned(), checksum: None, pull_secret: None }
}

pub(crate) fn text<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    key: &str,
) -> Result<Option<&'a str>, Error> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(invalid(&format!("{name}/{key}"), "it must be text"))
        }
    }
}

pub(crate) fn invalid(name: &str, why: &str) -> Error {
    Error::InvalidParameter { name: name.to_owned(), why: why.to_owned() }
}

fn missing(key: &str, why: &str) -> Error {
    Error::MissingParameter { name: format!("driver_info/{key}"), why: why.to_owned() }
}

fn wrong_parameters(error: &ParameterError) -> Error {
    invalid("kernel_append_params", &error.to_string())
}
