// SPDX-License-Identifier: Apache-2.0
//! Warns about namespaces of the options that do not exist.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use tracing::{debug, warn};

/// Logs a warning for each namespace that does not exist. It may be created later, so this is no error.
/// Namespaces that this process may not read are not checked.
pub async fn warn_about_missing(client: Client, names: BTreeSet<String>) {
    for namespace in names {
        match is_missing(&client, &namespace).await {
            Ok(true) => warn!(
                namespace,
                "namespace does not exist; create it, or correct the option that names it"
            ),
            Ok(false) => {}
            // The controllers report an API server that cannot be reached.
            Err(error) => debug!(namespace, %error, "namespace could not be checked"),
        }
    }
}

async fn is_missing(client: &Client, name: &str) -> kube::Result<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some("get".to_owned()),
                resource: Some("namespaces".to_owned()),
                name: Some(name.to_owned()),
                namespace: Some(name.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &review).await?;
    if !review.status.is_some_and(|status| status.allowed) {
        return Ok(false);
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    Ok(namespaces.get_opt(name).await?.is_none())
}
