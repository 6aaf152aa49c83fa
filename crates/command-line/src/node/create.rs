// SPDX-License-Identifier: Apache-2.0
//! `ferrite node create`: one machine from options, or many from a file.

use std::path::PathBuf;

use clap::Args;
use ironic_client::{Api, Method, segment};
use serde_json::{Map, Value, json};

use crate::assignments::{Assignment, object};
use crate::desk::Desk;
use crate::failure::Failure;
use crate::output::{OutputArguments, name_of, parsed};

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
    /// them `traits` and `ports`. Machines that are there already are left as they are.
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
        return create_all(desk, &parsed(&text, &path.display().to_string())?).await;
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
    let node = match create(&desk.api, body, &arguments.traits, &ports).await? {
        Created::Now(node) => node,
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

/// Creates every machine of a list that is not there.
async fn create_all(desk: &Desk, file: &Value) -> Result<(), Failure> {
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
    let (mut failed, all) = (0, nodes.len());
    for Written { label, body, traits, ports } in written.into_iter().flatten() {
        match create(&desk.api, body, &traits, &ports).await {
            Ok(Created::Now(_)) => desk.screen.print(&format!("{label}: created")),
            Ok(Created::Before(_)) => desk.screen.print(&format!("{label}: is there already")),
            Err(failure) => {
                desk.screen.note(&format!("{label}: {}", failure.told()));
                failed += 1;
            }
        }
    }
    if failed > 0 { Err(Failure::Some { failed, all }) } else { Ok(()) }
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
    /// It, or another of its name, is there; these are the server's words.
    Before(Failure),
}

/// Creates a machine with what belongs to it. If that does not work out, the machine is taken away
/// again, so that the same command can be given once more.
async fn create(
    api: &Api,
    body: Map<String, Value>,
    traits: &[String],
    ports: &[Value],
) -> Result<Created, Failure> {
    let node = match api.send(Method::POST, "/v1/nodes", Some(&Value::Object(body))).await {
        Ok(node) => node,
        Err(error) if error.status() == Some(409) => return Ok(Created::Before(error.into())),
        Err(error) => return Err(error.into()),
    };
    let uuid = node["uuid"].as_str().unwrap_or_default();
    if let Err(failure) = furnish(api, uuid, traits, ports).await {
        // What cannot be taken away either is seen in the list.
        let _ = api.send(Method::DELETE, &format!("/v1/nodes/{}", segment(uuid)), None).await;
        return Err(failure);
    }
    Ok(Created::Now(node))
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
