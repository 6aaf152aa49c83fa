// SPDX-License-Identifier: Apache-2.0
//! Event subscriptions: kept and shown. Nothing is delivered.

use serde_json::{Value, json};

use super::document::{Document, collection, link, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::service::Subscription;
use super::visit::{ROOT, Reply, Visit};
use crate::machine::Health;

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::EventService, "/redfish/v1/EventService").get(service),
    Route::at(Kind::EventService, "/redfish/v1/EventService/Actions/EventService.SubmitTestEvent")
        .post(test_event),
    Route::at(Kind::Subscriptions, "/redfish/v1/EventService/Subscriptions").get(list).post(create),
    Route::at(Kind::Subscription, "/redfish/v1/EventService/Subscriptions/{subscription}")
        .get(show)
        .delete(delete),
];

const EVENT_TYPES: &[&str] =
    &["StatusChange", "ResourceUpdated", "ResourceAdded", "ResourceRemoved", "Alert"];
const SUBSCRIPTIONS: &str = "/redfish/v1/EventService/Subscriptions";

fn service(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#EventService.v1_10_0.EventService";
    let mut document = Document::new(visit.path, schema, "EventService", "Event Service");
    document.extend(json!({
        "ServiceEnabled": true,
        "DeliveryRetryAttempts": 3,
        "DeliveryRetryIntervalSeconds": 60,
        "EventTypesForSubscription": EVENT_TYPES,
        "Subscriptions": link(SUBSCRIPTIONS),
        "Status": status(Health::Ok),
        "Actions": {"#EventService.SubmitTestEvent": {
            "target": format!("{ROOT}/EventService/Actions/EventService.SubmitTestEvent"),
        }},
    }));
    Ok(document.done())
}

fn test_event(_: &mut Visit<'_>) -> Result<Reply, Refusal> {
    Ok(Reply::no_content())
}

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#EventDestinationCollection.EventDestinationCollection";
    let members = visit.service.subscriptions.iter().map(|it| format!("{SUBSCRIPTIONS}/{}", it.id));
    Ok(collection(visit.path, schema, "Event Subscriptions", members))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let id = id(visit)?;
    let found = visit.service.subscriptions.iter().find(|it| it.id == id);
    found.map(describe).ok_or_else(|| visit.not_found())
}

fn create(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let destination =
        visit.text("Destination")?.ok_or(Refusal::property_missing("Destination"))?.to_owned();
    if !destination.starts_with("http://") && !destination.starts_with("https://") {
        return Err(Refusal::property_value("Destination", &destination));
    }
    if visit.service.subscriptions.len() >= visit.personality().subscriptions {
        return Err(Refusal::limit_exceeded("subscriptions"));
    }
    let event_types = match visit.body.get("EventTypes") {
        None | Some(Value::Null) => vec!["Alert".to_owned()],
        Some(Value::Array(types)) => types.iter().map(event_type).collect::<Result<_, _>>()?,
        Some(other) => return Err(Refusal::property_type("EventTypes", other)),
    };
    let subscription = Subscription {
        id: visit.service.last_subscription.wrapping_add(1),
        destination,
        context: visit.text("Context")?.map(str::to_owned),
        protocol: visit.text("Protocol")?.unwrap_or("Redfish").to_owned(),
        event_types,
    };
    let body = describe(&subscription);
    let location = format!("{SUBSCRIPTIONS}/{}", subscription.id);
    visit.service.last_subscription = subscription.id;
    visit.service.subscriptions.push(subscription);
    Ok(Reply::created(location, body))
}

fn delete(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let id = id(visit)?;
    let before = visit.service.subscriptions.len();
    visit.service.subscriptions.retain(|it| it.id != id);
    if visit.service.subscriptions.len() < before {
        Ok(Reply::no_content())
    } else {
        Err(visit.not_found())
    }
}

fn describe(subscription: &Subscription) -> Value {
    let id = subscription.id.to_string();
    let path = format!("{SUBSCRIPTIONS}/{id}");
    let schema = "#EventDestination.v1_14_1.EventDestination";
    let mut document = Document::new(&path, schema, &id, &format!("Subscription {id}"));
    document.extend(json!({
        "Destination": subscription.destination,
        "Context": subscription.context,
        "Protocol": subscription.protocol,
        "EventTypes": subscription.event_types,
        "SubscriptionType": "RedfishEvent",
        // Headers may hold a password: they are never shown.
        "HttpHeaders": [],
        "Status": status(Health::Ok),
    }));
    document.done()
}

fn event_type(value: &Value) -> Result<String, Refusal> {
    let name = value.as_str().ok_or_else(|| Refusal::property_type("EventTypes", value))?;
    if EVENT_TYPES.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(Refusal::property_value("EventTypes", name))
    }
}

fn id(visit: &Visit<'_>) -> Result<u32, Refusal> {
    visit.param("subscription").parse().map_err(|_| visit.not_found())
}
