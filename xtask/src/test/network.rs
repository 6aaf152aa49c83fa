// SPDX-License-Identifier: Apache-2.0
//! A network of our own: what the tests and their machines send reaches nobody else, and two runs
//! can use the same addresses.
//!
//! A namespace belongs to a thread and to what that thread starts from then on. It has a loopback
//! and no way out, so everything that is downloaded must be there before it is entered.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::{install, say};

/// Makes a namespace, sets up its loopback, says so and keeps it until its input ends.
const MAKE: &str = "ip link set lo up && echo up && cat";

/// This thread, and what it starts, is in a network namespace of its own until this is dropped.
pub(crate) struct Network {
    outside: File,
}

impl Network {
    /// Says what to do if we may not make one; asked before anything is built or installed.
    pub(crate) fn check() -> Result<()> {
        if !install::is_root() {
            bail!(
                "only root may make the network namespace in which the machines of the lab boot: \
                 run this as root, or `cargo xtask test --quick` without the lab"
            );
        }
        Ok(())
    }

    /// Makes a namespace with a loopback and enters it.
    pub(crate) fn enter() -> Result<Self> {
        let outside = File::open("/proc/thread-self/ns/net").context("cannot see our network")?;
        let mut maker = Command::new("unshare")
            .args(["--net", "sh", "-c", MAKE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run unshare")?;
        let mut said = [0; 2];
        let is_up = match &mut maker.stdout {
            Some(output) => output.read_exact(&mut said).is_ok(),
            None => false,
        };
        let entered = is_up.then(|| into(&File::open(format!("/proc/{}/ns/net", maker.id()))?));
        // The namespace stays because we are in it; its maker has nothing left to do.
        drop(maker.stdin.take());
        maker.wait()?;
        entered.context("cannot make a network namespace")??;
        Ok(Self { outside })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Err(error) = into(&self.outside) {
            say::problem(&format!("{error:#}; what follows has no network"));
        }
    }
}

fn into(namespace: &File) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .context("cannot change the network namespace")
}
