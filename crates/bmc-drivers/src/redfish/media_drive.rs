// SPDX-License-Identifier: Apache-2.0
//! A BMC's virtual drives as it shows them, which of them to use, and what to send them. Nothing
//! here talks to a BMC; [`super::media`] does.

use redfish::Resource;
use serde_json::{Map, Value, json};

use super::image_url::{ImageUrl, shown_url, without_login};
use super::names::id;
use super::quirks::Behaviour;
use crate::{MediaDevice, MediaSlot};

/// Redfish's kinds of media, and which of ours each is. Also how a drive that does not say its
/// kinds is told by its name, so the longer words come first.
const MEDIA_TYPES: &[(&str, MediaDevice)] = &[
    ("dvd", MediaDevice::Cdrom),
    ("usbstick", MediaDevice::Disk),
    ("floppy", MediaDevice::Floppy),
    ("usb", MediaDevice::Disk),
    ("disk", MediaDevice::Disk),
    ("cd", MediaDevice::Cdrom),
];

/// Keys of `InsertMedia` that some BMCs miss and others refuse, with the value that changes
/// nothing for those who know them.
const OPTIONAL_KEYS: &[&str] =
    &["TransferProtocolType", "TransferMethod", "Inserted", "WriteProtected"];

/// How many bodies a drive is offered at most.
const MOST_BODIES: usize = 5;

/// A virtual drive.
#[derive(Clone, Debug)]
pub(super) struct Drive {
    pub(super) resource: Resource,
    /// What it can hold, in the order of [`MediaDevice::ALL`]; never empty.
    devices: Vec<MediaDevice>,
}

/// How a drive is told what to hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By posting to its action, which is there.
    Action(String),
    /// By changing the drive itself.
    Change,
}

impl Drive {
    pub(super) fn new(resource: Resource) -> Self {
        let devices = devices(&resource);
        Self { resource, devices }
    }

    /// What an operator knows the drive by.
    pub(super) fn name(&self) -> &str {
        id(&self.resource)
    }

    /// What it holds mainly, and what is in it.
    pub(super) fn slot(&self) -> MediaSlot {
        let device = self.devices.first().copied().unwrap_or(MediaDevice::Cdrom);
        let image_url = is_occupied(&self.resource)
            .then(|| image(&self.resource).map_or_else(String::new, shown_url));
        MediaSlot { device, image_url }
    }

    /// Whether it can hold any of `devices`; an empty list means anything.
    pub(super) fn fits(&self, devices: &[MediaDevice]) -> bool {
        devices.is_empty() || self.devices.iter().any(|device| devices.contains(device))
    }

    /// How to tell it to insert or eject, best first.
    pub(super) fn ways(&self, action: &str, quirks: &Behaviour) -> Vec<Way> {
        let action = self.resource.action(action).map(|action| Way::Action(action.target));
        if quirks.media_by_patch == Some(true) {
            return vec![Way::Change];
        }
        action.into_iter().chain([Way::Change]).collect()
    }

    /// The protocols it says it fetches images by, if it says so and `image` needs another.
    pub(super) fn protocols_instead_of(&self, image: &ImageUrl) -> Option<String> {
        let action = self.resource.action("VirtualMedia.InsertMedia")?;
        let known = action.allowable.get("TransferProtocolType")?;
        let fits = known.is_empty() || known.iter().any(|name| name == image.protocol);
        (!fits).then(|| known.join(", "))
    }
}

/// The drives of `drives` that can hold `device`, best first: those meant for it, and then those
/// that hold other things too. A CD takes the first of the latter and all else the last, so that
/// a CD and a disk do not push each other out where there are two drives for everything.
pub(super) fn fitting(drives: &[Drive], device: MediaDevice) -> Vec<&Drive> {
    let fits = drives.iter().filter(|drive| drive.devices.contains(&device));
    let (own, shared): (Vec<&Drive>, Vec<&Drive>) =
        fits.partition(|drive| drive.devices.len() == 1 || device == MediaDevice::Cdrom);
    own.into_iter().chain(shared.into_iter().rev()).collect()
}

