// SPDX-License-Identifier: Apache-2.0
//! Direct calls of users: boot device, indicators, console, virtual media, vendor methods.
//!
//! Reading only calls the driver. Calls that change the machine lease the node, store the changes and
//! are recorded in the journal. No job is involved.

use std::fmt;
use std::time::Duration;

use drivers::{
    BootDevice, BootMode, BootService, Driver, DriverError, DriverTarget, ImageDownloadSource,
    ManagementInterface, NodeChanges,
};
use node_model::{
    Actor, ConsoleInfo, Fault, HttpMethod, Indicator, IndicatorComponent, IndicatorState,
    InterfaceKind, JsonObject, MediaDevice, MediaSlot, NodeId, Sensor, VendorMethod, VifInfo,
};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::error::error_text;
use crate::exclusive_call::ExclusiveCall;
use crate::node_snapshot::NodeSnapshot;
use crate::pending_entries::write_pending_entries;
use crate::provision::get_node;
use crate::{Conductor, ConductorError, consoles, hardware};

/// How long a client waits for a change that may take minutes.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The boot device of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootSetting {
    /// The device, if the BMC reports it.
    pub device: Option<&'static str>,
    /// Whether it is permanent, if the BMC reports it.
    pub persistent: Option<bool>,
}

/// The state of a console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsoleState {
    /// Whether it is enabled.
    pub enabled: bool,
    /// How to connect to it, while it is enabled.
    pub info: Option<ConsoleInfo>,
}

/// The response of a vendor method.
#[derive(Clone, PartialEq, Debug)]
pub enum PassthruReply {
    /// It runs in the background.
    Accepted,
    /// It is done and returned this value.
    Done(Value),
}

/// The key of `driver_internal_info` that is true while a user's image may be attached to virtual media.
pub(crate) const ATTACHED_BY_USER: &str = "virtual_media_attached_by_user";

impl Conductor {
    /// Reads a node and composes its driver.
    pub(crate) async fn snapshot_and_driver(
        &self,
        id: NodeId,
    ) -> Result<(NodeSnapshot, Driver), ConductorError> {
        let snapshot = self.store.read(move |reader| NodeSnapshot::load(reader, id)).await?;
        let driver = snapshot.driver(&self.registry)?;
        Ok((snapshot, driver))
    }

    /// Validates each interface of a node. The vendor interface is omitted: it is validated per call.
    pub async fn validate(
        &self,
        id: NodeId,
    ) -> Result<Vec<(InterfaceKind, Result<(), String>)>, ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let target = snapshot.target(&driver, self.now());
        let mut results = Vec::with_capacity(InterfaceKind::ALL.len());
        let mut access: Option<Result<(), String>> = None;
        for kind in InterfaceKind::ALL {
            if *kind == InterfaceKind::Vendor {
                continue;
            }
            let interface = driver.interface(*kind);
            let mut result = interface.validate(&target).await.map_err(|error| error_text(&error));
            // Implementations with the same name use the same BMC: it is queried once for all.
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

    /// Checks the credentials of the BMC, within the time that a client waits.
    async fn check_access(
        &self,
        driver: &Driver,
        target: &drivers::DriverTarget<'_>,
    ) -> Result<(), String> {
        let limit = Duration::from_secs(self.settings.validate_timeout.max(1));
        match tokio::time::timeout(limit, driver.power().check_access(target)).await {
            Ok(checked) => checked.map_err(|error| error_text(&error)),
            Err(_) => Err(format!(
                "the BMC did not respond within {} s; check its address, its network and its power",
                limit.as_secs()
            )),
        }
    }

    /// The boot device of a machine.
    pub async fn boot_device(&self, id: NodeId) -> Result<BootSetting, ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let target = snapshot.target(&driver, self.now());
        let setting = driver
            .management()
            .boot_device(&target)
            .await
            .map_err(|source| snapshot.driver_error(source))?;
        Ok(BootSetting {
            device: setting.device.map(BootDevice::as_str),
            persistent: setting.persistent,
        })
    }

