// SPDX-License-Identifier: Apache-2.0
//! Projects: groups of users that own or lease machines.

use access_policy::PolicyTarget;
use http::{Method, StatusCode};
use ironic_wire::{WireError, parse_fields, parse_object};
use node_model::{Allocation, Deployment, Project, ProjectId, is_project_name};
use serde::Deserialize;
use serde_json::{Value, json};
use store::{AllocationFilter, DeploymentFilter, ProjectColumn, ResourceQuery, StoreReader};

use super::users::{changed, check_description, optional_text, required_bool};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, ReplaceDuplicate, UNVERSIONED};

const ALL: &str = "/v1/ferrite/projects";
const ONE: &str = "/v1/ferrite/projects/{project}";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List projects", handler!(list))
        .since(UNVERSIONED)
        .list("ferrite:project:list_all", "ferrite:project:get"),
    ApiRoute::new(Method::POST, ALL, "Create a project", handler!(create))
        .since(UNVERSIONED)
        .rule("ferrite:project:create"),
    ApiRoute::get(ONE, "Show a project", handler!(show))
        .since(UNVERSIONED)
        .checked_by_handler(&["ferrite:project:list_all", "ferrite:project:get"]),
    ApiRoute::new(Method::PATCH, ONE, "Change fields of a project", handler!(update))
        .since(UNVERSIONED)
        .rule("ferrite:project:update"),
    ApiRoute::new(
        Method::DELETE,
        ONE,
        "Delete a project with its role assignments and tokens",
        handler!(delete),
    )
    .since(UNVERSIONED)
    .rule("ferrite:project:delete"),
];

/// The body of a new project.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewProject {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    enabled: Option<bool>,
}

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let own = request.access.list_project(None)?;
    let mut projects: Vec<Project> = request
        .app
        .store
        .scan(|reader| reader.collect(&ResourceQuery::default()))
        .await
        .map_err(ApiError::Store)?;
    projects.retain(|project| own.as_ref().is_none_or(|own| *own == project.name));
    projects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let rows: Vec<Value> = projects.iter().map(project_json).collect();
    Ok(ApiResponse::ok_value(&json!({"projects": rows})))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let name = request.param("project").to_owned();
    let is_own = request.access.project() == Some(name.as_str());
    let is_visible = request.access.allows("ferrite:project:list_all", &PolicyTarget::NONE)
        || (is_own && request.access.allows("ferrite:project:get", &PolicyTarget::NONE));
    if !is_visible {
        return Err(WireError::not_found("Project", &name).into());
    }
    let project = request.app.store.read(move |reader| find_project(reader, &name)).await?;
    Ok(ApiResponse::ok_value(&project_json(&project)))
}

async fn create(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = Value::Object(parse_object(&request.body, "project")?);
    let new: NewProject = parse_fields(body)?;
    if !is_project_name(&new.name) {
        let problem = "it must have 1 to 64 letters, digits or . _ -, and must not be `system`";
        return Err(WireError::invalid_field("name", problem).into());
    }
    check_description(new.description.as_deref())?;
    let project = Project {
        id: ProjectId::random(),
        name: new.name,
        created_at: request.now(),
        updated_at: None,
        description: new.description,
        enabled: new.enabled.unwrap_or(true),
    };
    let stored = project.clone();
    request.app.store.write(move |writer| writer.insert(&stored)).await.on_duplicate(|_| {
        WireError::conflict(format!("A project named {} already exists.", project.name))
    })?;
    changed(&request, &project.name, "project created");
    let json = project_json(&project);
    Ok(ApiResponse::json(StatusCode::CREATED, json.to_string().into_bytes()))
}

async fn update(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (mut description, mut enabled) = (None, None);
    for (field, value) in parse_object(&request.body, "project")? {
        match field.as_str() {
            "description" => {
                let text = optional_text(&field, value)?;
                check_description(text.as_deref())?;
                description = Some(text);
            }
            "enabled" => enabled = Some(required_bool(&field, &value)?),
            _ => return Err(WireError::unexpected(&[&field]).into()),
        }
    }
    let name = request.param("project").to_owned();
    let project = request
        .app
        .store
        .write(move |writer| {
            let mut project = find_project(writer, &name)?;
            if let Some(description) = &description {
                project.description.clone_from(description);
            }
            project.enabled = enabled.unwrap_or(project.enabled);
            writer.save(&mut project)?;
            Ok::<_, ApiError>(project)
        })
        .await?;
    changed(&request, &project.name, "project changed");
    Ok(ApiResponse::ok_value(&project_json(&project)))
}

async fn delete(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let name = request.param("project").to_owned();
    let project = request
        .app
        .store
        .write(move |writer| {
            let project = find_project(writer, &name)?;
            let nodes = writer.nodes_of_project(&name)?;
            if nodes > 0 {
                return Err(WireError::conflict(format!(
                    "The project {name} is owner or lessee of {nodes} nodes; give them to another \
                     project first."
                ))
                .into());
            }
            let of_project =
                DeploymentFilter { project: Some(name.clone()), ..DeploymentFilter::default() };
            let deployments = writer.count::<Deployment>(&of_project)?;
            let owned = AllocationFilter { owner: Some(name.clone()), ..AllocationFilter::default() };
            let allocations = writer.count::<Allocation>(&owned)?;
            if deployments + allocations > 0 {
                return Err(WireError::conflict(format!(
                    "The project {name} has {deployments} deployments and {allocations} allocations; \
                     delete them first."
                ))
                .into());
            }
            for quota in writer.quotas_of(&name)? {
                writer.delete(quota.id)?;
            }
            writer.delete_project_references(&name)?;
            writer.delete(project.id)?;
            Ok::<_, ApiError>(project)
        })
        .await?;
    changed(&request, &project.name, "project deleted");
    Ok(ApiResponse::no_content())
}

fn find_project(reader: &mut StoreReader<'_>, name: &str) -> Result<Project, ApiError> {
    let found = reader.find(ProjectColumn::Name, name)?;
    found.ok_or_else(|| WireError::not_found("Project", name).into())
}

fn project_json(project: &Project) -> Value {
    json!({
        "name": project.name,
        "description": project.description,
        "enabled": project.enabled,
        "created_at": project.created_at.to_string(),
        "updated_at": project.updated_at.map(|at| at.to_string()),
    })
}
