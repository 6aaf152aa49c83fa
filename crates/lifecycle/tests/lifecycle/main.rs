// SPDX-License-Identifier: Apache-2.0
//! The lifecycle from outside: jobs played through as golden texts, and properties that hold for
//! any order of events.

mod support;

mod booting;
mod diagram;
mod in_band;
mod jobs;
mod properties;
mod verbs;
