// SPDX-License-Identifier: Apache-2.0
//! `ferrite node create`: one machine from options, or many from a file.

use std::path::PathBuf;

use clap::Args;
use ironic_client::{Api, ApiError, Method, Query, segment};
use serde_json::{Map, Value, json};

use crate::assignments::{Assignment, object};
use crate::desk::Desk;
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::output::{Format, OutputArguments, name_of, parsed};

/// Options of `ferrite node create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArguments {
    /// The machine's name.
    #[arg(required_unless_present = "file")]
    name: Option<String>,
    /// What drives it: redfish, ipmi, fake-hardware.
    #[arg(long, value_name = "DRIVER", required_unless_present = "file")]
    driver: Option<String>,
    /// How its BMC is reached: redfish_address=https://bmc. `KEY=@FILE` keeps a password off the
    /// command line.
    #[arg(long, value_name = "KEY=VALUE")]
    driver_info: Vec<Assignment>,
    /// What is known of it: cpu_arch=x86_64.
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
    /// MAC addresses of cards it boots from.
    #[arg(long = "port", value_name = "MAC", value_delimiter = ',')]
    ports: Vec<String>,
    /// A JSON or YAML file with a list of machines, or with a list `nodes`: fields as in the API, besides
    /// them `traits` and `ports`. Machines that are there already are left as they are; those of which a
    /// run that broke off made only a part are completed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "driver"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(desk: &Desk, arguments: &CreateArguments) -> Result<(), Failure> {
    let format = arguments.output.output;
    if let Some(path) = &arguments.file {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Failure::Unreadable { path: path.clone(), source })?;
        let file = parsed(&text, &path.display().to_string())?;
        return create_all(desk, &file, format, &mut Interrupts::listen()?).await;
    }
    let mut body = object(&arguments.fields)?;
    let plain = [
        ("name", &arguments.name),
        ("driver", &arguments.driver),
        ("resource_class", &arguments.resource_class),
    ];
    for (field, value) in plain {
        if let Some(value) = value {
            body.insert(field.to_owned(), json!(value));
        }
    }
    for (field, assignments) in
        [("driver_info", &arguments.driver_info), ("properties", &arguments.properties)]
    {
        if !assignments.is_empty() {
            // Keys of these may have dots: they are not taken apart.
            let mut members = Map::new();
            for assignment in assignments {
                members.insert(assignment.key.clone(), assignment.value()?);
            }
            body.insert(field.to_owned(), Value::Object(members));
        }
    }
    let ports = arguments.ports.iter().map(|mac| json!({ "address": mac })).collect::<Vec<_>>();
    let creating = create(&desk.api, body, &arguments.traits, &ports);
    let node = match Interrupts::listen()?.finished(creating).await.unwrap_or_else(unfinished)? {
        Created::Now(node) | Created::Completed(node) => node,
        Created::Before(failure) => return Err(failure),
    };
    let text = if format.is_for_programs() {
        format.single(&node, desk.screen)
    } else {
        format!("{}\n", name_of(&node))
    };
    desk.screen.print(&text);
    Ok(())
}

/// Creates every machine of a list that is not there. After Ctrl-C the machine at hand is done with, and no
/// other begun.
async fn create_all(
    desk: &Desk,
    file: &Value,
    format: Format,
    interrupts: &mut Interrupts,
) -> Result<(), Failure> {
    let nodes = file.as_array().or_else(|| file["nodes"].as_array()).ok_or_else(|| {
        Failure::Usage("the file has neither a list of machines nor a list `nodes`".to_owned())
    })?;
    let written: Vec<Result<Written, String>> =
        nodes.iter().zip(1..).map(|(node, number)| Written::read(node, number)).collect();
    let wrong: Vec<&str> =
        written.iter().filter_map(|it| it.as_ref().err()).map(String::as_str).collect();
    if !wrong.is_empty() {
        return Err(Failure::Usage(format!("nothing was made\n{}", wrong.join("\n"))));
    }
    let (mut failed, mut rows, all) = (0, Vec::new(), nodes.len());
    for Written { label, body, traits, ports } in written.into_iter().flatten() {
        if interrupts.is_pressed() {
            break;
        }
        let creating = create(&desk.api, body, &traits, &ports);
        let outcome = interrupts.finished(creating).await.unwrap_or_else(unfinished);
        let mut row = json!({ "node": label, "ok": outcome.is_ok() });
        match outcome {
            Ok(created) => {
                let text = created.words();
                row["result"] = json!(text);
                match format {
                    Format::Table | Format::Wide => desk.screen.print(&format!("{label}: {text}")),
                    Format::Name => desk.screen.print(&label),
                    Format::Json | Format::Yaml => {}
                }
                if let Created::Now(node) | Created::Completed(node) = created {
                    row["uuid"] = node["uuid"].clone();
                }
            }
            Err(failure) => {
                row["error"] = json!(failure.told());
                desk.screen.note(&format!("{label}: {}", failure.told()));
                failed += 1;
            }
        }
        rows.push(row);
    }
    if format.is_for_programs() {
        desk.screen.print(&format.list(&rows, &[], desk.screen));
    }
    if interrupts.is_pressed() {
        let well = rows.len() - failed;
        return Err(Failure::Interrupted(format!("stopped; {well} of {all} machines went well")));
    }
    if failed > 0 { Err(Failure::Some { failed, all }) } else { Ok(()) }
}

