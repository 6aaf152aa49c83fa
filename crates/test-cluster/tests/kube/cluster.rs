// SPDX-License-Identifier: Apache-2.0
//! The cluster of these tests, one namespace per test, and requests to pods.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_cluster::{TestCluster, TestClusterOptions, TestImage, TestNode};
use tokio::sync::OnceCell;

pub(crate) const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];
/// For `kubectl wait`. Generous, because other programs may use the processors.
const WAIT: &str = "--timeout=180s";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns whether there is a control plane. Without one tests are skipped, unless it is required.
pub(crate) fn is_available() -> bool {
    if TestCluster::program().is_some() {
        return true;
    }
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
    let variable = test_cluster::PROGRAM_VARIABLE;
    assert!(!required, "{variable} is not set, and FERRITE_TEST_SERVERS=required");
    println!("skipped: {variable} is not set");
    false
}

/// A cluster with three nodes, the first of which belongs to the control plane.
pub(crate) async fn start() -> TestCluster {
    let [first, second, third] = NODES;
    let options = TestClusterOptions {
        crds: Vec::new(),
        nodes: vec![
            TestNode::control_plane(first),
            TestNode::worker(second),
            TestNode::worker(third),
        ],
        images: vec![
            TestImage::program("pod-program", PathBuf::from(env!("CARGO_BIN_EXE_pod-program"))),
            TestImage::program("kubectl", TestCluster::program().unwrap()),
            TestImage::tools("tools"),
            TestImage::mariadb(),
            TestImage::postgres(),
        ],
    };
    TestCluster::start(options).await.unwrap()
}

/// A namespace of one test.
pub(crate) struct KubectlNamespace<'a> {
    pub(crate) cluster: &'a TestCluster,
    pub(crate) name: String,
}

/// A new namespace in the cluster that most tests share; `None` without a control plane.
pub(crate) async fn shared(purpose: &str) -> Option<KubectlNamespace<'static>> {
    static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();
    if !is_available() {
        return None;
    }
    Some(KubectlNamespace::create(CLUSTER.get_or_init(start).await, purpose))
}

impl<'a> KubectlNamespace<'a> {
    /// Creates a namespace whose name starts with `purpose`.
    pub(crate) fn create(cluster: &'a TestCluster, purpose: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{purpose}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        cluster.kubectl(&["create", "namespace", &name]).unwrap();
        let namespace = Self { cluster, name };
        namespace.wait("create", "serviceaccount/default");
        namespace
    }

    /// Runs kubectl in the namespace.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let in_namespace = [&["--namespace", &self.name], arguments].concat();
        self.cluster.kubectl(&in_namespace).unwrap_or_else(|error| {
            let pods = self.cluster.kubectl(&["get", "pods", "-A", "--output", "wide"]);
            let log = std::fs::read_to_string(self.cluster.folder().join("kubelet.log"));
            let last = log.as_deref().unwrap_or_default().lines().last().unwrap_or_default();
            panic!("{error:#}\n{}{last}", pods.unwrap_or_default())
        })
    }

    /// Creates or changes an object.
    pub(crate) fn apply(&self, object: &Value) {
        let mut command = self.cluster.kubectl_command();
        command.args(["--namespace", &self.name, "apply", "--filename", "-"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Waits for a condition, as in `kubectl wait --for`.
    pub(crate) fn wait(&self, condition: &str, object: &str) {
        self.kubectl(&["wait", &format!("--for={condition}"), object, WAIT]);
    }

    /// A field of an object, as a JSON path.
    pub(crate) fn field(&self, object: &str, path: &str) -> String {
        self.kubectl(&["get", object, "--output", &format!("jsonpath={{{path}}}")])
    }

    /// Waits until a JSON path of an object has a value.
    pub(crate) fn wait_for_field(&self, object: &str, path: &str, value: &str) {
        self.wait(&format!("jsonpath={{{path}}}={value}"), object);
    }
}

/// A container that serves files on port 80.
pub(crate) fn file_server() -> Value {
    json!({
        "name": "server",
        "image": "registry.example/pod-program:1",
        "args": ["80"],
        "ports": [{"name": "http", "containerPort": 80}],
        "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1},
    })
}

/// A container that runs a shell script.
pub(crate) fn shell(script: &str) -> Value {
    json!({"name": "shell", "image": "tools", "command": ["sh", "-c", script]})
}

/// A pod that ends by itself.
pub(crate) fn pod(name: &str, container: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}

/// The body of a file from a pod or Service; `None` if the file or the server does not exist.
pub(crate) fn get(address: &str, path: &str) -> Option<String> {
    let mut connection = TcpStream::connect((address, 80)).ok()?;
    connection.set_read_timeout(Some(REQUEST_TIMEOUT)).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
    let mut response = String::new();
    connection.read_to_string(&mut response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.to_owned())
}

/// Polls until `check` returns a value.
pub(crate) fn poll<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(POLL_INTERVAL);
    }
}
