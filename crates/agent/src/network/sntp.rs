// SPDX-License-Identifier: Apache-2.0
//! Asks a time server once what time it is: certificates are checked against the clock.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, Timespec, clock_settime};
use tokio::net::UdpSocket;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 3;
/// Seconds from 1900, when the protocol's time starts, to 1970.
const EPOCHS_APART: u64 = 2_208_988_800;

/// Sets the clock by a server. Says how far it was off, in seconds.
///
/// # Errors
/// If the server does not answer, or the clock cannot be set.
pub async fn set_clock(server: IpAddr) -> io::Result<f64> {
    let time = ask(SocketAddr::new(server, 123)).await?;
    let before = SystemTime::now();
    let unix = time.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?;
    let seconds = i64::try_from(unix.as_secs()).map_err(io::Error::other)?;
    clock_settime(
        ClockId::Realtime,
        Timespec { tv_sec: seconds, tv_nsec: i64::from(unix.subsec_nanos()) },
    )?;
    Ok(match time.duration_since(before) {
        Ok(late) => late.as_secs_f64(),
        Err(early) => -early.duration().as_secs_f64(),
    })
}

async fn ask(server: SocketAddr) -> io::Result<SystemTime> {
    let any: IpAddr = match server.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    let mut question = [0; 48];
    // No leap warning, version 4, client.
    question[0] = 0x23;
    for _ in 0..ATTEMPTS {
        socket.send(&question).await?;
        let mut answer = [0; 64];
        if let Ok(received) = timeout(PATIENCE, socket.recv(&mut answer)).await
            && let Some(time) = received.ok().and_then(|length| decode(&answer[..length]))
        {
            return Ok(time);
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the time server does not answer"))
}

/// The time a server sent; nothing if it does not know it itself.
fn decode(message: &[u8]) -> Option<SystemTime> {
    const SERVER: u8 = 4;
    let (mode, stratum) = (message.first()? & 7, *message.get(1)?);
    let number = |at: usize| message.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let (seconds, fraction) = (u64::from(number(40)?), u64::from(number(44)?));
    if mode != SERVER || !(1..16).contains(&stratum) || seconds == 0 {
        return None;
    }
    // The counter starts again in 2036.
    let seconds = if seconds < EPOCHS_APART { seconds + (1 << 32) } else { seconds };
    let nanos = (fraction * 1_000_000_000) >> 32;
    let unix = Duration::new(seconds - EPOCHS_APART, u32::try_from(nanos).ok()?);
    Some(SystemTime::UNIX_EPOCH + unix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let mut message = [0; 48];
        message[0] = 0x24;
        message[1] = 2;
        message[40..44].copy_from_slice(&(2_208_988_800_u32 + 1000).to_be_bytes());
        message[44] = 0x80;
        let time = decode(&message).unwrap();
        assert_eq!(time, SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_500));
        message[1] = 0;
        assert_eq!(decode(&message), None);
        assert_eq!(decode(&message[..40]), None);
    }
}
