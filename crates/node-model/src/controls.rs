// SPDX-License-Identifier: Apache-2.0
//! Data of direct calls: console, indicators, sensors, virtual media, virtual interfaces, vendor
//! methods. Enumerations are spelt as in Ironic's API.

use crate::Mac;
use crate::named_enum;
use crate::{Health, JsonObject, PortId, PortgroupId};

/// How to connect to a console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsoleInfo {
    /// The type: `socat`, `vnc`, …
    pub kind: &'static str,
    /// The address.
    pub url: String,
}

named_enum! {
    /// The component that an indicator belongs to.
    IndicatorComponent {
        /// The chassis.
        Chassis = "chassis",
        /// The machine.
        System = "system",
        /// A disk.
        Disk = "disk",
        /// A power supply.
        Power = "power",
        /// A NIC.
        Nic = "nic",
    }

    /// The state of an indicator.
    IndicatorState {
        /// Off.
        Off = "off",
        /// On.
        On = "on",
        /// Blinking.
        Blinking = "blinking",
        /// The BMC does not report it.
        Unknown = "unknown",
    }

    /// A type of virtual media device.
    MediaDevice {
        /// A CD or DVD.
        Cdrom = "cdrom",
        /// A disk or USB stick.
        Disk = "disk",
        /// A floppy.
        Floppy = "floppy",
    }

    /// The HTTP methods of vendor methods.
    HttpMethod {
        /// GET.
        Get = "GET",
        /// POST.
        Post = "POST",
        /// PUT.
        Put = "PUT",
        /// PATCH.
        Patch = "PATCH",
        /// DELETE.
        Delete = "DELETE",
    }

    /// What a sensor measures, as in Ironic's metrics.
    SensorKind {
        /// The speed of a fan.
        Fan = "Fan",
        /// A temperature.
        Temperature = "Temperature",
        /// A power supply or a voltage.
        Power = "Power",
        /// A disk.
        Drive = "Drive",
    }
}

/// An indicator LED.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Indicator {
    /// The component it belongs to.
    pub component: IndicatorComponent,
    /// The name within the component.
    pub name: String,
    /// Whether it cannot be set.
    pub readonly: bool,
    /// The states it supports.
    pub states: &'static [IndicatorState],
}

/// A measurement of a BMC.
#[derive(Clone, PartialEq, Debug)]
pub struct Sensor {
    /// The name, unique within its kind.
    pub name: String,
    /// What it measures.
    pub kind: SensorKind,
    /// The value; `None` if the sensor currently has none.
    pub reading: Option<f64>,
    /// The unit of the value: `Celsius`, `RPM`, `Watts`, `Volts`, `Percent`.
    pub unit: &'static str,
    /// The state of the measured component.
    pub status: SensorStatus,
}

/// The state of the component that a sensor measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SensorStatus {
    /// In use, with this health.
    Enabled(Health),
    /// Not present: an empty slot, or a machine that is off.
    Absent,
}

/// What identifies a machine, as its BMC reports it. A BMC may report nothing of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SystemIdentity {
    /// The UUID of the system.
    pub system_uuid: Option<String>,
    /// The serial number of the system.
    pub serial_number: Option<String>,
    /// The manufacturer.
    pub manufacturer: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The MAC addresses of its NICs, sorted.
    pub mac_addresses: Vec<Mac>,
}

/// A virtual media device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MediaSlot {
    /// The type of device.
    pub device: MediaDevice,
    /// The attached image.
    pub image_url: Option<String>,
}

/// A virtual interface of the network service that is attached to a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VifInfo {
    /// The id in the network service.
    pub id: String,
    /// The port that it is restricted to.
    pub port: Option<PortId>,
    /// The portgroup that it is restricted to.
    pub portgroup: Option<PortgroupId>,
    /// All other members of the request.
    pub rest: JsonObject,
}

/// A vendor method, called through `vendor_passthru`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VendorMethod {
    /// The name.
    pub name: &'static str,
    /// The accepted HTTP methods.
    pub http_methods: &'static [HttpMethod],
    /// Whether it runs in the background, without a result.
    pub is_async: bool,
    /// The description.
    pub description: &'static str,
    /// Whether the result is a file instead of JSON.
    pub attach: bool,
    /// Whether the node is leased for the call. A method without a lease only reads: its changes are
    /// not stored.
    pub require_exclusive_lock: bool,
}
