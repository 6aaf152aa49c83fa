// SPDX-License-Identifier: Apache-2.0
//! What a ValidatingWebhookConfiguration requires of the certificate, and what it has to contain. No IO.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use serde_json::{Value, json};
use server_tls::{CertificateNames, url_host};

/// The names by which the API server calls the webhooks.
pub(super) fn called_names(configuration: &ValidatingWebhookConfiguration) -> CertificateNames {
    let mut names = CertificateNames::default();
    for webhook in configuration.webhooks.iter().flatten() {
        let client = &webhook.client_config;
        let host = match (&client.service, &client.url) {
            (Some(service), _) => Some(format!("{}.{}.svc", service.name, service.namespace)),
            (None, Some(url)) => url_host(url).map(str::to_owned),
            (None, None) => None,
        };
        // The API server rejects services and URLs that are no host names.
        let _ = host.map(|host| names.add_host(&host));
    }
    names
}

/// The strategic merge patch that sets `caBundle` where it differs; `None` if nothing differs.
pub(super) fn bundle_patch(
    configuration: &ValidatingWebhookConfiguration,
    bundle: &str,
) -> Option<Value> {
    let webhooks: Vec<Value> = configuration
        .webhooks
        .iter()
        .flatten()
        .filter(|webhook| {
            let current = webhook.client_config.ca_bundle.as_ref();
            current.is_none_or(|current| current.0 != bundle.as_bytes())
        })
        .map(|webhook| {
            json!({"name": webhook.name, "clientConfig": {"caBundle": STANDARD.encode(bundle)}})
        })
        .collect();
    let resource_version = &configuration.metadata.resource_version;
    (!webhooks.is_empty())
        .then(|| json!({"metadata": {"resourceVersion": resource_version}, "webhooks": webhooks}))
}
