// SPDX-License-Identifier: Apache-2.0
//! Deployments, Services, Jobs, DaemonSets, probes and termination.

use std::collections::BTreeSet;

use serde_json::json;

use crate::cluster::{NODES, file_server, get, pod, poll, shared, shell};

#[tokio::test]
async fn a_service_reaches_the_ready_replicas() {
    let Some(namespace) = shared("deployment").await else { return };
    let mut server = file_server();
    server["readinessProbe"] = json!({"httpGet": {"path": "/shared/ready", "port": "http"}});
    server["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
    let labels = json!({"app": "web"});
    namespace.apply(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "initContainers": [{
                    "name": "prepare", "image": "tools",
                    "command": ["sh", "-c", "touch /shared/ready"],
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
                }],
                "containers": [server],
                "volumes": [{"name": "shared", "emptyDir": {}}],
            },
        }},
    }));
    namespace.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": "http"}]},
    }));
    namespace.wait("condition=Available", "deployment/web");
    let address = namespace.field("service/web", ".spec.clusterIP");
    let mut seen = BTreeSet::new();
    poll("responses of all replicas", || {
        seen.extend(get(&address, "/name"));
        (seen.len() == 3).then_some(())
    });

    // A killed container is started again.
    let pod = seen.first().unwrap().trim().to_owned();
    namespace.cluster.kill_container(&namespace.name, &pod, "server").unwrap();
    let object = format!("pod/{pod}");
    namespace.wait_for_field(&object, ".status.containerStatuses[0].restartCount", "1");
    let code = ".status.containerStatuses[0].lastState.terminated.exitCode";
    assert_eq!(namespace.field(&object, code), "137");
    namespace.wait("condition=Ready", &object);

    // Another pod finds the Service by its name.
    let url = format!("http://web.{}.svc/name", namespace.name);
    namespace.apply(&crate::cluster::pod("client", shell(&format!("curl --fail --silent {url}"))));
    namespace.wait_for_field("pod/client", ".status.phase", "Succeeded");
    let printed = namespace.cluster.logs(&namespace.name, "client", "shell");
    assert!(seen.contains(&printed), "{printed:?}");

    namespace.kubectl(&["delete", "deployment/web"]);
    poll("no response without pods", || get(&address, "/name").is_none().then_some(()));
}

#[tokio::test]
async fn jobs_succeed_and_fail() {
    let Some(namespace) = shared("job").await else { return };
    for (name, script) in
        [("good", "echo $GREETING"), ("bad", "echo why >/dev/termination-log; exit 3")]
    {
        let mut container = shell(script);
        container["env"] = json!([{"name": "GREETING", "value": "hello"}]);
        namespace.apply(&json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"backoffLimit": 0, "podReplacementPolicy": "Failed", "template": {"spec": {
                "restartPolicy": "Never", "containers": [container]}}},
        }));
    }
    namespace.wait("condition=Complete", "job/good");
    namespace.wait("condition=Failed", "job/bad");
    let pod = |job: &str| {
        let selector = format!("--selector=job-name={job}");
        namespace.kubectl(&[
            "get",
            "pods",
            &selector,
            "--output",
            "jsonpath={.items[0].metadata.name}",
        ])
    };
    assert_eq!(namespace.cluster.logs(&namespace.name, &pod("good"), "shell"), "hello\n");
    let ended = ".status.containerStatuses[0].state.terminated";
    let object = format!("pod/{}", pod("bad"));
    assert_eq!(namespace.field(&object, &format!("{ended}.exitCode")), "3");
    assert_eq!(namespace.field(&object, &format!("{ended}.message")), "why\n");
}

