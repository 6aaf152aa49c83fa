// SPDX-License-Identifier: Apache-2.0
//! Resource types besides nodes: their API paths and table columns.

use serde_json::Value;

use crate::screen::TextStyle;
use crate::table::{OutputColumn, TableCell, value_cell, value_text};
use crate::timestamps;

/// A resource type of the API.
pub(crate) struct ResourceType {
    /// Singular name for messages.
    pub(crate) singular: &'static str,
    /// API path of the collection.
    pub(crate) path: &'static str,
    /// Member of list responses that holds the entries.
    pub(crate) list_key: &'static str,
    /// Fields that are required to create one.
    pub(crate) required_fields: &'static [&'static str],
    /// How resources are created and changed.
    pub(crate) update_method: UpdateMethod,
    /// Whether only Ferrite has it.
    pub(crate) is_ferrite_only: bool,
    /// Whether it has traits, which the API changes separately from other fields.
    pub(crate) has_traits: bool,
    /// Whether lists contain all fields only with `detail=true`.
    pub(crate) needs_detail_query: bool,
    pub(crate) columns: &'static [OutputColumn],
}

/// How resources are created and changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpdateMethod {
    /// Created by POST, changed by a JSON patch.
    Patch,
    /// Created and replaced by PUT under its name.
    Replace,
}

pub(crate) const PORTS: ResourceType = ResourceType {
    singular: "port",
    path: "/v1/ports",
    list_key: "ports",
    required_fields: &["address"],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: false,
    has_traits: false,
    needs_detail_query: true,
    columns: &[
        OutputColumn::new("ADDRESS", |row| value_cell(&row["address"])),
        OutputColumn::new("NODE", node_cell),
        OutputColumn::new("PXE", |row| value_cell(&row["pxe_enabled"])),
        OutputColumn::new("SWITCH", |row| {
            let link = &row["local_link_connection"];
            let name = link["switch_info"].as_str().or(link["switch_id"].as_str());
            name.unwrap_or_default().to_owned().into()
        }),
        OutputColumn::new("SWITCH PORT", |row| {
            value_cell(&row["local_link_connection"]["port_id"])
        }),
        OutputColumn::wide("NETWORK", |row| value_cell(&row["physical_network"])),
        OutputColumn::wide("PORTGROUP", |row| value_cell(&row["portgroup_uuid"])),
        OutputColumn::new("UUID", |row| value_cell(&row["uuid"])),
    ],
};

pub(crate) const PORTGROUPS: ResourceType = ResourceType {
    singular: "portgroup",
    path: "/v1/portgroups",
    list_key: "portgroups",
    required_fields: &[],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: false,
    has_traits: false,
    needs_detail_query: true,
    columns: &[
        OutputColumn::new("NAME", |row| value_cell(&row["name"])),
        OutputColumn::new("ADDRESS", |row| value_cell(&row["address"])),
        OutputColumn::new("NODE", node_cell),
        OutputColumn::new("MODE", |row| value_cell(&row["mode"])),
        OutputColumn::new("UUID", |row| value_cell(&row["uuid"])),
    ],
};

pub(crate) const ALLOCATIONS: ResourceType = ResourceType {
    singular: "allocation",
    path: "/v1/allocations",
    list_key: "allocations",
    required_fields: &["resource_class"],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: false,
    has_traits: false,
    needs_detail_query: false,
    columns: &[
        OutputColumn::new("NAME", |row| value_cell(&row["name"])),
        OutputColumn::new("STATE", |row| {
            let state = row["state"].as_str().unwrap_or_default();
            let tone = match state {
                "active" => TextStyle::Success,
                "error" => TextStyle::Error,
                _ => TextStyle::Progress,
            };
            TableCell::styled(state, tone)
        }),
        OutputColumn::new("CLASS", |row| value_cell(&row["resource_class"])),
        OutputColumn::new("TRAITS", |row| value_cell(&row["traits"])),
        OutputColumn::new("NODE", node_cell),
        OutputColumn::wide("OWNER", |row| value_cell(&row["owner"])),
        OutputColumn::new("UUID", |row| value_cell(&row["uuid"])),
        OutputColumn::truncated("NOTE", |row| value_cell(&row["last_error"])),
    ],
};

