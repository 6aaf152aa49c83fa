// SPDX-License-Identifier: Apache-2.0
//! `ferrite node create`: one node from options, or several from a file.

use std::path::PathBuf;

use clap::Args;
use ironic_client::{Api, IronicClientError, Method, QueryString, percent_encode};
use serde_json::{Map, Value, json};

use crate::assignments::{Assignment, to_object};
use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::interrupts::Interrupts;
use crate::output::{OutputArguments, OutputFormat, display_name, parse_json_or_yaml};

/// Options of `ferrite node create`.
#[derive(Args, Debug)]
pub(crate) struct NodeCreateArguments {
    /// The machine's name.
    #[arg(required_unless_present = "file")]
    name: Option<String>,
    /// The driver: redfish, ipmi, fake-hardware.
    #[arg(long, value_name = "DRIVER", required_unless_present = "file")]
    driver: Option<String>,
    /// How to reach its BMC: redfish_address=https://bmc. `KEY=@FILE` reads a password from a file.
    #[arg(long, value_name = "KEY=VALUE")]
    driver_info: Vec<Assignment>,
    /// A property: cpu_arch=x86_64.
    #[arg(long = "property", value_name = "KEY=VALUE")]
    properties: Vec<Assignment>,
    /// Its resource class.
    #[arg(long, value_name = "CLASS")]
    resource_class: Option<String>,
    /// Any other field: owner=blue, deploy_interface=direct, extra.rack=7.
    #[arg(short, long = "field", value_name = "FIELD=VALUE")]
    fields: Vec<Assignment>,
    /// Its traits.
    #[arg(long = "trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// MAC addresses of the NICs it boots from.
    #[arg(long = "port", value_name = "MAC", value_delimiter = ',')]
    ports: Vec<String>,
    /// A JSON or YAML file with a list of machines, or with a list `nodes`: fields as in the API, and
    /// `traits` and `ports`. Existing machines are not changed; those that an interrupted run created
    /// without their traits or ports are completed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "driver"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(
    context: &CliContext,
    arguments: &NodeCreateArguments,
) -> Result<(), CliError> {
    let format = arguments.output.output;
    if let Some(path) = &arguments.file {
        let text = std::fs::read_to_string(path)
            .map_err(|source| CliError::Unreadable { path: path.clone(), source })?;
        let file = parse_json_or_yaml(&text, &path.display().to_string())?;
        return create_all(context, &file, format, &mut Interrupts::listen()?).await;
    }
    let mut body = to_object(&arguments.fields)?;
    let fields = [
        ("name", &arguments.name),
        ("driver", &arguments.driver),
        ("resource_class", &arguments.resource_class),
    ];
    for (field, value) in fields {
        if let Some(value) = value {
            body.insert(field.to_owned(), json!(value));
        }
    }
    for (field, assignments) in
        [("driver_info", &arguments.driver_info), ("properties", &arguments.properties)]
    {
        if !assignments.is_empty() {
            // Dots in these keys do not separate nested objects.
            let mut members = Map::new();
            for assignment in assignments {
                members.insert(assignment.key.clone(), assignment.value()?);
            }
            body.insert(field.to_owned(), Value::Object(members));
        }
    }
    let ports = arguments.ports.iter().map(|mac| json!({ "address": mac })).collect::<Vec<_>>();
    let creating = create(&context.api, body, &arguments.traits, &ports);
    let node = match Interrupts::listen()?
        .run_to_completion(creating)
        .await
        .unwrap_or_else(interrupted)?
    {
        CreateOutcome::Created(node) | CreateOutcome::Completed(node) => node,
        CreateOutcome::Exists(failure) => return Err(failure),
    };
    let text = if format.is_machine_readable() {
        format.format_single(&node, context.screen)
    } else {
        format!("{}\n", display_name(&node))
    };
    context.screen.print(&text);
    Ok(())
}

