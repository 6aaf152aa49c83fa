// SPDX-License-Identifier: Apache-2.0
//! HTTP infrastructure: routing, versions, authentication, limits.

mod auth;
mod health;
mod limits;
mod routing;
mod version_negotiation;
