// SPDX-License-Identifier: Apache-2.0
//! Users and service accounts in the store, the caller's own account, and failed sign-ins.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use access_policy::{AuthMethod, CallerScope, PolicyTarget};
use authentication::{PasswordError, check_new_password};
use http::{Method, StatusCode};
use ironic_wire::{WireError, parse_fields, parse_object};
use node_model::{
    AccessScope, Project, RoleAssignment, Secret, UserAccount, UserId, UserKind, is_user_name,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::{ProjectColumn, ResourceQuery, StoreReader, UserColumn};

use super::events::parse_limit;
use crate::handler;
use crate::server::auth_response::auth_error_response;
use crate::server::{
    ApiError, ApiRequest, ApiResponse, ApiRoute, ReplaceDuplicate, RouteAccess, UNVERSIONED,
};

const ALL: &str = "/v1/ferrite/users";
const ONE: &str = "/v1/ferrite/users/{user}";

/// Default number of failed sign-ins in a response.
const DEFAULT_FAILURES: u32 = 100;
/// Maximum number of roles of one user.
const MAX_ROLES: usize = 200;
/// Maximum length of a description in characters.
pub(super) const MAX_DESCRIPTION_CHARS: usize = 1000;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/ferrite/whoami", "Show the caller, its roles and scope", handler!(whoami))
        .since(UNVERSIONED)
        .query(&["permissions"])
        .access(RouteAccess::Authenticated),
    ApiRoute::get(ALL, "List users and service accounts", handler!(list))
        .since(UNVERSIONED)
        .rule("ferrite:user:get"),
    ApiRoute::new(Method::POST, ALL, "Create a user or a service account", handler!(create))
        .since(UNVERSIONED)
        .rule("ferrite:user:create"),
    ApiRoute::get(ONE, "Show a user", handler!(show))
        .since(UNVERSIONED)
        .checked_by_handler(&["ferrite:user:get", "ferrite:user:own"]),
    ApiRoute::new(Method::PATCH, ONE, "Change fields of a user", handler!(update))
        .since(UNVERSIONED)
        .rule("ferrite:user:update"),
    ApiRoute::new(
        Method::DELETE,
        ONE,
        "Delete a user with its tokens and sessions",
        handler!(delete),
    )
    .since(UNVERSIONED)
    .rule("ferrite:user:delete"),
    ApiRoute::new(
        Method::PUT,
        "/v1/ferrite/users/{user}/password",
        "Set the password of a user",
        handler!(set_password),
    )
    .since(UNVERSIONED)
    .checked_by_handler(&["ferrite:user:update", "ferrite:user:own"]),
    ApiRoute::new(
        Method::DELETE,
        "/v1/ferrite/users/{user}/sessions",
        "End all sessions of a user",
        handler!(end_sessions),
    )
    .since(UNVERSIONED)
    .checked_by_handler(&["ferrite:user:update", "ferrite:user:own"]),
    ApiRoute::get(
        "/v1/ferrite/sign-in-failures",
        "List failed sign-ins, latest first",
        handler!(sign_in_failures),
    )
    .since(UNVERSIONED)
    .query(&["limit"])
    .rule("ferrite:sign_in_failure:get"),
];

/// The body of a new user.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewUser {
    name: String,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    enabled: Option<bool>,
    #[serde(default)]
    roles: Vec<String>,
    #[serde(default)]
    default_project: Option<String>,
}

/// The body of a password change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewPassword {
    password: String,
    #[serde(default)]
    current_password: Option<String>,
}

