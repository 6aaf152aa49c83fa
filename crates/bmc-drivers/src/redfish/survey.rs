// SPDX-License-Identifier: Apache-2.0
//! Looking at much of a BMC with few requests.
//!
//! A survey reads what is there; what cannot be read is noted and left out. It asks for whole
//! collections at once where the BMC offers that, and never makes more requests than it may.

use redfish::Resource;
use serde_json::Value;

use super::bmc::Bmc;
use crate::Error;

/// How many requests may go unanswered before the BMC counts as gone. Some hang on one resource
/// and answer for all others.
const MOST_SILENCES: usize = 1;

/// A look at many resources of one BMC.
pub(super) struct Survey<'a> {
    bmc: &'a Bmc,
    /// The query that makes the BMC send a collection with its members.
    expand: Option<&'static str>,
    requests_left: usize,
    silences: usize,
    missed: Vec<String>,
}

impl<'a> Survey<'a> {
    /// A survey of at most `requests` requests, of the service with this root.
    pub(super) fn new(bmc: &'a Bmc, root: &Resource, requests: usize) -> Self {
        Self {
            bmc,
            expand: expand_query(root),
            requests_left: requests,
            silences: 0,
            missed: Vec::new(),
        }
    }

    /// What a resource links to, if it does.
    pub(super) async fn follow(
        &mut self,
        from: &Resource,
        pointer: &str,
    ) -> Result<Option<Resource>, Error> {
        match from.link(pointer) {
            Some(path) => self.read(path).await,
            None => Ok(None),
        }
    }

    /// All resources of a list of links.
    pub(super) async fn linked(
        &mut self,
        from: &Resource,
        pointer: &str,
    ) -> Result<Vec<Resource>, Error> {
        let mut found = Vec::new();
        for path in from.links(pointer) {
            found.extend(self.read(path).await?);
        }
        Ok(found)
    }

    /// The members of a collection that a resource links to. Only the first page counts: what we
    /// look at has no more in any machine we know.
    pub(super) async fn members(
        &mut self,
        from: &Resource,
        pointer: &str,
    ) -> Result<Vec<Resource>, Error> {
        let Some(path) = from.link(pointer) else { return Ok(Vec::new()) };
        if let Some(query) = self.expand {
            let whole = self.ask(&format!("{path}?{query}")).await?;
            match whole.map(|collection| expanded(&collection)) {
                Some(Some(members)) => return Ok(members),
                // It offers this and does not do it; it need not be asked again.
                Some(None) | None => self.expand = None,
            }
        }
        match self.read(path).await? {
            Some(collection) => self.linked(&collection, "/Members").await,
            None => Ok(Vec::new()),
        }
    }

    /// What could not be read, and why.
    pub(super) fn missed(self) -> Vec<String> {
        self.missed
    }

    /// A resource, if there is one.
    pub(super) async fn read(&mut self, path: &str) -> Result<Option<Resource>, Error> {
        let before = self.missed.len();
        let found = self.ask(path).await?;
        if found.is_none() && self.missed.len() == before {
            self.missed.push(format!("the BMC links to {path} and has no such thing"));
        }
        Ok(found)
    }

    /// Asks for a resource, unless there have been enough requests.
    async fn ask(&mut self, path: &str) -> Result<Option<Resource>, Error> {
        let Some(left) = self.requests_left.checked_sub(1) else {
            if self.missed.last().is_none_or(|last| last != TOO_MANY) {
                self.missed.push(TOO_MANY.to_owned());
            }
            return Ok(None);
        };
        self.requests_left = left;
        match self.bmc.client().get(path).await {
            Ok(resource) => Ok(Some(resource)),
            Err(redfish::Error::NotFound { .. }) => Ok(None),
            Err(error) if self.ends_with(&error) => Err(self.bmc.explain(error)),
            Err(error @ redfish::Error::Unreachable { .. }) => {
                self.missed.push(format!("{path}: {error}"));
                Ok(None)
            }
            Err(error) => {
                self.missed.push(error.to_string());
                Ok(None)
            }
        }
    }

    /// Whether it makes no sense to go on after this error.
    fn ends_with(&mut self, error: &redfish::Error) -> bool {
        if matches!(error, redfish::Error::Unreachable { .. }) {
            self.silences += 1;
            return self.silences > MOST_SILENCES;
        }
        matches!(
            error,
            redfish::Error::Certificate { .. }
                | redfish::Error::Unauthorized { .. }
                | redfish::Error::NoSession { .. }
                | redfish::Error::Closed { .. }
        )
    }
}

/// The note that a survey was cut short.
const TOO_MANY: &str = "the rest: it would take too many requests";

/// The query by which this service sends collections with their members, if it can.
fn expand_query(root: &Resource) -> Option<&'static str> {
    let offers = |what: &str| {
        root.flag(&format!("/ProtocolFeaturesSupported/ExpandQuery/{what}")) == Some(true)
    };
    if offers("NoLinks") {
        Some("$expand=.")
    } else if offers("ExpandAll") {
        Some("$expand=*")
    } else {
        None
    }
}

/// The members of a collection that came with them; none if they are links as usual, or if not
/// all are on this page.
fn expanded(collection: &Resource) -> Option<Vec<Resource>> {
    if collection.at("Members@odata.nextLink").is_some() {
        return None;
    }
    let members = collection.list("/Members").iter();
    members
        .map(|member| {
            // A link has one key; a resource says at least what it is.
            let is_whole = member.get("Id").or_else(|| member.get("@odata.type")).is_some();
            let path = member.get("@odata.id").and_then(Value::as_str).filter(|_| is_whole)?;
            Some(Resource { path: path.to_owned(), etag: None, body: member.clone() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource(body: Value) -> Resource {
        Resource { path: "/x".to_owned(), etag: None, body }
    }

    #[test]
    fn whole_collections() {
        for (features, query) in [
            (json!({}), None),
            (json!({"ExpandQuery": {"NoLinks": true, "ExpandAll": true}}), Some("$expand=.")),
            (json!({"ExpandQuery": {"NoLinks": false, "ExpandAll": true}}), Some("$expand=*")),
            (json!({"ExpandQuery": {"Links": true}}), None),
        ] {
            let root = resource(json!({"ProtocolFeaturesSupported": features}));
            assert_eq!(expand_query(&root), query);
        }
        let whole =
            json!({"Members": [{"@odata.id": "/a", "Id": "a"}, {"@odata.id": "/b", "Id": "b"}]});
        let paths: Vec<_> =
            expanded(&resource(whole)).unwrap().into_iter().map(|member| member.path).collect();
        assert_eq!(paths, ["/a", "/b"]);
        assert_eq!(expanded(&resource(json!({"Members": []}))), Some(Vec::new()));
        for not_whole in [
            json!({"Members": [{"@odata.id": "/a"}]}),
            json!({"Members": [{"@odata.id": "/a", "Id": "a"}, {"@odata.id": "/b"}]}),
            json!({"Members": [{"@odata.id": "/a", "Id": "a"}], "Members@odata.nextLink": "/n"}),
        ] {
            assert_eq!(expanded(&resource(not_whole)), None);
        }
    }
}
