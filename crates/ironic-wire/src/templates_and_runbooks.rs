// SPDX-License-Identifier: Apache-2.0
//! The wire format of deploy templates and runbooks.

use node_model::{
    DeployTemplate, DeployTemplateId, JsonObject, Runbook, RunbookId, Timestamp, mask_object_urls,
};
use serde_json::Value;

use crate::body::WritableResource;
use crate::error::excerpt;
use crate::field::{FieldShape, ResourceField, ResourceIdentity, WireResource};
use crate::names::{is_logical_name, trait_name};
use crate::rows::{
    created_at_row, flag_row, links_row, non_null_text_row, object_row, text_row, updated_at_row,
    uuid_row,
};
use crate::steps::{runbook_steps, template_steps};
use crate::value::{SHORT_TEXT, ValueError, flag, mandatory_text, object_without_secrets, text};
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

impl WireResource for DeployTemplate {
    const KIND: &'static str = "deploy template";
    const COLLECTION: &'static str = "deploy_templates";
    const PATH: &'static str = "deploy_templates";
    type Draft = Self;

    fn fields() -> &'static [ResourceField<Self>] {
        TEMPLATE_FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }
}

impl WritableResource for DeployTemplate {
    fn blank(now: Timestamp, _version: ApiVersion) -> Self {
        Self {
            id: DeployTemplateId::random(),
            created_at: now,
            updated_at: None,
            name: String::new(),
            steps: Vec::new(),
            extra: JsonObject::empty(),
        }
    }

    fn resource(draft: &Self) -> &Self {
        draft
    }
}

static TEMPLATE_FIELDS: &[ResourceField<DeployTemplate>] = &[
    uuid_row!(DeployTemplate, 55, |draft| draft.id.0),
    non_null_text_row!(DeployTemplate, "name", 55, name)
        .listed()
        .writable(|draft, value, _| {
            draft.name = trait_name(value)?;
            Ok(())
        })
        .required(),
    links_row!(DeployTemplate, 55),
    created_at_row!(DeployTemplate, 55),
    updated_at_row!(DeployTemplate, 55),
    ResourceField::<DeployTemplate>::new("steps", 55, FieldShape::ObjectList, |w, template, _| {
        w.begin_array();
        for step in &template.steps {
            w.element();
            write_step(w, &step.interface, &step.step, &step.args, ("priority", step.priority));
        }
        w.end_array();
    })
    .columns(&["steps"])
    .writable(|draft, value, _| {
        draft.steps = template_steps(value)?;
        Ok(())
    })
    .required(),
    object_row!(DeployTemplate, "extra", 55, extra).writable(|draft, value, _| {
        draft.extra = object_without_secrets(value)?.into();
        Ok(())
    }),
    // Ironic checks the description, but neither stores nor shows it.
    ResourceField::<DeployTemplate>::create_only(
        "description",
        55,
        FieldShape::Text,
        |_, value, _| text(value, SHORT_TEXT).map(|_| ()),
    )
    .patchable_since(55),
];

impl WireResource for Runbook {
    const KIND: &'static str = "runbook";
    const COLLECTION: &'static str = "runbooks";
    const PATH: &'static str = "runbooks";
    type Draft = Self;

    fn fields() -> &'static [ResourceField<Self>] {
        RUNBOOK_FIELDS
    }

    fn identity(&self) -> ResourceIdentity<'_> {
        ResourceIdentity::Uuid(self.id.0)
    }
}

impl WritableResource for Runbook {
    fn blank(now: Timestamp, _version: ApiVersion) -> Self {
        Self {
            id: RunbookId::random(),
            created_at: now,
            updated_at: None,
            name: String::new(),
            description: None,
            steps: Vec::new(),
            traits: Vec::new(),
            disable_ramdisk: false,
            public: false,
            owner: None,
            extra: JsonObject::empty(),
        }
    }

    fn resource(draft: &Self) -> &Self {
        draft
    }
}

static RUNBOOK_FIELDS: &[ResourceField<Runbook>] = &[
    uuid_row!(Runbook, 92, |draft| draft.id.0),
    non_null_text_row!(Runbook, "name", 92, name)
        .listed()
        .writable(|draft, value, version| {
            draft.name = runbook_name(value, version)?;
            Ok(())
        })
        .required(),
    links_row!(Runbook, 92),
    created_at_row!(Runbook, 92),
    updated_at_row!(Runbook, 92),
    ResourceField::<Runbook>::new("steps", 92, FieldShape::ObjectList, |w, runbook, _| {
        w.begin_array();
        for step in &runbook.steps {
            w.element();
            write_step(w, &step.interface, &step.step, &step.args, ("order", step.order));
        }
        w.end_array();
    })
    .columns(&["steps"])
    .writable(|draft, value, _| {
        draft.steps = runbook_steps(value)?;
        Ok(())
    })
    .required(),
    flag_row!(Runbook, "disable_ramdisk", 92, disable_ramdisk).writable(|draft, value, _| {
        draft.disable_ramdisk = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    flag_row!(Runbook, "public", 92, public).writable(|draft, value, _| {
        draft.public = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    text_row!(Runbook, "owner", 92, owner).writable(|draft, value, _| {
        draft.owner = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    object_row!(Runbook, "extra", 92, extra).writable(|draft, value, _| {
        draft.extra = object_without_secrets(value)?.into();
        Ok(())
    }),
    text_row!(Runbook, "description", 112, description).writable(|draft, value, _| {
        draft.description = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    ResourceField::<Runbook>::new("traits", 112, FieldShape::TextList, |w, runbook, _| {
        w.strings(&runbook.traits);
    })
    .columns(&["traits"]),
];

/// Before 1.112 a runbook was matched by its name, which had to be a trait.
fn runbook_name(value: Value, version: ApiVersion) -> Result<String, ValueError> {
    if !version.has(112) {
        return trait_name(value);
    }
    let name = mandatory_text(value, SHORT_TEXT)?;
    if is_logical_name(&name) {
        Ok(name)
    } else {
        Err(format!("invalid name '{}'; use letters, digits and -._~", excerpt(&name)).into())
    }
}

fn write_step(
    w: &mut JsonWriter,
    interface: &str,
    step: &str,
    args: &JsonObject,
    (order_key, number): (&'static str, i64),
) {
    w.begin_object();
    w.key("interface");
    w.string(interface);
    w.key("step");
    w.string(step);
    w.key("args");
    w.object(&mask_object_urls(args));
    w.key(order_key);
    w.integer(number);
    w.end_object();
}
