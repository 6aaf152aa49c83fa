// SPDX-License-Identifier: Apache-2.0
//! Subscriptions to events of a BMC.

use serde_json::{Map, Value, json};

use super::super::outcome::VerbOutcome;
use super::super::requests::{BmcEventRequest, ManagedHost};
use super::calls::IronicCalls;

impl IronicCalls<'_> {
    pub(super) async fn add_event_subscription(
        &self,
        host: &ManagedHost,
        subscription: &BmcEventRequest,
    ) -> VerbOutcome<String> {
        let node = self.node(host).await?;
        let mut body =
            Map::from_iter([("Destination".to_owned(), json!(subscription.destination))]);
        if let Some(context) = &subscription.context {
            body.insert("Context".to_owned(), json!(context));
        }
        if !subscription.http_headers.is_empty() {
            // Redfish expects a list of objects with one header each.
            let headers = subscription.http_headers.iter();
            let headers: Vec<Value> = headers.map(|(name, value)| json!({name: value})).collect();
            body.insert("HttpHeaders".to_owned(), Value::Array(headers));
        }
        let path = format!("{}/vendor_passthru?method=create_subscription", node.path());
        let created = self.post(&path, &Value::Object(body)).await?;
        let id = created["Id"].as_str().map(str::to_owned);
        id.ok_or_else(|| self.failed("the BMC returned no identifier of the subscription"))
    }

    pub(super) async fn remove_event_subscription(
        &self,
        host: &ManagedHost,
        id: &str,
    ) -> VerbOutcome<()> {
        let node = self.node(host).await?;
        let path = format!("{}/vendor_passthru?method=delete_subscription", node.path());
        match self.delete_request(&path, Some(&json!({"id": id}))).await {
            Ok(()) => Ok(()),
            Err(error) if error.status == Some(404) => Ok(()),
            Err(error) => Err(self.stop(error)),
        }
    }
}
