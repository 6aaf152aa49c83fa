// SPDX-License-Identifier: Apache-2.0
//! Commands that all resource types have: list, show, create, set, unset, delete.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use ironic_client::{IronicClientError, Method, QueryString, percent_encode};
use serde_json::{Map, Value, json};

use crate::assignments::{Assignment, is_nested, json_patch, json_pointer, to_object};
use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::natural_order;
use crate::output::{OutputArguments, OutputFormat, display_name, parse_json_or_yaml};
use crate::resource_types::{FLAVOUR_MATCH_COLUMNS, ResourceType, UpdateMethod};
use crate::runbook_traits;
use crate::selection::{self, closest_match};
use crate::watch::{self, WatchArguments};

/// Options of `list`.
#[derive(Args, Debug)]
pub struct ResourceListArguments {
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(flatten)]
    pub(crate) watch: WatchArguments,
}

/// Options of `show`.
#[derive(Args, Debug)]
pub struct ResourceShowArguments {
    /// Names or UUIDs.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `create`.
#[derive(Args, Debug)]
pub struct ResourceCreateArguments {
    /// A JSON or YAML file with the fields of one resource, or with a list of resources.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A field and its value: KEY=TEXT, KEY:=JSON or KEY=@FILE. Overrides the file.
    #[arg(short, long = "field", value_name = "FIELD=VALUE")]
    fields: Vec<Assignment>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `set`.
#[derive(Args, Debug)]
pub struct ResourceSetArguments {
    /// Name or UUID.
    name: String,
    /// A field and its value: KEY=TEXT, KEY:=JSON or KEY=@FILE.
    #[arg(short, long = "field", value_name = "FIELD=VALUE", required = true)]
    fields: Vec<Assignment>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `unset`.
#[derive(Args, Debug)]
pub struct ResourceUnsetArguments {
    /// Name or UUID.
    name: String,
    /// A field to remove.
    #[arg(short, long = "field", value_name = "FIELD", required = true)]
    fields: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `delete`.
#[derive(Args, Debug)]
pub struct ResourceDeleteArguments {
    /// Names or UUIDs.
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

impl ResourceType {
    fn path_of(&self, name: &str) -> String {
        format!("{}/{}", self.path, percent_encode(name))
    }

    pub(crate) async fn list(
        &self,
        context: &CliContext,
        query: QueryString,
        arguments: &ResourceListArguments,
    ) -> Result<(), CliError> {
        let query = if self.needs_detail_query { query.with("detail", "true") } else { query };
        let format = arguments.output.output;
        let rows = async || {
            let mut rows = self.rows(context, &query).await?;
            if matches!(format, OutputFormat::Table | OutputFormat::Wide) {
                selection::add_node_names(&context.api, &mut rows).await;
            }
            Ok(rows)
        };
        watch::show_list(context, &arguments.watch, format, self.columns, rows).await
    }

    async fn rows(
        &self,
        context: &CliContext,
        query: &QueryString,
    ) -> Result<Vec<Value>, CliError> {
        if !self.is_ferrite_only {
            let mut rows = context.api.list(self.path, self.list_key, query).await?;
            natural_order::sort_by_name(&mut rows);
            return Ok(rows);
        }
        // Ferrite's own lists are not paginated.
        let mut found =
            context.api.get(self.path).await.map_err(|error| self.ferrite_only_error(error))?;
        let Value::Array(rows) = found[self.list_key].take() else { return Ok(Vec::new()) };
        Ok(rows)
    }

    pub(crate) async fn show(
        &self,
        context: &CliContext,
        arguments: &ResourceShowArguments,
    ) -> Result<(), CliError> {
        let format = arguments.output.output;
        for name in &arguments.names {
            let resource = self.fetch(context, name).await?;
            context.screen.print(&format.format_single(&resource, context.screen));
        }
        Ok(())
    }

    pub(crate) async fn fetch(&self, context: &CliContext, name: &str) -> Result<Value, CliError> {
        match context.api.find(&self.path_of(name)).await? {
            Some(resource) => Ok(resource),
            None => Err(self.not_found_error(context, name).await),
        }
    }

