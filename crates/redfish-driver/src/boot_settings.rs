// SPDX-License-Identifier: Apache-2.0
//! Boot device and boot mode: the `Boot` object of the System.
//!
//! BMCs differ in what they accept: some only changed values, some all values at once, some have no
//! persistent override, some expect the change on a settings object beside the System. So a change
//! is a list of PATCH bodies, the plainest first; after a refusal the next is sent.

use std::time::Duration;

use drivers::{BootDevice, BootDeviceSetting, BootMode, DriverError, DriverTarget, NodeChanges};
use node_model::JsonObject;
use redfish::RedfishResource;
use serde_json::{Map, Value, json};

use super::bmc::RedfishBmc;
use super::connections::RedfishConnections;
use super::quirks::QuirkBehaviour;
use super::retries::{RetryBudget, is_busy, is_refusal};

/// The supported boot devices with their Redfish names.
const DEVICES: &[(BootDevice, &str)] = &[
    (BootDevice::Pxe, "Pxe"),
    (BootDevice::Disk, "Hdd"),
    (BootDevice::Cdrom, "Cd"),
    (BootDevice::Bios, "BiosSetup"),
    (BootDevice::UefiHttp, "UefiHttp"),
];

/// The devices of [`DEVICES`] without names.
pub(super) const SUPPORTED: &[BootDevice] =
    &[BootDevice::Pxe, BootDevice::Disk, BootDevice::Cdrom, BootDevice::Bios, BootDevice::UefiHttp];

/// Boot modes with their Redfish names.
const MODES: &[(BootMode, &str)] = &[(BootMode::Bios, "Legacy"), (BootMode::Uefi, "UEFI")];

/// The key of `driver_internal_info` for a persistent device on BMCs without persistent overrides.
const PERSISTENT_DEVICE_KEY: &str = "redfish_boot_device";
/// The key of `driver_internal_info` for the URL of the next UEFI HTTP boot.
const HTTP_BOOT_URL_KEY: &str = "redfish_uefi_http_url";

const TARGET: &str = "BootSourceOverrideTarget";
const ENABLED: &str = "BootSourceOverrideEnabled";
const MODE: &str = "BootSourceOverrideMode";
const HTTP_URI: &str = "HttpBootUri";

const ONCE: &str = "Once";
const CONTINUOUS: &str = "Continuous";

/// Returns the boot device of the machine.
pub(super) fn device(system: &RedfishResource) -> BootDeviceSetting {
    let device = match text(system, TARGET) {
        // Some machines present virtual media as a CD on USB.
        Some("UsbCd") => Some(BootDevice::Cdrom),
        Some(name) => DEVICES.iter().find(|(_, known)| *known == name).map(|(device, _)| *device),
        None => None,
    };
    let persistent = match text(system, ENABLED) {
        Some(CONTINUOUS) => Some(true),
        Some(ONCE) => Some(false),
        Some(_) | None => None,
    };
    BootDeviceSetting { device, persistent }
}

/// Returns the boot mode, if the BMC reports it.
pub(super) fn mode(system: &RedfishResource) -> Option<BootMode> {
    let name = text(system, MODE)?;
    MODES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(mode, _)| *mode)
}

/// Sets the boot device, for the next boot or persistently.
pub(super) async fn set_device(
    connections: &RedfishConnections,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    device: BootDevice,
    persistent: bool,
) -> Result<NodeChanges, DriverError> {
    let stored = StoredBootDevice::parse(&target.node.driver_internal_info);
    let url = stored.http_url.as_deref().filter(|_| device == BootDevice::UefiHttp);
    change_device(connections, bmc, target, device, persistent, url).await
}

/// Makes the machine boot from `url` by UEFI HTTP, for the next boot or persistently.
pub(super) async fn set_http_boot(
    connections: &RedfishConnections,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    url: &str,
    persistent: bool,
) -> Result<NodeChanges, DriverError> {
    change_device(connections, bmc, target, BootDevice::UefiHttp, persistent, Some(url)).await
}

/// The changes to store after the boot device was set by other means: no device is set again later.
pub(super) fn forget_stored_device(target: &DriverTarget<'_>, device: BootDevice) -> NodeChanges {
    StoredBootDevice::parse(&target.node.driver_internal_info).changes_after(device, false)
}

