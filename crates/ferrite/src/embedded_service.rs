// SPDX-License-Identifier: Apache-2.0
//! `ferrite operator --with-service`: the service in the process of the operator.
//!
//! The service starts first and stops last. It does not depend on leader election: when the Lease is
//! lost, only the controllers stop, and running deployments continue. The embedded database has one owner,
//! so there is one replica.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use error_chain::error_chain;
use operator::health::{OperatorReadiness, ReadinessGate};
use operator::ironic::desired::metal3_settings;
use operator::process::ManagerError;
use tokio::sync::watch;
use toml::{Table, Value};
use tracing::{info, warn};

use crate::config::{Config, ConfigSource, LogSection};
use crate::in_process_transport::InProcessTransport;
use crate::process::{StopSignal, print_line};
use crate::service::{FerriteService, prepare_data_dir};
use crate::{provisioning, ramdisk, serve};

/// The conductor's name. It is the same in each pod, so that a new pod continues the work of the old one,
/// and does not start before that has ended.
const CONDUCTOR_NAME: &str = "ferrite-operator";
/// How often the service is checked for the readiness of the process.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Options of the service in the process of the operator.
#[derive(Args, Debug)]
#[command(next_help_heading = "Service")]
pub(crate) struct EmbeddedServiceArguments {
    /// Also run the service in this process. Use one replica: the embedded database has one owner.
    #[arg(long)]
    pub(crate) with_service: bool,
    /// The configuration file of the service (TOML), as for `ferrite serve`.
    #[arg(long, value_name = "FILE", requires = "with_service")]
    config: Option<PathBuf>,
}

/// What the operator uses of a running service.
#[derive(Clone)]
pub(crate) struct ServiceHandle {
    /// Calls its API.
    pub(crate) transport: Arc<InProcessTransport>,
    /// Waits for the service.
    pub(crate) readiness: OperatorReadiness,
}

/// A configured service whose data directory is locked.
pub(crate) struct EmbeddedService {
    config: Config,
    data_dir: PathBuf,
    _data_dir_lock: File,
    /// Log the addresses instead of printing them.
    logs_addresses: bool,
}

impl EmbeddedService {
    /// Reads the configuration and locks the data directory. Logs are those of the operator.
    pub(crate) fn prepare(
        arguments: &EmbeddedServiceArguments,
        log: &LogSection,
    ) -> anyhow::Result<Self> {
        let source = read(arguments.config.as_deref(), std::env::vars().collect())?;
        let config = source.config(None)?;
        config.check()?;
        let mut config = provisioning::resolve(&source, config)?;
        serve::check(&config)?;
        serve::warn_if_open(&config);
        let data_dir = config.data_dir()?;
        let data_dir_lock = prepare_data_dir(&data_dir, "data_dir in the configuration")?;
        ramdisk::use_data_dir_ramdisk(&mut config, &data_dir);
        let logs_addresses = log.json;
        Ok(Self { config, data_dir, _data_dir_lock: data_dir_lock, logs_addresses })
    }

    /// Runs the service, and beside it the operator until it ends or the process is stopped. `operate`
    /// runs the operator until its last argument becomes true; it is called again after the loss of a
    /// Lease.
    pub(crate) async fn run(
        self,
        operate: impl AsyncFn(ServiceHandle, watch::Receiver<bool>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut signal = StopSignal::listen()?;
        let inspection = self.config.inspection()?;
        let mut service = FerriteService::start(&self.config, inspection, &self.data_dir).await?;
        let write: fn(&str) = match self.logs_addresses {
            true => |line: &str| info!("{line}"),
            false => print_line,
        };
        serve::announce(&service, &self.data_dir, write);
        let transport = Arc::new(InProcessTransport::new(Arc::clone(&service.app)));
        let readiness = OperatorReadiness::default();
        let handle = ServiceHandle { transport, readiness };
        let checks = tokio::spawn(check_service(handle.clone()));
        let (stop, stopped) = watch::channel(false);
        let outcome = {
            let operating = async {
                loop {
                    match operate(handle.clone(), stopped.clone()).await {
                        Err(error) if is_leadership_loss(&error) && !*stopped.borrow() => {
                            let error = error_chain(error.as_ref());
                            warn!(%error, "leadership lost, service keeps running");
                        }
                        ended => return ended,
                    }
                }
            };
            let mut operating = std::pin::pin!(operating);
            tokio::select! {
                outcome = &mut operating => outcome,
                () = signal.received() => {
                    stop.send_replace(true);
                    operating.await
                }
                failure = service_failure(&mut service, &self.config) => {
                    stop.send_replace(true);
                    // The first failure is the cause of the others.
                    let _ = operating.await;
                    Err(failure)
                }
            }
        };
        checks.abort();
        info!("stopping the service");
        service.stop().await;
        outcome
    }
}

/// Waits until the service cannot continue.
async fn service_failure(service: &mut FerriteService, config: &Config) -> anyhow::Error {
    tokio::select! {
        failure = service.failure() => failure,
        failure = provisioning::wait_for_replacement(config) => failure,
    }
}

fn is_leadership_loss(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ManagerError::LeadershipLost { .. }))
}

