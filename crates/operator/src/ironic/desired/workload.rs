// SPDX-License-Identifier: Apache-2.0
//! The Deployment or DaemonSet of an installation.

use kube_resources::ironic::names::{SCHEMA_JOB, TLS_SECRET_VERSION};
use serde_json::{Map, Value, json};

use super::DesiredInput;
use super::metadata::{object, object_names, selector};
use super::pod::PodTemplate;

/// The workload. `schema_job` identifies the Job that changed the database
/// schema for it.
pub(super) fn workload(
    input: &DesiredInput<'_>,
    template: &PodTemplate,
    schema_job: Option<&str>,
) -> Value {
    let is_replicated = input.ironic.spec.high_availability;
    let kind = if is_replicated { "DaemonSet" } else { "Deployment" };
    let mut workload = object(input, "apps/v1", kind, &object_names(input.ironic).workload);
    let mut annotations = Map::new();
    // Not on pods: the service reads a changed certificate without a restart.
    if let Some(certificate) = &input.facts.certificate {
        annotations.insert(TLS_SECRET_VERSION.to_owned(), json!(certificate.hash));
    }
    if let Some(job) = schema_job {
        annotations.insert(SCHEMA_JOB.to_owned(), json!(job));
    }
    if !annotations.is_empty() {
        workload["metadata"]["annotations"] = Value::Object(annotations);
    }
    let mut spec = json!({
        "selector": {"matchLabels": selector(input)},
        "template": {"metadata": template.metadata, "spec": template.spec},
    });
    if is_replicated {
        spec["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}});
    } else {
        // Two pods cannot use the same ports, volume and DHCP range.
        spec["replicas"] = json!(1);
        spec["strategy"] = json!({"type": "Recreate"});
    }
    workload["spec"] = spec;
    workload
}
