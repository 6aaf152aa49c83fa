// SPDX-License-Identifier: Apache-2.0
//! Which machines are meant: names, noderanges, files of them, and filters.

use std::collections::HashMap;
use std::io::Read as _;

use clap::Args;
use ironic_client::{Api, Query, segment};
use serde_json::Value;

use crate::desk::Desk;
use crate::failure::Failure;
use crate::noderange;
use crate::order;
use crate::output::name_of;
use crate::wait;

/// What is always known of a chosen machine.
pub(crate) const FIELDS: &str = "uuid,name,provision_state,target_provision_state,power_state,\
    target_power_state,maintenance,fault,last_error,instance_uuid,resource_class,owner";
/// Up to so many machines are asked for one by one; more come with the whole list.
const FEW: usize = 8;
/// So many names that are nobody's are told.
const TOLD: usize = 5;
/// How alike a name must be to be the one that was meant.
const ALIKE: f64 = 0.85;

/// Machines that must be named, or chosen explicitly.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Names, UUIDs or noderanges such as rack1-[01-12]; @FILE reads them from a file, - from standard
    /// input.
    #[arg(value_name = "NODES")]
    nodes: Vec<String>,
    /// Every machine that the filters leave.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filters: Filters,
}

/// Which machines of those that are named, or of all.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// In one of these provision states.
    #[arg(id = "filter-state", long = "state", value_name = "STATE", value_delimiter = ',')]
    state: Vec<String>,
    /// Of this resource class.
    #[arg(id = "filter-resource-class", long = "resource-class", value_name = "CLASS")]
    resource_class: Option<String>,
    /// With all of these traits.
    #[arg(id = "filter-traits", long = "with-trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// Of this owner.
    #[arg(id = "filter-owner", long = "owner", value_name = "OWNER")]
    owner: Option<String>,
    /// Leased to this project.
    #[arg(id = "filter-lessee", long = "lessee", value_name = "LESSEE")]
    lessee: Option<String>,
    /// With this fault.
    #[arg(id = "filter-fault", long = "fault", value_name = "FAULT")]
    fault: Option<String>,
    /// Driven by this driver.
    #[arg(id = "filter-driver", long = "driver", value_name = "DRIVER")]
    driver: Option<String>,
    /// In maintenance, or with `=false` not.
    #[arg(id = "filter-maintenance", long = "maintenance", value_name = "YES", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    maintenance: Option<bool>,
    /// With an instance on it, or with `=false` without.
    #[arg(id = "filter-associated", long = "associated", value_name = "YES", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    associated: Option<bool>,
    /// Of this conductor group.
    #[arg(id = "filter-conductor-group", long = "conductor-group", value_name = "GROUP")]
    conductor_group: Option<String>,
    /// Of this shard.
    #[arg(id = "filter-shard", long = "shard", value_name = "SHARD")]
    shard: Option<String>,
}

/// A machine that is meant.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// What it is called: its name, or its UUID.
    pub(crate) label: String,
    pub(crate) uuid: String,
    /// What was known of it when it was chosen.
    pub(crate) node: Value,
}

impl Chosen {
    pub(crate) fn of(node: Value) -> Self {
        let label = name_of(&node).to_owned();
        let uuid = node["uuid"].as_str().unwrap_or(&label).to_owned();
        Self { label, uuid, node }
    }

    /// The machine's path in the API.
    pub(crate) fn path(&self) -> String {
        format!("/v1/nodes/{}", segment(&self.uuid))
    }

    pub(crate) fn state(&self) -> &str {
        self.node["provision_state"].as_str().unwrap_or_default()
    }
}