pub(crate) const TEMPLATES: ResourceType = ResourceType {
    singular: "deploy template",
    path: "/v1/deploy_templates",
    list_key: "deploy_templates",
    required_fields: &["name", "steps"],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: false,
    has_traits: false,
    needs_detail_query: true,
    columns: &[
        OutputColumn::new("NAME", |row| value_cell(&row["name"])),
        OutputColumn::new("STEPS", steps_cell),
        OutputColumn::new("UUID", |row| value_cell(&row["uuid"])),
    ],
};

pub(crate) const RUNBOOKS: ResourceType = ResourceType {
    singular: "runbook",
    path: "/v1/runbooks",
    list_key: "runbooks",
    required_fields: &["name", "steps"],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: false,
    has_traits: true,
    needs_detail_query: true,
    columns: &[
        OutputColumn::new("NAME", |row| value_cell(&row["name"])),
        OutputColumn::new("STEPS", steps_cell),
        OutputColumn::new("TRAITS", |row| value_cell(&row["traits"])),
        OutputColumn::new("OWNER", |row| value_cell(&row["owner"])),
        OutputColumn::new("PUBLIC", |row| value_cell(&row["public"])),
        OutputColumn::wide("DISABLE RAMDISK", |row| value_cell(&row["disable_ramdisk"])),
        OutputColumn::new("UUID", |row| value_cell(&row["uuid"])),
    ],
};

pub(crate) const RULES: ResourceType = ResourceType {
    singular: "inspection rule",
    path: "/v1/inspection_rules",
    list_key: "inspection_rules",
    required_fields: &["actions"],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: false,
    has_traits: false,
    needs_detail_query: true,
    columns: &[
        OutputColumn::new("PRIORITY", |row| value_cell(&row["priority"])),
        OutputColumn::new("PHASE", |row| value_cell(&row["phase"])),
        OutputColumn::new("DESCRIPTION", |row| value_cell(&row["description"])),
        OutputColumn::wide("CONDITIONS", |row| operations_cell(&row["conditions"])),
        OutputColumn::wide("ACTIONS", |row| operations_cell(&row["actions"])),
        OutputColumn::new("UUID", |row| value_cell(&row["uuid"])),
    ],
};

pub(crate) const FLAVOURS: ResourceType = ResourceType {
    singular: "flavour",
    path: "/v1/ferrite/flavours",
    list_key: "flavours",
    required_fields: &["name"],
    update_method: UpdateMethod::Replace,
    is_ferrite_only: true,
    has_traits: false,
    needs_detail_query: false,
    columns: &[
        OutputColumn::new("NAME", |row| value_cell(&row["name"])),
        OutputColumn::new("PRIORITY", |row| value_cell(&row["priority"])),
        OutputColumn::new("CLASS", |row| value_cell(&row["resource_class"])),
        OutputColumn::new("TRAITS", |row| value_cell(&row["traits"])),
        OutputColumn::wide("CONDITIONS", |row| operations_cell(&row["conditions"])),
        OutputColumn::new("DESCRIPTION", |row| value_cell(&row["description"])),
    ],
};

pub(crate) const USERS: ResourceType = ResourceType {
    singular: "user",
    path: "/v1/ferrite/users",
    list_key: "users",
    required_fields: &["name"],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: true,
    has_traits: false,
    needs_detail_query: false,
    columns: &[
        OutputColumn::new("NAME", |row| value_cell(&row["name"])),
        OutputColumn::new("KIND", |row| value_cell(&row["kind"])),
        OutputColumn::new("ENABLED", |row| value_cell(&row["enabled"])),
        OutputColumn::new("ROLES", |row| value_cell(&row["roles"])),
        OutputColumn::wide("DEFAULT PROJECT", |row| value_cell(&row["default_project"])),
        OutputColumn::wide("PASSWORD", |row| value_cell(&row["has_password"])),
        OutputColumn::wide("ID", |row| value_cell(&row["id"])),
        OutputColumn::truncated("DESCRIPTION", |row| value_cell(&row["description"])),
    ],
};

