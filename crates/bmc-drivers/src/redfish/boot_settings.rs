// SPDX-License-Identifier: Apache-2.0
//! Where a machine boots from, and in which mode: the `Boot` object of its System.
//!
//! BMCs differ in what they take: some want only what changes, some want everything at once, some
//! have no lasting override, some want the change on a settings object beside the System. So a
//! change is a list of attempts, the plainest first; what a BMC refuses leads to the next.

use std::time::Duration;

use node_model::JsonObject;
use redfish::Resource;
use serde_json::{Map, Value, json};

use super::bmc::Bmc;
use super::connections::Connections;
use super::patience::{Retries, is_busy, is_refusal};
use super::quirks::Behaviour;
use crate::{BootDevice, BootDeviceSetting, BootMode, Error, NodeChanges, Target};

/// The devices a machine can boot from, with their names in Redfish.
const DEVICES: &[(BootDevice, &str)] = &[
    (BootDevice::Pxe, "Pxe"),
    (BootDevice::Disk, "Hdd"),
    (BootDevice::Cdrom, "Cd"),
    (BootDevice::Bios, "BiosSetup"),
    (BootDevice::UefiHttp, "UefiHttp"),
];

/// The same devices, by themselves.
pub(super) const SUPPORTED: &[BootDevice] =
    &[BootDevice::Pxe, BootDevice::Disk, BootDevice::Cdrom, BootDevice::Bios, BootDevice::UefiHttp];

/// Modes with their names in Redfish.
const MODES: &[(BootMode, &str)] = &[(BootMode::Bios, "Legacy"), (BootMode::Uefi, "UEFI")];

/// The key of `driver_internal_info` for a device that is to last on a BMC whose overrides do not.
const LASTING_DEVICE: &str = "redfish_boot_device";
/// The key of `driver_internal_info` for the address the next UEFI HTTP boot loads from.
const HTTP_BOOT_URL: &str = "redfish_uefi_http_url";

const TARGET: &str = "BootSourceOverrideTarget";
const ENABLED: &str = "BootSourceOverrideEnabled";
const MODE: &str = "BootSourceOverrideMode";
const HTTP_URI: &str = "HttpBootUri";

const ONCE: &str = "Once";
const CONTINUOUS: &str = "Continuous";

/// Where the machine boots from next.
pub(super) fn device(system: &Resource) -> BootDeviceSetting {
    let device = match text(system, TARGET) {
        // Virtual media appear as a CD on USB on some machines.
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

/// The mode the machine's firmware boots in, if the BMC says.
pub(super) fn mode(system: &Resource) -> Option<BootMode> {
    let name = text(system, MODE)?;
    MODES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name)).map(|(mode, _)| *mode)
}

/// Makes the machine boot from `device`, once or from now on.
pub(super) async fn set_device(
    connections: &Connections,
    bmc: &Bmc,
    target: &Target<'_>,
    device: BootDevice,
    persistent: bool,
) -> Result<NodeChanges, Error> {
    let system = bmc.system().await?;
    let behaviour = connections.quirks.of(target.node, &system).behaviour;
    let name = device_name(&system, &behaviour, device)?;
    let memory = Memory::of(&target.node.driver_internal_info);
    let url = memory.http_url.as_deref().filter(|_| device == BootDevice::UefiHttp);
    let attempts = device_attempts(&system, &behaviour, name, persistent, url);
    let taken = send(bmc, &system, &attempts).await?;
    let lasts = match taken.duration {
        ONCE => false,
        _ => persistent && !was_shortened(bmc, name).await,
    };
    Ok(memory.after(device, persistent && !lasts))
}

/// Sets a lasting device again, on a BMC whose overrides do not last. It is called before whatever
/// starts the machine; if it fails the machine starts all the same, from what its firmware has.
pub(super) async fn restore(
    connections: &Connections,
    bmc: &Bmc,
    target: &Target<'_>,
    system: &Resource,
) {
    let memory = Memory::of(&target.node.driver_internal_info);
    let Some(device) = memory.lasting else { return };
    let behaviour = connections.quirks.of(target.node, system).behaviour;
    let restored = match device_name(system, &behaviour, device) {
        Ok(name) => {
            let attempts = device_attempts(system, &behaviour, name, false, None);
            send(bmc, system, &attempts).await.map(drop)
        }
        Err(error) => Err(error),
    };
    if let Err(error) = restored {
        tracing::warn!(
            node = %target.node.id, %device, %error,
            "the boot device could not be set again; the machine starts as its firmware has it"
        );
    }
}

