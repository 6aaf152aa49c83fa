// SPDX-License-Identifier: Apache-2.0
//! Tests of the kubelet with a real control plane.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod cluster;
mod databases;
mod outages;
mod permissions;
mod volumes;
mod workloads;
