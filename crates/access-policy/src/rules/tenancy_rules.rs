// SPDX-License-Identifier: Apache-2.0
//! Rules of deployments, quotas and the audit log. The project of a deployment is the owner of its
//! allocation.

use super::personas::{
    ALLOCATION_CREATOR, API_READER, SYSTEM_ADMIN, SYSTEM_MEMBER_OR_OWNER_MEMBER, SYSTEM_READER,
};
use super::{PolicyRule, RuleScopes, rule};

const DEPLOYMENT_READER: &str = "rule:persona:system_reader or rule:persona:system_service or \
     rule:persona:allocation_owner_reader or rule:persona:owner_reader";
const DEPLOYMENT_MEMBER: &str = "rule:persona:system_member or rule:persona:system_service or \
     rule:persona:allocation_owner_member or rule:persona:owner_member";
const PROJECT_MANAGER: &str = "role:manager";

pub(super) const RULES: &[PolicyRule] = &[
    rule(
        "ferrite:node:update:protected",
        RuleScopes::Any,
        SYSTEM_MEMBER_OR_OWNER_MEMBER,
        &["PATCH /v1/nodes/{node}"],
        "Protect a node, so that its instance cannot be removed: operators and the project that owns it.",
    ),
    rule(
        "ferrite:node:update:resource_class",
        RuleScopes::Any,
        SYSTEM_MEMBER_OR_OWNER_MEMBER,
        &["PATCH /v1/nodes/{node}"],
        "Change the resource class, for which quotas apply: operators and the project that owns the node.",
    ),
    rule(
        "ferrite:deployment:list_all",
        RuleScopes::Any,
        SYSTEM_READER,
        &["GET /v1/ferrite/deployments"],
        "List the deployments of all projects.",
    ),
    rule(
        "ferrite:deployment:list",
        RuleScopes::Any,
        API_READER,
        &["GET /v1/ferrite/deployments"],
        "List the deployments of the caller's project and those on machines that it owns.",
    ),
    rule(
        "ferrite:deployment:get",
        RuleScopes::Any,
        DEPLOYMENT_READER,
        &["GET /v1/ferrite/deployments/{deployment}"],
        "See a deployment: readers of its project and of the project that owns its machine.",
    ),
    rule(
        "ferrite:deployment:create",
        RuleScopes::Any,
        ALLOCATION_CREATOR,
        &["POST /v1/ferrite/deployments"],
        "Deploy a machine that the caller's project owns or leases; operators deploy any machine.",
    ),
    rule(
        "ferrite:deployment:update",
        RuleScopes::Any,
        SYSTEM_MEMBER_OR_OWNER_MEMBER,
        &["PATCH /v1/ferrite/deployments/{deployment}"],
        "Extend or change the lease: operators and the project that owns the machine.",
    ),
    rule(
        "ferrite:deployment:delete",
        RuleScopes::Any,
        DEPLOYMENT_MEMBER,
        &["DELETE /v1/ferrite/deployments/{deployment}"],
        "Remove the instance and release the machine: members of the project of the deployment and of the \
         project that owns the machine.",
    ),
    rule(
        "ferrite:quota:list_all",
        RuleScopes::Any,
        SYSTEM_READER,
        &["GET /v1/ferrite/quotas", "GET /v1/ferrite/quotas/{project}"],
        "See the quotas of all projects and their use.",
    ),
    rule(
        "ferrite:quota:get",
        RuleScopes::Any,
        API_READER,
        &["GET /v1/ferrite/quotas", "GET /v1/ferrite/quotas/{project}"],
        "See the quotas of the own project and their use.",
    ),
    rule(
        "ferrite:quota:update",
        RuleScopes::Any,
        SYSTEM_ADMIN,
        &["PUT /v1/ferrite/quotas/{project}", "DELETE /v1/ferrite/quotas/{project}"],
        "Set and remove quotas.",
    ),
    rule(
        "ferrite:audit:list_all",
        RuleScopes::Any,
        SYSTEM_READER,
        &["GET /v1/ferrite/audit-log"],
        "Search and export the audit log.",
    ),
    rule(
        "ferrite:audit:list",
        RuleScopes::Any,
        PROJECT_MANAGER,
        &["GET /v1/ferrite/audit-log"],
        "Search and export the audit entries of callers of the own project.",
    ),
];
