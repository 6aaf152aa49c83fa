// SPDX-License-Identifier: Apache-2.0
//! Which machines are meant: names, noderanges, files of them, and filters.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::sync::Arc;

use clap::Args;
use ironic_client::{Api, ApiError, Query, segment};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::desk::Desk;
use crate::failure::Failure;
use crate::noderange;
use crate::order;
use crate::output::name_of;
use crate::wait;

/// What is always known of a chosen machine.
pub(crate) const FIELDS: &str = "uuid,name,provision_state,target_provision_state,power_state,\
    target_power_state,maintenance,fault,last_error,instance_uuid,resource_class,owner";
/// Up to so many machines are asked for each by itself, so many at a time; more come with the whole list.
pub(crate) const FEW: usize = 200;
const AT_ONCE: usize = 16;
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

/// Where they are in the help.
const HEADING: &str = "Filters";

/// Which machines of those that are named, or of all.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Filters {
    /// In one of these provision states.
    #[arg(help_heading = HEADING,
          id = "filter-state", long = "state", value_name = "STATE", value_delimiter = ',')]
    state: Vec<String>,
    /// Of this resource class.
    #[arg(help_heading = HEADING,
          id = "filter-resource-class", long = "resource-class", value_name = "CLASS")]
    resource_class: Option<String>,
    /// With all of these traits.
    #[arg(help_heading = HEADING,
          id = "filter-traits", long = "with-trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// Of this owner.
    #[arg(help_heading = HEADING, id = "filter-owner", long = "owner", value_name = "OWNER")]
    owner: Option<String>,
    /// Leased to this project.
    #[arg(help_heading = HEADING, id = "filter-lessee", long = "lessee", value_name = "LESSEE")]
    lessee: Option<String>,
    /// With this fault.
    #[arg(help_heading = HEADING, id = "filter-fault", long = "fault", value_name = "FAULT")]
    fault: Option<String>,
    /// Driven by this driver.
    #[arg(help_heading = HEADING, id = "filter-driver", long = "driver", value_name = "DRIVER")]
    driver: Option<String>,
    /// In maintenance, or with `=false` not.
    #[arg(help_heading = HEADING,
          id = "filter-maintenance", long = "maintenance", value_name = "YES", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    maintenance: Option<bool>,
    /// With an instance on it, or with `=false` without.
    #[arg(help_heading = HEADING,
          id = "filter-associated", long = "associated", value_name = "YES", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    associated: Option<bool>,
    /// Of this conductor group.
    #[arg(help_heading = HEADING,
          id = "filter-conductor-group", long = "conductor-group", value_name = "GROUP")]
    conductor_group: Option<String>,
    /// Of this shard.
    #[arg(help_heading = HEADING, id = "filter-shard", long = "shard", value_name = "SHARD")]
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
    api: &Arc<Api>,
    names: &[String],
    filters: &Filters,
    fields: Option<&str>,
) -> Result<Vec<Value>, Failure> {
    for state in &filters.state {
        wait::known_state(state)?;
    }
    if names.is_empty() {
        let query = match fields {
            Some(fields) if filters.traits.is_empty() => filters.query().with("fields", fields),
            Some(fields) => filters.query().with("fields", &format!("{fields},traits")),
            None => filters.query().with("detail", "true"),
        };
        let listed = api.list("/v1/nodes", "nodes", &query).await?;
        let mut rows: Vec<Value> = listed.into_iter().filter(|node| filters.fits(node)).collect();
        order::by_name(&mut rows);
        return Ok(rows);
    }
    let found = by_name(api, names, fields).await?;
    let missing = names.iter().zip(&found).filter(|(_, node)| node.is_none());
    let missing: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
    if !missing.is_empty() {
        return Err(unknown(api, &missing).await?);
    }
    let mut rows = once_each(found.into_iter().flatten());
    if !filters.are_empty() {
        let query = filters.query().with("fields", "uuid,provision_state,traits");
        let left = api.list("/v1/nodes", "nodes", &query).await?;
        let left = left.iter().filter(|node| filters.fits(node));
        let left: HashSet<&str> = left.filter_map(|node| node["uuid"].as_str()).collect();
        rows.retain(|node| node["uuid"].as_str().is_some_and(|uuid| left.contains(uuid)));
    }
    Ok(rows)
}

/// The machine of each of these names, if it is somebody's.
pub(crate) async fn by_name(
    api: &Arc<Api>,
    names: &[String],
    fields: Option<&str>,
) -> Result<Vec<Option<Value>>, ApiError> {
    let query = fields.map(|fields| Query::new().with("fields", fields));
    if names.len() <= FEW {
        let query = query.unwrap_or_default();
        let path = |name: &String| query.on(&format!("/v1/nodes/{}", segment(name)));
        return found(api, names.iter().map(path).collect()).await;
    }
    let query = query.unwrap_or_else(|| Query::new().with("detail", "true"));
    Ok(in_order(names, &api.list("/v1/nodes", "nodes", &query).await?))
}

