// SPDX-License-Identifier: Apache-2.0
//! Lists: filter, order, page and columns.
//!
//! Pages are keyset-based: a page starts after the sort value and row id of the last row of the
//! previous page, so rows inserted or deleted in between are neither repeated nor skipped. NULL
//! sorts first on all engines.

use uuid::Uuid;

use crate::engine::Dialect;
use crate::record::{Columns, ResourceFilter as _, StoredRecord, StoredResource, column_list};
use crate::value::SqlParam;

/// A list query.
pub struct ResourceQuery<R: StoredResource> {
    /// Which rows to return.
    pub filter: R::Filter,
    /// Which page of them, in which order.
    pub page: ResourcePage<R>,
    /// Which columns to load; other fields keep their defaults.
    pub select: Columns<R>,
}

/// A page of a list.
pub struct ResourcePage<R: StoredRecord> {
    /// Maximum number of rows.
    pub limit: Option<u32>,
    /// Start after this row.
    pub marker: Option<Uuid>,
    /// Sort by this column, then by row id; `None` sorts by row id alone.
    pub sort: Option<R::Column>,
    /// Reverses the order.
    pub descending: bool,
}

/// The row that a page starts after: its id and its value in the sort column.
pub(crate) struct PageMarker {
    pub(crate) row: i64,
    pub(crate) value: SqlParam<'static>,
}

/// A statement under construction with its parameters.
#[derive(Debug)]
pub struct SqlBuilder<'a> {
    pub(crate) sql: String,
    pub(crate) params: Vec<SqlParam<'a>>,
    dialect: Dialect,
    has_condition: bool,
}

// === impl Query ===

impl<R: StoredResource> Default for ResourceQuery<R> {
    fn default() -> Self {
        Self { filter: R::Filter::default(), page: ResourcePage::default(), select: Columns::ALL }
    }
}

impl<R: StoredResource> Clone for ResourceQuery<R> {
    fn clone(&self) -> Self {
        Self { filter: self.filter.clone(), page: self.page.clone(), select: self.select }
    }
}

impl<R: StoredResource> std::fmt::Debug for ResourceQuery<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Query").field("filter", &self.filter).field("page", &self.page).finish()
    }
}

impl<R: StoredResource> ResourceQuery<R> {
    /// All rows that match `filter`.
    #[must_use]
    pub fn filtered(filter: R::Filter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// The SELECT statement, given the marker's row.
    pub(crate) fn statement(&self, dialect: Dialect, after: Option<PageMarker>) -> SqlBuilder<'_> {
        let mut statement = SqlBuilder::new(dialect, String::with_capacity(256));
        statement.sql.push_str("SELECT ");
        statement.sql.push_str(&column_list(self.select.columns()));
        statement.sql.push_str(" FROM ");
        statement.sql.push_str(R::TABLE);
        self.filter.add_conditions(&mut statement);
        let sort = self.page.sort.map(|column| R::COLUMNS[R::index(column)].name);
        if let Some(marker) = after {
            statement.after(sort, self.page.descending, marker);
        }
        statement.order(sort, self.page.descending);
        if let Some(limit) = self.page.limit {
            statement.sql.push_str(" LIMIT ?");
            statement.params.push(SqlParam::Int(i64::from(limit)));
        }
        statement
    }
}

// === impl Page ===

impl<R: StoredRecord> Default for ResourcePage<R> {
    fn default() -> Self {
        Self { limit: None, marker: None, sort: None, descending: false }
    }
}

impl<R: StoredRecord> Clone for ResourcePage<R> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<R: StoredRecord> std::fmt::Debug for ResourcePage<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page")
            .field("limit", &self.limit)
            .field("marker", &self.marker)
            .field("sort", &self.sort)
            .field("descending", &self.descending)
            .finish()
    }
}

impl<R: StoredRecord> ResourcePage<R> {
    /// The statement that looks up the marker's row.
    pub(crate) fn marker_statement(&self) -> String {
        format!("SELECT id, {} FROM {} WHERE uuid = ?", self.sort_column(), R::TABLE)
    }

    /// The column that determines the order.
    pub(crate) fn sort_column(&self) -> &'static str {
        self.sort.map_or("id", |column| R::COLUMNS[R::index(column)].name)
    }
}

// === impl Where ===

impl<'a> SqlBuilder<'a> {
    pub(crate) fn new(dialect: Dialect, sql: String) -> Self {
        Self { sql, params: Vec::new(), dialect, has_condition: false }
    }

