// SPDX-License-Identifier: Apache-2.0
//! What users do to a machine directly: boot device, lights, console, media, vendor methods.
//!
//! Each call reads the node, asks its driver, and keeps what changed. No job is involved.

use bmc_drivers::{
    BootDevice, BootMode, ConsoleInfo, Driver, HttpMethod, Indicator, IndicatorComponent,
    IndicatorState, MediaDevice, MediaSlot, NodeChanges, Sensor, VendorMethod, VifInfo,
};
use node_model::{Actor, InterfaceKind, JsonObject, NodeId};
use serde_json::{Map, Value};

use crate::act::chain;
use crate::ledger::write_ledger;
use crate::provision::get;
use crate::runner::write_changes;
use crate::sight::Sight;
use crate::{Conductor, Error};

/// Where a machine boots from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootSetting {
    /// The device, if the BMC says.
    pub device: Option<&'static str>,
    /// Whether it stays so, if the BMC says.
    pub persistent: Option<bool>,
}

/// How a console stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsoleState {
    /// Whether it is on.
    pub enabled: bool,
    /// How to reach it, while it is on.
    pub info: Option<ConsoleInfo>,
}

/// What a vendor method answered.
#[derive(Clone, PartialEq, Debug)]
pub enum PassthruReply {
    /// It goes on in the background.
    Accepted,
    /// It is done, with this result.
    Done(Value),
}

impl Conductor {
    /// Reads a node and calls its driver with it.
    async fn sight(&self, id: NodeId) -> Result<(Sight, Driver), Error> {
        let sight = self.store.read(move |reader| Sight::load(reader, id)).await?;
        let driver = sight.driver(&self.registry)?;
        Ok((sight, driver))
    }

