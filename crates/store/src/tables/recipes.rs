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

use super::given;
use crate::query::Where;
use crate::record::{Filter, columns, resource};
use crate::sealed_steps::Steps as _;
use crate::value::{Field, Param};
use crate::vault::{Vault, VaultError};

columns!(DeployTemplate, DeployTemplateColumn, "deploy_templates", blank_template(), {
    Uuid "uuid" id;
    Name "name" name;
    CreatedAt "created_at" created_at;
    UpdatedAt "updated_at" updated_at;
    Steps "steps" steps;
    Extra "extra" extra;
});
resource!(
    DeployTemplate,
    DeployTemplateId,
    DeployTemplateFilter,
    fn sealed(&self, vault: &Vault) -> Option<Self> {
        self.with_sealed_steps(vault)
    },
    fn unseal(&mut self, vault: &Vault) -> Result<(), VaultError> {
        self.unseal_steps(vault)
    }
);

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
resource!(
    Runbook,
    RunbookId,
    RunbookFilter,
    fn sealed(&self, vault: &Vault) -> Option<Self> {
        self.with_sealed_steps(vault)
    },
    fn unseal(&mut self, vault: &Vault) -> Result<(), VaultError> {
        self.unseal_steps(vault)
    }
);

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
    fn sealed(&self, vault: &Vault) -> Option<Self> {
        match self.sensitive {
            Sensitive::No => None,
            Sensitive::Yes => Some(sealed_rule(self, vault)),
        }
    },
    fn unseal(&mut self, vault: &Vault) -> Result<(), VaultError> {
        match self.sensitive {
            Sensitive::No => Ok(()),
            Sensitive::Yes => unseal_rule(self, vault),
        }
    }
);

/// What a list of deploy templates can be narrowed by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeployTemplateFilter {
    /// With one of these names: the traits an instance asks for.
    pub names: Option<Vec<String>>,
}

impl Filter for DeployTemplateFilter {
    fn conditions<'a>(&'a self, to: &mut Where<'a>) {
        if let Some(names) = &self.names {
            to.any_of("name", names.iter().map(Field::bind));
        }
    }
}

/// What a list of runbooks can be narrowed by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunbookFilter {
    /// Owned by this project.
    pub owner: Option<String>,
    /// Owned by this project, or public.
    pub visible_to: Option<String>,
}

impl Filter for RunbookFilter {
    fn conditions<'a>(&'a self, to: &mut Where<'a>) {
        to.equals("owner", given(&self.owner));
        if let Some(project) = &self.visible_to {
            to.and("(owner = ? OR public = 1)");
            to.params.push(Param::Text(project));
        }
    }
}

/// What a list of inspection rules can be narrowed by.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InspectionRuleFilter {
    /// Of this phase.
    pub phase: Option<String>,
}

impl Filter for InspectionRuleFilter {
    fn conditions<'a>(&'a self, to: &mut Where<'a>) {
        to.equals("phase", given(&self.phase));
    }
}

/// A sensitive rule as it is written: in place of its actions, a list with one text, which is its
/// conditions and actions encrypted.
fn sealed_rule(rule: &InspectionRule, vault: &Vault) -> InspectionRule {
    let plain = format!("[{},{}]", rule.conditions.as_str(), rule.actions.as_str());
    let text = STANDARD.encode(vault.seal(rule.id.0, plain.as_bytes()));
    InspectionRule {
        conditions: JsonArray::empty(),
        actions: JsonArray::from(vec![Value::String(text)]),
        ..rule.clone()
    }
}

fn unseal_rule(rule: &mut InspectionRule, vault: &Vault) -> Result<(), VaultError> {
    let written = rule.actions.parse();
    let Some(Value::String(text)) = written.first() else {
        // The column was not asked for.
        return Ok(());
    };
    let sealed = STANDARD.decode(text).map_err(|_| VaultError::Unopenable)?;
    let plain = vault.open_sealed(rule.id.0, &sealed)?;
    let (conditions, actions): (&RawValue, &RawValue) =
        serde_json::from_slice(&plain).map_err(|_| VaultError::Unopenable)?;
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
