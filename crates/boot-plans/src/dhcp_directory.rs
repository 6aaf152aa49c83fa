// SPDX-License-Identifier: Apache-2.0
//! Looks up boot plans for the DHCP servers and converts them to boot instructions.
//!
//! All machines of a batch of packets are read in one transaction. Results are cached for one second, so
//! that the four packets of one DHCP exchange cost one database read.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use boot_server::{
    BootDirectory, BootInstructions, BootLookupError, BootRequest, BootSnapshot, BootStage,
    FirmwareArchitecture, HardwareAddress, Netboot, NetbootTarget,
};
use drivers::DriverTarget;
use node_model::{BootMethod, BootPlan, BootPort, BootSystem, Mac};

use crate::loaders::BootLoaders;
use crate::plan_files::PlanFile;
use crate::scripts::hyphenated;
use crate::services::BootServices;

/// How long a lookup is cached.
const CACHE_TIME: Duration = Duration::from_secs(1);

/// The cached lookup of one hardware address.
pub(crate) struct CachedBootPort {
    valid_until: Instant,
    /// `None` if no port has the MAC address.
    port: Option<Arc<BootPort>>,
}

/// The boot directory of a DHCP server.
#[derive(Debug)]
pub struct DhcpBootDirectory {
    services: BootServices,
    /// The URL of the file service, by the interface on which a request is received.
    files: Arc<HashMap<String, String>>,
}

/// The boot plans of the machines of one lookup.
struct DhcpBootSnapshot {
    services: BootServices,
    files: Arc<HashMap<String, String>>,
    /// The looked up machines. Hardware addresses that are not Ethernet MACs are missing.
    ports: HashMap<HardwareAddress, Option<Arc<BootPort>>>,
}

/// What UEFI HTTP boot loads for a boot plan.
enum HttpFirstStage {
    /// The boot method of the plan is not the one that the firmware tries, so it gets no boot file and
    /// continues with its next boot option.
    OtherMethod,
    /// The plan has no file for HTTP boot.
    NoFile,
    /// This URL.
    Url(Arc<str>),
}

impl BootServices {
    /// Returns the boot directory for a DHCP server. `files` has the URL of the file service by interface;
    /// machines on other interfaces get the default URL.
    #[must_use]
    pub fn dhcp_directory(&self, files: HashMap<String, String>) -> DhcpBootDirectory {
        DhcpBootDirectory { services: self.clone(), files: Arc::new(files) }
    }
}

#[async_trait]
impl BootDirectory for DhcpBootDirectory {
    async fn look_up(
        &self,
        machines: &[HardwareAddress],
    ) -> Result<Box<dyn BootSnapshot>, BootLookupError> {
        let ports = self.services.look_up(machines).await?;
        let (services, files) = (self.services.clone(), self.files.clone());
        Ok(Box::new(DhcpBootSnapshot { services, files, ports }))
    }
}

impl BootSnapshot for DhcpBootSnapshot {
    fn instructions(&self, request: &BootRequest<'_>) -> BootInstructions {
        let services = &self.services;
        let files = match self.files.get(request.interface) {
            Some(files) if services.0.settings.http_url.is_none() => files.clone(),
            Some(_) | None => services.0.service_urls().files,
        };
        match self.ports.get(&request.hardware) {
            // Not an Ethernet address: such a NIC cannot be enrolled, and no script is named after it.
            None => BootInstructions::default(),
            Some(None) => BootInstructions {
                boot: services.discovery_target(request, &files),
                ..BootInstructions::default()
            },
            Some(Some(port)) => BootInstructions {
                is_known: true,
                is_booting: services.valid_plan(port).is_some(),
                boot: services.netboot_target(port, request, &files),
                host_name: port.node_name.as_deref().map(Arc::from),
            },
        }
    }
}

