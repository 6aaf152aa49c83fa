// SPDX-License-Identifier: Apache-2.0
//! What users do to a machine directly: boot device, lights, console, media, vendor methods.
//!
//! Reading asks the driver and no more. What changes the machine holds the node meanwhile, keeps
//! what changed and is told in the timeline. No job is involved.

use std::fmt;
use std::time::Duration;

use bmc_drivers::{
    BootDevice, BootMode, ConsoleInfo, Driver, HttpMethod, Indicator, IndicatorComponent,
    IndicatorState, MediaDevice, MediaSlot, NodeChanges, Sensor, VendorMethod, VifInfo,
};
use node_model::{Actor, InterfaceKind, JsonObject, NodeId};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::act::chain;
use crate::held::Held;
use crate::ledger::write_ledger;
use crate::provision::get;
use crate::sight::Sight;
use crate::{Conductor, Error, consoles, hardware};

/// How long a user is kept waiting for a change that may take minutes.
const SHORT_WHILE: Duration = Duration::from_secs(10);

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

    /// Whether each of a node's interfaces has what it needs; the reason where it has not. The
    /// vendor interface is not asked: it is validated per call.
    pub async fn validate(
        &self,
        id: NodeId,
    ) -> Result<Vec<(InterfaceKind, Result<(), String>)>, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        let mut results = Vec::with_capacity(InterfaceKind::ALL.len());
        let mut access: Option<Result<(), String>> = None;
        for kind in InterfaceKind::ALL {
            if *kind == InterfaceKind::Vendor {
                continue;
            }
            let interface = driver.interface(*kind);
            let mut result = interface.validate(&target).await.map_err(|error| chain(&error));
            // Implementations of one name talk to the same BMC: it is asked once for all of them.
            if result.is_ok() && interface.name() == driver.power().name() {
                if access.is_none() {
                    access = Some(self.check_access(&driver, &target).await);
                }
                result = access.clone().unwrap_or(Ok(()));
            }
            results.push((*kind, result));
        }
        Ok(results)
    }

    /// Whether the machine's BMC lets us in, in the time a user waits for an answer.
    async fn check_access(
        &self,
        driver: &Driver,
        target: &bmc_drivers::Target<'_>,
    ) -> Result<(), String> {
        let patience = Duration::from_secs(self.settings.validate_timeout.max(1));
        match tokio::time::timeout(patience, driver.power().check_access(target)).await {
            Ok(checked) => checked.map_err(|error| chain(&error)),
            Err(_) => Err(format!(
                "the BMC did not answer within {} s; check its address, its network and that it is up",
                patience.as_secs()
            )),
        }
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
        actor: &Actor,
    ) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let supported = driver.management().supported_boot_devices();
        let device: BootDevice = parse(&sight, "boot device", device, supported.iter().copied())?;
        let held = self.hold(id).await?;
        let (target, management) = (held.target(self), held.driver.management());
        let how = if persistent { "from now on" } else { "once" };
        let action = format!("set the boot device to {device}, {how}");
        let work = async {
            management.validate(&target).await?;
            Ok(((), management.set_boot_device(&target, device, persistent).await?))
        };
        held.carry_out(self, actor, &action, work).await
    }

    /// Changes the mode a machine's firmware boots in. See [`Self::firmware_change`].
    pub async fn set_boot_mode(&self, id: NodeId, mode: &str, actor: &Actor) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let supported = driver.management().supported_boot_modes();
        let mode: BootMode = parse(&sight, "boot mode", mode, supported.iter().copied())?;
        self.firmware_change(id, FirmwareChange::BootMode(mode), actor).await
    }

    /// Switches secure boot. See [`Self::firmware_change`].
    pub async fn set_secure_boot(&self, id: NodeId, on: bool, actor: &Actor) -> Result<(), Error> {
        self.firmware_change(id, FirmwareChange::SecureBoot(on), actor).await
    }

    /// Some firmware takes a change only while the machine starts, which takes minutes. So this
    /// answers when the change is made or [`SHORT_WHILE`] is over, whichever comes first; what
    /// fails after that is the node's last error.
    async fn firmware_change(
        &self,
        id: NodeId,
        change: FirmwareChange,
        actor: &Actor,
    ) -> Result<(), Error> {
        let held = self.hold(id).await?;
        let action = change.to_string();
        held.announce(self, &action).await?;
        let (conductor, actor) = (self.clone(), actor.clone());
        let (tell, told) = oneshot::channel();
        self.in_background(async move {
            let (target, management) = (held.target(&conductor), held.driver.management());
            let work = async {
                let changed = match change {
                    FirmwareChange::BootMode(mode) => management.set_boot_mode(&target, mode).await,
                    FirmwareChange::SecureBoot(on) => management.set_secure_boot(&target, on).await,
                };
                Ok(((), changed?))
            };
            let changed = held.carry_out(&conductor, &actor, &action, work).await;
            if let Err(Err(error)) = tell.send(changed) {
                conductor.keep_failure(id, &action, &error).await;
            }
        });
        match tokio::time::timeout(SHORT_WHILE, told).await {
            Ok(Ok(changed)) => changed,
            // It goes on, or the program stops and says so when it is started again.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Interrupts a machine.
    pub async fn inject_nmi(&self, id: NodeId, actor: &Actor) -> Result<(), Error> {
        let held = self.hold(id).await?;
        let (target, management) = (held.target(self), held.driver.management());
        let work = async { Ok(((), management.inject_nmi(&target).await?)) };
        held.carry_out(self, actor, "inject an NMI", work).await
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
        actor: &Actor,
    ) -> Result<(), Error> {
        let (sight, _) = self.sight(id).await?;
        let component = component_of(&sight, component)?;
        let state: IndicatorState =
            parse(&sight, "indicator state", state, IndicatorState::ALL.iter().copied())?;
        let held = self.hold(id).await?;
        let (target, management) = (held.target(self), held.driver.management());
        let work =
            async { Ok(((), management.set_indicator(&target, component, name, state).await?)) };
        held.carry_out(self, actor, &format!("set the indicator {name} to {state}"), work).await
    }

    /// A machine's measurements, read now.
    pub async fn sensors(&self, id: NodeId) -> Result<Vec<Sensor>, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        driver.management().sensors(&target).await.map_err(|source| sight.failed(source))
    }

    /// Asks a machine's BMC what it is and what it can do, and keeps the answer.
    pub async fn probe(&self, id: NodeId, actor: &Actor) -> Result<(), Error> {
        let held = self.hold(id).await?;
        let target = held.target(self);
        let work = async { Ok(((), hardware::probe(&held.driver, &target).await?)) };
        held.carry_out(self, actor, "probe the BMC", work).await
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

    /// Switches a console. A failure to do so stays on the node, as Ironic's does.
    pub async fn set_console(&self, id: NodeId, on: bool, actor: &Actor) -> Result<(), Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        driver.console().validate(&target).await.map_err(|source| sight.failed(source))?;
        let held = self.hold(id).await?;
        let target = held.target(self);
        let work = async {
            let switched = if on {
                consoles::switch_on(self, &held.driver, &target).await?
            } else {
                consoles::switch_off(&held.driver, &target).await?
            };
            Ok(((), NodeChanges { console_enabled: Some(on), ..switched }))
        };
        let action = if on { "start the console" } else { "stop the console" };
        let Err(error) = held.carry_out(self, actor, action, work).await else { return Ok(()) };
        let failure = chain(&error);
        self.store
            .write(move |tx| {
                let mut node = get(tx, id)?;
                node.last_error = Some(failure.clone());
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
        actor: &Actor,
    ) -> Result<(), Error> {
        let (sight, _) = self.sight(id).await?;
        let device: MediaDevice =
            parse(&sight, "device type", device, MediaDevice::ALL.iter().copied())?;
        let held = self.hold(id).await?;
        let (target, management) = (held.target(self), held.driver.management());
        let work =
            async { Ok(((), management.attach_virtual_media(&target, device, image_url).await?)) };
        held.carry_out(self, actor, &format!("put an image into the {device} drive"), work).await
    }

    /// Empties drives; all if `devices` is empty.
    pub async fn detach_virtual_media(
        &self,
        id: NodeId,
        devices: &[String],
        actor: &Actor,
    ) -> Result<(), Error> {
        let (sight, _) = self.sight(id).await?;
        let devices = devices
            .iter()
            .map(|device| parse(&sight, "device type", device, MediaDevice::ALL.iter().copied()))
            .collect::<Result<Vec<MediaDevice>, Error>>()?;
        let held = self.hold(id).await?;
        let (target, management) = (held.target(self), held.driver.management());
        let work = async { Ok(((), management.detach_virtual_media(&target, &devices).await?)) };
        held.carry_out(self, actor, "empty the virtual drives", work).await
    }

    /// The virtual interfaces attached to a machine.
    pub async fn vifs(&self, id: NodeId) -> Result<Vec<VifInfo>, Error> {
        let (sight, driver) = self.sight(id).await?;
        let target = sight.target(&driver, self.now());
        driver.network().vifs(&target).await.map_err(|source| sight.failed(source))
    }

    /// Attaches a virtual interface.
    pub async fn attach_vif(&self, id: NodeId, vif: VifInfo, actor: &Actor) -> Result<(), Error> {
        let held = self.hold(id).await?;
        let (target, network) = (held.target(self), held.driver.network());
        let work = async { Ok(((), network.attach_vif(&target, &vif).await?)) };
        held.carry_out(self, actor, "attach a virtual interface", work).await
    }

    /// Detaches a virtual interface.
    pub async fn detach_vif(&self, id: NodeId, vif: &str, actor: &Actor) -> Result<(), Error> {
        let held = self.hold(id).await?;
        let (target, network) = (held.target(self), held.driver.network());
        let work = async { Ok(((), network.detach_vif(&target, vif).await?)) };
        held.carry_out(self, actor, "detach a virtual interface", work).await
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
        actor: Actor,
    ) -> Result<PassthruReply, Error> {
        let (sight, driver) = self.sight(id).await?;
        let found = find_method(&sight, driver.vendor().methods(), method, http_method)?;
        let target = sight.target(&driver, self.now());
        let vendor = driver.vendor();
        vendor
            .validate_call(&target, method, &arguments)
            .await
            .map_err(|source| sight.failed(source))?;
        let call = PassthruCall { id, method: method.to_owned(), http_method, arguments, actor };
        let held = if found.require_exclusive_lock { Some(self.hold(id).await?) } else { None };
        if !found.is_async {
            return self.call_vendor(held.as_ref(), &call).await.map(PassthruReply::Done);
        }
        if let Some(held) = &held {
            held.announce(self, &call.to_string()).await?;
        }
        let conductor = self.clone();
        self.in_background(async move {
            if let Err(error) = conductor.call_vendor(held.as_ref(), &call).await {
                conductor.keep_failure(id, &call.to_string(), &error).await;
            }
        });
        Ok(PassthruReply::Accepted)
    }

    /// Calls a method on a node that is held, or on one that need not be because the method only
    /// reads.
    async fn call_vendor(&self, held: Option<&Held>, call: &PassthruCall) -> Result<Value, Error> {
        let Some(held) = held else {
            let (sight, driver) = self.sight(call.id).await?;
            let target = sight.target(&driver, self.now());
            let answer =
                driver.vendor().call(&target, &call.method, call.http_method, &call.arguments);
            return match answer.await {
                Ok(answer) => Ok(answer.value),
                Err(source) => Err(sight.failed(source)),
            };
        };
        let (target, vendor) = (held.target(self), held.driver.vendor());
        let work = async {
            let answer =
                vendor.call(&target, &call.method, call.http_method, &call.arguments).await?;
            Ok((answer.value, answer.changes))
        };
        held.carry_out(self, &call.actor, &call.to_string(), work).await
    }

    /// Nobody waits for the answer any more: the failure stays on the node.
    async fn keep_failure(&self, id: NodeId, what: &str, error: &Error) {
        let message = format!("failed to {what}: {}", chain(error));
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

/// A change to how the firmware boots.
#[derive(Clone, Copy)]
enum FirmwareChange {
    BootMode(BootMode),
    SecureBoot(bool),
}

impl fmt::Display for FirmwareChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BootMode(mode) => write!(f, "set the boot mode to {mode}"),
            Self::SecureBoot(true) => f.write_str("switch secure boot on"),
            Self::SecureBoot(false) => f.write_str("switch secure boot off"),
        }
    }
}

/// A vendor method with what it is called with.
struct PassthruCall {
    id: NodeId,
    method: String,
    http_method: HttpMethod,
    arguments: Map<String, Value>,
    actor: Actor,
}

impl fmt::Display for PassthruCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call the vendor method {}", self.method)
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
        _ if supported.is_empty() => Err(Error::Invalid {
            node: sight.node.label(),
            why: format!("a {what} cannot be chosen for it"),
        }),
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
