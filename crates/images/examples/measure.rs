// SPDX-License-Identifier: Apache-2.0
//! Measures how fast an image gets into the cache, to hold against `sha256sum`, `qemu-img convert`
//! and friends: `cargo run --release -p images --example measure -- <folder> <source> [raw]`.

use std::path::PathBuf;
use std::time::Instant;

use images::{
    CacheRequest, CacheSettings, FilePolicy, ImageCache, ImageKind, ImageSource, TargetFormat,
};

#[expect(clippy::print_stdout, reason = "this is what it is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(source)) = (arguments.next(), arguments.next()) else {
        return Err("give a folder for the cache and the address of an image".into());
    };
    let wanted = if arguments.next().is_some() { TargetFormat::Raw } else { TargetFormat::AsIs };
    let files = FilePolicy { allowed: vec![PathBuf::from("/")] };
    let cache = ImageCache::open(CacheSettings { files, ..CacheSettings::new(folder.into()) })?;
    let request = CacheRequest {
        target_format: wanted,
        ..CacheRequest::new(ImageSource::parse(&source)?, ImageKind::DiskImage)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let start = Instant::now();
    let entry = runtime.block_on(cache.get(&request))?;
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = entry.size as f64 / 1e6;
    println!(
        "{} {megabytes:.0} MB in {seconds:.2} s, {:.0} MB/s",
        entry.format,
        megabytes / seconds
    );
    Ok(())
}
