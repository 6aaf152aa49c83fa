// SPDX-License-Identifier: Apache-2.0
//! Subscriptions to events of a BMC.

use ironic_client::Method;
use serde_json::{Map, Value, json};

use super::super::outcome::{VerbOutcome, VerbStop};
use super::super::requests::{BmcEventRequest, ManagedHost};
use super::calls::IronicCalls;
use super::node::NodeResponse;

impl IronicCalls<'_> {
    pub(super) async fn add_event_subscription(
        &self,
        host: &ManagedHost,
        subscription: &BmcEventRequest,
    ) -> VerbOutcome<String> {
        let node = self.node(host).await?;
        if let Some(id) = self.existing_subscription(&node, subscription).await? {
            return Ok(id);
        }
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

    /// A subscription that an earlier call created and whose identifier was lost.
    async fn existing_subscription(
        &self,
        node: &NodeResponse,
        wanted: &BmcEventRequest,
    ) -> VerbOutcome<Option<String>> {
        let path = format!("{}/vendor_passthru?method=get_all_subscriptions", node.path());
        let list = match self.get(&path).await {
            Ok(list) => list,
            // The driver cannot list subscriptions.
            Err(VerbStop::Failed(_)) => return Ok(None),
            Err(stop) => return Err(stop),
        };
        let members = list["Members"].as_array().map(Vec::as_slice).unwrap_or_default();
        let links = members.iter().filter_map(|member| member["@odata.id"].as_str());
        let ids = links.filter_map(|link| link.trim_end_matches('/').rsplit('/').next());
        for id in ids.filter(|id| !wanted.used_ids.contains(*id)) {
            let path = format!("{}/vendor_passthru?method=get_subscription", node.path());
            let body = json!({"id": id});
            let found = match self.transport.request(Method::GET, &path, Some(&body)).await {
                Ok(found) => found,
                // It was deleted meanwhile, or the driver cannot read it.
                Err(error) if matches!(error.status, Some(400..=499)) => continue,
                Err(error) => return Err(self.stop(error)),
            };
            let context = wanted.context.as_deref().unwrap_or_default();
            if found["Destination"] == wanted.destination.as_str()
                && found["Context"].as_str().unwrap_or_default() == context
            {
                return Ok(Some(id.to_owned()));
            }
        }
        Ok(None)
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
