// SPDX-License-Identifier: Apache-2.0
//! A process that looks after nodes.

use uuid::Uuid;

use crate::Timestamp;

/// A conductor as the database knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConductorInfo {
    /// Unique name of the process.
    pub hostname: String,
    /// Which run of it: another each time the process starts.
    pub run: Option<Uuid>,
    /// The group of nodes it looks after.
    pub conductor_group: String,
    /// Hardware types it has enabled.
    pub drivers: Vec<String>,
    /// When it first appeared.
    pub created_at: Timestamp,
    /// When it last said that it lives.
    pub updated_at: Timestamp,
    /// Whether it has not said goodbye.
    pub online: bool,
}
