// SPDX-License-Identifier: Apache-2.0
//! Starts processes that are killed when the test program ends, however it ends.
//!
//! The kernel sends the death signal when the *thread* that started the process ends, so all
//! processes are started by one thread that lives as long as the program. It forgets the signal when the
//! process changes its user or gains capabilities, so containers, which do, are inside a PID namespace whose
//! first process does not: they end with it.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
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

/// Executes a command, unless the test program ended before the death signal was set.
const EXECUTE_IF_PARENT_LIVES: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;
/// Runs a command as the child of the first process in a PID namespace, and ends as the command does.
const RUN_AS_CHILD: &str = r#""$@"; exit $?"#;

/// A command that is killed when the test program ends.
pub(crate) fn dies_with_tests(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "sh", "-c", EXECUTE_IF_PARENT_LIVES]);
    command.arg(std::process::id().to_string()).arg(program);
    command.stdin(std::process::Stdio::null());
    command
}

/// Arguments of `unshare` that run a shell script as the first process of a container, which
/// [`first_process`] returns.
pub(crate) fn container_arguments(script: &Path) -> Vec<&OsStr> {
    let outer = ["--pid", "--fork", "--kill-child", "--", "sh", "-c", RUN_AS_CHILD, "sh"];
    let inner = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--", "sh"];
    let words = outer.into_iter().chain(inner).map(OsStr::new);
    words.chain([script.as_os_str()]).collect()
}

/// The first process of a container whose outermost process is `container`; `None` if it has not started or
/// has ended.
pub(crate) fn first_process(container: Pid) -> Option<Pid> {
    let outer_first = only_child(container)?;
    let inner_unshare = only_child(outer_first)?;
    only_child(inner_unshare)
}

fn only_child(process: Pid) -> Option<Pid> {
    let pid = process.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use super::*;

    /// Set for the process that [`containers_end_with_a_killed_test_program`] kills: the script of its
    /// container.
    const SCRIPT_VARIABLE: &str = "FERRITE_TEST_CONTAINER_SCRIPT";
    const TIMEOUT: Duration = Duration::from_secs(120);
    const POLL_INTERVAL: Duration = Duration::from_millis(10);
    const PID_LINE: &str = "first process ";

    /// Waits for a value.
    fn wait_for<T>(what: &str, mut value: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(value) = value() {
                return value;
            }
            assert!(Instant::now() < deadline, "{what} did not happen");
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn program_name(process: &str) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        Some(name.trim().to_owned())
    }

    /// Runs a container until it is killed. Does nothing unless the other test started it.
    #[test]
    fn run_a_container_for_the_other_test() {
        let Some(script) = std::env::var_os(SCRIPT_VARIABLE) else { return };
        let mut command = dies_with_tests("unshare");
        command.args(container_arguments(Path::new(&script)));
        let container = ChildProcess::start(command).unwrap();
        let first = wait_for("the start of the container", || {
            let first = first_process(container.pid())?.as_raw_nonzero().to_string();
            (program_name(&first)? == "sleep").then_some(first)
        });
        println!("\n{PID_LINE}{first}");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(container.wait());
    }

    /// The container changes its user, so the kernel does not kill it with its parent.
    #[test]
    fn containers_end_with_a_killed_test_program() {
        let mut probe = Command::new("unshare");
        if !probe.args(["--mount", "--pid", "--fork", "true"]).status().is_ok_and(|it| it.success())
        {
            println!("skipped: this user may not create namespaces");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let user = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps -all --";
        std::fs::write(&script, format!("exec {user} sleep infinity\n")).unwrap();
        let name = "process::tests::run_a_container_for_the_other_test";
        let mut tests = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(SCRIPT_VARIABLE, &script)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(tests.stdout.take().unwrap()).lines();
        let first = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(PID_LINE).map(str::to_owned))
            .expect("the container runs");
        assert_eq!(program_name(&first).as_deref(), Some("sleep"));
        tests.kill().unwrap();
        tests.wait().unwrap();
        // Another process may get its number.
        wait_for("the end of the container", || {
            (program_name(&first).as_deref() != Some("sleep")).then_some(())
        });
    }
}
