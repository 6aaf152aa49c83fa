// SPDX-License-Identifier: Apache-2.0
//! The server and the load generators of `cargo xtask bench boot`.
//!
//! The boot servers run in their own process, so that their cost can be read from `/proc`. The load
//! generators simulate booting machines against them or against another server. The benchmark starts both
//! in network namespaces.

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

use load::LoadResult;

/// Serves booting machines, or simulates them.
#[derive(Parser)]
struct BenchArguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Serve DHCP, TFTP and HTTP until killed. Prints a line when all servers listen.
    Serve(serve::BenchServeArguments),
    /// Request DHCP leases.
    Dhcp {
        /// The number of the first machine.
        #[arg(long)]
        first: u32,
        /// The number of machines.
        #[arg(long)]
        count: u32,
        /// The number of concurrent machines.
        #[arg(long)]
        at_once: u32,
    },
    /// Fetch a file repeatedly by TFTP.
    Tftp {
        #[command(flatten)]
        fetch: tftp::TftpFetch,
        /// The number of transfers.
        #[arg(long)]
        count: u32,
        /// The number of concurrent transfers.
        #[arg(long)]
        at_once: u32,
    },
    /// Fetch a file repeatedly by HTTP over persistent connections.
    Http {
        /// The server.
        #[arg(long)]
        server: SocketAddr,
        /// The path.
        #[arg(long)]
        path: String,
        /// The number of requests.
        #[arg(long)]
        count: u32,
        /// The number of connections.
        #[arg(long)]
        at_once: u32,
    },
    /// Boot machines concurrently, each from its first packet to its ramdisk.
    Storm {
        /// The number of machines.
        #[arg(long)]
        count: u32,
        /// The number of the first machine.
        #[arg(long)]
        first: u32,
        /// Stop after the boot loader, because there is no HTTP server.
        #[arg(long)]
        without_http: bool,
    },
}

fn main() -> ExitCode {
    match run(BenchArguments::parse().role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(role: Role) -> Result<()> {
    // Each machine needs a socket, and the default limit is 1024 files.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    if let Role::Serve(arguments) = role {
        // The same runtime as in `ferrite serve`.
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        return runtime.block_on(serve::run(&arguments, || print_line("ready")));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(generate_load(role))?;
    print_line(&result.to_json());
    Ok(())
}

async fn generate_load(role: Role) -> Result<LoadResult> {
    match role {
        Role::Serve(_) => anyhow::bail!("`serve` generates no load"),
        Role::Dhcp { first, count, at_once } => dhcp::load(first, count, at_once).await,
        Role::Tftp { fetch, count, at_once } => Ok(tftp::load(&fetch, count, at_once).await),
        Role::Http { server, path, count, at_once } => {
            Ok(http::load(server, &path, count, at_once).await)
        }
        Role::Storm { count, first, without_http } => {
            storm::load(first, count, !without_http).await
        }
    }
}

#[expect(clippy::print_stdout, reason = "the benchmark reads the output")]
fn print_line(line: &str) {
    println!("{line}");
}

#[expect(clippy::print_stderr, reason = "a command-line program reports errors")]
fn print_error(text: &str) {
    eprintln!("error: {text}");
}