/// Whether there is an image in the drive.
pub(super) fn is_occupied(drive: &Resource) -> bool {
    // Some BMCs go on to show the last image after it was ejected; others do not say `Inserted`.
    drive.flag("/Inserted").unwrap_or_else(|| image(drive).is_some())
}

/// Whether this image is in the drive.
pub(super) fn holds(drive: &Resource, wanted: &ImageUrl) -> bool {
    is_occupied(drive) && shows(drive, wanted)
}

/// Whether the drive shows this image, inserted or not.
pub(super) fn shows(drive: &Resource, wanted: &ImageUrl) -> bool {
    image(drive).is_some_and(|image| without_login(image) == wanted.url)
}

/// Whether the drive says anything about what is in it.
pub(super) fn tells(drive: &Resource) -> bool {
    drive.flag("/Inserted").is_some() || drive.at("/Image").is_some()
}

/// What to send first to have `image` inserted.
pub(super) fn first_body(way: &Way, image: &ImageUrl, quirks: &Behaviour) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("Image".to_owned(), Value::from(image.url.as_str()));
    if let Some(login) = &image.login {
        body.insert("UserName".to_owned(), Value::from(login.username.as_str()));
        body.insert("Password".to_owned(), Value::from(login.password.as_str()));
    }
    match way {
        // Both are true unless said otherwise, and old BMCs refuse to be told (Supermicro X11).
        Way::Action(_) => {}
        // A change says only what it says (Lenovo SD530 leaves the drive empty otherwise).
        Way::Change => {
            body.insert("Inserted".to_owned(), Value::Bool(true));
            body.insert("WriteProtected".to_owned(), Value::Bool(true));
        }
    }
    body.retain(|key, _| !is_left_out(key, quirks));
    body
}

/// What to send after the bodies in `tried` were refused, the last of them with `complaint`. Keys
/// that the complaint names are added if they were not sent and left out if they were; if it names
/// none, the longest and the shortest body are tried.
pub(super) fn next_body(
    tried: &[Map<String, Value>],
    image: &ImageUrl,
    complaint: &str,
    quirks: &Behaviour,
) -> Option<Map<String, Value>> {
    let last = tried.last()?;
    if tried.len() >= MOST_BODIES {
        return None;
    }
    let mut named = last.clone();
    for key in OPTIONAL_KEYS.iter().filter(|key| complaint.contains(**key)) {
        if named.remove(*key).is_none() {
            named.insert((*key).to_owned(), neutral(key, image));
        }
    }
    // Some want a login even if the image needs none (Nvidia DGX); any will do.
    if image.login.is_none() && ["UserName", "Password"].iter().any(|key| complaint.contains(key)) {
        for key in ["UserName", "Password"] {
            named.insert(key.to_owned(), Value::from("none"));
        }
    }
    let mut longest = last.clone();
    let mut shortest = last.clone();
    for key in OPTIONAL_KEYS {
        longest.insert((*key).to_owned(), neutral(key, image));
        shortest.remove(*key);
    }
    longest.remove("TransferMethod");
    for body in [&mut named, &mut longest, &mut shortest] {
        body.retain(|key, _| !is_left_out(key, quirks));
    }
    [named, longest, shortest].into_iter().find(|body| !tried.contains(body))
}

/// What to send to a drive to have it emptied.
pub(super) fn eject_body(way: &Way) -> Value {
    match way {
        Way::Action(_) => json!({}),
        Way::Change => json!({"Image": null, "Inserted": false}),
    }
}

fn image(drive: &Resource) -> Option<&str> {
    drive.text("/Image").filter(|image| !image.is_empty())
}

fn neutral(key: &str, image: &ImageUrl) -> Value {
    match key {
        "TransferProtocolType" => Value::from(image.protocol),
        "TransferMethod" => Value::from("Stream"),
        _ => Value::Bool(true),
    }
}

fn is_left_out(key: &str, quirks: &Behaviour) -> bool {
    quirks.media_leave_out.as_ref().is_some_and(|keys| keys.iter().any(|known| known == key))
}

