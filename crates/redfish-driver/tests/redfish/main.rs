// SPDX-License-Identifier: Apache-2.0
//! The Redfish interfaces against simulated BMCs of several vendors, over real sockets.

mod automatic;
mod bios;
mod boot;
mod firmware;
mod https;
mod idrac;
mod inspect;
mod management;
mod media;
mod power;
mod probe;
mod raid;
mod requested_firmware;
mod rig;
mod sessions;
mod steps;
mod vendor;
