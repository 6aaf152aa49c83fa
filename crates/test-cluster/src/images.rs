// SPDX-License-Identifier: Apache-2.0
//! Images of the cluster: which program runs for which image name.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// An image: the system of this machine, read-only, and some files of its own.
#[derive(Clone, Debug)]
pub struct TestImage {
    /// Images whose names contain this text.
    pub name: String,
    /// The program and its arguments, unless the container has a command.
    pub entrypoint: Vec<String>,
    /// Files of this machine and their paths in the container, outside of `/usr`.
    pub files: Vec<(PathBuf, String)>,
}

const MARIADB: &str = include_str!("../images/mariadb.sh");
const POSTGRES: &str = include_str!("../images/postgres.sh");

impl TestImage {
    /// Runs a program of this machine, which is `/NAME` in the container.
    #[must_use]
    pub fn program(name: &str, program: PathBuf) -> Self {
        let path = format!("/{name}");
        Self { name: name.to_owned(), entrypoint: vec![path.clone()], files: vec![(program, path)] }
    }

    /// Programs of this machine; containers have a command.
    #[must_use]
    pub fn tools(name: &str) -> Self {
        Self { name: name.to_owned(), entrypoint: vec!["sh".to_owned()], files: Vec::new() }
    }

    /// MariaDB with the variables and the volume of the official image.
    #[must_use]
    pub fn mariadb() -> Self {
        Self::script("mariadb", MARIADB)
    }

    /// PostgreSQL with the variables and the volume of the official image.
    #[must_use]
    pub fn postgres() -> Self {
        Self::script("postgres", POSTGRES)
    }

    fn script(name: &str, text: &str) -> Self {
        let entrypoint = ["sh", "-c", text, name].map(str::to_owned).to_vec();
        Self { name: name.to_owned(), entrypoint, files: Vec::new() }
    }

    /// The image with this name.
    ///
    /// # Errors
    /// No image has the name, as if it could not be pulled.
    pub(crate) fn find<'a>(images: &'a [Self], name: &str) -> Result<&'a Self> {
        images
            .iter()
            .find(|image| name.contains(&image.name))
            .with_context(|| format!("failed to pull image {name:?}: no TestImage has this name"))
    }
}
