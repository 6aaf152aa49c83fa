// SPDX-License-Identifier: Apache-2.0
//! Parsing of requested firmware updates, and the `SimpleUpdate` request bodies.

use std::time::Duration;

use drivers::{BmcImageUrl, DriverError};
use node_model::JsonObject;
use redfish::RedfishAction;
use serde_json::{Map, Value};

/// A requested update.
#[derive(Debug)]
pub(super) struct FirmwareUpdate {
    /// The component as listed by the node; `firmware` if only the image determines it.
    pub(super) component: String,
    pub(super) kind: FirmwareTarget,
    pub(super) image: BmcImageUrl,
    /// Timeout for the component to report its new version.
    pub(super) wait: Option<Duration>,
}

/// What is updated; determines how the update takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FirmwareTarget {
    Bios,
    Bmc,
    Nic,
    /// Determined by the image.
    Unknown,
}

/// The two argument formats of update steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpdateArgumentForm {
    /// `settings` of the firmware interface: an image and a component for each update.
    Components,
    /// `firmware_images` of the management interface: images without components.
    Images,
}

impl UpdateArgumentForm {
    const fn argument(self) -> &'static str {
        match self {
            Self::Components => "settings",
            Self::Images => "firmware_images",
        }
    }

    /// The required keys of an update.
    const fn required_keys(self) -> &'static [&'static str] {
        match self {
            Self::Components => &["component", "url"],
            Self::Images => &["url", "checksum"],
        }
    }

    /// The optional keys of an update.
    const fn optional_keys(self) -> &'static [&'static str] {
        match self {
            Self::Components => &["wait"],
            Self::Images => &["wait", "source"],
        }
    }
}

impl FirmwareTarget {
    fn parse(component: &str) -> Option<Self> {
        match component {
            "bios" => Some(Self::Bios),
            "bmc" => Some(Self::Bmc),
            _ => component.strip_prefix("nic:").filter(|id| !id.is_empty()).map(|_| Self::Nic),
        }
    }
}

impl FirmwareUpdate {
    /// Parses the updates of a step, in order.
    pub(super) fn read(
        arguments: &JsonObject,
        form: UpdateArgumentForm,
    ) -> Result<Vec<Self>, DriverError> {
        let list = match arguments.get(form.argument()) {
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(_) | None => {
                let needed = form.required_keys().join(" and ");
                let why = format!("give a list of objects, each with {needed}");
                return Err(DriverError::missing(form.argument(), why));
            }
        };
        list.iter().enumerate().map(|(index, update)| Self::parse(form, index, update)).collect()
    }

    fn parse(form: UpdateArgumentForm, index: usize, update: &Value) -> Result<Self, DriverError> {
        let name = |key: &str| format!("{}[{index}].{key}", form.argument());
        let text = |key: &str| {
            let text = update.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.ok_or_else(|| DriverError::missing(name(key), "every update needs it"))
        };
        for key in form.required_keys() {
            text(key)?;
        }
        let known = [form.required_keys(), form.optional_keys()].concat();
        let mut keys = update.as_object().into_iter().flat_map(Map::keys);
        if let Some(unknown) = keys.find(|key| !known.contains(&key.as_str())) {
            let why = format!("unknown key; use {}", known.join(", "));
            return Err(DriverError::invalid(name(unknown), why));
        }
        let (component, kind) = match form {
            UpdateArgumentForm::Images => ("firmware", FirmwareTarget::Unknown),
            UpdateArgumentForm::Components => {
                let component = text("component")?;
                let kind = FirmwareTarget::parse(component).ok_or_else(|| {
                    let why =
                        format!("there is no component '{component}'; use bios, bmc or nic:<id>");
                    DriverError::invalid(name("component"), why)
                })?;
                (component, kind)
            }
        };
        // The BMC downloads the image itself and verifies its signature.
        if !matches!(update.get("source"), None | Some(Value::Null)) && text("source")? != "http" {
            let why = "the BMC downloads the image itself; use 'http' and a URL that the BMC can \
                       reach";
            return Err(DriverError::invalid(name("source"), why));
        }
        let wait = match update.get("wait") {
            None | Some(Value::Null) => None,
            Some(wait) => Some(Duration::from_secs(
                wait.as_u64().filter(|seconds| *seconds > 0).ok_or_else(|| {
                    DriverError::invalid(name("wait"), "use a whole number of seconds above zero")
                })?,
            )),
        };
        let image = BmcImageUrl::parse(&name("url"), text("url")?)?;
        Ok(Self { component: component.to_owned(), kind, image, wait })
    }
}

