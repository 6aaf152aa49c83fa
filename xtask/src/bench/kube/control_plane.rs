// SPDX-License-Identifier: Apache-2.0
//! etcd and kube-apiserver on free ports of the loopback interface.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http_probe::ProbeClient;
use serde_json::json;

use super::super::tls_client::BenchTls;
use super::host_objects::NAMESPACE;
use crate::shell;
use crate::test::process::{Process, free_port, with_death_signal};

const TOKEN: &str = "bench-token";
/// Room for the revisions of 10,000 hosts between two compactions.
const ETCD_QUOTA: u64 = 8 << 30;
/// A page of a long list takes seconds on a loaded computer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The running processes. Fields are dropped in this order.
pub(super) struct BenchControlPlane {
    api_server: Process,
    _etcd: Process,
    address: SocketAddr,
    program: PathBuf,
    folder: PathBuf,
}

impl BenchControlPlane {
    /// Starts both and waits until the API server is ready. `program` is the one that the tests use.
    pub(super) fn start(program: &Path, folder: &Path) -> Result<Self> {
        let folder = folder.join("control-plane");
        fs::create_dir_all(&folder)?;
        let key = rcgen::KeyPair::generate().context("cannot generate a key")?;
        fs::write(folder.join("accounts.key"), key.serialize_pem())?;
        fs::write(folder.join("accounts.pub"), key.public_key_pem())?;
        fs::write(folder.join("tokens.csv"), format!("{TOKEN},bench,bench,system:masters\n"))?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(free_port()?), url(free_port()?));
        let etcd = start_part(
            program,
            &folder,
            "etcd",
            &[
                format!("--data-dir={}", folder.join("etcd").display()),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=default={peer}"),
                format!("--quota-backend-bytes={ETCD_QUOTA}"),
                // Measures no disk.
                "--unsafe-no-fsync".to_owned(),
            ],
        )?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let file = |name: &str| folder.join(name).display().to_string();
        let api_server = start_part(
            program,
            &folder,
            "kube-apiserver",
            &[
                format!("--etcd-servers={client}"),
                format!("--bind-address={}", address.ip()),
                format!("--advertise-address={}", address.ip()),
                format!("--secure-port={}", address.port()),
                format!("--cert-dir={}", folder.display()),
                format!("--token-auth-file={}", file("tokens.csv")),
                "--authorization-mode=RBAC".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", file("accounts.pub")),
                format!("--service-account-signing-key-file={}", file("accounts.key")),
                "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            ],
        )?;
        let program = program.to_owned();
        let mut cluster = Self { api_server, _etcd: etcd, address, program, folder };
        fs::write(cluster.kubeconfig(), cluster.kubeconfig_text())?;
        let (address, certificate) = (cluster.address, cluster.certificate());
        cluster.api_server.wait_until(|| {
            let client = client_of(address, &certificate);
            let response = client.and_then(|mut it| Ok(it.send("GET", "/readyz", None)?));
            response.is_ok_and(|response| response.status == 200)
        })?;
        Ok(cluster)
    }

    /// Installs the CRDs that `ferrite crds` prints, and creates the namespace of the hosts.
    pub(super) fn apply_crds(&self, ferrite: &Path) -> Result<()> {
        let file = self.folder.join("crds.yaml");
        fs::write(&file, shell::output_of(Command::new(ferrite).arg("crds"))?)?;
        let file = file.display().to_string();
        self.kubectl(&["apply", "--server-side", "--filename", &file])?;
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=120s", "crd", "--all"])?;
        self.kubectl(&["create", "namespace", NAMESPACE])
    }

    /// A client with all permissions.
    pub(super) fn client(&self) -> Result<ProbeClient> {
        client_of(self.address, &self.certificate())
    }

    /// Address and credentials for clients of Kubernetes.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    pub(super) fn api_server_pid(&self) -> u32 {
        self.api_server.pid()
    }

    /// The API server creates it at its start.
    fn certificate(&self) -> PathBuf {
        self.folder.join("apiserver.crt")
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("kubectl").args(arguments);
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", &self.folder);
        shell::output_of(&mut command)?;
        Ok(())
    }

    fn kubeconfig_text(&self) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": {
                "server": format!("https://{}", self.address),
                "certificate-authority": self.certificate(),
            }}],
            "users": [{"name": "bench", "user": {"token": TOKEN}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "current-context": "bench",
        })
        .to_string()
    }
}

fn client_of(address: SocketAddr, certificate: &Path) -> Result<ProbeClient> {
    let tls = BenchTls::trusting(certificate)?;
    Ok(ProbeClient::new(address)
        .with_header("Authorization", &format!("Bearer {TOKEN}"))
        .with_tls(Arc::new(tls))
        .with_timeout(REQUEST_TIMEOUT))
}

fn start_part(
    program: &Path,
    folder: &Path,
    name: &'static str,
    arguments: &[String],
) -> Result<Process> {
    let mut command = with_death_signal(program, "KILL", folder);
    command.arg(name).args(arguments);
    Process::start(name, "TERM", command, folder.join(format!("{name}.log")))
}
