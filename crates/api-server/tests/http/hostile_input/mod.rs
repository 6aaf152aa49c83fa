// SPDX-License-Identifier: Apache-2.0
//! Invalid input on every route: every request gets a response below 500; a rejected one has a message
//! (with the field, if a field is wrong) and changes nothing.
//!
//! Routes and fields come from the OpenAPI document, so new ones are tested automatically.

mod bodies;
mod examples;
mod patches;
mod random_bytes;
mod random_values;
mod request_heads;
mod target;