async fn whoami(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["permissions"])?;
    let with_permissions = match request.query_value("permissions") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => {
            return Err(WireError::invalid_field("permissions", "it must be true or false").into());
        }
    };
    let caller = &request.caller;
    let scope = match &caller.scope {
        CallerScope::Unrestricted => "unrestricted",
        CallerScope::System => "system",
        CallerScope::Project(_) => "project",
        CallerScope::Unscoped => "none",
    };
    let mut body = json!({
        "user": caller.name(),
        "user_id": caller.user_id.as_deref(),
        "scope": scope,
        "project": caller.project(),
        "roles": caller.roles.iter().map(|role| &**role).collect::<Vec<&str>>(),
        "method": caller.method.as_str(),
    });
    if with_permissions {
        add_permissions(&mut body, &request);
    }
    if let Some(id) = own_user_id(&request) {
        let assignments =
            request.app.store.read(move |reader| reader.valid_role_assignments(id)).await;
        body["assignments"] = json!(role_texts(&assignments.map_err(ApiError::Store)?));
    }
    Ok(ApiResponse::ok_value(&body))
}

/// Adds the policy rules that the caller matches: without a resource, and for the resources that its
/// project owns or leases. The web UI hides what they do not allow.
fn add_permissions(body: &mut Value, request: &ApiRequest) {
    let (policy, caller) = (&request.app.policy, &request.caller);
    body["permissions"] = json!(policy.allowed_rules(caller, &PolicyTarget::NONE));
    let Some(project) = caller.project() else { return };
    let owned = PolicyTarget {
        allocation_owner: Some(project),
        runbook_owner: Some(project),
        ..PolicyTarget::node(Some(project), None)
    };
    let leased = PolicyTarget::node(None, Some(project));
    body["owner_permissions"] = json!(policy.allowed_rules(caller, &owned));
    body["lessee_permissions"] = json!(policy.allowed_rules(caller, &leased));
}

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (users, assignments) = request
        .app
        .store
        .scan(|reader| {
            let users: Vec<UserAccount> = reader.collect(&ResourceQuery::default())?;
            Ok::<_, ApiError>((users, reader.all_role_assignments()?))
        })
        .await?;
    let mut roles: HashMap<UserId, Vec<RoleAssignment>> = HashMap::new();
    for (user, assignment) in assignments {
        roles.entry(user).or_default().push(assignment);
    }
    let mut rows: Vec<(String, Value)> = users
        .iter()
        .map(|user| {
            let roles = roles.get(&user.id).map(Vec::as_slice).unwrap_or_default();
            (user.name.clone(), user_json(user, roles))
        })
        .collect();
    rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    Ok(ApiResponse::ok_value(&json!({"users": rows})))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (user, roles) = find_visible(&request, "ferrite:user:get").await?;
    Ok(ApiResponse::ok_value(&user_json(&user, &roles)))
}

async fn create(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let body = Value::Object(parse_object(&request.body, "user")?);
    let new: NewUser = parse_fields(body)?;
    if !is_user_name(&new.name) {
        let problem = "it must have 1 to 64 letters, digits or . _ - @ +";
        return Err(WireError::invalid_field("name", problem).into());
    }
    let kind = match new.kind.as_deref() {
        None => UserKind::Human,
        Some(text) => text
            .parse()
            .map_err(|()| WireError::invalid_field("kind", "it must be human or service"))?,
    };
    check_description(new.description.as_deref())?;
    let roles = parse_roles(&new.roles)?;
    let password_hash = match new.password {
        None => None,
        Some(_) if kind == UserKind::Service => return Err(service_password().into()),
        Some(password) => Some(hash_password(&request, Secret::new(password)).await?),
    };
    let user = UserAccount {
        id: UserId::random(),
        name: new.name,
        kind,
        created_at: request.now(),
        updated_at: None,
        description: new.description,
        enabled: new.enabled.unwrap_or(true),
        password_hash,
        default_project: new.default_project,
    };
    let name = user.name.clone();
    let (user, roles) = request
        .app
        .store
        .write(move |writer| {
            check_projects(writer, &roles, user.default_project.as_deref())?;
            writer.insert(&user)?;
            writer.set_role_assignments(user.id, &roles)?;
            let roles = writer.role_assignments(user.id)?;
            Ok::<_, ApiError>((user.clone(), roles))
        })
        .await
        .on_duplicate(|_| WireError::conflict(format!("A user named {name} already exists.")))?;
    changed(&request, &user.name, "user created");
    let json = user_json(&user, &roles);
    Ok(ApiResponse::json(StatusCode::CREATED, json.to_string().into_bytes()))
}

