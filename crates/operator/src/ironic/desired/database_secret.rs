// SPDX-License-Identifier: Apache-2.0
//! The Secret with the URL of the database, which contains the credentials.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_resources::ironic::database::DatabaseEngine;
use kube_resources::ironic::names::MANAGED_LABEL;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::super::facts::{DatabaseEndpoint, content_hash};
use super::DesiredInput;
use super::configuration::DATABASE_CA_FOLDER;
use super::metadata::{DATABASE_URL_KEY, object, object_names};

/// The Secret, if there is a database server.
pub(super) fn secret(input: &DesiredInput<'_>) -> Option<Value> {
    let url = url(input.facts.database.as_ref()?);
    let mut secret = object(input, "v1", "Secret", &object_names(input.ironic).database_secret);
    let (label, value) = MANAGED_LABEL;
    secret["metadata"]["labels"][label] = json!(value);
    secret["type"] = json!("Opaque");
    secret["data"] = json!({DATABASE_URL_KEY: STANDARD.encode(url)});
    Some(secret)
}

/// Hash of the Secret and of the CA certificate. They are read at start, so other ones need new pods.
pub(super) fn hash(input: &DesiredInput<'_>) -> Option<String> {
    let server = input.facts.database.as_ref()?;
    let url = url(server);
    let ca = server.ca.as_ref().map(|ca| ca.hash.as_str()).unwrap_or_default();
    Some(content_hash(&[(DATABASE_URL_KEY, url.as_bytes()), ("ca", ca.as_bytes())]))
}

fn url(server: &DatabaseEndpoint) -> String {
    let scheme = match server.engine {
        DatabaseEngine::PostgreSql => "postgresql",
        DatabaseEngine::MariaDb | DatabaseEngine::Other(_) => "mysql",
    };
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    // An IPv6 address without brackets has more than one colon.
    let is_bare_ipv6 = server.host.matches(':').count() > 1 && !server.host.starts_with('[');
    let host = if is_bare_ipv6 { format!("[{}]", server.host) } else { server.host.clone() };
    let ca = server.ca.as_ref().map(|ca| {
        let file = format!("{DATABASE_CA_FOLDER}/{}", ca.key);
        format!("?sslmode=verify-full&sslrootcert={file}")
    });
    format!(
        "{scheme}://{}:{}@{host}/{}{}",
        encode(server.username.trim()),
        encode(server.password.trim()),
        encode(&server.name),
        ca.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::facts::DatabaseCa;
    use super::*;

    #[test]
    fn urls_have_encoded_credentials() {
        let mut server = DatabaseEndpoint {
            engine: DatabaseEngine::MariaDb,
            host: "db.example".to_owned(),
            name: "ironic".to_owned(),
            username: "user\n".to_owned(),
            password: "p@ss:/w?rd%".to_owned(),
            ca: None,
        };
        assert_eq!(url(&server), "mysql://user:p%40ss%3A%2Fw%3Frd%25@db.example/ironic");
        server.engine = DatabaseEngine::PostgreSql;
        server.host = "2001:db8::1".to_owned();
        server.ca = Some(DatabaseCa {
            secret_name: "ca".to_owned(),
            key: "tls.crt".to_owned(),
            hash: String::new(),
        });
        assert_eq!(
            url(&server),
            "postgresql://user:p%40ss%3A%2Fw%3Frd%25@[2001:db8::1]/ironic\
             ?sslmode=verify-full&sslrootcert=/certs/ca/database/tls.crt"
        );
        server.host = "db.example:3307".to_owned();
        assert!(url(&server).contains("@db.example:3307/"));
    }
}
