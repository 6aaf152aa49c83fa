// SPDX-License-Identifier: Apache-2.0
//! A cluster of three MariaDB servers with Galera.
//!
//! All members start with a copy of the same data, so a new member gets only the last transactions
//! from another one. Galera runs a script even then; the usual ones are in a package with a system
//! service, so the cluster has its own, which copies nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::server_process::{
    DatabaseProcess, data_folder, free_port, give_to_server, run, unprivileged,
};

const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
const MEMBERS: usize = 3;

/// Galera calls it on the member that joins, and on the one that sends.
const TRANSFER_SCRIPT: &str = r#"#!/bin/sh
while [ $# -gt 0 ]; do
    case "$1" in
        --role) role=$2 ;;
        --gtid) gtid=$2 ;;
    esac
    shift
done
if [ "$role" = joiner ]; then
    echo "ready 127.0.0.1:1/local"
    echo "$FERRITE_TEST_POSITION"
else
    echo "done $gtid"
fi
"#;

/// Three servers, each of which accepts writes.
pub struct GaleraCluster {
    members: Vec<DatabaseProcess>,
    ports: Vec<u16>,
    // Dropped after the servers.
    _folder: TempDir,
    _script: TempDir,
}

impl GaleraCluster {
    /// Starts the members and waits until all of them are ready.
    ///
    /// # Errors
    /// Fails if MariaDB or Galera is not installed or does not start.
    pub fn start() -> Result<Self> {
        let folder = data_folder()?;
        let script = transfer_script()?;
        let mut files = ClusterFiles {
            folder: folder.path().to_owned(),
            script: script.path().to_owned(),
            ports: free_ports()?,
            cluster_ports: free_ports()?,
            transfer_ports: free_ports()?,
            position: String::new(),
        };
        files.initialise()?;
        let mut members = Vec::new();
        for index in 0..MEMBERS {
            members.push(files.start(index)?);
        }
        Ok(Self { members, ports: files.ports, _folder: folder, _script: script })
    }

    /// The URL with all members.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("mysql://ferrite@{}/ferrite", hosts.join(","))
    }

    /// The URL of one member.
    #[must_use]
    pub fn member_url(&self, index: usize) -> String {
        format!("mysql://ferrite@127.0.0.1:{}/ferrite", self.ports[index])
    }

    /// Kills a member.
    ///
    /// # Errors
    /// Fails if the signal cannot be sent.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.members[index].kill()
    }

    /// Stops a member without closing its connections.
    ///
    /// # Errors
    /// Fails if the signal cannot be sent.
    pub fn pause(&self, index: usize) -> Result<()> {
        self.members[index].signal(Signal::STOP)
    }
}

/// The folders and ports of the members.
struct ClusterFiles {
    folder: PathBuf,
    script: PathBuf,
    ports: Vec<u16>,
    cluster_ports: Vec<u16>,
    transfer_ports: Vec<u16>,
    /// The position of the copied data in the history of the cluster.
    position: String,
}

impl ClusterFiles {
    fn data(&self, index: usize) -> PathBuf {
        self.folder.join(format!("member{index}"))
    }

    /// Creates the data of the first member and copies it to the others.
    fn initialise(&mut self) -> Result<()> {
        run(unprivileged(Path::new("mariadb-install-db"), &self.folder)
            .args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"])
            .arg("--auth-root-authentication-method=normal")
            .arg(format!("--datadir={}", self.data(0).display())))?;
        let mut first = self.start(0)?;
        self.sql(
            0,
            "CREATE USER ferrite@'127.0.0.1'; GRANT ALL ON *.* TO ferrite@'127.0.0.1'; \
             CREATE DATABASE ferrite",
        )?;
        first.stop(Signal::TERM)?;
        let state = self.data(0).join("grastate.dat");
        let text = fs::read_to_string(&state).context("cannot read the state of the cluster")?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim).with_context(|| format!("{name} is missing in {text}"))
        };
        self.position = format!("{}:{}", field("uuid:")?, field("seqno:")?);
        fs::write(&state, text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1"))?;
        give_to_server(&state)?;
        for index in 1..MEMBERS {
            run(unprivileged(Path::new("cp"), &self.folder)
                .arg("-r")
                .args([self.data(0), self.data(index)]))?;
        }
        Ok(())
    }

    /// Starts a member and waits until it accepts transactions.
    fn start(&self, index: usize) -> Result<DatabaseProcess> {
        let addresses: Vec<String> =
            self.cluster_ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let data = self.data(index);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = unprivileged(&mariadbd()?, &self.folder);
        command
            .env("PATH", format!("{}:{path}", self.script.display()))
            .env("FERRITE_TEST_POSITION", &self.position)
            .args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"])
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0"])
            .args(["--innodb-buffer-pool-size=32M", "--skip-log-bin", "--binlog-format=ROW"])
            .args(["--innodb-autoinc-lock-mode=2", "--wsrep-on=ON", "--wsrep-sst-method=local"])
            .args(["--wsrep-cluster-name=ferrite", "--wsrep-node-address=127.0.0.1"])
            .arg(format!("--wsrep-provider={PROVIDER}"))
            .arg(format!("--wsrep-node-name=member{index}"))
            .arg(format!("--wsrep-cluster-address=gcomm://{}", addresses.join(",")))
            .arg(format!(
                "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{cluster};\
                 base_port={cluster};ist.recv_addr=127.0.0.1:{transfer};gcache.size=32M;\
                 pc.recovery=false",
                cluster = self.cluster_ports[index],
                transfer = self.transfer_ports[index]
            ))
            .arg(format!("--port={}", self.ports[index]))
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", self.socket(index).display()))
            .arg(format!("--pid-file={}.pid", data.display()));
        if index == 0 {
            command.arg("--wsrep-new-cluster");
        }
        let mut member = DatabaseProcess::start(command, &data.with_extension("log"))?;
        let query = "SHOW STATUS LIKE 'wsrep_ready'";
        member.wait_until(|| self.sql(index, query).is_ok_and(|status| status.contains("ON")))?;
        Ok(member)
    }

    fn socket(&self, index: usize) -> PathBuf {
        self.folder.join(format!("socket{index}"))
    }

    /// Runs statements on a member.
    fn sql(&self, index: usize, sql: &str) -> Result<String> {
        // A member that is starting accepts connections before it responds to them.
        let seconds = Duration::from_secs(10).as_secs().to_string();
        run(Command::new("timeout")
            .args([&seconds, "mariadb", "--no-defaults", "--user=root", "--batch", "-N"])
            .arg(format!("--socket={}", self.socket(index).display()))
            .args(["-e", sql]))
    }
}

/// The folder of the script, in which programs can be executed.
fn transfer_script() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    // The method "none" would transfer nothing at all.
    let path = folder.path().join("wsrep_sst_local");
    fs::write(&path, TRANSFER_SCRIPT)?;
    for path in [folder.path(), &path] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(folder)
}

fn free_ports() -> Result<Vec<u16>> {
    (0..MEMBERS).map(|_| free_port()).collect()
}

fn mariadbd() -> Result<PathBuf> {
    let places = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd"].map(PathBuf::from);
    let found = places.into_iter().find(|path| path.exists());
    found.context("MariaDB is missing; install mariadb-server-core")
}