    /// The boot devices that a machine supports.
    pub async fn supported_boot_devices(
        &self,
        id: NodeId,
    ) -> Result<Vec<&'static str>, ConductorError> {
        let (_, driver) = self.snapshot_and_driver(id).await?;
        Ok(driver.management().supported_boot_devices().iter().map(|d| d.as_str()).collect())
    }

    /// Sets the boot device.
    pub async fn set_boot_device(
        &self,
        id: NodeId,
        device: &str,
        persistent: bool,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let supported = driver.management().supported_boot_devices();
        let device: BootDevice =
            parse(&snapshot, "boot device", device, supported.iter().copied())?;
        let call = self.exclusive_call(id).await?;
        let (target, management) = (call.target(self), call.driver.management());
        let how = if persistent { "permanently" } else { "once" };
        let action = format!("set the boot device to {device}, {how}");
        let work = async {
            management.validate(&target).await?;
            Ok(((), management.set_boot_device(&target, device, persistent).await?))
        };
        call.run(self, actor, &action, work).await
    }

    /// Sets the boot mode. See [`Self::firmware_change`].
    pub async fn set_boot_mode(
        &self,
        id: NodeId,
        mode: &str,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let supported = driver.management().supported_boot_modes();
        let mode: BootMode = parse(&snapshot, "boot mode", mode, supported.iter().copied())?;
        self.firmware_change(id, FirmwareChange::BootMode(mode), actor).await
    }

    /// Enables or disables secure boot. See [`Self::firmware_change`].
    pub async fn set_secure_boot(
        &self,
        id: NodeId,
        on: bool,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        self.firmware_change(id, FirmwareChange::SecureBoot(on), actor).await
    }

    /// Some firmware applies a change only while the machine boots, which takes minutes. So this
    /// returns when the change is done, or after [`RESPONSE_TIMEOUT`]. As in Ironic, a failure of the
    /// machine becomes the node's last error. A change that the interface does not support is an error.
    async fn firmware_change(
        &self,
        id: NodeId,
        change: FirmwareChange,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let call = self.exclusive_call(id).await?;
        let action = change.to_string();
        let call = call.record_intent(self, &action).await?;
        let (conductor, actor) = (self.clone(), actor.clone());
        let (sender, receiver) = oneshot::channel();
        let background_action = action.clone();
        self.in_background(async move {
            let action = background_action;
            let (target, management) = (call.target(&conductor), call.driver.management());
            let work = async {
                let changed = match change {
                    FirmwareChange::BootMode(mode) => management.set_boot_mode(&target, mode).await,
                    FirmwareChange::SecureBoot(on) => management.set_secure_boot(&target, on).await,
                };
                Ok(((), changed?))
            };
            let changed = call.run(&conductor, &actor, &action, work).await;
            if let Err(Err(error)) = sender.send(changed) {
                log_background_failure(id, &action, &error);
            }
        });
        match tokio::time::timeout(RESPONSE_TIMEOUT, receiver).await {
            Ok(Ok(Err(ConductorError::Driver { source, node }))) if !source.is_caller_error() => {
                log_background_failure(id, &action, &ConductorError::Driver { source, node });
                Ok(())
            }
            Ok(Ok(changed)) => changed,
            // It continues, or the process ends and the next one reports the interruption.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Injects a non-maskable interrupt.
    pub async fn inject_nmi(&self, id: NodeId, actor: &Actor) -> Result<(), ConductorError> {
        let call = self.exclusive_call(id).await?;
        let (target, management) = (call.target(self), call.driver.management());
        let work = async { Ok(((), management.inject_nmi(&target).await?)) };
        call.run(self, actor, "inject an NMI", work).await
    }

    /// The indicators of a machine.
    pub async fn indicators(&self, id: NodeId) -> Result<Vec<Indicator>, ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let target = snapshot.target(&driver, self.now());
        driver
            .management()
            .indicators(&target)
            .await
            .map_err(|source| snapshot.driver_error(source))
    }

    /// The state of an indicator.
    pub async fn indicator(
        &self,
        id: NodeId,
        component: &str,
        name: &str,
    ) -> Result<IndicatorState, ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let component = parse_component(&snapshot, component)?;
        let target = snapshot.target(&driver, self.now());
        driver
            .management()
            .indicator(&target, component, name)
            .await
            .map_err(|source| snapshot.driver_error(source))
    }

    /// Sets the state of an indicator.
    pub async fn set_indicator(
        &self,
        id: NodeId,
        component: &str,
        name: &str,
        state: &str,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let (snapshot, _) = self.snapshot_and_driver(id).await?;
        let component = parse_component(&snapshot, component)?;
        let state: IndicatorState =
            parse(&snapshot, "indicator state", state, IndicatorState::ALL.iter().copied())?;
        let call = self.exclusive_call(id).await?;
        let (target, management) = (call.target(self), call.driver.management());
        let work =
            async { Ok(((), management.set_indicator(&target, component, name, state).await?)) };
        call.run(self, actor, &format!("set the indicator {name} to {state}"), work).await
    }

    /// Reads the sensors of a machine.
    pub async fn sensors(&self, id: NodeId) -> Result<Vec<Sensor>, ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let target = snapshot.target(&driver, self.now());
        driver.management().sensors(&target).await.map_err(|source| snapshot.driver_error(source))
    }

    /// Reads the product and capabilities of the BMC and stores them.
    pub async fn probe(&self, id: NodeId, actor: &Actor) -> Result<(), ConductorError> {
        let call = self.exclusive_call(id).await?;
        let target = call.target(self);
        let work = async { Ok(((), hardware::probe(&call.driver, &target).await?)) };
        call.run(self, actor, "probe the BMC", work).await
    }

    /// The state of the console. As in Ironic, an interface without a console has a disabled one.
    pub async fn console(&self, id: NodeId) -> Result<ConsoleState, ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        if !snapshot.node.console_enabled {
            return Ok(ConsoleState { enabled: false, info: None });
        }
        let target = snapshot.target(&driver, self.now());
        let console = driver.console();
        console.validate(&target).await.map_err(|source| snapshot.driver_error(source))?;
        let info = console.info(&target).await.map_err(|source| snapshot.driver_error(source))?;
        Ok(ConsoleState { enabled: true, info })
    }

    /// Enables or disables the console. As in Ironic, a failure becomes the node's last error.
    pub async fn set_console(
        &self,
        id: NodeId,
        on: bool,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let target = snapshot.target(&driver, self.now());
        driver.console().validate(&target).await.map_err(|source| snapshot.driver_error(source))?;
        let call = self.exclusive_call(id).await?;
        let target = call.target(self);
        let work = async {
            let switched = if on {
                consoles::switch_on(self, &call.driver, &target).await?
            } else {
                consoles::switch_off(&call.driver, &target).await?
            };
            Ok(((), NodeChanges { console_enabled: Some(on), ..switched }))
        };
        let action = if on { "start the console" } else { "stop the console" };
        let Err(error) = call.run(self, actor, action, work).await else { return Ok(()) };
        let failure = error_text(&error);
        self.store
            .write(move |tx| {
                let mut node = get_node(tx, id)?;
                node.last_error = Some(failure.clone());
                tx.save(&mut node)?;
                Ok(())
            })
            .await
    }

    /// The virtual media devices of a machine.
    pub async fn virtual_media(&self, id: NodeId) -> Result<Vec<MediaSlot>, ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let target = snapshot.target(&driver, self.now());
        driver
            .management()
            .virtual_media(&target)
            .await
            .map_err(|source| snapshot.driver_error(source))
    }

    /// Attaches an image to a virtual media device. With the source `local`, or if it must be signed, Ferrite
    /// fetches and verifies it first. See [`Self::media_change`].
    pub async fn attach_virtual_media(
        &self,
        id: NodeId,
        device: &str,
        image_url: &str,
        download_source: &str,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let (snapshot, _) = self.snapshot_and_driver(id).await?;
        let source = match download_source {
            "http" => ImageDownloadSource::Http,
            "local" => ImageDownloadSource::Local,
            other => {
                let why = format!("it is '{other}', but must be http or local");
                let error = DriverError::invalid("image_download_source", why);
                return Err(snapshot.driver_error(error));
            }
        };
        let device: MediaDevice =
            parse(&snapshot, "device type", device, MediaDevice::ALL.iter().copied())?;
        let change = MediaChange::Attach { device, image_url: image_url.to_owned(), source };
        self.media_change(id, change, actor).await
    }

    /// Detaches images from virtual media devices; from all if `devices` is empty. See
    /// [`Self::media_change`].
    pub async fn detach_virtual_media(
        &self,
        id: NodeId,
        devices: &[String],
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let (snapshot, _) = self.snapshot_and_driver(id).await?;
        let devices = devices
            .iter()
            .map(|device| parse(&snapshot, "device type", device, MediaDevice::ALL.iter().copied()))
            .collect::<Result<Vec<MediaDevice>, ConductorError>>()?;
        self.media_change(id, MediaChange::Detach(devices), actor).await
    }

    /// Changes virtual media in the background, because fetching an image takes minutes. As in Ironic, the
    /// request is accepted if the settings of the management interface are valid; a failure, also of an
    /// interface without virtual media, becomes the node's last error.
    async fn media_change(
        &self,
        id: NodeId,
        change: MediaChange,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let call = self.exclusive_call(id).await?;
        if let Err(error) = check_media_change(&call, &call.target(self), &change).await {
            call.release(self).await;
            return Err(error);
        }
        let action = change.to_string();
        let call = call.record_intent(self, &action).await?;
        let (conductor, actor) = (self.clone(), actor.clone());
        self.in_background(async move {
            let target = call.target(&conductor);
            let work = async {
                let boot_service = conductor.registry.boot_service();
                Ok(((), change.apply(boot_service, call.driver.management(), &target).await?))
            };
            if let Err(error) = call.run(&conductor, &actor, &action, work).await {
                log_background_failure(id, &action, &error);
            }
        });
        Ok(())
    }

    /// The attached virtual interfaces.
    pub async fn vifs(&self, id: NodeId) -> Result<Vec<VifInfo>, ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let target = snapshot.target(&driver, self.now());
        driver.network().vifs(&target).await.map_err(|source| snapshot.driver_error(source))
    }

    /// Attaches a virtual interface.
    pub async fn attach_vif(
        &self,
        id: NodeId,
        vif: VifInfo,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let call = self.exclusive_call(id).await?;
        let (target, network) = (call.target(self), call.driver.network());
        let work = async { Ok(((), network.attach_vif(&target, &vif).await?)) };
        call.run(self, actor, "attach a virtual interface", work).await
    }

    /// Detaches a virtual interface.
    pub async fn detach_vif(
        &self,
        id: NodeId,
        vif: &str,
        actor: &Actor,
    ) -> Result<(), ConductorError> {
        let call = self.exclusive_call(id).await?;
        let (target, network) = (call.target(self), call.driver.network());
        let work = async { Ok(((), network.detach_vif(&target, vif).await?)) };
        call.run(self, actor, "detach a virtual interface", work).await
    }

    /// Sets the requested logical disks.
    pub async fn set_target_raid(
        &self,
        id: NodeId,
        config: Map<String, Value>,
        actor: Actor,
    ) -> Result<(), ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        if !config.is_empty() {
            let target = snapshot.target(&driver, self.now());
            driver
                .raid()
                .validate_config(&target, &config)
                .await
                .map_err(|source| snapshot.driver_error(source))?;
        }
        let hostname = self.owner.hostname.clone();
        self.store
            .write(move |tx| {
                let mut node = get_node(tx, id)?;
                node.target_raid_config = JsonObject::from(config.clone());
                let mut entries = lifecycle::PendingEntries::default();
                entries.events.push(node_model::JournalEvent::Changed {
                    fields: vec!["target_raid_config".to_owned()],
                });
                write_pending_entries(tx, &mut node, entries, &actor, &hostname)?;
                tx.save(&mut node)?;
                Ok(())
            })
            .await
    }

    /// The vendor methods of a node.
    pub async fn vendor_methods(
        &self,
        id: NodeId,
    ) -> Result<&'static [VendorMethod], ConductorError> {
        let (_, driver) = self.snapshot_and_driver(id).await?;
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
    ) -> Result<PassthruReply, ConductorError> {
        let (snapshot, driver) = self.snapshot_and_driver(id).await?;
        let found = find_method(&snapshot, driver.vendor().methods(), method, http_method)?;
        let target = snapshot.target(&driver, self.now());
        let vendor = driver.vendor();
        vendor
            .validate_call(&target, method, &arguments)
            .await
            .map_err(|source| snapshot.driver_error(source))?;
        let call = PassthruCall { id, method: method.to_owned(), http_method, arguments, actor };
        let exclusive =
            if found.require_exclusive_lock { Some(self.exclusive_call(id).await?) } else { None };
        if !found.is_async {
            return self.call_vendor(exclusive.as_ref(), &call).await.map(PassthruReply::Done);
        }
        let exclusive = match exclusive {
            Some(exclusive) => Some(exclusive.record_intent(self, &call.to_string()).await?),
            None => None,
        };
        let conductor = self.clone();
        self.in_background(async move {
            let Err(error) = conductor.call_vendor(exclusive.as_ref(), &call).await else { return };
            log_background_failure(id, &call.to_string(), &error);
            // With a lease, the error is stored before the node is released.
            if exclusive.is_none() {
                conductor.store_failure(id, &call.to_string(), &error).await;
            }
        });
        Ok(PassthruReply::Accepted)
    }

    /// Calls a vendor method, with a lease if the method needs one.
    async fn call_vendor(
        &self,
        exclusive: Option<&ExclusiveCall>,
        call: &PassthruCall,
    ) -> Result<Value, ConductorError> {
        let Some(exclusive) = exclusive else {
            let (snapshot, driver) = self.snapshot_and_driver(call.id).await?;
            let target = snapshot.target(&driver, self.now());
            let result =
                driver.vendor().call(&target, &call.method, call.http_method, &call.arguments);
            return match result.await {
                Ok(result) => Ok(result.value),
                Err(source) => Err(snapshot.driver_error(source)),
            };
        };
        let (target, vendor) = (exclusive.target(self), exclusive.driver.vendor());
        let work = async {
            let result =
                vendor.call(&target, &call.method, call.http_method, &call.arguments).await?;
            Ok((result.value, result.changes))
        };
        exclusive.run(self, &call.actor, &call.to_string(), work).await
    }

    /// Stores the failure of a call without a lease as the node's last error.
    async fn store_failure(&self, id: NodeId, action: &str, error: &ConductorError) {
        let message = format!("failed to {action}: {}", error_text(error));
        let stored = self
            .store
            .write(move |tx| {
                let mut node = get_node(tx, id)?;
                node.last_error = Some(message.clone());
                tx.save(&mut node)?;
                Ok::<_, ConductorError>(())
            })
            .await;
        if let Err(error) = stored {
            tracing::warn!(node = %id, error = error_text(&error), "error of background call could not be stored");
        }
    }
}