    /// Writes what a direct call changed.
    async fn keep(&self, id: NodeId, changes: NodeChanges) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        self.store
            .write(move |tx| {
                let mut node = get(tx, id)?;
                write_changes(tx, &mut node, &changes)?;
                tx.save(&mut node)?;
                Ok(())
            })
            .await
    }

    /// Whether each of a node's interfaces has what it needs; the reason where it has not. The
    /// vendor interface is not asked: it is validated per call.
    pub async fn validate(
        &self,
        id: NodeId,
    ) -> Result<Vec<(InterfaceKind, Result<(), String>)>, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        let mut results = Vec::with_capacity(InterfaceKind::ALL.len());
        for kind in InterfaceKind::ALL {
            if *kind != InterfaceKind::Vendor {
                let result = driver.interface(*kind).validate(&target).await;
                results.push((*kind, result.map_err(|error| chain(&error))));
            }
        }
        Ok(results)
    }

    /// Where a machine boots from.
    pub async fn boot_device(&self, id: NodeId) -> Result<BootSetting, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        let setting = driver
            .management()
            .boot_device(&target)
            .await
            .map_err(|source| sight.failed(source))?;
        Ok(BootSetting {
            device: setting.device.map(BootDevice::as_str),
            persistent: setting.persistent,
        })
    }

    /// What a machine can boot from.
    pub async fn supported_boot_devices(&self, id: NodeId) -> Result<Vec<&'static str>, Error> {
        let (_, driver) = self.sight(id).await?;
        Ok(driver.management().supported_boot_devices().iter().map(|d| d.as_str()).collect())
    }

    /// Makes a machine boot from `device`.
    pub async fn set_boot_device(
        &self,
        id: NodeId,
        device: &str,
        persistent: bool,
    ) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let supported = driver.management().supported_boot_devices();
        let device: BootDevice = parse(&sight, "boot device", device, supported.iter().copied())?;
        let target = sight.target(&driver, self.now());
        let management = driver.management();
        management.validate(&target).await.map_err(|source| sight.failed(source))?;
        let changes = management
            .set_boot_device(&target, device, persistent)
            .await
            .map_err(|source| sight.failed(source))?;
        self.keep(id, changes).await
    }

    /// Changes the mode a machine's firmware boots in.
    pub async fn set_boot_mode(&self, id: NodeId, mode: &str) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let supported = driver.management().supported_boot_modes();
        let mode: BootMode = parse(&sight, "boot mode", mode, supported.iter().copied())?;
        let target = sight.target(&driver, self.now());
        let changes = driver
            .management()
            .set_boot_mode(&target, mode)
            .await
            .map_err(|source| sight.failed(source))?;
        self.keep(id, changes).await
    }

    /// Switches secure boot.
    pub async fn set_secure_boot(&self, id: NodeId, on: bool) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        let changes = driver
            .management()
            .set_secure_boot(&target, on)
            .await
            .map_err(|source| sight.failed(source))?;
        self.keep(id, changes).await
    }

    /// Interrupts a machine.
    pub async fn inject_nmi(&self, id: NodeId) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        let changes =
            driver.management().inject_nmi(&target).await.map_err(|source| sight.failed(source))?;
        self.keep(id, changes).await
    }

    /// A machine's lights.
    pub async fn indicators(&self, id: NodeId) -> Result<Vec<Indicator>, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        driver.management().indicators(&target).await.map_err(|source| sight.failed(source))
    }

    /// What a light shows.
    pub async fn indicator(
        &self,
        id: NodeId,
        component: &str,
        name: &str,
    ) -> Result<IndicatorState, Error> {
        let (sight, driver) = self.sight(id).await?;
        let component = component_of(&sight, component)?;
        let target = sight.target(&driver, self.now());
        driver
            .management()
            .indicator(&target, component, name)
            .await
            .map_err(|source| sight.failed(source))
    }

    /// Makes a light show `state`.
    pub async fn set_indicator(
        &self,
        id: NodeId,
        component: &str,
        name: &str,
        state: &str,
    ) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let component = component_of(&sight, component)?;
        let state: IndicatorState =
            parse(&sight, "indicator state", state, IndicatorState::ALL.iter().copied())?;
        let target = sight.target(&driver, self.now());
        let changes = driver
            .management()
            .set_indicator(&target, component, name, state)
            .await
            .map_err(|source| sight.failed(source))?;
        self.keep(id, changes).await
    }

    /// A machine's measurements, read now.
    pub async fn sensors(&self, id: NodeId) -> Result<Vec<Sensor>, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        driver.management().sensors(&target).await.map_err(|source| sight.failed(source))
    }

    /// How a console stands.
    pub async fn console(&self, id: NodeId) -> Result<ConsoleState, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        driver.console().validate(&target).await.map_err(|source| sight.failed(source))?;
        let enabled = sight.node.console_enabled;
        let info = if enabled {
            Some(driver.console().info(&target).await.map_err(|source| sight.failed(source))?)
        } else {
            None
        };
        Ok(ConsoleState { enabled, info })
    }

    /// Switches a console.
    pub async fn set_console(&self, id: NodeId, on: bool) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        let console = driver.console();
        console.validate(&target).await.map_err(|source| sight.failed(source))?;
        let changed = if on { console.start(&target).await } else { console.stop(&target).await };
        let failure = changed.as_ref().err().map(|error| chain(error));
        let changes = changed.unwrap_or_default();
        self.store
            .write(move |tx| {
                let mut node = get(tx, id)?;
                write_changes(tx, &mut node, &changes)?;
                if failure.is_none() {
                    node.console_enabled = on;
                } else {
                    node.last_error.clone_from(&failure);
                }
                tx.save(&mut node)?;
                Ok(())
            })
            .await
    }

    /// A machine's drives for virtual media.
    pub async fn virtual_media(&self, id: NodeId) -> Result<Vec<MediaSlot>, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        driver.management().virtual_media(&target).await.map_err(|source| sight.failed(source))
    }

    /// Puts an image into a drive.
    pub async fn attach_virtual_media(
        &self,
        id: NodeId,
        device: &str,
        image_url: &str,
    ) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let device: MediaDevice =
            parse(&sight, "device type", device, MediaDevice::ALL.iter().copied())?;
        let target = sight.target(&driver, self.now());
        let changes = driver
            .management()
            .attach_virtual_media(&target, device, image_url)
            .await
            .map_err(|source| sight.failed(source))?;
        self.keep(id, changes).await
    }

    /// Empties drives; all if `devices` is empty.
    pub async fn detach_virtual_media(&self, id: NodeId, devices: &[String]) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let devices = devices
            .iter()
            .map(|device| parse(&sight, "device type", device, MediaDevice::ALL.iter().copied()))
            .collect::<Result<Vec<MediaDevice>, Error>>()?;
        let target = sight.target(&driver, self.now());
        let changes = driver
            .management()
            .detach_virtual_media(&target, &devices)
            .await
            .map_err(|source| sight.failed(source))?;
        self.keep(id, changes).await
    }

    /// The virtual interfaces attached to a machine.
    pub async fn vifs(&self, id: NodeId) -> Result<Vec<VifInfo>, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        driver.network().vifs(&target).await.map_err(|source| sight.failed(source))
    }

    /// Attaches a virtual interface.
    pub async fn attach_vif(&self, id: NodeId, vif: VifInfo) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        let changes = driver
            .network()
            .attach_vif(&target, &vif)
            .await
            .map_err(|source| sight.failed(source))?;
        self.keep(id, changes).await
    }

    /// Detaches a virtual interface.
    pub async fn detach_vif(&self, id: NodeId, vif: &str) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        let changes = driver
            .network()
            .detach_vif(&target, vif)
            .await
            .map_err(|source| sight.failed(source))?;
        self.keep(id, changes).await
    }

    /// Sets the logical disks a machine should have.
    pub async fn set_target_raid(
        &self,
        id: NodeId,
        config: Map<String, Value>,
        actor: Actor,
    ) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        if !config.is_empty() {
            let target = sight.target(&driver, self.now());
            driver
                .raid()
                .validate_config(&target, &config)
                .await
                .map_err(|source| sight.failed(source))?;
        }
        let hostname = self.owner.hostname.clone();
        self.store
            .write(move |tx| {
                let mut node = get(tx, id)?;
                node.target_raid_config = JsonObject::from(config.clone());
                let mut ledger = lifecycle::Ledger::default();
                ledger.happened.push(node_model::Happening::Changed {
                    fields: vec!["target_raid_config".to_owned()],
                });
                write_ledger(tx, &mut node, ledger, &actor, &hostname)?;
                tx.save(&mut node)?;
                Ok(())
            })
            .await
    }

    /// The vendor methods of a node.
    pub async fn vendor_methods(&self, id: NodeId) -> Result<&'static [VendorMethod], Error> {
        let (_, driver) = self.sight(id).await?;
        Ok(driver.vendor().methods())
    }

    /// Calls a vendor method of a node.
    pub async fn vendor_passthru(
        &self,
        id: NodeId,
        method: &str,
        http_method: HttpMethod,
        arguments: Map<String, Value>,
    ) -> Result<PassthruReply, Error> {
        let (sight, driver) = self.sight(id).await?;
        let found = find_method(&sight, driver.vendor().methods(), method, http_method)?;
        let target = sight.target(&driver, self.now());
        let vendor = driver.vendor();
        vendor
            .validate_call(&target, method, &arguments)
            .await
            .map_err(|source| sight.failed(source))?;
        if !found.is_async {
            let answer = vendor
                .call(&target, method, http_method, &arguments)
                .await
                .map_err(|source| sight.failed(source))?;
            self.keep(id, answer.changes).await?;
            return Ok(PassthruReply::Done(answer.value));
        }
        let conductor = self.clone();
        let method = method.to_owned();
        tokio::spawn(async move {
            conductor.call_in_background(id, &method, http_method, &arguments).await;
        });
        Ok(PassthruReply::Accepted)
    }

    async fn call_in_background(
        &self,
        id: NodeId,
        method: &str,
        http_method: HttpMethod,
        arguments: &Map<String, Value>,
    ) {
        let called = async {
            let (sight, driver) = self.sight(id).await?;
            let target = sight.target(&driver, self.now());
            let answer = driver
                .vendor()
                .call(&target, method, http_method, arguments)
                .await
                .map_err(|source| sight.failed(source))?;
            self.keep(id, answer.changes).await
        };
        if let Err(error) = called.await {
            let message = format!("vendor method {method} failed: {}", chain(&error));
            tracing::warn!(node = %id, %message);
            let kept = self
                .store
                .write(move |tx| {
                    let mut node = get(tx, id)?;
                    node.last_error = Some(message.clone());
                    tx.save(&mut node)?;
                    Ok::<_, Error>(())
                })
                .await;
            if let Err(error) = kept {
                tracing::warn!(node = %id, error = chain(&error), "the failure could not be kept");
            }
        }
    }
}

