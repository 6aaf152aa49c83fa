// SPDX-License-Identifier: Apache-2.0
//! Rules of users, projects, API tokens and sign-ins.

use super::personas::{EVERY_CALLER, SYSTEM_ADMIN, SYSTEM_READER};
use super::{PolicyRule, RuleScopes, rule};

pub(super) const RULES: &[PolicyRule] = &[
    rule(
        "ferrite:user:get",
        RuleScopes::Any,
        SYSTEM_READER,
        &["GET /v1/ferrite/users", "GET /v1/ferrite/users/{user}"],
        "See users and their roles.",
    ),
    rule(
        "ferrite:user:create",
        RuleScopes::Any,
        SYSTEM_ADMIN,
        &["POST /v1/ferrite/users"],
        "Create users and service accounts.",
    ),
    rule(
        "ferrite:user:update",
        RuleScopes::Any,
        SYSTEM_ADMIN,
        &[
            "PATCH /v1/ferrite/users/{user}",
            "PUT /v1/ferrite/users/{user}/password",
            "DELETE /v1/ferrite/users/{user}/sessions",
        ],
        "Change users, their roles and passwords, and end their sessions.",
    ),
    rule(
        "ferrite:user:delete",
        RuleScopes::Any,
        SYSTEM_ADMIN,
        &["DELETE /v1/ferrite/users/{user}"],
        "Delete users.",
    ),
    rule(
        "ferrite:user:own",
        RuleScopes::Any,
        EVERY_CALLER,
        &[
            "GET /v1/ferrite/users/{user}",
            "PUT /v1/ferrite/users/{user}/password",
            "DELETE /v1/ferrite/users/{user}/sessions",
        ],
        "See the own user, change the own password, end the own sessions.",
    ),
    rule(
        "ferrite:project:list_all",
        RuleScopes::Any,
        SYSTEM_READER,
        &["GET /v1/ferrite/projects", "GET /v1/ferrite/projects/{project}"],
        "See all projects.",
    ),
    rule(
        "ferrite:project:get",
        RuleScopes::Any,
        EVERY_CALLER,
        &["GET /v1/ferrite/projects", "GET /v1/ferrite/projects/{project}"],
        "See the own project.",
    ),
    rule(
        "ferrite:project:create",
        RuleScopes::Any,
        SYSTEM_ADMIN,
        &["POST /v1/ferrite/projects"],
        "Create projects.",
    ),
    rule(
        "ferrite:project:update",
        RuleScopes::Any,
        SYSTEM_ADMIN,
        &["PATCH /v1/ferrite/projects/{project}"],
        "Change projects.",
    ),
    rule(
        "ferrite:project:delete",
        RuleScopes::Any,
        SYSTEM_ADMIN,
        &["DELETE /v1/ferrite/projects/{project}"],
        "Delete projects that own and lease no machines.",
    ),
    rule(
        "ferrite:token:list_all",
        RuleScopes::Any,
        SYSTEM_READER,
        &["GET /v1/ferrite/tokens", "GET /v1/ferrite/tokens/{token}"],
        "See the API tokens of all users, without their secrets.",
    ),
    rule(
        "ferrite:token:create",
        RuleScopes::Any,
        SYSTEM_ADMIN,
        &["POST /v1/ferrite/tokens"],
        "Create API tokens for other users and service accounts.",
    ),
    rule(
        "ferrite:token:delete",
        RuleScopes::Any,
        SYSTEM_ADMIN,
        &["DELETE /v1/ferrite/tokens/{token}"],
        "Revoke API tokens of other users.",
    ),
    rule(
        "ferrite:token:own",
        RuleScopes::Any,
        EVERY_CALLER,
        &[
            "GET /v1/ferrite/tokens",
            "POST /v1/ferrite/tokens",
            "GET /v1/ferrite/tokens/{token}",
            "DELETE /v1/ferrite/tokens/{token}",
        ],
        "See, create and revoke the own API tokens.",
    ),
    rule(
        "ferrite:sign_in_failure:get",
        RuleScopes::Any,
        SYSTEM_READER,
        &["GET /v1/ferrite/sign-in-failures"],
        "See failed sign-ins.",
    ),
];
