// SPDX-License-Identifier: Apache-2.0
//! Sets the clock by SNTP, because certificates are checked against it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, Timespec, clock_settime};
use tokio::net::UdpSocket;
use tokio::time::timeout;

const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 3;
/// Seconds from the NTP epoch (1900) to the Unix epoch (1970).
const NTP_UNIX_OFFSET: u64 = 2_208_988_800;

/// Sets the clock from a server. Returns the difference to the previous time in seconds.
///
/// # Errors
/// If the server does not reply, or the clock cannot be set.
pub async fn set_clock(server: IpAddr) -> io::Result<f64> {
    let time = query_server(SocketAddr::new(server, 123)).await?;
    let before = SystemTime::now();
    set_time(time.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?)?;
    Ok(match time.duration_since(before) {
        Ok(late) => late.as_secs_f64(),
        Err(early) => -early.duration().as_secs_f64(),
    })
}

/// Sets the clock to the time at which this boot was prepared, if it is so wrong that certificates of the
/// server would not be valid. Returns whether it was.
///
/// # Errors
/// If the clock cannot be set.
pub fn correct_clock(boot_time: u64) -> io::Result<bool> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let is_wrong = is_wrong_clock(now, boot_time);
    if is_wrong {
        set_time(Duration::from_secs(boot_time))?;
    }
    Ok(is_wrong)
}

/// Whether the clock is half a day or more behind the preparation of the boot, or a month ahead of it.
const fn is_wrong_clock(now: u64, boot_time: u64) -> bool {
    const HALF_DAY: u64 = 12 * 60 * 60;
    const MONTH: u64 = 30 * 24 * 60 * 60;
    now.saturating_add(HALF_DAY) <= boot_time || now >= boot_time.saturating_add(MONTH)
}

fn set_time(unix: Duration) -> io::Result<()> {
    let seconds = i64::try_from(unix.as_secs()).map_err(io::Error::other)?;
    let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(unix.subsec_nanos()) };
    Ok(clock_settime(ClockId::Realtime, time)?)
}

async fn query_server(server: SocketAddr) -> io::Result<SystemTime> {
    let any: IpAddr = match server.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    let mut request = [0; 48];
    // No leap warning, version 4, client.
    request[0] = 0x23;
    for _ in 0..ATTEMPTS {
        socket.send(&request).await?;
        let mut reply = [0; 64];
        if let Ok(received) = timeout(REPLY_TIMEOUT, socket.recv(&mut reply)).await
            && let Some(time) = received.ok().and_then(|length| decode(&reply[..length]))
        {
            return Ok(time);
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no reply from the NTP server"))
}

/// Decodes the transmit time. Returns `None` if the server is not synchronised.
fn decode(message: &[u8]) -> Option<SystemTime> {
    const SERVER: u8 = 4;
    let (mode, stratum) = (message.first()? & 7, *message.get(1)?);
    let number = |at: usize| message.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let (seconds, fraction) = (u64::from(number(40)?), u64::from(number(44)?));
    if mode != SERVER || !(1..16).contains(&stratum) || seconds == 0 {
        return None;
    }
    // The seconds wrap around in 2036.
    let seconds = if seconds < NTP_UNIX_OFFSET { seconds + (1 << 32) } else { seconds };
    let nanos = (fraction * 1_000_000_000) >> 32;
    let unix = Duration::new(seconds - NTP_UNIX_OFFSET, u32::try_from(nanos).ok()?);
    Some(SystemTime::UNIX_EPOCH + unix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_clocks_are_detected() {
        let boot_time = 1_800_000_000;
        for (now, expected) in [
            (0, true),
            (boot_time - 13 * 3600, true),
            (boot_time - 11 * 3600, false),
            (boot_time + 3600, false),
            (boot_time + 31 * 24 * 3600, true),
        ] {
            assert_eq!(is_wrong_clock(now, boot_time), expected, "{now}");
        }
    }

    #[test]
    fn decodes_server_time() {
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
