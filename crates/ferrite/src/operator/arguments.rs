// SPDX-License-Identifier: Apache-2.0
//! Options of `ferrite operator`.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use command_line::parse_duration;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_resources::hosts::names::LEADER_ELECTION_ID as HOST_LEASE;
use kube_resources::ironic::names::LEADER_ELECTION_ID as IRONIC_LEASE;
use operator::certificates::{CertificateObjects, WebhookCertificateSource};
use operator::context::WatchScope;
use operator::leader::LeaseTiming;
use operator::process::{ElectionSettings, WebhookSettings};

use super::environment::OperatorEnvironment;
use crate::config::{LogSection, check_log_level};
use crate::embedded_service::EmbeddedServiceArguments;
use crate::service::host_name;

/// Names of the leases.
const LEASES: [&str; 2] = [HOST_LEASE, IRONIC_LEASE];

const CONTROLLERS: &str = "Controllers";
const ELECTION: &str = "Leader election";
const SERVERS: &str = "Servers";
const LOGS: &str = "Logs";

/// A controller of `ferrite operator`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ControllerChoice {
    /// Installs and maintains the service.
    Ironic,
    /// Installs and maintains databases.
    #[value(name = "ironicdatabase")]
    IronicDatabase,
    /// Provisions hosts.
    #[value(name = "baremetalhost")]
    BareMetalHost,
}

/// How hosts are provisioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProvisionerChoice {
    /// Any Ironic over HTTP.
    Ironic,
    /// The service in this process.
    InProcess,
    /// Simulated hosts, for tests and demonstrations.
    Fixture,
}

/// Options of `ferrite operator`. Environment variables of Metal3's operators that select images,
/// versions, the Ironic API and its credentials are read too; see docs/kubernetes-operator.md.
#[derive(Args, Debug)]
pub(crate) struct OperatorArguments {
    /// Controllers to run, separated by commas.
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', help_heading = CONTROLLERS,
          default_values_t = [ControllerChoice::Ironic, ControllerChoice::IronicDatabase,
                              ControllerChoice::BareMetalHost])]
    controllers: Vec<ControllerChoice>,
    /// How hosts are provisioned. By default in-process with --with-service, else ironic.
    #[arg(long, value_enum, value_name = "NAME", help_heading = CONTROLLERS)]
    provisioner: Option<ProvisionerChoice>,
    /// Request a ramdisk for each host with a PreprovisioningImage. Configured ramdisks
    /// (DEPLOY_ISO_URL and others) are offered for it; without them another controller has to
    /// provide the ramdisk of each PreprovisioningImage.
    #[arg(long, help_heading = CONTROLLERS)]
    pub(super) build_preprov_image: bool,
    /// Give hosts to HostClaim objects of namespaces that a HostDeployPolicy admits.
    #[arg(long, help_heading = CONTROLLERS)]
    pub(super) hostclaims: bool,
    #[command(flatten)]
    pub(crate) service: EmbeddedServiceArguments,
    /// Control only objects in this namespace; may be given several times. By default all.
    #[arg(long, value_name = "NAME", env = "WATCH_NAMESPACE", value_delimiter = ',',
          help_heading = CONTROLLERS)]
    namespace: Vec<String>,
    /// Access to the API server. By default the file of KUBECONFIG, ~/.kube/config, or the
    /// ServiceAccount of the pod.
    #[arg(long, value_name = "FILE", help_heading = CONTROLLERS)]
    kubeconfig: Option<PathBuf>,
    /// Run controllers only while this process holds their lease.
    #[arg(long, help_heading = ELECTION)]
    leader_elect: bool,
    /// Namespace of the leases, or LEASE=NAMESPACE for one of them; may be given several times. By
    /// default the namespace of the pod, or of the context of the kubeconfig.
    #[arg(long, value_name = "NAMESPACE", help_heading = ELECTION)]
    leader_election_namespace: Vec<String>,
    /// Others take a lease that was not renewed for this time.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "15s",
          help_heading = ELECTION)]
    lease_duration: Duration,
    /// End if the lease could not be renewed for this time.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s",
          help_heading = ELECTION)]
    renew_deadline: Duration,
    /// Time between two attempts to acquire or renew a lease.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2s",
          help_heading = ELECTION)]
    retry_period: Duration,
    /// Address of /healthz and /readyz, or `off`.
    #[arg(long, value_name = "ADDR:PORT", default_value = ":8081", help_heading = SERVERS)]
    pub(super) health_listen: OptionalAddress,
    /// Address of /metrics, or `off`.
    #[arg(long, value_name = "ADDR:PORT", default_value = ":8080", help_heading = SERVERS)]
    pub(super) metrics_listen: OptionalAddress,
    /// Address of the admission webhooks, or `off`.
    #[arg(long, value_name = "ADDR:PORT", default_value = ":9443", help_heading = SERVERS)]
    webhook_listen: OptionalAddress,
    /// Folder with the certificate of the webhooks, tls.crt and tls.key, such as a Secret of
    /// cert-manager. By default the operator has a CA of its own.
    #[arg(long, value_name = "DIR", help_heading = SERVERS)]
    webhook_cert_dir: Option<PathBuf>,
    /// ValidatingWebhookConfiguration that gets the certificate of the own CA.
    #[arg(long, value_name = "NAME", default_value = "ferrite-operator", help_heading = SERVERS)]
    webhook_configuration: String,
    /// Secret of the own CA, in the namespace of the pod.
    #[arg(long, value_name = "NAME", default_value = "ferrite-operator-webhook-ca",
          help_heading = SERVERS)]
    webhook_secret: String,
    /// Log filter, such as `info` or `info,operator=debug`.
    #[arg(long, value_name = "FILTER", env = "FERRITE_LOG__LEVEL", default_value = "info",
          help_heading = LOGS)]
    log_level: String,
    /// Write one JSON object per line instead of text.
    #[arg(long, help_heading = LOGS)]
    log_json: bool,
}

