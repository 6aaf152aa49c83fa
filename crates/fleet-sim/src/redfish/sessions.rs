// SPDX-License-Identifier: Apache-2.0
//! Signing in and out.

use http::HeaderName;
use serde_json::{Value, json};

use super::document::{Document, collection, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::{ROOT, Reply, Visit};
use crate::machine::Health;

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::SessionService, "/redfish/v1/SessionService").get(service),
    Route::at(Kind::Sessions, "/redfish/v1/SessionService/Sessions").get(list).post(open).door(),
    Route::at(Kind::Session, "/redfish/v1/SessionService/Sessions/{session}")
        .get(show)
        .delete(close),
];

const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

fn service(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#SessionService.v1_1_8.SessionService";
    let mut document = Document::new(visit.path, schema, "SessionService", "Session Service");
    document
        .put("ServiceEnabled", true)
        .put("SessionTimeout", visit.personality().sessions.timeout)
        .put("Status", status(Health::Ok))
        .link("Sessions", format!("{}/Sessions", visit.path));
    Ok(document.done())
}

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let members = visit.service.sessions().iter().map(|session| path_of(session.id));
    Ok(collection(visit.path, "#SessionCollection.SessionCollection", "Sessions", members))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let id = id(visit)?;
    if visit.service.sessions().iter().any(|session| session.id == id) {
        Ok(describe(id, &visit.credentials.username))
    } else {
        Err(visit.not_found())
    }
}

fn open(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let username = visit.text("UserName")?.ok_or(Refusal::property_missing("UserName"))?;
    let password = visit.text("Password")?.ok_or(Refusal::property_missing("Password"))?;
    if !visit.credentials.are(username, password) {
        return Err(Refusal::unauthorized());
    }
    let session =
        visit.service.open(visit.machine, visit.now).ok_or(Refusal::too_many_sessions())?;
    let body = describe(session.id, &visit.credentials.username);
    let mut reply = Reply::created(path_of(session.id), body);
    reply.headers.push((TOKEN, session.token.to_string()));
    Ok(reply)
}

fn close(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let id = id(visit)?;
    if visit.service.close(id) { Ok(Reply::no_content()) } else { Err(visit.not_found()) }
}

fn id(visit: &Visit<'_>) -> Result<u32, Refusal> {
    visit.param("session").parse().map_err(|_| visit.not_found())
}

fn path_of(id: u32) -> String {
    format!("{ROOT}/SessionService/Sessions/{id}")
}

fn describe(id: u32, username: &str) -> Value {
    let schema = "#Session.v1_5_0.Session";
    let mut document = Document::new(&path_of(id), schema, &id.to_string(), "User Session");
    document.extend(json!({"UserName": username}));
    document.done()
}
