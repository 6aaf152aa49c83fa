// SPDX-License-Identifier: Apache-2.0
//! The ramdisk agent calls home: lookup, which hands out the token once, and heartbeat.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lifecycle::{Ledger, Rest, fast_track, hear_agent, lookup_allowed, rest, see_agent};
use node_model::{
    Actor, BootPurpose, BootWay, Happening, Mac, Node, NodeId, ProvisionState, Secret,
};
use store::{Reader, Writer};

use crate::ledger::write_ledger;
use crate::provision::get;
use crate::sight::alive_conductors;
use crate::{Conductor, Error};

/// How much of an installer's words the timeline tells, in characters. All of them are on the node.
const LONGEST_TOLD: usize = 500;

/// Who an agent says it is.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The node it was told it is.
    pub node: Option<NodeId>,
    /// Its network cards.
    pub macs: Vec<Mac>,
    /// The request, for the journal.
    pub request_id: String,
}

/// What an agent is told.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The node it is.
    pub node: Node,
    /// Its token, the first time; afterwards it is only told that there is one.
    pub token: Option<Secret<String>>,
    /// Seconds within which it has to call again.
    pub heartbeat_timeout: u64,
    /// Whether the BMC is known already, so that it need not look for it.
    pub skip_bmc_detect: bool,
}

/// What an agent says when it calls.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// Where it listens.
    pub callback_url: String,
    /// Its token.
    pub token: Secret<String>,
    /// Its version.
    pub version: Option<String>,
    /// Its certificate.
    pub verify_ca: Option<String>,
    /// `start`, `end` or `error`, from installers that report that way.
    pub status: Option<String>,
    /// The words that came with the status.
    pub status_message: Option<String>,
    /// The request, for the journal.
    pub request_id: String,
}

impl Conductor {
    /// Finds the node an agent runs on. None if there is none, or if no agent is expected there:
    /// the agent is told the same in both cases.
    pub async fn lookup(&self, lookup: Lookup) -> Result<Option<AgentConfig>, Error> {
        let conductor = self.clone();
        let asked = lookup.clone();
        let found = self.store.read(move |reader| find_node(&conductor, reader, &asked)).await?;
        let Some((node, token)) = found else { return Ok(None) };
        let is_first = see_agent(&mut node.clone(), &mut Ledger::default());
        match token {
            TokenGiven::ByAnother => return Err(just_given(&node)),
            TokenGiven::Yes if !is_first => return Ok(Some(self.config(node, None))),
            TokenGiven::Yes | TokenGiven::No => {}
        }
        let (id, conductor) = (node.id, self.clone());
        self.store.write(move |tx| answer(&conductor, tx, id, &lookup)).await.map(Some)
    }

    fn config(&self, node: Node, token: Option<Secret<String>>) -> AgentConfig {
        let management = node.interfaces.get(node_model::InterfaceKind::Management);
        let skip_bmc_detect = matches!(management, Some("redfish" | "idrac-redfish"));
        let heartbeat_timeout = self.settings.ramdisk_heartbeat_timeout;
        AgentConfig { node, token, heartbeat_timeout, skip_bmc_detect }
    }

    /// Takes a heartbeat.
    pub async fn heartbeat(&self, id: NodeId, heartbeat: Heartbeat) -> Result<(), Error> {
        let conductor = self.clone();
        self.store.write(move |tx| hear(&conductor, tx, id, &heartbeat)).await
    }
}

/// Whether the agent that runs now was given its token.
enum TokenGiven {
    /// It was not, or the answer was lost.
    No,
    /// It was.
    Yes,
    /// Another of our processes gave it a moment ago, and nothing was heard since.
    ByAnother,
}

/// The node the agent runs on, and whether the agent has its token.
fn find_node(
    conductor: &Conductor,
    reader: &mut Reader<'_>,
    lookup: &Lookup,
) -> Result<Option<(Node, TokenGiven)>, Error> {
    let id = match lookup.node {
        Some(id) => id,
        None => match reader.nodes_by_macs(&lookup.macs)?.as_slice() {
            [one] => *one,
            _ => return Ok(None),
        },
    };
    let Some(node) = reader.get(id)? else { return Ok(None) };
    let expected = !conductor.settings.restrict_lookup
        || lookup_allowed(node.provision_state, fast_track(&node, &conductor.rules));
    if !expected {
        return Ok(None);
    }
    let token = token_given(conductor, reader, &node)?;
    Ok(Some((node, token)))
}

