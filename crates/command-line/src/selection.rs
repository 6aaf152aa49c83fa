// SPDX-License-Identifier: Apache-2.0
//! Selects nodes by names, noderanges, files of names and filters.

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::sync::Arc;

use clap::Args;
use ironic_client::{Api, IronicClientError, QueryString, percent_encode};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::natural_order;
use crate::noderange;
use crate::output::display_name;
use crate::wait;

/// Fields that are read for every selected node.
pub(crate) const FIELDS: &str = "uuid,name,provision_state,target_provision_state,power_state,\
    target_power_state,maintenance,fault,last_error,instance_uuid,resource_class,owner";
/// Up to this number, nodes are requested individually; more are taken from the list of all nodes.
pub(crate) const MAX_SINGLE_REQUESTS: usize = 200;
const MAX_CONCURRENT: usize = 16;
/// Number of unknown names in an error message.
const MAX_LISTED_NAMES: usize = 5;
/// Jaro-Winkler similarity of a suggested name.
const MIN_SIMILARITY: f64 = 0.85;

/// Nodes selected by name or filters.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct NodeSelection {
    /// Names, UUIDs or noderanges such as rack1-[01-12]; @FILE reads them from a file, - from standard
    /// input.
    #[arg(value_name = "NODES")]
    nodes: Vec<String>,
    /// All machines that match the filters.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filters: NodeFilters,
}

/// Help heading.
const HEADING: &str = "Filters";

/// Filters on the named nodes, or on all nodes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct NodeFilters {
    /// Provision state; one of several.
    #[arg(help_heading = HEADING,
          id = "filter-state", long = "state", value_name = "STATE", value_delimiter = ',')]
    state: Vec<String>,
    /// Resource class.
    #[arg(help_heading = HEADING,
          id = "filter-resource-class", long = "resource-class", value_name = "CLASS")]
    resource_class: Option<String>,
    /// Traits; all of them.
    #[arg(help_heading = HEADING,
          id = "filter-traits", long = "with-trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// Owner.
    #[arg(help_heading = HEADING, id = "filter-owner", long = "owner", value_name = "OWNER")]
    owner: Option<String>,
    /// Lessee.
    #[arg(help_heading = HEADING, id = "filter-lessee", long = "lessee", value_name = "LESSEE")]
    lessee: Option<String>,
    /// Fault.
    #[arg(help_heading = HEADING, id = "filter-fault", long = "fault", value_name = "FAULT")]
    fault: Option<String>,
    /// Driver.
    #[arg(help_heading = HEADING, id = "filter-driver", long = "driver", value_name = "DRIVER")]
    driver: Option<String>,
    /// In maintenance; with `=false`, not in maintenance.
    #[arg(help_heading = HEADING,
          id = "filter-maintenance", long = "maintenance", value_name = "YES", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    maintenance: Option<bool>,
    /// With an instance; with `=false`, without.
    #[arg(help_heading = HEADING,
          id = "filter-associated", long = "associated", value_name = "YES", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    associated: Option<bool>,
    /// Conductor group.
    #[arg(help_heading = HEADING,
          id = "filter-conductor-group", long = "conductor-group", value_name = "GROUP")]
    conductor_group: Option<String>,
    /// Shard.
    #[arg(help_heading = HEADING, id = "filter-shard", long = "shard", value_name = "SHARD")]
    shard: Option<String>,
}

/// A selected node.
#[derive(Clone, Debug)]
pub(crate) struct SelectedNode {
    /// Name, or UUID without one.
    pub(crate) label: String,
    pub(crate) uuid: String,
    /// The node when it was selected.
    pub(crate) node: Value,
}

impl SelectedNode {
    pub(crate) fn new(node: Value) -> Self {
        let label = display_name(&node).to_owned();
        let uuid = node["uuid"].as_str().unwrap_or(&label).to_owned();
        Self { label, uuid, node }
    }