impl BootServices {
    async fn look_up(
        &self,
        machines: &[HardwareAddress],
    ) -> Result<HashMap<HardwareAddress, Option<Arc<BootPort>>>, BootLookupError> {
        let now = Instant::now();
        let mut ports = HashMap::new();
        let mut missing: Vec<(HardwareAddress, Mac)> = Vec::new();
        {
            let cache = self.0.cached_ports.lock().unwrap_or_else(PoisonError::into_inner);
            for machine in machines {
                match cache.get(machine) {
                    Some(cached) if now < cached.valid_until => {
                        ports.insert(*machine, cached.port.clone());
                    }
                    Some(_) | None => {
                        missing.extend(ethernet_mac(*machine).map(|mac| (*machine, mac)))
                    }
                }
            }
        }
        if missing.is_empty() {
            return Ok(ports);
        }
        let macs: Vec<Mac> = missing.iter().map(|(_, mac)| mac.clone()).collect();
        let found = self.0.store.read(move |reader| reader.boot_ports(&macs)).await;
        let found = found.map_err(BootLookupError::new)?;
        let mut found: HashMap<Mac, Arc<BootPort>> =
            found.into_iter().map(|port| (port.mac.clone(), Arc::new(port))).collect();
        let mut cache = self.0.cached_ports.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|_, cached| now < cached.valid_until);
        for (machine, mac) in missing {
            let port = found.remove(&mac);
            ports.insert(machine, port.clone());
            cache.insert(machine, CachedBootPort { valid_until: now + CACHE_TIME, port });
        }
        Ok(ports)
    }

    /// Removes the cached lookups of a node whose boot plan changed.
    pub(crate) fn invalidate_cached_ports(&self, target: &DriverTarget<'_>) {
        let mut cache = self.0.cached_ports.lock().unwrap_or_else(PoisonError::into_inner);
        cache.retain(|_, cached| {
            cached.port.as_ref().is_none_or(|port| port.node_id != target.node.id)
        });
    }

    fn valid_plan<'a>(&self, port: &'a BootPort) -> Option<&'a BootPlan> {
        port.plan.as_ref().filter(|plan| plan.is_valid(self.0.now()))
    }

    fn netboot_target(
        &self,
        port: &BootPort,
        request: &BootRequest<'_>,
        files: &str,
    ) -> NetbootTarget {
        let Some(plan) = self.valid_plan(port).filter(|_| port.pxe_enabled) else {
            return NetbootTarget::Disk;
        };
        let http_file = match http_first_stage(plan, request, files) {
            HttpFirstStage::OtherMethod => return NetbootTarget::NotLoadable,
            HttpFirstStage::NoFile => None,
            HttpFirstStage::Url(url) => Some(url),
        };
        let netboot = Netboot {
            ipxe_script: format!("{files}/pxelinux.cfg/{}", hyphenated(&port.mac)).into(),
            http_file,
            tftp_file: tftp_first_stage(plan.method, request),
        };
        loadable(request.stage, netboot)
    }

    /// Returns what an unknown machine boots: the agent, which inspects it.
    fn discovery_target(&self, request: &BootRequest<'_>, files: &str) -> NetbootTarget {
        let settings = &self.0.settings;
        let (Some(mac), Some(_), Some(_)) =
            (ethernet_mac(request.hardware), &settings.deploy_kernel, &settings.deploy_ramdisk)
        else {
            return NetbootTarget::Disk;
        };
        let netboot = Netboot {
            ipxe_script: format!("{files}/pxelinux.cfg/{}", hyphenated(&mac)).into(),
            http_file: http_loader(request.architecture, files),
            tftp_file: tftp_first_stage(BootMethod::Ipxe, request),
        };
        loadable(request.stage, netboot)
    }
}

/// Returns the target, or `NotLoadable` if it has no file for the requesting program.
fn loadable(stage: BootStage, netboot: Netboot) -> NetbootTarget {
    let has_file = match stage {
        BootStage::Pxe => netboot.tftp_file.is_some(),
        BootStage::HttpBoot => netboot.http_file.is_some(),
        BootStage::Ipxe | BootStage::System => true,
    };
    if has_file { NetbootTarget::Netboot(netboot) } else { NetbootTarget::NotLoadable }
}

/// Returns the file that PXE firmware loads by TFTP. Firmware that sends no architecture is a BIOS.
fn tftp_first_stage(method: BootMethod, request: &BootRequest<'_>) -> Option<Arc<str>> {
    BootLoaders::first_stage(method, request.architecture.unwrap_or(FirmwareArchitecture::Bios))
}

fn http_first_stage(plan: &BootPlan, request: &BootRequest<'_>, files: &str) -> HttpFirstStage {
    match plan.method {
        BootMethod::VirtualMedia => HttpFirstStage::OtherMethod,
        BootMethod::Pxe => HttpFirstStage::NoFile,
        BootMethod::Ipxe | BootMethod::HttpIpxe => http_loader(request.architecture, files)
            .map_or(HttpFirstStage::NoFile, HttpFirstStage::Url),
        // Firmware that tries TFTP first gets nothing, so that it continues with HTTP, which loads one
        // image that contains everything.
        BootMethod::Http if request.stage == BootStage::Pxe => HttpFirstStage::OtherMethod,
        BootMethod::Http => {
            let piece = match plan.system {
                BootSystem::Kernel { .. } => PlanFile::UnifiedImage,
                BootSystem::Iso { .. } => PlanFile::BootIso,
            };
            HttpFirstStage::Url(format!("{files}/{}/{}", plan.key, piece.name()).into())
        }
    }
}

fn http_loader(architecture: Option<FirmwareArchitecture>, files: &str) -> Option<Arc<str>> {
    let name = BootLoaders::first_stage(BootMethod::HttpIpxe, architecture?)?;
    Some(format!("{files}/{name}").into())
}

/// Returns the MAC address, `None` if the hardware is not Ethernet.
pub(crate) fn ethernet_mac(hardware: HardwareAddress) -> Option<Mac> {
    hardware.mac().and_then(|_| hardware.to_string().parse().ok())
}
