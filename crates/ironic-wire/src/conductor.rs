// SPDX-License-Identifier: Apache-2.0
//! Conductors as Ironic shows them.

use node_model::ConductorInfo;

use crate::field::{Field, Identity, Resource, Shape};

/// A conductor and whether it has been heard of lately.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConductorView {
    /// The conductor.
    pub info: ConductorInfo,
    /// Whether it is online and its last sign of life is recent.
    pub alive: bool,
}

impl Resource for ConductorView {
    const KIND: &'static str = "conductor";
    const COLLECTION: &'static str = "conductors";
    const PATH: &'static str = "conductors";
    type Draft = ();

    fn fields() -> &'static [Field<Self>] {
        FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Name(&self.info.hostname)
    }
}

type ConductorField = Field<ConductorView>;

static FIELDS: &[ConductorField] = &[
    ConductorField::new("hostname", 49, Shape::Text, |w, it, _| w.string(&it.info.hostname))
        .needs(&["hostname"])
        .sortable()
        .listed(),
    ConductorField::new("conductor_group", 49, Shape::Text, |w, it, _| {
        w.string(&it.info.conductor_group);
    })
    .needs(&["conductor_group"])
    .sortable()
    .listed(),
    ConductorField::new("links", 49, Shape::Links, |w, it, context| {
        context.links(w, "conductors", it.identity(), "");
    })
    .needs(&["hostname"])
    .listed(),
    ConductorField::new("alive", 49, Shape::Flag, |w, it, _| w.boolean(it.alive))
        .needs(&["updated_at", "online"])
        .listed(),
    ConductorField::new("drivers", 49, Shape::TextList, |w, it, _| w.strings(&it.info.drivers))
        .needs(&["drivers"]),
    ConductorField::new("created_at", 49, Shape::Moment, |w, it, _| {
        w.timestamp(it.info.created_at);
    })
    .needs(&["created_at"])
    .sortable(),
    ConductorField::new("updated_at", 49, Shape::Moment, |w, it, _| {
        w.timestamp(it.info.updated_at);
    })
    .needs(&["updated_at"])
    .sortable(),
];