    pub(crate) async fn create(
        &self,
        context: &CliContext,
        extra_fields: Map<String, Value>,
        arguments: &ResourceCreateArguments,
    ) -> Result<(), CliError> {
        let content = match &arguments.file {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|source| CliError::Unreadable { path: path.clone(), source })?;
                parse_json_or_yaml(&text, &path.display().to_string())?
            }
            None => json!({}),
        };
        let format = arguments.output.output;
        let fields = to_object(&arguments.fields)?;
        let Value::Array(several) = content else {
            let body = self.request_bodies(vec![content], &extra_fields, &fields)?.remove(0);
            let created = self.create_one(context, body).await?;
            let text = if format.is_machine_readable() {
                format.format_single(&created, context.screen)
            } else {
                format!("{}\n", display_name(&created))
            };
            context.screen.print(&text);
            return Ok(());
        };
        let bodies = self.request_bodies(several, &extra_fields, &fields)?;
        let (total, mut created) = (bodies.len(), Vec::new());
        for (body, number) in bodies.into_iter().zip(1..) {
            let name = display_name(&Value::Object(body.clone())).to_owned();
            match self.create_one(context, body).await {
                Ok(resource) if format.is_machine_readable() => created.push(resource),
                Ok(resource) => {
                    context.screen.print(display_name(&resource));
                    created.push(resource);
                }
                Err(failure) => {
                    let entry = entry_label(number, &name);
                    context.screen.note(&format!("{entry}: {}", failure.message()));
                }
            }
        }
        if format.is_machine_readable() {
            context.screen.print(&format.format_list(&created, &[], context.screen));
        }
        match total - created.len() {
            0 => Ok(()),
            failed => {
                Err(CliError::Failed(format!("{failed} of {total} {}s failed", self.singular)))
            }
        }
    }

    /// Builds the request bodies. All entries are checked before the first resource is created.
    fn request_bodies(
        &self,
        entries: Vec<Value>,
        extra_fields: &Map<String, Value>,
        fields: &Map<String, Value>,
    ) -> Result<Vec<Map<String, Value>>, CliError> {
        let (mut bodies, mut problems) = (Vec::new(), Vec::new());
        let mut names = HashSet::new();
        for (entry, number) in entries.into_iter().zip(1..) {
            let Value::Object(mut body) = entry else {
                problems.push(format!("{}: not an object", entry_label(number, "")));
                continue;
            };
            body.extend(extra_fields.clone());
            body.extend(fields.clone());
            let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
            let entry = entry_label(number, name);
            for field in self.required_fields.iter().filter(|field| !body.contains_key(**field)) {
                problems.push(format!("{entry}: {field} is missing"));
            }
            if let Some(problem) = runbook_traits::traits_problem(&body).filter(|_| self.has_traits)
            {
                problems.push(format!("{entry}: {problem}"));
            }
            if !name.is_empty() && !names.insert(name.to_owned()) {
                problems.push(format!("{entry}: an earlier entry has the same name"));
            }
            bodies.push(body);
        }
        match problems.is_empty() {
            true => Ok(bodies),
            false => Err(CliError::Usage(format!("nothing was created\n{}", problems.join("\n")))),
        }
    }

    /// Lists the machines that match a flavour.
    pub(crate) async fn matches(
        &self,
        context: &CliContext,
        arguments: &ResourceShowArguments,
    ) -> Result<(), CliError> {
        let format = arguments.output.output;
        for name in &arguments.names {
            let Some(found) = context.api.find(&format!("{}/matches", self.path_of(name))).await?
            else {
                return Err(self.not_found_error(context, name).await);
            };
            let rows = found["matches"].as_array().map(Vec::as_slice).unwrap_or_default();
            context.screen.print(&format.format_list(rows, FLAVOUR_MATCH_COLUMNS, context.screen));
        }
        Ok(())
    }

    async fn create_one(
        &self,
        context: &CliContext,
        mut body: Map<String, Value>,
    ) -> Result<Value, CliError> {
        match self.update_method {
            UpdateMethod::Patch if self.has_traits => {
                runbook_traits::create(&context.api, self.path, body).await
            }
            UpdateMethod::Patch => {
                Ok(context.api.send(Method::POST, self.path, Some(&Value::Object(body))).await?)
            }
            UpdateMethod::Replace => {
                let Some(Value::String(name)) = body.remove("name") else {
                    return Err(CliError::Usage(format!("a {} needs a name", self.singular)));
                };
                let body = Value::Object(body);
                let sent = context.api.send(Method::PUT, &self.path_of(&name), Some(&body)).await;
                let created = sent.map_err(|error| self.ferrite_only_error(error))?;
                Ok(if created.is_object() { created } else { json!({ "name": name }) })
            }
        }
    }

    pub(crate) async fn set(
        &self,
        context: &CliContext,
        arguments: &ResourceSetArguments,
    ) -> Result<(), CliError> {
        let mut fields = Vec::new();
        let mut traits = None;
        for field in &arguments.fields {
            if self.has_traits && field.key == runbook_traits::TRAITS_FIELD {
                traits = Some(field.value()?);
            } else {
                fields.push((field.key.clone(), field.value()?));
            }
        }
        let resource = match fields.iter().any(|(key, _)| is_nested(key)) {
            true => self.fetch(context, &arguments.name).await?,
            false => Value::Null,
        };
        let operations = json_patch(&resource, &fields);
        self.patch(context, &arguments.name, &operations, traits, &arguments.output).await
    }

