// SPDX-License-Identifier: Apache-2.0
//! `ferrite-agent`, with the generic hardware manager only.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent::program::main(Vec::new())
}
