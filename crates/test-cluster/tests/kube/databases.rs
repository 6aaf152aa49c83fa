// SPDX-License-Identifier: Apache-2.0
//! The database images: the contract of the official ones, with the servers of this machine.

use serde_json::json;

use crate::cluster::{pod, shared, shell};

#[tokio::test]
async fn mariadb_and_postgresql_accept_logins() {
    let Some(namespace) = shared("databases").await else { return };
    let postgres_login = "export PGPASSWORD=secret PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH; \
                          psql --host $SERVER --username ironic --dbname ironic --command 'SELECT 42'";
    for (name, port, variables, folder, login) in [
        (
            "mariadb",
            3306,
            json!({"MARIADB_ROOT_PASSWORD": "root", "MARIADB_USER": "ironic", "MARIADB_PASSWORD": "secret", "MARIADB_DATABASE": "ironic"}),
            "/var/lib/mysql",
            "mariadb --host=$SERVER --user=ironic --password=secret ironic --execute='SELECT 42'",
        ),
        (
            "postgres",
            5432,
            json!({"POSTGRES_USER": "ironic", "POSTGRES_PASSWORD": "secret", "POSTGRES_DB": "ironic"}),
            "/var/lib/postgresql/data",
            postgres_login,
        ),
    ] {
        let variables: Vec<_> = variables
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        let mut server = pod(
            name,
            json!({
                "name": "database",
                "image": format!("docker.io/library/{name}:latest"),
                "env": variables,
                "volumeMounts": [{"name": "data", "mountPath": folder}],
                "readinessProbe": {"tcpSocket": {"port": port}},
            }),
        );
        server["spec"]["restartPolicy"] = json!("Always");
        server["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        namespace.apply(&server);
        namespace.wait("condition=Ready", &format!("pod/{name}"));
        let client = format!("{name}-client");
        let mut container = shell(login);
        let address = namespace.field(&format!("pod/{name}"), ".status.podIP");
        container["env"] = json!([{"name": "SERVER", "value": address}]);
        namespace.apply(&pod(&client, container));
        let object = format!("pod/{client}");
        namespace.wait_for_field(
            &object,
            ".status.containerStatuses[0].state.terminated.exitCode",
            "0",
        );
        let printed = namespace.cluster.logs(&namespace.name, &client, "shell");
        assert!(printed.contains("42"), "{printed}");
    }
}
