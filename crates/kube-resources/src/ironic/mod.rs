// SPDX-License-Identifier: Apache-2.0
//! The kinds of group `ironic.metal3.io`: an installation of the service, and its database.
//!
//! Names, schema and behaviour of `Ironic` are those of Metal3's ironic-standalone-operator, so that
//! existing manifests work unchanged; fields that it does not have are optional. `IronicDatabase` is
//! the kind of its design document.

pub mod address_range;
pub mod conditions;
pub mod database;
pub mod defaults;
pub mod names;
pub mod networking;
pub mod overrides;
pub mod service;
pub mod validation;
pub mod versions;
