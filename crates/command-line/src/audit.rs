// SPDX-License-Identifier: Apache-2.0
//! `ferrite audit`: search and export the audit log (Ferrite only).

use clap::Args;
use ironic_client::QueryString;
use serde_json::Value;

use crate::cli_error::CliError;
use crate::context::{CliContext, ConnectionArguments};
use crate::node::queries::require_ferrite;
use crate::output::OutputArguments;
use crate::resource_types::AUDIT_COLUMNS;

const PATH: &str = "/v1/ferrite/audit-log";
/// Entries per request.
const PAGE: usize = 500;

/// Options of `ferrite audit`.
#[derive(Args, Debug)]
pub struct AuditArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Only requests of this user.
    #[arg(long = "by", value_name = "USER")]
    by: Option<String>,
    /// Only requests of callers of this project.
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    /// Only requests on this resource: a UUID, or the name of a machine.
    #[arg(long, value_name = "ID")]
    resource: Option<String>,
    /// Only requests on resources of this type, such as node.
    #[arg(long = "type", value_name = "TYPE")]
    resource_type: Option<String>,
    /// Only this request.
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Only requests from this network address.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// Only requests that ended so: accepted, refused or failed.
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Only requests at this time or later, such as 2026-11-15 or 2026-11-15T19:24Z.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only requests before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Maximum number of entries, latest first.
    #[arg(long, value_name = "NUMBER", default_value_t = 50, conflicts_with = "jsonl")]
    limit: usize,
    /// Print all entries, latest first, as one JSON object per line.
    #[arg(long, conflicts_with = "output")]
    jsonl: bool,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(arguments: &AuditArguments) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let mut remaining = if arguments.jsonl { usize::MAX } else { arguments.limit };
    let mut rows = Vec::new();
    let mut marker = None;
    while remaining > 0 {
        let page = fetch_page(&context, arguments, marker.as_deref(), remaining.min(PAGE)).await?;
        let entries = page["entries"].as_array().cloned().unwrap_or_default();
        remaining -= entries.len().min(remaining);
        if arguments.jsonl {
            let lines: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
            context.screen.print(&lines);
        } else {
            rows.extend(entries);
        }
        marker = page["next"].as_str().map(str::to_owned);
        if marker.is_none() {
            break;
        }
    }
    if !arguments.jsonl {
        let output = arguments.output.output;
        context.screen.print(&output.format_list(&rows, AUDIT_COLUMNS, context.screen));
        if rows.is_empty() && !output.is_machine_readable() {
            context.screen.note("no matching entries");
        }
    }
    Ok(())
}

async fn fetch_page(
    context: &CliContext,
    arguments: &AuditArguments,
    marker: Option<&str>,
    limit: usize,
) -> Result<Value, CliError> {
    let limit = limit.to_string();
    let mut query = QueryString::new().with("limit", &limit);
    for (name, value) in [
        ("user", arguments.by.as_deref()),
        ("project", arguments.project.as_deref()),
        ("resource", arguments.resource.as_deref()),
        ("resource_type", arguments.resource_type.as_deref()),
        ("request_id", arguments.request_id.as_deref()),
        ("address", arguments.address.as_deref()),
        ("outcome", arguments.outcome.as_deref()),
        ("from", arguments.from.as_deref()),
        ("to", arguments.to.as_deref()),
        ("marker", marker),
    ] {
        if let Some(value) = value {
            query.add(name, value);
        }
    }
    let found = context.api.find(&query.append_to(PATH)).await?;
    require_ferrite(found, "show the audit log")
}