async fn change_device(
    connections: &RedfishConnections,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    device: BootDevice,
    persistent: bool,
    http_url: Option<&str>,
) -> Result<NodeChanges, DriverError> {
    let system = bmc.system().await?;
    let behaviour = connections.quirks.for_node(target.node, &system).behaviour;
    let name = device_name(&system, &behaviour, device)?;
    let stored = StoredBootDevice::parse(&target.node.driver_internal_info);
    let patches = device_patches(&system, &behaviour, name, persistent, http_url);
    let accepted = send_first_accepted(bmc, &system, &patches).await?;
    let is_persistent = match accepted.duration {
        ONCE => false,
        _ => persistent && !was_reset_to_once(bmc, name).await,
    };
    Ok(stored.changes_after(device, persistent && !is_persistent))
}

/// Sets a persistent device again on BMCs without persistent overrides. Called before every start of
/// the machine. A failure is logged and the machine starts with the firmware's boot order.
pub(super) async fn restore_device(
    connections: &RedfishConnections,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    system: &RedfishResource,
) {
    let stored = StoredBootDevice::parse(&target.node.driver_internal_info);
    let Some(device) = stored.persistent_device else { return };
    let behaviour = connections.quirks.for_node(target.node, system).behaviour;
    let restored = match device_name(system, &behaviour, device) {
        Ok(name) => {
            // The URL stays on the BMC, so that the node need not store it.
            let url = text(system, HTTP_URI)
                .filter(|_| device == BootDevice::UefiHttp && has_http_uri(system));
            let patches = device_patches(system, &behaviour, name, false, url);
            send_first_accepted(bmc, system, &patches).await.map(drop)
        }
        Err(error) => Err(error),
    };
    if let Err(error) = restored {
        tracing::warn!(
            node = %target.node.id, %device, %error,
            "persistent boot device could not be restored"
        );
    }
}

/// Requests `mode`. The caller checks whether it takes effect at once or after a reboot.
pub(super) async fn set_mode(
    connections: &RedfishConnections,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    system: &RedfishResource,
    mode: BootMode,
) -> Result<(), DriverError> {
    let name = MODES.iter().find(|(known, _)| *known == mode).map_or("UEFI", |(_, name)| *name);
    let known = allowable(system, MODE);
    if !known.is_empty() && !known.contains(&name) {
        let known = known.join(", ");
        return Err(bmc.failed(format!("the BMC supports only these boot modes: {known}")));
    }
    let behaviour = connections.quirks.for_node(target.node, system).behaviour;
    send_first_accepted(bmc, system, &mode_patches(system, &behaviour, name)).await.map(drop)
}

/// The boot device data that is stored in `driver_internal_info`.
#[derive(Debug, Default, PartialEq, Eq)]
struct StoredBootDevice {
    persistent_device: Option<BootDevice>,
    has_persistent_device: bool,
    http_url: Option<String>,
}

impl StoredBootDevice {
    fn parse(info: &JsonObject) -> Self {
        // Most nodes store neither key; avoid parsing the JSON for them.
        if !info.as_str().contains("\"redfish_") {
            return Self::default();
        }
        let mut info = info.parse();
        let lasting = info.remove(PERSISTENT_DEVICE_KEY);
        let http_url = match info.remove(HTTP_BOOT_URL_KEY) {
            Some(Value::String(url)) => Some(url),
            Some(_) | None => None,
        };
        Self {
            has_persistent_device: lasting.is_some(),
            persistent_device: lasting
                .as_ref()
                .and_then(Value::as_str)
                .and_then(|name| name.parse().ok()),
            http_url,
        }
    }

    /// The changes to store once `device` is set; `again` if it must be set before each start.
    fn changes_after(&self, device: BootDevice, again: bool) -> NodeChanges {
        let mut changes = NodeChanges::none();
        if again {
            changes =
                changes.and(NodeChanges::internal_info(PERSISTENT_DEVICE_KEY, device.as_str()));
        } else if self.has_persistent_device {
            changes = changes.and(NodeChanges::internal_info(PERSISTENT_DEVICE_KEY, Value::Null));
        }
        if self.http_url.is_some() {
            changes = changes.and(NodeChanges::internal_info(HTTP_BOOT_URL_KEY, Value::Null));
        }
        changes
    }
}

/// One form of a boot change.
#[derive(Debug, PartialEq)]
struct BootPatch {
    boot: Map<String, Value>,
    /// `BootSourceOverrideEnabled` of the change; empty if no device is set.
    duration: &'static str,
}

