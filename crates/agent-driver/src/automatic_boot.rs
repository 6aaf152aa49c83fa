// SPDX-License-Identifier: Apache-2.0
//! The boot interface `automatic`: selects a boot method that works.
//!
//! It tries the enabled boot interfaces that the machine supports: first the methods that worked for
//! machines of its model, then untried ones, then those that failed. If the BMC rejects a method, the
//! next one is tried at once; if the agent does not start, at the next boot. The current method and the
//! tried ones are stored in `driver_internal_info` for the duration of the job, so that the same method
//! cleans up what it published.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use drivers::next_boot::{is_instance_running, is_ramdisk_instance, set_disk_boot};
use drivers::{
    BaseInterface, BootInterface, BootMode, BootService, DriverError, DriverProperty, DriverTarget,
    FixedMethodBootInterface, NodeChanges, RamdiskMode, RegistryBuilder, boot_model,
};
use node_model::{
    BOOT_METHOD_KEY, BOOT_METHODS_TRIED_KEY, BootMethod, BootMethodStats, BootPurpose,
    InterfaceKind, Node, NodeId, Timestamp,
};
use serde_json::Value;

/// The implementation's name.
const NAME: &str = "automatic";

/// The order without statistics: methods with the fewest network and firmware requirements first.
const DEFAULT_ORDER: &[BootMethod] = &[
    BootMethod::VirtualMedia,
    BootMethod::Http,
    BootMethod::Ipxe,
    BootMethod::Pxe,
    BootMethod::HttpIpxe,
];

/// Number of consecutive failures of a formerly successful method before it ranks as failed. One
/// failure may be caused by a single machine.
const MAX_TOLERATED_FAILURES: i64 = 2;

/// Registers this implementation, which chooses among the enabled boot methods registered so far.
pub(crate) fn register(registry: &mut RegistryBuilder) {
    let mut methods = registry.enabled_boot_methods();
    methods.sort_by_key(|method| {
        DEFAULT_ORDER.iter().position(|known| *known == method.boot_method())
    });
    let mut properties: Vec<DriverProperty> =
        methods.iter().flat_map(|method| method.properties()).copied().collect();
    properties.sort_unstable();
    properties.dedup_by_key(|(name, _)| *name);
    let boot_service = registry.boot_service();
    let refusals = Mutex::default();
    let boot = AutomaticBoot { methods, boot_service, properties, refusals };
    registry.implementations.add_boot(Arc::new(boot));
}

/// The boot interface that selects another one.
struct AutomaticBoot {
    /// The enabled boot interfaces, in [`DEFAULT_ORDER`].
    methods: Vec<Arc<dyn FixedMethodBootInterface>>,
    boot_service: Arc<dyn BootService>,
    properties: Vec<DriverProperty>,
    /// Rejected methods by node.
    refusals: Mutex<HashMap<NodeId, JobBootRefusals>>,
}

/// The methods that a BMC rejected in a job and that were recorded in the statistics.
#[derive(Default)]
struct JobBootRefusals {
    /// Start of the job.
    job_started: Option<Timestamp>,
    methods: Vec<BootMethod>,
}

#[async_trait]
impl BaseInterface for AutomaticBoot {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Boot
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &[DriverProperty] {
        &self.properties
    }

    /// Succeeds if at least one method is possible.
    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        self.possible_methods(target).await.map(drop)
    }
}