/// Logs a failure after the client got its response.
fn log_background_failure(id: NodeId, action: &str, error: &ConductorError) {
    tracing::warn!(node = %id, action, error = error_text(error), "background call failed");
}

/// A change of a firmware boot setting.
#[derive(Clone, Copy)]
enum FirmwareChange {
    BootMode(BootMode),
    SecureBoot(bool),
}

impl fmt::Display for FirmwareChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BootMode(mode) => write!(f, "set the boot mode to {mode}"),
            Self::SecureBoot(true) => f.write_str("enable secure boot"),
            Self::SecureBoot(false) => f.write_str("disable secure boot"),
        }
    }
}

/// A change of virtual media.
enum MediaChange {
    Attach {
        device: MediaDevice,
        image_url: String,
        source: ImageDownloadSource,
    },
    /// Empty for all devices.
    Detach(Vec<MediaDevice>),
}

impl MediaChange {
    async fn apply(
        &self,
        boot_service: &dyn BootService,
        management: &dyn ManagementInterface,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        match self {
            Self::Attach { .. } if !management.has_virtual_media() => {
                Err(management.unsupported("attach virtual media"))
            }
            Self::Attach { device, image_url, source } => {
                let url = boot_service.publish_medium(target, *device, image_url, *source).await?;
                let changes = management.attach_virtual_media(target, *device, &url).await?;
                Ok(changes.and(NodeChanges::internal_info(ATTACHED_BY_USER, true)))
            }
            Self::Detach(devices) => {
                let changes = management.detach_virtual_media(target, devices).await?;
                let all = MediaDevice::ALL;
                let devices = if devices.is_empty() { all } else { &devices[..] };
                boot_service.withdraw_media(target, devices).await?;
                Ok(changes)
            }
        }
    }
}