/// What is said of a machine that somebody did not wait for.
fn unfinished() -> Result<Created, Failure> {
    let told = "stopped in the middle of it; giving the same once more completes it";
    Err(Failure::Interrupted(told.to_owned()))
}

/// A machine as a file has it.
struct Written {
    label: String,
    body: Map<String, Value>,
    traits: Vec<String>,
    ports: Vec<Value>,
}

impl Written {
    fn read(node: &Value, number: usize) -> Result<Self, String> {
        let label = match name_of(node) {
            "" => format!("machine {number} of the file"),
            name => name.to_owned(),
        };
        let Value::Object(body) = node else { return Err(format!("{label} is no object")) };
        let mut body = body.clone();
        let mut list = |field: &str| match body.remove(field) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(format!("{label}: {field} is no list")),
        };
        let traits = list("traits")?.into_iter().map(|name| {
            let text = name.as_str().map(str::to_owned);
            text.ok_or_else(|| format!("{label}: the trait {name} is no text"))
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

/// A machine, and whether it was there.
enum Created {
    Now(Value),
    /// It was there without all that belongs to it.
    Completed(Value),
    /// It, or another of its name, is there; these are the server's words.
    Before(Failure),
}

impl Created {
    fn words(&self) -> &'static str {
        match self {
            Self::Now(_) => "created",
            Self::Completed(_) => "was there in part, and is complete now",
            Self::Before(_) => "is there already",
        }
    }
}

/// Creates a machine with what belongs to it. If that does not work out, the machine is taken away
/// again, so that the same command can be given once more.
async fn create(
    api: &Api,
    body: Map<String, Value>,
    traits: &[String],
    ports: &[Value],
) -> Result<Created, Failure> {
    let body = Value::Object(body);
    let node = match api.send(Method::POST, "/v1/nodes", Some(&body)).await {
        Ok(node) => node,
        Err(error) if error.status() == Some(409) => {
            let completed = complete(api, &body, traits, ports).await?;
            return Ok(completed.map_or_else(|| Created::Before(error.into()), Created::Completed));
        }
        Err(error) => return Err(without_driver(api, &body, error).await),
    };
    let uuid = node["uuid"].as_str().unwrap_or_default();
    if let Err(failure) = furnish(api, uuid, traits, ports).await {
        // What cannot be taken away either is seen in the list.
        let _ = api.send(Method::DELETE, &format!("/v1/nodes/{}", segment(uuid)), None).await;
        return Err(failure);
    }
    Ok(Created::Now(node))
}

/// Why a machine was refused: often its driver is none.
async fn without_driver(api: &Api, body: &Value, error: ApiError) -> Failure {
    let (Some(400), Some(driver)) = (error.status(), body["driver"].as_str()) else {
        return error.into();
    };
    let known = api.get("/v1/drivers").await.unwrap_or_default();
    let known: Vec<&str> = known["drivers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["name"].as_str())
        .collect();
    if known.is_empty() || known.contains(&driver) {
        return error.into();
    }
    let known = known.join(", ");
    Failure::Refused(format!(
        "there is no driver {driver:?}; there are {known}: `ferrite driver list` shows more of them"
    ))
}

/// Gives a machine what it lacks because the command that made it broke off; none if there is no such
/// machine. It is known by being as fresh as it was made, and by having nothing but what is wanted.
async fn complete(
    api: &Api,
    body: &Value,
    traits: &[String],
    ports: &[Value],
) -> Result<Option<Value>, Failure> {
    let name = body["uuid"].as_str().or(body["name"].as_str()).unwrap_or_default();
    let Some(node) = api.find(&format!("/v1/nodes/{}", segment(name))).await? else {
        return Ok(None);
    };
    let uuid = node["uuid"].as_str().unwrap_or_default();
    let query = Query::new().with("node", uuid).with("fields", "address");
    let known = api.list("/v1/ports", "ports", &query).await?;
    let address = |port: &Value| port["address"].as_str().unwrap_or_default().to_lowercase();
    let is_in = |port: &Value, ports: &[Value]| ports.iter().any(|it| address(it) == address(port));
    let is_half_made =
        node["provision_state"] == "enroll" && known.iter().all(|port| is_in(port, ports));
    let has_traits = node["traits"].as_array().is_some_and(|traits| !traits.is_empty());
    let traits = if has_traits { &[] } else { traits };
    let ports: Vec<Value> = ports.iter().filter(|port| !is_in(port, &known)).cloned().collect();
    if !is_half_made || traits.is_empty() && ports.is_empty() {
        return Ok(None);
    }
    furnish(api, uuid, traits, &ports).await?;
    Ok(Some(node))
}

async fn furnish(api: &Api, uuid: &str, traits: &[String], ports: &[Value]) -> Result<(), Failure> {
    if !traits.is_empty() {
        let path = format!("/v1/nodes/{}/traits", segment(uuid));
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
    use crate::failure::Code;
    use crate::test_server::{Answer, Log, server};

    fn rack() -> Value {
        json!([{"name": "a", "traits": ["T"], "ports": ["0A", "0b"]}, {"name": "b"}])
    }

    /// What was changed at a server.
    fn changes(log: &Log) -> Vec<String> {
        log.lock().unwrap().iter().filter(|line| !line.starts_with("GET")).cloned().collect()
    }

    fn nobody_stops() -> Interrupts {
        Interrupts::told(tokio::sync::mpsc::unbounded_channel().1)
    }

    /// The machine `a` is there, as this node with these ports.
    async fn again(node: Value, ports: Value) -> Vec<String> {
        let (desk, log) = server(move |asked| match &*asked.line {
            "POST /v1/nodes" if asked.body["name"] == "a" => {
                Answer::Json(409, json!({"error_message": "is there"}))
            }
            "GET /v1/nodes/a" => Answer::Json(200, node.clone()),
            line if line.starts_with("GET /v1/ports?node=u&") => {
                Answer::Json(200, json!({ "ports": ports }))
            }
            _ => Answer::Json(201, json!({"uuid": "v"})),
        });
        create_all(&desk, &rack(), Format::Name, &mut nobody_stops()).await.unwrap();
        changes(&log)
    }

    #[tokio::test]
    async fn a_machine_that_was_made_in_part_is_completed() {
        let fresh = json!({"uuid": "u", "provision_state": "enroll", "traits": []});
        let (post, traits) = ("POST /v1/nodes", "PUT /v1/nodes/u/traits");
        let asked = again(fresh.clone(), json!([])).await;
        assert_eq!(asked, [post, traits, "POST /v1/ports", "POST /v1/ports", post]);
        let mut with_traits = fresh.clone();
        with_traits["traits"] = json!(["T"]);
        let asked = again(with_traits.clone(), json!([{"address": "0a"}])).await;
        assert_eq!(asked, [post, "POST /v1/ports", post]);
        // It is complete; it is in use; it is another.
        let both = json!([{"address": "0b"}, {"address": "0a"}]);
        assert_eq!(again(with_traits, both).await, [post, post]);
        let mut used = fresh.clone();
        used["provision_state"] = json!("active");
        assert_eq!(again(used, json!([])).await, [post, post]);
        assert_eq!(again(fresh, json!([{"address": "ff"}])).await, [post, post]);
    }

    #[tokio::test]
    async fn a_driver_that_is_none_is_told_with_those_there_are() {
        for (driver, expected) in [
            (
                "nope",
                "there is no driver \"nope\"; there are ipmi, redfish: `ferrite driver list` shows more of \
                 them",
            ),
            ("redfish", "no"),
        ] {
            let (desk, _) = server(|asked| match &*asked.line {
                "GET /v1/drivers" => {
                    Answer::Json(200, json!({"drivers": [{"name": "ipmi"}, {"name": "redfish"}]}))
                }
                _ => Answer::Json(400, json!({"error_message": "no"})),
            });
            let body = json!({"name": "a", "driver": driver}).as_object().cloned().unwrap();
            let failure = create(&desk.api, body, &[], &[]).await.err().unwrap();
            assert_eq!((failure.to_string().as_str(), failure.code()), (expected, Code::Refused));
        }
    }

    #[tokio::test]
    async fn ctrl_c_finishes_the_machine_at_hand() {
        let (press, presses) = tokio::sync::mpsc::unbounded_channel();
        let (desk, log) = server(move |asked| {
            if asked.line == "POST /v1/nodes" {
                press.send(()).unwrap();
            }
            Answer::Json(201, json!({"uuid": "u"}))
        });
        let mut interrupts = Interrupts::told(presses);
        let ended = create_all(&desk, &rack(), Format::Name, &mut interrupts).await;
        assert_eq!(ended.unwrap_err().code(), Code::Interrupted);
        let expected =
            ["POST /v1/nodes", "PUT /v1/nodes/u/traits", "POST /v1/ports", "POST /v1/ports"];
        assert_eq!(changes(&log), expected);
    }

    #[test]
    fn what_is_no_machine_is_told() {
        for (node, problem) in [
            (json!("a"), "machine 7 of the file is no object"),
            (json!({"name": "a", "traits": "CUSTOM_A"}), "a: traits is no list"),
            (json!({"name": "a", "traits": [1]}), "a: the trait 1 is no text"),
            (
                json!({"ports": [1]}),
                "machine 7 of the file: the port 1 is neither a MAC nor an object",
            ),
        ] {
            assert_eq!(Written::read(&node, 7).err().as_deref(), Some(problem));
        }
        let node = json!({"name": "a", "traits": ["T"], "ports": ["m", {"address": "n"}]});
        let written = Written::read(&node, 1).unwrap();
        assert_eq!((written.label.as_str(), written.traits), ("a", vec!["T".to_owned()]));
        assert_eq!(written.ports, [json!({"address": "m"}), json!({"address": "n"})]);
    }
}