/// Makes the process unready while the service cannot work.
async fn check_service(ServiceHandle { transport, readiness }: ServiceHandle) {
    let mut gate: Option<ReadinessGate> = None;
    let mut interval = tokio::time::interval(CHECK_INTERVAL);
    loop {
        interval.tick().await;
        let missing = transport.check_ready().await.err();
        if let Some(gate) = gate.take() {
            gate.open();
        }
        gate = missing.map(|missing| readiness.gate(format!("the service: {missing}")));
    }
}

/// Reads the configuration over the defaults of an installation for Metal3's hosts.
fn read(
    file: Option<&Path>,
    mut environment: Vec<(String, String)>,
) -> anyhow::Result<ConfigSource> {
    // An unreadable file is reported below.
    let text = file.and_then(|path| std::fs::read_to_string(path).ok());
    let table: Table = text.and_then(|text| text.parse().ok()).unwrap_or_default();
    let mut defaults = metal3_settings().to_vec();
    if !is_set("database.url", &table, &environment) {
        defaults.push(("conductor.host", Value::from(CONDUCTOR_NAME)));
    }
    for (path, value) in defaults {
        if !is_set(path, &table, &environment) {
            environment.push((variable(path), value.to_string()));
        }
    }
    ConfigSource::read(file, environment.into_iter()).context("the configuration of the service")
}

/// Whether a setting is in the file or in the environment.
fn is_set(path: &str, file: &Table, environment: &[(String, String)]) -> bool {
    let variable = variable(path);
    let mut parts = path.split('.');
    let first = parts.next().and_then(|part| file.get(part));
    parts.try_fold(first, |section, part| Some(section?.get(part))).flatten().is_some()
        || environment.iter().any(|(name, _)| name.eq_ignore_ascii_case(&variable))
}

