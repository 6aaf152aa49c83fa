// SPDX-License-Identifier: Apache-2.0
//! Every decision Ferrite takes about a machine, and nothing else.
//!
//! All functions here are synchronous and pure: they are given the node, the settings and the time,
//! and they answer. Sockets, SQL and clocks are somebody else's. So the same code decides in
//! production, in tables of tests, and in `explain`, which plays a job through without doing it.
//!
//! The way through the house:
//! - a user asks: [`ask`] checks the request and turns it into [`Work`](node_model::Work) on the node;
//! - the conductor asks what is next: [`settle`] takes every step that needs nothing done, and
//!   answers with the one [`Action`] to carry out, or with what is waited for;
//! - the conductor reports how it went: [`record`];
//! - [`settle`] again, until it answers [`Next::Wait`] or [`Next::Rest`].

mod action;
mod ask;
mod booting;
mod decide;
mod diagram;
mod enter;
mod explain;
mod maintenance;
mod power;
mod record;
mod retry;
mod settings;
mod steps;
mod transitions;
mod warming;

pub use action::{Action, Decision, Failure, Next, Outcome};
pub use ask::{Ask, Refusal, ask, check_maintenance, check_policy, check_verb, event_of};
pub use booting::see_agent;
pub use decide::settle;
pub use diagram::diagram;
pub use enter::{Chore, HistoryLine, Ledger};
pub use explain::{Explanation, Foreseen, Imagined, explain};
pub use maintenance::set_maintenance;
pub use power::{PowerRefusal, SyncVerdict, ask_power, power_sync};
pub use record::{
    agent_ended, fast_track, forget_agent, hear_agent, hear_inspection_data, is_still_going_on,
    record,
};
pub use retry::pause;
pub use settings::Settings;
pub use steps::{
    Offers, Ramdisk, Reserved, StepError, check_requested, merge_deploy_steps, order_steps,
};
pub use transitions::{
    Rest, TRANSITIONS, default_target, delete_allowed, is_unstable, lookup_allowed, next_state,
    power_sync_excluded, reconfigure_allowed, rest, update_allowed,
};
pub use warming::{WARMING, Warming, judge_warming, warming};
