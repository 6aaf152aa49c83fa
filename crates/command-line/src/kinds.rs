// SPDX-License-Identifier: Apache-2.0
//! What there is besides machines, as tables: where each kind of thing is in the API and what is shown
//! of it.

use serde_json::Value;

use crate::moments;
use crate::screen::Tone;
use crate::table::{Cell, Column, brief, plain};

/// A kind of thing.
pub(crate) struct Kind {
    /// One of them, for messages.
    pub(crate) one: &'static str,
    /// Where they are.
    pub(crate) path: &'static str,
    /// What a list of them is called in answers.
    pub(crate) list: &'static str,
    /// Fields without which there can be none.
    pub(crate) needs: &'static [&'static str],
    /// How one is changed.
    pub(crate) change: Change,
    /// Whether only a Ferrite has them.
    pub(crate) is_ours: bool,
    /// Whether they have traits, which the API keeps apart from the other fields.
    pub(crate) has_traits: bool,
    /// Whether lists have to be asked for with all fields.
    pub(crate) has_detail: bool,
    pub(crate) columns: &'static [Column],
}

/// How one is created and changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Created by POST, changed by a JSON patch.
    Patch,
    /// Created and replaced by PUT under its name.
    Replace,
}

pub(crate) const PORTS: Kind = Kind {
    one: "port",
    path: "/v1/ports",
    list: "ports",
    needs: &["address"],
    change: Change::Patch,
    is_ours: false,
    has_traits: false,
    has_detail: true,
    columns: &[
        Column::new("ADDRESS", |row| plain(&row["address"])),
        Column::new("NODE", node),
        Column::new("PXE", |row| plain(&row["pxe_enabled"])),
        Column::new("SWITCH", |row| {
            let link = &row["local_link_connection"];
            let name = link["switch_info"].as_str().or(link["switch_id"].as_str());
            name.unwrap_or_default().to_owned().into()
        }),
        Column::new("SWITCH PORT", |row| plain(&row["local_link_connection"]["port_id"])),
        Column::wide("NETWORK", |row| plain(&row["physical_network"])),
        Column::wide("PORTGROUP", |row| plain(&row["portgroup_uuid"])),
        Column::new("UUID", |row| plain(&row["uuid"])),
    ],
};

pub(crate) const PORTGROUPS: Kind = Kind {
    one: "portgroup",
    path: "/v1/portgroups",
    list: "portgroups",
    needs: &[],
    change: Change::Patch,
    is_ours: false,
    has_traits: false,
    has_detail: true,
    columns: &[
        Column::new("NAME", |row| plain(&row["name"])),
        Column::new("ADDRESS", |row| plain(&row["address"])),
        Column::new("NODE", node),
        Column::new("MODE", |row| plain(&row["mode"])),
        Column::new("UUID", |row| plain(&row["uuid"])),
    ],
};

pub(crate) const ALLOCATIONS: Kind = Kind {
    one: "allocation",
    path: "/v1/allocations",
    list: "allocations",
    needs: &["resource_class"],
    change: Change::Patch,
    is_ours: false,
    has_traits: false,
    has_detail: false,
    columns: &[
        Column::new("NAME", |row| plain(&row["name"])),
        Column::new("STATE", |row| {
            let state = row["state"].as_str().unwrap_or_default();
            let tone = match state {
                "active" => Tone::Good,
                "error" => Tone::Bad,
                _ => Tone::Busy,
            };
            Cell::toned(state, tone)
        }),
        Column::new("CLASS", |row| plain(&row["resource_class"])),
        Column::new("TRAITS", |row| plain(&row["traits"])),
        Column::new("NODE", node),
        Column::wide("OWNER", |row| plain(&row["owner"])),
        Column::new("UUID", |row| plain(&row["uuid"])),
        Column::cut("NOTE", |row| plain(&row["last_error"])),
    ],
};