/// Asks for `mode`. Whether it is there at once or after a reboot is for the caller to see.
pub(super) async fn set_mode(
    connections: &Connections,
    bmc: &Bmc,
    target: &Target<'_>,
    system: &Resource,
    mode: BootMode,
) -> Result<(), Error> {
    let name = MODES.iter().find(|(known, _)| *known == mode).map_or("UEFI", |(_, name)| *name);
    let known = allowable(system, MODE);
    if !known.is_empty() && !known.contains(&name) {
        let known = known.join(", ");
        return Err(bmc.failed(format!("the BMC has only these boot modes: {known}")));
    }
    let behaviour = connections.quirks.of(target.node, system).behaviour;
    send(bmc, system, &mode_attempts(system, &behaviour, name)).await.map(drop)
}

/// What is remembered about the boot device.
#[derive(Debug, Default, PartialEq, Eq)]
struct Memory {
    lasting: Option<BootDevice>,
    has_lasting: bool,
    http_url: Option<String>,
}

impl Memory {
    fn of(info: &JsonObject) -> Self {
        // Most machines have neither, and parsing is not free: look for the letters first.
        if !info.as_str().contains("\"redfish_") {
            return Self::default();
        }
        let mut info = info.parse();
        let lasting = info.remove(LASTING_DEVICE);
        let http_url = match info.remove(HTTP_BOOT_URL) {
            Some(Value::String(url)) => Some(url),
            Some(_) | None => None,
        };
        Self {
            has_lasting: lasting.is_some(),
            lasting: lasting.as_ref().and_then(Value::as_str).and_then(|name| name.parse().ok()),
            http_url,
        }
    }

    /// What to remember once `device` is set: it, if it has to be set again before each start.
    fn after(&self, device: BootDevice, again: bool) -> NodeChanges {
        let mut changes = NodeChanges::none();
        if again {
            changes = changes.and(NodeChanges::remember(LASTING_DEVICE, device.as_str()));
        } else if self.has_lasting {
            changes = changes.and(NodeChanges::remember(LASTING_DEVICE, Value::Null));
        }
        if self.http_url.is_some() {
            changes = changes.and(NodeChanges::remember(HTTP_BOOT_URL, Value::Null));
        }
        changes
    }
}

/// One way to ask for a change.
#[derive(Debug, PartialEq)]
struct Attempt {
    boot: Map<String, Value>,
    /// For how long the device is asked for; empty if no device is.
    duration: &'static str,
}

/// The name the BMC has for `device`.
fn device_name<'a>(
    system: &'a Resource,
    behaviour: &'a Behaviour,
    device: BootDevice,
) -> Result<&'a str, Error> {
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
                "this machine cannot boot from '{device}'; it can from: {}",
                offered.join(", ")
            );
            Err(Error::invalid("boot_device", why))
        }
    }
}

