// SPDX-License-Identifier: Apache-2.0
//! Work through the ramdisk agent: deploying, cleaning, servicing, rescuing, software RAID and
//! inspection.
//!
//! The agent is booted ([`ready`]), calls home, and is then given commands over HTTP ([`line`]).
//! What takes long it does by itself and calls when it is done; [`following`] starts such a command
//! once, however often we are interrupted, and finds out how it ended. [`steps`] carries out the
//! steps that the agent offers. The rest are the interfaces of a driver made of these.

mod autodetect;
mod deploy;
mod following;
mod handover;
mod image;
mod inspect;
mod line;
mod logs;
mod password;
mod raid;
mod ready;
mod rescue;
mod settings;
mod steps;
mod told;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use crate::driver::Shelves;
use crate::{BootDesk, ConfigError, DriverSettings};
use line::AgentLine;

pub use image::ImageOrder;
pub use ready::{boot_again, warm_up};
pub use settings::{AgentSettings, ImageDownloadSource};

pub(crate) use following::restart;
pub(crate) use ready::{power_off, start, take_down};

/// What all implementations here share.
pub struct InBand {
    line: AgentLine,
    desk: Arc<dyn BootDesk>,
    settings: AgentSettings,
    /// Whether running agents are used where the node does not say.
    fast_track: bool,
    /// How long after its last call an agent still counts as running.
    is_fresh: Duration,
}

impl std::fmt::Debug for InBand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InBand").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What the implementations here share, and others that clean through the agent.
pub(crate) fn in_band(
    settings: &DriverSettings,
    desk: &Arc<dyn BootDesk>,
) -> Result<Arc<InBand>, ConfigError> {
    let line = AgentLine::new(&settings.agent)
        .map_err(|error| ConfigError::Agent { why: error.to_string() })?;
    Ok(Arc::new(InBand {
        line,
        desk: Arc::clone(desk),
        settings: settings.agent.clone(),
        fast_track: settings.fast_track,
        is_fresh: Duration::from_secs(settings.agent_is_fresh),
    }))
}

/// Puts these implementations on their shelves; `enabled` are the deploy interfaces that may be used.
pub(crate) fn add_to(shelves: &mut Shelves, in_band: &Arc<InBand>, enabled: &[String]) {
    deploy::add_to(shelves, in_band, enabled);
    inspect::add_to(shelves, in_band);
    raid::add_to(shelves, in_band);
    rescue::add_to(shelves, in_band);
}
