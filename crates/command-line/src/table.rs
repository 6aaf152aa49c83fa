// SPDX-License-Identifier: Apache-2.0
//! Tables of lists and of single resources.

use serde_json::Value;

use crate::screen::{Screen, TextStyle, one_line};

/// Limit for cells of truncated columns.
const MAX_CELL_CHARS: usize = 100;

/// A column of a table.
pub(crate) struct OutputColumn {
    pub(crate) header: &'static str,
    /// Shown with `-o wide` only.
    pub(crate) is_wide: bool,
    /// Truncated unless `-o wide`.
    pub(crate) is_truncated: bool,
    pub(crate) cell: fn(&Value) -> TableCell,
}

/// A cell of a table.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct TableCell {
    pub(crate) text: String,
    pub(crate) style: TextStyle,
}

impl OutputColumn {
    pub(crate) const fn new(header: &'static str, cell: fn(&Value) -> TableCell) -> Self {
        Self { header, is_wide: false, is_truncated: false, cell }
    }

    /// A column for texts of BMCs and servers, which may be long.
    pub(crate) const fn truncated(header: &'static str, cell: fn(&Value) -> TableCell) -> Self {
        Self { header, is_wide: false, is_truncated: true, cell }
    }

    pub(crate) const fn wide(header: &'static str, cell: fn(&Value) -> TableCell) -> Self {
        Self { header, is_wide: true, is_truncated: false, cell }
    }
}

impl TableCell {
    pub(crate) fn styled(text: impl Into<String>, style: TextStyle) -> Self {
        Self { text: text.into(), style }
    }
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self { text, style: TextStyle::Plain }
    }
}

/// Converts a field to a cell: strings unchanged, null as empty, lists joined with commas.
pub(crate) fn value_cell(value: &Value) -> TableCell {
    value_text(value).into()
}

/// Converts a value to short text.
pub(crate) fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => items.iter().map(value_text).collect::<Vec<_>>().join(","),
        Value::Object(_) => value.to_string(),
    }
}

/// Formats rows below a header.
pub(crate) fn format_table(
    rows: &[Value],
    columns: &[OutputColumn],
    is_wide: bool,
    screen: Screen,
) -> String {
    let columns: Vec<&OutputColumn> =
        columns.iter().filter(|column| is_wide || !column.is_wide).collect();
    let mut cells = vec![
        columns
            .iter()
            .map(|column| TableCell::styled(column.header, TextStyle::Dim))
            .collect::<Vec<_>>(),
    ];
    let cell = |column: &OutputColumn, row: &Value| {
        let mut cell = (column.cell)(row);
        if column.is_truncated
            && !is_wide
            && let Some((end, _)) = cell.text.char_indices().nth(MAX_CELL_CHARS)
        {
            cell.text.truncate(end);
            cell.text.push('…');
        }
        cell
    };
    cells.extend(rows.iter().map(|row| columns.iter().map(|column| cell(column, row)).collect()));
    align(&cells, screen)
}

/// Formats a resource with one line per non-empty field. Nested fields have dotted names, as `set`
/// accepts them.
pub(crate) fn format_fields(resource: &Value, is_wide: bool, screen: Screen) -> String {
    let mut lines = Vec::new();
    flatten("", resource, is_wide, &mut lines);
    let cells: Vec<Vec<TableCell>> = lines
        .into_iter()
        .map(|(name, text)| vec![TableCell::styled(name, TextStyle::Dim), text.into()])
        .collect();
    align(&cells, screen)
}

/// Pads the cells of each column to its widest cell.
pub(crate) fn align(lines: &[Vec<TableCell>], screen: Screen) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| one_line(&cell.text).chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut shown = String::new();
        let mut gap = 0;
        for (cell, width) in line.iter().zip(&widths) {
            let text = one_line(&cell.text);
            if !text.is_empty() {
                shown.push_str(&" ".repeat(gap));
                shown.push_str(&screen.paint(cell.style, &text));
                gap = 0;
            }
            gap += width.saturating_sub(text.chars().count()) + 2;
        }
        text.push_str(&shown);
        text.push('\n');
    }
    text
}

fn flatten(prefix: &str, value: &Value, is_wide: bool, lines: &mut Vec<(String, String)>) {
    if let Value::Object(members) = value
        && (!members.is_empty() || prefix.is_empty())
    {
        for (name, member) in members {
            let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            // Links repeat the path of the request.
            if name != "links" {
                flatten(&name, member, is_wide, lines);
            }
        }
        return;
    }
    let is_list_of_links =
        value.as_array().is_some_and(|items| items.iter().any(|item| item["href"].is_string()));
    let text = match value {
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().map(Value::to_string).collect::<Vec<_>>().join(" ")
        }
        Value::Object(_) => String::new(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            value_text(value)
        }
    };
    if !is_list_of_links && (is_wide || !text.is_empty()) {
        lines.push((prefix.to_owned(), text));
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    const COLUMNS: &[OutputColumn] = &[
        OutputColumn::new("NAME", |row| value_cell(&row["name"])),
        OutputColumn::new("STATE", |row| value_cell(&row["state"])),
        OutputColumn::wide("ERROR", |row| value_cell(&row["error"])),
    ];

    #[test]
    fn truncates_long_cells_unless_wide() {
        let columns = &[OutputColumn::truncated("NOTE", |row| value_cell(&row["note"]))];
        let rows = [json!({"note": "ü".repeat(150)})];
        let shown = format_table(&rows, columns, false, quiet());
        assert_eq!(shown.lines().nth(1), Some(&*format!("{}…", "ü".repeat(MAX_CELL_CHARS))));
        assert!(format_table(&rows, columns, true, quiet()).contains(&"ü".repeat(150)));
    }

    #[test]
    fn aligns_columns_without_trailing_spaces() {
        let rows = [
            json!({"name": "rack1-u01", "state": "active"}),
            json!({"name": "ü", "state": "deploy failed", "error": "no\nresponse\u{1b}[2J"}),
        ];
        let screen = quiet();
        expect![[r#"
            NAME       STATE
            rack1-u01  active
            ü          deploy failed
        "#]]
        .assert_eq(&format_table(&rows, COLUMNS, false, screen));
        expect![[r#"
            NAME       STATE          ERROR
            rack1-u01  active
            ü          deploy failed  no response [2J
        "#]]
        .assert_eq(&format_table(&rows, COLUMNS, true, screen));
    }

    #[test]
    fn shows_one_field_per_line() {
        let resource = json!({
            "name": "n", "owner": null, "driver_info": {"address": "h", "nested": {"a": 1}},
            "traits": ["A", "B"], "links": [{"href": "x"}], "ports": [{"href": "x"}], "extra": {},
        });
        expect![[r#"
            driver_info.address   h
            driver_info.nested.a  1
            name                  n
            traits                A,B
        "#]]
        .assert_eq(&format_fields(&resource, false, quiet()));
    }

    fn quiet() -> Screen {
        Screen::plain()
    }
}