/// Creates every node of a list that does not exist. After Ctrl-C the current node is completed and no
/// other is started.
async fn create_all(
    context: &CliContext,
    file: &Value,
    format: OutputFormat,
    interrupts: &mut Interrupts,
) -> Result<(), CliError> {
    let nodes = file.as_array().or_else(|| file["nodes"].as_array()).ok_or_else(|| {
        CliError::Usage("the file contains neither a list nor a member `nodes`".to_owned())
    })?;
    let entries: Vec<Result<NodeFromFile, String>> =
        nodes.iter().zip(1..).map(|(node, number)| NodeFromFile::parse(node, number)).collect();
    let problems: Vec<&str> =
        entries.iter().filter_map(|it| it.as_ref().err()).map(String::as_str).collect();
    if !problems.is_empty() {
        return Err(CliError::Usage(format!("nothing was created\n{}", problems.join("\n"))));
    }
    let (mut failed, mut rows, all) = (0, Vec::new(), nodes.len());
    for NodeFromFile { label, body, traits, ports } in entries.into_iter().flatten() {
        if interrupts.is_interrupted() {
            break;
        }
        let creating = create(&context.api, body, &traits, &ports);
        let outcome = interrupts.run_to_completion(creating).await.unwrap_or_else(interrupted);
        let mut row = json!({ "node": label, "ok": outcome.is_ok() });
        match outcome {
            Ok(created) => {
                let text = created.description();
                row["result"] = json!(text);
                match format {
                    OutputFormat::Table | OutputFormat::Wide => {
                        context.screen.print(&format!("{label}: {text}"))
                    }
                    OutputFormat::Name => context.screen.print(&label),
                    OutputFormat::Json | OutputFormat::Yaml => {}
                }
                if let CreateOutcome::Created(node) | CreateOutcome::Completed(node) = created {
                    row["uuid"] = node["uuid"].clone();
                }
            }
            Err(failure) => {
                row["error"] = json!(failure.message());
                context.screen.note(&format!("{label}: {}", failure.message()));
                failed += 1;
            }
        }
        rows.push(row);
    }
    if format.is_machine_readable() {
        context.screen.print(&format.format_list(&rows, &[], context.screen));
    }
    if interrupts.is_interrupted() {
        let succeeded = rows.len() - failed;
        return Err(CliError::Interrupted(format!(
            "stopped; {succeeded} of {all} machines succeeded"
        )));
    }
    if failed > 0 { Err(CliError::SomeFailed { failed, total: all }) } else { Ok(()) }
}

/// The error after a second Ctrl-C.
fn interrupted() -> Result<CreateOutcome, CliError> {
    let message = "interrupted; run the same command again to complete the machine";
    Err(CliError::Interrupted(message.to_owned()))
}

/// A node of a file.
struct NodeFromFile {
    label: String,
    body: Map<String, Value>,
    traits: Vec<String>,
    ports: Vec<Value>,
}

impl NodeFromFile {
    fn parse(node: &Value, number: usize) -> Result<Self, String> {
        let label = match display_name(node) {
            "" => format!("machine {number} of the file"),
            name => name.to_owned(),
        };
        let Value::Object(body) = node else { return Err(format!("{label}: not an object")) };
        let mut body = body.clone();
        let mut list = |field: &str| match body.remove(field) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(format!("{label}: {field} is not a list")),
        };
        let traits = list("traits")?.into_iter().map(|name| {
            let text = name.as_str().map(str::to_owned);
            text.ok_or_else(|| format!("{label}: the trait {name} is not a string"))
        });
        let traits = traits.collect::<Result<_, _>>()?;
        let ports = list("ports")?.into_iter().map(|port| match () {
            () if port.is_string() => Ok(json!({ "address": port })),
            () if port.is_object() => Ok(port),
            () => Err(format!("{label}: the port {port} is neither a MAC nor an object")),
        });
        let ports = ports.collect::<Result<_, _>>()?;
        Ok(Self { label, body, traits, ports })
    }
}

/// How a node was created.
enum CreateOutcome {
    Created(Value),
    /// It existed without all of its traits and ports.
    Completed(Value),
    /// A node of this name or UUID exists; this is the server's error.
    Exists(CliError),
}

impl CreateOutcome {
    fn description(&self) -> &'static str {
        match self {
            Self::Created(_) => "created",
            Self::Completed(_) => "completed",
            Self::Exists(_) => "already exists",
        }
    }
}

