// SPDX-License-Identifier: Apache-2.0
//! `ferrite image`: images of machines and the server's image cache (Ferrite only).

use clap::Subcommand;

use crate::cli_error::CliError;
use crate::node::queries::require_ferrite;
use crate::output::take_rows;
use crate::resource_actions::ResourceListArguments;
use crate::resource_types;
use crate::resources::ResourceArguments;
use crate::watch;

/// Commands for images.
#[derive(Subcommand, Debug)]
pub enum ImageCommand {
    /// List the images that machines have or will have.
    #[command(visible_alias = "ls")]
    List(ResourceListArguments),
    /// List the images in the server's cache, most recently used first.
    Cached(ResourceListArguments),
}

pub(crate) async fn run(arguments: &ResourceArguments<ImageCommand>) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let (list, columns, cached) = match &arguments.command {
        ImageCommand::List(list) => (list, resource_types::IMAGE_COLUMNS, false),
        ImageCommand::Cached(list) => (list, resource_types::CACHED_IMAGE_COLUMNS, true),
    };
    let rows = async || {
        let found = context.api.find("/v1/ferrite/images").await?;
        let mut found = require_ferrite(found, "list images")?;
        Ok(if cached {
            take_rows(found["cache"].take(), "images")
        } else {
            take_rows(found, "in_use")
        })
    };
    watch::show_list(&context, &list.watch, list.output.output, columns, rows).await
}