async fn update(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let fields = UserChanges::parse(parse_object(&request.body, "user")?)?;
    let name = request.param("user").to_owned();
    let (user, roles) = request
        .app
        .store
        .write(move |writer| {
            let mut user = find_user(writer, &name)?;
            fields.apply(&mut user);
            if let Some(roles) = &fields.roles {
                check_projects(writer, roles, None)?;
                writer.set_role_assignments(user.id, roles)?;
            }
            check_projects(
                writer,
                &[],
                fields.default_project.as_ref().and_then(Option::as_deref),
            )?;
            writer.save(&mut user)?;
            if !user.enabled {
                writer.delete_sessions_of(user.id)?;
            }
            let loses_admin = fields.enabled == Some(false) || fields.roles.is_some();
            if loses_admin {
                check_admin_left(writer)?;
            }
            let roles = writer.role_assignments(user.id)?;
            Ok::<_, ApiError>((user, roles))
        })
        .await?;
    changed(&request, &user.name, "user changed");
    Ok(ApiResponse::ok_value(&user_json(&user, &roles)))
}

async fn delete(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let name = request.param("user").to_owned();
    let user = request
        .app
        .store
        .write(move |writer| {
            let user = find_user(writer, &name)?;
            writer.delete(user.id)?;
            check_admin_left(writer)?;
            Ok::<_, ApiError>(user)
        })
        .await?;
    changed(&request, &user.name, "user deleted");
    Ok(ApiResponse::no_content())
}

async fn set_password(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (user, _) = find_visible(&request, "ferrite:user:update").await?;
    let body = Value::Object(parse_object(&request.body, "password")?);
    let new: NewPassword = parse_fields(body)?;
    if user.kind == UserKind::Service {
        return Err(service_password().into());
    }
    let may_set = request.access.allows("ferrite:user:update", &PolicyTarget::NONE);
    let is_own_token =
        request.caller.method == AuthMethod::ApiToken && own_user_id(&request) == Some(user.id);
    match new.current_password {
        Some(current) => {
            let address = request.client_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let authenticator = &request.app.authenticator;
            let current = Secret::new(current);
            let confirmed = authenticator.confirm_password(&user.name, current, address).await;
            if let Err(error) = confirmed {
                let challenge = (!request.browser.is_web_ui).then(|| authenticator.challenge());
                return Ok(auth_error_response(&error, challenge));
            }
        }
        // A token must not become a password that outlives it.
        None if may_set && !is_own_token => {}
        None => {
            return Err(WireError::invalid(
                "current_password is required to change the own password.",
            )
            .into());
        }
    }
    let hash = hash_password(&request, Secret::new(new.password)).await?;
    let id = user.id;
    request
        .app
        .store
        .write(move |writer| {
            let Some(mut user) = writer.get(id)? else {
                return Err(WireError::not_found("User", &id.to_string()).into());
            };
            user.password_hash = Some(hash.clone());
            writer.save(&mut user)?;
            writer.delete_sessions_of(id)?;
            Ok::<_, ApiError>(())
        })
        .await?;
    changed(&request, &user.name, "password changed");
    Ok(ApiResponse::no_content())
}

async fn end_sessions(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (user, _) = find_visible(&request, "ferrite:user:update").await?;
    let id = user.id;
    let ended = request.app.store.write(move |writer| writer.delete_sessions_of(id)).await;
    let ended = ended.map_err(ApiError::Store)?;
    changed(&request, &user.name, "sessions ended");
    Ok(ApiResponse::ok_value(&json!({"ended": ended})))
}

