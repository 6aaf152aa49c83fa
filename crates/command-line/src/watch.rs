// SPDX-License-Identifier: Apache-2.0
//! Lists, once or again and again.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::desk::Desk;
use crate::failure::Failure;
use crate::output::Format;
use crate::table::Column;

/// The option that keeps a list on the screen.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WatchArguments {
    /// Go on showing the list, looking again every so many seconds. Where the output is no terminal,
    /// only rows that changed are shown again.
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
}

/// Shows a list, until Ctrl-C if it is to be watched.
pub(crate) async fn list(
    desk: &Desk,
    watch: &WatchArguments,
    format: Format,
    columns: &[Column],
    rows: impl AsyncFn() -> Result<Vec<Value>, Failure>,
) -> Result<(), Failure> {
    let Some(seconds) = watch.watch else {
        let rows = rows().await?;
        desk.screen.print(&format.list(&rows, columns, desk.screen));
        return Ok(());
    };
    let follow = async {
        let mut shown = HashSet::new();
        loop {
            let rows = rows().await?;
            if desk.screen.is_terminal {
                // From the top left corner, and nothing of the last time is left.
                let text = format.list(&rows, columns, desk.screen);
                desk.screen.print(&format!("\x1b[H\x1b[2J{text}"));
            } else {
                let news = news(rows, &mut shown);
                if !news.is_empty() {
                    desk.screen.print(&format.list(&news, columns, desk.screen));
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

/// The rows that were not just like this the last time.
fn news(rows: Vec<Value>, shown: &mut HashSet<String>) -> Vec<Value> {
    let before = std::mem::take(shown);
    shown.extend(rows.iter().map(Value::to_string));
    rows.into_iter().filter(|row| !before.contains(&row.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Whether they have names or not.
    #[test]
    fn rows_are_shown_again_when_they_change() {
        let mut shown = HashSet::new();
        let rows = |active| vec![json!({"some": "a"}), json!({"some": "b", "active": active})];
        assert_eq!(news(rows(1), &mut shown), rows(1));
        assert!(news(rows(1), &mut shown).is_empty());
        assert_eq!(news(rows(2), &mut shown), rows(2)[1..]);
        assert_eq!(news(rows(1), &mut shown), rows(1)[1..]);
    }
}
