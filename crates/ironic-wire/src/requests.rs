// SPDX-License-Identifier: Apache-2.0
//! Small request bodies: power, console, boot mode, traits, VIFs, virtual media.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use node_model::PowerTarget;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::parse_object;
use crate::error::{WireError, excerpt};
use crate::names::{MAX_TRAITS, is_logical_name, trait_name, traits};
use crate::value::{
    SHORT_TEXT, ValueError, array, check_one_of, flag, integer, mac, mandatory_text,
    mandatory_uuid, text, unexpected_type, uuid,
};
use crate::version::ApiVersion;

/// The members of a body. Members that are not taken are rejected by `finish`.
pub(crate) struct BodyMembers(Map<String, Value>);

impl BodyMembers {
    pub(crate) fn parse(body: &[u8], what: &str) -> Result<Self, WireError> {
        parse_object(body, what).map(Self)
    }

    /// Removes and parses the member `name`; a missing one is parsed as null.
    pub(crate) fn take<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(Value) -> Result<T, ValueError>,
    ) -> Result<T, WireError> {
        read(self.0.remove(name).unwrap_or(Value::Null)).map_err(|error| error.in_field(name))
    }

    /// Removes and parses the member `name`; fails if it is missing or null.
    pub(crate) fn require<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(Value) -> Result<T, ValueError>,
    ) -> Result<T, WireError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Err(WireError::missing(name)),
            Some(value) => read(value).map_err(|error| error.in_field(name)),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether the member is given and not null.
    pub(crate) fn has_value(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| !value.is_null())
    }

    /// Rejects the remaining members.
    pub(crate) fn finish(&self) -> Result<(), WireError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        Err(WireError::unexpected(&names))
    }
}

/// `PUT …/states/power`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PowerChange {
    /// The target as sent, for messages.
    pub requested: String,
    /// The target; `None` if it is unknown, for which the response is [`WireError::invalid_state`].
    pub target: Option<PowerTarget>,
    /// Timeout in seconds.
    pub timeout: Option<u32>,
}

impl PowerChange {
    /// Parses the body.
    ///
    /// # Errors
    /// 400 for invalid members, 406 for soft targets and timeouts before 1.27.
    pub fn parse(body: &[u8], version: ApiVersion) -> Result<Self, WireError> {
        const SOFT_SINCE: u16 = 27;
        let mut members = BodyMembers::parse(body, "power")?;
        let requested = members.require("target", |value| mandatory_text(value, SHORT_TEXT))?;
        let timeout = members.take("timeout", |value| match value {
            Value::Null => Ok(None),
            given => match u32::try_from(integer(&given)?) {
                Ok(seconds) if seconds > 0 => Ok(Some(seconds)),
                Ok(_) | Err(_) => Err("timeout has to be positive integer".into()),
            },
        })?;
        members.finish()?;
        let target: Option<PowerTarget> = requested.parse().ok();
        if !version.has(SOFT_SINCE)
            && (timeout.is_some() || target.is_some_and(PowerTarget::is_soft))
        {
            return Err(WireError::too_new("soft power targets and timeouts", SOFT_SINCE));
        }
        Ok(Self { requested, target, timeout })
    }
}

/// `PUT …/management/boot_device`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootDeviceRequest {
    /// The device; the driver checks whether it supports it.
    pub boot_device: String,
    /// Whether it applies to all following boots.
    pub persistent: bool,
}

impl BootDeviceRequest {
    /// Parses the body.
    ///
    /// # Errors
    /// 400 for invalid members.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut members = BodyMembers::parse(body, "boot device")?;
        let boot_device =
            members.require("boot_device", |value| mandatory_text(value, SHORT_TEXT))?;
        let persistent =
            members.take("persistent", |value| argument_flag(&value))?.unwrap_or(false);
        members.finish()?;
        Ok(Self { boot_device, persistent })
    }
}

/// `POST …/vifs`.
#[derive(Clone, PartialEq, Debug)]
pub struct VifAttachment {
    /// Id of the virtual interface.
    pub id: String,
    /// The port to attach it to.
    pub port_uuid: Option<String>,
    /// The portgroup to attach it to.
    pub portgroup_uuid: Option<String>,
    /// The whole body.
    pub info: Map<String, Value>,
}

