// SPDX-License-Identifier: Apache-2.0
//! Leases: which process works on a node, with a fencing token.
//!
//! Each claim gets a higher token than all earlier claims of the node. A fenced save includes the
//! token and fails after a later claim, so a process that missed the end of its session cannot
//! overwrite its successor's work.

use std::time::Duration;

use node_model::{Node, NodeId};
use uuid::Uuid;

use crate::error::StoreError;
use crate::reader::decode_field;
use crate::record::StoredResource as _;
use crate::value::{ColumnType, SqlParam};
use crate::writer::StoreWriter;

/// A process that works on nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseOwner {
    /// Host name, stable across restarts. Shown as the node's reservation.
    pub hostname: String,
    /// Id of this run of the process.
    pub run: Uuid,
}

/// The exclusive right of a process to work on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeLease {
    /// The node.
    pub node: NodeId,
    /// Higher than the token of every earlier claim.
    pub token: i64,
}

impl StoreWriter<'_> {
    /// Claims a node. Returns `None` if the node does not exist or another owner holds its lease. The same
    /// run of the same owner may claim again, which invalidates its older lease.
    ///
    /// A lease ends with the session of its owner. Only that of an owner without a session, for example a
    /// process of an earlier version, ends after `ttl`.
    pub fn claim(
        &mut self,
        node: NodeId,
        owner: &LeaseOwner,
        ttl: Duration,
    ) -> Result<Option<NodeLease>, StoreError> {
        let is_free = "(reservation IS NULL OR (reservation = ? AND lease_run = ?))";
        let free_params = [owner.hostname.bind(), owner.run.bind()];
        if self.claim_if(node, owner, ttl, is_free, &free_params)? {
            return self.claimed(node);
        }
        let now = self.now();
        let mut expired = None;
        self.session.query(
            "SELECT reservation, lease_run, lease_token FROM nodes
             WHERE uuid = ? AND reservation IS NOT NULL AND lease_until <= ?",
            &[node.bind(), now.bind()],
            &mut |row| {
                let hostname: String = decode_field(row, 0, "nodes", "reservation")?;
                let run: Option<Uuid> = decode_field(row, 1, "nodes", "lease_run")?;
                let token: i64 = decode_field(row, 2, "nodes", "lease_token")?;
                expired = Some((hostname, run, token));
                Ok(())
            },
        )?;
        let Some((hostname, run, token)) = expired else { return Ok(None) };
        if let Some(run) = run
            && self.has_session(&hostname, run)?
        {
            return Ok(None);
        }
        let params = [SqlParam::Int(token)];
        if self.claim_if(node, owner, ttl, "lease_token = ?", &params)? {
            return self.claimed(node);
        }
        Ok(None)
    }

    /// Claims a node that satisfies `condition`. Returns whether it did.
    fn claim_if(
        &mut self,
        node: NodeId,
        owner: &LeaseOwner,
        ttl: Duration,
        condition: &str,
        condition_params: &[SqlParam<'_>],
    ) -> Result<bool, StoreError> {
        let until = self.now().plus(ttl);
        let sql = format!(
            "UPDATE nodes SET reservation = ?, lease_run = ?, lease_token = lease_token + 1,
             lease_until = ? WHERE uuid = ? AND {condition}"
        );
        let mut params = vec![owner.hostname.bind(), owner.run.bind(), until.bind(), node.bind()];
        params.extend_from_slice(condition_params);
        Ok(self.session.execute(&sql, &params)? > 0)
    }

    /// The lease of a node that was just claimed.
    fn claimed(&mut self, node: NodeId) -> Result<Option<NodeLease>, StoreError> {
        let mut lease = None;
        self.session.query(
            "SELECT lease_token FROM nodes WHERE uuid = ?",
            &[node.bind()],
            &mut |row| {
                lease =
                    Some(NodeLease { node, token: decode_field(row, 0, "nodes", "lease_token")? });
                Ok(())
            },
        )?;
        Ok(lease)
    }

    /// Extends a lease to `ttl` from now, for processes of earlier versions, which respect only this
    /// time. Returns false if it was lost.
    pub fn renew(&mut self, lease: &NodeLease, ttl: Duration) -> Result<bool, StoreError> {
        let until = self.now().plus(ttl);
        let found = self.session.execute(
            "UPDATE nodes SET lease_until = ?
             WHERE uuid = ? AND lease_token = ? AND reservation IS NOT NULL",
            &[until.bind(), lease.node.bind(), SqlParam::Int(lease.token)],
        )?;
        Ok(found > 0)
    }

    /// Releases a node. Returns false if the lease was lost.
    pub fn release(&mut self, lease: &NodeLease) -> Result<bool, StoreError> {
        let found = self.session.execute(
            "UPDATE nodes SET reservation = NULL, lease_run = NULL, lease_until = NULL
             WHERE uuid = ? AND lease_token = ? AND reservation IS NOT NULL",
            &[lease.node.bind(), SqlParam::Int(lease.token)],
        )?;
        Ok(found > 0)
    }

    /// Saves a node under a lease. Fails if the lease was lost or released.
    pub fn save_fenced(&mut self, node: &mut Node, lease: &NodeLease) -> Result<(), StoreError> {
        node.touch(self.now());
        let condition = " AND lease_token = ? AND reservation IS NOT NULL";
        let sealed = node.sealed(&self.shared.keys);
        if self.update(sealed.as_ref().unwrap_or(node), condition, &[SqlParam::Int(lease.token)])? {
            Ok(())
        } else {
            Err(StoreError::LeaseLost)
        }
    }

    /// Releases the leases of earlier runs of a process, which have ended. Returns the nodes.
    pub fn release_leases_of_earlier_runs(
        &mut self,
        hostname: &str,
        not_run: Uuid,
    ) -> Result<Vec<NodeId>, StoreError> {
        const OF_EARLIER_RUNS: &str = "reservation = ? AND (lease_run IS NULL OR lease_run <> ?)";
        let params = [SqlParam::Text(hostname), SqlParam::id(not_run)];
        self.release_nodes(OF_EARLIER_RUNS, &params)
    }

    /// Releases a node if this run of the owner has reserved it, whatever the token: for a claim whose
    /// result is unknown. Returns whether it had.
    pub fn release_of_run(&mut self, node: NodeId, owner: &LeaseOwner) -> Result<bool, StoreError> {
        let condition = "uuid = ? AND reservation = ? AND lease_run = ?";
        let params = [node.bind(), owner.hostname.bind(), owner.run.bind()];
        Ok(!self.release_nodes(condition, &params)?.is_empty())
    }

    /// Releases the nodes that satisfy `condition`, and returns them.
    pub(crate) fn release_nodes(
        &mut self,
        condition: &str,
        params: &[SqlParam<'_>],
    ) -> Result<Vec<NodeId>, StoreError> {
        let lock = if self.locking { " FOR UPDATE" } else { "" };
        let select = format!("SELECT uuid FROM nodes WHERE {condition} ORDER BY id{lock}");
        let nodes = self.query_column(&select, params, "nodes", "uuid")?;
        if !nodes.is_empty() {
            // Increment the token to fence off the owner in case it is still alive.
            let update = format!(
                "UPDATE nodes SET reservation = NULL, lease_run = NULL, lease_until = NULL,
                 lease_token = lease_token + 1 WHERE {condition}"
            );
            self.session.execute(&update, params)?;
        }
        Ok(nodes)
    }
}
