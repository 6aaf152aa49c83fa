// SPDX-License-Identifier: Apache-2.0
//! The small bodies: power, console, boot mode, traits, VIFs, virtual media and their like.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use node_model::PowerTarget;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::body::parse_object;
use crate::error::{WireError, excerpt};
use crate::names::{MOST_TRAITS, is_logical_name, trait_name, traits};
use crate::value::{
    Problem, SHORT_TEXT, array, expected, flag, integer, mac, mandatory_text, mandatory_uuid,
    one_of, text, uuid,
};
use crate::version::ApiVersion;

/// The members of a body, taken one by one; what is left in the end was not expected.
pub(crate) struct Members(Map<String, Value>);

impl Members {
    pub(crate) fn parse(body: &[u8], what: &str) -> Result<Self, WireError> {
        parse_object(body, what).map(Self)
    }

    /// The member `name` read by `read`; `null` if it is not there.
    pub(crate) fn take<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(Value) -> Result<T, Problem>,
    ) -> Result<T, WireError> {
        read(self.0.remove(name).unwrap_or(Value::Null)).map_err(|problem| problem.in_field(name))
    }

    /// The member `name` read by `read`; an error if it is not there.
    pub(crate) fn require<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(Value) -> Result<T, Problem>,
    ) -> Result<T, WireError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Err(WireError::missing(name)),
            Some(value) => read(value).map_err(|problem| problem.in_field(name)),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Refuses what has not been taken.
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
    /// What was asked, in the user's words: for messages.
    pub asked: String,
    /// What that means; none if nobody knows, which is answered with [`WireError::invalid_state`].
    pub target: Option<PowerTarget>,
    /// Give up after this many seconds.
    pub timeout: Option<u32>,
}

impl PowerChange {
    /// Reads the body.
    ///
    /// # Errors
    /// 400 for what is wrong, 406 for soft targets and timeouts before 1.27.
    pub fn parse(body: &[u8], version: ApiVersion) -> Result<Self, WireError> {
        const SOFT_SINCE: u16 = 27;
        let mut members = Members::parse(body, "power")?;
        let asked = members.require("target", |value| mandatory_text(value, SHORT_TEXT))?;
        let timeout = members.take("timeout", |value| match value {
            Value::Null => Ok(None),
            given => match u32::try_from(integer(&given)?) {
                Ok(seconds) if seconds > 0 => Ok(Some(seconds)),
                Ok(_) | Err(_) => Err("timeout has to be positive integer".into()),
            },
        })?;
        members.finish()?;
        let target: Option<PowerTarget> = asked.parse().ok();
        if !version.has(SOFT_SINCE)
            && (timeout.is_some() || target.is_some_and(PowerTarget::is_soft))
        {
            return Err(WireError::too_new("soft power targets and timeouts", SOFT_SINCE));
        }
        Ok(Self { asked, target, timeout })
    }
}

/// `PUT …/management/boot_device`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootDevice {
    /// Which device; whether the driver knows it is for the driver to say.
    pub boot_device: String,
    /// Whether for every boot from now on.
    pub persistent: bool,
}

impl BootDevice {
    /// Reads the body.
    ///
    /// # Errors
    /// 400 for what is wrong.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut members = Members::parse(body, "boot device")?;
        let boot_device =
            members.require("boot_device", |value| mandatory_text(value, SHORT_TEXT))?;
        let persistent = members.take("persistent", |value| flag(&value))?.unwrap_or(false);
        members.finish()?;
        Ok(Self { boot_device, persistent })
    }
}

/// `POST …/vifs`.
#[derive(Clone, PartialEq, Debug)]
pub struct VifAttachment {
    /// The virtual interface.
    pub id: String,
    /// Attach to this port.
    pub port_uuid: Option<String>,
    /// Attach to this portgroup.
    pub portgroup_uuid: Option<String>,
    /// The whole body.
    pub info: Map<String, Value>,
}

impl VifAttachment {
    /// Reads the body. Members nobody knows are kept: network drivers may.
    ///
    /// # Errors
    /// 400 for what is wrong, 406 for a choice of port before 1.67.
    pub fn parse(body: &[u8], version: ApiVersion) -> Result<Self, WireError> {
        const CHOICE_SINCE: u16 = 67;
        let info = parse_object(body, "VIF")?;
        let mut members = Members(info.clone());
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
    /// Where the image is.
    pub image_url: String,
    /// Who fetches it: `http` (the BMC), `local` (we, first) or `swift`.
    pub image_download_source: String,
}

/// The kinds of virtual media.
const MEDIA: [&str; 3] = ["cdrom", "disk", "floppy"];

impl VirtualMedia {
    /// Reads the body.
    ///
    /// # Errors
    /// 400 for what is wrong.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        const SCHEMES: [&str; 5] = ["http", "https", "nfs", "cifs", "smb"];
        let mut members = Members::parse(body, "virtual media")?;
        let device_type = members.require("device_type", |value| word(value, &MEDIA))?;
        let image_url = members.require("image_url", |value| {
            let url = mandatory_text(value, 65_535)?;
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            one_of(&scheme.to_ascii_lowercase(), &SCHEMES).map_err(|_| {
                Problem::from(format!("unsupported or missing URL scheme '{}'", excerpt(scheme)))
            })?;
            Ok(url)
        })?;
        let image_download_source = members.take("image_download_source", |value| match value {
            Value::Null => Ok("local".to_owned()),
            given => word(given, &["http", "local", "swift"]),
        })?;
        members.finish()?;
        Ok(Self { device_type, image_url, image_download_source })
    }

