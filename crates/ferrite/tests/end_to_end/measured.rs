// SPDX-License-Identifier: Apache-2.0
//! Tests that measure times. They run alone, after all other tests.

mod overload;
mod slow_bmcs;
mod stop_time;
mod takeover;