    /// API path of the node.
    pub(crate) fn path(&self) -> String {
        format!("/v1/nodes/{}", percent_encode(&self.uuid))
    }

    pub(crate) fn state(&self) -> &str {
        self.node["provision_state"].as_str().unwrap_or_default()
    }
}

impl NodeSelection {
    /// Returns the selected nodes. Fails without names, filters and `--all`.
    pub(crate) async fn resolve(
        &self,
        context: &CliContext,
    ) -> Result<Vec<SelectedNode>, CliError> {
        if self.nodes.is_empty() && !self.all && self.filters.is_empty() {
            return Err(CliError::Usage(
                "no machines selected; name them (rack1-[01-12]), give filters (--state available), or \
                 give --all"
                    .to_owned(),
            ));
        }
        let rows =
            find_nodes(&context.api, &expand_names(&self.nodes)?, &self.filters, Some(FIELDS))
                .await?;
        let selected: Vec<SelectedNode> = rows.into_iter().map(SelectedNode::new).collect();
        if selected.is_empty() {
            context.screen.note("no machine matches the filters");
        }
        Ok(selected)
    }
}

impl NodeFilters {
    pub(crate) fn is_empty(&self) -> bool {
        self.query().append_to("").is_empty() && self.state.is_empty() && self.traits.is_empty()
    }

    /// The filters that the server applies.
    fn query(&self) -> QueryString {
        let flag = |value: Option<bool>| value.map(|value| value.to_string());
        let state = match self.state.as_slice() {
            [state] => Some(state.clone()),
            _ => None,
        };
        let mut query = QueryString::new();
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
                query.add(name, value);
            }
        }
        query
    }

    /// Applies the filters that the server does not support.
    fn matches(&self, node: &Value) -> bool {
        let state = node["provision_state"].as_str().unwrap_or_default();
        let traits = node["traits"].as_array();
        (self.state.is_empty() || self.state.iter().any(|filter| filter == state))
            && self.traits.iter().all(|required| {
                traits.is_some_and(|traits| traits.iter().any(|it| it == required.as_str()))
            })
    }
}

/// Expands arguments to names: noderanges, `@FILE`, and `-` for standard input.
pub(crate) fn expand_names(arguments: &[String]) -> Result<Vec<String>, CliError> {
    let mut names = Vec::new();
    for argument in arguments {
        let text = if argument == "-" {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|source| CliError::Unreadable { path: "standard input".into(), source })?;
            without_comments(&text)
        } else if let Some(path) = argument.strip_prefix('@') {
            let text = std::fs::read_to_string(path)
                .map_err(|source| CliError::Unreadable { path: path.into(), source })?;
            without_comments(&text)
        } else {
            argument.clone()
        };
        let expanded =
            noderange::expand(&text).map_err(|error| CliError::Usage(error.to_string()))?;
        // An empty list must not select all nodes.
        if expanded.is_empty() {
            return Err(CliError::Usage(format!("{argument:?} contains no names")));
        }
        names.extend(expanded);
    }
    Ok(names)
}

/// Returns the nodes of these names, or all nodes, that match the filters. Fails if a name is unknown.
pub(crate) async fn find_nodes(
    api: &Arc<Api>,
    names: &[String],
    filters: &NodeFilters,
    fields: Option<&str>,
) -> Result<Vec<Value>, CliError> {
    for state in &filters.state {
        wait::validate_state(state)?;
    }
    if names.is_empty() {
        let query = match fields {
            Some(fields) if filters.traits.is_empty() => filters.query().with("fields", fields),
            Some(fields) => filters.query().with("fields", &format!("{fields},traits")),
            None => filters.query().with("detail", "true"),
        };
        let listed = api.list("/v1/nodes", "nodes", &query).await?;
        let mut rows: Vec<Value> =
            listed.into_iter().filter(|node| filters.matches(node)).collect();
        natural_order::sort_by_name(&mut rows);
        return Ok(rows);
    }
    let found = find_by_name(api, names, fields).await?;
    let missing = names.iter().zip(&found).filter(|(_, node)| node.is_none());
    let missing: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
    if !missing.is_empty() {
        return Err(unknown_nodes_error(api, &missing).await?);
    }
    let mut rows = deduplicate(found.into_iter().flatten());
    if !filters.is_empty() {
        let query = filters.query().with("fields", "uuid,provision_state,traits");
        let left = api.list("/v1/nodes", "nodes", &query).await?;
        let left = left.iter().filter(|node| filters.matches(node));
        let left: HashSet<&str> = left.filter_map(|node| node["uuid"].as_str()).collect();
        rows.retain(|node| node["uuid"].as_str().is_some_and(|uuid| left.contains(uuid)));
    }
    Ok(rows)
}

