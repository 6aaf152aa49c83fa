// SPDX-License-Identifier: Apache-2.0
//! Plans, and how they are carried out on a BMC that follows a script.

use std::collections::VecDeque;

use super::*;

const FREE: Restarts = Restarts { softly: true, never_off: false };
const NO_SOFT: Restarts = Restarts { softly: false, never_off: false };
const NEVER_OFF: Restarts = Restarts { softly: false, never_off: true };

#[test]
fn plans() {
    use PowerTarget as T;
    for (wanted, seen, restarts, sent) in [
        (T::On, Seen::On, FREE, "nothing"),
        (T::On, Seen::Off, FREE, "On"),
        (T::On, Seen::GoingOn, FREE, "until On"),
        (T::On, Seen::GoingOff, FREE, "until Off, On"),
        (T::Off, Seen::Off, FREE, "nothing"),
        (T::Off, Seen::Unknown, FREE, "Off"),
        (T::SoftOff, Seen::On, FREE, "ShutDown"),
        (T::SoftOff, Seen::GoingOff, FREE, "until Off"),
        (T::Reboot, Seen::On, FREE, "Off, On"),
        (T::Reboot, Seen::Off, FREE, "On"),
        (T::Reboot, Seen::GoingOff, FREE, "until Off, On"),
        (T::Reboot, Seen::Unknown, FREE, "Restart"),
        (T::Reboot, Seen::On, NEVER_OFF, "Restart"),
        (T::Reboot, Seen::Off, NEVER_OFF, "On"),
        (T::SoftReboot, Seen::On, FREE, "RestartSoftly"),
        (T::SoftReboot, Seen::On, NO_SOFT, "ShutDown, On"),
        (T::SoftReboot, Seen::Unknown, NO_SOFT, "RestartSoftly"),
        (T::SoftReboot, Seen::On, NEVER_OFF, "RestartSoftly"),
        (T::SoftReboot, Seen::Off, NO_SOFT, "On"),
    ] {
        let legs = plan(wanted, seen, restarts);
        let words: Vec<_> = legs
            .iter()
            .map(|leg| match leg.send {
                Some(purpose) => format!("{purpose:?}"),
                None => format!("until {:?}", leg.until),
            })
            .collect();
        let words = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
        assert_eq!(words, sent, "{wanted} {seen:?} {restarts:?}");
    }
}

/// What the BMC says to one request; none is silence.
type Said<T> = Option<T>;

/// A BMC that follows a script, and goes on with its last line.
#[derive(Default)]
struct Script {
    looks: VecDeque<Said<Seen>>,
    sends: VecDeque<Said<()>>,
    resets: bool,
    asked: Vec<Purpose>,
}

impl Script {
    fn new(looks: &[Said<Seen>], sends: &[Said<()>]) -> Self {
        let (looks, sends) = (looks.iter().copied().collect(), sends.iter().copied().collect());
        Self { looks, sends, ..Self::default() }
    }
}

fn next<T: Copy>(lines: &mut VecDeque<Said<T>>) -> Result<T, Error> {
    let said = if lines.len() > 1 { lines.pop_front() } else { lines.front().copied() };
    said.flatten().ok_or_else(|| Error::Unreachable {
        address: "10.0.0.1".to_owned(),
        what: "reboot the machine".to_owned(),
        source: None,
    })
}

#[async_trait]
impl Switch for Script {
    async fn look(&mut self) -> Result<Seen, Error> {
        next(&mut self.looks)
    }

    async fn send(
        &mut self,
        purpose: Purpose,
        _patience: Duration,
    ) -> Result<Option<&'static str>, Error> {
        self.asked.push(purpose);
        next(&mut self.sends).map(|()| Some("It"))
    }

    async fn before_start(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn shows_a_reset(&self) -> bool {
        self.resets
    }
}

const LIMITS: Limits =
    Limits { asked: None, change: Duration::from_secs(60), soft: Duration::from_secs(600) };

/// Looks once, and goes on from there.
async fn go(
    script: &mut Script,
    wanted: PowerTarget,
    restarts: Restarts,
    limits: Limits,
) -> Result<(), Error> {
    let first = script.look().await?;
    bring(script, first, wanted, restarts, limits).await
}

