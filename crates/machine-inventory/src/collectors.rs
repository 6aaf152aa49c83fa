// SPDX-License-Identifier: Apache-2.0
//! The collectors that read nothing but sysfs: PCI and USB devices and the NUMA topology, with the keys
//! and shapes of the stock agent's.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::tree::Tree;

/// Every PCI device with its numbers in hexadecimal without `0x`. The NUMA node is text.
pub(crate) fn pci_devices(tree: &Tree) -> Value {
    let folder = "sys/bus/pci/devices";
    let mut addresses = tree.names(folder);
    addresses.sort();
    let devices = addresses.into_iter().filter_map(|bus| {
        let text = |name: &str| tree.text(format!("{folder}/{bus}/{name}"));
        let hexadecimal = |name: &str| Some(text(name)?.split_once('x')?.1.to_owned());
        Some(json!({
            "vendor_id": hexadecimal("vendor")?,
            "product_id": hexadecimal("device")?,
            "class": hexadecimal("class")?,
            "revision": hexadecimal("revision"),
            "numa_node_id": text("numa_node"),
            "bus": bus,
        }))
    });
    Value::Array(devices.collect())
}

/// Every USB device that is not a hub. The stock agent lists those which `lshw` files under `usb` and
/// calls generic, which leaves out keyboards and disks by chance; ours lists them.
pub(crate) fn usb_devices(tree: &Tree) -> Value {
    const HUB: &str = "09";
    let folder = "sys/bus/usb/devices";
    let devices = tree.names(folder).into_iter().filter_map(|name| {
        let text = |attribute: &str| tree.text(format!("{folder}/{name}/{attribute}"));
        // Interfaces of devices are in the same folder and have no such attribute.
        let class = text("bDeviceClass")?;
        let (bus, number) = (text("busnum")?, text("devnum")?);
        (class != HUB).then(|| {
            json!({
                "product": text("product").unwrap_or_default(),
                "vendor": text("manufacturer").unwrap_or_default(),
                "handle": format!("USB:{bus}:{number}"),
            })
        })
    });
    Value::Array(devices.collect())
}

/// Memory, processors and cards by NUMA node. Nothing if any of it cannot be read: half a topology
/// would mislead a scheduler.
pub(crate) fn numa_topology(tree: &Tree) -> Option<Value> {
    let folder = "sys/devices/system/node";
    if !tree.is_folder(folder) {
        return None;
    }
    let names = tree.names(folder);
    let nodes: Vec<(u32, String)> = names
        .iter()
        .filter_map(|name| {
            Some((name.strip_prefix("node")?.parse().ok()?, format!("{folder}/{name}")))
        })
        .collect();

    let mut ram = Vec::new();
    let mut cpus: BTreeMap<(u32, i64), Vec<u32>> = BTreeMap::new();
    for (node, folder) in &nodes {
        let info = tree.text(format!("{folder}/meminfo"))?;
        let total = info.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
        let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
        ram.push(json!({"numa_node": node, "size_kb": kibibytes}));
        for name in tree.names(folder) {
            let Some(Ok(thread)) = name.strip_prefix("cpu").map(str::parse::<u32>) else {
                continue;
            };
            let core = tree.number(format!("{folder}/{name}/topology/core_id"))?;
            cpus.entry((*node, core)).or_default().push(thread);
        }
    }
    let cpus: Vec<Value> = cpus
        .into_iter()
        .map(|((node, core), threads)| {
            json!({"cpu": core, "numa_node": node, "thread_siblings": threads})
        })
        .collect();
    let nics: Vec<Value> = tree
        .names("sys/class/net")
        .into_iter()
        .filter_map(|name| {
            let node: i64 = tree.number(format!("sys/class/net/{name}/device/numa_node"))?;
            Some(json!({"name": name, "numa_node": node}))
        })
        .collect();
    Some(json!({"ram": ram, "cpus": cpus, "nics": nics}))
}
