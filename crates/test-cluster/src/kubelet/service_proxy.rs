// SPDX-License-Identifier: Apache-2.0
//! Connects the addresses of Services with ready pods, and gives Services names in `/etc/hosts`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::KubeletContext;

/// Before the next attempt to use an address.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServicePort {
    namespace: String,
    service: String,
    /// Empty if it has none.
    port: String,
}

/// Follows the Services for ever.
pub(super) async fn run(context: Arc<KubeletContext>) {
    let mut changed = context.contents.routes_changed();
    let mut listeners: BTreeMap<(SocketAddr, ServicePort), AbortHandle> = BTreeMap::new();
    let mut written = String::new();
    loop {
        let services = context.contents.services();
        let wanted: BTreeSet<(SocketAddr, ServicePort)> =
            services.iter().flat_map(|service| addresses(service)).collect();
        listeners.retain(|key, task| {
            let is_kept = wanted.contains(key) && !task.is_finished();
            if !is_kept {
                task.abort();
            }
            is_kept
        });
        let mut is_complete = true;
        for key in wanted {
            let Entry::Vacant(free) = listeners.entry(key) else { continue };
            let (address, port) = free.key().clone();
            match TcpListener::bind(address).await {
                Ok(listener) => {
                    let task = tokio::spawn(serve(Arc::clone(&context), listener, port));
                    free.insert(task.abort_handle());
                }
                // The address may still belong to a Service that is just being deleted.
                Err(_) => is_complete = false,
            }
        }
        let text = hosts(&services, &context.contents.endpoints());
        if text != written && overwrite(&context.hosts_file(), &text).is_ok() {
            written = text;
        }
        if !is_complete {
            tokio::time::sleep(RETRY_INTERVAL).await;
            continue;
        }
        if changed.changed().await.is_err() {
            return;
        }
    }
}

/// Writes a file that containers have mounted. It is never empty in between.
fn overwrite(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// The addresses of a Service with its own address.
fn addresses(service: &Service) -> Vec<(SocketAddr, ServicePort)> {
    let spec = service.spec.clone().unwrap_or_default();
    let Some(address) = spec.cluster_ip.and_then(|text| text.parse::<IpAddr>().ok()) else {
        return Vec::new();
    };
    let ports = spec.ports.into_iter().flatten();
    ports
        .filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP")
        .filter_map(|port| {
            let number = u16::try_from(port.port).ok()?;
            let key = ServicePort {
                namespace: service.namespace().unwrap_or_default(),
                service: service.name_any(),
                port: port.name.unwrap_or_default(),
            };
            Some((SocketAddr::new(address, number), key))
        })
        .collect()
}

async fn serve(context: Arc<KubeletContext>, listener: TcpListener, port: ServicePort) {
    let next = AtomicUsize::new(0);
    while let Ok((mut incoming, _)) = listener.accept().await {
        let ready = ready_endpoints(&context.contents.endpoints(), &port);
        let turn = next.fetch_add(1, Ordering::Relaxed);
        // Without a ready pod the connection is closed.
        let Some(target) = ready.get(turn % ready.len().max(1)).copied() else { continue };
        tokio::spawn(async move {
            if let Ok(mut outgoing) = TcpStream::connect(target).await {
                let _either_side_ended = copy_bidirectional(&mut incoming, &mut outgoing).await;
            }
        });
    }
}

fn ready_endpoints(slices: &[Arc<EndpointSlice>], port: &ServicePort) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for slice in slices_of(slices, &port.namespace, &port.service) {
        let named = slice
            .ports
            .iter()
            .flatten()
            .find(|candidate| candidate.name.as_deref().unwrap_or_default() == port.port);
        let Some(number) = named.and_then(|named| u16::try_from(named.port?).ok()) else {
            continue;
        };
        found.extend(ready_addresses(slice).map(|address| SocketAddr::new(address, number)));
    }
    found
}

fn slices_of<'a>(
    slices: &'a [Arc<EndpointSlice>],
    namespace: &'a str,
    service: &'a str,
) -> impl Iterator<Item = &'a EndpointSlice> {
    slices.iter().map(AsRef::as_ref).filter(move |slice: &&EndpointSlice| {
        slice.namespace().as_deref() == Some(namespace)
            && slice.labels().get(SERVICE_LABEL).map(String::as_str) == Some(service)
    })
}

fn ready_addresses(slice: &EndpointSlice) -> impl Iterator<Item = IpAddr> {
    let ready = slice.endpoints.iter().filter(|endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    });
    ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|text| text.parse().ok())
}

/// The content of `/etc/hosts`: a name for each Service, or for its pods if it has no address.
fn hosts(services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    let mut lines = BTreeSet::new();
    for service in services {
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
        let address = address.and_then(|text| text.parse::<IpAddr>().ok());
        let addresses: Vec<IpAddr> = match address {
            Some(address) => vec![address],
            None => slices_of(slices, &namespace, &name).flat_map(ready_addresses).collect(),
        };
        lines.extend(addresses.into_iter().map(|address| {
            format!("{address} {name}.{namespace}.svc {name}.{namespace}.svc.cluster.local {name}.{namespace}")
        }));
    }
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}