/// Returns the BMC's name of `device`.
fn device_name<'a>(
    system: &'a RedfishResource,
    behaviour: &'a QuirkBehaviour,
    device: BootDevice,
) -> Result<&'a str, DriverError> {
    let known = allowable(system, TARGET);
    let named = DEVICES.iter().find(|(known, _)| *known == device).map(|(_, name)| *name);
    let instead = named.and_then(|name| behaviour.boot_device_names.as_ref()?.get(name));
    if let Some(instead) = instead
        && known.contains(&instead.as_str())
    {
        return Ok(instead);
    }
    match named {
        Some(name) if known.is_empty() || known.contains(&name) => Ok(name),
        Some(_) | None => {
            let offered: Vec<_> = DEVICES
                .iter()
                .filter(|(_, name)| known.is_empty() || known.contains(name))
                .map(|(device, _)| device.as_str())
                .collect();
            let why = format!(
                "this machine cannot boot from '{device}'; supported: {}",
                offered.join(", ")
            );
            Err(DriverError::invalid("boot_device", why))
        }
    }
}

/// The forms of a device change, best first.
fn device_patches(
    system: &RedfishResource,
    behaviour: &QuirkBehaviour,
    name: &str,
    persistent: bool,
    http_url: Option<&str>,
) -> Vec<BootPatch> {
    let durations = allowable(system, ENABLED);
    let can_last = !behaviour.boot_once_only.unwrap_or(false)
        && (durations.is_empty() || durations.contains(&CONTINUOUS));
    let durations: &[&'static str] =
        if persistent && can_last { &[CONTINUOUS, ONCE] } else { &[ONCE] };
    let always = behaviour.boot_override_always_include.as_deref().unwrap_or_default();
    let always = |key: &str| always.iter().any(|name| name == key);
    let mut patches = Vec::new();
    for duration in durations {
        let mut plain = Map::new();
        plain.insert(TARGET.to_owned(), json!(name));
        match http_url {
            Some(url) => drop(plain.insert(HTTP_URI.to_owned(), json!(url))),
            None if has_http_uri(system) => drop(plain.insert(HTTP_URI.to_owned(), Value::Null)),
            None => {}
        }
        let mut full = plain.clone();
        full.insert(ENABLED.to_owned(), json!(duration));
        let mode = text(system, MODE);
        if mode.is_some() || always(MODE) {
            full.insert(MODE.to_owned(), json!(mode.unwrap_or("UEFI")));
        }
        // Some BMCs reject an unchanged duration, others a change without one.
        if always(ENABLED) || text(system, ENABLED) != Some(duration) {
            plain.insert(ENABLED.to_owned(), json!(duration));
        }
        if always(MODE) {
            plain.insert(MODE.to_owned(), json!(mode.unwrap_or("UEFI")));
        }
        push_unique(&mut patches, plain, duration);
        push_unique(&mut patches, full, duration);
    }
    patches
}

/// The forms of a mode change, best first.
fn mode_patches(
    system: &RedfishResource,
    behaviour: &QuirkBehaviour,
    name: &str,
) -> Vec<BootPatch> {
    let plain = Map::from_iter([(MODE.to_owned(), json!(name))]);
    let mut full = plain.clone();
    full.insert(ENABLED.to_owned(), json!(text(system, ENABLED).unwrap_or(ONCE)));
    full.insert(TARGET.to_owned(), json!(text(system, TARGET).unwrap_or("Pxe")));
    let mut patches = Vec::new();
    if behaviour.boot_override_always_include.as_deref().unwrap_or_default().is_empty() {
        push_unique(&mut patches, plain, "");
    }
    push_unique(&mut patches, full, "");
    patches
}

fn push_unique(patches: &mut Vec<BootPatch>, boot: Map<String, Value>, duration: &'static str) {
    let candidate = BootPatch { boot, duration };
    if !patches.contains(&candidate) {
        patches.push(candidate);
    }
}

/// Sends the patches until the BMC accepts one. Each is sent to the settings object first, if it has
/// boot settings, and then to the System itself.
async fn send_first_accepted<'a>(
    bmc: &RedfishBmc,
    system: &RedfishResource,
    patches: &'a [BootPatch],
) -> Result<&'a BootPatch, DriverError> {
    let settings = settings_object(bmc, system).await;
    let mut retries = RetryBudget::SELF_TEST;
    let mut refusal = None;
    for candidate in patches {
        let body = json!({ "Boot": candidate.boot });
        for resource in settings.iter().chain([system]) {
            match patch(bmc, resource, &body, &mut retries).await {
                Ok(()) => return Ok(candidate),
                Err(error) if is_refusal(&error) => refusal = Some(error),
                Err(error) => return Err(bmc.explain(error)),
            }
        }
    }
    Err(match refusal {
        Some(error) => bmc.explain(error),
        None => bmc.failed("the BMC accepts no form of the change"),
    })
}

