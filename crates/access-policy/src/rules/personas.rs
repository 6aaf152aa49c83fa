// SPDX-License-Identifier: Apache-2.0
//! Helper rules that other rules refer to, and the usual combinations of them.
//!
//! A persona is a role in a scope: of the whole system, of the project that owns a node, of the
//! project that leases it. Roles are ordered: an admin is also manager, member and reader.

use super::{PolicyRule, RuleScopes, rule};

pub(super) const ALLOCATION_CREATOR: &str = "rule:persona:system_member or role:member";
pub(super) const ALLOCATION_MEMBER: &str =
    "rule:persona:system_member or rule:persona:allocation_owner_member";
pub(super) const ALLOCATION_READER: &str =
    "rule:persona:system_reader or rule:persona:allocation_owner_reader";
pub(super) const API_READER: &str = "role:reader or role:service";
pub(super) const EVERY_CALLER: &str = "@";
pub(super) const NODE_CREATOR: &str = "rule:persona:system_admin or rule:persona:system_service";
pub(super) const PROJECT_ADMIN: &str = "rule:persona:owner_admin";
pub(super) const RUNBOOK_ADMIN: &str =
    "rule:persona:system_member or rule:persona:runbook_owner_manager or role:service";
pub(super) const RUNBOOK_CREATOR: &str =
    "rule:persona:system_member or role:manager or role:service";
pub(super) const RUNBOOK_READER: &str =
    "rule:persona:system_reader or rule:persona:runbook_owner_reader or role:service";
pub(super) const SELF_SERVICE: &str = "role:admin or role:service";
pub(super) const SYSTEM_ADMIN: &str = "rule:persona:system_admin";
pub(super) const SYSTEM_ADMIN_OR_OWNER_ADMIN: &str = "rule:persona:system_admin or rule:persona:system_service or rule:persona:owner_admin or \
     rule:persona:owner_manager or rule:persona:owner_service";
pub(super) const SYSTEM_MEMBER: &str = "rule:persona:system_member";
pub(super) const SYSTEM_MEMBER_OR_OWNER_ADMIN: &str = "rule:persona:system_member or rule:persona:system_service or rule:persona:owner_admin or \
     rule:persona:owner_manager or rule:persona:owner_service";
pub(super) const SYSTEM_MEMBER_OR_OWNER_LESSEE_ADMIN: &str = "rule:persona:system_member or rule:persona:system_service or rule:persona:owner_admin or \
     rule:persona:owner_manager or rule:persona:lessee_admin or rule:persona:lessee_manager \
     or rule:persona:owner_service";
pub(super) const SYSTEM_MEMBER_OR_OWNER_MEMBER: &str = "rule:persona:system_member or rule:persona:system_service or rule:persona:owner_member \
     or rule:persona:owner_service";
pub(super) const SYSTEM_OR_OWNER_MEMBER_AND_LESSEE_ADMIN: &str = "rule:persona:system_member or rule:persona:system_service or rule:persona:owner_member \
     or rule:persona:lessee_admin or rule:persona:lessee_manager or \
     rule:persona:owner_service";
pub(super) const SYSTEM_OR_OWNER_READER: &str = "rule:persona:system_reader or rule:persona:system_service or rule:persona:owner_reader \
     or rule:persona:owner_service";
pub(super) const SYSTEM_OR_PROJECT_MEMBER: &str =
    "rule:persona:system_member or rule:persona:project_member or rule:persona:system_service";
pub(super) const SYSTEM_OR_PROJECT_READER: &str =
    "rule:persona:system_reader or rule:persona:project_reader or rule:persona:owner_service";
pub(super) const SYSTEM_READER: &str = "rule:persona:system_reader";
pub(super) const TARGET_PROPERTIES_READER: &str = "rule:persona:system_reader or role:admin";

/// Accepted in old policy files; no request is checked against it.
pub(super) const LEGACY_ALLOCATION_CREATOR: &str =
    "(rule:is_member and role:baremetal_admin) or (is_admin_project:True and role:admin)";

const fn helper(name: &'static str, check: &'static str, description: &'static str) -> PolicyRule {
    rule(name, RuleScopes::Any, check, &[], description)
}

