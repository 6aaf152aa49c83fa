// SPDX-License-Identifier: Apache-2.0
//! etcd, kube-apiserver and kube-controller-manager, from one program that `cargo xtask` builds.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::network::ClusterNetwork;
use crate::process::{ChildProcess, dies_with_tests};

/// Usually four seconds; longer on a loaded machine.
const START_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const ADMIN_TOKEN: &str = "admin-token";
/// Records the requests of pods, with the decision of RBAC.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: [\"system:serviceaccounts\"]
  - level: None
";
const AUDIT_LOG: &str = "audit.log";
const API_PORT: u16 = 6443;
const ETCD_PORT: u16 = 2379;
const ETCD_PEER_PORT: u16 = 2380;
const CONTROLLER_MANAGER_PORT: u16 = 10257;
/// Seconds without a sign of life after which a node is unreachable.
const NODE_GRACE: u32 = 20;
/// Seconds after which pods of an unreachable node are deleted, instead of five minutes.
const EVICTION: u32 = 5;

/// Those that matter to tests; the others use memory and time.
const CONTROLLERS: &[&str] = &[
    "clusterrole-aggregation-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
];

/// The running processes.
pub(crate) struct ControlPlane {
    program: PathBuf,
    folder: PathBuf,
    network: ClusterNetwork,
    etcd: ChildProcess,
    api_server: ChildProcess,
    controller_manager: Option<ChildProcess>,
}

