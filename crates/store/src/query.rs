// SPDX-License-Identifier: Apache-2.0
//! Lists: which rows, in which order, from where on, and which of their columns.
//!
//! Pages follow each other by key, not by counting: a page starts after the sort value and row
//! number of the last row of the page before, so rows that come and go in between neither repeat
//! nor hide others. Missing values sort first, on every engine.

use uuid::Uuid;

use crate::engine::Dialect;
use crate::error::Error;
use crate::record::{Columns, Filter as _, Record, Resource, names};
use crate::value::Param;

/// A list to be read.
pub struct Query<R: Resource> {
    /// Which rows.
    pub filter: R::Filter,
    /// Which part of them, in which order.
    pub page: Page<R>,
    /// Which columns; the other fields keep their defaults.
    pub select: Columns<R>,
}

/// A part of a list.
pub struct Page<R: Record> {
    /// At most this many rows.
    pub limit: Option<u32>,
    /// Start after this row.
    pub marker: Option<Uuid>,
    /// Sort by this column, then by age; none is by age alone.
    pub sort: Option<R::Column>,
    /// Backwards.
    pub descending: bool,
}

/// The row a page starts after: its number and its value in the sort column.
pub(crate) struct Place {
    pub(crate) row: i64,
    pub(crate) value: Param<'static>,
}

/// The conditions of a statement, and the values for its placeholders.
#[derive(Debug)]
pub struct Where<'a> {
    pub(crate) sql: String,
    pub(crate) params: Vec<Param<'a>>,
    dialect: Dialect,
    any: bool,
}

// === impl Query ===

impl<R: Resource> Default for Query<R> {
    fn default() -> Self {
        Self { filter: R::Filter::default(), page: Page::default(), select: Columns::ALL }
    }
}

impl<R: Resource> Clone for Query<R> {
    fn clone(&self) -> Self {
        Self { filter: self.filter.clone(), page: self.page.clone(), select: self.select }
    }
}

impl<R: Resource> std::fmt::Debug for Query<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Query").field("filter", &self.filter).field("page", &self.page).finish()
    }
}

impl<R: Resource> Query<R> {
    /// Everything that passes `filter`.
    #[must_use]
    pub fn filtered(filter: R::Filter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// The statement, given where the marker stands.
    pub(crate) fn statement(&self, dialect: Dialect, after: Option<Place>) -> Where<'_> {
        let mut statement = Where::new(dialect, String::with_capacity(256));
        statement.sql.push_str("SELECT ");
        statement.sql.push_str(&names(self.select.columns()));
        statement.sql.push_str(" FROM ");
        statement.sql.push_str(R::TABLE);
        self.filter.conditions(&mut statement);
        let sort = self.page.sort.map(|column| R::COLUMNS[R::index(column)].name);
        if let Some(place) = after {
            statement.after(sort, self.page.descending, place);
        }
        statement.order(sort, self.page.descending);
        if let Some(limit) = self.page.limit {
            statement.sql.push_str(" LIMIT ?");
            statement.params.push(Param::Int(i64::from(limit)));
        }
        statement
    }
}

// === impl Page ===

impl<R: Record> Default for Page<R> {
    fn default() -> Self {
        Self { limit: None, marker: None, sort: None, descending: false }
    }
}

impl<R: Record> Clone for Page<R> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<R: Record> std::fmt::Debug for Page<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Page")
            .field("limit", &self.limit)
            .field("marker", &self.marker)
            .field("sort", &self.sort)
            .field("descending", &self.descending)
            .finish()
    }
}

impl<R: Record> Page<R> {
    /// The statement that finds the marker's place.
    pub(crate) fn marker_statement(&self) -> String {
        let value = self.sort.map_or("id", |column| R::COLUMNS[R::index(column)].name);
        format!("SELECT id, {value} FROM {} WHERE uuid = ?", R::TABLE)
    }
}

// === impl Where ===

impl<'a> Where<'a> {
    pub(crate) fn new(dialect: Dialect, sql: String) -> Self {
        Self { sql, params: Vec::new(), dialect, any: false }
    }

    /// Adds a condition; `condition` is never a user's text.
    pub(crate) fn and(&mut self, condition: &str) -> &mut Self {
        self.sql.push_str(if self.any { " AND " } else { " WHERE " });
        self.any = true;
        self.sql.push_str(condition);
        self
    }

    /// `column = value`, if there is one to compare with.
    pub(crate) fn equals(&mut self, column: &str, value: Option<Param<'a>>) {
        if let Some(value) = value {
            self.and(column);
            self.sql.push_str(" = ?");
            self.params.push(value);
        }
    }

    /// Whether `column` has a value, if the question is asked.
    pub(crate) fn has_value(&mut self, column: &str, wanted: Option<bool>) {
        if let Some(wanted) = wanted {
            self.and(column);
            self.sql.push_str(if wanted { " IS NOT NULL" } else { " IS NULL" });
        }
    }

    /// `column` is one of `values`.
    pub(crate) fn any_of(&mut self, column: &str, values: impl Iterator<Item = Param<'a>>) {
        self.and(column);
        self.one_of(values);
    }

    /// The tail of a condition: ` IN (…)`.
    pub(crate) fn one_of(&mut self, values: impl Iterator<Item = Param<'a>>) {
        let before = self.params.len();
        self.params.extend(values);
        let count = self.params.len() - before;
        if count == 0 {
            // No engine takes an empty list; nothing is equal to NULL.
            self.sql.push_str(" IN (NULL)");
            return;
        }
        self.sql.push_str(" IN (?");
        for _ in 1..count {
            self.sql.push_str(", ?");
        }
        self.sql.push(')');
    }

    /// `column` contains `text`, whatever the case of either.
    pub(crate) fn contains_text(&mut self, column: &str, text: Option<&str>) {
        if let Some(text) = text {
            let position = self.dialect.position_of();
            self.and(&format!("{position}(LOWER({column}), LOWER(?)) > 0"));
            self.params.push(Param::Owned(text.to_owned()));
        }
    }

    /// `column` contains exactly `text`.
    pub(crate) fn contains_exactly(&mut self, column: &str, text: String) {
        let position = self.dialect.position_of();
        self.and(&format!("{position}({column}, ?) > 0"));
        self.params.push(Param::Owned(text));
    }

    fn after(&mut self, sort: Option<&str>, descending: bool, place: Place) {
        let beyond = if descending { "<" } else { ">" };
        let Some(sort) = sort else {
            self.and("id ").sql.push_str(beyond);
            self.sql.push_str(" ?");
            self.params.push(Param::Int(place.row));
            return;
        };
        let missing = matches!(place.value, Param::Null);
        self.and(&match (missing, descending) {
            (true, false) => format!("(({sort} IS NULL AND id > ?) OR {sort} IS NOT NULL)"),
            (true, true) => format!("({sort} IS NULL AND id < ?)"),
            (false, false) => format!("({sort} > ? OR ({sort} = ? AND id > ?))"),
            (false, true) => format!("({sort} < ? OR ({sort} = ? AND id < ?) OR {sort} IS NULL)"),
        });
        if !missing {
            self.params.push(place.value.clone());
            self.params.push(place.value);
        }
        self.params.push(Param::Int(place.row));
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

/// The marker's row as a place, or the error that there is none.
pub(crate) fn found(place: Option<Place>) -> Result<Place, Error> {
    place.ok_or(Error::NoSuchMarker)
}
