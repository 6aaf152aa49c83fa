// SPDX-License-Identifier: Apache-2.0
//! The tables of deploy templates, runbooks and inspection rules.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_model::{
    DeployTemplate, DeployTemplateId, InspectionRule, JsonArray, JsonObject, RuleId, Runbook,
    RunbookId, Sensitive, Timestamp,
};
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::optional_param;
use crate::key_ring::KeyRing;
use crate::query::SqlBuilder;
use crate::record::{ResourceFilter, columns, resource};
use crate::sealing_key::SealError;
use crate::value::{ColumnType, SqlParam};

columns!(DeployTemplate, DeployTemplateColumn, "deploy_templates", blank_template(), {
    Uuid "uuid" id;
    Name "name" name;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Steps "steps" steps;
    Extra "extra" extra;
});
resource!(DeployTemplate, DeployTemplateId, DeployTemplateFilter, sealed_steps);

columns!(Runbook, RunbookColumn, "runbooks", blank_runbook(), {
    Uuid "uuid" id;
    Name "name" name;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Description "description" description;
    DisableRamdisk "disable_ramdisk" disable_ramdisk;
    Public "public" public;
    Owner "owner" owner;
    Traits "traits" traits;
    Steps "steps" steps;
    Extra "extra" extra;
});
resource!(Runbook, RunbookId, RunbookFilter, sealed_steps);

columns!(InspectionRule, InspectionRuleColumn, "inspection_rules", blank_rule(), {
    Uuid "uuid" id;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Priority "priority" priority;
    Phase "phase" phase;
    Sensitive "is_sensitive" sensitive;
    Description "description" description;
    Conditions "conditions" conditions;
    Actions "actions" actions;
});
resource!(
    InspectionRule,
    RuleId,
    InspectionRuleFilter,
    fn sealed(&self, keys: &KeyRing) -> Option<Self> {
        match self.sensitive {
            Sensitive::No => None,
            Sensitive::Yes => Some(sealed_rule(self, keys)),
        }
    },
    fn unseal(&mut self, keys: &KeyRing) -> Result<(), SealError> {
        match self.sensitive {
            Sensitive::No => Ok(()),
            Sensitive::Yes => unseal_rule(self, keys),
        }
    }
);

/// Filter for lists of deploy templates.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeployTemplateFilter {
    /// With one of these names, which are traits that an instance requires.
    pub names: Option<Vec<String>>,
}

impl ResourceFilter for DeployTemplateFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        if let Some(names) = &self.names {
            to.in_list("name", names.iter().map(ColumnType::bind));
        }
    }
}

/// Filter for lists of runbooks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunbookFilter {
    /// Owned by this project.
    pub owner: Option<String>,
    /// Owned by this project, or public.
    pub visible_to: Option<String>,
}

impl ResourceFilter for RunbookFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("owner", optional_param(&self.owner));
        if let Some(project) = &self.visible_to {
            to.and("(owner = ? OR public = 1)");
            to.params.push(SqlParam::Text(project));
        }
    }
}

/// Filter for lists of inspection rules.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InspectionRuleFilter {
    /// Of this phase.
    pub phase: Option<String>,
}

impl ResourceFilter for InspectionRuleFilter {
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>) {
        to.equals("phase", optional_param(&self.phase));
    }
}

/// A sensitive rule as stored: its conditions and actions are encrypted as one text, which replaces
/// the actions.
fn sealed_rule(rule: &InspectionRule, keys: &KeyRing) -> InspectionRule {
    let plain = format!("[{},{}]", rule.conditions.as_str(), rule.actions.as_str());
    let text = STANDARD.encode(keys.seal(rule.id.0, plain.as_bytes()));
    InspectionRule {
        conditions: JsonArray::empty(),
        actions: JsonArray::from(vec![Value::String(text)]),
        ..rule.clone()
    }
}

fn unseal_rule(rule: &mut InspectionRule, keys: &KeyRing) -> Result<(), SealError> {
    let written = rule.actions.parse();
    let Some(Value::String(text)) = written.first() else {
        // The column was not selected.
        return Ok(());
    };
    let sealed = STANDARD.decode(text).map_err(|_| SealError::CannotUnseal)?;
    let plain = keys.unseal(rule.id.0, &sealed)?;
    let (conditions, actions): (&RawValue, &RawValue) =
        serde_json::from_slice(&plain).map_err(|_| SealError::CannotUnseal)?;
    rule.conditions = JsonArray::from_stored(conditions.get());
    rule.actions = JsonArray::from_stored(actions.get());
    Ok(())
}

fn blank_template() -> DeployTemplate {
    DeployTemplate {
        id: DeployTemplateId(Uuid::nil()),
        created_at: Timestamp(0),
        updated_at: None,
        name: String::new(),
        steps: Vec::new(),
        extra: JsonObject::empty(),
    }
}

fn blank_runbook() -> Runbook {
    Runbook {
        id: RunbookId(Uuid::nil()),
        created_at: Timestamp(0),
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

fn blank_rule() -> InspectionRule {
    InspectionRule {
        id: RuleId(Uuid::nil()),
        created_at: Timestamp(0),
        updated_at: None,
        description: None,
        priority: 0,
        phase: None,
        sensitive: Sensitive::No,
        conditions: JsonArray::empty(),
        actions: JsonArray::empty(),
    }
}
