// SPDX-License-Identifier: Apache-2.0
//! `ferrite-agent`, with no managers but the generic one.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent::program::main(Vec::new())
}
