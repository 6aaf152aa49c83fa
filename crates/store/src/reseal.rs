// SPDX-License-Identifier: Apache-2.0
//! Re-sealing of stored values with another key, in batches.
//!
//! A value is replaced only if it has not changed since it was read, so concurrent writers lose nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use crate::engine::{DatabaseSession, Dialect};
use crate::error::StoreError;
use crate::key_ring::KeyRing;
use crate::reader::decode_field;
use crate::sealing_key::SealingKey;
use crate::value::SqlParam;

/// A column with sealed values.
pub(crate) struct SealedColumn {
    table: &'static str,
    column: &'static str,
    /// SQL expression for the UUID that the values are sealed for.
    owner: &'static str,
    form: SealedForm,
    /// Rows per transaction.
    batch: i64,
}

/// How a column contains sealed values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SealedForm {
    /// It is one.
    Bytes,
    /// A JSON text with strings that are sealed values in base64.
    JsonText,
}

/// Every column with sealed values.
pub(crate) const SEALED_COLUMNS: &[SealedColumn] = &[
    SealedColumn::bytes("nodes", "uuid", 100),
    SealedColumn::bytes("volume_targets", "uuid", 100),
    SealedColumn::bytes("boot_plans", "node_uuid", 100),
    // A part has up to 1 MiB.
    SealedColumn::bytes("agent_log_parts", "log_uuid", 8),
    SealedColumn::bytes("certificate_authorities", "'7c5e9d0a-61c3-4a55-9a0e-5f0c0b5ca001'", 1),
    SealedColumn::bytes("deployments", "uuid", 100),
    SealedColumn::json("nodes", "work"),
    SealedColumn::json("deploy_templates", "steps"),
    SealedColumn::json("runbooks", "steps"),
    SealedColumn::json("inspection_rules", "actions"),
];

/// The result of a batch.
pub(crate) struct ResealedBatch {
    pub(crate) resealed: u64,
    pub(crate) damaged: u64,
    /// The last row, after which the next batch starts; `None` if there is none.
    pub(crate) last: Option<i64>,
}

impl SealedColumn {
    const fn bytes(table: &'static str, owner: &'static str, batch: i64) -> Self {
        Self { table, column: "sealed", owner, form: SealedForm::Bytes, batch }
    }

    const fn json(table: &'static str, column: &'static str) -> Self {
        Self { table, column, owner: "uuid", form: SealedForm::JsonText, batch: 100 }
    }

    /// SQL condition for values of a key, with one parameter.
    fn condition(&self, dialect: Dialect) -> String {
        let column = self.column;
        match (self.form, dialect) {
            (SealedForm::Bytes, _) => format!("substr({column}, 1, 9) = ?"),
            (SealedForm::JsonText, Dialect::Postgres) => format!("strpos({column}, ?) > 0"),
            (SealedForm::JsonText, Dialect::Sqlite | Dialect::MariaDb) => {
                format!("instr({column}, ?) > 0")
            }
        }
    }

    /// The value with everything re-sealed that `old` has sealed, or `None` if that cannot be decrypted.
    fn reseal(
        &self,
        keys: &KeyRing,
        old: &SealingKey,
        owner: Uuid,
        value: &[u8],
    ) -> Option<Vec<u8>> {
        match self.form {
            SealedForm::Bytes => Some(keys.seal(owner, &old.unseal(owner, value).ok()?)),
            SealedForm::JsonText => {
                let text = std::str::from_utf8(value).ok()?;
                reseal_text(keys, old, owner, text).map(String::into_bytes)
            }
        }
    }
}

/// How many values `old` has sealed. A JSON text with several counts once.
pub(crate) fn count_values(
    session: &mut dyn DatabaseSession,
    old: &SealingKey,
) -> Result<u64, StoreError> {
    let header = old.header();
    let text = STANDARD.encode(header);
    let mut total = 0;
    for column in SEALED_COLUMNS {
        let condition = column.condition(session.dialect());
        let sql = format!("SELECT COUNT(*) FROM {} WHERE {condition}", column.table);
        session.query(&sql, &[column.form.param(&header, &text)], &mut |row| {
            let count: i64 = decode_field(row, 0, column.table, "COUNT(*)")?;
            total += u64::try_from(count).unwrap_or(0);
            Ok(())
        })?;
    }
    Ok(total)
}