pub(crate) const PROJECTS: ResourceType = ResourceType {
    singular: "project",
    path: "/v1/ferrite/projects",
    list_key: "projects",
    required_fields: &["name"],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: true,
    has_traits: false,
    needs_detail_query: false,
    columns: &[
        OutputColumn::new("NAME", |row| value_cell(&row["name"])),
        OutputColumn::new("ENABLED", |row| value_cell(&row["enabled"])),
        OutputColumn::wide("CREATED", |row| timestamps::timestamp_cell(&row["created_at"])),
        OutputColumn::truncated("DESCRIPTION", |row| value_cell(&row["description"])),
    ],
};

pub(crate) const TOKENS: ResourceType = ResourceType {
    singular: "token",
    path: "/v1/ferrite/tokens",
    list_key: "tokens",
    required_fields: &[],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: true,
    has_traits: false,
    needs_detail_query: false,
    columns: &[
        OutputColumn::new("ID", |row| value_cell(&row["id"])),
        OutputColumn::new("USER", |row| value_cell(&row["user"])),
        OutputColumn::new("ROLE", |row| value_cell(&row["role"])),
        OutputColumn::new("SCOPE", |row| value_cell(&row["scope"])),
        OutputColumn::new("EXPIRES", |row| timestamps::timestamp_cell(&row["expires_at"])),
        OutputColumn::new("LAST USED", |row| timestamps::timestamp_cell(&row["last_used_at"])),
        OutputColumn::wide("CREATED", |row| timestamps::timestamp_cell(&row["created_at"])),
        OutputColumn::wide("PREFIX", |row| value_cell(&row["prefix"])),
        OutputColumn::truncated("DESCRIPTION", |row| value_cell(&row["description"])),
    ],
};

pub(crate) const DEPLOYMENTS: ResourceType = ResourceType {
    singular: "deployment",
    path: "/v1/ferrite/deployments",
    list_key: "deployments",
    required_fields: &["image"],
    update_method: UpdateMethod::Patch,
    is_ferrite_only: true,
    has_traits: false,
    needs_detail_query: false,
    columns: &[
        OutputColumn::new("NAME", |row| value_cell(&row["name"])),
        OutputColumn::new("STATE", |row| value_cell(&row["state"])),
        OutputColumn::new("MACHINE", |row| {
            let node = &row["node"];
            value_cell(if node["name"].is_null() { &node["uuid"] } else { &node["name"] })
        }),
        OutputColumn::new("PROJECT", |row| value_cell(&row["project"])),
        OutputColumn::new("DEPLOYED BY", |row| value_cell(&row["deployed_by"]["user"])),
        OutputColumn::new("LEASE ENDS", |row| {
            timestamps::timestamp_cell(&row["lease"]["expires_at"])
        }),
        OutputColumn::wide("FLAVOUR", |row| value_cell(&row["flavour"])),
        OutputColumn::wide("CLASS", |row| value_cell(&row["resource_class"])),
        OutputColumn::wide("CREATED", |row| timestamps::timestamp_cell(&row["created_at"])),
        OutputColumn::new("UUID", |row| value_cell(&row["uuid"])),
        OutputColumn::truncated("ERROR", |row| value_cell(&row["last_error"])),
    ],
};

pub(crate) const QUOTAS: ResourceType = ResourceType {
    singular: "quota",
    path: "/v1/ferrite/quotas",
    list_key: "quotas",
    required_fields: &[],
    update_method: UpdateMethod::Replace,
    is_ferrite_only: true,
    has_traits: false,
    needs_detail_query: false,
    columns: &[
        OutputColumn::new("PROJECT", |row| value_cell(&row["project"])),
        OutputColumn::new("MACHINES", |row| value_cell(&row["machines_used"])),
        OutputColumn::new("LIMITS", |row| {
            let limits = row["limits"].as_array().into_iter().flatten();
            let text = |limit: &Value| {
                let subject = limit["subject"].as_str().unwrap_or_default();
                format!("{subject}={} (used {})", limit["machines"], limit["used"])
            };
            limits.map(text).collect::<Vec<_>>().join(", ").into()
        }),
    ],
};

