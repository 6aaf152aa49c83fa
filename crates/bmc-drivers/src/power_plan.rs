// SPDX-License-Identifier: Apache-2.0
//! How a machine is brought to a power state, whatever its BMC speaks.
//!
//! What has to be done is planned from what the BMC shows; then each leg of the plan is sent and
//! awaited. A machine that is already there is left alone.
//!
//! A caller repeats what failed because the BMC fell silent. That does no harm, except to a reboot
//! whose machine may be starting already: it would be cut off and started once more. So from there
//! on silence is waited out, and at the end it is a failure and not a reason to try again.

use std::time::Duration;

use async_trait::async_trait;
use node_model::{PowerState, PowerTarget};

use crate::Error;
use crate::pace::Pace;

/// How long a machine that is restarted may still show the state from before, on a BMC that does
/// not say when the last reset was.
const RESTART_SHOWS_AFTER: Duration = Duration::from_secs(15);

/// A machine's power, as its BMC lets us see and change it.
#[async_trait]
pub(crate) trait Switch: Send {
    /// How the machine stands.
    async fn look(&mut self) -> Result<Seen, Error>;

    /// Tells the BMC to, and says which of its words it took; none if there turned out to be
    /// nothing left to do. A BMC that is busy may be asked again for as long as `patience`.
    async fn send(
        &mut self,
        purpose: Purpose,
        patience: Duration,
    ) -> Result<Option<&'static str>, Error>;

    /// Sees to what has to be set before the machine starts.
    async fn before_start(&mut self) -> Result<(), Error>;

    /// How long the machine is left alone between off and on.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the last look showed that the machine was reset since something was last sent.
    /// False where the BMC does not tell.
    fn shows_a_reset(&self) -> bool {
        false
    }
}

/// How a machine's power looks to its BMC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    On,
    GoingOn,
    Off,
    GoingOff,
    /// The BMC does not say, or says something we do not know.
    Unknown,
}

/// What a BMC is told to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Switch on.
    On,
    /// Cut the power.
    Off,
    /// Ask the operating system to shut down.
    ShutDown,
    /// Restart without asking, and without switching off.
    Restart,
    /// Ask the operating system to restart.
    RestartSoftly,
}

/// How a machine may be restarted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restarts {
    /// Whether its operating system can be asked to.
    pub(crate) softly: bool,
    /// Whether it must never be switched off.
    pub(crate) never_off: bool,
}

/// How long a leg may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// What the caller allows, for each leg.
    pub(crate) asked: Option<Duration>,
    /// For a change of power.
    pub(crate) change: Duration,
    /// For an operating system that is asked to end.
    pub(crate) soft: Duration,
}

/// One part of a change: what to send, if anything, and what to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leg {
    send: Option<Purpose>,
    until: Seen,
}

/// What became of what was to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    /// Nothing had to be.
    Nothing,
    /// The BMC took it, under this name.
    Taken(&'static str),
    /// It may have, and its answer was lost.
    Perhaps,
}

/// Brings a machine that shows `first` to `wanted`.
pub(crate) async fn bring(
    switch: &mut impl Switch,
    first: Seen,
    wanted: PowerTarget,
    restarts: Restarts,
    limits: Limits,
) -> Result<(), Error> {
    for leg in plan(wanted, first, restarts) {
        let patience = limits.of(leg.send);
        if leg.until == Seen::On && leg.send.is_some() {
            switch.before_start().await?;
        }
        let sent = send(switch, wanted, *leg, patience).await?;
        // What the BMC never shows cannot be awaited.
        if first != Seen::Unknown || sent == Sent::Perhaps {
            wait(switch, wanted, *leg, sent, patience).await?;
        }
        if leg.until == Seen::Off && wanted.state() == PowerState::On {
            tokio::time::sleep(switch.rest()).await;
        }
    }
    Ok(())
}

/// What is wanted, for messages: a verb and its object.
pub(crate) const fn what(wanted: PowerTarget) -> &'static str {
    match wanted {
        PowerTarget::On => "switch the machine on",
        PowerTarget::Off => "switch the machine off",
        PowerTarget::Reboot => "reboot the machine",
        PowerTarget::SoftOff => "shut the machine down",
        PowerTarget::SoftReboot => "restart the machine's operating system",
    }
}

impl Seen {
    /// Whether the machine is where `end` is, or on its way there.
    pub(crate) fn is_at_or_going(self, end: Self) -> bool {
        self != Self::Unknown && self.state() == end.state()
    }