/// Looks up the node of each name.
pub(crate) async fn find_by_name(
    api: &Arc<Api>,
    names: &[String],
    fields: Option<&str>,
) -> Result<Vec<Option<Value>>, IronicClientError> {
    let query = fields.map(|fields| QueryString::new().with("fields", fields));
    if names.len() <= MAX_SINGLE_REQUESTS {
        let query = query.unwrap_or_default();
        let path = |name: &String| query.append_to(&format!("/v1/nodes/{}", percent_encode(name)));
        return fetch_all(api, names.iter().map(path).collect()).await;
    }
    let query = query.unwrap_or_else(|| QueryString::new().with("detail", "true"));
    Ok(match_names(names, &api.list("/v1/nodes", "nodes", &query).await?))
}

/// Requests all paths, several at a time; `None` for those that do not exist.
pub(crate) async fn fetch_all(
    api: &Arc<Api>,
    paths: Vec<String>,
) -> Result<Vec<Option<Value>>, IronicClientError> {
    let mut found = vec![None; paths.len()];
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
    let mut tasks = JoinSet::new();
    for (index, path) in paths.into_iter().enumerate() {
        let (api, permits) = (api.clone(), permits.clone());
        tasks.spawn(async move {
            let _permit = permits.acquire_owned().await;
            (index, api.find(&path).await)
        });
    }
    while let Some(joined) = tasks.join_next().await {
        let (index, response) = joined.expect("requests neither panic nor are they aborted");
        found[index] = response?;
    }
    Ok(found)
}

/// Removes duplicates.
pub(crate) fn deduplicate(nodes: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    nodes.filter(|node| seen.insert(node["uuid"].as_str().map(str::to_owned))).collect()
}

/// Finds one node by name or UUID. Fails with a suggestion if it does not exist.
pub(crate) async fn find_node(
    api: &Api,
    name: &str,
    fields: Option<&str>,
) -> Result<Value, CliError> {
    let name = &single_name(name)?;
    let path = format!("/v1/nodes/{}", percent_encode(name));
    let query = fields.map(|fields| QueryString::new().with("fields", fields)).unwrap_or_default();
    match api.find(&query.append_to(&path)).await? {
        Some(node) => Ok(node),
        None => Err(unknown_nodes_error(api, &[name]).await?),
    }
}

/// Expands an argument that must contain exactly one name.
fn single_name(argument: &str) -> Result<String, CliError> {
    let names = noderange::expand(argument).map_err(|error| CliError::Usage(error.to_string()))?;
    let is_list = argument == "-" || argument.starts_with('@');
    match names.as_slice() {
        [name] if !is_list => Ok(name.clone()),
        // The server reports that there is no such node.
        [] => Ok(argument.to_owned()),
        _ => Err(CliError::Usage(format!("{argument:?} selects several machines; give one"))),
    }
}