impl VifAttachment {
    /// Parses the body. Unknown members are kept for network drivers.
    ///
    /// # Errors
    /// 400 for invalid members, 406 for a choice of port before 1.67.
    pub fn parse(body: &[u8], version: ApiVersion) -> Result<Self, WireError> {
        const CHOICE_SINCE: u16 = 67;
        let info = parse_object(body, "VIF")?;
        let mut members = BodyMembers(info.clone());
        let id = members.require("id", |value| {
            let id = mandatory_text(value, SHORT_TEXT)?;
            if is_logical_name(&id) {
                Ok(id)
            } else {
                Err(format!("expected a UUID or name, got '{}'", excerpt(&id)).into())
            }
        })?;
        let port_uuid = members.take("port_uuid", |value| text(value, SHORT_TEXT))?;
        let portgroup_uuid = members.take("portgroup_uuid", |value| text(value, SHORT_TEXT))?;
        if !version.has(CHOICE_SINCE) && (port_uuid.is_some() || portgroup_uuid.is_some()) {
            return Err(WireError::too_new("port_uuid and portgroup_uuid", CHOICE_SINCE));
        }
        if port_uuid.is_some() && portgroup_uuid.is_some() {
            return Err(WireError::invalid("Cannot specify both port_uuid and portgroup_uuid"));
        }
        Ok(Self { id, port_uuid, portgroup_uuid, info })
    }
}

/// `POST …/vmedia`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualMedia {
    /// `cdrom`, `disk` or `floppy`.
    pub device_type: String,
    /// URL of the image.
    pub image_url: String,
    /// Who downloads it: `http` (the BMC), `local` (Ferrite) or `swift`.
    pub image_download_source: String,
}

/// The kinds of virtual media.
const MEDIA: [&str; 3] = ["cdrom", "disk", "floppy"];

impl VirtualMedia {
    /// Parses the body.
    ///
    /// # Errors
    /// 400 for invalid members.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        const SCHEMES: [&str; 5] = ["http", "https", "nfs", "cifs", "smb"];
        let mut members = BodyMembers::parse(body, "virtual media")?;
        let device_type = members.require("device_type", |value| enum_text(value, &MEDIA))?;
        let image_url = members.require("image_url", |value| {
            let url = mandatory_text(value, 65_535)?;
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            check_one_of(&scheme.to_ascii_lowercase(), &SCHEMES).map_err(|_| {
                ValueError::from(format!("unsupported or missing URL scheme '{}'", excerpt(scheme)))
            })?;
            Ok(url)
        })?;
        let image_download_source = if members.has("image_download_source") {
            members.take("image_download_source", |value| {
                enum_text(value, &["http", "local", "swift"])
            })?
        } else {
            "local".to_owned()
        };
        members.finish()?;
        Ok(Self { device_type, image_url, image_download_source })
    }

    /// The device types in `?device_types=` of a `DELETE`; all of them if none is named.
    ///
    /// # Errors
    /// 400 for unknown types.
    pub fn parse_device_types(list: Option<&str>) -> Result<Vec<String>, WireError> {
        let Some(list) = list.filter(|list| !list.is_empty()) else {
            return Ok(MEDIA.iter().map(|&kind| kind.to_owned()).collect());
        };
        list.split(',')
            .map(|kind| {
                check_one_of(kind.trim(), &MEDIA)
                    .map_err(|error| error.in_field("device_types"))?;
                Ok(kind.trim().to_owned())
            })
            .collect()
    }
}

/// `PUT …/states/console`: whether to enable it.
///
/// # Errors
/// 400 for invalid members.
pub fn parse_console(body: &[u8]) -> Result<bool, WireError> {
    parse_single_member(body, "console", "enabled", |value| {
        argument_flag(&value)?.ok_or_else(|| "expected a boolean".into())
    })
}

/// `PUT …/states/boot_mode`: `bios` or `uefi`.
///
/// # Errors
/// 400 for invalid members.
pub fn parse_boot_mode(body: &[u8]) -> Result<String, WireError> {
    parse_single_member(body, "boot mode", "target", |value| enum_text(value, &["bios", "uefi"]))
}

/// `PUT …/states/secure_boot`: whether to enable it.
///
/// # Errors
/// 400 for invalid members.
pub fn parse_secure_boot(body: &[u8]) -> Result<bool, WireError> {
    parse_single_member(body, "secure boot", "target", |value| {
        argument_flag(&value)?.ok_or_else(|| "expected a boolean".into())
    })
}