/// An address to listen on; `None` if it is `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionalAddress(pub(crate) Option<SocketAddr>);

impl FromStr for OptionalAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if matches!(text, "off" | "0") {
            return Ok(Self(None));
        }
        // As in Go: all addresses of the host.
        let any_address = |port: &str| {
            let port = port.parse().ok()?;
            Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        };
        let address = match text.strip_prefix(':') {
            Some(port) => any_address(port),
            None => text.parse().ok(),
        };
        let address = address.ok_or("use an address such as 0.0.0.0:8080 or :8080, or off")?;
        Ok(Self(Some(address)))
    }
}

impl OperatorArguments {
    /// Rejects options that contradict each other.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        check_log_level("--log-level", &self.log_level)?;
        self.timing().check().context("the times of the leader election are invalid")?;
        if self.controllers.is_empty() {
            bail!("--controllers is empty; name at least one");
        }
        if self.provisioner() == ProvisionerChoice::InProcess && !self.service.with_service {
            bail!("--provisioner in-process needs --with-service");
        }
        match self.scope() {
            WatchScope::Namespaces(names) => {
                names.iter().try_for_each(|name| check_namespace("--namespace", name))?;
            }
            // The variable may be set and empty.
            WatchScope::Cluster if self.namespace.iter().all(String::is_empty) => {}
            WatchScope::Cluster => bail!(
                "--namespace (WATCH_NAMESPACE) contains no names; name the namespaces, or leave it out for \
                 all"
            ),
        }
        self.check_lease_namespaces()
    }

    fn check_lease_namespaces(&self) -> anyhow::Result<()> {
        const OPTION: &str = "--leader-election-namespace";
        if !self.leader_election_namespace.is_empty() && !self.leader_elect {
            bail!("{OPTION} needs --leader-elect");
        }
        let mut leases = BTreeSet::new();
        for value in &self.leader_election_namespace {
            let (lease, namespace) = match value.split_once('=') {
                Some((lease, _)) if !LEASES.contains(&lease) => {
                    bail!(
                        "{OPTION}: there is no lease {lease:?}; the leases are {}",
                        LEASES.join(", ")
                    )
                }
                Some((lease, namespace)) => (Some(lease), namespace),
                None => (None, value.as_str()),
            };
            check_namespace(OPTION, namespace)?;
            if !leases.insert(lease) {
                match lease {
                    Some(lease) => {
                        bail!("{OPTION} is given twice for the lease {lease}; give it once")
                    }
                    None => bail!(
                        "{OPTION} is given twice without a lease; give it once, or as LEASE=NAMESPACE"
                    ),
                }
            }
        }
        Ok(())
    }

    /// How hosts are provisioned.
    pub(super) fn provisioner(&self) -> ProvisionerChoice {
        self.provisioner.unwrap_or(match self.service.with_service {
            true => ProvisionerChoice::InProcess,
            false => ProvisionerChoice::Ironic,
        })
    }

    pub(super) fn log(&self) -> LogSection {
        LogSection { level: self.log_level.clone(), json: self.log_json }
    }

    pub(super) fn runs(&self, controller: ControllerChoice) -> bool {
        self.controllers.contains(&controller)
    }

    /// Access to the API server.
    pub(super) async fn kube_config(&self) -> anyhow::Result<kube::Config> {
        const HINT: &str = "cannot find out how to reach the API server; use --kubeconfig";
        let Some(path) = &self.kubeconfig else { return kube::Config::infer().await.context(HINT) };
        let file = Kubeconfig::read_from(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .with_context(|| format!("{} is invalid", path.display()))
    }

    /// The namespaces that the options name.
    pub(super) fn named_namespaces(&self) -> BTreeSet<String> {
        let leases = self.leader_election_namespace.iter();
        let leases =
            leases.map(|value| value.split_once('=').map_or(value.as_str(), |(_, name)| name));
        let mut names: BTreeSet<String> = leases.map(str::to_owned).collect();
        if let WatchScope::Namespaces(watched) = self.scope() {
            names.extend(watched);
        }
        names
    }

    /// Namespaces whose objects are controlled.
    pub(super) fn scope(&self) -> WatchScope {
        // The variable may be set and empty.
        let mut names: Vec<String> =
            self.namespace.iter().map(|name| name.trim().to_owned()).collect();
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names.dedup();
        if names.is_empty() { WatchScope::Cluster } else { WatchScope::Namespaces(names) }
    }

    pub(super) fn election(&self, kube: &kube::Config) -> anyhow::Result<Option<ElectionSettings>> {
        if !self.leader_elect {
            return Ok(None);
        }
        let mut namespace = own_namespace(kube);
        let mut lease_namespaces = Vec::new();
        for value in &self.leader_election_namespace {
            match value.split_once('=') {
                None => namespace.clone_from(value),
                Some((lease, value)) => lease_namespaces.push((lease.to_owned(), value.to_owned())),
            }
        }
        tracing::info!(
            namespace,
            other_namespaces = ?lease_namespaces,
            "leases of the leader election are in this namespace"
        );
        // Unique after a restart, so that a process never continues with an old lease.
        let identity = format!("{}_{}", host_name(), uuid::Uuid::new_v4());
        let timing = self.timing();
        Ok(Some(ElectionSettings { namespace, lease_namespaces, identity, timing }))
    }

    pub(super) fn webhooks(
        &self,
        kube: &kube::Config,
        environment: &OperatorEnvironment,
    ) -> anyhow::Result<Option<WebhookSettings>> {
        let Some(listen) = self.webhook_listen.0 else { return Ok(None) };
        let certificates = match &self.webhook_cert_dir {
            Some(folder) => WebhookCertificateSource::Folder(folder.clone()),
            None => WebhookCertificateSource::SelfManaged(CertificateObjects {
                namespace: own_namespace(kube),
                secret: self.webhook_secret.clone(),
                configuration: self.webhook_configuration.clone(),
            }),
        };
        let ironic_rules = environment.installation.rules.clone();
        Ok(Some(WebhookSettings { listen, certificates, ironic_rules }))
    }

    fn timing(&self) -> LeaseTiming {
        LeaseTiming {
            duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
        }
    }
}