    /// Adds a condition. `condition` must not contain user input.
    pub(crate) fn and(&mut self, condition: &str) -> &mut Self {
        self.sql.push_str(if self.has_condition { " AND " } else { " WHERE " });
        self.has_condition = true;
        self.sql.push_str(condition);
        self
    }

    /// Adds `column = value` if there is a value.
    pub(crate) fn equals(&mut self, column: &str, value: Option<SqlParam<'a>>) {
        if let Some(value) = value {
            self.and(column);
            self.sql.push_str(" = ?");
            self.params.push(value);
        }
    }

    /// Adds `column IS NOT NULL` or `column IS NULL`; nothing for `None`.
    pub(crate) fn is_null_or_not(&mut self, column: &str, has_value: Option<bool>) {
        if let Some(has_value) = has_value {
            self.and(column);
            self.sql.push_str(if has_value { " IS NOT NULL" } else { " IS NULL" });
        }
    }

    /// Adds `column IN (values)`.
    pub(crate) fn in_list(&mut self, column: &str, values: impl Iterator<Item = SqlParam<'a>>) {
        self.and(column);
        self.push_in_list(values);
    }

    /// Appends ` IN (…)` to the current condition.
    pub(crate) fn push_in_list(&mut self, values: impl Iterator<Item = SqlParam<'a>>) {
        let before = self.params.len();
        self.params.extend(values);
        let count = self.params.len() - before;
        if count == 0 {
            // An empty list is a syntax error; `IN (NULL)` matches nothing.
            self.sql.push_str(" IN (NULL)");
            return;
        }
        self.sql.push_str(" IN (?");
        for _ in 1..count {
            self.sql.push_str(", ?");
        }
        self.sql.push(')');
    }

    /// Adds the condition that a node is owned or leased by a project. With `without_index`, nodes are read
    /// in the order of the list and compared.
    pub(crate) fn node_of_project(&mut self, project: &'a str, without_index: bool) {
        let condition = match self.dialect {
            _ if without_index => {
                self.and("? IN (owner, lessee)");
                self.params.push(SqlParam::Text(project));
                return;
            }
            // SQLite would sort complete rows after `OR`. This keeps the order of the ids.
            Dialect::Sqlite => {
                "id IN (SELECT id FROM nodes WHERE owner = ? UNION ALL SELECT id FROM nodes WHERE lessee = ?)"
            }
            Dialect::Postgres | Dialect::MariaDb => "(owner = ? OR lessee = ?)",
        };
        self.and(condition);
        self.params.extend([SqlParam::Text(project), SqlParam::Text(project)]);
    }

    /// Adds a case-insensitive substring condition.
    pub(crate) fn contains_ignoring_case(&mut self, column: &str, text: Option<&str>) {
        if let Some(text) = text {
            let position = self.dialect.position_function();
            self.and(&format!("{position}(LOWER({column}), LOWER(?)) > 0"));
            self.params.push(SqlParam::Owned(text.to_owned()));
        }
    }

    /// Adds a case-sensitive substring condition.
    pub(crate) fn contains_exactly(&mut self, column: &str, text: String) {
        let position = self.dialect.position_function();
        self.and(&format!("{position}({column}, ?) > 0"));
        self.params.push(SqlParam::Owned(text));
    }

    fn after(&mut self, sort: Option<&str>, descending: bool, marker: PageMarker) {
        let beyond = if descending { "<" } else { ">" };
        let Some(sort) = sort else {
            self.and("id ").sql.push_str(beyond);
            self.sql.push_str(" ?");
            self.params.push(SqlParam::Int(marker.row));
            return;
        };
        let missing = matches!(marker.value, SqlParam::Null);
        self.and(&match (missing, descending) {
            (true, false) => format!("(({sort} IS NULL AND id > ?) OR {sort} IS NOT NULL)"),
            (true, true) => format!("({sort} IS NULL AND id < ?)"),
            (false, false) => format!("({sort} > ? OR ({sort} = ? AND id > ?))"),
            (false, true) => format!("({sort} < ? OR ({sort} = ? AND id < ?) OR {sort} IS NULL)"),
        });
        if !missing {
            self.params.push(marker.value.clone());
            self.params.push(marker.value);
        }
        self.params.push(SqlParam::Int(marker.row));
    }

    fn order(&mut self, sort: Option<&str>, descending: bool) {
        let direction = if descending { " DESC" } else { "" };
        self.sql.push_str(" ORDER BY ");
        if let Some(sort) = sort {
            self.sql.push_str(sort);
            self.sql.push_str(direction);
            self.sql.push_str(self.dialect.nulls_first(descending));
            self.sql.push_str(", ");
        }
        self.sql.push_str("id");
        self.sql.push_str(direction);
    }
}
