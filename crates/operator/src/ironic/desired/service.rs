// SPDX-License-Identifier: Apache-2.0
//! The Service, Ingress and ServiceMonitor of an installation.

use kube_resources::ironic::defaults::{IronicPorts, enabled_exporter};
use kube_resources::ironic::names::IRONIC_LABEL;
use serde_json::{Value, json};

use super::DesiredInput;
use super::configuration::INGRESS_IMAGE_PATH;
use super::metadata::{object, object_names, selector};
use super::pod::{API_PORT_NAME, IMAGE_PORT_NAME, IMAGE_TLS_PORT_NAME, METRICS_PORT_NAME};

/// The Service of the API, the image server and metrics.
pub(super) fn service(input: &DesiredInput<'_>) -> Value {
    let spec = &input.ironic.spec;
    let port = |name: &str, port: u16, target: &str| json!({"name": name, "port": port, "targetPort": target, "protocol": "TCP"});
    let api_port = if spec.has_tls() { 443 } else { 80 };
    let mut ports = vec![port(API_PORT_NAME, api_port, API_PORT_NAME)];
    // Clients of replicas use the address of the node, unless there is an Ingress.
    if !spec.high_availability || spec.networking.ingress.is_some() {
        ports.push(match has_media_tls(input) {
            true => port(IMAGE_TLS_PORT_NAME, 8443, IMAGE_TLS_PORT_NAME),
            false => port(IMAGE_PORT_NAME, 8080, IMAGE_PORT_NAME),
        });
    }
    if input.has_exporter() {
        let metrics = IronicPorts::of(&spec.networking).metrics;
        ports.push(port(METRICS_PORT_NAME, metrics, METRICS_PORT_NAME));
    }
    let mut service = object(input, "v1", "Service", &object_names(input.ironic).service);
    service["spec"] = json!({"type": "ClusterIP", "selector": selector(input), "ports": ports});
    service
}

/// Whether virtual media is served with TLS.
fn has_media_tls(input: &DesiredInput<'_>) -> bool {
    let spec = &input.ironic.spec;
    spec.has_tls() && !spec.tls.disable_virtual_media_tls
}

/// The Ingress, if one is requested.
pub(super) fn ingress(input: &DesiredInput<'_>) -> Option<Value> {
    let settings = input.ironic.spec.networking.ingress.as_ref()?;
    let names = object_names(input.ironic);
    let images = if has_media_tls(input) { IMAGE_TLS_PORT_NAME } else { IMAGE_PORT_NAME };
    let path = |path: &str, port: &str| {
        json!({
            "path": path,
            "pathType": "ImplementationSpecific",
            "backend": {"service": {"name": names.service, "port": {"name": port}}},
        })
    };
    let mut rule = json!({"http": {"paths": [
        path("/", API_PORT_NAME), path(INGRESS_IMAGE_PATH, images),
    ]}});
    let mut tls = json!({"secretName": names.ingress_certificate});
    if let Some(host) = &settings.host {
        rule["host"] = json!(host);
        tls["hosts"] = json!([host]);
    }
    let mut ingress = object(input, "networking.k8s.io/v1", "Ingress", &names.service);
    if !settings.annotations.is_empty() {
        ingress["metadata"]["annotations"] = json!(settings.annotations);
    }
    ingress["spec"] = json!({"rules": [rule], "tls": [tls]});
    if let Some(class) = &settings.ingress_class_name {
        ingress["spec"]["ingressClassName"] = json!(class);
    }
    Some(ingress)
}

/// The ServiceMonitor, if metrics are enabled and the cluster has the kind.
pub(super) fn service_monitor(input: &DesiredInput<'_>) -> Option<Value> {
    let exporter = enabled_exporter(&input.ironic.spec)?;
    if exporter.disable_service_monitor || !input.facts.has_service_monitors {
        return None;
    }
    let names = object_names(input.ironic);
    let endpoint = json!({"port": METRICS_PORT_NAME, "path": "/metrics", "scheme": "http"});
    let mut monitor =
        object(input, "monitoring.coreos.com/v1", "ServiceMonitor", &names.service_monitor);
    monitor["spec"] = json!({
        "endpoints": [endpoint],
        "selector": {"matchLabels": {IRONIC_LABEL: names.service}},
    });
    Some(monitor)
}
