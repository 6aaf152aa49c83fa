// SPDX-License-Identifier: Apache-2.0
//! Reads many resources of a BMC with a bounded number of requests.
//!
//! Resources that cannot be read are recorded as skipped. Collections are read with `$expand` where
//! the BMC supports it.

use drivers::DriverError;
use redfish::RedfishResource;
use serde_json::Value;

use super::bmc::RedfishBmc;

/// Requests that may time out before the BMC counts as unreachable. Some BMCs hang on one resource
/// and return all others.
const MAX_TIMEOUTS: usize = 1;

/// A bounded reader of resources of one BMC.
pub(super) struct ResourceReader<'a> {
    bmc: &'a RedfishBmc,
    /// The query that returns a collection with its members.
    expand: Option<&'static str>,
    requests_left: usize,
    timeouts: usize,
    skipped: Vec<String>,
}

impl<'a> ResourceReader<'a> {
    /// Creates a reader for at most `requests` requests; `root` is the service root.
    pub(super) fn new(bmc: &'a RedfishBmc, root: &RedfishResource, requests: usize) -> Self {
        Self {
            bmc,
            expand: expand_query(root),
            requests_left: requests,
            timeouts: 0,
            skipped: Vec::new(),
        }
    }

    /// Reads the resource at the link `pointer`; `None` if there is no link.
    pub(super) async fn follow(
        &mut self,
        from: &RedfishResource,
        pointer: &str,
    ) -> Result<Option<RedfishResource>, DriverError> {
        match from.link(pointer) {
            Some(path) => self.read(path).await,
            None => Ok(None),
        }
    }

    /// Reads all resources of the list of links at `pointer`.
    pub(super) async fn linked(
        &mut self,
        from: &RedfishResource,
        pointer: &str,
    ) -> Result<Vec<RedfishResource>, DriverError> {
        let mut found = Vec::new();
        for path in from.links(pointer) {
            found.extend(self.read(path).await?);
        }
        Ok(found)
    }

    /// Reads the members of the collection at the link `pointer`. Only the first page is read: known
    /// machines have no more.
    pub(super) async fn members(
        &mut self,
        from: &RedfishResource,
        pointer: &str,
    ) -> Result<Vec<RedfishResource>, DriverError> {
        let Some(path) = from.link(pointer) else { return Ok(Vec::new()) };
        if let Some(query) = self.expand {
            let expanded = self.get(&format!("{path}?{query}")).await?;
            match expanded.map(|collection| expanded_members(&collection)) {
                Some(Some(members)) => return Ok(members),
                // The BMC announces $expand and does not implement it; do not try it again.
                Some(None) | None => self.expand = None,
            }
        }
        match self.read(path).await? {
            Some(collection) => self.linked(&collection, "/Members").await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns the resources that could not be read, with the reasons.
    pub(super) fn skipped(self) -> Vec<String> {
        self.skipped
    }

    /// Reads a resource. A 404 is recorded as skipped.
    pub(super) async fn read(
        &mut self,
        path: &str,
    ) -> Result<Option<RedfishResource>, DriverError> {
        let before = self.skipped.len();
        let found = self.get(path).await?;
        if found.is_none() && self.skipped.len() == before {
            self.skipped.push(format!("{path}: the BMC links to it and returns 404"));
        }
        Ok(found)
    }

    /// Reads a resource unless the request limit is reached. Returns `None` for a 404.
    async fn get(&mut self, path: &str) -> Result<Option<RedfishResource>, DriverError> {
        let Some(left) = self.requests_left.checked_sub(1) else {
            if self.skipped.last().is_none_or(|last| last != LIMIT_REACHED) {
                self.skipped.push(LIMIT_REACHED.to_owned());
            }
            return Ok(None);
        };
        self.requests_left = left;
        match self.bmc.client().get(path).await {
            Ok(resource) => Ok(Some(resource)),
            Err(redfish::RedfishError::NotFound { .. }) => Ok(None),
            Err(error) if self.is_fatal(&error) => Err(self.bmc.explain(error)),
            Err(error @ redfish::RedfishError::Unreachable { .. }) => {
                self.skipped.push(format!("{path}: {error}"));
                Ok(None)
            }
            Err(error) => {
                self.skipped.push(error.to_string());
                Ok(None)
            }
        }
    }

    /// Whether no further request can succeed after this error.
    fn is_fatal(&mut self, error: &redfish::RedfishError) -> bool {
        if matches!(error, redfish::RedfishError::Unreachable { .. }) {
            self.timeouts += 1;
            return self.timeouts > MAX_TIMEOUTS;
        }
        matches!(
            error,
            redfish::RedfishError::Certificate { .. }
                | redfish::RedfishError::Unauthorized { .. }
                | redfish::RedfishError::NoSession { .. }
                | redfish::RedfishError::Closed { .. }
        )
    }
}

/// The entry of the skipped list when the request limit is reached.
const LIMIT_REACHED: &str = "remaining resources: request limit reached";

/// Returns the `$expand` query that the service supports.
fn expand_query(root: &RedfishResource) -> Option<&'static str> {
    let supports = |what: &str| {
        root.flag(&format!("/ProtocolFeaturesSupported/ExpandQuery/{what}")) == Some(true)
    };
    if supports("NoLinks") {
        Some("$expand=.")
    } else if supports("ExpandAll") {
        Some("$expand=*")
    } else {
        None
    }
}

/// Returns the members of an expanded collection; `None` if the members are links or if there is
/// another page.
fn expanded_members(collection: &RedfishResource) -> Option<Vec<RedfishResource>> {
    if collection.at("Members@odata.nextLink").is_some() {
        return None;
    }
    let members = collection.list("/Members").iter();
    members
        .map(|member| {
            // A link has only @odata.id; a resource also has Id or @odata.type.
            let is_resource = member.get("Id").or_else(|| member.get("@odata.type")).is_some();
            let path = member.get("@odata.id").and_then(Value::as_str).filter(|_| is_resource)?;
            Some(RedfishResource { path: path.to_owned(), etag: None, body: member.clone() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(body: Value) -> RedfishResource {
        RedfishResource { path: "/x".to_owned(), etag: None, body }
    }

    #[test]
    fn expands_collections() {
        for (features, query) in [
            (json!({}), None),
            (json!({"ExpandQuery": {"NoLinks": true, "ExpandAll": true}}), Some("$expand=.")),
            (json!({"ExpandQuery": {"NoLinks": false, "ExpandAll": true}}), Some("$expand=*")),
            (json!({"ExpandQuery": {"Links": true}}), None),
        ] {
            let root = resource(json!({"ProtocolFeaturesSupported": features}));
            assert_eq!(expand_query(&root), query);
        }
        let expanded =
            json!({"Members": [{"@odata.id": "/a", "Id": "a"}, {"@odata.id": "/b", "Id": "b"}]});
        let paths: Vec<_> = expanded_members(&resource(expanded))
            .unwrap()
            .into_iter()
            .map(|member| member.path)
            .collect();
        assert_eq!(paths, ["/a", "/b"]);
        assert_eq!(expanded_members(&resource(json!({"Members": []}))), Some(Vec::new()));
        for not_expanded in [
            json!({"Members": [{"@odata.id": "/a"}]}),
            json!({"Members": [{"@odata.id": "/a", "Id": "a"}, {"@odata.id": "/b"}]}),
            json!({"Members": [{"@odata.id": "/a", "Id": "a"}], "Members@odata.nextLink": "/n"}),
        ] {
            assert_eq!(expanded_members(&resource(not_expanded)), None);
        }
    }
}
