// SPDX-License-Identifier: Apache-2.0
//! Limits the connections of a server in total and per client address.
//!
//! [`ConnectionTable::admit`] never waits. If a limit is reached, it closes the connection that has waited
//! longest for a request, so that clients which open connections and send nothing cannot lock others out.
//! A connection on which a request is being processed is never closed.

mod address;
mod table;

pub use address::client_prefix;
pub use table::{ConnectionLimits, ConnectionSlot, ConnectionTable};
