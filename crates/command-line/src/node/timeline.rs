// SPDX-License-Identifier: Apache-2.0
//! `ferrite node timeline`: what happened to a machine, and what happens.

use clap::Args;
use ironic_client::{Query, segment};
use serde_json::Value;

use crate::desk::Desk;
use crate::events::{follow, line};
use crate::failure::Failure;
use crate::node::look::{chosen, of_ferrite};
use crate::output::OutputArguments;

/// Options of `ferrite node timeline`.
#[derive(Args, Debug)]
pub(crate) struct TimelineArguments {
    /// The machine.
    node: String,
    /// How many of the latest entries; 0 shows all there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    last: u32,
    /// Go on with what happens next.
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(desk: &Desk, arguments: &TimelineArguments) -> Result<(), Failure> {
    let chosen = chosen(desk, &arguments.node).await?;
    let path = format!("/v1/ferrite/nodes/{}/timeline", segment(&chosen.uuid));
    let mut entries: Vec<Value> = Vec::new();
    let mut after = 0;
    loop {
        let query = match arguments.last {
            0 => Query::new().with("after", &after.to_string()).with("limit", "1000"),
            last => Query::new().with("last", &last.to_string()),
        };
        let mut page = of_ferrite(desk.api.find(&query.on(&path)).await?, "tell timelines")?;
        let Value::Array(more) = page["timeline"].take() else { break };
        let is_last = arguments.last > 0 || page["next"].is_null() || more.is_empty();
        entries.extend(more);
        after = entries.last().and_then(|entry| entry["seq"].as_u64()).unwrap_or_default();
        if is_last {
            break;
        }
    }
    let format = arguments.output.output;
    if format.is_for_programs() && !arguments.follow {
        desk.screen.print(&format.list(&entries, &[], desk.screen));
        return Ok(());
    }
    for entry in &entries {
        desk.screen.print(&line(entry, None, format, desk.screen));
    }
    if arguments.follow {
        return follow(desk, Some(&chosen.uuid), Some(after), format).await;
    }
    Ok(())
}