#[async_trait]
impl BootInterface for AutomaticBoot {
    fn capabilities(&self) -> &'static [&'static str] {
        &["ramdisk_boot"]
    }

    async fn prepare_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        self.boot_best_method(target, mode.purpose(), false).await
    }

    async fn prepare_ramdisk_retry(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        let tried = tried_methods(target.node);
        let current = self.current(target);
        let mut candidates = self.methods_by_success(target).await?;
        candidates.retain(|method| !tried.contains(&method.boot_method()));
        // When all methods were tried, the last one is tried again.
        candidates.extend(current);
        self.boot_first_accepted(target, &candidates, tried, mode.purpose(), false).await
    }

    async fn clean_up_ramdisk(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<NodeChanges, DriverError> {
        match self.current(target) {
            Some(method) => Ok(method
                .clean_up_ramdisk(target, mode)
                .await?
                .and(self.clear_job_state(target.node))),
            None => {
                self.eject_leftovers(target, mode).await?;
                self.boot_service.withdraw(target).await?;
                Ok(self.clear_job_state(target.node))
            }
        }
    }

    async fn prepare_instance(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        if is_instance_running(target) {
            return Ok(NodeChanges::none());
        }
        if is_ramdisk_instance(target)? {
            return self.boot_best_method(target, BootPurpose::Instance, true).await;
        }
        let changes = match self.current(target) {
            Some(method) => method.prepare_instance(target).await?,
            None => {
                self.boot_service.withdraw(target).await?;
                set_disk_boot(target).await?
            }
        };
        Ok(changes.and(self.clear_job_state(target.node)))
    }

    async fn clean_up_instance(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<NodeChanges, DriverError> {
        let changes = match self.current(target) {
            Some(method) => method.clean_up_instance(target).await?,
            None => {
                // A job that ended early may have inserted virtual media without recording it, and the
                // config drive must not be readable by the machine's next user.
                if is_ramdisk_instance(target).unwrap_or(true) {
                    self.eject_leftovers(target, RamdiskMode::Deploy).await?;
                }
                self.boot_service.withdraw(target).await?;
                NodeChanges::none()
            }
        };
        Ok(changes.and(self.clear_job_state(target.node)))
    }
}

impl AutomaticBoot {
    /// The boot method of the current job.
    fn current(&self, target: &DriverTarget<'_>) -> Option<&dyn FixedMethodBootInterface> {
        let stored = target.node.driver_internal_info.get_str(BOOT_METHOD_KEY)?;
        let method: BootMethod = stored.parse().ok()?;
        let boot = self.methods.iter().find(|known| {
            known.boot_method() == method
                && target.driver.hardware_type().accepts(InterfaceKind::Boot, known.name())
        });
        boot.map(|boot| &**boot)
    }

    /// The methods that are possible for this machine, in [`DEFAULT_ORDER`]. Fails if there is none.
    async fn possible_methods(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Vec<&dyn FixedMethodBootInterface>, DriverError> {
        let mut possible: Vec<&dyn FixedMethodBootInterface> = Vec::new();
        let mut first_error = None;
        for method in self.methods.iter().filter(|method| is_usable(target, &***method)) {
            match method.validate(target).await {
                Ok(()) => possible.push(&**method),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        if possible.is_empty() {
            return Err(first_error.unwrap_or_else(|| {
                self.unsupported(
                    "boot this machine, because no boot interface it supports is enabled",
                )
            }));
        }
        Ok(possible)
    }

    /// The methods that are possible for this machine, best first.
    async fn methods_by_success(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Vec<&dyn FixedMethodBootInterface>, DriverError> {
        let mut methods = self.possible_methods(target).await?;
        if let Some(model) = boot_model(target.node) {
            let stats = self.boot_service.boot_method_stats(&model).await;
            methods.sort_by_key(|method| method_rank(method.boot_method(), &stats));
        }
        Ok(methods)
    }

    /// Boots with the current job's method, or else with the best one.
    async fn boot_best_method(
        &self,
        target: &DriverTarget<'_>,
        purpose: BootPurpose,
        persistent: bool,
    ) -> Result<NodeChanges, DriverError> {
        let mut candidates = self.methods_by_success(target).await?;
        if let Some(current) = self.current(target) {
            candidates.sort_by_key(|method| method.boot_method() != current.boot_method());
        }
        self.boot_first_accepted(target, &candidates, Vec::new(), purpose, persistent).await
    }

    /// Boots with the first of `candidates` that the boot service can publish and the BMC accepts. A
    /// method that the BMC rejects is recorded as failed, unless it is in `tried`.
    async fn boot_first_accepted(
        &self,
        target: &DriverTarget<'_>,
        candidates: &[&dyn FixedMethodBootInterface],
        mut tried: Vec<BootMethod>,
        purpose: BootPurpose,
        persistent: bool,
    ) -> Result<NodeChanges, DriverError> {
        let mut errors: Vec<(&'static str, DriverError)> = Vec::new();
        let mut previous = self.current(target);
        for method in candidates {
            if let Some(before) =
                previous.filter(|before| before.boot_method() != method.boot_method())
            {
                clean_up_method(before, target).await?;
            }
            let is_new = !tried.contains(&method.boot_method());
            if is_new {
                tried.push(method.boot_method());
            }
            let published =
                match self.boot_service.publish(target, method.boot_method(), purpose).await {
                    Ok(published) => published,
                    Err(error) if error.is_transient() => return Err(error),
                    Err(error) => {
                        // No request was sent to the machine.
                        errors.push((method.name(), error));
                        continue;
                    }
                };
            previous = Some(*method);
            match method.boot_published(target, &published, purpose, persistent).await {
                Ok(changes) => return Ok(changes.and(record_methods(method.boot_method(), &tried))),
                Err(error) if is_refusal(&error) => {
                    let node = target.node.id;
                    tracing::warn!(%node, method = %method.boot_method(), %error, "BMC rejected boot method, trying the next one");
                    if is_new {
                        self.record_refusal(target, method.boot_method()).await;
                    }
                    errors.push((method.name(), error));
                }
                Err(error) => return Err(error),
            }
        }
        Err(all_methods_failed(errors))
    }

    /// Records a method as failed, once per job: if the BMC becomes unreachable later, the tried methods
    /// are not stored and are all tried again.
    async fn record_refusal(&self, target: &DriverTarget<'_>, method: BootMethod) {
        let Some(model) = boot_model(target.node) else { return };
        let job_started = target.node.work.as_ref().map(|work| work.started_at);
        let is_first = {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            let counted = refusals.entry(target.node.id).or_default();
            if counted.job_started != job_started {
                *counted = JobBootRefusals { job_started, methods: Vec::new() };
            }
            let is_first = !counted.methods.contains(&method);
            if is_first {
                counted.methods.push(method);
            }
            is_first
        };
        if is_first {
            self.boot_service.record_boot_result(&model, method, false).await;
        }
    }

    /// Removes the job's state, so that the next job selects a method again.
    fn clear_job_state(&self, node: &Node) -> NodeChanges {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).remove(&node.id);
        let mut changes = NodeChanges::none();
        for key in [BOOT_METHOD_KEY, BOOT_METHODS_TRIED_KEY] {
            if node.driver_internal_info.get(key).is_some() {
                changes = changes.and(NodeChanges::internal_info(key, Value::Null));
            }
        }
        changes
    }

    /// Ejects virtual media of a job that ended before it recorded the insertion.
    async fn eject_leftovers(
        &self,
        target: &DriverTarget<'_>,
        mode: RamdiskMode,
    ) -> Result<(), DriverError> {
        let is_media = |boot: &&Arc<dyn FixedMethodBootInterface>| {
            boot.boot_method() == BootMethod::VirtualMedia && is_usable(target, &***boot)
        };
        let Some(media) = self.methods.iter().find(is_media) else { return Ok(()) };
        if media.validate(target).await.is_err() {
            return Ok(());
        }
        match media.clean_up_ramdisk(target, mode).await {
            Err(error) if !is_refusal(&error) => Err(error),
            // Virtual media may not work on this machine, which is why another method is used.
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Whether the machine can use a method. Legacy BIOS firmware cannot boot over HTTP.
fn is_usable(target: &DriverTarget<'_>, boot: &dyn FixedMethodBootInterface) -> bool {
    let needs_uefi = match boot.boot_method() {
        BootMethod::Http | BootMethod::HttpIpxe => true,
        BootMethod::VirtualMedia | BootMethod::Ipxe | BootMethod::Pxe => false,
    };
    let is_bios = target.node.boot_mode.as_deref() == Some(BootMode::Bios.as_str());
    !(needs_uefi && is_bios)
        && target.driver.hardware_type().accepts(InterfaceKind::Boot, boot.name())
}

/// Sort key of a method from the model's statistics; lower is better.
fn method_rank(method: BootMethod, stats: &[BootMethodStats]) -> (u8, Reverse<i64>, i64) {
    match stats.iter().find(|known| known.method == method) {
        Some(known) if known.worked > 0 && known.failed <= MAX_TOLERATED_FAILURES => {
            (0, Reverse(known.worked), known.failed)
        }
        None => (1, Reverse(0), 0),
        Some(known) => (2, Reverse(0), known.failed),
    }
}

/// Cleans up a method that is given up. Rejections by the BMC are ignored, because they are why it is.
async fn clean_up_method(
    boot: &dyn FixedMethodBootInterface,
    target: &DriverTarget<'_>,
) -> Result<(), DriverError> {
    match boot.clean_up_ramdisk(target, RamdiskMode::Deploy).await {
        Err(error) if !is_refusal(&error) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether the BMC rejects what the method requires. An unreachable BMC fails with every method.
const fn is_refusal(error: &DriverError) -> bool {
    match error {
        DriverError::Unsupported { .. }
        | DriverError::InvalidParameter { .. }
        | DriverError::MissingParameter { .. }
        | DriverError::NotFound { .. }
        | DriverError::Failed { .. } => true,
        DriverError::BmcUnreachable { .. }
        | DriverError::AgentUnreachable { .. }
        | DriverError::CredentialsRejected { .. }
        | DriverError::Untrusted { .. } => false,
    }
}

/// The error after all methods failed.
fn all_methods_failed(mut errors: Vec<(&'static str, DriverError)>) -> DriverError {
    if errors.len() == 1
        && let Some((_, error)) = errors.pop()
    {
        return error;
    }
    let texts: Vec<String> =
        errors.iter().map(|(name, error)| format!("{name}: {error}")).collect();
    DriverError::Failed {
        what: "boot the machine with any method".to_owned(),
        why: texts.join("; "),
    }
}

/// The methods that the current job has tried.
fn tried_methods(node: &Node) -> Vec<BootMethod> {
    match node.driver_internal_info.get(BOOT_METHODS_TRIED_KEY) {
        Some(Value::Array(methods)) => {
            methods.iter().filter_map(|method| method.as_str()?.parse().ok()).collect()
        }
        Some(_) | None => Vec::new(),
    }
}

fn record_methods(method: BootMethod, tried: &[BootMethod]) -> NodeChanges {
    let tried: Vec<&str> = tried.iter().map(|method| method.as_str()).collect();
    NodeChanges::internal_info(BOOT_METHOD_KEY, method.as_str())
        .and(NodeChanges::internal_info(BOOT_METHODS_TRIED_KEY, tried))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(method: BootMethod, worked: i64, failed: i64) -> BootMethodStats {
        BootMethodStats { model: "m".to_owned(), method, worked, failed, tried_at: Timestamp(0) }
    }

    fn order(stats: &[BootMethodStats]) -> String {
        let mut methods = DEFAULT_ORDER.to_vec();
        methods.sort_by_key(|method| method_rank(*method, stats));
        methods.iter().map(|method| method.as_str()).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn ranks_successful_methods_first_and_failed_last() {
        use BootMethod::{Http, HttpIpxe, Ipxe, Pxe, VirtualMedia};
        for (method_stats, expected) in [
            (&[][..], "virtual media, http, ipxe, pxe, http-ipxe"),
            (&[stats(Pxe, 1, 0)][..], "pxe, virtual media, http, ipxe, http-ipxe"),
            (
                &[stats(Ipxe, 3, 0), stats(Pxe, 9, 1), stats(VirtualMedia, 0, 1)],
                "pxe, ipxe, http, http-ipxe, virtual media",
            ),
            // A formerly successful method that failed repeatedly.
            (&[stats(VirtualMedia, 900, 3)], "http, ipxe, pxe, http-ipxe, virtual media"),
            (
                &[stats(VirtualMedia, 0, 4), stats(Http, 0, 9), stats(HttpIpxe, 5, 3)],
                "ipxe, pxe, http-ipxe, virtual media, http",
            ),
        ] {
            assert_eq!(order(method_stats), expected, "{method_stats:?}");
        }
    }
}
