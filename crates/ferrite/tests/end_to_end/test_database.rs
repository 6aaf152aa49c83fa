// SPDX-License-Identifier: Apache-2.0
//! A separate database on a server per test.

use std::net::SocketAddr;

use mysql::prelude::Queryable as _;

/// Variables with the URLs of the servers.
pub(crate) const SERVER_VARIABLES: [&str; 2] = ["FERRITE_TEST_POSTGRES", "FERRITE_TEST_MARIADB"];

/// A database on a server, dropped at the end of the test.
pub(crate) struct EndToEndDatabase {
    base: String,
    name: String,
    pub(crate) url: String,
}

impl EndToEndDatabase {
    /// Creates a database on the server in this variable. Returns `None` if the variable is not set and
    /// servers are not required.
    pub(crate) fn create(variable: &str) -> Option<Self> {
        let Ok(base) = std::env::var(variable) else {
            let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required");
            assert!(!required, "{variable} is not set, and FERRITE_TEST_SERVERS=required");
            println!("skipped: {variable} is not set");
            return None;
        };
        let name = format!("ferrite_{}", uuid::Uuid::new_v4().simple());
        let (server, _) = base.rsplit_once('/').expect("a URL ends in a database");
        let url = format!("{server}/{name}");
        let database = Self { base, name, url };
        database.on_server(&format!("CREATE DATABASE {}", database.name));
        Some(database)
    }

    /// The URL with the address that `forward` returns for the address of the server.
    pub(crate) fn forwarded(&self, forward: impl FnOnce(SocketAddr) -> SocketAddr) -> String {
        let (before, rest) = self.url.split_once('@').expect("the URL has a user");
        let (server, database) = rest.split_once('/').expect("the URL has a database");
        let server = server.replace("localhost", "127.0.0.1");
        format!("{before}@{}/{database}", forward(server.parse().unwrap()))
    }

    fn is_postgres(&self) -> bool {
        self.base.starts_with("postgres")
    }

    fn on_server(&self, sql: &str) {
        if self.is_postgres() {
            let mut client = postgres::Client::connect(&self.base, postgres::NoTls).unwrap();
            client.batch_execute(sql).unwrap();
        } else {
            mysql::Conn::new(self.base.as_str()).unwrap().query_drop(sql).unwrap();
        }
    }
}

impl Drop for EndToEndDatabase {
    fn drop(&mut self) {
        let force = if self.is_postgres() { " WITH (FORCE)" } else { "" };
        self.on_server(&format!("DROP DATABASE {}{force}", self.name));
    }
}