/// Sends one patch; retries while the BMC rejects changes during the power-on self-test.
async fn patch(
    bmc: &RedfishBmc,
    resource: &RedfishResource,
    body: &Value,
    retries: &mut RetryBudget,
) -> Result<(), redfish::RedfishError> {
    loop {
        let patched = bmc.client().patch(&resource.path, body, resource.etag.as_deref()).await;
        let error = match patched {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if !is_busy(&error) {
            return Err(error);
        }
        match retries.next(Duration::MAX) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(error),
        }
    }
}

/// Returns the settings object of the System, if it has boot settings.
async fn settings_object(bmc: &RedfishBmc, system: &RedfishResource) -> Option<RedfishResource> {
    let path = system.link("/@Redfish.Settings/SettingsObject")?;
    let settings = bmc.client().get(path).await.ok()?;
    text(&settings, TARGET)?;
    Some(settings)
}

/// Whether the BMC accepted a persistent device and reports it as `Once`.
async fn was_reset_to_once(bmc: &RedfishBmc, name: &str) -> bool {
    match bmc.system().await {
        Ok(system) => text(&system, TARGET) == Some(name) && text(&system, ENABLED) == Some(ONCE),
        // The change was accepted; a failed read does not undo it.
        Err(_) => false,
    }
}

fn text<'a>(system: &'a RedfishResource, key: &str) -> Option<&'a str> {
    system.at("/Boot")?.get(key)?.as_str()
}

fn allowable<'a>(system: &'a RedfishResource, key: &str) -> Vec<&'a str> {
    system.texts(&format!("/Boot/{key}@Redfish.AllowableValues"))
}

