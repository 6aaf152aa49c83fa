// SPDX-License-Identifier: Apache-2.0
//! `BMCEventSubscription`: events of a BMC that are sent to a URL.

use k8s_openapi::api::core::v1::SecretReference;
use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::non_empty;

namespaced_kind! {
    /// A subscription to the events of a BMC.
    pub struct BMCEventSubscription in "metal3.io" / "v1alpha1", plural "bmceventsubscriptions" {
        spec: BmcEventSubscriptionSpec,
        status: BmcEventSubscriptionStatus,
    }
}

/// The requested subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BmcEventSubscriptionSpec {
    /// Name of the host.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub host_name: Option<String>,
    /// URL that receives the events.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub destination: Option<String>,
    /// Text that the BMC adds to each event.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub context: Option<String>,
    /// Secret with HTTP headers that the BMC sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_headers_ref: Option<SecretReference>,
}

/// The observed subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BmcEventSubscriptionStatus {
    /// Identifier on the BMC.
    #[serde(
        rename = "subscriptionID",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub subscription_id: Option<String>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub error: Option<String>,
}
