// SPDX-License-Identifier: Apache-2.0
//! Kubernetes resources of the operator: types, CRDs, validation, and translation to Ironic's
//! payloads. No IO.
//!
//! The CRDs in `crds/` are data. The types here are narrow: they have the fields of the schema and
//! ignore all others, so an object that is read and written back as a whole would lose unknown
//! fields. Controllers therefore only ever patch.

pub mod crds;
pub mod deprecations;
pub mod field_error;
pub mod hosts;
pub mod ironic;
mod kind;
mod optional;
mod text_enum;