/// Adds `node_name` to rows with a `node_uuid`. Rows keep only the UUID if the names cannot be read.
pub(crate) async fn add_node_names(api: &Arc<Api>, rows: &mut [Value]) {
    let uuids: HashSet<&str> = rows.iter().filter_map(|row| row["node_uuid"].as_str()).collect();
    let nodes: Vec<Value> = if uuids.len() <= MAX_CONCURRENT {
        let uuids: Vec<String> = uuids.into_iter().map(str::to_owned).collect();
        let found = find_by_name(api, &uuids, Some("uuid,name")).await.unwrap_or_default();
        found.into_iter().flatten().collect()
    } else {
        let query = QueryString::new().with("fields", "uuid,name");
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

/// Returns the listed node of each name, in the order of the names.
fn match_names(names: &[String], listed: &[Value]) -> Vec<Option<Value>> {
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

/// The error for unknown names, with a suggestion.
pub(crate) async fn unknown_nodes_error(
    api: &Api,
    missing: &[&str],
) -> Result<CliError, IronicClientError> {
    let [name] = missing else { return Ok(not_found_error(missing, std::iter::empty())) };
    let query = QueryString::new().with("fields", "uuid,name");
    let known = api.list("/v1/nodes", "nodes", &query).await?;
    // The name may be that of an instance.
    let instance =
        api.find(&format!("/v1/allocations/{}", percent_encode(name))).await.ok().flatten();
    let instance = instance.unwrap_or_default();
    let has_instance =
        |node: &&Value| node["uuid"].is_string() && node["uuid"] == instance["node_uuid"];
    if let Some(machine) = known.iter().find(has_instance).map(display_name) {
        return Ok(CliError::NotFound(format!(
            "unknown machine {name:?}; the instance of that name is on {machine:?} (`ferrite \
             allocation list` lists all)"
        )));
    }
    Ok(not_found_error(missing, known.iter().map(display_name)))
}

fn not_found_error<'a>(missing: &[&str], known: impl Iterator<Item = &'a str>) -> CliError {
    let message = match missing {
        [name] => match closest_match(name, known) {
            Some(meant) => format!("unknown machine {name:?}; did you mean {meant:?}?"),
            None => format!("unknown machine {name:?}; `ferrite node list` lists all"),
        },
        _ => {
            let listed: Vec<String> =
                missing.iter().take(MAX_LISTED_NAMES).map(|name| format!("{name:?}")).collect();
            let more = match missing.len().saturating_sub(MAX_LISTED_NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("unknown machines {}{more}; nothing was done", listed.join(", "))
        }
    };
    CliError::NotFound(message)
}

/// Returns the most similar name, if it is similar enough.
#[must_use]
pub fn closest_match<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.map(|other| (strsim::jaro_winkler(name, other), other));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score >= MIN_SIMILARITY).map(|(_, name)| name)
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::test_server::{TestResponse, start_server};

    fn names(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    #[test]
    fn matches_names_in_order_and_reports_missing_ones() {
        let listed = [
            json!({"uuid": "1", "name": "a"}),
            json!({"uuid": "2", "name": null}),
            json!({"uuid": "3", "name": "c"}),
        ];
        let found = match_names(&names("c,2,3,x,a"), &listed);
        assert_eq!(found[3], None);
        let found = deduplicate(found.into_iter().flatten());
        let uuids: Vec<&str> = found.iter().filter_map(|node| node["uuid"].as_str()).collect();
        assert_eq!(uuids, ["3", "2", "1"]);
        let error = not_found_error(&["x", "y"], std::iter::empty());
        assert_eq!(error.to_string(), "unknown machines \"x\", \"y\"; nothing was done");
        let many: Vec<String> = (1..=99_999).map(|number| format!("r{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let message = not_found_error(&many, std::iter::empty()).to_string();
        assert!(message.ends_with("\"r5\" and 99994 more; nothing was done"), "{message:.200}");
    }

    #[tokio::test]
    async fn single_node_arguments_reject_several_names() {
        let (context, log) =
            start_server(|_| TestResponse::Json(200, json!({"uuid": "u", "name": "r01"})));
        for several in ["r[01-02]", "a,b", "a b", "@file", "-"] {
            let failure = find_node(&context.api, several, None).await.unwrap_err();
            assert_eq!(failure.exit_code(), CliExitCode::Usage, "{several}");
        }
        find_node(&context.api, "r[01-01]", None).await.unwrap();
        assert_eq!(*log.lock().unwrap(), ["GET /v1/nodes/r01"]);
    }

    #[tokio::test]
    async fn unknown_name_of_an_instance_names_its_node() {
        let (context, _) = start_server(|request| match request.line.as_str() {
            "GET /v1/allocations/web-1" => TestResponse::Json(200, json!({"node_uuid": "u2"})),
            line if line.starts_with("GET /v1/nodes?") && !line.contains("marker") => {
                let nodes =
                    [json!({"uuid": "u1", "name": "web-10"}), json!({"uuid": "u2", "name": "b"})];
                TestResponse::Json(200, json!({"nodes": nodes}))
            }
            _ => TestResponse::Json(404, json!({"error_message": "no such thing"})),
        });
        let message = find_node(&context.api, "web-1", None).await.unwrap_err().to_string();
        assert!(message.contains("the instance of that name is on \"b\""), "{message}");
        let message = find_node(&context.api, "web-2", None).await.unwrap_err().to_string();
        assert_eq!(message, "unknown machine \"web-2\"; did you mean \"web-10\"?");
    }

    /// Few nodes are requested individually, many with one list.
    #[tokio::test]
    async fn adds_node_names_to_rows() {
        for (count, requests) in [(3, 3), (40, 1)] {
            let (context, log) = start_server(|request| {
                let node = |uuid: &str| json!({"uuid": uuid, "name": format!("name-of-{uuid}")});
                match request.line.trim_start_matches("GET /v1/nodes/").split('?').next() {
                    Some(uuid) if uuid.starts_with('u') => TestResponse::Json(200, node(uuid)),
                    Some(_) | None => {
                        let nodes: Vec<Value> =
                            (0..50).map(|number| node(&format!("u{number}"))).collect();
                        TestResponse::Json(200, json!({"nodes": nodes}))
                    }
                }
            });
            let mut rows: Vec<Value> =
                (0..count).map(|number| json!({"node_uuid": format!("u{number}")})).collect();
            rows.push(json!({"node_uuid": null}));
            add_node_names(&context.api, &mut rows).await;
            assert_eq!(rows[2]["node_name"], "name-of-u2");
            assert_eq!(rows[count]["node_name"], Value::Null);
            assert_eq!(log.lock().unwrap().len(), requests);
        }
    }

    #[tokio::test]
    async fn requests_few_nodes_without_listing_all() {
        let (context, log) = start_server(|request| {
            match request.line.trim_start_matches("GET /v1/nodes/").split('?').next() {
                Some(name) if name.starts_with('r') => {
                    TestResponse::Json(200, json!({"uuid": format!("uuid-{name}"), "name": name}))
                }
                Some(_) | None => TestResponse::Json(404, json!({"error_message": "no such node"})),
            }
        });
        let rack = noderange::expand("r[01-40],r07").unwrap();
        let found = find_nodes(&context.api, &rack, &NodeFilters::default(), None).await.unwrap();
        let found: Vec<&str> = found.iter().map(display_name).collect();
        assert_eq!(found, rack[..40].iter().map(String::as_str).collect::<Vec<_>>());
        let error = find_nodes(&context.api, &names("r1,x,y"), &NodeFilters::default(), None).await;
        let message = error.unwrap_err().to_string();
        assert_eq!(message, "unknown machines \"x\", \"y\"; nothing was done");
        let is_list = |line: &String| line.starts_with("GET /v1/nodes?");
        assert!(!log.lock().unwrap().iter().any(is_list), "{log:?}");
    }

    #[test]
    fn suggests_similar_names() {
        let known = ["rack1-u01", "rack1-u02", "db-7"];
        for (name, expected) in
            [("rack1-u1", Some("rack1-u01")), ("db7", Some("db-7")), ("web", None)]
        {
            assert_eq!(closest_match(name, known.into_iter()), expected, "{name}");
        }
    }
}