impl ControlPlane {
    /// Starts etcd and the API server, and waits until the API server is ready.
    pub(crate) async fn start(
        program: &Path,
        folder: &Path,
        network: ClusterNetwork,
    ) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let key = rcgen::KeyPair::generate().context("cannot generate a key")?;
        fs::write(folder.join("service-accounts.key"), key.serialize_pem())?;
        fs::write(folder.join("service-accounts.pub"), key.public_key_pem())?;
        fs::write(
            folder.join("tokens.csv"),
            format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n"),
        )?;
        fs::write(folder.join("audit-policy.yaml"), AUDIT_POLICY)?;
        fs::write(folder.join("kubeconfig"), kubeconfig(folder, network.host_address()))?;
        let host = network.host_address();
        let client_url = format!("http://{host}:{ETCD_PORT}");
        let peer_url = format!("http://{host}:{ETCD_PEER_PORT}");
        let etcd = start_part(
            program,
            folder,
            "etcd",
            &[
                format!("--data-dir={}", folder.join("etcd").display()),
                format!("--listen-client-urls={client_url}"),
                format!("--advertise-client-urls={client_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
                "--unsafe-no-fsync".to_owned(),
            ],
        )?;
        let api_server = start_api_server(program, folder, network)?;
        let control_plane = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            network,
            etcd,
            api_server,
            controller_manager: None,
        };
        control_plane.wait_until_ready().await?;
        Ok(control_plane)
    }

    /// Starts the controllers. CRDs should exist already: the garbage collector looks for new ones
    /// only twice a minute.
    pub(crate) fn start_controllers(&mut self) -> Result<()> {
        let key = self.folder.join("service-accounts.key");
        let arguments = [
            format!("--kubeconfig={}", self.kubeconfig().display()),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=false".to_owned(),
            format!("--root-ca-file={}", self.folder.join("apiserver.crt").display()),
            format!("--service-account-private-key-file={}", key.display()),
            format!("--bind-address={}", self.network.host_address()),
            format!("--secure-port={CONTROLLER_MANAGER_PORT}"),
            format!("--cert-dir={}", self.folder.join("controller-manager").display()),
            format!("--node-monitor-grace-period={NODE_GRACE}s"),
            "--node-monitor-period=1s".to_owned(),
            format!("--controllers={}", CONTROLLERS.join(",")),
        ];
        let started =
            start_part(&self.program, &self.folder, "kube-controller-manager", &arguments)?;
        self.controller_manager = Some(started);
        Ok(())
    }

    /// Kills the API server.
    pub(crate) async fn stop_api_server(&self) {
        self.api_server.kill();
        self.api_server.wait().await;
    }

    /// Starts the API server again and waits until it is ready.
    pub(crate) async fn restart_api_server(&mut self) -> Result<()> {
        self.stop_api_server().await;
        self.api_server = start_api_server(&self.program, &self.folder, self.network)?;
        self.wait_until_ready().await
    }

    /// The file with the credentials of the administrator.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The certificate that the API server is verified with.
    pub(crate) fn ca(&self) -> Result<String> {
        fs::read_to_string(self.folder.join("apiserver.crt")).context("there is no certificate yet")
    }

    /// The requests of a user that RBAC denied: verb and path.
    pub(crate) fn denied_requests(&self, user: &str) -> Result<Vec<String>> {
        let log = self.folder.join(AUDIT_LOG);
        let text = match fs::read_to_string(&log) {
            // It is created with the first entry.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.context("cannot read the audit log")?,
        };
        // The last line may be incomplete.
        let entries =
            text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        Ok(entries
            .filter(|entry| entry["user"]["username"] == user)
            .filter(|entry| entry["annotations"]["authorization.k8s.io/decision"] == "forbid")
            .map(|entry| {
                let field = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
                format!("{} {}", field("verb"), field("requestURI"))
            })
            .collect())
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let Err(error) = self.check().await else { return Ok(()) };
            for (name, process) in [("etcd", &self.etcd), ("kube-apiserver", &self.api_server)] {
                if let Some(status) = process.exit_status() {
                    bail!("{name} exited with {status}:\n{}", self.last_lines(name));
                }
            }
            if Instant::now() >= deadline {
                let log = self.last_lines("kube-apiserver");
                bail!("kube-apiserver did not become ready ({error:#}):\n{log}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn check(&self) -> Result<()> {
        // The API server creates its certificate at the first start.
        self.ca()?;
        let request = http::Request::get("/readyz").body(Vec::new())?;
        client(&self.kubeconfig()).await?.request_text(request).await?;
        Ok(())
    }

    fn last_lines(&self, name: &str) -> String {
        let log = fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(15).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for process in self.controller_manager.iter().chain([&self.api_server, &self.etcd]) {
            process.kill();
        }
    }
}

/// A client with all permissions. It belongs to the calling runtime.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn start_api_server(
    program: &Path,
    folder: &Path,
    network: ClusterNetwork,
) -> Result<ChildProcess> {
    let host = network.host_address();
    let key =
        |ending: &str| folder.join(format!("service-accounts.{ending}")).display().to_string();
    let arguments = [
        format!("--etcd-servers=http://{host}:{ETCD_PORT}"),
        format!("--bind-address={host}"),
        format!("--advertise-address={host}"),
        format!("--secure-port={API_PORT}"),
        format!("--cert-dir={}", folder.display()),
        format!("--token-auth-file={}", folder.join("tokens.csv").display()),
        "--authorization-mode=RBAC".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", key("pub")),
        format!("--service-account-signing-key-file={}", key("key")),
        format!("--service-cluster-ip-range={}", network.service_range()),
        "--allow-privileged=true".to_owned(),
        format!("--audit-policy-file={}", folder.join("audit-policy.yaml").display()),
        format!("--audit-log-path={}", folder.join(AUDIT_LOG).display()),
        format!("--default-not-ready-toleration-seconds={EVICTION}"),
        format!("--default-unreachable-toleration-seconds={EVICTION}"),
    ];
    start_part(program, folder, "kube-apiserver", &arguments)
}

fn start_part(
    program: &Path,
    folder: &Path,
    name: &str,
    arguments: &[String],
) -> Result<ChildProcess> {
    let log = folder.join(format!("{name}.log"));
    let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
    let mut command = dies_with_tests(program);
    command.arg(name).args(arguments).current_dir(folder);
    command.stdout(log.try_clone()?).stderr(log);
    ChildProcess::start(command).with_context(|| format!("cannot start {name}"))
}

fn kubeconfig(folder: &Path, host: Ipv4Addr) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://{host}:{API_PORT}"),
            "certificate-authority": folder.join("apiserver.crt"),
        }}],
        "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    })
    .to_string()
}
