// SPDX-License-Identifier: Apache-2.0
//! Forwards bytes between the serial port of a QEMU machine and the console of its BMC.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use fleet_sim::SerialLine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::sleep;

/// Delay between connection attempts while the machine is off.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Forwards bytes whenever the machine is on. Never returns.
pub(super) async fn forward(mut line: SerialLine, socket: PathBuf) -> anyhow::Result<Infallible> {
    loop {
        // While the machine is off, the socket is missing or refuses connections.
        match UnixStream::connect(&socket).await {
            Ok(stream) => copy_until_power_off(&mut line, stream).await,
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    }
}

async fn copy_until_power_off(line: &mut SerialLine, mut stream: UnixStream) {
    let (mut reader, mut writer) = stream.split();
    let mut buffer = [0; 4096];
    loop {
        tokio::select! {
            read = reader.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => line.write_output(&buffer[..count]),
            },
            Some(bytes) = line.read_input() => if writer.write_all(&bytes).await.is_err() {
                return;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_sim::{FleetConfig, SimulatedFleet};
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn reconnects_after_a_power_cycle() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("serial");
        let fleet =
            SimulatedFleet::start(FleetConfig { ipmi: true, ..FleetConfig::default() }).unwrap();
        let line = fleet.machine(0).unwrap().attach_serial_line();
        let forwarding = tokio::spawn(forward(line, socket.clone()));
        for _ in 0..2 {
            let machine = UnixListener::bind(&socket).unwrap();
            let (stream, _) = machine.accept().await.unwrap();
            drop(stream);
            drop(machine);
            std::fs::remove_file(&socket).unwrap();
        }
        forwarding.abort();
        fleet.stop().await;
    }
}
