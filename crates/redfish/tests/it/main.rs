// SPDX-License-Identifier: Apache-2.0
//! The client against small servers that behave like BMCs do on their bad days.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod bmc;
mod connections;
mod finding;
mod recording;
mod sessions;
mod talking;
mod trust;
