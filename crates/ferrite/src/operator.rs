// SPDX-License-Identifier: Apache-2.0
//! `ferrite operator`: runs the Kubernetes controllers until it is stopped.

mod arguments;
mod environment;

use std::sync::Arc;

use anyhow::Context as _;
use kube_resources::hosts::names::LEADER_ELECTION_ID as HOST_LEASE;
use kube_resources::ironic::names::LEADER_ELECTION_ID as IRONIC_LEASE;
use operator::context::ControllerContext;
use operator::hosts::controller::{HostControllerSettings, RamdiskImages};
use operator::hosts::provisioner::HostProvisioner;
use operator::hosts::provisioner::fixture::FixtureProvisioner;
use operator::hosts::provisioner::ironic::{IronicProvisioner, IronicTransport};
use operator::ironic_connection::IronicConnection;
use operator::leader::{FencedTransport, LeadershipFence};
use operator::process::{ControllerGroup, ManagedController, ManagerSettings, OperatorManager};
use tokio::sync::watch;

use crate::embedded_service::{EmbeddedService, ServiceHandle};
use crate::in_process_transport::InProcessTransport;
use crate::process::{StopSignal, print_line, raise_open_file_limit};
use crate::telemetry;
pub(crate) use arguments::OperatorArguments;
use arguments::{ControllerChoice, ProvisionerChoice};
use environment::OperatorEnvironment;

/// Runs until SIGTERM or SIGINT, or until the leadership is lost.
pub(crate) fn operator(arguments: &OperatorArguments) -> anyhow::Result<()> {
    arguments.check()?;
    let log = arguments.log();
    telemetry::start(&log)?;
    raise_open_file_limit();
    // Variables that are not UTF-8 are not for this program.
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let environment = OperatorEnvironment::read(arguments, &variables)?;
    let service =
        arguments.service.with_service.then(|| EmbeddedService::prepare(&arguments.service, &log));
    let service = service.transpose()?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if service.is_none() {
        // Controllers mostly wait for responses. glibc keeps free memory per thread: with 2,000 hosts, a second
        // thread needs 9 MiB more.
        runtime.worker_threads(1);
    }
    let runtime = runtime.enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(run(arguments, environment, service))
}

async fn run(
    arguments: &OperatorArguments,
    environment: OperatorEnvironment,
    service: Option<EmbeddedService>,
) -> anyhow::Result<()> {
    let Some(service) = service else {
        let mut stop = StopSignal::listen()?;
        return run_manager(arguments, environment, None, stop.received()).await;
    };
    let operate = async |service: ServiceHandle, mut stopped: watch::Receiver<bool>| {
        let stop = async move {
            // An error means that the process ends.
            let _ = stopped.wait_for(|is_stopping| *is_stopping).await;
        };
        run_manager(arguments, environment.clone(), Some(service), stop).await
    };
    service.run(operate).await
}

/// Runs the controllers until `stop` completes, or until the leadership is lost.
async fn run_manager(
    arguments: &OperatorArguments,
    environment: OperatorEnvironment,
    service: Option<ServiceHandle>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let kube = arguments.kube_config().await?;
    let mut namespaces = arguments.named_namespaces();
    namespaces.extend(environment.ironic_namespace());
    let client = kube::Client::try_from(kube.clone()).context("cannot create a client")?;
    tokio::spawn(operator::namespaces::warn_about_missing(client, namespaces));
    let settings = ManagerSettings {
        scope: arguments.scope(),
        election: arguments.election(&kube)?,
        health_listen: arguments.health_listen.0,
        metrics_listen: arguments.metrics_listen.0,
        webhooks: arguments.webhooks(&kube, &environment)?,
        kube,
    };
    let mut manager = OperatorManager::bind(settings).await?;
    if let Some(service) = &service {
        manager = manager.with_readiness(service.readiness.clone());
    }
    announce(&manager, arguments.log().json);
    let transport = service.map(|service| service.transport);
    let groups = controller_groups(arguments, environment, transport);
    manager.run(groups, stop).await?;
    Ok(())
}

