// SPDX-License-Identifier: Apache-2.0
//! The statements that create the database and its account, and set the password at each start.

use kube_resources::ironic::database::DatabaseEngine;
use thiserror::Error;

/// Name of the database.
pub const DATABASE_NAME: &str = "ironic";
/// Maximum length of a user name in PostgreSQL; MariaDB allows more.
const MAX_USER_NAME: usize = 63;
/// Accounts of the servers themselves.
const RESERVED_NAMES: &[&str] = &["mariadb.sys", "mysql", "postgres", "public", "root"];

/// Credentials of the account.
#[derive(Clone, Copy)]
pub struct DatabaseAccount<'a> {
    /// User name.
    pub username: &'a str,
    /// Password.
    pub password: &'a str,
}

/// Why credentials cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccountError {
    /// The user name is not allowed.
    #[error(
        "the user name {0:?} is not allowed; use up to {MAX_USER_NAME} letters, digits, - and _, and \
         no name of the server's own accounts"
    )]
    UserName(String),
    /// The password is not allowed.
    #[error("the password has control characters; remove them")]
    Password,
}

/// A file for the container.
pub type SetupFile = (&'static str, String);

/// The files for a server. With TLS, other connections are rejected.
pub fn setup_files(
    engine: &DatabaseEngine,
    account: DatabaseAccount<'_>,
    has_tls: bool,
) -> Result<Vec<SetupFile>, AccountError> {
    check(account)?;
    Ok(match engine {
        DatabaseEngine::PostgreSql => postgresql(account, has_tls),
        DatabaseEngine::MariaDb | DatabaseEngine::Other(_) => mariadb(account),
    })
}

fn check(account: DatabaseAccount<'_>) -> Result<(), AccountError> {
    let name = account.username;
    let is_allowed =
        |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let is_valid = !name.is_empty()
        && name.len() <= MAX_USER_NAME
        && name.chars().all(is_allowed)
        && !name.starts_with("pg_")
        && !RESERVED_NAMES.contains(&name);
    if !is_valid {
        return Err(AccountError::UserName(name.to_owned()));
    }
    if account.password.chars().any(char::is_control) {
        return Err(AccountError::Password);
    }
    Ok(())
}

/// One statement per line, as the server requires.
fn mariadb(account: DatabaseAccount<'_>) -> Vec<SetupFile> {
    let user = format!("'{}'@'%'", account.username);
    let password = account.password.replace('\\', "\\\\").replace('\'', "''");
    let setup = format!(
        "CREATE DATABASE IF NOT EXISTS `{DATABASE_NAME}` CHARACTER SET utf8mb4;\n\
         CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{password}';\n\
         ALTER USER {user} IDENTIFIED BY '{password}';\n\
         GRANT ALL PRIVILEGES ON `{DATABASE_NAME}`.* TO {user};\n"
    );
    vec![("setup.sql", setup)]
}

/// One statement per line, as the server requires without clients.
fn postgresql(account: DatabaseAccount<'_>, has_tls: bool) -> Vec<SetupFile> {
    let user = account.username;
    let password = account.password.replace('\'', "''");
    let setup = format!(
        "DO $setup$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{user}') THEN \
         CREATE ROLE \"{user}\"; END IF; END $setup$;\n\
         ALTER ROLE \"{user}\" WITH LOGIN PASSWORD '{password}';\n\
         ALTER DATABASE \"{DATABASE_NAME}\" OWNER TO \"{user}\";\n"
    );
    let connection = if has_tls { "hostssl" } else { "host" };
    vec![
        ("create.sql", format!("CREATE DATABASE \"{DATABASE_NAME}\";\n")),
        ("setup.sql", setup),
        ("pg_hba.conf", format!("{connection} \"{DATABASE_NAME}\" \"{user}\" all scram-sha-256\n")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(engine: &DatabaseEngine, password: &str) -> String {
        let account = DatabaseAccount { username: "ironic-user", password };
        let files = setup_files(engine, account, true).unwrap();
        files.into_iter().map(|(name, text)| format!("# {name}\n{text}")).collect()
    }

    #[test]
    fn passwords_are_quoted() {
        let text = files(&DatabaseEngine::MariaDb, r"a'b\c");
        assert!(text.contains(r"ALTER USER 'ironic-user'@'%' IDENTIFIED BY 'a''b\\c';"), "{text}");
        let text = files(&DatabaseEngine::PostgreSql, r"a'b\c");
        assert!(
            text.contains(r#"ALTER ROLE "ironic-user" WITH LOGIN PASSWORD 'a''b\c';"#),
            "{text}"
        );
        assert!(text.contains("hostssl \"ironic\" \"ironic-user\" all scram-sha-256\n"), "{text}");
    }

    #[test]
    fn every_statement_is_one_line() {
        for engine in [DatabaseEngine::MariaDb, DatabaseEngine::PostgreSql] {
            for line in files(&engine, "x").lines().filter(|line| !line.starts_with(['#', 'h'])) {
                assert!(line.ends_with(';'), "{line}");
            }
        }
    }

    #[test]
    fn other_names_and_passwords_are_rejected() {
        let error = |username, password| {
            let account = DatabaseAccount { username, password };
            setup_files(&DatabaseEngine::MariaDb, account, false).err()
        };
        assert_eq!(error("ironic", "p"), None);
        let long = "x".repeat(64);
        for name in ["", "root", "postgres", "pg_x", "a'b", "a b", "ä", &long] {
            assert_eq!(error(name, "p"), Some(AccountError::UserName(name.to_owned())), "{name}");
        }
        assert_eq!(error("ironic", "a\nb"), Some(AccountError::Password));
    }
}
