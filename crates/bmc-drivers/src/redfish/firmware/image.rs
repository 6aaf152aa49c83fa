// SPDX-License-Identifier: Apache-2.0
//! The updates an operator asks for, and how a BMC is told to fetch one.

use std::time::Duration;

use node_model::JsonObject;
use redfish::Action;
use serde_json::{Map, Value};

use crate::Error;
use crate::redfish::image_url::ImageUrl;

/// An update that is asked for.
#[derive(Debug)]
pub(super) struct Update {
    /// What is updated, as it is listed; `firmware` if only the image knows.
    pub(super) component: String,
    pub(super) kind: Kind,
    pub(super) image: ImageUrl,
    /// How long the component may take to show its new version.
    pub(super) wait: Option<Duration>,
}

/// What is updated; each kind has its own way of taking effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Bios,
    Bmc,
    Card,
    /// Whatever the image is for.
    Unknown,
}

/// The ways to ask for updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::redfish) enum Form {
    /// `settings` of the firmware interface: images and which component each is for.
    Components,
    /// `firmware_images` of the management interface: images, and they know what they are for.
    Images,
}

impl Form {
    const fn argument(self) -> &'static str {
        match self {
            Self::Components => "settings",
            Self::Images => "firmware_images",
        }
    }

    /// The keys an update must have.
    const fn needed(self) -> &'static [&'static str] {
        match self {
            Self::Components => &["component", "url"],
            Self::Images => &["url", "checksum"],
        }
    }

    /// The keys it may have besides.
    const fn possible(self) -> &'static [&'static str] {
        match self {
            Self::Components => &["wait"],
            Self::Images => &["wait", "source"],
        }
    }
}

impl Kind {
    fn of(component: &str) -> Option<Self> {
        match component {
            "bios" => Some(Self::Bios),
            "bmc" => Some(Self::Bmc),
            _ => component.strip_prefix("nic:").filter(|id| !id.is_empty()).map(|_| Self::Card),
        }
    }
}

impl Update {
    /// The updates that a step is asked for, in order.
    pub(super) fn read(arguments: &JsonObject, form: Form) -> Result<Vec<Self>, Error> {
        let list = match arguments.get(form.argument()) {
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(_) | None => {
                let needed = form.needed().join(" and ");
                let why = format!("give a list of objects, each with {needed}");
                return Err(Error::missing(form.argument(), why));
            }
        };
        list.iter().enumerate().map(|(place, update)| Self::of(form, place, update)).collect()
    }

    fn of(form: Form, place: usize, update: &Value) -> Result<Self, Error> {
        let name = |key: &str| format!("{}[{place}].{key}", form.argument());
        let text = |key: &str| {
            let text = update.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.ok_or_else(|| Error::missing(name(key), "every update needs it"))
        };
        for key in form.needed() {
            text(key)?;
        }
        let known = [form.needed(), form.possible()].concat();
        let mut keys = update.as_object().into_iter().flat_map(Map::keys);
        if let Some(unknown) = keys.find(|key| !known.contains(&key.as_str())) {
            let why = format!("an update has no such key; it has {}", known.join(", "));
            return Err(Error::invalid(name(unknown), why));
        }
        let (component, kind) = match form {
            Form::Images => ("firmware", Kind::Unknown),
            Form::Components => {
                let component = text("component")?;
                let kind = Kind::of(component).ok_or_else(|| {
                    let why =
                        format!("there is no component '{component}'; use bios, bmc or nic:<id>");
                    Error::invalid(name("component"), why)
                })?;
                (component, kind)
            }
        };
        // The BMC fetches the image from where it is, and checks it by its own signature.
        if !matches!(update.get("source"), None | Some(Value::Null)) && text("source")? != "http" {
            let why = "images are not copied before a BMC fetches them; use 'http', and a URL the \
                       BMC can reach";
            return Err(Error::invalid(name("source"), why));
        }
        let wait = match update.get("wait") {
            None | Some(Value::Null) => None,
            Some(wait) => {
                Some(Duration::from_secs(wait.as_u64().filter(|seconds| *seconds > 0).ok_or_else(
                    || Error::invalid(name("wait"), "use a whole number of seconds above zero"),
                )?))
            }
        };
        let image = ImageUrl::parse(&name("url"), text("url")?)?;
        Ok(Self { component: component.to_owned(), kind, image, wait })
    }
}

/// What to post to start an update, one after the other until it is accepted. BMCs fetch the image
/// themselves; which of the parameters besides its URL they take, they only tell by refusing them.
/// A few want to be told the machine, which has the path `machine`, even if there is only one.
pub(super) fn bodies(
    image: &ImageUrl,
    action: &Action,
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

    fn read_as(form: Form, updates: Value) -> Result<Vec<Update>, Error> {
        let mut arguments = JsonObject::empty();
        arguments.set(form.argument(), updates);
        Update::read(&arguments, form)
    }

    fn read(settings: Value) -> Result<Vec<Update>, Error> {
        read_as(Form::Components, settings)
    }

    #[test]
    fn updates_and_what_is_wrong_with_them() {
        let good = read(json!([
            {"component": "bmc", "url": "https://u:p@h/bmc.bin", "wait": 60},
            {"component": "nic:NIC1", "url": "http://h/nic.bin"},
        ]));
        let good = good.unwrap();
        assert_eq!((good[0].kind, good[0].wait), (Kind::Bmc, Some(Duration::from_secs(60))));
        assert_eq!((good[1].kind, good[1].wait), (Kind::Card, None));
        for (settings, words) in [
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
            assert!(error.contains(words), "{settings}: {error}");
        }
    }

    #[test]
    fn images_that_know_what_they_are_for() {
        let image = |more: Value| {
            let mut image = json!({"url": "http://h/i", "checksum": "abc"});
            image.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            read_as(Form::Images, json!([image]))
        };
        let good = image(json!({"wait": 5, "source": "http"})).unwrap();
        assert_eq!((good[0].kind, good[0].component.as_str()), (Kind::Unknown, "firmware"));
        assert_eq!(good[0].wait, Some(Duration::from_secs(5)));
        for (updates, words) in [
            (image(json!({"source": "swift"})), "firmware_images[0].source"),
            (image(json!({"source": 1})), "firmware_images[0].source"),
            (image(json!({"component": "bios"})), "firmware_images[0].component"),
            (image(json!({"checksum": ""})), "firmware_images[0].checksum"),
            (read_as(Form::Images, json!(7)), "'firmware_images'"),
        ] {
            let error = updates.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_posted() {
        let image = ImageUrl::parse("url", "https://u:p@h/i").unwrap();
        let mut action = Action { target: String::new(), allowable: BTreeMap::new(), info: None };
        let full = json!({"ImageURI": "https://h/i", "Username": "u", "Password": "p",
                          "TransferProtocol": "HTTPS", "Targets": ["/s/1"]});
        let all = bodies(&image, &action, &["/s/1".to_owned()], "/s/1");
        assert_eq!((all.len(), &all[0]), (3, &full));
        assert_eq!(all[2], json!({"ImageURI": "https://h/i", "Username": "u", "Password": "p"}));
        action.allowable.insert("TransferProtocol".to_owned(), vec!["HTTP".to_owned()]);
        let open = ImageUrl::parse("url", "https://h/i").unwrap();
        assert_eq!(
            bodies(&open, &action, &[], "/s/1"),
            [
                json!({"ImageURI": "https://h/i"}),
                json!({"ImageURI": "https://h/i", "Targets": ["/s/1"]}),
            ]
        );
    }
}