pub(crate) const QUOTA_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("QUOTA", |row| value_cell(&row["subject"])),
    OutputColumn::new("MACHINES", |row| value_cell(&row["machines"])),
    OutputColumn::new("USED", |row| value_cell(&row["used"])),
];

pub(crate) const AUDIT_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("TIME", |row| value_cell(&row["at"])),
    OutputColumn::new("USER", |row| value_cell(&row["user"])),
    OutputColumn::new("PROJECT", |row| value_cell(&row["project"])),
    OutputColumn::new("OUTCOME", |row| value_cell(&row["outcome"])),
    OutputColumn::new("STATUS", |row| value_cell(&row["status"])),
    OutputColumn::new("METHOD", |row| value_cell(&row["method"])),
    OutputColumn::new("PATH", |row| value_cell(&row["path"])),
    OutputColumn::wide("RESOURCE", |row| value_cell(&row["resource_id"])),
    OutputColumn::wide("ADDRESS", |row| value_cell(&row["address"])),
    OutputColumn::wide("ROLES", |row| value_cell(&row["roles"])),
    OutputColumn::wide("REQUEST", |row| value_cell(&row["request_id"])),
    OutputColumn::truncated("MESSAGE", |row| value_cell(&row["message"])),
];

pub(crate) const FLAVOUR_MATCH_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("NODE", node_cell),
    OutputColumn::new("CLASS", |row| value_cell(&row["resource_class"])),
    OutputColumn::new("DECIDES CLASS", |row| value_cell(&row["decides_class"])),
    OutputColumn::new("INSPECTED", |row| timestamps::timestamp_cell(&row["inspected_at"])),
];

pub(crate) const DRIVER_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("NAME", |row| value_cell(&row["name"])),
    OutputColumn::new("TYPE", |row| value_cell(&row["type"])),
    OutputColumn::new("CONDUCTORS", |row| value_cell(&row["hosts"])),
];

pub(crate) const REPLICA_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("PROCESS", |row| value_cell(&row["hostname"])),
    OutputColumn::new("STATE", |row| value_cell(&row["state"])),
    OutputColumn::new("VERSION", |row| value_cell(&row["version"])),
    OutputColumn::new("GROUP", |row| value_cell(&row["conductor_group"])),
    OutputColumn::new("NODES", |row| value_cell(&row["nodes"])),
    OutputColumn::new("WORKING", |row| value_cell(&row["working"])),
    OutputColumn::new("LATE", |row| value_cell(&row["late"])),
    OutputColumn::new("LAG", |row| lag_cell(&row["lag_seconds"])),
    OutputColumn::new("RENEWED", |row| timestamps::timestamp_cell(&row["renewed_at"])),
    OutputColumn::wide("REGISTERED", |row| timestamps::timestamp_cell(&row["registered_at"])),
    OutputColumn::wide("DRIVERS", |row| value_cell(&row["drivers"])),
];

/// Seconds with one decimal; empty if nothing is late.
fn lag_cell(seconds: &Value) -> TableCell {
    let seconds = seconds.as_f64().filter(|seconds| *seconds > 0.0);
    seconds.map_or_else(TableCell::default, |seconds| format!("{seconds:.1} s").into())
}

pub(crate) const SIGHTING_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("MAC", |row| value_cell(&row["mac"])),
    OutputColumn::new("IP", |row| value_cell(&row["ip_address"])),
    OutputColumn::new("MACHINE", machine_cell),
    OutputColumn::new("TIMES", |row| value_cell(&row["times"])),
    OutputColumn::new("LAST SEEN", |row| timestamps::timestamp_cell(&row["last_seen_at"])),
    OutputColumn::wide("FIRST SEEN", |row| timestamps::timestamp_cell(&row["first_seen_at"])),
    OutputColumn::wide("INTERFACE", |row| value_cell(&row["interface"])),
    OutputColumn::wide("NODE", |row| value_cell(&row["node_uuid"])),
    OutputColumn::wide("REPORT", |row| value_cell(&row["report"])),
    OutputColumn::new("LAST REQUEST", |row| value_cell(&row["last_activity"])),
];

