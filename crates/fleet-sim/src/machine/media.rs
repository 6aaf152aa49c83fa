// SPDX-License-Identifier: Apache-2.0
//! Virtual media slots, each of which presents the image at a URL as a CD, floppy or USB stick.

use node_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::{MachineError, MachineModel};

/// Redfish's `MediaType`: the device that a slot emulates.
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

/// The image in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InsertedMedia {
    /// Its URL.
    pub image: Box<str>,
    /// Whether it is connected to the machine.
    pub inserted: bool,
    /// Whether the machine cannot write to it.
    pub write_protected: bool,
    /// The user name for the image server.
    pub user_name: Option<Box<str>>,
    /// When it was inserted.
    pub since: Timestamp,
}

impl MediaKind {
    /// Returns Redfish's name.
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

impl MachineModel {
    /// Returns the content of each slot, in the personality's order.
    #[must_use]
    pub fn inserted_media(&self) -> &[Option<InsertedMedia>] {
        &self.media
    }

    /// Inserts an image into a slot.
    ///
    /// # Errors
    /// When the URL scheme is not supported, or the slot is occupied and the personality requires
    /// an eject first.
    pub fn insert_media(&mut self, slot: usize, media: InsertedMedia) -> Result<(), MachineError> {
        let rules = &self.personality.media;
        let scheme = media.image.split_once("://").map_or("", |(scheme, _)| scheme);
        let is_known = rules.schemes.iter().any(|known| known.eq_ignore_ascii_case(scheme));
        if !is_known {
            return Err(MachineError::BadFormat { property: "Image", value: media.image.into() });
        }
        let replaces = rules.insert_replaces;
        let current =
            self.media.get_mut(slot).ok_or(MachineError::NotFound { what: "virtual media" })?;
        if current.as_ref().is_some_and(|media| media.inserted) && !replaces {
            return Err(MachineError::InUse { what: "the virtual media slot" });
        }
        *current = Some(media);
        Ok(())
    }

    /// Ejects the image of a slot.
    ///
    /// # Errors
    /// When the slot is empty and the personality rejects that.
    pub fn eject_media(&mut self, slot: usize) -> Result<(), MachineError> {
        let allows_empty = self.personality.media.allows_empty_eject;
        let current =
            self.media.get_mut(slot).ok_or(MachineError::NotFound { what: "virtual media" })?;
        if current.take().is_none() && !allows_empty {
            return Err(MachineError::Empty { what: "the virtual media slot" });
        }
        Ok(())
    }

    /// Returns the first connected medium in a slot that can emulate one of `kinds`.
    pub(super) fn inserted_medium(&self, kinds: &[MediaKind]) -> Option<&InsertedMedia> {
        let slots = self.personality.media.slots.iter();
        slots
            .zip(&self.media)
            .filter(|(slot, _)| slot.kinds.iter().any(|kind| kinds.contains(kind)))
            .find_map(|(_, media)| media.as_ref().filter(|media| media.inserted))
    }
}