/// Finds the vendor method, and checks that it may be called this way.
pub(crate) fn find_method(
    sight: &Sight,
    methods: &'static [VendorMethod],
    name: &str,
    http_method: HttpMethod,
) -> Result<&'static VendorMethod, Error> {
    let invalid = |why| Error::Invalid { node: sight.node.label(), why };
    let method = methods.iter().find(|method| method.name == name).ok_or_else(|| {
        let known: Vec<&str> = methods.iter().map(|method| method.name).collect();
        invalid(format!("there is no vendor method '{name}'; there are: {}", known.join(", ")))
    })?;
    if !method.http_methods.contains(&http_method) {
        let allowed: Vec<&str> = method.http_methods.iter().map(|method| method.as_str()).collect();
        return Err(invalid(format!(
            "vendor method '{name}' is called with {}, not {http_method}",
            allowed.join(" or ")
        )));
    }
    Ok(method)
}

/// Reads one of a driver's words, or says which there are.
fn parse<W: std::str::FromStr + PartialEq + std::fmt::Display>(
    sight: &Sight,
    what: &str,
    given: &str,
    supported: impl Iterator<Item = W>,
) -> Result<W, Error> {
    let supported: Vec<W> = supported.collect();
    match given.parse::<W>() {
        Ok(word) if supported.contains(&word) => Ok(word),
        _ => {
            let names: Vec<String> = supported.iter().map(ToString::to_string).collect();
            Err(Error::Invalid {
                node: sight.node.label(),
                why: format!(
                    "'{given}' is not a {what} it supports; it supports: {}",
                    names.join(", ")
                ),
            })
        }
    }
}

fn component_of(sight: &Sight, component: &str) -> Result<IndicatorComponent, Error> {
    parse(sight, "component", component, IndicatorComponent::ALL.iter().copied())
}
