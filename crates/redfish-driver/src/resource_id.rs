// SPDX-License-Identifier: Apache-2.0
//! The id of a resource.

use redfish::{RedfishResource, last_segment};

/// Returns the `Id` of a resource, or the last segment of its path if it has none.
pub(super) fn id(resource: &RedfishResource) -> &str {
    let id = resource.text("/Id").filter(|id| !id.is_empty());
    id.unwrap_or_else(|| last_segment(&resource.path))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn ids() {
        let resource =
            |body: Value| RedfishResource { path: "/redfish/v1/x/7/".to_owned(), etag: None, body };
        for (body, expected) in
            [(json!({"Id": "A"}), "A"), (json!({"Id": ""}), "7"), (json!({}), "7")]
        {
            assert_eq!(id(&resource(body)), expected);
        }
    }
}