    pub(crate) const fn state(self) -> Option<PowerState> {
        match self {
            Self::On | Self::GoingOn => Some(PowerState::On),
            Self::Off | Self::GoingOff => Some(PowerState::Off),
            Self::Unknown => None,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::GoingOn => "switching on",
            Self::Off => "off",
            Self::GoingOff => "switching off",
            Self::Unknown => "in a state the BMC does not tell",
        }
    }
}

impl Purpose {
    /// Where it leads.
    pub(crate) const fn leads_to(self) -> Seen {
        match self {
            Self::On | Self::Restart | Self::RestartSoftly => Seen::On,
            Self::Off | Self::ShutDown => Seen::Off,
        }
    }

    /// Whether being there already means that nothing is left to do, so that sending it twice
    /// does no harm.
    pub(crate) const fn is_idempotent(self) -> bool {
        match self {
            Self::On | Self::Off | Self::ShutDown => true,
            Self::Restart | Self::RestartSoftly => false,
        }
    }

    const fn asks_the_system(self) -> bool {
        match self {
            Self::ShutDown | Self::RestartSoftly => true,
            Self::On | Self::Off | Self::Restart => false,
        }
    }
}

impl Limits {
    fn of(&self, purpose: Option<Purpose>) -> Duration {
        let asks = purpose.is_some_and(Purpose::asks_the_system);
        self.asked.unwrap_or(if asks { self.soft } else { self.change })
    }
}

impl Leg {
    /// Whether repeating the whole after this leg would start the machine once more.
    fn starts_for(self, wanted: PowerTarget) -> bool {
        match wanted {
            PowerTarget::Reboot | PowerTarget::SoftReboot => self.until == Seen::On,
            PowerTarget::On | PowerTarget::Off | PowerTarget::SoftOff => false,
        }
    }
}

/// What to do to a machine that shows `seen`.
fn plan(wanted: PowerTarget, seen: Seen, restarts: Restarts) -> &'static [Leg] {
    const fn leg(purpose: Purpose) -> Leg {
        Leg { send: Some(purpose), until: purpose.leads_to() }
    }
    const ON: Leg = leg(Purpose::On);
    const OFF: Leg = leg(Purpose::Off);
    const SHUT_DOWN: Leg = leg(Purpose::ShutDown);
    const BECOMES_ON: Leg = Leg { send: None, until: Seen::On };
    const BECOMES_OFF: Leg = Leg { send: None, until: Seen::Off };
    const RESTART: Leg = leg(Purpose::Restart);
    const RESTART_SOFTLY: Leg = leg(Purpose::RestartSoftly);
    match (wanted, seen) {
        (PowerTarget::On, Seen::On) | (PowerTarget::Off | PowerTarget::SoftOff, Seen::Off) => &[],
        (PowerTarget::On, Seen::GoingOn) => &[BECOMES_ON],
        (PowerTarget::Off | PowerTarget::SoftOff, Seen::GoingOff) => &[BECOMES_OFF],
        (PowerTarget::Off, Seen::On | Seen::GoingOn | Seen::Unknown) => &[OFF],
        (PowerTarget::SoftOff, Seen::On | Seen::GoingOn | Seen::Unknown) => &[SHUT_DOWN],
        (PowerTarget::On, Seen::Off | Seen::Unknown)
        | (PowerTarget::Reboot | PowerTarget::SoftReboot, Seen::Off) => &[ON],
        // A BMC refuses to switch on what is still going off.
        (PowerTarget::On | PowerTarget::Reboot | PowerTarget::SoftReboot, Seen::GoingOff) => {
            &[BECOMES_OFF, ON]
        }
        (PowerTarget::Reboot, Seen::On | Seen::GoingOn) if !restarts.never_off => &[OFF, ON],
        (PowerTarget::SoftReboot, Seen::On | Seen::GoingOn)
            if !restarts.softly && !restarts.never_off =>
        {
            &[SHUT_DOWN, ON]
        }
        // Off could not be awaited where the state is not told.
        (PowerTarget::Reboot, Seen::On | Seen::GoingOn | Seen::Unknown) => &[RESTART],
        (PowerTarget::SoftReboot, Seen::On | Seen::GoingOn | Seen::Unknown) => &[RESTART_SOFTLY],
    }
}