/// Re-seals the next rows after `after` whose values `old` has sealed.
pub(crate) fn reseal_batch(
    session: &mut dyn DatabaseSession,
    keys: &KeyRing,
    old: &SealingKey,
    column: &SealedColumn,
    after: i64,
) -> Result<ResealedBatch, StoreError> {
    let header = old.header();
    let text = STANDARD.encode(header);
    let SealedColumn { table, column: name, owner, .. } = *column;
    if session.dialect() == Dialect::Sqlite {
        // Overwrites the old values in the file.
        session.run("PRAGMA secure_delete = ON")?;
    }
    let select = format!(
        "SELECT id, {owner}, {name} FROM {table} WHERE id > ? AND {} ORDER BY id LIMIT ?",
        column.condition(session.dialect())
    );
    let mut rows: Vec<(i64, Uuid, Vec<u8>)> = Vec::new();
    let params =
        [SqlParam::Int(after), column.form.param(&header, &text), SqlParam::Int(column.batch)];
    session.query(&select, &params, &mut |row| {
        let owner: String = decode_field(row, 1, table, "uuid")?;
        let owner = owner.parse().map_err(|_| StoreError::Corrupt { table, column: "uuid" })?;
        let value: Vec<u8> = decode_field(row, 2, table, name)?;
        rows.push((decode_field(row, 0, table, "id")?, owner, value));
        Ok(())
    })?;
    let mut batch = ResealedBatch { resealed: 0, damaged: 0, last: rows.last().map(|row| row.0) };
    let update = format!("UPDATE {table} SET {name} = ? WHERE id = ? AND {name} = ?");
    for (id, owner, value) in &rows {
        let Some(new) = column.reseal(keys, old, *owner, value) else {
            tracing::warn!(table, id, "sealed value cannot be decrypted and was skipped");
            batch.damaged += 1;
            continue;
        };
        let params = [column.form.value(&new), SqlParam::Int(*id), column.form.value(value)];
        batch.resealed += session.execute(&update, &params)?;
    }
    Ok(batch)
}

impl SealedForm {
    /// The parameter of the condition.
    fn param<'a>(self, header: &'a [u8], text: &'a str) -> SqlParam<'a> {
        match self {
            Self::Bytes => SqlParam::Blob(header),
            Self::JsonText => SqlParam::Text(text),
        }
    }

    fn value(self, bytes: &[u8]) -> SqlParam<'_> {
        match self {
            Self::Bytes => SqlParam::Blob(bytes),
            Self::JsonText => SqlParam::Text(std::str::from_utf8(bytes).unwrap_or_default()),
        }
    }
}

/// Replaces the JSON strings that `old` has sealed. They are in base64, which needs no escapes in JSON.
fn reseal_text(keys: &KeyRing, old: &SealingKey, owner: Uuid, text: &str) -> Option<String> {
    let start = format!("\"{}", STANDARD.encode(old.header()));
    let mut new = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(&start) {
        let value = &rest[at + 1..];
        let end = value.find('"')?;
        let plain = old.unseal(owner, &STANDARD.decode(&value[..end]).ok()?).ok()?;
        new.push_str(&rest[..=at]);
        new.push_str(&STANDARD.encode(keys.seal(owner, &plain)));
        rest = &value[end..];
    }
    new.push_str(rest);
    (new != text).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::MIGRATIONS;

    /// A forgotten column would become unreadable when the old key is removed.
    #[test]
    fn every_sealed_column_is_listed() {
        for statement in MIGRATIONS.iter().flat_map(|migration| migration.statements) {
            let mut words = statement.split_whitespace();
            let Some(table) = words.find(|word| *word == "TABLE").and_then(|_| words.next()) else {
                continue;
            };
            if statement.contains("sealed {blob}") {
                let is_listed = SEALED_COLUMNS
                    .iter()
                    .any(|column| column.table == table && column.form == SealedForm::Bytes);
                assert!(is_listed, "{table}");
            }
        }
    }
}