pub(crate) const IMAGE_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("IMAGE", |row| value_cell(&row["source"])),
    OutputColumn::new("MACHINES", |row| value_cell(&row["nodes"])),
    OutputColumn::new("ACTIVE", |row| value_cell(&row["active"])),
    OutputColumn::new("EXAMPLES", |row| value_cell(&row["node_names"])),
];

pub(crate) const CACHED_IMAGE_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("SHA256", |row| value_cell(&row["sha256"])),
    OutputColumn::new("FORMAT", |row| value_cell(&row["format"])),
    OutputColumn::new("BYTES", |row| value_cell(&row["size"])),
    OutputColumn::new("ON DISK", |row| value_cell(&row["on_disk"])),
    OutputColumn::new("IN USE", |row| value_cell(&row["in_use"])),
    OutputColumn::new("LAST USED", |row| timestamps::timestamp_cell(&row["last_used_at"])),
];

pub(crate) const TOPOLOGY_COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("SWITCH", |row| value_cell(&row["switch"])),
    OutputColumn::new("PORT", |row| value_cell(&row["id"])),
    OutputColumn::new("NODE", node_cell),
    OutputColumn::new("INTERFACE", |row| value_cell(&row["interface"])),
    OutputColumn::new("MAC", |row| value_cell(&row["mac"])),
    OutputColumn::new("STATE", |row| {
        let state = row["state"].as_str().unwrap_or_default();
        let tone =
            if matches!(state, "moved" | "missing") { TextStyle::Error } else { TextStyle::Plain };
        TableCell::styled(state, tone)
    }),
    OutputColumn::wide("LLDP AT", |row| timestamps::timestamp_cell(&row["observed_at"])),
    OutputColumn::wide("DESCRIPTION", |row| value_cell(&row["description"])),
];

/// The name of the node that a row belongs to, or its UUID.
fn node_cell(row: &Value) -> TableCell {
    value_cell(if row["node_name"].is_string() { &row["node_name"] } else { &row["node_uuid"] })
}

/// Vendor and model from the machine's report, else the architecture from its first packet.
fn machine_cell(row: &Value) -> TableCell {
    let report = &row["report"];
    let parts = [&report["vendor"], &report["model"]].map(value_text);
    let parts: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { value_cell(&row["architecture"]) } else { parts.join(" ").into() }
}

/// The names of the steps.
fn steps_cell(row: &Value) -> TableCell {
    let steps = row["steps"].as_array().into_iter().flatten();
    let name = |step: &Value| {
        let part = |field: &str| step[field].as_str().unwrap_or("?").to_owned();
        format!("{}.{}", part("interface"), part("step"))
    };
    steps.map(name).collect::<Vec<_>>().join(",").into()
}

/// The operators of conditions or actions, without their arguments.
fn operations_cell(list: &Value) -> TableCell {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|it| it["op"].as_str()).collect::<Vec<_>>().join(",").into()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::screen::Screen;
    use crate::table::format_table;

    #[test]
    fn tables_show_names_times_and_models() {
        let rows = [
            json!({"name": "web-1", "state": "active", "node_uuid": "u1", "node_name": "rack1-u01"}),
            json!({"name": "web-2", "state": "error", "node_uuid": "u2", "node_name": null}),
        ];
        expect![[r#"
            NAME   STATE   CLASS  TRAITS  NODE       UUID  NOTE
            web-1  active                 rack1-u01
            web-2  error                  u2
        "#]]
        .assert_eq(&format_table(&rows, ALLOCATIONS.columns, false, Screen::plain()));
        let seen = "2026-11-16T18:35:15.781383+00:00";
        let rows = [
            json!({"mac": "m1", "last_seen_at": seen, "architecture": "x86_64",
                "report": {"vendor": "Dell Inc.", "model": "R760"}}),
            json!({"mac": "m2", "last_seen_at": seen, "architecture": "x86_64", "report": null}),
        ];
        expect![[r#"
            MAC  IP  MACHINE         TIMES  LAST SEEN            LAST REQUEST
            m1       Dell Inc. R760         2026-11-16 18:35:15
            m2       x86_64                 2026-11-16 18:35:15
        "#]]
        .assert_eq(&format_table(&rows, SIGHTING_COLUMNS, false, Screen::plain()));
    }
}