pub(crate) const TEMPLATES: Kind = Kind {
    one: "deploy template",
    path: "/v1/deploy_templates",
    list: "deploy_templates",
    needs: &["name", "steps"],
    change: Change::Patch,
    is_ours: false,
    has_traits: false,
    has_detail: true,
    columns: &[
        Column::new("NAME", |row| plain(&row["name"])),
        Column::new("STEPS", steps),
        Column::new("UUID", |row| plain(&row["uuid"])),
    ],
};

pub(crate) const RUNBOOKS: Kind = Kind {
    one: "runbook",
    path: "/v1/runbooks",
    list: "runbooks",
    needs: &["name", "steps"],
    change: Change::Patch,
    is_ours: false,
    has_traits: true,
    has_detail: true,
    columns: &[
        Column::new("NAME", |row| plain(&row["name"])),
        Column::new("STEPS", steps),
        Column::new("TRAITS", |row| plain(&row["traits"])),
        Column::new("OWNER", |row| plain(&row["owner"])),
        Column::new("PUBLIC", |row| plain(&row["public"])),
        Column::wide("DISABLE RAMDISK", |row| plain(&row["disable_ramdisk"])),
        Column::new("UUID", |row| plain(&row["uuid"])),
    ],
};

pub(crate) const RULES: Kind = Kind {
    one: "inspection rule",
    path: "/v1/inspection_rules",
    list: "inspection_rules",
    needs: &["actions"],
    change: Change::Patch,
    is_ours: false,
    has_traits: false,
    has_detail: true,
    columns: &[
        Column::new("PRIORITY", |row| plain(&row["priority"])),
        Column::new("PHASE", |row| plain(&row["phase"])),
        Column::new("DESCRIPTION", |row| plain(&row["description"])),
        Column::wide("CONDITIONS", |row| operations(&row["conditions"])),
        Column::wide("ACTIONS", |row| operations(&row["actions"])),
        Column::new("UUID", |row| plain(&row["uuid"])),
    ],
};

pub(crate) const FLAVOURS: Kind = Kind {
    one: "flavour",
    path: "/v1/ferrite/flavours",
    list: "flavours",
    needs: &["name"],
    change: Change::Replace,
    is_ours: true,
    has_traits: false,
    has_detail: false,
    columns: &[
        Column::new("NAME", |row| plain(&row["name"])),
        Column::new("PRIORITY", |row| plain(&row["priority"])),
        Column::new("CLASS", |row| plain(&row["resource_class"])),
        Column::new("TRAITS", |row| plain(&row["traits"])),
        Column::wide("CONDITIONS", |row| operations(&row["conditions"])),
        Column::new("DESCRIPTION", |row| plain(&row["description"])),
    ],
};

pub(crate) const MATCHES: &[Column] = &[
    Column::new("NODE", node),
    Column::new("CLASS", |row| plain(&row["resource_class"])),
    Column::new("DECIDES CLASS", |row| plain(&row["decides_class"])),
    Column::new("INSPECTED", |row| moments::cell(&row["inspected_at"])),
];

pub(crate) const DRIVERS: &[Column] = &[
    Column::new("NAME", |row| plain(&row["name"])),
    Column::new("TYPE", |row| plain(&row["type"])),
    Column::new("CONDUCTORS", |row| plain(&row["hosts"])),
];

pub(crate) const SIGHTINGS: &[Column] = &[
    Column::new("MAC", |row| plain(&row["mac"])),
    Column::new("IP", |row| plain(&row["ip_address"])),
    Column::new("MACHINE", machine),
    Column::new("TIMES", |row| plain(&row["times"])),
    Column::new("LAST SEEN", |row| moments::cell(&row["last_seen_at"])),
    Column::wide("FIRST SEEN", |row| moments::cell(&row["first_seen_at"])),
    Column::wide("INTERFACE", |row| plain(&row["interface"])),
    Column::wide("NODE", |row| plain(&row["node_uuid"])),
    Column::wide("REPORT", |row| plain(&row["report"])),
    Column::new("WHAT", |row| plain(&row["last"])),
];

