// SPDX-License-Identifier: Apache-2.0
//! The commands that all kinds of things have: list, show, create, set, unset, delete.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use ironic_client::{ApiError, Method, Query, segment};
use serde_json::{Map, Value, json};

use crate::assignments::{Assignment, is_deep, object, patch, pointer};
use crate::desk::Desk;
use crate::failure::Failure;
use crate::kinds::{Change, Kind, MATCHES};
use crate::order;
use crate::output::{Format, OutputArguments, name_of, parsed};
use crate::runbook_traits;
use crate::selection::{self, alike};
use crate::watch::{self, WatchArguments};

/// Options of `list`.
#[derive(Args, Debug)]
pub struct ListArguments {
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(flatten)]
    pub(crate) watch: WatchArguments,
}

/// Options of `show`.
#[derive(Args, Debug)]
pub struct ShowArguments {
    /// Which: names or UUIDs.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `create`.
#[derive(Args, Debug)]
pub struct CreateArguments {
    /// A JSON or YAML file with its fields, or with a list of such.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A field and its value: KEY=TEXT, KEY:=JSON or KEY=@FILE. Those of a file are overruled.
    #[arg(short, long = "field", value_name = "FIELD=VALUE")]
    fields: Vec<Assignment>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `set`.
#[derive(Args, Debug)]
pub struct SetArguments {
    /// Which: a name or a UUID.
    name: String,
    /// A field and its value: KEY=TEXT, KEY:=JSON or KEY=@FILE.
    #[arg(short, long = "field", value_name = "FIELD=VALUE", required = true)]
    fields: Vec<Assignment>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `unset`.
#[derive(Args, Debug)]
pub struct UnsetArguments {
    /// Which: a name or a UUID.
    name: String,
    /// A field to empty.
    #[arg(short, long = "field", value_name = "FIELD", required = true)]
    fields: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `delete`.
#[derive(Args, Debug)]
pub struct DeleteArguments {
    /// Which: names or UUIDs.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

impl Kind {
    fn path_of(&self, name: &str) -> String {
        format!("{}/{}", self.path, segment(name))
    }

    pub(crate) async fn list(
        &self,
        desk: &Desk,
        query: Query,
        arguments: &ListArguments,
    ) -> Result<(), Failure> {
        let query = if self.has_detail { query.with("detail", "true") } else { query };
        let format = arguments.output.output;
        let rows = async || {
            let mut rows = self.rows(desk, &query).await?;
            if matches!(format, Format::Table | Format::Wide) {
                selection::name_nodes(&desk.api, &mut rows).await;
            }
            Ok(rows)
        };
        watch::list(desk, &arguments.watch, format, self.columns, rows).await
    }

    async fn rows(&self, desk: &Desk, query: &Query) -> Result<Vec<Value>, Failure> {
        if !self.is_ours {
            let mut rows = desk.api.list(self.path, self.list, query).await?;
            order::by_name(&mut rows);
            return Ok(rows);
        }
        // Ours have no pages.
        let mut found = desk.api.get(self.path).await.map_err(|error| self.not_there(error))?;
        let Value::Array(rows) = found[self.list].take() else { return Ok(Vec::new()) };
        Ok(rows)
    }

    pub(crate) async fn show(&self, desk: &Desk, arguments: &ShowArguments) -> Result<(), Failure> {
        let format = arguments.output.output;
        for name in &arguments.names {
            let thing = self.one(desk, name).await?;
            desk.screen.print(&format.single(&thing, desk.screen));
        }
        Ok(())
    }

    pub(crate) async fn one(&self, desk: &Desk, name: &str) -> Result<Value, Failure> {
        match desk.api.find(&self.path_of(name)).await? {
            Some(thing) => Ok(thing),
            None => Err(self.unknown(desk, name).await),
        }
    }

