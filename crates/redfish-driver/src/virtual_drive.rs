// SPDX-License-Identifier: Apache-2.0
//! Virtual drives as a BMC reports them: which to use, and which requests to send. Pure functions
//! without I/O; [`super::virtual_media`] sends the requests.

use drivers::{BmcImageUrl, MediaDevice, MediaSlot, displayed_url, without_login};
use redfish::RedfishResource;
use serde_json::{Map, Value, json};

use super::quirks::QuirkBehaviour;
use super::resource_id::id;

/// Redfish media types and the devices they stand for. Also used to classify drives without media
/// types by their name, so longer words come first.
const MEDIA_TYPES: &[(&str, MediaDevice)] = &[
    ("dvd", MediaDevice::Cdrom),
    ("usbstick", MediaDevice::Disk),
    ("floppy", MediaDevice::Floppy),
    ("usb", MediaDevice::Disk),
    ("disk", MediaDevice::Disk),
    ("cd", MediaDevice::Cdrom),
];

/// `InsertMedia` parameters that some BMCs require and others reject, with a default value that has
/// no effect on the rest.
const OPTIONAL_KEYS: &[&str] =
    &["TransferProtocolType", "TransferMethod", "Inserted", "WriteProtected"];

/// Maximum number of bodies that are sent to a drive.
const MAX_BODIES: usize = 5;

/// A virtual drive.
#[derive(Clone, Debug)]
pub(super) struct VirtualDrive {
    pub(super) resource: RedfishResource,
    /// The devices it can hold, in the order of [`MediaDevice::ALL`]; never empty.
    devices: Vec<MediaDevice>,
}

/// How images are inserted into and ejected from a drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum MediaControl {
    /// With a POST to the action at this path.
    Action(String),
    /// With a PATCH of the drive.
    Patch,
}

impl VirtualDrive {
    pub(super) fn new(resource: RedfishResource) -> Self {
        let devices = devices(&resource);
        Self { resource, devices }
    }

    /// The id of the drive.
    pub(super) fn name(&self) -> &str {
        id(&self.resource)
    }

    /// The primary device and the image of the drive.
    pub(super) fn slot(&self) -> MediaSlot {
        let device = self.devices.first().copied().unwrap_or(MediaDevice::Cdrom);
        let image_url = is_occupied(&self.resource)
            .then(|| image(&self.resource).map_or_else(String::new, displayed_url));
        MediaSlot { device, image_url }
    }

    /// Whether it can hold one of `devices`; an empty list matches every drive.
    pub(super) fn fits(&self, devices: &[MediaDevice]) -> bool {
        devices.is_empty() || self.devices.iter().any(|device| devices.contains(device))
    }

    /// The ways to insert or eject, best first.
    pub(super) fn controls(&self, action: &str, quirks: &QuirkBehaviour) -> Vec<MediaControl> {
        let action = self.resource.action(action).map(|action| MediaControl::Action(action.target));
        if quirks.media_by_patch == Some(true) {
            return vec![MediaControl::Patch];
        }
        action.into_iter().chain([MediaControl::Patch]).collect()
    }

    /// The transfer protocols the drive lists, if that of `image` is not among them.
    pub(super) fn unsupported_protocols(&self, image: &BmcImageUrl) -> Option<String> {
        let action = self.resource.action("VirtualMedia.InsertMedia")?;
        let known = action.allowable.get("TransferProtocolType")?;
        let fits = known.is_empty() || known.iter().any(|name| name == image.protocol);
        (!fits).then(|| known.join(", "))
    }
}

/// The drives that can hold `device`, best first: dedicated drives, then shared ones. A CD uses the
/// first shared drive and other devices the last, so that a CD and a disk do not replace each other
/// where there are two universal drives.
pub(super) fn drives_for(drives: &[VirtualDrive], device: MediaDevice) -> Vec<&VirtualDrive> {
    let fits = drives.iter().filter(|drive| drive.devices.contains(&device));
    let (own, shared): (Vec<&VirtualDrive>, Vec<&VirtualDrive>) =
        fits.partition(|drive| drive.devices.len() == 1 || device == MediaDevice::Cdrom);
    own.into_iter().chain(shared.into_iter().rev()).collect()
}

