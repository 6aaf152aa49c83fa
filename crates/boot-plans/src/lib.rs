// SPDX-License-Identifier: Apache-2.0
//! What each machine should boot now.
//!
//! A boot interface publishes a plan ([`BootServices`] is its [`BootDesk`](bmc_drivers::BootDesk)):
//! the images are fetched and checked, and the plan is written down. From then on every one of our
//! processes answers for it, in whatever form the firmware asks: a DHCP reply, an iPXE script, the
//! configuration of a boot loader, a unified kernel image, a CD. All of these follow from the plan
//! alone; none is kept on disk.
//!
//! What machines ask for on their way is told to the timeline of their node, or, if nobody enrolled
//! them, to the list of strangers.

mod answers;
mod desk;
mod discovery;
mod hex;
mod installer;
mod instance_images;
mod kickstart;
mod layouts;
mod loaders;
mod networks;
mod order;
mod pages;
mod parameters;
mod scripts;
mod services;
mod settings;
mod sightings;
#[cfg(test)]
mod tests;
mod tftp;

pub use answers::DhcpPlans;
pub use networks::{Client, LeaseKept};
pub use pages::MacPage;
pub use services::{BootServices, StartError};
pub use settings::{DownloadSource, ImageSettings, Settings};
pub use sightings::Witness;