    pub(crate) async fn create(
        &self,
        desk: &Desk,
        more: Map<String, Value>,
        arguments: &CreateArguments,
    ) -> Result<(), Failure> {
        let written = match &arguments.file {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| Failure::Unreadable { path: path.clone(), source })?;
                parsed(&text, &path.display().to_string())?
            }
            None => json!({}),
        };
        let format = arguments.output.output;
        let fields = object(&arguments.fields)?;
        let Value::Array(several) = written else {
            let body = self.bodies(vec![written], &more, &fields)?.remove(0);
            let made = self.make(desk, body).await?;
            let text = if format.is_for_programs() {
                format.single(&made, desk.screen)
            } else {
                format!("{}\n", name_of(&made))
            };
            desk.screen.print(&text);
            return Ok(());
        };
        let bodies = self.bodies(several, &more, &fields)?;
        let (all, mut made) = (bodies.len(), Vec::new());
        for (body, number) in bodies.into_iter().zip(1..) {
            let name = name_of(&Value::Object(body.clone())).to_owned();
            match self.make(desk, body).await {
                Ok(thing) if format.is_for_programs() => made.push(thing),
                Ok(thing) => {
                    desk.screen.print(name_of(&thing));
                    made.push(thing);
                }
                Err(failure) => {
                    let entry = entry(number, &name);
                    desk.screen.note(&format!("{entry}: {}", failure.told()));
                }
            }
        }
        if format.is_for_programs() {
            desk.screen.print(&format.list(&made, &[], desk.screen));
        }
        match all - made.len() {
            0 => Ok(()),
            failed => Err(Failure::Failed(format!("{failed} of {all} {}s failed", self.one))),
        }
    }

    /// What the API is to be told of each. All are looked at before the first is made.
    fn bodies(
        &self,
        written: Vec<Value>,
        more: &Map<String, Value>,
        fields: &Map<String, Value>,
    ) -> Result<Vec<Map<String, Value>>, Failure> {
        let (mut bodies, mut wrong) = (Vec::new(), Vec::new());
        let mut names = HashSet::new();
        for (thing, number) in written.into_iter().zip(1..) {
            let Value::Object(mut body) = thing else {
                wrong.push(format!("{}: it is no object of fields", entry(number, "")));
                continue;
            };
            body.extend(more.clone());
            body.extend(fields.clone());
            let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
            let entry = entry(number, name);
            for field in self.needs.iter().filter(|field| !body.contains_key(**field)) {
                wrong.push(format!("{entry}: a {} needs {field}", self.one));
            }
            if let Some(problem) = runbook_traits::problem_in(&body).filter(|_| self.has_traits) {
                wrong.push(format!("{entry}: {problem}"));
            }
            if !name.is_empty() && !names.insert(name.to_owned()) {
                wrong.push(format!("{entry}: there is another of this name before it"));
            }
            bodies.push(body);
        }
        match wrong.is_empty() {
            true => Ok(bodies),
            false => Err(Failure::Usage(format!("nothing was made\n{}", wrong.join("\n")))),
        }
    }

    /// The machines that one of them fits.
    pub(crate) async fn matches(
        &self,
        desk: &Desk,
        arguments: &ShowArguments,
    ) -> Result<(), Failure> {
        let format = arguments.output.output;
        for name in &arguments.names {
            let Some(found) = desk.api.find(&format!("{}/matches", self.path_of(name))).await?
            else {
                return Err(self.unknown(desk, name).await);
            };
            let rows = found["matches"].as_array().map(Vec::as_slice).unwrap_or_default();
            desk.screen.print(&format.list(rows, MATCHES, desk.screen));
        }
        Ok(())
    }

    async fn make(&self, desk: &Desk, mut body: Map<String, Value>) -> Result<Value, Failure> {
        match self.change {
            Change::Patch if self.has_traits => {
                runbook_traits::create(&desk.api, self.path, body).await
            }
            Change::Patch => {
                Ok(desk.api.send(Method::POST, self.path, Some(&Value::Object(body))).await?)
            }
            Change::Replace => {
                let Some(Value::String(name)) = body.remove("name") else {
                    return Err(Failure::Usage(format!("a {} needs a name", self.one)));
                };
                let body = Value::Object(body);
                let sent = desk.api.send(Method::PUT, &self.path_of(&name), Some(&body)).await;
                let made = sent.map_err(|error| self.not_there(error))?;
                Ok(if made.is_object() { made } else { json!({ "name": name }) })
            }
        }
    }

    pub(crate) async fn set(&self, desk: &Desk, arguments: &SetArguments) -> Result<(), Failure> {
        let mut fields = Vec::new();
        let mut traits = None;
        for field in &arguments.fields {
            if self.has_traits && field.key == runbook_traits::FIELD {
                traits = Some(field.value()?);
            } else {
                fields.push((field.key.clone(), field.value()?));
            }
        }
        let thing = match fields.iter().any(|(key, _)| is_deep(key)) {
            true => self.one(desk, &arguments.name).await?,
            false => Value::Null,
        };
        let operations = patch(&thing, &fields);
        self.patch(desk, &arguments.name, &operations, traits, &arguments.output).await
    }