async fn sign_in_failures(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["limit"])?;
    let limit = parse_limit(&request, "limit")?.unwrap_or(DEFAULT_FAILURES);
    let failures = request.app.store.scan(move |reader| reader.sign_in_failures(limit)).await;
    let rows: Vec<Value> = failures
        .map_err(ApiError::Store)?
        .iter()
        .map(|failure| {
            json!({
                "user": failure.user_name,
                "address": failure.address,
                "credential": failure.credential,
                "first_at": failure.first_at.to_string(),
                "last_at": failure.last_at.to_string(),
                "attempts": failure.attempts,
            })
        })
        .collect();
    Ok(ApiResponse::ok_value(&json!({"failures": rows})))
}

/// Changes of a user. The outer `None` leaves a field as it is.
#[derive(Default)]
struct UserChanges {
    description: Option<Option<String>>,
    enabled: Option<bool>,
    roles: Option<Vec<RoleAssignment>>,
    default_project: Option<Option<String>>,
}

impl UserChanges {
    fn parse(members: Map<String, Value>) -> Result<Self, WireError> {
        let mut changes = Self::default();
        for (field, value) in members {
            match field.as_str() {
                "description" => {
                    let text = optional_text(&field, value)?;
                    check_description(text.as_deref())?;
                    changes.description = Some(text);
                }
                "default_project" => changes.default_project = Some(optional_text(&field, value)?),
                "enabled" => changes.enabled = Some(required_bool(&field, &value)?),
                "roles" => {
                    let texts: Vec<String> = serde_json::from_value(value).map_err(|_| {
                        WireError::invalid_field("roles", "it must be a list of ROLE@PROJECT")
                    })?;
                    changes.roles = Some(parse_roles(&texts)?);
                }
                _ => return Err(WireError::unexpected(&[&field])),
            }
        }
        Ok(changes)
    }

    fn apply(&self, user: &mut UserAccount) {
        if let Some(description) = &self.description {
            user.description.clone_from(description);
        }
        if let Some(project) = &self.default_project {
            user.default_project.clone_from(project);
        }
        user.enabled = self.enabled.unwrap_or(user.enabled);
    }
}

/// The user in the path and its roles, if the caller is this user or `rule` allows it. Fails with 404
/// otherwise, so that names of users cannot be found out.
async fn find_visible(
    request: &ApiRequest,
    rule: &'static str,
) -> Result<(UserAccount, Vec<RoleAssignment>), ApiError> {
    let name = request.param("user").to_owned();
    let found = request
        .app
        .store
        .read({
            let name = name.clone();
            move |reader| {
                let Ok(user) = find_user(reader, &name) else { return Ok(None) };
                let roles = reader.role_assignments(user.id)?;
                Ok::<_, ApiError>(Some((user, roles)))
            }
        })
        .await?;
    let is_own = found.as_ref().is_some_and(|(user, _)| own_user_id(request) == Some(user.id));
    let is_allowed = request.access.allows(rule, &PolicyTarget::NONE)
        || (is_own && request.access.allows("ferrite:user:own", &PolicyTarget::NONE));
    found.filter(|_| is_allowed).ok_or_else(|| WireError::not_found("User", &name).into())
}

/// The user of this name or id.
pub(super) fn find_user(
    reader: &mut StoreReader<'_>,
    ident: &str,
) -> Result<UserAccount, ApiError> {
    if let Ok(id) = ident.parse::<UserId>()
        && let Some(user) = reader.get(id)?
    {
        return Ok(user);
    }
    let found = reader.find(UserColumn::Name, ident)?;
    found.ok_or_else(|| WireError::not_found("User", ident).into())
}

/// The id of the caller, if it is a user of the store.
pub(super) fn own_user_id(request: &ApiRequest) -> Option<UserId> {
    match request.caller.method {
        AuthMethod::Password | AuthMethod::ApiToken | AuthMethod::Session => {
            request.caller.user_id.as_deref()?.parse().ok()
        }
        // Ids of other identity providers.
        AuthMethod::None
        | AuthMethod::Htpasswd
        | AuthMethod::OpenIdConnect
        | AuthMethod::Keystone
        | AuthMethod::ClientCertificate
        | AuthMethod::UnixSocket
        | AuthMethod::InProcess => None,
    }
}

