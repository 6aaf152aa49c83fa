// SPDX-License-Identifier: Apache-2.0
//! The machine model under which boot statistics are stored.

use node_model::Node;
use serde_json::Value;

/// Longest stored model, in characters; no vendor uses more.
const MAX_MODEL_CHARS: usize = 200;

/// The model for boot statistics: vendor and model that the BMC reports, or else the node's `vendor`
/// property. `None` if neither is set.
#[must_use]
pub fn boot_model(node: &Node) -> Option<String> {
    let probed = node.driver_internal_info.get("bmc").unwrap_or_default();
    let text = |key: &str| probed.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    // IPMI reports the model as a number.
    let product = probed.get("product_id").map(|number| format!("product {number}"));
    let model = text("model").map(str::to_owned).or(product);
    let name = match (text("vendor"), model) {
        (Some(vendor), Some(model)) => format!("{vendor} {model}"),
        (Some(vendor), None) => vendor.to_owned(),
        (None, Some(model)) if text("model").is_some() => model,
        (None, Some(_) | None) => {
            node.properties.get_str("vendor").filter(|vendor| !vendor.is_empty())?
        }
    };
    Some(name.chars().take(MAX_MODEL_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use node_model::{NodeId, Timestamp};
    use serde_json::json;

    use super::*;

    #[test]
    fn boot_model_from_bmc_info_or_vendor_property() {
        let long = "x".repeat(500);
        for (bmc, vendor, expected) in [
            (json!({"vendor": "HPE", "model": "DL380"}), "given", Some("HPE DL380")),
            (json!({"vendor": "HPE", "model": null}), "given", Some("HPE")),
            (json!({"vendor": null, "model": "DL380"}), "given", Some("DL380")),
            (json!({"vendor": "dell inc.", "product_id": 256}), "", Some("dell inc. product 256")),
            (json!({"vendor": null, "product_id": 256}), "given", Some("given")),
            (json!(null), "given", Some("given")),
            (json!(null), "", None),
            (json!({"model": long.clone()}), "", Some(&long[..MAX_MODEL_CHARS])),
        ] {
            let mut node = Node::new(NodeId::random(), "redfish", Timestamp(0));
            node.driver_internal_info.set("bmc", bmc.clone());
            node.properties.set("vendor", vendor);
            assert_eq!(boot_model(&node).as_deref(), expected, "{bmc} {vendor}");
        }
    }
}
