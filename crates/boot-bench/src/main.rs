// SPDX-License-Identifier: Apache-2.0
//! The two sides of `cargo xtask bench boot`: our boot services in a process of their own, so that
//! what they cost can be read from /proc, and machines that boot from them or from anybody else.
//!
//! It is started in network namespaces by the benchmark, and is of no use otherwise.

mod dhcp;
mod http;
mod load;
mod serve;
mod storm;
mod tftp;

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use load::Outcome;

/// Serves machines that boot, or plays them.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Serve DHCP, TFTP and HTTP until killed; a line is printed once all listen.
    Serve(serve::Options),
    /// Get leases, many at once.
    Dhcp {
        /// The number of the first machine.
        #[arg(long)]
        first: u32,
        /// How many machines.
        #[arg(long)]
        count: u32,
        /// How many at the same time.
        #[arg(long)]
        at_once: u32,
    },
    /// Fetch one file again and again by TFTP.
    Tftp {
        #[command(flatten)]
        what: tftp::Fetch,
        /// How many transfers.
        #[arg(long)]
        count: u32,
        /// How many at the same time.
        #[arg(long)]
        at_once: u32,
    },
    /// Fetch one file again and again by HTTP, on connections that stay.
    Http {
        /// The server.
        #[arg(long)]
        server: SocketAddr,
        /// The path.
        #[arg(long)]
        path: String,
        /// How many requests.
        #[arg(long)]
        count: u32,
        /// How many connections.
        #[arg(long)]
        at_once: u32,
    },
    /// Boot so many machines at the same moment, each from its first packet to its ramdisk.
    Storm {
        /// How many machines.
        #[arg(long)]
        count: u32,
        /// The number of the first machine.
        #[arg(long)]
        first: u32,
        /// Stop after the first stage: there is no HTTP server.
        #[arg(long)]
        without_http: bool,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say_problem(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(role: Role) -> Result<()> {
    // A socket per machine, where a shell's ordinary limit is a thousand.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    if let Role::Serve(options) = role {
        // As many threads as the program itself has.
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        return runtime.block_on(serve::run(&options, || say("ready")));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(play(role))?;
    say(&outcome.to_line());
    Ok(())
}

async fn play(role: Role) -> Result<Outcome> {
    match role {
        Role::Serve(_) => anyhow::bail!("a server is not played"),
        Role::Dhcp { first, count, at_once } => dhcp::load(first, count, at_once).await,
        Role::Tftp { what, count, at_once } => Ok(tftp::load(&what, count, at_once).await),
        Role::Http { server, path, count, at_once } => {
            Ok(http::load(server, &path, count, at_once).await)
        }
        Role::Storm { count, first, without_http } => {
            storm::load(first, count, !without_http).await
        }
    }
}

#[expect(clippy::print_stdout, reason = "the benchmark reads this")]
fn say(line: &str) {
    println!("{line}");
}

#[expect(clippy::print_stderr, reason = "a command line program says what went wrong")]
fn say_problem(text: &str) {
    eprintln!("error: {text}");
}