/// Whether an image is inserted.
pub(super) fn is_occupied(drive: &RedfishResource) -> bool {
    // Some BMCs still report the last image after it was ejected; others have no `Inserted`.
    drive.flag("/Inserted").unwrap_or_else(|| image(drive).is_some())
}

/// Whether this image is inserted.
pub(super) fn has_inserted(drive: &RedfishResource, wanted: &BmcImageUrl) -> bool {
    is_occupied(drive) && shows_image(drive, wanted)
}

/// Whether the drive reports this image, inserted or not.
pub(super) fn shows_image(drive: &RedfishResource, wanted: &BmcImageUrl) -> bool {
    image(drive).is_some_and(|image| without_login(image) == wanted.url)
}

/// Whether the drive reports its content at all.
pub(super) fn reports_content(drive: &RedfishResource) -> bool {
    drive.flag("/Inserted").is_some() || drive.at("/Image").is_some()
}

/// The first body for inserting `image`.
pub(super) fn first_body(
    control: &MediaControl,
    image: &BmcImageUrl,
    quirks: &QuirkBehaviour,
) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("Image".to_owned(), Value::from(image.url.as_str()));
    if let Some(login) = &image.login {
        body.insert("UserName".to_owned(), Value::from(login.username.as_str()));
        body.insert("Password".to_owned(), Value::from(login.password.as_str()));
    }
    match control {
        // Inserted and WriteProtected default to true, and old BMCs reject them (Supermicro X11).
        MediaControl::Action(_) => {}
        // A PATCH has no defaults: Lenovo SD530 leaves the drive empty without these keys.
        MediaControl::Patch => {
            body.insert("Inserted".to_owned(), Value::Bool(true));
            body.insert("WriteProtected".to_owned(), Value::Bool(true));
        }
    }
    body.retain(|key, _| !is_omitted(key, quirks));
    body
}

/// The next body after those in `tried` were rejected, the last of them with `message`.
/// Parameters named in the message are added if they were missing and removed if they were sent; if
/// it names none, the longest and the shortest body are tried.
pub(super) fn next_body(
    tried: &[Map<String, Value>],
    image: &BmcImageUrl,
    message: &str,
    quirks: &QuirkBehaviour,
) -> Option<Map<String, Value>> {
    let last = tried.last()?;
    if tried.len() >= MAX_BODIES {
        return None;
    }
    let mut named = last.clone();
    for key in OPTIONAL_KEYS.iter().filter(|key| message.contains(**key)) {
        if named.remove(*key).is_none() {
            named.insert((*key).to_owned(), default_value(key, image));
        }
    }
    // Nvidia DGX requires a login even if the image needs none; any value is accepted.
    if image.login.is_none() && ["UserName", "Password"].iter().any(|key| message.contains(key)) {
        for key in ["UserName", "Password"] {
            named.insert(key.to_owned(), Value::from("none"));
        }
    }
    let mut longest = last.clone();
    let mut shortest = last.clone();
    for key in OPTIONAL_KEYS {
        longest.insert((*key).to_owned(), default_value(key, image));
        shortest.remove(*key);
    }
    longest.remove("TransferMethod");
    for body in [&mut named, &mut longest, &mut shortest] {
        body.retain(|key, _| !is_omitted(key, quirks));
    }
    [named, longest, shortest].into_iter().find(|body| !tried.contains(body))
}

/// The body for ejecting an image.
pub(super) fn eject_body(control: &MediaControl) -> Value {
    match control {
        MediaControl::Action(_) => json!({}),
        MediaControl::Patch => json!({"Image": null, "Inserted": false}),
    }
}

fn image(drive: &RedfishResource) -> Option<&str> {
    drive.text("/Image").filter(|image| !image.is_empty())
}

fn default_value(key: &str, image: &BmcImageUrl) -> Value {
    match key {
        "TransferProtocolType" => Value::from(image.protocol),
        "TransferMethod" => Value::from("Stream"),
        _ => Value::Bool(true),
    }
}

fn is_omitted(key: &str, quirks: &QuirkBehaviour) -> bool {
    quirks.insert_media_omit.as_ref().is_some_and(|keys| keys.iter().any(|known| known == key))
}

