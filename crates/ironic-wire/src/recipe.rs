// SPDX-License-Identifier: Apache-2.0
//! Deploy templates and runbooks as Ironic shows them.

use node_model::{
    DeployTemplate, DeployTemplateId, JsonObject, Runbook, RunbookId, Timestamp, mask_object_urls,
};
use serde_json::Value;

use crate::body::Writable;
use crate::error::excerpt;
use crate::field::{Field, Identity, Resource, Shape};
use crate::names::{is_logical_name, trait_name};
use crate::rows::{
    created_at_row, flag_row, links_row, object_row, text_row, updated_at_row, uuid_row,
    whole_text_row,
};
use crate::steps::{runbook_steps, template_steps};
use crate::value::{Problem, SHORT_TEXT, flag, mandatory_text, object, text};
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

impl Resource for DeployTemplate {
    const KIND: &'static str = "deploy template";
    const COLLECTION: &'static str = "deploy_templates";
    const PATH: &'static str = "deploy_templates";
    type Draft = Self;

    fn fields() -> &'static [Field<Self>] {
        TEMPLATE_FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Uuid(self.id.0)
    }
}

impl Writable for DeployTemplate {
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

    fn of(draft: &Self) -> &Self {
        draft
    }
}

static TEMPLATE_FIELDS: &[Field<DeployTemplate>] = &[
    uuid_row!(DeployTemplate, 55, |draft| draft.id.0),
    whole_text_row!(DeployTemplate, "name", 55, name)
        .listed()
        .written(|draft, value, _| {
            draft.name = trait_name(value)?;
            Ok(())
        })
        .required(),
    links_row!(DeployTemplate, 55),
    created_at_row!(DeployTemplate, 55),
    updated_at_row!(DeployTemplate, 55),
    Field::<DeployTemplate>::new("steps", 55, Shape::ObjectList, |w, template, _| {
        w.begin_array();
        for step in &template.steps {
            w.element();
            write_step(w, &step.interface, &step.step, &step.args, ("priority", step.priority));
        }
        w.end_array();
    })
    .needs(&["steps"])
    .written(|draft, value, _| {
        draft.steps = template_steps(value)?;
        Ok(())
    })
    .required(),
    object_row!(DeployTemplate, "extra", 55, extra).written(|draft, value, _| {
        draft.extra = object(value)?.into();
        Ok(())
    }),
    // Ironic takes a description, checks it, and neither keeps nor shows it.
    Field::<DeployTemplate>::only_created("description", 55, Shape::Text, |_, value, _| {
        text(value, SHORT_TEXT).map(|_| ())
    })
    .patched_since(55),
];

impl Resource for Runbook {
    const KIND: &'static str = "runbook";
    const COLLECTION: &'static str = "runbooks";
    const PATH: &'static str = "runbooks";
    type Draft = Self;

    fn fields() -> &'static [Field<Self>] {
        RUNBOOK_FIELDS
    }

    fn identity(&self) -> Identity<'_> {
        Identity::Uuid(self.id.0)
    }
}

impl Writable for Runbook {
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

    fn of(draft: &Self) -> &Self {
        draft
    }
}

static RUNBOOK_FIELDS: &[Field<Runbook>] = &[
    uuid_row!(Runbook, 92, |draft| draft.id.0),
    whole_text_row!(Runbook, "name", 92, name)
        .listed()
        .written(|draft, value, version| {
            draft.name = runbook_name(value, version)?;
            Ok(())
        })
        .required(),
    links_row!(Runbook, 92),
    created_at_row!(Runbook, 92),
    updated_at_row!(Runbook, 92),
    Field::<Runbook>::new("steps", 92, Shape::ObjectList, |w, runbook, _| {
        w.begin_array();
        for step in &runbook.steps {
            w.element();
            write_step(w, &step.interface, &step.step, &step.args, ("order", step.order));
        }
        w.end_array();
    })
    .needs(&["steps"])
    .written(|draft, value, _| {
        draft.steps = runbook_steps(value)?;
        Ok(())
    })
    .required(),
    flag_row!(Runbook, "disable_ramdisk", 92, disable_ramdisk).written(|draft, value, _| {
        draft.disable_ramdisk = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    flag_row!(Runbook, "public", 92, public).written(|draft, value, _| {
        draft.public = flag(&value)?.unwrap_or(false);
        Ok(())
    }),
    text_row!(Runbook, "owner", 92, owner).written(|draft, value, _| {
        draft.owner = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    object_row!(Runbook, "extra", 92, extra).written(|draft, value, _| {
        draft.extra = object(value)?.into();
        Ok(())
    }),
    text_row!(Runbook, "description", 112, description).written(|draft, value, _| {
        draft.description = text(value, SHORT_TEXT)?;
        Ok(())
    }),
    Field::<Runbook>::new("traits", 112, Shape::TextList, |w, runbook, _| {
        w.strings(&runbook.traits);
    })
    .needs(&["traits"]),
];

/// Before 1.112 a runbook was matched by its name, which therefore had to be a trait.
fn runbook_name(value: Value, version: ApiVersion) -> Result<String, Problem> {
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
    (place, number): (&'static str, i64),
) {
    w.begin_object();
    w.key("interface");
    w.string(interface);
    w.key("step");
    w.string(step);
    w.key("args");
    w.object(&mask_object_urls(args));
    w.key(place);
    w.integer(number);
    w.end_object();
}
