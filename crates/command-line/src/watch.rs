// SPDX-License-Identifier: Apache-2.0
//! Lists that are shown once or repeatedly.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::output::OutputFormat;
use crate::table::OutputColumn;

/// The option that repeats a list.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WatchArguments {
    /// Repeat the list every so many seconds. Without a terminal, only changed rows are shown again.
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
}

/// Shows a list once, or with `--watch` until Ctrl-C.
pub(crate) async fn show_list(
    context: &CliContext,
    watch: &WatchArguments,
    format: OutputFormat,
    columns: &[OutputColumn],
    rows: impl AsyncFn() -> Result<Vec<Value>, CliError>,
) -> Result<(), CliError> {
    let Some(seconds) = watch.watch else {
        let rows = rows().await?;
        context.screen.print(&format.format_list(&rows, columns, context.screen));
        if rows.is_empty() && !format.is_machine_readable() {
            context.screen.note("the list is empty");
        }
        return Ok(());
    };
    let follow = async {
        let mut shown = HashSet::new();
        loop {
            let rows = rows().await?;
            if context.screen.is_stdout_terminal {
                // Clear the screen.
                let text = format.format_list(&rows, columns, context.screen);
                context.screen.print(&format!("\x1b[H\x1b[2J{text}"));
            } else {
                let changed = changed_rows(rows, &mut shown);
                if !changed.is_empty() {
                    context.screen.print(&format.format_list(&changed, columns, context.screen));
                }
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    };
    tokio::select! {
        failed = follow => failed,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Returns the rows that were not shown in this form before.
fn changed_rows(rows: Vec<Value>, shown: &mut HashSet<String>) -> Vec<Value> {
    let before = std::mem::take(shown);
    shown.extend(rows.iter().map(Value::to_string));
    rows.into_iter().filter(|row| !before.contains(&row.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shows_changed_rows_again() {
        let mut shown = HashSet::new();
        let rows = |active| vec![json!({"some": "a"}), json!({"some": "b", "active": active})];
        assert_eq!(changed_rows(rows(1), &mut shown), rows(1));
        assert!(changed_rows(rows(1), &mut shown).is_empty());
        assert_eq!(changed_rows(rows(2), &mut shown), rows(2)[1..]);
        assert_eq!(changed_rows(rows(1), &mut shown), rows(1)[1..]);
    }
}
