// SPDX-License-Identifier: Apache-2.0
//! Logs that ramdisks send, the latest few per node.
//!
//! The content is sealed, because tools in a ramdisk may print secrets and the kernel command line
//! contains a token.

use node_model::{AgentLog, AgentLogId, AgentLogKind, AgentLogLimits, NodeId};

use crate::engine::DatabaseRow;
use crate::error::StoreError;
use crate::reader::{StoreReader, decode_field};
use crate::value::{ColumnType, SqlParam};
use crate::writer::StoreWriter;

const TABLE: &str = "agent_logs";
const COLUMNS: &str = "SELECT uuid, node_uuid, created_at, kind, reason, size FROM agent_logs";

/// Maximum bytes of content per row of `agent_log_parts`.
const PART_BYTES: usize = 1 << 20;

/// Maximum characters of the stored reason.
const MAX_REASON_CHARS: usize = 1000;

impl StoreReader<'_> {
    /// The logs of a node without content, latest first.
    pub fn agent_logs(&mut self, node: NodeId) -> Result<Vec<AgentLog>, StoreError> {
        let sql = format!("{COLUMNS} WHERE node_uuid = ? ORDER BY id DESC");
        let mut found = Vec::new();
        self.session.query(&sql, &[node.bind()], &mut |row| {
            found.push(decode_log(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// One log of a node with its content.
    pub fn agent_log(
        &mut self,
        node: NodeId,
        id: AgentLogId,
    ) -> Result<Option<(AgentLog, Vec<u8>)>, StoreError> {
        let sql = format!("{COLUMNS} WHERE uuid = ? AND node_uuid = ?");
        let mut found = None;
        self.session.query(&sql, &[id.bind(), node.bind()], &mut |row| {
            found = Some(decode_log(row)?);
            Ok(())
        })?;
        let Some(found) = found else { return Ok(None) };
        let shared = self.shared;
        let mut content = Vec::with_capacity(usize::try_from(found.size).unwrap_or(0));
        let sql = "SELECT sealed FROM agent_log_parts WHERE log_uuid = ? ORDER BY id";
        self.session.query(sql, &[id.bind()], &mut |row| {
            let sealed: Vec<u8> = decode_field(row, 0, "agent_log_parts", "sealed")?;
            let part = shared
                .keys
                .unseal(id.0, &sealed)
                .map_err(|source| StoreError::Unseal { owner: node.to_string(), source })?;
            content.extend_from_slice(&part);
            Ok(())
        })?;
        Ok(Some((found, content)))
    }
}

impl StoreWriter<'_> {
    /// Stores a log, a `tar.gz` archive, and deletes the node's oldest logs beyond `limits`. Returns
    /// `None` and changes nothing if it is empty or larger than `limits` allow.
    pub fn insert_agent_log(
        &mut self,
        node: NodeId,
        kind: AgentLogKind,
        reason: &str,
        content: &[u8],
        limits: AgentLogLimits,
    ) -> Result<Option<AgentLogId>, StoreError> {
        if content.is_empty() || content.len() as u64 > limits.bytes || limits.per_node == 0 {
            return Ok(None);
        }
        let id = AgentLogId::random();
        let reason: String = reason.chars().filter(|c| *c != '\0').take(MAX_REASON_CHARS).collect();
        let size = i64::try_from(content.len()).unwrap_or(i64::MAX);
        let now = self.now();
        self.session.execute(
            "INSERT INTO agent_logs (uuid, node_uuid, created_at, kind, reason, size)
             VALUES (?, ?, ?, ?, ?, ?)",
            &[id.bind(), node.bind(), now.bind(), kind.bind(), reason.bind(), size.bind()],
        )?;
        for part in content.chunks(PART_BYTES) {
            let sealed = self.shared.keys.seal(id.0, part);
            self.session.execute(
                "INSERT INTO agent_log_parts (log_uuid, sealed) VALUES (?, ?)",
                &[id.bind(), SqlParam::Blob(&sealed)],
            )?;
        }
        // The derived table is for MariaDB, which rejects LIMIT in this subquery.
        self.session.execute(
            "DELETE FROM agent_logs WHERE node_uuid = ? AND id <= (SELECT id FROM
             (SELECT id FROM agent_logs WHERE node_uuid = ? ORDER BY id DESC LIMIT 1 OFFSET ?)
             AS oldest)",
            &[node.bind(), node.bind(), SqlParam::Int(i64::from(limits.per_node))],
        )?;
        Ok(Some(id))
    }
}

fn decode_log(row: &dyn DatabaseRow) -> Result<AgentLog, StoreError> {
    Ok(AgentLog {
        id: decode_field(row, 0, TABLE, "uuid")?,
        node_id: decode_field(row, 1, TABLE, "node_uuid")?,
        created_at: decode_field(row, 2, TABLE, "created_at")?,
        kind: decode_field(row, 3, TABLE, "kind")?,
        reason: decode_field(row, 4, TABLE, "reason")?,
        size: decode_field(row, 5, TABLE, "size")?,
    })
}
