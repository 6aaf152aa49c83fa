// SPDX-License-Identifier: Apache-2.0
//! Tests of planning, and of executing plans on a scripted BMC.

use std::collections::VecDeque;

use super::*;

const UNRESTRICTED: RestartOptions =
    RestartOptions { supports_soft_restart: true, never_off: false };
const NO_SOFT: RestartOptions = RestartOptions { supports_soft_restart: false, never_off: false };
const NEVER_OFF: RestartOptions = RestartOptions { supports_soft_restart: false, never_off: true };

#[test]
fn plan_depends_on_target_power_and_options() {
    use PowerTarget as T;
    for (power_target, observed, options, expected) in [
        (T::On, ObservedPower::On, UNRESTRICTED, "nothing"),
        (T::On, ObservedPower::Off, UNRESTRICTED, "On"),
        (T::On, ObservedPower::PoweringOn, UNRESTRICTED, "until On"),
        (T::On, ObservedPower::PoweringOff, UNRESTRICTED, "until Off, On"),
        (T::Off, ObservedPower::Off, UNRESTRICTED, "nothing"),
        (T::Off, ObservedPower::Unknown, UNRESTRICTED, "Off"),
        (T::SoftOff, ObservedPower::On, UNRESTRICTED, "SoftOff"),
        (T::SoftOff, ObservedPower::PoweringOff, UNRESTRICTED, "until Off"),
        (T::Reboot, ObservedPower::On, UNRESTRICTED, "Off, On"),
        (T::Reboot, ObservedPower::Off, UNRESTRICTED, "On"),
        (T::Reboot, ObservedPower::PoweringOff, UNRESTRICTED, "until Off, On"),
        (T::Reboot, ObservedPower::Unknown, UNRESTRICTED, "Restart"),
        (T::Reboot, ObservedPower::On, NEVER_OFF, "Restart"),
        (T::Reboot, ObservedPower::Off, NEVER_OFF, "On"),
        (T::SoftReboot, ObservedPower::On, UNRESTRICTED, "SoftRestart"),
        (T::SoftReboot, ObservedPower::On, NO_SOFT, "SoftOff, On"),
        (T::SoftReboot, ObservedPower::Unknown, NO_SOFT, "SoftRestart"),
        (T::SoftReboot, ObservedPower::On, NEVER_OFF, "SoftRestart"),
        (T::SoftReboot, ObservedPower::Off, NO_SOFT, "On"),
    ] {
        let steps = plan_steps(power_target, observed, options);
        let texts: Vec<_> = steps
            .iter()
            .map(|step| match step.command {
                Some(command) => format!("{command:?}"),
                None => format!("until {:?}", step.expected),
            })
            .collect();
        let text = if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") };
        assert_eq!(text, expected, "{power_target} {observed:?} {options:?}");
    }
}

/// The BMC's reply to one request; `None` if it does not respond.
type ScriptedReply<T> = Option<T>;

/// A BMC with scripted replies; the last one repeats.
#[derive(Default)]
struct ScriptedPowerControl {
    queries: VecDeque<ScriptedReply<ObservedPower>>,
    sends: VecDeque<ScriptedReply<()>>,
    resets: bool,
    commands: Vec<PowerPlanCommand>,
}

impl ScriptedPowerControl {
    fn new(queries: &[ScriptedReply<ObservedPower>], sends: &[ScriptedReply<()>]) -> Self {
        let (queries, sends) = (queries.iter().copied().collect(), sends.iter().copied().collect());
        Self { queries, sends, ..Self::default() }
    }
}

fn next_reply<T: Copy>(replies: &mut VecDeque<ScriptedReply<T>>) -> Result<T, DriverError> {
    let reply = if replies.len() > 1 { replies.pop_front() } else { replies.front().copied() };
    reply.flatten().ok_or_else(|| DriverError::BmcUnreachable {
        address: "10.0.0.1".to_owned(),
        what: "reboot the machine".to_owned(),
        source: None,
    })
}

#[async_trait]
impl PowerControl for ScriptedPowerControl {
    async fn query_power(&mut self) -> Result<ObservedPower, DriverError> {
        next_reply(&mut self.queries)
    }

    async fn send_command(
        &mut self,
        command: PowerPlanCommand,
        _timeout: Duration,
    ) -> Result<Option<&'static str>, DriverError> {
        self.commands.push(command);
        next_reply(&mut self.sends).map(|()| Some("It"))
    }

    async fn prepare_start(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    fn was_reset(&self) -> bool {
        self.resets
    }
}

const LIMITS: PowerTimeouts = PowerTimeouts {
    requested: None,
    change: Duration::from_secs(60),
    soft: Duration::from_secs(600),
};

/// Queries the power and changes it.
async fn query_and_change_power(
    script: &mut ScriptedPowerControl,
    power_target: PowerTarget,
    options: RestartOptions,
    timeouts: PowerTimeouts,
) -> Result<(), DriverError> {
    let first = script.query_power().await?;
    change_power(script, first, power_target, options, timeouts).await
}

async fn reboot(
    script: &mut ScriptedPowerControl,
    options: RestartOptions,
) -> Result<(), DriverError> {
    query_and_change_power(script, PowerTarget::Reboot, options, LIMITS).await
}