    pub(crate) async fn unset(
        &self,
        desk: &Desk,
        arguments: &UnsetArguments,
    ) -> Result<(), Failure> {
        let is_apart = |field: &&String| self.has_traits && *field == runbook_traits::FIELD;
        let traits = arguments.fields.iter().any(|field| is_apart(&field)).then(|| json!([]));
        let fields = arguments.fields.iter().filter(|field| !is_apart(field));
        let operations: Vec<Value> =
            fields.map(|field| json!({ "op": "remove", "path": pointer(field) })).collect();
        self.patch(desk, &arguments.name, &operations, traits, &arguments.output).await
    }

    async fn patch(
        &self,
        desk: &Desk,
        name: &str,
        operations: &[Value],
        traits: Option<Value>,
        output: &OutputArguments,
    ) -> Result<(), Failure> {
        let path = self.path_of(name);
        let changed = match traits {
            Some(traits) => runbook_traits::change(&desk.api, &path, &traits, operations).await,
            None => desk.api.patch(&path, operations).await.map_err(Failure::from),
        };
        let changed = match changed {
            Ok(changed) => changed,
            Err(Failure::Api(error)) if error.status() == Some(404) => {
                return Err(self.unknown(desk, name).await);
            }
            Err(failure) => return Err(failure),
        };
        if output.output.is_for_programs() {
            desk.screen.print(&output.output.single(&changed, desk.screen));
        } else {
            desk.screen.print(&format!("{name}: changed"));
        }
        Ok(())
    }

    pub(crate) async fn delete(
        &self,
        desk: &Desk,
        arguments: &DeleteArguments,
    ) -> Result<(), Failure> {
        for name in &arguments.names {
            match desk.api.send(Method::DELETE, &self.path_of(name), None).await {
                Ok(_) => desk.screen.print(&format!("{name}: deleted")),
                Err(error) if error.status() == Some(404) => {
                    return Err(self.unknown(desk, name).await);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// That there is none of this name, and which may be meant.
    async fn unknown(&self, desk: &Desk, name: &str) -> Failure {
        let rows = match self.rows(desk, &Query::new()).await {
            Ok(rows) => rows,
            Err(failure @ Failure::Refused(_)) => return failure,
            Err(_) => Vec::new(),
        };
        let hint = alike(name, rows.iter().map(name_of))
            .map(|meant| format!("; did you mean {meant:?}?"))
            .unwrap_or_default();
        Failure::NotFound(format!("there is no {} {name:?}{hint}", self.one))
    }

    fn not_there(&self, error: ApiError) -> Failure {
        if self.is_ours && error.status() == Some(404) {
            let told = format!("this server has no {}s: it is an Ironic and no Ferrite", self.one);
            return Failure::Refused(told);
        }
        error.into()
    }
}

/// What an entry of a file is called.
fn entry(number: usize, name: &str) -> String {
    if name.is_empty() { format!("entry {number}") } else { format!("entry {number} ({name})") }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::kinds::{PORTS, TEMPLATES};

    #[test]
    fn all_of_a_file_is_looked_at_before_anything_is_made() {
        let steps = json!([]);
        let written = vec![
            json!({"name": "CUSTOM_A", "steps": steps}),
            json!("CUSTOM_B"),
            json!({"name": "CUSTOM_C"}),
            json!({"name": "CUSTOM_A", "steps": steps}),
            json!({}),
        ];
        let failure = TEMPLATES.bodies(written, &Map::new(), &Map::new()).unwrap_err();
        expect![[r#"
            nothing was made
            entry 2: it is no object of fields
            entry 3 (CUSTOM_C): a deploy template needs steps
            entry 4 (CUSTOM_A): there is another of this name before it
            entry 5: a deploy template needs name
            entry 5: a deploy template needs steps"#]]
        .assert_eq(&failure.to_string());
        let more = json!({"node_uuid": "u", "address": "a"});
        let more = more.as_object().unwrap();
        assert_eq!(
            PORTS.bodies(vec![json!({})], more, &Map::new()).unwrap(),
            std::slice::from_ref(more)
        );
    }
}
