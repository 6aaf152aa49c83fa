// SPDX-License-Identifier: Apache-2.0
//! TLS and client certificates of database servers. `cargo xtask with-servers` starts servers with TLS;
//! their user `ferrite_tls` has no password and requires a client certificate.

use std::sync::Arc;

use node_model::Timestamp;
use store::{Store, StoreOpenError};

use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! { certificates_of_servers_are_verified client_certificates_are_presented unusable_settings_are_reported }

/// The folder of certificates, with the address of the test database, or `None` for SQLite.
fn server(db: &TestDatabase) -> Option<(String, String)> {
    let url = db.settings.url.clone()?;
    let Ok(folder) = std::env::var("FERRITE_TEST_DATABASE_CERTIFICATES") else {
        let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
        assert!(!required, "FERRITE_TEST_DATABASE_CERTIFICATES is not set");
        return None;
    };
    Some((folder, url))
}

/// The error text, or an empty one.
fn open(db: &TestDatabase, url: &str) -> String {
    let mut settings = db.settings.clone();
    settings.url = Some(url.to_owned());
    match Store::open_with_clock(&settings, Arc::new(|| Timestamp(1_800_000_000_000_000))) {
        Ok(store) => {
            store.close();
            String::new()
        }
        Err(error) => {
            let cause = std::error::Error::source(&error);
            format!("{error}: {}", cause.map(ToString::to_string).unwrap_or_default())
        }
    }
}

fn certificates_of_servers_are_verified(db: &TestDatabase) {
    let Some((folder, url)) = server(db) else { return };
    let by_name = url.replace("127.0.0.1", "localhost");
    for (url, query, expected) in [
        (&url, "sslmode=disable".to_owned(), ""),
        (&url, "sslmode=prefer".to_owned(), ""),
        (&url, "sslmode=require".to_owned(), ""),
        (&url, format!("sslmode=verify-full&sslrootcert={folder}/ca.pem"), ""),
        (&url, format!("sslmode=verify-full&sslrootcert={folder}/other-ca.pem"), "UnknownIssuer"),
        (&url, "sslmode=verify-full".to_owned(), "UnknownIssuer"),
        // The certificate is for 127.0.0.1 only.
        (
            &by_name,
            format!("sslmode=verify-full&sslrootcert={folder}/ca.pem"),
            "not valid for name",
        ),
    ] {
        let found = open(db, &format!("{url}?{query}"));
        let is_expected =
            if expected.is_empty() { found.is_empty() } else { found.contains(expected) };
        assert!(is_expected, "{query}: {found:?}");
    }
    let any_name = open(db, &format!("{by_name}?sslmode=verify-ca&sslrootcert={folder}/ca.pem"));
    let other = open(db, &format!("{by_name}?sslmode=require&sslrootcert={folder}/other-ca.pem"));
    match db.kind {
        EngineKind::Sqlite => {}
        EngineKind::Postgres => {
            assert_eq!(any_name, "");
            assert!(other.contains("UnknownIssuer"), "{other}");
        }
        EngineKind::MariaDb => {
            for error in [any_name, other] {
                assert!(error.contains("use sslmode=verify-full"), "{error}");
            }
        }
    }
}

fn client_certificates_are_presented(db: &TestDatabase) {
    let Some((folder, url)) = server(db) else { return };
    db.sql(match db.kind {
        EngineKind::Sqlite => return,
        EngineKind::Postgres => {
            "DO $$ BEGIN CREATE ROLE ferrite_tls SUPERUSER LOGIN;
             EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
        }
        EngineKind::MariaDb => "CREATE USER IF NOT EXISTS ferrite_tls@'127.0.0.1' REQUIRE X509",
    });
    if db.kind == EngineKind::MariaDb {
        db.sql("GRANT ALL PRIVILEGES ON *.* TO ferrite_tls@'127.0.0.1'");
    }
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, server) = rest.split_once('@').unwrap();
    let url = format!("{scheme}://ferrite_tls@{server}");
    let verified = format!("sslmode=verify-full&sslrootcert={folder}/ca.pem");
    let client = format!("sslcert={folder}/client.pem&sslkey={folder}/client.key");
    for query in ["sslmode=disable", "sslmode=require", &verified] {
        let error = open(db, &format!("{url}?{query}"));
        assert!(error.starts_with("cannot connect to database"), "{query}: {error:?}");
    }
    for query in [format!("{verified}&{client}"), format!("{client}&sslmode=require")] {
        assert_eq!(open(db, &format!("{url}?{query}")), "", "{query}");
    }
}

fn unusable_settings_are_reported(db: &TestDatabase) {
    let Some((folder, url)) = server(db) else { return };
    for (query, expected) in [
        ("sslmode=allow".to_owned(), "must be disable, prefer, require"),
        (format!("sslcert={folder}/client.pem"), "sslcert requires sslkey"),
        ("sslmode=verify-full&sslrootcert=/nowhere/ca.pem".to_owned(), "/nowhere/ca.pem"),
        (
            format!("sslmode=require&sslcert={folder}/client.key&sslkey={folder}/client.pem"),
            "client.",
        ),
    ] {
        let found = open(db, &format!("{url}?{query}"));
        assert!(found.contains(expected), "{query}: {found}");
    }
    let error = Store::open_with_clock(
        &store::StoreSettings { url: Some(format!("{url}?sslmode=x")), ..db.settings.clone() },
        Arc::new(|| Timestamp(0)),
    )
    .map(Store::close)
    .unwrap_err();
    assert!(matches!(error, StoreOpenError::Address { .. }), "{error:?}");
}
