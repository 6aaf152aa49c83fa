// SPDX-License-Identifier: Apache-2.0
//! Collectors that read only sysfs: PCI devices, USB devices and NUMA topology, with the keys and
//! shapes of IPA.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kernel_files::KernelFiles;

/// Returns all PCI devices. IDs are hex_id without `0x`; the NUMA node is a string.
pub(crate) fn pci_devices(files: &KernelFiles) -> Value {
    let directory = "sys/bus/pci/devices";
    let mut addresses = files.file_names(directory);
    addresses.sort();
    let devices = addresses.into_iter().filter_map(|bus| {
        let text = |name: &str| files.text(format!("{directory}/{bus}/{name}"));
        let hex_id = |name: &str| Some(text(name)?.split_once('x')?.1.to_owned());
        Some(json!({
            "vendor_id": hex_id("vendor")?,
            "product_id": hex_id("device")?,
            "class": hex_id("class")?,
            "revision": hex_id("revision"),
            "numa_node_id": text("numa_node"),
            "bus": bus,
        }))
    });
    Value::Array(devices.collect())
}

/// Returns all USB devices except hubs. IPA lists what `lshw` puts under `usb` as generic, which omits
/// keyboards and disks by accident; they are included here.
pub(crate) fn usb_devices(files: &KernelFiles) -> Value {
    const HUB: &str = "09";
    let directory = "sys/bus/usb/devices";
    let devices = files.file_names(directory).into_iter().filter_map(|name| {
        let text = |attribute: &str| files.text(format!("{directory}/{name}/{attribute}"));
        // USB interfaces are in the same directory and lack this attribute.
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

/// Returns memory, processors and NICs by NUMA node. `None` if any part is unreadable, because a
/// partial topology would mislead a scheduler.
pub(crate) fn numa_topology(files: &KernelFiles) -> Option<Value> {
    let directory = "sys/devices/system/node";
    if !files.is_directory(directory) {
        return None;
    }
    let names = files.file_names(directory);
    let nodes: Vec<(u32, String)> = names
        .iter()
        .filter_map(|name| {
            Some((name.strip_prefix("node")?.parse().ok()?, format!("{directory}/{name}")))
        })
        .collect();

    let mut ram = Vec::new();
    let mut cpus: BTreeMap<(u32, i64), Vec<u32>> = BTreeMap::new();
    for (node, directory) in &nodes {
        let info = files.text(format!("{directory}/meminfo"))?;
        let total = info.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
        let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
        ram.push(json!({"numa_node": node, "size_kb": kibibytes}));
        for name in files.file_names(directory) {
            let Some(Ok(thread)) = name.strip_prefix("cpu").map(str::parse::<u32>) else {
                continue;
            };
            let core = files.number(format!("{directory}/{name}/topology/core_id"))?;
            cpus.entry((*node, core)).or_default().push(thread);
        }
    }
    let cpus: Vec<Value> = cpus
        .into_iter()
        .map(|((node, core), threads)| {
            json!({"cpu": core, "numa_node": node, "thread_siblings": threads})
        })
        .collect();
    let nics: Vec<Value> = files
        .file_names("sys/class/net")
        .into_iter()
        .filter_map(|name| {
            let node: i64 = files.number(format!("sys/class/net/{name}/device/numa_node"))?;
            Some(json!({"name": name, "numa_node": node}))
        })
        .collect();
    Some(json!({"ram": ram, "cpus": cpus, "nics": nics}))
}