/// What is found under each of these paths, asking for many at a time.
pub(crate) async fn found(
    api: &Arc<Api>,
    paths: Vec<String>,
) -> Result<Vec<Option<Value>>, ApiError> {
    let mut found = vec![None; paths.len()];
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut tasks = JoinSet::new();
    for (place, path) in paths.into_iter().enumerate() {
        let (api, turns) = (api.clone(), turns.clone());
        tasks.spawn(async move {
            let _turn = turns.acquire_owned().await;
            (place, api.find(&path).await)
        });
    }
    while let Some(joined) = tasks.join_next().await {
        let (place, answer) = joined.expect("a request neither panics nor is it called off");
        found[place] = answer?;
    }
    Ok(found)
}

/// The same machines, none of them twice.
pub(crate) fn once_each(nodes: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    nodes.filter(|node| seen.insert(node["uuid"].as_str().map(str::to_owned))).collect()
}

/// One machine by its name or UUID; who is not there is told with who could be meant.
pub(crate) async fn one(api: &Api, name: &str, fields: Option<&str>) -> Result<Value, Failure> {
    let name = &single(name)?;
    let path = format!("/v1/nodes/{}", segment(name));
    let query = fields.map(|fields| Query::new().with("fields", fields)).unwrap_or_default();
    match api.find(&query.on(&path)).await? {
        Some(node) => Ok(node),
        None => Err(unknown(api, &[name]).await?),
    }
}

/// The only name that a word stands for.
fn single(word: &str) -> Result<String, Failure> {
    let names = noderange::expand(word).map_err(|error| Failure::Usage(error.to_string()))?;
    let is_list = word == "-" || word.starts_with('@');
    match names.as_slice() {
        [name] if !is_list => Ok(name.clone()),
        // Nobody is called so, which whoever is asked says.
        [] => Ok(word.to_owned()),
        _ => Err(Failure::Usage(format!("{word:?} means several machines: one machine only"))),
    }
}

/// Writes the names of machines beside their UUIDs, for people. Where they cannot be had, the UUIDs must
/// do.
pub(crate) async fn name_nodes(api: &Arc<Api>, rows: &mut [Value]) {
    let uuids: HashSet<&str> = rows.iter().filter_map(|row| row["node_uuid"].as_str()).collect();
    let nodes: Vec<Value> = if uuids.len() <= AT_ONCE {
        let uuids: Vec<String> = uuids.into_iter().map(str::to_owned).collect();
        let found = by_name(api, &uuids, Some("uuid,name")).await.unwrap_or_default();
        found.into_iter().flatten().collect()
    } else {
        let query = Query::new().with("fields", "uuid,name");
        api.list("/v1/nodes", "nodes", &query).await.unwrap_or_default()
    };
    let name = |node: &Value| Some((node["uuid"].as_str()?.to_owned(), node["name"].clone()));
    let names: HashMap<String, Value> = nodes.iter().filter_map(name).collect();
    for row in rows {
        if let Some(name) = row["node_uuid"].as_str().and_then(|uuid| names.get(uuid)) {
            row["node_name"] = name.clone();
        }
    }
}

/// The rows of these names, in the order of the names.
fn in_order(names: &[String], listed: &[Value]) -> Vec<Option<Value>> {
    let mut by_name = HashMap::new();
    for node in listed {
        for field in ["uuid", "name"] {
            if let Some(name) = node[field].as_str() {
                by_name.insert(name, node);
            }
        }
    }
    names.iter().map(|name| by_name.get(name.as_str()).copied().cloned()).collect()
}

/// That there are no machines of these names, and which may be meant.
pub(crate) async fn unknown(api: &Api, missing: &[&str]) -> Result<Failure, ApiError> {
    let [name] = missing else { return Ok(nobody(missing, std::iter::empty())) };
    let query = Query::new().with("fields", "uuid,name");
    let known = api.list("/v1/nodes", "nodes", &query).await?;
    // Whoever deployed something knows it by the name it was given then.
    let instance = api.find(&format!("/v1/allocations/{}", segment(name))).await.ok().flatten();
    let instance = instance.unwrap_or_default();
    let is_under =
        |node: &&Value| node["uuid"].is_string() && node["uuid"] == instance["node_uuid"];
    if let Some(machine) = known.iter().find(is_under).map(name_of) {
        return Ok(Failure::NotFound(format!(
            "there is no machine {name:?}, but an instance of that name on {machine:?}; `ferrite \
             allocation list` shows which is where"
        )));
    }
    Ok(nobody(missing, known.iter().map(name_of)))
}