#[tokio::test]
async fn a_daemon_set_runs_on_each_node_in_its_network() {
    let Some(namespace) = shared("daemonset").await else { return };
    let labels = json!({"app": "agent"});
    let mut server = file_server();
    server["ports"][0]["hostPort"] = json!(80);
    namespace.apply(&json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "hostNetwork": true,
                "terminationGracePeriodSeconds": 1,
                "tolerations": [{"operator": "Exists"}],
                "containers": [server],
            },
        }},
    }));
    namespace.wait_for_field("daemonset/agent", ".status.numberReady", "3");
    for node in NODES {
        let path = ".status.addresses[?(@.type==\"InternalIP\")].address";
        let address = namespace.field(&format!("node/{node}"), path);
        assert_eq!(get(&address, "/name").as_deref(), Some(&*format!("{node}\n")));
    }
    // Without the toleration, the node of the control plane has none.
    let patch = r#"[{"op": "remove", "path": "/spec/template/spec/tolerations"}]"#;
    namespace.kubectl(&["patch", "daemonset/agent", "--type=json", "--patch", patch]);
    namespace.wait_for_field("daemonset/agent", ".status.desiredNumberScheduled", "2");
    namespace.kubectl(&["rollout", "status", "daemonset/agent", "--timeout=180s"]);
}

#[tokio::test]
async fn a_failed_liveness_probe_restarts_the_container() {
    let Some(namespace) = shared("liveness").await else { return };
    let mut server = shell("touch /run/alive; sleep 1000 & wait");
    let command = json!(["test", "-e", "/run/alive"]);
    server["startupProbe"] = json!({"exec": {"command": command}});
    server["livenessProbe"] =
        json!({"exec": {"command": command}, "periodSeconds": 1, "failureThreshold": 1});
    let mut watched = pod("watched", server);
    watched["spec"]["restartPolicy"] = json!("Always");
    namespace.apply(&watched);
    namespace.wait("condition=Ready", "pod/watched");
    // A container that never starts its program has a reason in its status.
    let mut broken = pod("broken", shell("true"));
    broken["spec"]["containers"][0]["image"] = json!("unknown/image");
    namespace.apply(&broken);
    let reason = ".status.containerStatuses[0].state.waiting.reason";
    namespace.wait_for_field("pod/broken", reason, "ErrImagePull");
    let mut unconfigured = pod("unconfigured", shell("true"));
    unconfigured["spec"]["containers"][0]["env"] = json!([
        {"name": "X", "valueFrom": {"secretKeyRef": {"name": "missing", "key": "x"}}}]);
    namespace.apply(&unconfigured);
    namespace.wait_for_field("pod/unconfigured", reason, "CreateContainerConfigError");
    let restarts = ".status.containerStatuses[0].restartCount";
    let mut dying = pod("dying", shell("sleep 1000"));
    dying["spec"]["restartPolicy"] = json!("Always");
    dying["spec"]["containers"][0]["livenessProbe"] =
        json!({"tcpSocket": {"port": 9}, "periodSeconds": 1, "failureThreshold": 2});
    namespace.apply(&dying);
    namespace.wait_for_field("pod/dying", restarts, "1");
    // Its probe succeeded all the time.
    assert_eq!(namespace.field("pod/watched", restarts), "0");
}

#[tokio::test]
async fn containers_get_time_to_end() {
    let Some(namespace) = shared("termination").await else { return };
    let mut polite =
        pod("polite", shell("trap 'echo bye; exit 0' TERM; echo up; sleep 1000 & wait"));
    polite["spec"]["terminationGracePeriodSeconds"] = json!(60);
    namespace.apply(&polite);
    // PID 1 without a handler ignores SIGTERM, and is killed.
    let stubborn = pod("stubborn", shell("echo up; sleep 1000"));
    namespace.apply(&stubborn);
    for name in ["polite", "stubborn"] {
        let logs = || namespace.cluster.logs(&namespace.name, name, "shell");
        poll("output", || logs().contains("up").then_some(()));
        namespace.kubectl(&["delete", "pod", name, "--timeout=50s"]);
    }
    assert_eq!(namespace.cluster.logs(&namespace.name, "polite", "shell"), "up\nbye\n");
}
