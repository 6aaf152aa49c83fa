// SPDX-License-Identifier: Apache-2.0
//! Tests of request and response without sockets, and of connections.

mod connections;
mod exchanges;
