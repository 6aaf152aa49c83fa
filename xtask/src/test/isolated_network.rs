// SPDX-License-Identifier: Apache-2.0
//! A network namespace for the tests: their packets reach no other network, and two runs can use
//! the same addresses.
//!
//! A namespace belongs to a thread and to the threads and processes that it starts afterwards. It
//! has a loopback interface and no route out, so everything must be downloaded before.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{install, print};

/// Sets up the loopback, prints `up`, and keeps the namespace until the standard input is closed.
const SET_UP: &str = "ip link set lo up && echo up && cat";

/// The calling thread is in its own network namespace until this is dropped.
pub(crate) struct IsolatedNetwork {
    outside: File,
}

impl IsolatedNetwork {
    /// Fails if the process may not create namespaces. Called before anything is built.
    pub(crate) fn check_permission() -> Result<()> {
        if !install::is_root() {
            bail!(
                "the lab needs a network namespace, which only root may create: run this as root, \
                 or use `cargo xtask test --quick`, which has no lab"
            );
        }
        Ok(())
    }

    /// Creates a namespace with a loopback and enters it.
    pub(crate) fn enter() -> Result<Self> {
        let outside =
            File::open("/proc/thread-self/ns/net").context("cannot open our network namespace")?;
        let mut creator = Command::new("unshare")
            .args(["--net", "sh", "-c", SET_UP])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run unshare")?;
        let mut output_bytes = [0; 2];
        let is_up = match &mut creator.stdout {
            Some(output) => output.read_exact(&mut output_bytes).is_ok(),
            None => false,
        };
        let entered =
            is_up.then(|| enter_namespace(&File::open(format!("/proc/{}/ns/net", creator.id()))?));
        // The namespace lives on because this thread is in it.
        drop(creator.stdin.take());
        creator.wait()?;
        entered.context("cannot create a network namespace")??;
        Ok(Self { outside })
    }
}

impl Drop for IsolatedNetwork {
    fn drop(&mut self) {
        if let Err(error) = enter_namespace(&self.outside) {
            print::problem(&format!("{error:#}; commands after this have no network"));
        }
    }
}

fn enter_namespace(namespace: &File) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .context("cannot change the network namespace")
}