impl Selection {
    /// The machines that are meant. Without any word about which, that is a mistake: `--all` must be
    /// said.
    pub(crate) async fn chosen(&self, desk: &Desk) -> Result<Vec<Chosen>, Failure> {
        if self.nodes.is_empty() && !self.all && self.filters.are_empty() {
            return Err(Failure::Usage(
                "which machines? name them (rack1-[01-12]), give filters (--state available), or say \
                 --all"
                    .to_owned(),
            ));
        }
        let rows = rows(&desk.api, &names(&self.nodes)?, &self.filters, Some(FIELDS)).await?;
        let chosen: Vec<Chosen> = rows.into_iter().map(Chosen::of).collect();
        if chosen.is_empty() {
            desk.screen.note("no machine is left by the filters");
        }
        Ok(chosen)
    }
}

impl Filters {
    pub(crate) fn are_empty(&self) -> bool {
        self.query().on("").is_empty() && self.state.is_empty() && self.traits.is_empty()
    }

    /// What the server can filter by.
    fn query(&self) -> Query {
        let flag = |value: Option<bool>| value.map(|value| value.to_string());
        let state = match self.state.as_slice() {
            [state] => Some(state.clone()),
            _ => None,
        };
        let mut query = Query::new();
        for (name, value) in [
            ("provision_state", &state),
            ("resource_class", &self.resource_class),
            ("owner", &self.owner),
            ("lessee", &self.lessee),
            ("fault", &self.fault),
            ("driver", &self.driver),
            ("maintenance", &flag(self.maintenance)),
            ("associated", &flag(self.associated)),
            ("conductor_group", &self.conductor_group),
            ("shard", &self.shard),
        ] {
            if let Some(value) = value {
                query.set(name, value);
            }
        }
        query
    }

    /// What it cannot.
    fn fits(&self, node: &Value) -> bool {
        let state = node["provision_state"].as_str().unwrap_or_default();
        let traits = node["traits"].as_array();
        (self.state.is_empty() || self.state.iter().any(|wanted| wanted == state))
            && self.traits.iter().all(|wanted| {
                traits.is_some_and(|traits| traits.iter().any(|it| it == wanted.as_str()))
            })
    }
}

/// The names that words on the command line stand for.
pub(crate) fn names(words: &[String]) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for word in words {
        let text = if word == "-" {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|source| Failure::Unreadable { path: "standard input".into(), source })?;
            without_comments(&text)
        } else if let Some(path) = word.strip_prefix('@') {
            let text = std::fs::read_to_string(path)
                .map_err(|source| Failure::Unreadable { path: path.into(), source })?;
            without_comments(&text)
        } else {
            word.clone()
        };
        let expanded =
            noderange::expand(&text).map_err(|error| Failure::Usage(error.to_string()))?;
        // A list that came out empty by mistake must not mean every machine.
        if expanded.is_empty() {
            return Err(Failure::Usage(format!("{word:?} names no machine")));
        }
        names.extend(expanded);
    }
    Ok(names)
}

/// The machines of these names, or all, that the filters leave. Every name must be somebody's.
pub(crate) async fn rows(
    api: &Api,
    names: &[String],
    filters: &Filters,
    fields: Option<&str>,
) -> Result<Vec<Value>, Failure> {
    for state in &filters.state {
        wait::known_state(state)?;
    }
    if !names.is_empty() && names.len() <= FEW && filters.are_empty() {
        let mut found = Vec::new();
        for name in names {
            found.push(one(api, name, fields).await?);
        }
        return Ok(found);
    }
    let mut query = if names.is_empty() { filters.query() } else { Query::new() };
    match fields {
        Some(fields) if filters.traits.is_empty() => query.set("fields", fields),
        Some(fields) => query.set("fields", &format!("{fields},traits")),
        None => query.set("detail", "true"),
    }
    let listed = api.list("/v1/nodes", "nodes", &query).await?;
    if names.is_empty() {
        let mut rows: Vec<Value> = listed.into_iter().filter(|node| filters.fits(node)).collect();
        order::by_name(&mut rows);
        return Ok(rows);
    }
    let left = if filters.are_empty() {
        None
    } else {
        let query = filters.query().with("fields", "uuid,provision_state,traits");
        let left = api.list("/v1/nodes", "nodes", &query).await?;
        let left = left.into_iter().filter(|node| filters.fits(node));
        Some(left.map(|node| node["uuid"].clone()).collect::<Vec<_>>())
    };
    let found = in_order(names, listed)?;
    let is_left = |node: &Value| left.as_ref().is_none_or(|left| left.contains(&node["uuid"]));
    Ok(found.into_iter().filter(is_left).collect())
}

