// SPDX-License-Identifier: Apache-2.0
//! Takes commands over HTTP, carries them out, and remembers what came of them.

mod extensions;
mod http;
mod images;
mod journal;

pub use extensions::{Refusal, Told, carry_out};
pub use http::{Listener, serve};
pub use journal::{Failed, Journal, Outcome};
