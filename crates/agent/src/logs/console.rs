// SPDX-License-Identifier: Apache-2.0
//! Output to all consoles of the kernel.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The maximum time to wait for a console. A blocked serial line must not block the machine.
const WRITE_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// All consoles that the kernel uses.
pub struct Consoles(Vec<File>);

impl Consoles {
    /// Opens the consoles, or `/dev/console` if there are none.
    #[must_use]
    pub fn open() -> Self {
        let active = std::fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
        let open = |name: &str| {
            OpenOptions::new()
                .write(true)
                .custom_flags(i32::try_from(open_flags()).unwrap_or(0))
                .open(Path::new("/dev").join(name))
                .ok()
        };
        let mut files: Vec<_> = active.split_ascii_whitespace().filter_map(open).collect();
        if files.is_empty() {
            files.extend(open("console"));
        }
        Self(files)
    }

    /// Writes to all consoles. The rest of the text is dropped for a console that blocks.
    pub fn write(&mut self, text: &[u8]) {
        for file in &mut self.0 {
            let mut rest = text;
            while !rest.is_empty() {
                match file.write(rest) {
                    Ok(0) => break,
                    Ok(written) => rest = &rest[written..],
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        let mut waiting = [PollFd::new(&*file, PollFlags::OUT)];
                        if !matches!(poll(&mut waiting, Some(&WRITE_TIMEOUT)), Ok(1)) {
                            break;
                        }
                    }
                    Err(_) => break,
                }
            }
        }
    }
}

fn open_flags() -> u32 {
    (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits()
}