/// Whether the agent that runs now was given its token. If a process that is gone gave it, the answer
/// may have been lost with it; that it was not is known when the agent has called. A token that came
/// with a CD is known only to what was booted from it: if the machine boots by another way now, its
/// agent has none. An installer has it from its kickstart, by whatever way it boots.
fn token_given(
    conductor: &Conductor,
    reader: &mut Reader<'_>,
    node: &Node,
) -> Result<TokenGiven, store::Error> {
    let agent = &node.agent;
    if !agent.has_token {
        return Ok(TokenGiven::No);
    }
    if agent.token_pregenerated {
        let plan = reader.boot_plan(node.id)?;
        let is_known = plan.is_none_or(|plan| {
            plan.way == BootWay::VirtualMedia || plan.purpose == BootPurpose::Installer
        });
        return Ok(if is_known { TokenGiven::Yes } else { TokenGiven::No });
    }
    match agent.token_from {
        Some(run) if run != conductor.owner.run && agent.url.is_none() => {
            let alive = alive_conductors(reader, &conductor.settings)?;
            let lives = alive.iter().any(|process| process.run == Some(run));
            Ok(if lives { TokenGiven::ByAnother } else { TokenGiven::No })
        }
        Some(_) | None => Ok(TokenGiven::Yes),
    }
}

/// The answer to whoever asks while it is not known whether a token arrived. Agents ask again after
/// a while: by then their first call has come, or the process that gave it is known to be gone. To
/// say that the token was given away would make them give up.
fn just_given(node: &Node) -> Error {
    Error::Conflict(format!(
        "Another process has just given the agent of node {} its token; ask again in a while.",
        node.id
    ))
}

/// Notes that the agent was seen, and gives it its token if it has none.
fn answer(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    id: NodeId,
    lookup: &Lookup,
) -> Result<AgentConfig, Error> {
    let mut node = get(tx, id)?;
    let mut ledger = Ledger::default();
    let is_first = see_agent(&mut node, &mut ledger);
    let given = match token_given(conductor, tx, &node)? {
        TokenGiven::ByAnother => return Err(just_given(&node)),
        TokenGiven::Yes => true,
        TokenGiven::No => false,
    };
    let token = if given {
        if !is_first {
            return Ok(conductor.config(node, None));
        }
        None
    } else {
        let token = Secret::new(new_token()?);
        let mut secrets = tx.reveal(&node)?;
        secrets.agent_token = Some(token.clone());
        tx.seal_node(&mut node, secrets)?;
        node.agent.has_token = true;
        node.agent.token_from = Some(conductor.owner.run);
        node.agent.token_pregenerated = false;
        Some(token)
    };
    ledger.happened.push(Happening::Heard { what: "lookup".to_owned() });
    let actor = Actor::Agent { request_id: lookup.request_id.clone() };
    write_ledger(tx, &mut node, ledger, &actor, conductor.hostname())?;
    tx.save(&mut node)?;
    Ok(conductor.config(node, token))
}

