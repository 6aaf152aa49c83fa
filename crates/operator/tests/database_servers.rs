// SPDX-License-Identifier: Apache-2.0
//! The containers of database servers, run as processes with the real server programs: first start,
//! login of the readiness probe, changed password, restart.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_resources::ironic::database::IronicDatabase;
use operator::ironic_database::desired::{DatabaseFacts, desired_database};
use operator::ironic_database::settings::IronicDatabaseSettings;
use serde_json::{Value, json};

/// The user of the servers if the tests run as root: PostgreSQL refuses to be root.
const UNPRIVILEGED: u32 = 65534;

/// One kind of server.
struct ServerKind {
    engine: &'static str,
    /// Programs that must be installed.
    program: &'static str,
    /// Line of its log after which it accepts connections.
    ready: &'static str,
    /// Arguments for a port of its own.
    port_arguments: fn(u16) -> Vec<String>,
    /// The same for the client.
    client_port: fn(u16) -> (String, String),
}

const MARIADB: ServerKind = ServerKind {
    engine: "MariaDB",
    program: "mariadbd",
    ready: "ready for connections",
    port_arguments: |port| vec![format!("--port={port}"), "--bind-address=127.0.0.1".to_owned()],
    client_port: |port| ("--protocol=tcp".to_owned(), format!("--port={port}")),
};

const POSTGRESQL: ServerKind = ServerKind {
    engine: "PostgreSQL",
    program: "initdb",
    ready: "ready to accept connections",
    port_arguments: |port| vec!["-c".to_owned(), format!("port={port}")],
    client_port: |port| ("--no-psqlrc".to_owned(), format!("--port={port}")),
};

/// Folders of the server programs that are not in everybody's PATH.
fn search_path() -> String {
    let mut path = std::env::var("PATH").unwrap_or_default();
    path.push_str(":/usr/sbin");
    for entry in fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten() {
        path.push_str(&format!(":{}", entry.path().join("bin").display()));
    }
    path
}

fn is_installed(program: &str) -> bool {
    search_path().split(':').any(|folder| Path::new(folder).join(program).exists())
}

/// The container of a database server on this machine.
struct Container {
    folder: tempfile::TempDir,
    kind: ServerKind,
    port: u16,
    server: Option<Child>,
}

impl Container {
    fn new(kind: ServerKind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["data", "tmp", "setup"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            give(&folder.path().join(name));
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { folder, kind, port, server: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The objects for a password, with the files of the Secret in the folder.
    fn mount(&self, password: &str) -> Value {
        let database: IronicDatabase = serde_json::from_value(json!({
            "metadata": {"name": "db", "namespace": "metal"}, "spec": {"engine": self.kind.engine},
        }))
        .unwrap();
        let facts = DatabaseFacts {
            credentials_name: "login".to_owned(),
            username: "ironic-user".to_owned(),
            password: password.to_owned(),
            certificate: None,
        };
        let objects =
            desired_database(&database, &facts, &IronicDatabaseSettings::default()).unwrap();
        for (name, value) in objects[0]["data"].as_object().unwrap() {
            let path = self.path("setup").join(name);
            fs::write(&path, STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap();
            give(&path);
        }
        objects.last().unwrap()["spec"]["template"]["spec"]["containers"][0].clone()
    }

    /// A command of the container, as the user of the server.
    fn command(&self, words: &Value, password: (&str, &str)) -> Command {
        let words = words.as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if is_root() {
            let id = UNPRIVILEGED.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
        }
        command
            .args(words)
            .env("PATH", search_path())
            .env("HOME", self.path("tmp"))
            .env("TMPDIR", self.path("tmp"))
            .env("DATABASE_FOLDER", self.path("data").join("server"))
            .env("SETUP_FOLDER", self.path("setup"))
            .env(password.0, password.1)
            .current_dir(self.path("tmp"));
        command
    }

    /// Starts the server and waits until it accepts connections.
    fn start(&mut self, password: &str) {
        let container = self.mount(password);
        let mut command = self.command(&container["command"], ("UNUSED", ""));
        command.args((self.kind.port_arguments)(self.port));
        let mut server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = Vec::new();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let is_ready = lines.by_ref().map_while(Result::ok).any(|line| {
            let is_ready = line.contains(self.kind.ready);
            log.push(line);
            is_ready
        });
        assert!(is_ready, "{}", log.join("\n"));
        // The server must not wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        self.server = Some(server);
    }

    /// Whether the command of the readiness probe succeeds.
    fn can_log_in(&self, password: &str) -> bool {
        let container = self.mount(password);
        let mut words = container["readinessProbe"]["exec"]["command"].clone();
        let (after, port) = (self.kind.client_port)(self.port);
        let list = words.as_array_mut().unwrap();
        let position = list.iter().position(|word| *word == *after).unwrap();
        list.insert(position + 1, json!(port));
        let variable = container["env"][2]["name"].as_str().unwrap().to_owned();
        let mut command = self.command(&words, (&variable, password));
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGTERM: a fast clean stop of both servers, as the kubelet does.
            Command::new("kill").arg(server.id().to_string()).status().unwrap();
            server.wait().unwrap();
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

fn give(path: &Path) {
    if is_root() {
        chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
    }
}

/// The database survives restarts, and each start sets the password of the Secret.
fn check_server(kind: ServerKind) {
    if !is_installed(kind.program) {
        let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
        assert!(!required, "{} is not installed, but servers are required", kind.program);
        println!("skipped: {} is not installed", kind.program);
        return;
    }
    let first = r#"it's \"one\" $HOME"#;
    let second = r"two`'\";
    let mut container = Container::new(kind);
    // An interrupted first start.
    fs::create_dir(container.path("data").join("server.new")).unwrap();
    give(&container.path("data").join("server.new"));
    container.start(first);
    assert!(container.can_log_in(first));
    assert!(!container.can_log_in(second));
    container.stop();
    assert!(!container.can_log_in(first), "the server is stopped");
    container.start(second);
    assert!(container.can_log_in(second));
    assert!(!container.can_log_in(first), "the previous password");
    container.stop();
}

#[test]
fn mariadb_accepts_the_password_of_the_secret() {
    check_server(MARIADB);
}

#[test]
fn postgresql_accepts_the_password_of_the_secret() {
    check_server(POSTGRESQL);
}