pub(crate) const IMAGES: &[Column] = &[
    Column::new("IMAGE", |row| plain(&row["source"])),
    Column::new("MACHINES", |row| plain(&row["nodes"])),
    Column::new("ACTIVE", |row| plain(&row["active"])),
    Column::new("SOME OF THEM", |row| plain(&row["some"])),
];

pub(crate) const CACHED_IMAGES: &[Column] = &[
    Column::new("SHA256", |row| plain(&row["sha256"])),
    Column::new("FORMAT", |row| plain(&row["format"])),
    Column::new("BYTES", |row| plain(&row["size"])),
    Column::new("ON DISK", |row| plain(&row["on_disk"])),
    Column::new("IN USE", |row| plain(&row["in_use"])),
    Column::new("LAST USED", |row| moments::cell(&row["last_used_at"])),
];

pub(crate) const CABLES: &[Column] = &[
    Column::new("SWITCH", |row| plain(&row["switch"])),
    Column::new("PORT", |row| plain(&row["id"])),
    Column::new("NODE", node),
    Column::new("INTERFACE", |row| plain(&row["interface"])),
    Column::new("MAC", |row| plain(&row["mac"])),
    Column::new("STATE", |row| {
        let state = row["state"].as_str().unwrap_or_default();
        let tone = if matches!(state, "moved" | "missing") { Tone::Bad } else { Tone::Plain };
        Cell::toned(state, tone)
    }),
    Column::wide("LISTENED", |row| moments::cell(&row["listened_at"])),
    Column::wide("DESCRIPTION", |row| plain(&row["description"])),
];

/// The machine that something belongs to: its name, where it has one that is known.
fn node(row: &Value) -> Cell {
    plain(if row["node_name"].is_string() { &row["node_name"] } else { &row["node_uuid"] })
}

/// What a machine that was seen is: by its own report, else by what its first packet says.
fn machine(row: &Value) -> Cell {
    let report = &row["report"];
    let words = [&report["vendor"], &report["model"]].map(brief);
    let words: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { plain(&row["architecture"]) } else { words.join(" ").into() }
}

/// The names of steps.
fn steps(row: &Value) -> Cell {
    let steps = row["steps"].as_array().into_iter().flatten();
    let name = |step: &Value| {
        let part = |field: &str| step[field].as_str().unwrap_or("?").to_owned();
        format!("{}.{}", part("interface"), part("step"))
    };
    steps.map(name).collect::<Vec<_>>().join(",").into()
}

/// What conditions and actions do, without what with.
fn operations(list: &Value) -> Cell {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|it| it["op"].as_str()).collect::<Vec<_>>().join(",").into()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::screen::Screen;
    use crate::table::list;

    #[test]
    fn people_see_names_times_and_kinds() {
        let rows = [
            json!({"name": "web-1", "state": "active", "node_uuid": "u1", "node_name": "rack1-u01"}),
            json!({"name": "web-2", "state": "error", "node_uuid": "u2", "node_name": null}),
        ];
        expect![[r#"
            NAME   STATE   CLASS  TRAITS  NODE       UUID  NOTE
            web-1  active                 rack1-u01
            web-2  error                  u2
        "#]]
        .assert_eq(&list(&rows, ALLOCATIONS.columns, false, Screen::plain()));
        let seen = "2026-11-16T18:35:15.781383+00:00";
        let rows = [
            json!({"mac": "m1", "last_seen_at": seen, "architecture": "x86_64",
                "report": {"vendor": "Dell Inc.", "model": "R760"}}),
            json!({"mac": "m2", "last_seen_at": seen, "architecture": "x86_64", "report": null}),
        ];
        expect![[r#"
            MAC  IP  MACHINE         TIMES  LAST SEEN            WHAT
            m1       Dell Inc. R760         2026-11-16 18:35:15
            m2       x86_64                 2026-11-16 18:35:15
        "#]]
        .assert_eq(&list(&rows, SIGHTINGS, false, Screen::plain()));
    }
}