/// Creates a node with traits and ports. If these are rejected, the node is deleted again, so that the
/// command can be repeated.
async fn create(
    api: &Api,
    body: Map<String, Value>,
    traits: &[String],
    ports: &[Value],
) -> Result<CreateOutcome, CliError> {
    let body = Value::Object(body);
    let node = match api.send(Method::POST, "/v1/nodes", Some(&body)).await {
        Ok(node) => node,
        Err(error) if error.status() == Some(409) => {
            let completed = complete_partial_node(api, &body, traits, ports).await?;
            return Ok(completed
                .map_or_else(|| CreateOutcome::Exists(error.into()), CreateOutcome::Completed));
        }
        Err(error) => return Err(driver_hint(api, &body, error).await),
    };
    let uuid = node["uuid"].as_str().unwrap_or_default();
    if let Err(failure) = add_traits_and_ports(api, uuid, traits, ports).await {
        // If this fails as well, the node remains visible in the list.
        let _ =
            api.send(Method::DELETE, &format!("/v1/nodes/{}", percent_encode(uuid)), None).await;
        return Err(failure);
    }
    Ok(CreateOutcome::Created(node))
}

/// Adds the available drivers to an error that is caused by an unknown driver.
async fn driver_hint(api: &Api, body: &Value, error: IronicClientError) -> CliError {
    let (Some(400), Some(driver)) = (error.status(), body["driver"].as_str()) else {
        return error.into();
    };
    let response = api.get("/v1/drivers").await.unwrap_or_default();
    let available: Vec<&str> = response["drivers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["name"].as_str())
        .collect();
    if available.is_empty() || available.contains(&driver) {
        return error.into();
    }
    let available = available.join(", ");
    CliError::Rejected(format!(
        "unknown driver {driver:?}; available: {available} (`ferrite driver list` shows details)"
    ))
}

/// Adds the traits and ports that an interrupted command did not create. Returns `None` unless the node is
/// still in `enroll` and has no other ports than the given ones.
async fn complete_partial_node(
    api: &Api,
    body: &Value,
    traits: &[String],
    ports: &[Value],
) -> Result<Option<Value>, CliError> {
    let name = body["uuid"].as_str().or(body["name"].as_str()).unwrap_or_default();
    let Some(node) = api.find(&format!("/v1/nodes/{}", percent_encode(name))).await? else {
        return Ok(None);
    };
    let uuid = node["uuid"].as_str().unwrap_or_default();
    let query = QueryString::new().with("node", uuid).with("fields", "address");
    let known = api.list("/v1/ports", "ports", &query).await?;
    let address = |port: &Value| port["address"].as_str().unwrap_or_default().to_lowercase();
    let is_in = |port: &Value, ports: &[Value]| ports.iter().any(|it| address(it) == address(port));
    let is_partial =
        node["provision_state"] == "enroll" && known.iter().all(|port| is_in(port, ports));
    let has_traits = node["traits"].as_array().is_some_and(|traits| !traits.is_empty());
    let traits = if has_traits { &[] } else { traits };
    let ports: Vec<Value> = ports.iter().filter(|port| !is_in(port, &known)).cloned().collect();
    if !is_partial || traits.is_empty() && ports.is_empty() {
        return Ok(None);
    }
    add_traits_and_ports(api, uuid, traits, &ports).await?;
    Ok(Some(node))
}

async fn add_traits_and_ports(
    api: &Api,
    uuid: &str,
    traits: &[String],
    ports: &[Value],
) -> Result<(), CliError> {
    if !traits.is_empty() {
        let path = format!("/v1/nodes/{}/traits", percent_encode(uuid));
        api.send(Method::PUT, &path, Some(&json!({ "traits": traits }))).await?;
    }
    for port in ports {
        let mut port = port.clone();
        port["node_uuid"] = json!(uuid);
        api.send(Method::POST, "/v1/ports", Some(&port)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::test_server::{RequestLog, TestResponse, start_server};

    fn rack() -> Value {
        json!([{"name": "a", "traits": ["T"], "ports": ["0A", "0b"]}, {"name": "b"}])
    }

    /// The requests that changed something.
    fn changes(log: &RequestLog) -> Vec<String> {
        log.lock().unwrap().iter().filter(|line| !line.starts_with("GET")).cloned().collect()
    }

    fn no_interrupts() -> Interrupts {
        Interrupts::from_channel(tokio::sync::mpsc::unbounded_channel().1)
    }

    /// Creates the nodes of `rack` while `a` exists as this node with these ports. Returns the changes.
    async fn create_with_existing(node: Value, ports: Value) -> Vec<String> {
        let (context, log) = start_server(move |request| match &*request.line {
            "POST /v1/nodes" if request.body["name"] == "a" => {
                TestResponse::Json(409, json!({"error_message": "it exists"}))
            }
            "GET /v1/nodes/a" => TestResponse::Json(200, node.clone()),
            line if line.starts_with("GET /v1/ports?node=u&") => {
                TestResponse::Json(200, json!({ "ports": ports }))
            }
            _ => TestResponse::Json(201, json!({"uuid": "v"})),
        });
        create_all(&context, &rack(), OutputFormat::Name, &mut no_interrupts()).await.unwrap();
        changes(&log)
    }

    #[tokio::test]
    async fn completes_partially_created_nodes() {
        let fresh = json!({"uuid": "u", "provision_state": "enroll", "traits": []});
        let (post, traits) = ("POST /v1/nodes", "PUT /v1/nodes/u/traits");
        let requests = create_with_existing(fresh.clone(), json!([])).await;
        assert_eq!(requests, [post, traits, "POST /v1/ports", "POST /v1/ports", post]);
        let mut with_traits = fresh.clone();
        with_traits["traits"] = json!(["T"]);
        let requests = create_with_existing(with_traits.clone(), json!([{"address": "0a"}])).await;
        assert_eq!(requests, [post, "POST /v1/ports", post]);
        // Complete, in use, or with other ports.
        let both = json!([{"address": "0b"}, {"address": "0a"}]);
        assert_eq!(create_with_existing(with_traits, both).await, [post, post]);
        let mut used = fresh.clone();
        used["provision_state"] = json!("active");
        assert_eq!(create_with_existing(used, json!([])).await, [post, post]);
        let other_port = json!([{"address": "ff"}]);
        assert_eq!(create_with_existing(fresh, other_port).await, [post, post]);
    }

    #[tokio::test]
    async fn unknown_driver_lists_available_drivers() {
        for (driver, expected) in [
            (
                "nope",
                "unknown driver \"nope\"; available: ipmi, redfish (`ferrite driver list` shows \
                 details)",
            ),
            ("redfish", "no"),
        ] {
            let (context, _) = start_server(|request| match &*request.line {
                "GET /v1/drivers" => TestResponse::Json(
                    200,
                    json!({"drivers": [{"name": "ipmi"}, {"name": "redfish"}]}),
                ),
                _ => TestResponse::Json(400, json!({"error_message": "no"})),
            });
            let body = json!({"name": "a", "driver": driver}).as_object().cloned().unwrap();
            let failure = create(&context.api, body, &[], &[]).await.err().unwrap();
            assert_eq!(
                (failure.to_string().as_str(), failure.exit_code()),
                (expected, CliExitCode::Rejected)
            );
        }
    }

    #[tokio::test]
    async fn ctrl_c_completes_the_current_node() {
        let (press, presses) = tokio::sync::mpsc::unbounded_channel();
        let (context, log) = start_server(move |request| {
            if request.line == "POST /v1/nodes" {
                press.send(()).unwrap();
            }
            TestResponse::Json(201, json!({"uuid": "u"}))
        });
        let mut interrupts = Interrupts::from_channel(presses);
        let ended = create_all(&context, &rack(), OutputFormat::Name, &mut interrupts).await;
        assert_eq!(ended.unwrap_err().exit_code(), CliExitCode::Interrupted);
        let expected =
            ["POST /v1/nodes", "PUT /v1/nodes/u/traits", "POST /v1/ports", "POST /v1/ports"];
        assert_eq!(changes(&log), expected);
    }

    #[test]
    fn rejects_invalid_entries() {
        for (node, problem) in [
            (json!("a"), "machine 7 of the file: not an object"),
            (json!({"name": "a", "traits": "CUSTOM_A"}), "a: traits is not a list"),
            (json!({"name": "a", "traits": [1]}), "a: the trait 1 is not a string"),
            (
                json!({"ports": [1]}),
                "machine 7 of the file: the port 1 is neither a MAC nor an object",
            ),
        ] {
            assert_eq!(NodeFromFile::parse(&node, 7).err().as_deref(), Some(problem));
        }
        let node = json!({"name": "a", "traits": ["T"], "ports": ["m", {"address": "n"}]});
        let parsed = NodeFromFile::parse(&node, 1).unwrap();
        assert_eq!((parsed.label.as_str(), parsed.traits), ("a", vec!["T".to_owned()]));
        assert_eq!(parsed.ports, [json!({"address": "m"}), json!({"address": "n"})]);
    }
}