fn devices(drive: &RedfishResource) -> Vec<MediaDevice> {
    let media_types: Vec<String> =
        drive.texts("/MediaTypes").iter().map(|kind| kind.to_ascii_lowercase()).collect();
    let name = ["/Id", "/Name"].map(|key| drive.text(key).unwrap_or_default()).join(" ");
    let name = name.to_ascii_lowercase();
    let known = |name_part: &str| match media_types.is_empty() {
        true => name.contains(name_part),
        false => media_types.iter().any(|kind| kind == name_part),
    };
    let mut found: Vec<MediaDevice> = MEDIA_TYPES
        .iter()
        .filter(|(name_part, _)| known(name_part))
        .map(|(_, device)| *device)
        .collect();
    if found.is_empty() {
        // Neither media types nor name identify the device: allow all.
        found.extend_from_slice(MediaDevice::ALL);
    }
    MediaDevice::ALL.iter().copied().filter(|device| found.contains(device)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(body: Value) -> VirtualDrive {
        let id = body["Id"].as_str().unwrap_or("7").to_owned();
        VirtualDrive::new(RedfishResource {
            path: format!("/redfish/v1/Systems/1/VM/{id}"),
            etag: None,
            body,
        })
    }

    fn image(url: &str) -> BmcImageUrl {
        BmcImageUrl::parse("image", url).unwrap()
    }

    #[test]
    fn classifies_drives() {
        use MediaDevice::{Cdrom, Disk, Floppy};
        for (body, devices) in [
            (json!({"MediaTypes": ["CD", "DVD"]}), vec![Cdrom]),
            (json!({"MediaTypes": ["DVD"]}), vec![Cdrom]),
            (json!({"MediaTypes": ["Floppy", "USBStick"]}), vec![Disk, Floppy]),
            (json!({"MediaTypes": ["CD", "DVD", "USBStick"]}), vec![Cdrom, Disk]),
            (json!({"Id": "Cd"}), vec![Cdrom]),
            (json!({"Id": "1", "Name": "Virtual Removable Disk"}), vec![Disk]),
            (json!({"MediaTypes": ["CD"], "Id": "Floppy0"}), vec![Cdrom]),
            (json!({"MediaTypes": "CD", "Id": "RemoteMedia1"}), vec![Cdrom, Disk, Floppy]),
            (json!({}), vec![Cdrom, Disk, Floppy]),
        ] {
            assert_eq!(drive(body.clone()).devices, devices, "{body}");
        }
    }

    #[test]
    fn reports_inserted_images() {
        let ours = image("https://u:p@h/i.iso");
        for (body, shown, held) in [
            (json!({}), None, false),
            (json!({"Inserted": false, "Image": ""}), None, false),
            (json!({"Inserted": false, "Image": "https://h/i.iso"}), None, false),
            (json!({"Inserted": true, "Image": "https://h/i.iso"}), Some("https://h/i.iso"), true),
            (json!({"Image": "https://u:p@h/i.iso"}), Some("https://h/i.iso"), true),
            (json!({"Inserted": true, "Image": "https://h/other"}), Some("https://h/other"), false),
            (json!({"Inserted": true}), Some(""), false),
        ] {
            let drive = drive(body.clone());
            assert_eq!(drive.slot().image_url.as_deref(), shown, "{body}");
            assert_eq!(has_inserted(&drive.resource, &ours), held, "{body}");
        }
    }

    #[test]
    fn cd_and_disk_use_different_drives() {
        let all = json!(["CD", "DVD", "USBStick"]);
        let two = [
            drive(json!({"Id": "1", "MediaTypes": all})),
            drive(json!({"Id": "2", "MediaTypes": all})),
        ];
        let names = |drives: &[VirtualDrive], device| {
            drives_for(drives, device).iter().map(|d| d.name().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&two, MediaDevice::Cdrom), ["1", "2"]);
        assert_eq!(names(&two, MediaDevice::Disk), ["2", "1"]);
        assert!(names(&two, MediaDevice::Floppy).is_empty());
        let mixed = [
            drive(json!({"Id": "Floppy", "MediaTypes": ["Floppy", "USBStick"]})),
            drive(json!({"Id": "Cd", "MediaTypes": ["CD"]})),
            drive(json!({"Id": "Usb", "MediaTypes": ["USBStick"]})),
        ];
        assert_eq!(names(&mixed, MediaDevice::Cdrom), ["Cd"]);
        assert_eq!(names(&mixed, MediaDevice::Disk), ["Usb", "Floppy"]);
    }

    /// Returns the bodies sent to a BMC that rejects each with the next message.
    fn bodies(
        control: &MediaControl,
        url: &str,
        quirks: &QuirkBehaviour,
        messages: &[&str],
    ) -> Vec<String> {
        let image = image(url);
        let mut tried = vec![first_body(control, &image, quirks)];
        for message in messages {
            match next_body(&tried, &image, message, quirks) {
                Some(body) => tried.push(body),
                None => break,
            }
        }
        tried.into_iter().map(|body| Value::Object(body).to_string()).collect()
    }

    #[test]
    fn adapts_bodies_to_refusals() {
        let action = MediaControl::Action(String::new());
        let plain = QuirkBehaviour::default();
        assert_eq!(
            bodies(
                &action,
                "https://h/i",
                &plain,
                &["requires the parameter TransferProtocolType", "TransferMethod is missing"],
            ),
            [
                r#"{"Image":"https://h/i"}"#,
                r#"{"Image":"https://h/i","TransferProtocolType":"HTTPS"}"#,
                r#"{"Image":"https://h/i","TransferMethod":"Stream","TransferProtocolType":"HTTPS"}"#,
            ]
        );
        assert_eq!(
            bodies(&action, "http://h/i", &plain, &["no", "no", "no", "no", "no", "no"]),
            [
                r#"{"Image":"http://h/i"}"#,
                r#"{"Image":"http://h/i","Inserted":true,"TransferProtocolType":"HTTP","WriteProtected":true}"#,
            ]
        );
        assert_eq!(
            bodies(&action, "http://h/i", &plain, &["requires the parameter UserName"])[1],
            r#"{"Image":"http://h/i","Password":"none","UserName":"none"}"#
        );
        assert_eq!(
            bodies(
                &MediaControl::Patch,
                "http://u:p@h/i",
                &plain,
                &["WriteProtected is not known"]
            ),
            [
                r#"{"Image":"http://h/i","Inserted":true,"Password":"p","UserName":"u","WriteProtected":true}"#,
                r#"{"Image":"http://h/i","Inserted":true,"Password":"p","UserName":"u"}"#,
            ]
        );
        let quirks = QuirkBehaviour {
            insert_media_omit: Some(vec!["Inserted".to_owned(), "WriteProtected".to_owned()]),
            ..QuirkBehaviour::default()
        };
        assert_eq!(
            bodies(&action, "http://h/i", &quirks, &["Inserted", "no", "no", "no"]),
            [
                r#"{"Image":"http://h/i"}"#,
                r#"{"Image":"http://h/i","TransferProtocolType":"HTTP"}"#,
            ]
        );
    }

    #[test]
    fn lists_controls_and_protocols() {
        let body = json!({"Actions": {"#VirtualMedia.InsertMedia": {
            "target": "/insert", "TransferProtocolType@Redfish.AllowableValues": ["NFS", "CIFS"]}}});
        let drive = drive(body);
        let plain = QuirkBehaviour::default();
        assert_eq!(
            drive.controls("VirtualMedia.InsertMedia", &plain),
            [MediaControl::Action("/insert".to_owned()), MediaControl::Patch]
        );
        assert_eq!(drive.controls("VirtualMedia.EjectMedia", &plain), [MediaControl::Patch]);
        let patched = QuirkBehaviour { media_by_patch: Some(true), ..QuirkBehaviour::default() };
        assert_eq!(drive.controls("VirtualMedia.InsertMedia", &patched), [MediaControl::Patch]);
        let wanted = drive.unsupported_protocols(&image("http://h/i"));
        assert_eq!(wanted.as_deref(), Some("NFS, CIFS"));
        assert_eq!(drive.unsupported_protocols(&image("nfs://h/i")), None);
    }
}