impl fmt::Display for MediaChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attach { device, .. } => write!(f, "attach an image to the {device} device"),
            Self::Detach(_) => f.write_str("detach virtual media"),
        }
    }
}

/// Fails if the settings of the management interface are invalid, or if the BMC is known not to respond.
async fn check_media_change(
    call: &ExclusiveCall,
    target: &DriverTarget<'_>,
    change: &MediaChange,
) -> Result<(), ConductorError> {
    let node = &call.snapshot.node;
    let validated = call.driver.management().validate(target).await;
    validated.map_err(|source| call.snapshot.driver_error(source))?;
    if node.maintenance && node.fault == Some(Fault::Power) {
        let problem = "its BMC does not respond, so it is in maintenance; try again later";
        return Err(ConductorError::NotYet(format!(
            "cannot {change} of node {}: {problem}",
            node.label()
        )));
    }
    Ok(())
}

/// A vendor method with its arguments.
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

/// Finds a vendor method. Fails if it does not exist or does not accept the HTTP method.
pub(crate) fn find_method(
    snapshot: &NodeSnapshot,
    methods: &'static [VendorMethod],
    name: &str,
    http_method: HttpMethod,
) -> Result<&'static VendorMethod, ConductorError> {
    let invalid = |why| ConductorError::Invalid { node: snapshot.node.label(), why };
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

/// Parses a value. Fails with the list of supported values.
fn parse<T: std::str::FromStr + PartialEq + std::fmt::Display>(
    snapshot: &NodeSnapshot,
    what: &str,
    given: &str,
    supported: impl Iterator<Item = T>,
) -> Result<T, ConductorError> {
    let supported: Vec<T> = supported.collect();
    match given.parse::<T>() {
        Ok(value) if supported.contains(&value) => Ok(value),
        _ if supported.is_empty() => Err(ConductorError::Invalid {
            node: snapshot.node.label(),
            why: format!("a {what} cannot be chosen for it"),
        }),
        _ => {
            let names: Vec<String> = supported.iter().map(ToString::to_string).collect();
            Err(ConductorError::Invalid {
                node: snapshot.node.label(),
                why: format!(
                    "'{given}' is not a {what} it supports; it supports: {}",
                    names.join(", ")
                ),
            })
        }
    }
}

fn parse_component(
    snapshot: &NodeSnapshot,
    component: &str,
) -> Result<IndicatorComponent, ConductorError> {
    parse(snapshot, "component", component, IndicatorComponent::ALL.iter().copied())
}
