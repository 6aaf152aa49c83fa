// SPDX-License-Identifier: Apache-2.0
//! `ferrite image`: which images machines have, and what the server keeps of them. Only a Ferrite
//! tells.

use clap::Subcommand;

use crate::failure::Failure;
use crate::kinds;
use crate::node::look::of_ferrite;
use crate::output::rows_in;
use crate::resources::Of;
use crate::things::ListArguments;
use crate::watch;

/// What can be done with images.
#[derive(Subcommand, Debug)]
pub enum ImageCommand {
    /// List the images that machines have or are to have.
    #[command(visible_alias = "ls")]
    List(ListArguments),
    /// List the images that the server keeps, the one used last first.
    Cached(ListArguments),
}

pub(crate) async fn run(arguments: &Of<ImageCommand>) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    let (list, columns, cached) = match &arguments.command {
        ImageCommand::List(list) => (list, kinds::IMAGES, false),
        ImageCommand::Cached(list) => (list, kinds::CACHED_IMAGES, true),
    };
    let rows = async || {
        let found = desk.api.find("/v1/ferrite/images").await?;
        let mut found = of_ferrite(found, "tell of images")?;
        Ok(if cached { rows_in(found["cache"].take(), "images") } else { rows_in(found, "in_use") })
    };
    watch::list(&desk, &list.watch, list.output.output, columns, rows).await
}
