// SPDX-License-Identifier: Apache-2.0
//! Login sessions.

use http::HeaderName;
use serde_json::{Value, json};

use super::document::{ResourceDocument, collection, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, ROOT, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use crate::machine::Health;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::SessionService, "/redfish/v1/SessionService").get(service),
    RedfishRoute::at(ResourceKind::Sessions, "/redfish/v1/SessionService/Sessions")
        .get(list)
        .post(open_session)
        .login(),
    RedfishRoute::at(ResourceKind::Session, "/redfish/v1/SessionService/Sessions/{session}")
        .get(show)
        .delete(close_session),
];

const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

fn service(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#SessionService.v1_1_8.SessionService";
    let mut document =
        ResourceDocument::new(context.path, schema, "SessionService", "Session Service");
    document
        .set("ServiceEnabled", true)
        .set("SessionTimeout", context.personality().sessions.timeout)
        .set("Status", status(Health::Ok))
        .link("Sessions", format!("{}/Sessions", context.path));
    Ok(document.into_value())
}

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let members = context.service.sessions().iter().map(|session| session_path(session.id));
    Ok(collection(context.path, "#SessionCollection.SessionCollection", "Sessions", members))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let id = session_id(context)?;
    if context.service.sessions().iter().any(|session| session.id == id) {
        Ok(session_document(id, &context.credentials.username))
    } else {
        Err(context.not_found())
    }
}

fn open_session(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let username = context
        .string_property("UserName")?
        .ok_or(RedfishErrorResponse::property_missing("UserName"))?;
    let password = context
        .string_property("Password")?
        .ok_or(RedfishErrorResponse::property_missing("Password"))?;
    if !context.credentials.matches(username, password) {
        return Err(RedfishErrorResponse::unauthorized());
    }
    let session = context
        .service
        .open_session(context.machine, context.now)
        .ok_or(RedfishErrorResponse::too_many_sessions())?;
    let body = session_document(session.id, &context.credentials.username);
    let mut response = ChangeResponse::created(session_path(session.id), body);
    response.headers.push((TOKEN, session.token.to_string()));
    Ok(response)
}

fn close_session(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let id = session_id(context)?;
    if context.service.close_session(id) {
        Ok(ChangeResponse::no_content())
    } else {
        Err(context.not_found())
    }
}

fn session_id(context: &RequestContext<'_>) -> Result<u32, RedfishErrorResponse> {
    context.param("session").parse().map_err(|_| context.not_found())
}

fn session_path(id: u32) -> String {
    format!("{ROOT}/SessionService/Sessions/{id}")
}

fn session_document(id: u32, username: &str) -> Value {
    let schema = "#Session.v1_5_0.Session";
    let mut document =
        ResourceDocument::new(&session_path(id), schema, &id.to_string(), "User Session");
    document.extend(json!({"UserName": username}));
    document.into_value()
}
