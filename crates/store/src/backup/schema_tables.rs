// SPDX-License-Identifier: Apache-2.0
//! Tables and columns of each schema, derived from the statements of the migrations.

use crate::schema::MIGRATIONS;

/// A table, in the order of creation: a table comes after those that its foreign keys refer to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SchemaTable {
    pub(super) name: String,
    /// The first one is the primary key, except in `vault`.
    pub(super) columns: Vec<SchemaColumn>,
}

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SchemaColumn {
    pub(super) name: String,
    /// Whether it has bytes instead of text or a number.
    pub(super) is_binary: bool,
    /// Whether the database numbers the rows.
    pub(super) is_numbered: bool,
}

impl SchemaTable {
    /// The index of a column.
    pub(super) fn position(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|found| found.name == column)
    }

    /// The columns, separated by commas.
    pub(super) fn column_list(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        names.join(", ")
    }
}

/// The tables after the migrations up to this number.
pub(super) fn tables_of_schema(number: i64) -> Vec<SchemaTable> {
    let mut tables = Vec::new();
    let applied = MIGRATIONS.iter().filter(|migration| migration.number <= number);
    for statement in applied.flat_map(|migration| migration.statements) {
        apply(statement, &mut tables);
    }
    tables
}

/// Applies a statement to the tables. Indexes are ignored. Returns `None` for an unknown statement.
fn apply(statement: &str, tables: &mut Vec<SchemaTable>) -> Option<()> {
    if let Some(rest) = statement.strip_prefix("CREATE TABLE ") {
        let (name, rest) = rest.split_once(" (")?;
        let (definitions, _) = rest.rsplit_once(')')?;
        let columns = split_definitions(definitions).into_iter().filter_map(column).collect();
        tables.push(SchemaTable { name: name.to_owned(), columns });
        return Some(());
    }
    if let Some(rest) = statement.strip_prefix("ALTER TABLE ") {
        let (name, change) = rest.split_once(' ')?;
        let table = tables.iter_mut().find(|table| table.name == name)?;
        if let Some(definition) = change.strip_prefix("ADD COLUMN ") {
            table.columns.push(column(definition)?);
        } else if let Some(renamed) = change.strip_prefix("RENAME TO ") {
            renamed.clone_into(&mut table.name);
        } else {
            let (old, new) = change.strip_prefix("RENAME COLUMN ")?.split_once(" TO ")?;
            let column = table.columns.iter_mut().find(|column| column.name == old)?;
            new.clone_into(&mut column.name);
        }
        return Some(());
    }
    let indexes = ["CREATE INDEX ", "CREATE UNIQUE INDEX ", "DROP INDEX "];
    indexes.iter().any(|start| statement.starts_with(start)).then_some(())
}

/// Splits at the commas that are not in parentheses.
fn split_definitions(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_u32, 0);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn column(definition: &str) -> Option<SchemaColumn> {
    let (name, kind) = definition.trim().split_once(' ')?;
    let kind = kind.split_whitespace().next()?;
    Some(SchemaColumn {
        name: name.to_owned(),
        is_binary: kind == "{blob}",
        is_numbered: ["{id}", "{seq}"].contains(&kind),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::newest_schema;

    #[test]
    fn all_statements_are_understood() {
        let mut tables = Vec::new();
        for statement in MIGRATIONS.iter().flat_map(|migration| migration.statements) {
            assert_eq!(apply(statement, &mut tables), Some(()), "{statement}");
        }
    }

    #[test]
    fn renames_are_followed() {
        let journal = |number| {
            let tables = tables_of_schema(number);
            let table = tables.into_iter().find(|table| table.name == "journal").unwrap();
            table.column_list()
        };
        assert_eq!(journal(1), "seq, recorded_at, node_uuid, actor, what");
        assert_eq!(journal(newest_schema()), "seq, recorded_at, node_uuid, actor, event");
        let has = |number, name: &str| tables_of_schema(number).iter().any(|it| it.name == name);
        assert!(has(7, "boot_experience") && !has(7, "boot_method_stats"));
        assert!(has(8, "boot_method_stats") && !has(8, "boot_experience"));
    }

    #[test]
    fn kinds_of_columns_are_known() {
        let tables = tables_of_schema(newest_schema());
        let nodes = tables.iter().find(|table| table.name == "nodes").unwrap();
        let binary: Vec<_> = nodes.columns.iter().filter(|column| column.is_binary).collect();
        assert_eq!(binary.len(), 1);
        assert_eq!(binary[0].name, "sealed");
        for table in &tables {
            assert_eq!(table.columns[0].is_numbered, table.name != "vault", "{}", table.name);
        }
    }
}