/// Rejects what is not a label of RFC 1123, as the API server does.
pub(super) fn check_namespace(option: &str, name: &str) -> anyhow::Result<()> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_valid = (1..=63).contains(&name.len())
        && name.bytes().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if !is_valid {
        bail!(
            "{option}: {name:?} is not the name of a namespace; use at most 63 lower-case letters, digits \
             and '-', with a letter or digit at both ends"
        );
    }
    Ok(())
}

/// The namespace of the pod, or of the context of the kubeconfig.
fn own_namespace(kube: &kube::Config) -> String {
    let variable = std::env::var("POD_NAMESPACE").ok().filter(|name| !name.is_empty());
    variable.unwrap_or_else(|| kube.default_namespace.clone())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct OperatorCommand {
        #[command(flatten)]
        operator: OperatorArguments,
    }

    fn check(arguments: &[&str]) -> Result<(), String> {
        let all = std::iter::once("operator").chain(arguments.iter().copied());
        OperatorCommand::parse_from(all).operator.check().map_err(|error| error.to_string())
    }

    #[test]
    fn contradictions_and_unknown_names_are_rejected() {
        let long = "a".repeat(64);
        let namespace = "--leader-election-namespace";
        for (arguments, expected) in [
            (&["--namespace", "Bad_Name"][..], "--namespace: \"Bad_Name\" is not the name"),
            (&["--namespace", "a,-b"], "--namespace: \"-b\""),
            (&["--namespace", "a.b"], "--namespace: \"a.b\""),
            (&["--namespace", long.as_str()], "--namespace: "),
            (&["--namespace", " , "], "--namespace (WATCH_NAMESPACE) contains no names"),
            (&["--namespace", " "], "--namespace (WATCH_NAMESPACE) contains no names"),
            (&["--log-level", "infoo"], "--log-level: \"infoo\" is not a level; use off, error, "),
            (&["--log-level", "info,operator=loud"], "--log-level: \"loud\" is not a level"),
            (
                &["--leader-elect", namespace, "a", namespace, "b"],
                "--leader-election-namespace is given twice without a lease",
            ),
            (
                &[
                    "--leader-elect",
                    namespace,
                    "baremetal-operator=a",
                    namespace,
                    "baremetal-operator=b",
                ],
                "--leader-election-namespace is given twice for the lease baremetal-operator",
            ),
            (&[namespace, "metal"], "--leader-election-namespace needs --leader-elect"),
            (
                &["--leader-elect", namespace, "baremetal-oprator=metal"],
                "--leader-election-namespace: there is no lease \"baremetal-oprator\"; the leases are \
                 baremetal-operator, ",
            ),
            (&["--leader-elect", namespace, "Metal"], "--leader-election-namespace: \"Metal\""),
            (
                &["--leader-elect", namespace, "baremetal-operator="],
                "--leader-election-namespace: ",
            ),
        ] {
            let error = check(arguments).unwrap_err();
            assert!(error.starts_with(expected), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn valid_options_are_accepted() {
        for lease in LEASES {
            let lease = format!("{lease}=metal-2");
            let arguments = [
                "--leader-elect",
                "--leader-election-namespace",
                lease.as_str(),
                "--leader-election-namespace",
                "metal-3",
                "--namespace",
                "a,b-1",
            ];
            assert_eq!(check(&arguments), Ok(()));
        }
        // The variable of the option may be set and empty.
        assert_eq!(check(&["--namespace", ""]), Ok(()));
    }
}