/// Prints the addresses, for users and for programs that start this one. They are logged instead if the
/// output has to be JSON.
fn announce(manager: &OperatorManager, is_json: bool) {
    let addresses = manager.addresses();
    for (purpose, address) in [
        ("probes", addresses.health),
        ("metrics", addresses.metrics),
        ("webhooks", addresses.webhooks),
    ] {
        match address {
            Some(address) if is_json => tracing::info!(purpose, %address, "listening"),
            Some(address) => print_line(&format!("{purpose} on {address}")),
            None => {}
        }
    }
    match is_json {
        true => tracing::info!("ferrite operator started"),
        false => print_line("ferrite operator started"),
    }
}

/// The chosen controllers. Those that replace one of Metal3's operators share its lease, so that it
/// does not run at the same time.
fn controller_groups(
    arguments: &OperatorArguments,
    environment: OperatorEnvironment,
    in_process: Option<Arc<InProcessTransport>>,
) -> Vec<ControllerGroup> {
    let mut installation = Vec::new();
    if arguments.runs(ControllerChoice::Ironic) {
        let settings = environment.installation.clone();
        installation.push(ManagedController {
            name: "ironic",
            start: Box::new(|context, _| {
                Box::pin(async {
                    operator::ironic::controller::run(context, settings).await?;
                    Ok(())
                })
            }),
        });
    }
    if arguments.runs(ControllerChoice::IronicDatabase) {
        let settings = environment.database.clone();
        installation.push(ManagedController {
            name: "ironicdatabase",
            start: Box::new(|context, _| {
                Box::pin(async {
                    operator::ironic_database::controller::run(context, settings).await?;
                    Ok(())
                })
            }),
        });
    }
    let mut hosts = Vec::new();
    if arguments.runs(ControllerChoice::BareMetalHost) {
        let (choice, host_claims) = (arguments.provisioner(), arguments.hostclaims);
        hosts.push(ManagedController {
            name: "baremetalhost",
            start: Box::new(move |context, fence| {
                Box::pin(async move {
                    let settings = host_settings(&environment, host_claims);
                    let provisioner = provisioner(choice, environment, in_process, &context, fence);
                    operator::hosts::controller::run(context, provisioner, settings).await;
                    Ok(())
                })
            }),
        });
    }
    [(IRONIC_LEASE, installation), (HOST_LEASE, hosts)]
        .into_iter()
        .filter(|(_, controllers)| !controllers.is_empty())
        .map(|(lease, controllers)| ControllerGroup { lease, controllers })
        .collect()
}

fn host_settings(environment: &OperatorEnvironment, host_claims: bool) -> HostControllerSettings {
    let mut settings = HostControllerSettings { host_claims, ..HostControllerSettings::default() };
    if let Some(concurrency) = environment.host_concurrency {
        settings.concurrency = concurrency;
    }
    let ramdisk = &environment.provisioner.ramdisk;
    if ramdisk.is_built_per_host {
        let is_configured = ramdisk.iso.is_some()
            || ramdisk.ramdisk.is_some()
            || !ramdisk.by_architecture.is_empty();
        settings.ramdisk_images = match is_configured {
            true => RamdiskImages::Configured(ramdisk.clone()),
            false => RamdiskImages::Requested,
        };
    }
    settings
}

fn provisioner(
    choice: ProvisionerChoice,
    environment: OperatorEnvironment,
    in_process: Option<Arc<InProcessTransport>>,
    context: &ControllerContext,
    fence: LeadershipFence,
) -> Arc<dyn HostProvisioner> {
    let transport: Arc<dyn IronicTransport> = match (choice, in_process) {
        (ProvisionerChoice::Fixture, _) => return Arc::new(FixtureProvisioner::default()),
        (ProvisionerChoice::InProcess, Some(service)) => service,
        // Without a service, in-process was rejected at the start.
        (ProvisionerChoice::Ironic, _) | (ProvisionerChoice::InProcess, None) => {
            Arc::new(IronicConnection::new(environment.ironic, context))
        }
    };
    let transport = Arc::new(FencedTransport::new(transport, fence));
    Arc::new(IronicProvisioner::new(transport, environment.provisioner))
}
