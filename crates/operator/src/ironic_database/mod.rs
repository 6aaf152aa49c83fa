// SPDX-License-Identifier: Apache-2.0
//! Database servers for installations: `IronicDatabase` objects.

pub mod controller;
pub mod desired;
pub mod settings;
pub mod setup;
