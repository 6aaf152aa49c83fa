// SPDX-License-Identifier: Apache-2.0
//! Starts processes that are killed when the test program ends, however it ends.
//!
//! The kernel sends the death signal when the *thread* that started the process ends, so all
//! processes are started by one thread that lives as long as the program.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{OnceLock, mpsc};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

/// The threads only wait.
const STACK_SIZE: usize = 64 << 10;

/// A started process.
#[derive(Clone, Debug)]
pub(crate) struct ChildProcess {
    pid: Pid,
    exit: watch::Receiver<Option<ExitStatus>>,
}

/// A command that is killed when the test program ends.
pub(crate) fn dies_with_tests(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command.stdin(std::process::Stdio::null());
    command
}

impl ChildProcess {
    /// Starts the command in the launcher thread.
    pub(crate) fn start(command: Command) -> io::Result<Self> {
        let mut child = spawn(command)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        let (sender, exit) = watch::channel(None);
        thread::Builder::new().stack_size(STACK_SIZE).spawn(move || {
            // An error means that another thread waited for the process.
            sender.send_replace(child.wait().ok());
        })?;
        Ok(Self { pid, exit })
    }

    /// The id of the process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// How it ended; `None` while it runs.
    pub(crate) fn exit_status(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Waits until it ends.
    pub(crate) async fn wait(&self) -> Option<ExitStatus> {
        let mut exit = self.exit.clone();
        // An error means that the waiting thread is gone, and with it the process.
        exit.wait_for(Option::is_some).await.map_or(None, |status| *status)
    }

    /// Kills it. Nothing happens if it has ended.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends a signal. Nothing happens if it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.exit_status().is_none() {
            let _already_gone = kill_process(self.pid, signal);
        }
    }
}

type LauncherJob = Box<dyn FnOnce() + Send>;

/// Starts the command in the launcher thread.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static LAUNCHER: OnceLock<mpsc::Sender<LauncherJob>> = OnceLock::new();
    let launcher = LAUNCHER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<LauncherJob>();
        thread::spawn(move || jobs.into_iter().for_each(|job| job()));
        sender
    });
    let (reply, result) = mpsc::channel();
    let job = Box::new(move || {
        let _receiver_waits = reply.send(command.spawn());
    });
    launcher.send(job).map_err(|_| io::Error::other("the launcher thread is gone"))?;
    result.recv().map_err(|_| io::Error::other("the launcher thread is gone"))?
}