fn new_token() -> Result<String, Error> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)
        .map_err(|_| Error::Agent("this system has no source of random numbers".to_owned()))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn hear(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    id: NodeId,
    heartbeat: &Heartbeat,
) -> Result<(), Error> {
    let mut node = get(tx, id)?;
    check(conductor, tx, &node, heartbeat)?;
    let now = tx.now();
    if !is_heard(node.provision_state) && !fast_track(&node, &conductor.rules) {
        tracing::debug!(node = %id, state = %node.provision_state, "heartbeat nobody waits for");
        return Ok(());
    }
    let first = node.agent.url.is_none();
    // An installer calls and cannot be called.
    node.agent.url = Some(heartbeat.callback_url.clone()).filter(|url| !url.is_empty());
    node.agent.version.clone_from(&heartbeat.version);
    node.agent.verify_ca.clone_from(&heartbeat.verify_ca);
    node.agent.status.clone_from(&heartbeat.status);
    node.agent.status_message.clone_from(&heartbeat.status_message);
    node.agent.last_heartbeat = Some(now);
    let mut ledger = Ledger::default();
    let is_first_of_boot = see_agent(&mut node, &mut ledger);
    let moves = hear_agent(&mut node, now);
    if !first && !moves && !is_first_of_boot {
        // The most frequent write there is: only what changes with every call.
        tx.touch_agent(id, &node.agent, node.provision_updated_at)?;
        return Ok(());
    }
    ledger.happened.push(Happening::Heard { what: heard(heartbeat) });
    let actor = Actor::Agent { request_id: heartbeat.request_id.clone() };
    write_ledger(tx, &mut node, ledger, &actor, conductor.hostname())?;
    tx.save(&mut node)?;
    if moves {
        tx.wake(id);
    }
    Ok(())
}

/// A call in words, with what an installer says about itself.
fn heard(heartbeat: &Heartbeat) -> String {
    let mut words = "heartbeat".to_owned();
    for said in [&heartbeat.status, &heartbeat.status_message].into_iter().flatten() {
        words.push_str(": ");
        words.extend(said.chars().take(LONGEST_TOLD));
    }
    words
}

/// Whether an agent on a machine in this state is part of a job.
fn is_heard(state: ProvisionState) -> bool {
    use ProvisionState::{Cleaning, Deploying, InspectWait, Rescuing, Servicing};
    match rest(state) {
        Rest::Waiting => state != InspectWait,
        Rest::Held => true,
        Rest::Working => matches!(state, Deploying | Cleaning | Rescuing | Servicing),
        Rest::Stable | Rest::Failed => false,
    }
}

fn check(
    conductor: &Conductor,
    tx: &mut Writer<'_>,
    node: &Node,
    heartbeat: &Heartbeat,
) -> Result<(), Error> {
    let url = &heartbeat.callback_url;
    too_long(heartbeat)?;
    if node.agent.url.as_ref().is_some_and(|known| known != url) {
        return Err(Error::Agent(format!(
            "Detected change in ramdisk provided \"callback_url\" for node {}; the agent that \
             called first is the one that is believed until the machine is switched off",
            node.id
        )));
    }
    let known = tx.reveal(node)?.agent_token;
    let matches = known
        .is_some_and(|known| same(known.reveal().as_bytes(), heartbeat.token.reveal().as_bytes()));
    if !matches {
        return Err(Error::Agent("Invalid or missing agent token received.".to_owned()));
    }
    if heartbeat.version.is_none() && heartbeat.status.is_none() {
        return Err(Error::Agent("agent_version is missing".to_owned()));
    }
    if conductor.settings.require_agent_tls && !url.is_empty() && !url.starts_with("https://") {
        return Err(Error::Agent(format!(
            "the agent of node {} listens at {url} without TLS; it must use https, or \
             require_agent_tls must be switched off",
            node.id
        )));
    }
    let changed = node.agent.url.is_some()
        && node.agent.verify_ca.is_some()
        && node.agent.verify_ca != heartbeat.verify_ca;
    if changed {
        return Err(Error::Agent(format!(
            "the agent of node {} presents another certificate than before",
            node.id
        )));
    }
    Ok(())
}

/// What an agent says about itself is kept with the node, and every list of nodes carries it.
fn too_long(heartbeat: &Heartbeat) -> Result<(), Error> {
    let given = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    for (name, length, most) in [
        ("callback_url", heartbeat.callback_url.len(), 2 << 10),
        ("agent_version", given(&heartbeat.version), 255),
        ("agent_verify_ca", given(&heartbeat.verify_ca), 64 << 10),
        ("agent_status", given(&heartbeat.status), 255),
        ("agent_status_message", given(&heartbeat.status_message), 16 << 10),
    ] {
        if length > most {
            return Err(Error::Agent(format!("{name} is longer than {most} bytes")));
        }
    }
    Ok(())
}

/// Compares without telling by its duration how much was right.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0_u8, |differences, (a, b)| differences | (a ^ b));
    one.len() == other.len() && differences == 0
}
