// SPDX-License-Identifier: Apache-2.0
//! Lists, once or again and again.

use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::desk::Desk;
use crate::failure::Failure;
use crate::output::{Format, name_of};
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
        let mut shown: HashMap<String, Value> = HashMap::new();
        loop {
            let rows = rows().await?;
            if desk.screen.is_terminal {
                // From the top left corner, and nothing of the last time is left.
                let text = format.list(&rows, columns, desk.screen);
                desk.screen.print(&format!("\x1b[H\x1b[2J{text}"));
            } else {
                let is_news = |row: &&Value| shown.get(name_of(row)) != Some(*row);
                let news: Vec<Value> = rows.iter().filter(is_news).cloned().collect();
                if !news.is_empty() {
                    desk.screen.print(&format.list(&news, columns, desk.screen));
                }
                shown = rows.into_iter().map(|row| (name_of(&row).to_owned(), row)).collect();
            }
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
    };
    tokio::select! {
        failed = follow => failed,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}
