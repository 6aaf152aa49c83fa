// SPDX-License-Identifier: Apache-2.0
//! Requests and answers without sockets, and connections that behave badly.

mod connections;
mod exchanges;
