// SPDX-License-Identifier: Apache-2.0
//! How the threads of the store wait: in real time, or in the time of a simulation.
//!
//! In a simulation, a thread runs only while the runtime that started it is blocked, and the runtime
//! continues only when the thread ends or sleeps. So exactly one of them runs at any time, and the order
//! is that of the simulated time.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;

/// What a simulated thread does when it gives control back.
enum ThreadPause<T> {
    Sleeps(Duration),
    Ended(T),
}

/// Gives control back to the runtime for a time.
type SleepFn = Box<dyn Fn(Duration)>;

/// The reason of the unwinding of a thread whose process has ended.
struct ProcessEnded;

thread_local! {
    static SIMULATED_SLEEP: RefCell<Option<SleepFn>> = const { RefCell::new(None) };
}

/// Whether this thread belongs to a simulation.
pub(crate) fn is_simulated() -> bool {
    SIMULATED_SLEEP.with_borrow(Option::is_some)
}

/// Sleeps for `time`.
pub(crate) fn sleep(time: Duration) {
    let is_done = SIMULATED_SLEEP.with_borrow(|sleep| sleep.as_ref().map(|sleep| sleep(time)));
    if is_done.is_none() {
        std::thread::sleep(time);
    }
}

/// Runs `work` on a thread that uses the time of the current runtime. If the future is dropped while the
/// thread sleeps, the thread ends.
pub(crate) async fn run_simulated<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let mut thread = SimulatedThread::start(work);
    loop {
        match thread.pauses.recv() {
            Ok(ThreadPause::Sleeps(time)) => {
                tokio::time::sleep(time).await;
                thread.resume();
            }
            Ok(ThreadPause::Ended(result)) => return result,
            // It panicked.
            Err(_) => std::future::pending().await,
        }
    }
}

struct SimulatedThread<T> {
    pauses: Receiver<ThreadPause<T>>,
    resumes: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> SimulatedThread<T> {
    fn start(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let runtime = Handle::current();
        let (pause, pauses) = channel();
        let (resumes, resumed) = channel::<()>();
        let run = move || {
            let _context = runtime.enter();
            let sleeps = pause.clone();
            let sleep: SleepFn = Box::new(move |time| {
                if sleeps.send(ThreadPause::Sleeps(time)).is_err() || resumed.recv().is_err() {
                    resume_unwind(Box::new(ProcessEnded));
                }
            });
            SIMULATED_SLEEP.set(Some(sleep));
            // A panic was reported by the panic hook.
            if let Ok(result) = catch_unwind(AssertUnwindSafe(work)) {
                let _ = pause.send(ThreadPause::Ended(result));
            }
        };
        let thread = std::thread::Builder::new()
            .name("store-simulated".to_owned())
            .spawn(run)
            .expect("the process may start a few threads");
        Self { pauses, resumes: Some(resumes), thread: Some(thread) }
    }

    fn resume(&mut self) {
        if let Some(resumes) = &self.resumes {
            // Fails only if the thread panicked.
            let _ = resumes.send(());
        }
    }
}

impl<T> Drop for SimulatedThread<T> {
    fn drop(&mut self) {
        drop(self.resumes.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