/// Sends what the leg needs.
async fn send(
    switch: &mut impl Switch,
    wanted: PowerTarget,
    leg: Leg,
    patience: Duration,
) -> Result<Sent, Error> {
    let Some(purpose) = leg.send else { return Ok(Sent::Nothing) };
    let mut pace = Pace::within(patience);
    loop {
        match switch.send(purpose, pace.left()).await {
            Ok(word) => return Ok(word.map_or(Sent::Nothing, Sent::Taken)),
            Err(error) if !error.is_transient() || !leg.starts_for(wanted) => return Err(error),
            Err(_) if !purpose.is_idempotent() => return Ok(Sent::Perhaps),
            Err(error) => {
                if !pace.pause().await {
                    return Err(unseen(wanted, leg, Sent::Perhaps, &error, patience));
                }
            }
        }
    }
}

/// Looks until the machine is where the leg leads. A BMC that does not answer for a moment is
/// busy with what it was asked to.
async fn wait(
    switch: &mut impl Switch,
    wanted: PowerTarget,
    leg: Leg,
    sent: Sent,
    patience: Duration,
) -> Result<(), Error> {
    let mut pace = Pace::within(patience);
    loop {
        let looked = match switch.look().await {
            Ok(seen) if seen == leg.until && is_after(switch, leg, sent, pace.spent()) => {
                return Ok(());
            }
            Err(
                error @ (Error::Refused { .. }
                | Error::Untrusted { .. }
                | Error::Unsupported { .. }
                | Error::InvalidParameter { .. }
                | Error::MissingParameter { .. }),
            ) => return Err(error),
            looked => looked,
        };
        if !pace.pause().await {
            return Err(match looked {
                Err(error) if leg.starts_for(wanted) => unseen(wanted, leg, sent, &error, patience),
                Err(error) => error,
                Ok(seen) => failed(wanted, too_late(leg, sent, seen, patience)),
            });
        }
    }
}

/// Whether what is seen can be of after what was sent. Only a restart leaves this open: the
/// machine is on before and after.
fn is_after(switch: &impl Switch, leg: Leg, sent: Sent, spent: Duration) -> bool {
    match (leg.send, sent) {
        (None | Some(Purpose::On | Purpose::Off | Purpose::ShutDown), _) => true,
        (Some(Purpose::Restart | Purpose::RestartSoftly), Sent::Perhaps) => switch.shows_a_reset(),
        (Some(Purpose::Restart), Sent::Taken(_) | Sent::Nothing) => {
            switch.shows_a_reset() || spent >= RESTART_SHOWS_AFTER
        }
        // The system takes its time, and nobody can see when it has begun.
        (Some(Purpose::RestartSoftly), Sent::Taken(_) | Sent::Nothing) => true,
    }
}

fn failed(wanted: PowerTarget, why: String) -> Error {
    Error::Failed { what: what(wanted).to_owned(), why }
}

/// What is said of a machine that was to start when its BMC fell silent.
fn unseen(wanted: PowerTarget, leg: Leg, sent: Sent, error: &Error, patience: Duration) -> Error {
    let began = match (leg.send, sent) {
        (Some(Purpose::On) | None, _) => "the machine was off",
        (Some(_), Sent::Taken(_) | Sent::Nothing) => "the BMC took the request",
        (Some(_), Sent::Perhaps) => "it is not known whether the BMC took the request",
    };
    let seconds = patience.as_secs();
    let why = format!(
        "{began}, and the machine could not be seen on again within {seconds} s ({error}); when \
         the BMC answers, look at the power state before asking again"
    );
    failed(wanted, why)
}

/// What is said of a machine that did not get there in time.
fn too_late(leg: Leg, sent: Sent, seen: Seen, patience: Duration) -> String {
    let after = match sent {
        Sent::Nothing => String::new(),
        Sent::Taken(word) => format!(" after the BMC took '{word}'"),
        Sent::Perhaps => {
            " after the request, and it is not known whether the BMC took it".to_owned()
        }
    };
    let advice = if leg.send.is_some_and(Purpose::asks_the_system) {
        "the operating system did not follow; allow more time, or use 'power off' or 'rebooting', \
         which do not ask it"
    } else {
        "look at the machine's own log for the cause, or allow more time"
    };
    format!("the machine is {} {} s{after}; {advice}", seen.words(), patience.as_secs())
}

#[cfg(test)]
mod tests;