fn devices(drive: &Resource) -> Vec<MediaDevice> {
    let told: Vec<String> =
        drive.texts("/MediaTypes").iter().map(|kind| kind.to_ascii_lowercase()).collect();
    let name = ["/Id", "/Name"].map(|key| drive.text(key).unwrap_or_default()).join(" ");
    let name = name.to_ascii_lowercase();
    let known = |word: &str| match told.is_empty() {
        true => name.contains(word),
        false => told.iter().any(|kind| kind == word),
    };
    let mut found: Vec<MediaDevice> =
        MEDIA_TYPES.iter().filter(|(word, _)| known(word)).map(|(_, device)| *device).collect();
    if found.is_empty() {
        // Neither its kinds nor its name say what it holds: anything may be tried.
        found.extend_from_slice(MediaDevice::ALL);
    }
    MediaDevice::ALL.iter().copied().filter(|device| found.contains(device)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(body: Value) -> Drive {
        let id = body["Id"].as_str().unwrap_or("7").to_owned();
        Drive::new(Resource { path: format!("/redfish/v1/Systems/1/VM/{id}"), etag: None, body })
    }

    fn image(url: &str) -> ImageUrl {
        ImageUrl::parse("image", url).unwrap()
    }

    #[test]
    fn what_a_drive_holds() {
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
    fn what_is_in_a_drive() {
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
            assert_eq!(holds(&drive.resource, &ours), held, "{body}");
        }
    }

    #[test]
    fn a_cd_and_a_disk_do_not_meet() {
        let all = json!(["CD", "DVD", "USBStick"]);
        let two = [
            drive(json!({"Id": "1", "MediaTypes": all})),
            drive(json!({"Id": "2", "MediaTypes": all})),
        ];
        let names = |drives: &[Drive], device| {
            fitting(drives, device).iter().map(|d| d.name().to_owned()).collect::<Vec<_>>()
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

    /// The bodies sent to a BMC that answers each with the complaint given.
    fn bodies(way: &Way, url: &str, quirks: &Behaviour, complaints: &[&str]) -> Vec<String> {
        let image = image(url);
        let mut tried = vec![first_body(way, &image, quirks)];
        for complaint in complaints {
            match next_body(&tried, &image, complaint, quirks) {
                Some(body) => tried.push(body),
                None => break,
            }
        }
        tried.into_iter().map(|body| Value::Object(body).to_string()).collect()
    }

    #[test]
    fn bodies_follow_complaints() {
        let action = Way::Action(String::new());
        let plain = Behaviour::default();
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
            bodies(&Way::Change, "http://u:p@h/i", &plain, &["WriteProtected is not known"]),
            [
                r#"{"Image":"http://h/i","Inserted":true,"Password":"p","UserName":"u","WriteProtected":true}"#,
                r#"{"Image":"http://h/i","Inserted":true,"Password":"p","UserName":"u"}"#,
            ]
        );
        let quirks = Behaviour {
            media_leave_out: Some(vec!["Inserted".to_owned(), "WriteProtected".to_owned()]),
            ..Behaviour::default()
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
    fn ways_and_protocols() {
        let body = json!({"Actions": {"#VirtualMedia.InsertMedia": {
            "target": "/insert", "TransferProtocolType@Redfish.AllowableValues": ["NFS", "CIFS"]}}});
        let drive = drive(body);
        let plain = Behaviour::default();
        assert_eq!(
            drive.ways("VirtualMedia.InsertMedia", &plain),
            [Way::Action("/insert".to_owned()), Way::Change]
        );
        assert_eq!(drive.ways("VirtualMedia.EjectMedia", &plain), [Way::Change]);
        let patched = Behaviour { media_by_patch: Some(true), ..Behaviour::default() };
        assert_eq!(drive.ways("VirtualMedia.InsertMedia", &patched), [Way::Change]);
        let wanted = drive.protocols_instead_of(&image("http://h/i"));
        assert_eq!(wanted.as_deref(), Some("NFS, CIFS"));
        assert_eq!(drive.protocols_instead_of(&image("nfs://h/i")), None);
    }
}
