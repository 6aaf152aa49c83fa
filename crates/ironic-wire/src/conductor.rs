// SPDX-License-Identifier: Apache-2.0
//! The wire format of conductors.

use node_model::ConductorInfo;

use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};

/// A conductor with its liveness.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConductorView {
    /// The conductor.
    pub info: ConductorInfo,
    /// Whether it is online and its last heartbeat is recent.
    pub alive: bool,
}

impl WireResource for ConductorView {
    const KIND: &'static str = "conductor";
    const COLLECTION: &'static str = "conductors";
    const PATH: &'static str = "conductors";
    type Draft = ();

    fn fields() -> &'static [ResourceField<Self>] {
        FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Name(&self.info.hostname)
    }
}

type ConductorField = ResourceField<ConductorView>;

static FIELDS: &[ConductorField] = &[
    ConductorField::new("hostname", 49, FieldShape::Text, |w, it, _| w.string(&it.info.hostname))
        .columns(&["hostname"])
        .sortable()
        .listed(),
    ConductorField::new("conductor_group", 49, FieldShape::Text, |w, it, _| {
        w.string(&it.info.conductor_group);
    })
    .columns(&["conductor_group"])
    .sortable()
    .listed(),
    ConductorField::new("links", 49, FieldShape::Links, |w, it, context| {
        context.links(w, "conductors", it.identity(), "");
    })
    .columns(&["hostname"])
    .listed(),
    ConductorField::new("alive", 49, FieldShape::Boolean, |w, it, _| w.boolean(it.alive))
        .columns(&["updated_at", "online"])
        .listed(),
    ConductorField::new("drivers", 49, FieldShape::TextList, |w, it, _| {
        w.strings(&it.info.drivers)
    })
    .columns(&["drivers"]),
    // Ironic has no such field.
    ConductorField::new("version", 49, FieldShape::Text, |w, it, _| {
        w.optional_string(it.info.version.as_deref());
    })
    .columns(&["version"]),
    ConductorField::new("created_at", 49, FieldShape::Timestamp, |w, it, _| {
        w.timestamp(it.info.created_at);
    })
    .columns(&["created_at"])
    .sortable(),
    ConductorField::new("updated_at", 49, FieldShape::Timestamp, |w, it, _| {
        w.timestamp(it.info.updated_at);
    })
    .columns(&["updated_at"])
    .sortable(),
];
