// SPDX-License-Identifier: Apache-2.0
//! Leases: who works on a node, until when, and how a process that has lost its lease without
//! noticing is kept from writing.
//!
//! Every claim gives a higher token than all claims of that node before. A fenced save names its
//! token, and is refused once another claim has been made: a process that slept through the end of
//! its lease cannot undo what its successor did.

use std::time::Duration;

use node_model::{Node, NodeId};
use uuid::Uuid;

use crate::error::Error;
use crate::reader::field;
use crate::record::Resource as _;
use crate::value::{Field, Param};
use crate::writer::Writer;

/// A process that works on nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its name, which stays the same when it is started again. Shown as the node's reservation.
    pub hostname: String,
    /// This run of it.
    pub run: Uuid,
}

/// The right to work on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The node.
    pub node: NodeId,
    /// Higher than the token of every claim before.
    pub token: i64,
}

impl Writer<'_> {
    /// Claims a node for `ttl`. None if the node does not exist or another owner holds it and its
    /// time is not over. The same run of the same owner may claim again; its older lease is lost.
    pub fn claim(
        &mut self,
        node: NodeId,
        owner: &Owner,
        ttl: Duration,
    ) -> Result<Option<Lease>, Error> {
        let now = self.now();
        let claimed = self.session.execute(
            "UPDATE nodes SET reservation = ?, lease_run = ?, lease_token = lease_token + 1,
             lease_until = ? WHERE uuid = ? AND
             (reservation IS NULL OR lease_until <= ? OR (reservation = ? AND lease_run = ?))",
            &[
                owner.hostname.bind(),
                owner.run.bind(),
                now.plus(ttl).bind(),
                node.bind(),
                now.bind(),
                owner.hostname.bind(),
                owner.run.bind(),
            ],
        )?;
        if claimed == 0 {
            return Ok(None);
        }
        let mut lease = None;
        self.session.query(
            "SELECT lease_token FROM nodes WHERE uuid = ?",
            &[node.bind()],
            &mut |row| {
                lease = Some(Lease { node, token: field(row, 0, "nodes", "lease_token")? });
                Ok(())
            },
        )?;
        Ok(lease)
    }

    /// Extends a lease to `ttl` from now; false if it has been lost.
    pub fn renew(&mut self, lease: &Lease, ttl: Duration) -> Result<bool, Error> {
        let until = self.now().plus(ttl);
        let found = self.session.execute(
            "UPDATE nodes SET lease_until = ?
             WHERE uuid = ? AND lease_token = ? AND reservation IS NOT NULL",
            &[until.bind(), lease.node.bind(), Param::Int(lease.token)],
        )?;
        Ok(found > 0)
    }

    /// Gives a node free; false if the lease had been lost already.
    pub fn release(&mut self, lease: &Lease) -> Result<bool, Error> {
        let found = self.session.execute(
            "UPDATE nodes SET reservation = NULL, lease_run = NULL, lease_until = NULL
             WHERE uuid = ? AND lease_token = ? AND reservation IS NOT NULL",
            &[lease.node.bind(), Param::Int(lease.token)],
        )?;
        Ok(found > 0)
    }

    /// Saves a node on the strength of a lease. Refused if the lease has been lost or given back.
    pub fn save_fenced(&mut self, node: &mut Node, lease: &Lease) -> Result<(), Error> {
        node.touch(self.now());
        let condition = " AND lease_token = ? AND reservation IS NOT NULL";
        let sealed = node.sealed(&self.shared.vault);
        if self.update(sealed.as_ref().unwrap_or(node), condition, &[Param::Int(lease.token)])? {
            Ok(())
        } else {
            Err(Error::LeaseLost)
        }
    }

    /// Frees the nodes that earlier runs of a process left claimed: a process that starts again
    /// need not wait for its own leases to end. Gives the nodes.
    pub fn break_leases_of(&mut self, hostname: &str, not_run: Uuid) -> Result<Vec<NodeId>, Error> {
        const OF_EARLIER_RUNS: &str = "reservation = ? AND (lease_run IS NULL OR lease_run <> ?)";
        let params = [Param::Text(hostname), Param::id(not_run)];
        let lock = if self.locking { " FOR UPDATE" } else { "" };
        let select = format!("SELECT uuid FROM nodes WHERE {OF_EARLIER_RUNS} ORDER BY id{lock}");
        let nodes = self.column(&select, &params, "nodes")?;
        if !nodes.is_empty() {
            // The token goes up, so that the earlier run is fenced off if it is not dead after all.
            let update = format!(
                "UPDATE nodes SET reservation = NULL, lease_run = NULL, lease_until = NULL,
                 lease_token = lease_token + 1 WHERE {OF_EARLIER_RUNS}"
            );
            self.session.execute(&update, &params)?;
        }
        Ok(nodes)
    }
}