/// Roles as `role@scope`.
fn role_texts(roles: &[RoleAssignment]) -> Vec<String> {
    roles.iter().map(ToString::to_string).collect()
}

/// Logs a change and makes it effective in this process.
pub(super) fn changed(request: &ApiRequest, subject: &str, event: &'static str) {
    request.app.authenticator.expire_verified();
    let by = request.caller.name().unwrap_or("anonymous");
    let request_id = &request.request_id;
    tracing::info!(subject, by, %request_id, event, "identity changed");
}

pub(super) fn check_description(description: Option<&str>) -> Result<(), WireError> {
    if description.is_some_and(|text| text.chars().count() > MAX_DESCRIPTION_CHARS) {
        let problem = format!("it must not have more than {MAX_DESCRIPTION_CHARS} characters");
        return Err(WireError::invalid_field("description", &problem));
    }
    Ok(())
}

pub(super) fn optional_text(field: &str, value: Value) -> Result<Option<String>, WireError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(WireError::invalid_field(field, "it must be a string or null"))
        }
    }
}

pub(super) fn required_bool(field: &str, value: &Value) -> Result<bool, WireError> {
    value.as_bool().ok_or_else(|| WireError::invalid_field(field, "it must be true or false"))
}

fn parse_roles(texts: &[String]) -> Result<Vec<RoleAssignment>, WireError> {
    if texts.len() > MAX_ROLES {
        let problem = format!("a user has at most {MAX_ROLES} roles");
        return Err(WireError::invalid_field("roles", &problem));
    }
    let roles = texts.iter().map(|text| {
        text.parse::<RoleAssignment>()
            .map_err(|error| WireError::invalid_field("roles", &error.to_string()))
    });
    roles.collect()
}

/// Fails with 400 if a project does not exist.
fn check_projects(
    reader: &mut StoreReader<'_>,
    roles: &[RoleAssignment],
    default_project: Option<&str>,
) -> Result<(), ApiError> {
    let of_roles = roles.iter().filter_map(|assignment| match &assignment.scope {
        AccessScope::System => None,
        AccessScope::Project(name) => Some(name.as_str()),
    });
    let mut names: Vec<&str> = of_roles.chain(default_project).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        if reader.find::<Project>(ProjectColumn::Name, name)?.is_none() {
            let problem = format!("The project {name} does not exist; create it first.");
            return Err(WireError::invalid(problem).into());
        }
    }
    Ok(())
}

/// Fails with 409 if the change would leave no administrator.
fn check_admin_left(reader: &mut StoreReader<'_>) -> Result<(), ApiError> {
    if reader.has_system_admin(None)? {
        return Ok(());
    }
    Err(WireError::conflict(
        "This is the last enabled user with the role admin@system; give the role to another user first.",
    )
    .into())
}

async fn hash_password(
    request: &ApiRequest,
    password: Secret<String>,
) -> Result<Secret<String>, ApiError> {
    check_new_password(&password)
        .map_err(|error| WireError::invalid_field("password", &error.to_string()))?;
    request.app.authenticator.hash_password(password).await.map_err(|error| match error {
        PasswordError::Length => WireError::invalid_field("password", &error.to_string()).into(),
        PasswordError::Hash(_) => WireError::internal(request.request_id.as_str()).into(),
    })
}

fn service_password() -> WireError {
    WireError::invalid("A service account has no password; create a token for it.")
}

fn user_json(user: &UserAccount, roles: &[RoleAssignment]) -> Value {
    json!({
        "id": user.id,
        "name": user.name,
        "kind": user.kind,
        "description": user.description,
        "enabled": user.enabled,
        "has_password": user.password_hash.is_some(),
        "roles": role_texts(roles),
        "default_project": user.default_project,
        "created_at": user.created_at.to_string(),
        "updated_at": user.updated_at.map(|at| at.to_string()),
    })
}
