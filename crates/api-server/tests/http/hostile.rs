// SPDX-License-Identifier: Apache-2.0
//! Bad input at every route of the table. Whatever arrives is answered, never with a failure of the
//! server; what is refused says why, names the field if it is a field's fault, and leaves no trace.
//!
//! The routes and fields come from the crate's own document, so a new one is thrown at as soon as it
//! exists.

mod bodies;
mod examples;
mod heads;
mod patches;
mod target;
