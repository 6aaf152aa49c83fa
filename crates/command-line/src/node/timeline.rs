// SPDX-License-Identifier: Apache-2.0
//! `ferrite node timeline`: the journal of a node.

use clap::Args;
use ironic_client::{QueryString, percent_encode};
use serde_json::Value;

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::events::{follow, format_entry};
use crate::node::queries::{require_ferrite, select_node};
use crate::output::OutputArguments;

/// Options of `ferrite node timeline`.
#[derive(Args, Debug)]
pub(crate) struct TimelineArguments {
    /// The machine.
    node: String,
    /// Number of the latest entries; 0 shows all.
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    last: u32,
    /// Continue with new entries.
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(
    context: &CliContext,
    arguments: &TimelineArguments,
) -> Result<(), CliError> {
    let selected = select_node(context, &arguments.node).await?;
    let (mut entries, newest) = fetch_entries(context, &selected.uuid, arguments.last).await?;
    sort_by_time(&mut entries);
    let format = arguments.output.output;
    if format.is_machine_readable() && !arguments.follow {
        context.screen.print(&format.format_list(&entries, &[], context.screen));
        return Ok(());
    }
    for entry in &entries {
        context.screen.print(&format_entry(entry, None, format, context.screen));
    }
    if arguments.follow {
        return follow(context, Some(&selected.uuid), Some(newest), format).await;
    }
    Ok(())
}

/// Fetches the latest `last` entries, or all entries if it is 0, and the newest sequence number.
async fn fetch_entries(
    context: &CliContext,
    uuid: &str,
    last: u32,
) -> Result<(Vec<Value>, u64), CliError> {
    let path = format!("/v1/ferrite/nodes/{}/timeline", percent_encode(uuid));
    let mut entries: Vec<Value> = Vec::new();
    let mut newest = 0;
    loop {
        let query = match last {
            0 => QueryString::new().with("after", &newest.to_string()).with("limit", "1000"),
            last => QueryString::new().with("last", &last.to_string()),
        };
        let page = context.api.find(&query.append_to(&path)).await?;
        let mut page = require_ferrite(page, "show timelines")?;
        let Value::Array(more) = page["timeline"].take() else { break };
        let is_last_page = last > 0 || page["next"].is_null() || more.is_empty();
        entries.extend(more);
        newest = entries.last().and_then(|entry| entry["seq"].as_u64()).unwrap_or_default();
        if is_last_page {
            break;
        }
    }
    Ok((entries, newest))
}

/// Sorts entries by their time. The server returns them in the order in which they were stored, and
/// entries about calls and boot requests are stored after the events that followed them.
fn sort_by_time(entries: &mut [Value]) {
    let text = |entry: &Value| entry["at"].as_str().unwrap_or_default().to_owned();
    entries.sort_by_cached_key(|entry| (text(entry), entry["seq"].as_u64()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_server::{TestResponse, start_server};

    #[tokio::test]
    async fn shows_entries_in_the_order_of_their_times() {
        let (context, _) = start_server(|_| {
            TestResponse::Json(
                200,
                json!({"timeline": [
                    {"seq": 1, "at": "2026-01-01T10:00:00.100000+00:00"},
                    {"seq": 2, "at": "2026-01-01T10:00:00.300000+00:00"},
                    {"seq": 3, "at": "2026-01-01T10:00:00.200000+00:00"},
                    {"seq": 4, "at": "2026-01-01T10:00:00.200000+00:00"},
                ]}),
            )
        });
        let (mut entries, newest) = fetch_entries(&context, "u", 50).await.unwrap();
        sort_by_time(&mut entries);
        let order: Vec<u64> = entries.iter().filter_map(|entry| entry["seq"].as_u64()).collect();
        assert_eq!((order.as_slice(), newest), (&[1, 3, 4, 2][..], 4));
    }
}