    pub(crate) async fn unset(
        &self,
        context: &CliContext,
        arguments: &ResourceUnsetArguments,
    ) -> Result<(), CliError> {
        let is_traits = |field: &&String| self.has_traits && *field == runbook_traits::TRAITS_FIELD;
        let traits = arguments.fields.iter().any(|field| is_traits(&field)).then(|| json!([]));
        let fields = arguments.fields.iter().filter(|field| !is_traits(field));
        let operations: Vec<Value> =
            fields.map(|field| json!({ "op": "remove", "path": json_pointer(field) })).collect();
        self.patch(context, &arguments.name, &operations, traits, &arguments.output).await
    }

    async fn patch(
        &self,
        context: &CliContext,
        name: &str,
        operations: &[Value],
        traits: Option<Value>,
        output: &OutputArguments,
    ) -> Result<(), CliError> {
        let path = self.path_of(name);
        let changed = match traits {
            Some(traits) => runbook_traits::update(&context.api, &path, &traits, operations).await,
            None => context.api.patch(&path, operations).await.map_err(CliError::from),
        };
        let changed = match changed {
            Ok(changed) => changed,
            Err(CliError::Api(error)) if error.status() == Some(404) => {
                return Err(self.not_found_error(context, name).await);
            }
            Err(failure) => return Err(failure),
        };
        if output.output.is_machine_readable() {
            context.screen.print(&output.output.format_single(&changed, context.screen));
        } else {
            context.screen.print(&format!("{name}: changed"));
        }
        Ok(())
    }

    pub(crate) async fn delete(
        &self,
        context: &CliContext,
        arguments: &ResourceDeleteArguments,
    ) -> Result<(), CliError> {
        for name in &arguments.names {
            match context.api.send(Method::DELETE, &self.path_of(name), None).await {
                Ok(_) => context.screen.print(&format!("{name}: deleted")),
                Err(error) if error.status() == Some(404) => {
                    return Err(self.not_found_error(context, name).await);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The error for an unknown name, with a suggestion.
    async fn not_found_error(&self, context: &CliContext, name: &str) -> CliError {
        let rows = match self.rows(context, &QueryString::new()).await {
            Ok(rows) => rows,
            Err(failure @ CliError::Rejected(_)) => return failure,
            Err(_) => Vec::new(),
        };
        let hint = closest_match(name, rows.iter().map(display_name))
            .map(|meant| format!("; did you mean {meant:?}?"))
            .unwrap_or_default();
        CliError::NotFound(format!("unknown {} {name:?}{hint}", self.singular))
    }

    pub(crate) fn ferrite_only_error(&self, error: IronicClientError) -> CliError {
        // The 404 of a missing resource has this text; that of a missing route does not.
        let is_missing_resource = error.to_string().contains("could not be found");
        if self.is_ferrite_only && error.status() == Some(404) && !is_missing_resource {
            let message =
                format!("this server has no {}s; it is an Ironic, not a Ferrite", self.singular);
            return CliError::Rejected(message);
        }
        error.into()
    }
}

/// Names an entry of a file in error messages.
fn entry_label(number: usize, name: &str) -> String {
    if name.is_empty() { format!("entry {number}") } else { format!("entry {number} ({name})") }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::resource_types::{PORTS, TEMPLATES};

    #[test]
    fn checks_all_entries_before_creating_any() {
        let steps = json!([]);
        let entries = vec![
            json!({"name": "CUSTOM_A", "steps": steps}),
            json!("CUSTOM_B"),
            json!({"name": "CUSTOM_C"}),
            json!({"name": "CUSTOM_A", "steps": steps}),
            json!({}),
        ];
        let failure = TEMPLATES.request_bodies(entries, &Map::new(), &Map::new()).unwrap_err();
        expect![[r#"
            nothing was created
            entry 2: not an object
            entry 3 (CUSTOM_C): steps is missing
            entry 4 (CUSTOM_A): an earlier entry has the same name
            entry 5: name is missing
            entry 5: steps is missing"#]]
        .assert_eq(&failure.to_string());
        let fields = json!({"node_uuid": "u", "address": "a"});
        let fields = fields.as_object().unwrap();
        assert_eq!(
            PORTS.request_bodies(vec![json!({})], fields, &Map::new()).unwrap(),
            std::slice::from_ref(fields)
        );
    }
}
