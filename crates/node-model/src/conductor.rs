// SPDX-License-Identifier: Apache-2.0
//! The registration of a conductor.

use uuid::Uuid;

use crate::Timestamp;

/// A conductor, as registered in the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConductorInfo {
    /// The unique host name of the process.
    pub hostname: String,
    /// The id of this process run: a new one at each start.
    pub run: Option<Uuid>,
    /// The version of the program; `None` if it does not record its version, as the first ones.
    pub version: Option<String>,
    /// The conductor group that it manages.
    pub conductor_group: String,
    /// The enabled hardware types.
    pub drivers: Vec<String>,
    /// When it first registered.
    pub created_at: Timestamp,
    /// When it last renewed its registration.
    pub updated_at: Timestamp,
    /// Whether it is running: false after an orderly shutdown.
    pub online: bool,
}
