// SPDX-License-Identifier: Apache-2.0
//! Volumes: ConfigMaps and Secrets, claims, files of the container itself.

use serde_json::json;

use crate::cluster::{file_server, get, pod, poll, shared, shell};

#[tokio::test]
async fn changed_config_maps_reach_running_pods() {
    let Some(namespace) = shared("config").await else { return };
    let config = |text: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"file": text}});
    let mut server = file_server();
    server["volumeMounts"] = json!([
        {"name": "config", "mountPath": "/etc/service", "readOnly": true},
        {"name": "identity", "mountPath": "/identity"},
    ]);
    let mut server = pod("server", server);
    server["spec"]["volumes"] = json!([
        {"name": "config", "configMap": {"name": "config"}},
        {"name": "identity", "downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]);
    // The pod waits for the ConfigMap.
    namespace.apply(&server);
    let state = ".status.containerStatuses[0].state.waiting";
    poll("a message about the missing ConfigMap", || {
        namespace.field("pod/server", state).contains("config").then_some(())
    });
    namespace.apply(&config("first"));
    namespace.wait("condition=Ready", "pod/server");
    let address = namespace.field("pod/server", ".status.podIP");
    assert_eq!(get(&address, "/etc/service/file").as_deref(), Some("first"));
    assert_eq!(get(&address, "/identity/name").as_deref(), Some("server"));
    namespace.apply(&config("second"));
    poll("the new content", || (get(&address, "/etc/service/file")? == "second").then_some(()));
}

#[tokio::test]
async fn claimed_volumes_outlive_pods() {
    let Some(namespace) = shared("claim").await else { return };
    namespace.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }));
    let user = |name: &str, policy: &str, script: &str| {
        let mut container = shell(script);
        container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        container["securityContext"] = json!({"runAsUser": 997, "runAsGroup": 994, "runAsNonRoot": true,
            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}});
        let mut pod = pod(name, container);
        pod["spec"]["securityContext"] = json!({"fsGroup": 994, "fsGroupChangePolicy": policy});
        pod["spec"]["volumes"] =
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        pod
    };
    let script = "id; touch /file || echo kept >/data/file; chmod 600 /data/file";
    namespace.apply(&user("writer", "Always", script));
    namespace.wait_for_field("pod/writer", ".status.phase", "Succeeded");
    let printed = namespace.cluster.logs(&namespace.name, "writer", "shell");
    assert!(printed.starts_with("uid=997 gid=994 groups=994\n"), "{printed}");
    assert!(printed.contains("Read-only file system"), "{printed}");
    namespace.kubectl(&["delete", "pod/writer"]);
    for (name, policy, mode) in
        [("first-reader", "OnRootMismatch", "600"), ("reader", "Always", "660")]
    {
        namespace.apply(&user(name, policy, "cat /data/file; stat --format=%a /data/file"));
        namespace.wait_for_field(&format!("pod/{name}"), ".status.phase", "Succeeded");
        let printed = namespace.cluster.logs(&namespace.name, name, "shell");
        assert_eq!(printed, format!("kept\n{mode}\n"), "{policy}");
    }
    namespace.kubectl(&["delete", "pod/first-reader"]);

    let volume = namespace.field("pvc/data", ".spec.volumeName");
    namespace.kubectl(&["delete", "pod/reader"]);
    namespace.kubectl(&["delete", "pvc/data"]);
    namespace.wait("delete", &format!("pv/{volume}"));
    assert!(!namespace.cluster.folder().join("volumes").join(volume).exists());
}

#[tokio::test]
async fn secrets_have_their_mode_and_group() {
    let Some(namespace) = shared("secret").await else { return };
    namespace.kubectl(&["create", "secret", "generic", "keys", "--from-literal=key=secret"]);
    let mut container =
        shell("stat -L -c '%a %g' /keys/key; cat /keys/key; echo $KEY; echo x >/keys/key");
    container["volumeMounts"] = json!([{"name": "keys", "mountPath": "/keys", "readOnly": true}]);
    container["env"] =
        json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}]);
    let mut reader = pod("reader", container);
    reader["spec"]["securityContext"] = json!({"fsGroup": 994});
    reader["spec"]["volumes"] =
        json!([{"name": "keys", "secret": {"secretName": "keys", "defaultMode": 256}}]);
    namespace.apply(&reader);
    namespace.wait_for_field("pod/reader", ".status.phase", "Failed");
    let printed = namespace.cluster.logs(&namespace.name, "reader", "shell");
    assert!(printed.starts_with("440 994\nsecretsecret\n"), "{printed}");
    assert!(printed.contains("Read-only file system"), "{printed}");
}
