// SPDX-License-Identifier: Apache-2.0
//! What a resource is called.

use redfish::{Resource, last_segment};

/// What the BMC calls a resource among others of its kind: its id, or else the end of its path.
pub(super) fn id(resource: &Resource) -> &str {
    let told = resource.text("/Id").filter(|id| !id.is_empty());
    told.unwrap_or_else(|| last_segment(&resource.path))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn ids() {
        let resource =
            |body: Value| Resource { path: "/redfish/v1/x/7/".to_owned(), etag: None, body };
        for (body, expected) in
            [(json!({"Id": "A"}), "A"), (json!({"Id": ""}), "7"), (json!({}), "7")]
        {
            assert_eq!(id(&resource(body)), expected);
        }
    }
}