/// The `SimpleUpdate` bodies to send until one is accepted. Which optional parameters a BMC accepts
/// is only known by trying. A few BMCs require the System (path `machine`) as target even if there
/// is only one.
pub(super) fn bodies(
    image: &BmcImageUrl,
    action: &RedfishAction,
    targets: &[String],
    machine: &str,
) -> Vec<Value> {
    let mut plain = Map::new();
    plain.insert("ImageURI".to_owned(), image.url.as_str().into());
    if let Some(login) = &image.login {
        plain.insert("Username".to_owned(), login.username.as_str().into());
        plain.insert("Password".to_owned(), login.password.as_str().into());
    }
    let mut with_protocol = plain.clone();
    if action.allows("TransferProtocol", image.protocol) {
        with_protocol.insert("TransferProtocol".to_owned(), image.protocol.into());
    }
    let mut full = with_protocol.clone();
    if !targets.is_empty() {
        full.insert("Targets".to_owned(), targets.into());
    }
    let mut for_machine = with_protocol.clone();
    for_machine.insert("Targets".to_owned(), Value::from(vec![machine]));
    let mut bodies: Vec<Map<String, Value>> = Vec::with_capacity(4);
    for body in [full, with_protocol, plain, for_machine] {
        if !bodies.contains(&body) {
            bodies.push(body);
        }
    }
    bodies.into_iter().map(Value::Object).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn read_as(
        form: UpdateArgumentForm,
        updates: Value,
    ) -> Result<Vec<FirmwareUpdate>, DriverError> {
        let mut arguments = JsonObject::empty();
        arguments.set(form.argument(), updates);
        FirmwareUpdate::read(&arguments, form)
    }

    fn read(settings: Value) -> Result<Vec<FirmwareUpdate>, DriverError> {
        read_as(UpdateArgumentForm::Components, settings)
    }

    #[test]
    fn parses_updates_and_rejects_invalid_ones() {
        let good = read(json!([
            {"component": "bmc", "url": "https://u:p@h/bmc.bin", "wait": 60},
            {"component": "nic:NIC1", "url": "http://h/nic.bin"},
        ]));
        let good = good.unwrap();
        assert_eq!(
            (good[0].kind, good[0].wait),
            (FirmwareTarget::Bmc, Some(Duration::from_secs(60)))
        );
        assert_eq!((good[1].kind, good[1].wait), (FirmwareTarget::Nic, None));
        for (settings, text) in [
            (json!([]), "settings"),
            (json!("bios"), "settings"),
            (json!([{"url": "http://h/i"}]), "settings[0].component"),
            (json!([{"component": "bios"}]), "settings[0].url"),
            (json!([{"component": "cpld", "url": "http://h/i"}]), "'cpld'"),
            (json!([{"component": "nic:", "url": "http://h/i"}]), "'nic:'"),
            (json!([{"component": "bios", "url": "file:///i"}]), "'file'"),
            (json!([{"component": "bios", "url": "http://h/i", "wait": 0}]), "wait"),
            (json!([{"component": "bios", "url": "http://h/i", "when": 1}]), "when"),
        ] {
            let error = read(settings.clone()).unwrap_err().to_string();
            assert!(error.contains(text), "{settings}: {error}");
        }
    }

    #[test]
    fn parses_firmware_images_without_component() {
        let image = |more: Value| {
            let mut image = json!({"url": "http://h/i", "checksum": "abc"});
            image.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read_as(UpdateArgumentForm::Images, json!([image]))
        };
        let good = image(json!({"wait": 5, "source": "http"})).unwrap();
        assert_eq!(
            (good[0].kind, good[0].component.as_str()),
            (FirmwareTarget::Unknown, "firmware")
        );
        assert_eq!(good[0].wait, Some(Duration::from_secs(5)));
        for (updates, text) in [
            (image(json!({"source": "swift"})), "firmware_images[0].source"),
            (image(json!({"source": 1})), "firmware_images[0].source"),
            (image(json!({"component": "bios"})), "firmware_images[0].component"),
            (image(json!({"checksum": ""})), "firmware_images[0].checksum"),
            (read_as(UpdateArgumentForm::Images, json!(7)), "'firmware_images'"),
        ] {
            let error = updates.unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn builds_request_bodies() {
        let image = BmcImageUrl::parse("url", "https://u:p@h/i").unwrap();
        let mut action =
            RedfishAction { target: String::new(), allowable: BTreeMap::new(), info: None };
        let full = json!({"ImageURI": "https://h/i", "Username": "u", "Password": "p",
                          "TransferProtocol": "HTTPS", "Targets": ["/s/1"]});
        let all = bodies(&image, &action, &["/s/1".to_owned()], "/s/1");
        assert_eq!((all.len(), &all[0]), (3, &full));
        assert_eq!(all[2], json!({"ImageURI": "https://h/i", "Username": "u", "Password": "p"}));
        action.allowable.insert("TransferProtocol".to_owned(), vec!["HTTP".to_owned()]);
        let open = BmcImageUrl::parse("url", "https://h/i").unwrap();
        assert_eq!(
            bodies(&open, &action, &[], "/s/1"),
            [
                json!({"ImageURI": "https://h/i"}),
                json!({"ImageURI": "https://h/i", "Targets": ["/s/1"]}),
            ]
        );
    }
}
