// SPDX-License-Identifier: Apache-2.0
//! The serial port of a QEMU machine, joined to the console of its BMC.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use fleet_sim::SerialLine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::sleep;

/// How often it is looked whether the machine is on.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Carries bytes between the machine, whenever it is on, and its BMC, for ever.
pub(super) async fn join(mut line: SerialLine, socket: PathBuf) -> anyhow::Result<Infallible> {
    loop {
        // While the machine is off there is no socket, or nobody behind it.
        match UnixStream::connect(&socket).await {
            Ok(stream) => carry(&mut line, stream).await,
            Err(_) => sleep(LOOK_EVERY).await,
        }
    }
}

/// Until the machine is switched off.
async fn carry(line: &mut SerialLine, mut stream: UnixStream) {
    let (mut from, mut to) = stream.split();
    let mut buffer = [0; 4096];
    loop {
        tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => line.print(&buffer[..count]),
            },
            Some(bytes) = line.typed() => if to.write_all(&bytes).await.is_err() {
                return;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_sim::{Fleet, FleetConfig};
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_machine_that_is_switched_on_again_is_joined_again() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("serial");
        let fleet = Fleet::start(FleetConfig { ipmi: true, ..FleetConfig::default() }).unwrap();
        let line = fleet.machine(0).unwrap().plug_in_serial_line();
        let joining = tokio::spawn(join(line, socket.clone()));
        for _ in 0..2 {
            let machine = UnixListener::bind(&socket).unwrap();
            let (stream, _) = machine.accept().await.unwrap();
            drop(stream);
            drop(machine);
            std::fs::remove_file(&socket).unwrap();
        }
        joining.abort();
        fleet.stop().await;
    }
}