    /// The kinds named in `?device_types=` of a `DELETE`; all of them when none is.
    ///
    /// # Errors
    /// 400 for unknown kinds.
    pub fn parse_device_types(list: Option<&str>) -> Result<Vec<String>, WireError> {
        let Some(list) = list.filter(|list| !list.is_empty()) else {
            return Ok(MEDIA.iter().map(|&kind| kind.to_owned()).collect());
        };
        list.split(',')
            .map(|kind| {
                one_of(kind.trim(), &MEDIA).map_err(|problem| problem.in_field("device_types"))?;
                Ok(kind.trim().to_owned())
            })
            .collect()
    }
}

/// `PUT …/states/console`: whether it shall be on.
///
/// # Errors
/// 400 for what is wrong.
pub fn parse_console(body: &[u8]) -> Result<bool, WireError> {
    one_member(body, "console", "enabled", |value| {
        flag(&value)?.ok_or_else(|| "expected a boolean".into())
    })
}

/// `PUT …/states/boot_mode`: `bios` or `uefi`.
///
/// # Errors
/// 400 for what is wrong.
pub fn parse_boot_mode(body: &[u8]) -> Result<String, WireError> {
    one_member(body, "boot mode", "target", |value| word(value, &["bios", "uefi"]))
}

/// `PUT …/states/secure_boot`: whether it shall be on.
///
/// # Errors
/// 400 for what is wrong.
pub fn parse_secure_boot(body: &[u8]) -> Result<bool, WireError> {
    one_member(body, "secure boot", "target", |value| {
        flag(&value)?.ok_or_else(|| "expected a boolean".into())
    })
}

/// `PUT …/management/indicators/{indicator}`: the state.
///
/// # Errors
/// 400 for what is wrong.
pub fn parse_indicator(body: &[u8]) -> Result<String, WireError> {
    one_member(body, "indicator", "state", |value| {
        word(value, &["on", "off", "blinking", "unknown"])
    })
}

/// `PUT …/maintenance`: the reason, if one is given. The body may be empty.
///
/// # Errors
/// 400 for what is wrong.
pub fn parse_maintenance(body: &[u8]) -> Result<Option<String>, WireError> {
    let mut members = Members::parse(body, "maintenance")?;
    let reason = members.take("reason", |value| text(value, 65_535))?;
    members.finish()?;
    Ok(reason)
}

/// `PUT …/traits`: all traits, sorted, each once. At most [`MOST_TRAITS`].
///
/// # Errors
/// 400 for what is wrong.
pub fn parse_traits(body: &[u8]) -> Result<Vec<String>, WireError> {
    let traits = one_member(body, "traits", "traits", |value| match value {
        list @ Value::Array(_) => traits(list),
        other => Err(expected("an array", &other)),
    })?;
    if traits.len() > MOST_TRAITS {
        return Err(WireError::invalid(format!(
            "It can have at most {MOST_TRAITS} traits, not {}",
            traits.len()
        )));
    }
    Ok(traits)
}

/// The trait in the path of `PUT …/traits/{trait}`, which takes no body.
///
/// # Errors
/// 400 if it is none.
pub fn parse_trait(segment: &str) -> Result<String, WireError> {
    trait_name(segment.into()).map_err(|problem| problem.in_field("trait"))
}

/// `POST /v1/events`: how many events there are. They are only checked; nothing acts on them.
///
/// # Errors
/// 400 for what is wrong.
pub fn parse_events(body: &[u8]) -> Result<usize, WireError> {
    one_member(body, "events", "events", |value| {
        let events = array(value)?;
        if events.is_empty() {
            return Err("at least one event is needed".into());
        }
        let count = events.len();
        for (index, event) in events.into_iter().enumerate() {
            check_event(event).map_err(|problem| problem.at(format_args!("event {index}")))?;
        }
        Ok(count)
    })
}

fn check_event(event: Value) -> Result<(), Problem> {
    const KINDS: [&str; 3] = ["network.bind_port", "network.unbind_port", "network.delete_port"];
    let Value::Object(mut members) = event else {
        return Err(expected("an object", &event));
    };
    let mut take = |name: &str| members.remove(name).unwrap_or(Value::Null);
    word(take("event"), &KINDS)?;
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

fn one_member<T>(
    body: &[u8],
    what: &str,
    name: &'static str,
    read: impl FnOnce(Value) -> Result<T, Problem>,
) -> Result<T, WireError> {
    let mut members = Members::parse(body, what)?;
    let value = members.require(name, read)?;
    members.finish()?;
    Ok(value)
}

/// One of a few words.
pub(crate) fn word(value: Value, allowed: &[&str]) -> Result<String, Problem> {
    let word = mandatory_text(value, SHORT_TEXT)?;
    one_of(&word, allowed)?;
    Ok(word)
}
