// SPDX-License-Identifier: Apache-2.0
//! Test server and client.

pub(crate) mod fixture;
pub(crate) mod test_lab;