/// The ways to ask for a device, best first.
fn device_attempts(
    system: &Resource,
    behaviour: &Behaviour,
    name: &str,
    persistent: bool,
    http_url: Option<&str>,
) -> Vec<Attempt> {
    let durations = allowable(system, ENABLED);
    let can_last = !behaviour.boot_once_only.unwrap_or(false)
        && (durations.is_empty() || durations.contains(&CONTINUOUS));
    let durations: &[&'static str] =
        if persistent && can_last { &[CONTINUOUS, ONCE] } else { &[ONCE] };
    let always = behaviour.boot_always_send.as_deref().unwrap_or_default();
    let always = |key: &str| always.iter().any(|name| name == key);
    let mut attempts = Vec::new();
    for duration in durations {
        let mut plain = Map::new();
        plain.insert(TARGET.to_owned(), json!(name));
        match http_url {
            Some(url) => drop(plain.insert(HTTP_URI.to_owned(), json!(url))),
            None if has_http_uri(system) => drop(plain.insert(HTTP_URI.to_owned(), Value::Null)),
            None => {}
        }
        let mut whole = plain.clone();
        whole.insert(ENABLED.to_owned(), json!(duration));
        let mode = text(system, MODE);
        if mode.is_some() || always(MODE) {
            whole.insert(MODE.to_owned(), json!(mode.unwrap_or("UEFI")));
        }
        // Some BMCs refuse a duration that stays the same, others a change without one.
        if always(ENABLED) || text(system, ENABLED) != Some(duration) {
            plain.insert(ENABLED.to_owned(), json!(duration));
        }
        if always(MODE) {
            plain.insert(MODE.to_owned(), json!(mode.unwrap_or("UEFI")));
        }
        push(&mut attempts, plain, duration);
        push(&mut attempts, whole, duration);
    }
    attempts
}

/// The ways to ask for a mode, best first.
fn mode_attempts(system: &Resource, behaviour: &Behaviour, name: &str) -> Vec<Attempt> {
    let plain = Map::from_iter([(MODE.to_owned(), json!(name))]);
    let mut whole = plain.clone();
    whole.insert(ENABLED.to_owned(), json!(text(system, ENABLED).unwrap_or(ONCE)));
    whole.insert(TARGET.to_owned(), json!(text(system, TARGET).unwrap_or("Pxe")));
    let mut attempts = Vec::new();
    if behaviour.boot_always_send.as_deref().unwrap_or_default().is_empty() {
        push(&mut attempts, plain, "");
    }
    push(&mut attempts, whole, "");
    attempts
}

fn push(attempts: &mut Vec<Attempt>, boot: Map<String, Value>, duration: &'static str) {
    let attempt = Attempt { boot, duration };
    if !attempts.contains(&attempt) {
        attempts.push(attempt);
    }
}

/// Sends the attempts until the BMC takes one. Each is sent to the settings object first, where
/// there is one with these settings, and then to the System itself.
async fn send<'a>(
    bmc: &Bmc,
    system: &Resource,
    attempts: &'a [Attempt],
) -> Result<&'a Attempt, Error> {
    let settings = settings_object(bmc, system).await;
    let mut retries = Retries::SELF_TEST;
    let mut refused = None;
    for attempt in attempts {
        let body = json!({ "Boot": attempt.boot });
        for place in settings.iter().chain([system]) {
            match patch(bmc, place, &body, &mut retries).await {
                Ok(()) => return Ok(attempt),
                Err(error) if is_refusal(&error) => refused = Some(error),
                Err(error) => return Err(bmc.explain(error)),
            }
        }
    }
    Err(match refused {
        Some(error) => bmc.explain(error),
        None => bmc.failed("there is no way to ask this BMC for it"),
    })
}

/// Sends one change, again while the BMC takes none because the machine tests itself.
async fn patch(
    bmc: &Bmc,
    place: &Resource,
    body: &Value,
    retries: &mut Retries,
) -> Result<(), redfish::Error> {
    loop {
        let patched = bmc.client().patch(&place.path, body, place.etag.as_deref()).await;
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

/// The object beside the System that takes changes for the next start, if it has boot settings.
async fn settings_object(bmc: &Bmc, system: &Resource) -> Option<Resource> {
    let path = system.link("/@Redfish.Settings/SettingsObject")?;
    let settings = bmc.client().get(path).await.ok()?;
    text(&settings, TARGET)?;
    Some(settings)
}

/// Whether a BMC that took a lasting device made it a passing one.
async fn was_shortened(bmc: &Bmc, name: &str) -> bool {
    match bmc.system().await {
        Ok(system) => text(&system, TARGET) == Some(name) && text(&system, ENABLED) == Some(ONCE),
        // It was taken; that it cannot be looked at now does not undo it.
        Err(_) => false,
    }
}

fn text<'a>(system: &'a Resource, key: &str) -> Option<&'a str> {
    system.at("/Boot")?.get(key)?.as_str()
}

fn allowable<'a>(system: &'a Resource, key: &str) -> Vec<&'a str> {
    system.texts(&format!("/Boot/{key}@Redfish.AllowableValues"))
}