fn nobody<'a>(missing: &[&str], known: impl Iterator<Item = &'a str>) -> Failure {
    let told = match missing {
        [name] => match alike(name, known) {
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
    use crate::failure::Code;
    use crate::test_server::{Answer, server};

    fn names(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn names_are_found_in_their_order_and_those_missing_are_told() {
        let listed = [
            json!({"uuid": "1", "name": "a"}),
            json!({"uuid": "2", "name": null}),
            json!({"uuid": "3", "name": "c"}),
        ];
        let found = in_order(&names("c,2,3,x,a"), &listed);
        assert_eq!(found[3], None);
        let found = once_each(found.into_iter().flatten());
        let uuids: Vec<&str> = found.iter().filter_map(|node| node["uuid"].as_str()).collect();
        assert_eq!(uuids, ["3", "2", "1"]);
        let error = nobody(&["x", "y"], std::iter::empty());
        assert_eq!(error.to_string(), "there are no machines \"x\", \"y\"; nothing was done");
        let many: Vec<String> = (1..=99_999).map(|number| format!("r{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let told = nobody(&many, std::iter::empty()).to_string();
        assert!(told.ends_with("\"r5\" and 99994 more; nothing was done"), "{told:.200}");
    }

    #[tokio::test]
    async fn one_machine_is_one() {
        let (desk, log) = server(|_| Answer::Json(200, json!({"uuid": "u", "name": "r01"})));
        for several in ["r[01-02]", "a,b", "a b", "@file", "-"] {
            let failure = one(&desk.api, several, None).await.unwrap_err();
            assert_eq!(failure.code(), Code::Usage, "{several}");
        }
        one(&desk.api, "r[01-01]", None).await.unwrap();
        assert_eq!(*log.lock().unwrap(), ["GET /v1/nodes/r01"]);
    }

    #[tokio::test]
    async fn who_is_known_by_the_name_of_its_instance_is_told() {
        let (desk, _) = server(|asked| match asked.line.as_str() {
            "GET /v1/allocations/web-1" => Answer::Json(200, json!({"node_uuid": "u2"})),
            line if line.starts_with("GET /v1/nodes?") && !line.contains("marker") => {
                let nodes =
                    [json!({"uuid": "u1", "name": "web-10"}), json!({"uuid": "u2", "name": "b"})];
                Answer::Json(200, json!({"nodes": nodes}))
            }
            _ => Answer::Json(404, json!({"error_message": "no such thing"})),
        });
        let told = one(&desk.api, "web-1", None).await.unwrap_err().to_string();
        assert!(told.contains("an instance of that name on \"b\""), "{told}");
        let told = one(&desk.api, "web-2", None).await.unwrap_err().to_string();
        assert_eq!(told, "there is no machine \"web-2\"; did you mean \"web-10\"?");
    }

    /// Few are asked for by themselves, many come with one list.
    #[tokio::test]
    async fn machines_of_things_have_names() {
        for (count, asked) in [(3, 3), (40, 1)] {
            let (desk, log) = server(|asked| {
                let node = |uuid: &str| json!({"uuid": uuid, "name": format!("name-of-{uuid}")});
                match asked.line.trim_start_matches("GET /v1/nodes/").split('?').next() {
                    Some(uuid) if uuid.starts_with('u') => Answer::Json(200, node(uuid)),
                    Some(_) | None => {
                        let nodes: Vec<Value> =
                            (0..50).map(|number| node(&format!("u{number}"))).collect();
                        Answer::Json(200, json!({"nodes": nodes}))
                    }
                }
            });
            let mut rows: Vec<Value> =
                (0..count).map(|number| json!({"node_uuid": format!("u{number}")})).collect();
            rows.push(json!({"node_uuid": null}));
            name_nodes(&desk.api, &mut rows).await;
            assert_eq!(rows[2]["node_name"], "name-of-u2");
            assert_eq!(rows[count]["node_name"], Value::Null);
            assert_eq!(log.lock().unwrap().len(), asked);
        }
    }

    /// A rack of a fleet is not looked for in the list of all.
    #[tokio::test]
    async fn few_machines_are_asked_for_alone() {
        let (desk, log) = server(|asked| {
            match asked.line.trim_start_matches("GET /v1/nodes/").split('?').next() {
                Some(name) if name.starts_with('r') => {
                    Answer::Json(200, json!({"uuid": format!("uuid-{name}"), "name": name}))
                }
                Some(_) | None => Answer::Json(404, json!({"error_message": "no such node"})),
            }
        });
        let rack = noderange::expand("r[01-40],r07").unwrap();
        let found = rows(&desk.api, &rack, &Filters::default(), None).await.unwrap();
        let found: Vec<&str> = found.iter().map(name_of).collect();
        assert_eq!(found, rack[..40].iter().map(String::as_str).collect::<Vec<_>>());
        let error = rows(&desk.api, &names("r1,x,y"), &Filters::default(), None).await;
        let told = error.unwrap_err().to_string();
        assert_eq!(told, "there are no machines \"x\", \"y\"; nothing was done");
        let is_list = |line: &String| line.starts_with("GET /v1/nodes?");
        assert!(!log.lock().unwrap().iter().any(is_list), "{log:?}");
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
