// SPDX-License-Identifier: Apache-2.0
//! Event subscriptions. They are stored, but no events are sent.

use serde_json::{Value, json};

use super::document::{ResourceDocument, collection, link, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, ROOT, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use super::service_state::EventSubscription;
use crate::machine::Health;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::EventService, "/redfish/v1/EventService").get(service),
    RedfishRoute::at(
        ResourceKind::EventService,
        "/redfish/v1/EventService/Actions/EventService.SubmitTestEvent",
    )
    .post(test_event),
    RedfishRoute::at(ResourceKind::Subscriptions, "/redfish/v1/EventService/Subscriptions")
        .get(list)
        .post(create),
    RedfishRoute::at(
        ResourceKind::Subscription,
        "/redfish/v1/EventService/Subscriptions/{subscription}",
    )
    .get(show)
    .delete(delete),
];

const EVENT_TYPES: &[&str] =
    &["StatusChange", "ResourceUpdated", "ResourceAdded", "ResourceRemoved", "Alert"];
const SUBSCRIPTIONS: &str = "/redfish/v1/EventService/Subscriptions";

fn service(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#EventService.v1_10_0.EventService";
    let mut document = ResourceDocument::new(context.path, schema, "EventService", "Event Service");
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
    Ok(document.into_value())
}

fn test_event(_: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    Ok(ChangeResponse::no_content())
}

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#EventDestinationCollection.EventDestinationCollection";
    let members =
        context.service.subscriptions.iter().map(|it| format!("{SUBSCRIPTIONS}/{}", it.id));
    Ok(collection(context.path, schema, "Event Subscriptions", members))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let id = subscription_id(context)?;
    let found = context.service.subscriptions.iter().find(|it| it.id == id);
    found.map(subscription_document).ok_or_else(|| context.not_found())
}

fn create(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let destination = context
        .string_property("Destination")?
        .ok_or(RedfishErrorResponse::property_missing("Destination"))?
        .to_owned();
    if !destination.starts_with("http://") && !destination.starts_with("https://") {
        return Err(RedfishErrorResponse::property_value("Destination", &destination));
    }
    if context.service.subscriptions.len() >= context.personality().subscriptions {
        return Err(RedfishErrorResponse::limit_exceeded("subscriptions"));
    }
    let event_types = match context.body.get("EventTypes") {
        None | Some(Value::Null) => vec!["Alert".to_owned()],
        Some(Value::Array(types)) => {
            types.iter().map(parse_event_type).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(RedfishErrorResponse::property_type("EventTypes", other)),
    };
    let subscription = EventSubscription {
        id: context.service.last_subscription.wrapping_add(1),
        destination,
        context: context.string_property("Context")?.map(str::to_owned),
        protocol: context.string_property("Protocol")?.unwrap_or("Redfish").to_owned(),
        event_types,
    };
    let body = subscription_document(&subscription);
    let location = format!("{SUBSCRIPTIONS}/{}", subscription.id);
    context.service.last_subscription = subscription.id;
    context.service.subscriptions.push(subscription);
    Ok(ChangeResponse::created(location, body))
}

fn delete(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let id = subscription_id(context)?;
    let before = context.service.subscriptions.len();
    context.service.subscriptions.retain(|it| it.id != id);
    if context.service.subscriptions.len() < before {
        Ok(ChangeResponse::no_content())
    } else {
        Err(context.not_found())
    }
}

fn subscription_document(subscription: &EventSubscription) -> Value {
    let id = subscription.id.to_string();
    let path = format!("{SUBSCRIPTIONS}/{id}");
    let schema = "#EventDestination.v1_14_1.EventDestination";
    let mut document = ResourceDocument::new(&path, schema, &id, &format!("Subscription {id}"));
    document.extend(json!({
        "Destination": subscription.destination,
        "Context": subscription.context,
        "Protocol": subscription.protocol,
        "EventTypes": subscription.event_types,
        "SubscriptionType": "RedfishEvent",
        // HTTP headers may contain a password, so they are not returned.
        "HttpHeaders": [],
        "Status": status(Health::Ok),
    }));
    document.into_value()
}

fn parse_event_type(value: &Value) -> Result<String, RedfishErrorResponse> {
    let name =
        value.as_str().ok_or_else(|| RedfishErrorResponse::property_type("EventTypes", value))?;
    if EVENT_TYPES.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(RedfishErrorResponse::property_value("EventTypes", name))
    }
}

fn subscription_id(context: &RequestContext<'_>) -> Result<u32, RedfishErrorResponse> {
    context.param("subscription").parse().map_err(|_| context.not_found())
}