#[tokio::test(start_paused = true)]
async fn reboot_waits_for_unreachable_bmc_after_power_off() {
    let queries = [
        Some(ObservedPower::On),
        Some(ObservedPower::Off),
        None,
        None,
        None,
        Some(ObservedPower::Off),
        Some(ObservedPower::On),
    ];
    let mut script = ScriptedPowerControl::new(&queries, &[Some(()), None, None, Some(())]);
    reboot(&mut script, UNRESTRICTED).await.unwrap();
    assert_eq!(
        script.commands,
        [PowerPlanCommand::Off, PowerPlanCommand::On, PowerPlanCommand::On, PowerPlanCommand::On]
    );
}

#[tokio::test(start_paused = true)]
async fn reboot_error_is_permanent_once_machine_may_have_started() {
    for (queries, sends, options, fragment) in [
        (
            vec![Some(ObservedPower::On), Some(ObservedPower::Off), None],
            vec![Some(())],
            UNRESTRICTED,
            "was off",
        ),
        (
            vec![Some(ObservedPower::On), Some(ObservedPower::Off), None],
            vec![Some(()), None],
            UNRESTRICTED,
            "was off",
        ),
        (
            vec![Some(ObservedPower::On), None],
            vec![Some(())],
            NEVER_OFF,
            "the BMC accepted the request",
        ),
        (vec![Some(ObservedPower::On), None], vec![None], NEVER_OFF, "not known whether"),
        (vec![Some(ObservedPower::On)], vec![None], NEVER_OFF, "not known whether"),
    ] {
        let mut script = ScriptedPowerControl::new(&queries, &sends);
        let error = reboot(&mut script, options).await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains(fragment), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreachable_bmc_before_start_is_transient() {
    for (queries, sends) in [
        (vec![None], vec![Some(())]),
        (vec![Some(ObservedPower::On)], vec![None]),
        (vec![Some(ObservedPower::On), None], vec![Some(())]),
    ] {
        let error = reboot(&mut ScriptedPowerControl::new(&queries, &sends), UNRESTRICTED)
            .await
            .unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    let mut off = ScriptedPowerControl::new(&[Some(ObservedPower::Off), None], &[Some(())]);
    let error =
        query_and_change_power(&mut off, PowerTarget::On, UNRESTRICTED, LIMITS).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn restart_is_detected_by_reset_time_or_delay() {
    let started = tokio::time::Instant::now();
    let mut quick = ScriptedPowerControl {
        resets: true,
        ..ScriptedPowerControl::new(&[Some(ObservedPower::On)], &[Some(())])
    };
    reboot(&mut quick, NEVER_OFF).await.unwrap();
    assert_eq!(started.elapsed(), Duration::ZERO);
    // A lost reply does not matter if a reset is observed.
    let mut lost = ScriptedPowerControl {
        resets: true,
        ..ScriptedPowerControl::new(&[Some(ObservedPower::On)], &[None])
    };
    reboot(&mut lost, NEVER_OFF).await.unwrap();
    assert_eq!(lost.commands, [PowerPlanCommand::Restart]);
    reboot(&mut ScriptedPowerControl::new(&[Some(ObservedPower::On)], &[Some(())]), NEVER_OFF)
        .await
        .unwrap();
    assert!(started.elapsed() >= RESTART_VISIBLE_AFTER);
}

#[tokio::test(start_paused = true)]
async fn unknown_power_state_is_not_awaited() {
    let started = tokio::time::Instant::now();
    for power_target in PowerTarget::ALL {
        let mut blind = ScriptedPowerControl::new(&[Some(ObservedPower::Unknown)], &[Some(())]);
        query_and_change_power(&mut blind, *power_target, NO_SOFT, LIMITS).await.unwrap();
        assert_eq!(blind.commands.len(), 1, "{power_target}");
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn requested_timeout_applies_to_each_step() {
    let started = tokio::time::Instant::now();
    // Eight polls take about seven seconds.
    let mut queries = vec![Some(ObservedPower::On); 8];
    queries.extend([Some(ObservedPower::Off); 8]);
    queries.push(Some(ObservedPower::On));
    let mut slow = ScriptedPowerControl::new(&queries, &[Some(())]);
    let limits = PowerTimeouts { requested: Some(Duration::from_secs(10)), ..LIMITS };
    query_and_change_power(&mut slow, PowerTarget::Reboot, UNRESTRICTED, limits).await.unwrap();
    assert!(started.elapsed() > Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn timeout_errors_contain_power_and_advice() {
    for (power_target, observed, fragments) in [
        (
            PowerTarget::SoftOff,
            ObservedPower::On,
            ["is on 600 s after the BMC accepted 'It'", "'power off'"],
        ),
        (
            PowerTarget::On,
            ObservedPower::Off,
            ["is off 60 s after the BMC accepted 'It'", "own log"],
        ),
    ] {
        let mut stuck = ScriptedPowerControl::new(&[Some(observed)], &[Some(())]);
        let message = query_and_change_power(&mut stuck, power_target, UNRESTRICTED, LIMITS)
            .await
            .unwrap_err()
            .to_string();
        assert!(fragments.iter().all(|fragment| message.contains(fragment)), "{message}");
    }
}
