// SPDX-License-Identifier: Apache-2.0
//! Quotas: how many machines a project may have, in total and per resource class or flavour.

use std::collections::BTreeMap;

use access_policy::PolicyTarget;
use http::Method;
use ironic_wire::{WireError, parse_object};
use node_model::{ProjectQuota, QuotaId, QuotaSubject, is_project_name};
use serde_json::{Value, json};
use store::{QuotaFilter, ResourceQuery, StoreReader};

use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

const ALL: &str = "/v1/ferrite/quotas";
const ONE: &str = "/v1/ferrite/quotas/{project}";
/// Maximum number of quotas of a project.
const MAX_QUOTAS: usize = 200;
/// Maximum value of a quota.
const MAX_MACHINES: i64 = 10_000_000;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List the quotas of projects and their use", handler!(list))
        .list("ferrite:quota:list_all", "ferrite:quota:get")
        .since(UNVERSIONED),
    ApiRoute::get(ONE, "Show the quotas of a project and their use", handler!(show))
        .checked_by_handler(&["ferrite:quota:list_all", "ferrite:quota:get"])
        .since(UNVERSIONED),
    ApiRoute::new(Method::PUT, ONE, "Replace the quotas of a project", handler!(put))
        .rule("ferrite:quota:update")
        .since(UNVERSIONED),
    ApiRoute::new(Method::DELETE, ONE, "Remove the quotas of a project", handler!(delete))
        .rule("ferrite:quota:update")
        .since(UNVERSIONED),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let project = request.access.list_project(None)?;
    let rows = request
        .app
        .store
        .scan(move |reader| {
            let query = ResourceQuery::<ProjectQuota>::filtered(QuotaFilter { project });
            let mut projects = BTreeMap::<String, Vec<ProjectQuota>>::new();
            for quota in reader.collect(&query)? {
                projects.entry(quota.project.clone()).or_default().push(quota);
            }
            let mut rows = Vec::new();
            for (project, quotas) in projects {
                rows.push(project_json(reader, &project, &quotas)?);
            }
            Ok::<_, ApiError>(rows)
        })
        .await?;
    Ok(ApiResponse::ok_value(&json!({"quotas": rows})))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let project = request.param("project").to_owned();
    let is_own = request.access.project() == Some(project.as_str());
    let is_visible = request.access.allows("ferrite:quota:list_all", &PolicyTarget::NONE)
        || (is_own && request.access.allows("ferrite:quota:get", &PolicyTarget::NONE));
    if !is_visible {
        request.access.mark_hidden();
        return Err(WireError::not_found("Project", &project).into());
    }
    let row = request
        .app
        .store
        .read(move |reader| {
            let quotas = reader.quotas_of(&project)?;
            project_json(reader, &project, &quotas)
        })
        .await?;
    Ok(ApiResponse::ok_value(&row))
}

async fn put(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let project = request.param("project").to_owned();
    // Keystone's project ids are names in this sense, too.
    if !is_project_name(&project) {
        return Err(WireError::invalid_field("project", "it is not the name of a project").into());
    }
    let limits = parse_limits(&request.body)?;
    let now = request.now();
    let row = request
        .app
        .store
        .write(move |writer| {
            for old in writer.quotas_of(&project)? {
                writer.delete(old.id)?;
            }
            for (subject, machines) in &limits {
                writer.insert(&ProjectQuota {
                    id: QuotaId::random(),
                    project: project.clone(),
                    subject: subject.clone(),
                    machines: *machines,
                    created_at: now,
                    updated_at: None,
                })?;
            }
            let quotas = writer.quotas_of(&project)?;
            project_json(writer, &project, &quotas)
        })
        .await?;
    Ok(ApiResponse::ok_value(&row))
}

async fn delete(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let project = request.param("project").to_owned();
    request
        .app
        .store
        .write(move |writer| {
            for quota in writer.quotas_of(&project)? {
                writer.delete(quota.id)?;
            }
            Ok::<_, ApiError>(())
        })
        .await?;
    Ok(ApiResponse::no_content())
}

/// Parses `{"machines": 5, "resource_class:big": 2}`.
fn parse_limits(body: &[u8]) -> Result<Vec<(QuotaSubject, i64)>, WireError> {
    if body.is_empty() {
        // Otherwise a forgotten body would remove the quotas.
        return Err(WireError::invalid(
            "The body must be an object of limits; {} removes them all.",
        ));
    }
    let body = parse_object(body, "quota")?;
    if body.len() > MAX_QUOTAS {
        return Err(WireError::invalid(format!("A project has at most {MAX_QUOTAS} quotas.")));
    }
    let limit = |(subject, machines): (String, Value)| {
        let shown: String = subject.chars().take(80).collect();
        let parsed = subject.parse::<QuotaSubject>().ok().filter(|_| subject.len() <= 255);
        let parsed = parsed.ok_or_else(|| {
            WireError::invalid_field(
                &shown,
                "it is not machines, resource_class:NAME or flavour:NAME",
            )
        })?;
        let machines = machines.as_i64().filter(|number| (0..=MAX_MACHINES).contains(number));
        let problem = format!("it must be a number of machines from 0 to {MAX_MACHINES}");
        let machines = machines.ok_or_else(|| WireError::invalid_field(&shown, &problem))?;
        Ok((parsed, machines))
    };
    body.into_iter().map(limit).collect()
}

fn project_json(
    reader: &mut StoreReader<'_>,
    project: &str,
    quotas: &[ProjectQuota],
) -> Result<Value, ApiError> {
    let mut rows = Vec::with_capacity(quotas.len());
    for quota in quotas {
        rows.push(json!({
            "subject": quota.subject.to_string(),
            "machines": quota.machines,
            "used": reader.quota_usage(project, &quota.subject)?,
        }));
    }
    let used = reader.quota_usage(project, &QuotaSubject::Machines)?;
    Ok(json!({"project": project, "machines_used": used, "limits": rows}))
}
