// SPDX-License-Identifier: Apache-2.0
//! Tables: what is shown of a list, and of a single thing.

use serde_json::Value;

use crate::screen::{Screen, Tone, one_line};

/// So many letters of what may be long are shown.
const LONGEST: usize = 100;

/// A column of a list.
pub(crate) struct Column {
    pub(crate) header: &'static str,
    /// Shown with `-o wide` only.
    pub(crate) is_wide: bool,
    /// Shown whole with `-o wide` only.
    pub(crate) is_cut: bool,
    pub(crate) cell: fn(&Value) -> Cell,
}

/// What stands in one place of a table.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Column {
    pub(crate) const fn new(header: &'static str, cell: fn(&Value) -> Cell) -> Self {
        Self { header, is_wide: false, is_cut: false, cell }
    }

    /// For what BMCs and servers say, which can be long.
    pub(crate) const fn cut(header: &'static str, cell: fn(&Value) -> Cell) -> Self {
        Self { header, is_wide: false, is_cut: true, cell }
    }

    pub(crate) const fn wide(header: &'static str, cell: fn(&Value) -> Cell) -> Self {
        Self { header, is_wide: true, is_cut: false, cell }
    }
}

impl Cell {
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tone: Tone::Plain }
    }
}

/// The value of a field as a cell: texts as they are, nothing as nothing, lists with commas.
pub(crate) fn plain(value: &Value) -> Cell {
    brief(value).into()
}

/// A value in few words.
pub(crate) fn brief(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => items.iter().map(brief).collect::<Vec<_>>().join(","),
        Value::Object(_) => value.to_string(),
    }
}

/// The rows under their headers.
pub(crate) fn list(rows: &[Value], columns: &[Column], is_wide: bool, screen: Screen) -> String {
    let columns: Vec<&Column> =
        columns.iter().filter(|column| is_wide || !column.is_wide).collect();
    let mut cells = vec![
        columns.iter().map(|column| Cell::toned(column.header, Tone::Faint)).collect::<Vec<_>>(),
    ];
    let cell = |column: &Column, row: &Value| {
        let mut cell = (column.cell)(row);
        if column.is_cut
            && !is_wide
            && let Some((end, _)) = cell.text.char_indices().nth(LONGEST)
        {
            cell.text.truncate(end);
            cell.text.push('…');
        }
        cell
    };
    cells.extend(rows.iter().map(|row| columns.iter().map(|column| cell(column, row)).collect()));
    aligned(&cells, screen)
}

/// One thing, a line for each field that says something; fields of fields with dots, as `set` takes
/// them.
pub(crate) fn single(thing: &Value, is_wide: bool, screen: Screen) -> String {
    let mut lines = Vec::new();
    flatten("", thing, is_wide, &mut lines);
    let cells: Vec<Vec<Cell>> = lines
        .into_iter()
        .map(|(name, text)| vec![Cell::toned(name, Tone::Faint), text.into()])
        .collect();
    aligned(&cells, screen)
}

/// Lines of cells, each column as wide as its widest cell.
pub(crate) fn aligned(lines: &[Vec<Cell>], screen: Screen) -> String {
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
            let words = one_line(&cell.text);
            if !words.is_empty() {
                shown.push_str(&" ".repeat(gap));
                shown.push_str(&screen.paint(cell.tone, &words));
                gap = 0;
            }
            gap += width.saturating_sub(words.chars().count()) + 2;
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
            // Links say where we are already.
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
            brief(value)
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

    const COLUMNS: &[Column] = &[
        Column::new("NAME", |row| plain(&row["name"])),
        Column::new("STATE", |row| plain(&row["state"])),
        Column::wide("ERROR", |row| plain(&row["error"])),
    ];

    #[test]
    fn what_is_long_is_cut_unless_there_is_room() {
        let columns = &[Column::cut("NOTE", |row| plain(&row["note"]))];
        let rows = [json!({"note": "ü".repeat(150)})];
        let shown = list(&rows, columns, false, quiet());
        assert_eq!(shown.lines().nth(1), Some(&*format!("{}…", "ü".repeat(LONGEST))));
        assert!(list(&rows, columns, true, quiet()).contains(&"ü".repeat(150)));
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be_and_lines_end_with_their_text() {
        let rows = [
            json!({"name": "rack1-u01", "state": "active"}),
            json!({"name": "ü", "state": "deploy failed", "error": "no\nanswer\u{1b}[2J"}),
        ];
        let screen = quiet();
        expect![[r#"
            NAME       STATE
            rack1-u01  active
            ü          deploy failed
        "#]]
        .assert_eq(&list(&rows, COLUMNS, false, screen));
        expect![[r#"
            NAME       STATE          ERROR
            rack1-u01  active
            ü          deploy failed  no answer [2J
        "#]]
        .assert_eq(&list(&rows, COLUMNS, true, screen));
    }

    #[test]
    fn one_thing_is_shown_field_by_field() {
        let thing = json!({
            "name": "n", "owner": null, "driver_info": {"address": "h", "nested": {"a": 1}},
            "traits": ["A", "B"], "links": [{"href": "x"}], "ports": [{"href": "x"}], "extra": {},
        });
        expect![[r#"
            driver_info.address   h
            driver_info.nested.a  1
            name                  n
            traits                A,B
        "#]]
        .assert_eq(&single(&thing, false, quiet()));
    }

    fn quiet() -> Screen {
        Screen::plain()
    }
}