/// Whether an address to boot from is set. An emulator says "None" for none.
fn has_http_uri(system: &Resource) -> bool {
    text(system, HTTP_URI).is_some_and(|uri| !uri.is_empty() && uri != "None")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(boot: Value) -> Resource {
        let body = json!({ "Boot": boot });
        Resource { path: "/redfish/v1/Systems/1".to_owned(), etag: None, body }
    }

    fn sent(attempts: &[Attempt]) -> Vec<String> {
        attempts.iter().map(|attempt| Value::Object(attempt.boot.clone()).to_string()).collect()
    }

    #[test]
    fn reading() {
        for (boot, device_seen, persistent, mode_seen) in [
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
            let seen = BootDeviceSetting { device: device_seen, persistent };
            assert_eq!(device(&system), seen, "{boot}");
            assert_eq!(mode(&system), mode_seen, "{boot}");
        }
    }

    #[test]
    fn every_supported_device_has_a_name() {
        let named: Vec<_> = DEVICES.iter().map(|(device, _)| *device).collect();
        assert_eq!(named, SUPPORTED);
    }

    #[test]
    fn a_device_is_asked_for_plainly_first() {
        let plain = Behaviour::default();
        let off = system(json!({TARGET: "None", ENABLED: "Disabled", MODE: "UEFI"}));
        assert_eq!(
            sent(&device_attempts(&off, &plain, "Pxe", false, None)),
            [
                r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Pxe"}"#,
                r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Pxe"}"#,
            ]
        );
        let once = system(json!({TARGET: "Pxe", ENABLED: "Once"}));
        assert_eq!(
            sent(&device_attempts(&once, &plain, "Hdd", false, None)),
            [
                r#"{"BootSourceOverrideTarget":"Hdd"}"#,
                r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Hdd"}"#,
            ]
        );
        // What cannot last is asked for once, and remembered by the caller.
        assert_eq!(
            sent(&device_attempts(&system(json!({})), &plain, "Hdd", true, None)),
            [
                r#"{"BootSourceOverrideEnabled":"Continuous","BootSourceOverrideTarget":"Hdd"}"#,
                r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideTarget":"Hdd"}"#,
            ]
        );
        let only_once =
            system(json!({"BootSourceOverrideEnabled@Redfish.AllowableValues": ["Once"]}));
        let attempts = device_attempts(&only_once, &plain, "Hdd", true, None);
        assert!(attempts.iter().all(|attempt| attempt.duration == ONCE), "{attempts:?}");
        let forgets = Behaviour { boot_once_only: Some(true), ..Behaviour::default() };
        let attempts = device_attempts(&off, &forgets, "Hdd", true, None);
        assert!(attempts.iter().all(|attempt| attempt.duration == ONCE), "{attempts:?}");
    }

    #[test]
    fn some_bmcs_want_everything_at_once() {
        let all = Behaviour {
            boot_always_send: Some(vec![ENABLED.to_owned(), MODE.to_owned()]),
            ..Behaviour::default()
        };
        let once = system(json!({TARGET: "Pxe", ENABLED: "Once"}));
        let whole = r#"{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Pxe"}"#;
        assert_eq!(sent(&device_attempts(&once, &all, "Pxe", false, None)), [whole]);
        assert_eq!(sent(&mode_attempts(&once, &all, "UEFI")), [whole]);
        assert_eq!(
            sent(&mode_attempts(&once, &Behaviour::default(), "UEFI")),
            [r#"{"BootSourceOverrideMode":"UEFI"}"#, whole]
        );
    }

    #[test]
    fn an_address_to_boot_from_is_set_and_cleared() {
        let plain = Behaviour::default();
        let first = |system: &Resource, url| {
            let attempts = device_attempts(system, &plain, "UefiHttp", false, url);
            attempts[0].boot.get(HTTP_URI).cloned()
        };
        let none = system(json!({"HttpBootUri": "None"}));
        let some = system(json!({"HttpBootUri": "http://192.0.2.1/old"}));
        assert_eq!(first(&none, None), None);
        assert_eq!(first(&some, None), Some(Value::Null));
        assert_eq!(first(&some, Some("http://192.0.2.1/new")), Some(json!("http://192.0.2.1/new")));
    }

    #[test]
    fn names_depend_on_what_the_bmc_offers() {
        let plain = Behaviour::default();
        let instead = Behaviour {
            boot_device_names: Some([("Cd".to_owned(), "UsbCd".to_owned())].into()),
            ..Behaviour::default()
        };
        let key = "BootSourceOverrideTarget@Redfish.AllowableValues";
        let name = |boot: Value, behaviour: &Behaviour, device| {
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
    fn what_does_not_last_is_remembered_and_forgotten() {
        let remembers = JsonObject::from_stored(r#"{"redfish_boot_device":"disk","x":1}"#);
        let memory = Memory::of(&remembers);
        assert_eq!(memory.lasting, Some(BootDevice::Disk));
        let forget = memory.after(BootDevice::Pxe, false);
        assert_eq!(forget, NodeChanges::remember(LASTING_DEVICE, Value::Null));
        assert!(Memory::default().after(BootDevice::Pxe, false).is_empty());
        assert_eq!(
            Memory::default().after(BootDevice::Disk, true),
            NodeChanges::remember(LASTING_DEVICE, "disk")
        );
        let url = JsonObject::from_stored(r#"{"redfish_uefi_http_url":"http://x/"}"#);
        assert_eq!(
            Memory::of(&url).after(BootDevice::Pxe, false),
            NodeChanges::remember(HTTP_BOOT_URL, Value::Null)
        );
    }
}
