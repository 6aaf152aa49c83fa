// SPDX-License-Identifier: Apache-2.0
//! Virtual media: slots into which an image at a URL is put as if it were a disc or a stick.

use node_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Machine, Refused};

/// What a slot pretends to be, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaKind {
    /// A CD.
    #[serde(rename = "CD")]
    Cd,
    /// A DVD.
    #[serde(rename = "DVD")]
    Dvd,
    /// A floppy disk.
    Floppy,
    /// A USB stick.
    #[serde(rename = "USBStick")]
    UsbStick,
}

/// What is in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Media {
    /// Where the image comes from.
    pub image: Box<str>,
    /// Whether the machine sees it.
    pub inserted: bool,
    /// Whether the machine may not write to it.
    pub write_protected: bool,
    /// The name given to the image's server.
    pub user_name: Option<Box<str>>,
    /// Since when it is there.
    pub since: Timestamp,
}

impl MediaKind {
    /// Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cd => "CD",
            Self::Dvd => "DVD",
            Self::Floppy => "Floppy",
            Self::UsbStick => "USBStick",
        }
    }
}

impl Machine {
    /// What is in each slot, in the personality's order.
    #[must_use]
    pub fn media(&self) -> &[Option<Media>] {
        &self.media
    }

    /// Puts an image into a slot.
    ///
    /// # Errors
    /// When the BMC cannot fetch from such a place, or the slot is taken and this kind of BMC wants
    /// it ejected first.
    pub fn insert_media(&mut self, slot: usize, media: Media) -> Result<(), Refused> {
        let rules = &self.personality.media;
        let scheme = media.image.split_once("://").map_or("", |(scheme, _)| scheme);
        let is_known = rules.schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme));
        if !is_known {
            return Err(Refused::BadFormat { property: "Image", value: media.image.into() });
        }
        let replaces = rules.replaces;
        let place = self.media.get_mut(slot).ok_or(Refused::NoSuch { what: "virtual media" })?;
        if place.as_ref().is_some_and(|there| there.inserted) && !replaces {
            return Err(Refused::InUse { what: "the virtual media slot" });
        }
        *place = Some(media);
        Ok(())
    }

    /// Takes out what is in a slot.
    ///
    /// # Errors
    /// When the slot is empty and this kind of BMC minds.
    pub fn eject_media(&mut self, slot: usize) -> Result<(), Refused> {
        let minds = !self.personality.media.ejects_nothing;
        let place = self.media.get_mut(slot).ok_or(Refused::NoSuch { what: "virtual media" })?;
        if place.take().is_none() && minds {
            return Err(Refused::Empty { what: "the virtual media slot" });
        }
        Ok(())
    }

    /// The first medium the machine sees as one of `kinds`.
    pub(super) fn medium_of(&self, kinds: &[MediaKind]) -> Option<&Media> {
        let slots = self.personality.media.slots.iter();
        slots
            .zip(&self.media)
            .filter(|(slot, _)| slot.kinds.iter().any(|kind| kinds.contains(kind)))
            .find_map(|(_, media)| media.as_ref().filter(|media| media.inserted))
    }
}