pub(super) const RULES: &[PolicyRule] = &[
    helper(
        "persona:system_admin",
        "role:admin and system_scope:all",
        "Administrators of the whole system.",
    ),
    helper(
        "persona:system_member",
        "(role:member and system_scope:all) or rule:service_role",
        "Operators of the whole system.",
    ),
    helper(
        "persona:system_reader",
        "(role:reader and system_scope:all) or (role:service and system_scope:all) or rule:service_role",
        "Auditors of the whole system.",
    ),
    helper(
        "persona:system_service",
        "role:service and system_scope:all",
        "Other services, for the whole system.",
    ),
    helper(
        "persona:project_member",
        "role:member and (project_id:%(node.owner)s or project_id:%(node.lessee)s)",
        "Members of the project that owns or leases the node.",
    ),
    helper(
        "persona:project_reader",
        "role:reader and (project_id:%(node.owner)s or project_id:%(node.lessee)s)",
        "Readers of the project that owns or leases the node.",
    ),
    helper(
        "persona:owner_admin",
        "role:admin and project_id:%(node.owner)s",
        "Administrators of the project that owns the node.",
    ),
    helper(
        "persona:owner_manager",
        "role:manager and project_id:%(node.owner)s",
        "Managers of the project that owns the node.",
    ),
    helper(
        "persona:owner_member",
        "role:member and project_id:%(node.owner)s",
        "Members of the project that owns the node.",
    ),
    helper(
        "persona:owner_reader",
        "role:reader and project_id:%(node.owner)s",
        "Readers of the project that owns the node.",
    ),
    helper(
        "persona:owner_service",
        "role:service and project_id:%(node.owner)s",
        "Services of the project that owns the node.",
    ),
    helper(
        "persona:lessee_admin",
        "role:admin and project_id:%(node.lessee)s",
        "Administrators of the project that leases the node.",
    ),
    helper(
        "persona:lessee_manager",
        "role:manager and project_id:%(node.lessee)s",
        "Managers of the project that leases the node.",
    ),
    helper(
        "persona:allocation_owner_member",
        "role:member and project_id:%(allocation.owner)s",
        "Members of the project that owns the allocation.",
    ),
    helper(
        "persona:allocation_owner_reader",
        "role:reader and project_id:%(allocation.owner)s",
        "Readers of the project that owns the allocation.",
    ),
    helper(
        "persona:runbook_owner_manager",
        "role:manager and project_id:%(runbook.owner)s",
        "Managers of the project that owns the runbook.",
    ),
    helper(
        "persona:runbook_owner_reader",
        "role:reader and project_id:%(runbook.owner)s",
        "Readers of the project that owns the runbook.",
    ),
    helper(
        "service_role",
        "role:service and project_name:%(config.service_project_name)s",
        "Services of the project `policy.service_project`, which have the rights of the whole system.",
    ),
    helper("show_password", "!", "Cannot be changed: secrets in `driver_info` are always masked."),
    helper(
        "show_instance_secrets",
        "!",
        "Cannot be changed: secrets in `instance_info` are always masked.",
    ),
    helper("public_api", "is_public_api:True", "No rule uses it; Ironic has it."),
    helper(
        "admin_api",
        "role:admin or role:administrator",
        "No rule uses it; Ironic has it for old policy files.",
    ),
    helper(
        "is_member",
        "(project_domain_id:default or project_domain_id:None) and (project_name:demo or project_name:baremetal)",
        "No rule uses it; Ironic has it for old policy files.",
    ),
    helper(
        "is_observer",
        "rule:is_member and (role:observer or role:baremetal_observer)",
        "No rule uses it; Ironic has it for old policy files.",
    ),
    helper(
        "is_admin",
        "rule:admin_api or (rule:is_member and role:baremetal_admin)",
        "No rule uses it; Ironic has it for old policy files.",
    ),
    helper(
        "is_node_owner",
        "project_id:%(node.owner)s",
        "Callers of the project that owns the node.",
    ),
    helper(
        "is_node_lessee",
        "project_id:%(node.lessee)s",
        "Callers of the project that leases the node.",
    ),
    helper(
        "is_allocation_owner",
        "project_id:%(allocation.owner)s",
        "Callers of the project that owns the allocation.",
    ),
];