/// One machine by its name or UUID; who is not there is told with who could be meant.
pub(crate) async fn one(api: &Api, name: &str, fields: Option<&str>) -> Result<Value, Failure> {
    let path = format!("/v1/nodes/{}", segment(name));
    let query = fields.map(|fields| Query::new().with("fields", fields)).unwrap_or_default();
    match api.find(&query.on(&path)).await? {
        Some(node) => Ok(node),
        None => {
            let query = Query::new().with("fields", "uuid,name");
            let listed = api.list("/v1/nodes", "nodes", &query).await?;
            Err(unknown(&[name], listed.iter().map(name_of)))
        }
    }
}

/// The rows of these names, in the order of the names.
fn in_order(names: &[String], listed: Vec<Value>) -> Result<Vec<Value>, Failure> {
    let mut by_name = HashMap::new();
    for (place, node) in listed.iter().enumerate() {
        for field in ["uuid", "name"] {
            if let Some(name) = node[field].as_str() {
                by_name.insert(name, place);
            }
        }
    }
    let missing: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !by_name.contains_key(name)).collect();
    if !missing.is_empty() {
        return Err(unknown(&missing, listed.iter().map(name_of)));
    }
    let mut places: Vec<usize> = Vec::new();
    for name in names {
        let place = by_name.get(name.as_str()).copied().unwrap_or_default();
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places.into_iter().map(|place| listed[place].clone()).collect())
}

/// That there are no machines of these names, and which may be meant.
fn unknown<'a>(missing: &[&str], known: impl Iterator<Item = &'a str>) -> Failure {
    let known: Vec<&str> = known.collect();
    let told = match missing {
        [name] => match alike(name, known.iter().copied()) {
            Some(meant) => format!("there is no machine {name:?}; did you mean {meant:?}?"),
            None => format!("there is no machine {name:?}; `ferrite node list` shows all"),
        },
        _ => {
            let told: Vec<String> =
                missing.iter().take(TOLD).map(|name| format!("{name:?}")).collect();
            let more = match missing.len().saturating_sub(TOLD) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("there are no machines {}{more}; nothing was done", told.join(", "))
        }
    };
    Failure::NotFound(told)
}

/// The name most like another, if it is like it enough.
pub(crate) fn alike<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.map(|other| (strsim::jaro_winkler(name, other), other));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score >= ALIKE).map(|(_, name)| name)
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_found_in_their_order_and_those_missing_are_told() {
        let listed = || {
            vec![
                json!({"uuid": "1", "name": "a"}),
                json!({"uuid": "2", "name": null}),
                json!({"uuid": "3", "name": "c"}),
            ]
        };
        let names = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let found = in_order(&names("c,2,3,a"), listed()).unwrap();
        let uuids: Vec<&str> = found.iter().filter_map(|node| node["uuid"].as_str()).collect();
        assert_eq!(uuids, ["3", "2", "1"]);
        let error = in_order(&names("a,x,y"), listed()).unwrap_err();
        assert_eq!(error.to_string(), "there are no machines \"x\", \"y\"; nothing was done");
        let many: Vec<String> = (1..=99_999).map(|number| format!("r{number}")).collect();
        let told = in_order(&many, listed()).unwrap_err().to_string();
        assert!(told.ends_with("\"r5\" and 99994 more; nothing was done"), "{told:.200}");
    }

    #[test]
    fn names_that_are_nearly_right_are_offered() {
        let known = ["rack1-u01", "rack1-u02", "db-7"];
        for (name, expected) in
            [("rack1-u1", Some("rack1-u01")), ("db7", Some("db-7")), ("web", None)]
        {
            assert_eq!(alike(name, known.into_iter()), expected, "{name}");
        }
    }
}