/// `PUT …/management/indicators/{indicator}`: the state.
///
/// # Errors
/// 400 for invalid members.
pub fn parse_indicator(body: &[u8]) -> Result<String, WireError> {
    parse_single_member(body, "indicator", "state", |value| {
        enum_text(value, &["on", "off", "blinking", "unknown"])
    })
}

/// `PUT …/maintenance`: the reason, if one is given. The body may be empty.
///
/// # Errors
/// 400 for invalid members.
pub fn parse_maintenance(body: &[u8]) -> Result<Option<String>, WireError> {
    let mut members = BodyMembers::parse(body, "maintenance")?;
    let reason = members.take("reason", |value| text(value, 65_535))?;
    members.finish()?;
    Ok(reason)
}

/// `PUT …/traits`: all traits, sorted and without duplicates. At most [`MAX_TRAITS`].
///
/// # Errors
/// 400 for invalid members.
pub fn parse_traits(body: &[u8]) -> Result<Vec<String>, WireError> {
    let traits = parse_single_member(body, "traits", "traits", |value| match value {
        list @ Value::Array(_) => traits(list),
        other => Err(unexpected_type("an array", &other)),
    })?;
    if traits.len() > MAX_TRAITS {
        return Err(WireError::invalid(format!(
            "It can have at most {MAX_TRAITS} traits, not {}",
            traits.len()
        )));
    }
    Ok(traits)
}

/// The trait in the path of `PUT …/traits/{trait}`, which takes no body.
///
/// # Errors
/// 400 if it is not a trait.
pub fn parse_trait(segment: &str) -> Result<String, WireError> {
    trait_name(segment.into()).map_err(|error| error.in_field("trait"))
}

/// `POST /v1/events`: checks the events, which have no effect. Returns their number.
///
/// # Errors
/// 400 for invalid members.
pub fn parse_events(body: &[u8]) -> Result<usize, WireError> {
    parse_single_member(body, "events", "events", |value| {
        let events = array(value)?;
        if events.is_empty() {
            return Err("at least one event is needed".into());
        }
        let count = events.len();
        for (index, event) in events.into_iter().enumerate() {
            check_event(event).map_err(|error| error.at(format_args!("event {index}")))?;
        }
        Ok(count)
    })
}

fn check_event(event: Value) -> Result<(), ValueError> {
    const KINDS: [&str; 3] = ["network.bind_port", "network.unbind_port", "network.delete_port"];
    let Value::Object(mut members) = event else {
        return Err(unexpected_type("an object", &event));
    };
    let mut take = |name: &str| members.remove(name).unwrap_or(Value::Null);
    enum_text(take("event"), &KINDS)?;
    let _: Uuid = mandatory_uuid(&take("port_id"))?;
    mac(&take("mac_address"))?.ok_or("mac_address is missing")?;
    mandatory_text(take("status"), SHORT_TEXT)?;
    uuid(&take("device_id"))?;
    uuid(&take("binding:host_id"))?;
    text(take("binding:vnic_type"), SHORT_TEXT)?;
    match members.keys().next() {
        Some(unknown) => Err(format!("'{}' was not expected", excerpt(unknown)).into()),
        None => Ok(()),
    }
}

fn parse_single_member<T>(
    body: &[u8],
    what: &str,
    name: &'static str,
    read: impl FnOnce(Value) -> Result<T, ValueError>,
) -> Result<T, WireError> {
    let mut members = BodyMembers::parse(body, what)?;
    let value = members.require(name, read)?;
    members.finish()?;
    Ok(value)
}

/// A boolean or null. As in Ironic, 1 and 0 are booleans in arguments of calls, but not in fields of
/// resources.
fn argument_flag(value: &Value) -> Result<Option<bool>, ValueError> {
    match value.as_i64() {
        Some(1) => Ok(Some(true)),
        Some(0) => Ok(Some(false)),
        Some(_) | None => flag(value),
    }
}

/// A text that must be one of `allowed`.
pub(crate) fn enum_text(value: Value, allowed: &[&str]) -> Result<String, ValueError> {
    let word = mandatory_text(value, SHORT_TEXT)?;
    check_one_of(&word, allowed)?;
    Ok(word)
}