async fn reboot(script: &mut Script, restarts: Restarts) -> Result<(), Error> {
    go(script, PowerTarget::Reboot, restarts, LIMITS).await
}

#[tokio::test(start_paused = true)]
async fn a_reboot_waits_for_a_bmc_that_is_silent_for_a_while_after_off() {
    let looks =
        [Some(Seen::On), Some(Seen::Off), None, None, None, Some(Seen::Off), Some(Seen::On)];
    let mut script = Script::new(&looks, &[Some(()), None, None, Some(())]);
    reboot(&mut script, FREE).await.unwrap();
    assert_eq!(script.asked, [Purpose::Off, Purpose::On, Purpose::On, Purpose::On]);
}

#[tokio::test(start_paused = true)]
async fn a_reboot_whose_machine_may_have_started_is_not_one_to_repeat() {
    for (looks, sends, restarts, words) in [
        (vec![Some(Seen::On), Some(Seen::Off), None], vec![Some(())], FREE, "was off"),
        (vec![Some(Seen::On), Some(Seen::Off), None], vec![Some(()), None], FREE, "was off"),
        (vec![Some(Seen::On), None], vec![Some(())], NEVER_OFF, "the BMC took the request"),
        (vec![Some(Seen::On), None], vec![None], NEVER_OFF, "not known whether"),
        (vec![Some(Seen::On)], vec![None], NEVER_OFF, "not known whether"),
    ] {
        let mut script = Script::new(&looks, &sends);
        let error = reboot(&mut script, restarts).await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_before_that_may_be_answered_by_trying_again() {
    for (looks, sends) in [
        (vec![None], vec![Some(())]),
        (vec![Some(Seen::On)], vec![None]),
        (vec![Some(Seen::On), None], vec![Some(())]),
    ] {
        let error = reboot(&mut Script::new(&looks, &sends), FREE).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    let mut off = Script::new(&[Some(Seen::Off), None], &[Some(())]);
    let error = go(&mut off, PowerTarget::On, FREE, LIMITS).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_seen_by_its_time_or_given_time() {
    let began = tokio::time::Instant::now();
    let mut quick = Script { resets: true, ..Script::new(&[Some(Seen::On)], &[Some(())]) };
    reboot(&mut quick, NEVER_OFF).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    // An answer that was lost is made up for by what is seen.
    let mut lost = Script { resets: true, ..Script::new(&[Some(Seen::On)], &[None]) };
    reboot(&mut lost, NEVER_OFF).await.unwrap();
    assert_eq!(lost.asked, [Purpose::Restart]);
    reboot(&mut Script::new(&[Some(Seen::On)], &[Some(())]), NEVER_OFF).await.unwrap();
    assert!(began.elapsed() >= RESTART_SHOWS_AFTER);
}

#[tokio::test(start_paused = true)]
async fn what_is_never_shown_is_not_awaited() {
    let began = tokio::time::Instant::now();
    for wanted in PowerTarget::ALL {
        let mut blind = Script::new(&[Some(Seen::Unknown)], &[Some(())]);
        go(&mut blind, *wanted, NO_SOFT, LIMITS).await.unwrap();
        assert_eq!(blind.asked.len(), 1, "{wanted}");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_callers_limit_counts_for_each_leg() {
    let began = tokio::time::Instant::now();
    // Eight looks take about seven seconds.
    let mut looks = vec![Some(Seen::On); 8];
    looks.extend([Some(Seen::Off); 8]);
    looks.push(Some(Seen::On));
    let mut slow = Script::new(&looks, &[Some(())]);
    let limits = Limits { asked: Some(Duration::from_secs(10)), ..LIMITS };
    go(&mut slow, PowerTarget::Reboot, FREE, limits).await.unwrap();
    assert!(began.elapsed() > Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_said_when_it_takes_too_long() {
    for (wanted, seen, words) in [
        (PowerTarget::SoftOff, Seen::On, ["is on 600 s after the BMC took 'It'", "'power off'"]),
        (PowerTarget::On, Seen::Off, ["is off 60 s after the BMC took 'It'", "own log"]),
    ] {
        let mut stuck = Script::new(&[Some(seen)], &[Some(())]);
        let said = go(&mut stuck, wanted, FREE, LIMITS).await.unwrap_err().to_string();
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
    }
}