/// The environment variable of a setting.
fn variable(path: &str) -> String {
    format!("FERRITE_{}", path.to_uppercase().replace('.', "__"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use clap::Parser;
    use operator::leader::LeadershipLoss;
    use serde_json::Value as Json;
    use tempfile::TempDir;

    use super::*;
    use crate::operator::OperatorArguments;

    /// The manifests that add the service to the Deployment of the operator.
    const DEPLOYMENT: &str =
        include_str!("../../../deploy/kubernetes/operator/with-service/deployment.yaml");
    const SERVICE: &str =
        include_str!("../../../deploy/kubernetes/operator/with-service/service.yaml");
    const TIMEOUT: Duration = Duration::from_secs(60);

    #[derive(Parser)]
    struct TestCommand {
        #[command(flatten)]
        operator: OperatorArguments,
    }

    fn load(file: Option<&Path>, environment: Vec<(String, String)>) -> anyhow::Result<Config> {
        read(file, environment)?.config(None)
    }

    fn service(folder: &TempDir) -> EmbeddedService {
        let mut config = load(None, Vec::new()).unwrap();
        config.api.listen.set_port(0);
        config.boot.enabled = false;
        let data_dir = folder.path().to_owned();
        let lock = File::create(data_dir.join("lock")).unwrap();
        EmbeddedService { config, data_dir, _data_dir_lock: lock, logs_addresses: false }
    }

    async fn ready(readiness: &OperatorReadiness) {
        while !readiness.waiting_for().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn the_service_survives_the_loss_of_leadership() {
        let folder = tempfile::tempdir().unwrap();
        let calls = AtomicUsize::new(0);
        let operate = async |service: ServiceHandle, _stopped| {
            tokio::time::timeout(TIMEOUT, ready(&service.readiness)).await?;
            service.transport.check_ready().await?;
            if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                let loss = LeadershipLoss::NotRenewed { deadline: Duration::from_secs(10) };
                return Err(ManagerError::LeadershipLost { lease: "hosts", loss }.into());
            }
            Ok(())
        };
        service(&folder).run(operate).await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn another_failure_of_the_operator_ends_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let operate = async |_service: ServiceHandle, _stopped| {
            Err(ManagerError::ControllerEnded { controller: "baremetalhost" }.into())
        };
        let error = service(&folder).run(operate).await.unwrap_err();
        assert!(error.to_string().contains("baremetalhost"), "{error}");
    }

    #[test]
    fn the_manifests_can_be_used() {
        let mut deployment: Json = serde_saphyr::from_str(DEPLOYMENT).unwrap();
        let pod = deployment["spec"]["template"]["spec"].take();
        let container = &pod["containers"][0];
        let arguments = container["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
        let parsed = TestCommand::try_parse_from(arguments).unwrap();
        let service = parsed.operator.service;
        assert!(service.with_service);
        let mount = &container["volumeMounts"][0];
        let path = service.config.unwrap();
        assert_eq!(path.parent().unwrap().to_str(), mount["mountPath"].as_str());

        let folder = tempfile::tempdir().unwrap();
        let file = path.file_name().unwrap();
        let (config_map, _) = SERVICE.split_once("\n---\n").unwrap();
        let mut config_map: Json = serde_saphyr::from_str(config_map).unwrap();
        let text = config_map["data"][file.to_str().unwrap()].take();
        // Other tests may use the ports.
        let text = text.as_str().unwrap().replace(":6385\"", ":0\"").replace(":6180\"", ":0\"");
        std::fs::write(folder.path().join(file), text).unwrap();
        let variables = container["env"].as_array().unwrap().iter();
        let variables = variables.filter_map(|variable| {
            let value = variable["value"].as_str()?.replace("$(HOST_IP)", "192.0.2.1");
            Some((variable["name"].as_str()?.to_owned(), value))
        });
        let config = load(Some(&folder.path().join(file)), variables.collect()).unwrap();
        config.check().unwrap();
        serve::check(&config).unwrap();
        let data = &container["volumeMounts"][1]["mountPath"];
        assert_eq!(config.data_dir.unwrap().to_str(), data.as_str());
    }

    #[test]
    fn settings_replace_the_defaults_for_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ferrite.toml");
        let text = "[drivers.agent]\nerase_devices_priority = 5\n[lifecycle]\nfast_track = false\n";
        std::fs::write(&path, text).unwrap();
        let variables = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };

        let config = load(None, variables(&[])).unwrap();
        let agent = &config.drivers.agent;
        assert_eq!(agent.erase_devices_priority, Some(0));
        assert_eq!(agent.erase_devices_metadata_priority, Some(10));
        assert!(config.lifecycle.fast_track);
        assert!(config.inspection.hooks.contains("parse-lldp"));
        assert_eq!(config.conductor.host.as_deref(), Some(CONDUCTOR_NAME));
        assert!(config.api.listen.ip().is_loopback());

        let set = [
            ("FERRITE_DRIVERS__AGENT__ERASE_DEVICES_METADATA_PRIORITY", "7"),
            ("FERRITE_DATABASE__URL", "postgresql://h/d"),
        ];
        let config = load(Some(&path), variables(&set)).unwrap();
        let agent = &config.drivers.agent;
        assert_eq!(agent.erase_devices_priority, Some(5));
        assert_eq!(agent.erase_devices_metadata_priority, Some(7));
        assert!(!config.lifecycle.fast_track);
        assert_eq!(config.conductor.host, None, "replicas share the database");

        let missing = folder.path().join("missing.toml");
        let error = format!("{:#}", load(Some(&missing), Vec::new()).unwrap_err());
        assert!(error.contains("missing.toml"), "{error}");
    }
}