/// Whether an HTTP boot URL is set. An emulator reports "None" if there is none.
fn has_http_uri(system: &RedfishResource) -> bool {
    text(system, HTTP_URI).is_some_and(|uri| !uri.is_empty() && uri != "None")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(boot: Value) -> RedfishResource {
        let body = json!({ "Boot": boot });
        RedfishResource { path: "/redfish/v1/Systems/1".to_owned(), etag: None, body }
    }

    fn sent(patches: &[BootPatch]) -> Vec<String> {
        patches.iter().map(|candidate| Value::Object(candidate.boot.clone()).to_string()).collect()
    }

    #[test]
    fn reads_device_and_mode() {
        for (boot, expected_device, persistent, expected_mode) in [
            (
                json!({TARGET: "Pxe", ENABLED: "Once", MODE: "UEFI"}),
                Some(BootDevice::Pxe),
                Some(false),
                Some(BootMode::Uefi),
            ),
            (
                json!({TARGET: "Hdd", ENABLED: "Continuous", MODE: "Legacy"}),
                Some(BootDevice::Disk),
                Some(true),
                Some(BootMode::Bios),
            ),
            (json!({TARGET: "UsbCd"}), Some(BootDevice::Cdrom), None, None),
            (json!({TARGET: "None", ENABLED: "Disabled", MODE: null}), None, None, None),
            (json!({TARGET: 3}), None, None, None),
            (json!([]), None, None, None),
        ] {
            let system = system(boot.clone());
            let expected = BootDeviceSetting { device: expected_device, persistent };
            assert_eq!(device(&system), expected, "{boot}");
            assert_eq!(mode(&system), expected_mode, "{boot}");
        }
    }

    #[test]
    fn supported_devices_have_names() {
        let named: Vec<_> = DEVICES.iter().map(|(device, _)| *device).collect();
        assert_eq!(named, SUPPORTED);
    }

    #[test]
    fn sends_the_plainest_device_patch_first() {
        let plain = QuirkBehaviour::default();
        let off = system(json!({TARGET: "None", ENABLED: "Disabled", MODE: "UEFI"}));
        assert_eq!(
            sent(&device_patches(&off, &plain, "Pxe", false, None)),
            [
                r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Pxe"}"#,
                r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Pxe"}"#,
            ]
        );
        let once = system(json!({TARGET: "Pxe", ENABLED: "Once"}));
        assert_eq!(
            sent(&device_patches(&once, &plain, "Hdd", false, None)),
            [
                r#"{"BootSourceOverrideTarget":"Hdd"}"#,
                r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Hdd"}"#,
            ]
        );
        // A device that cannot be persistent is set once, and stored by the caller.
        assert_eq!(
            sent(&device_patches(&system(json!({})), &plain, "Hdd", true, None)),
            [
                r#"{"BootSourceOverrideEnabled":"Continuous","BootSourceOverrideTarget":"Hdd"}"#,
                r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Hdd"}"#,
            ]
        );
        let only_once =
            system(json!({"BootSourceOverrideEnabled@Redfish.AllowableValues": ["Once"]}));
        let patches = device_patches(&only_once, &plain, "Hdd", true, None);
        assert!(patches.iter().all(|candidate| candidate.duration == ONCE), "{patches:?}");
        let once_only = QuirkBehaviour { boot_once_only: Some(true), ..QuirkBehaviour::default() };
        let patches = device_patches(&off, &once_only, "Hdd", true, None);
        assert!(patches.iter().all(|candidate| candidate.duration == ONCE), "{patches:?}");
    }

    #[test]
    fn sends_all_keys_for_quirky_bmcs() {
        let all = QuirkBehaviour {
            boot_override_always_include: Some(vec![ENABLED.to_owned(), MODE.to_owned()]),
            ..QuirkBehaviour::default()
        };
        let once = system(json!({TARGET: "Pxe", ENABLED: "Once"}));
        let full = r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Pxe"}"#;
        assert_eq!(sent(&device_patches(&once, &all, "Pxe", false, None)), [full]);
        assert_eq!(sent(&mode_patches(&once, &all, "UEFI")), [full]);
        assert_eq!(
            sent(&mode_patches(&once, &QuirkBehaviour::default(), "UEFI")),
            [r#"{"BootSourceOverrideMode":"UEFI"}"#, full]
        );
    }

    #[test]
    fn sets_and_clears_http_boot_url() {
        let plain = QuirkBehaviour::default();
        let first = |system: &RedfishResource, url| {
            let patches = device_patches(system, &plain, "UefiHttp", false, url);
            patches[0].boot.get(HTTP_URI).cloned()
        };
        let none = system(json!({"HttpBootUri": "None"}));
        let some = system(json!({"HttpBootUri": "http://192.0.2.1/old"}));
        assert_eq!(first(&none, None), None);
        assert_eq!(first(&some, None), Some(Value::Null));
        assert_eq!(first(&some, Some("http://192.0.2.1/new")), Some(json!("http://192.0.2.1/new")));
    }

    #[test]
    fn uses_device_names_that_the_bmc_supports() {
        let plain = QuirkBehaviour::default();
        let instead = QuirkBehaviour {
            boot_device_names: Some([("Cd".to_owned(), "UsbCd".to_owned())].into()),
            ..QuirkBehaviour::default()
        };
        let key = "BootSourceOverrideTarget@Redfish.AllowableValues";
        let name = |boot: Value, behaviour: &QuirkBehaviour, device| {
            device_name(&system(boot), behaviour, device)
                .map(str::to_owned)
                .map_err(|error| error.to_string())
        };
        let cd = BootDevice::Cdrom;
        assert_eq!(name(json!({}), &plain, cd), Ok("Cd".to_owned()));
        assert_eq!(name(json!({}), &instead, cd), Ok("Cd".to_owned()));
        assert_eq!(name(json!({key: ["Cd", "UsbCd"]}), &instead, cd), Ok("UsbCd".to_owned()));
        assert_eq!(name(json!({key: ["Cd", "UsbCd"]}), &plain, cd), Ok("Cd".to_owned()));
        let error = name(json!({key: ["Pxe", "Hdd"]}), &plain, cd).unwrap_err();
        assert!(error.contains("'cdrom'") && error.contains("pxe, disk"), "{error}");
        assert!(name(json!({}), &plain, BootDevice::Wanboot).is_err());
    }

    #[test]
    fn stores_and_clears_the_persistent_device() {
        let info = JsonObject::from_stored(r#"{"redfish_boot_device":"disk","x":1}"#);
        let stored = StoredBootDevice::parse(&info);
        assert_eq!(stored.persistent_device, Some(BootDevice::Disk));
        let changes = stored.changes_after(BootDevice::Pxe, false);
        assert_eq!(changes, NodeChanges::internal_info(PERSISTENT_DEVICE_KEY, Value::Null));
        assert!(StoredBootDevice::default().changes_after(BootDevice::Pxe, false).is_empty());
        assert_eq!(
            StoredBootDevice::default().changes_after(BootDevice::Disk, true),
            NodeChanges::internal_info(PERSISTENT_DEVICE_KEY, "disk")
        );
        let url = JsonObject::from_stored(r#"{"redfish_uefi_http_url":"http://x/"}"#);
        assert_eq!(
            StoredBootDevice::parse(&url).changes_after(BootDevice::Pxe, false),
            NodeChanges::internal_info(HTTP_BOOT_URL_KEY, Value::Null)
        );
    }
}
