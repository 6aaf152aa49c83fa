// SPDX-License-Identifier: Apache-2.0
//! What ramdisks wrote down, the last few for every node.
//!
//! The content is sealed: nobody knows what a ramdisk's tools print, and its kernel's command line
//! is among it.

use node_model::{AgentLog, AgentLogId, KeptLogs, LogKind, NodeId};

use crate::engine::Row;
use crate::error::Error;
use crate::reader::{Reader, field};
use crate::value::{Field, Param};
use crate::writer::Writer;

const TABLE: &str = "agent_logs";
const COLUMNS: &str = "SELECT uuid, node_uuid, created_at, kind, why, size FROM agent_logs";

/// Bytes of the content in one row.
const PART: usize = 1 << 20;

/// Characters of the reason that are kept.
const MAX_WHY_CHARS: usize = 1000;

impl Reader<'_> {
    /// The logs of a node, the latest first, without their content.
    pub fn agent_logs(&mut self, node: NodeId) -> Result<Vec<AgentLog>, Error> {
        let sql = format!("{COLUMNS} WHERE node_uuid = ? ORDER BY id DESC");
        let mut found = Vec::new();
        self.session.query(&sql, &[node.bind()], &mut |row| {
            found.push(log(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// One log of a node and its content.
    pub fn agent_log(
        &mut self,
        node: NodeId,
        id: AgentLogId,
    ) -> Result<Option<(AgentLog, Vec<u8>)>, Error> {
        let sql = format!("{COLUMNS} WHERE uuid = ? AND node_uuid = ?");
        let mut found = None;
        self.session.query(&sql, &[id.bind(), node.bind()], &mut |row| {
            found = Some(log(row)?);
            Ok(())
        })?;
        let Some(found) = found else { return Ok(None) };
        let shared = self.shared;
        let mut content = Vec::with_capacity(usize::try_from(found.size).unwrap_or(0));
        let sql = "SELECT sealed FROM agent_log_parts WHERE log_uuid = ? ORDER BY id";
        self.session.query(sql, &[id.bind()], &mut |row| {
            let sealed: Vec<u8> = field(row, 0, "agent_log_parts", "sealed")?;
            let part = shared
                .vault
                .open_sealed(id.0, &sealed)
                .map_err(|source| Error::Vault { owner: node.to_string(), source })?;
            content.extend_from_slice(&part);
            Ok(())
        })?;
        Ok(Some((found, content)))
    }
}

impl Writer<'_> {
    /// Keeps what a ramdisk wrote down, a `tar.gz` archive, and forgets the node's oldest logs
    /// beyond `limits`. None if it is empty or longer than `limits` allow: then nothing changes.
    pub fn keep_log(
        &mut self,
        node: NodeId,
        kind: LogKind,
        why: &str,
        content: &[u8],
        limits: KeptLogs,
    ) -> Result<Option<AgentLogId>, Error> {
        if content.is_empty() || content.len() as u64 > limits.bytes || limits.per_node == 0 {
            return Ok(None);
        }
        let id = AgentLogId::random();
        let why: String = why.chars().filter(|c| *c != '\0').take(MAX_WHY_CHARS).collect();
        let size = i64::try_from(content.len()).unwrap_or(i64::MAX);
        let now = self.now();
        self.session.execute(
            "INSERT INTO agent_logs (uuid, node_uuid, created_at, kind, why, size)
             VALUES (?, ?, ?, ?, ?, ?)",
            &[id.bind(), node.bind(), now.bind(), kind.bind(), why.bind(), size.bind()],
        )?;
        for part in content.chunks(PART) {
            let sealed = self.shared.vault.seal(id.0, part);
            self.session.execute(
                "INSERT INTO agent_log_parts (log_uuid, sealed) VALUES (?, ?)",
                &[id.bind(), Param::Blob(&sealed)],
            )?;
        }
        // The derived table is for MariaDB, which does not take a LIMIT directly below.
        self.session.execute(
            "DELETE FROM agent_logs WHERE node_uuid = ? AND id <= (SELECT id FROM
             (SELECT id FROM agent_logs WHERE node_uuid = ? ORDER BY id DESC LIMIT 1 OFFSET ?)
             AS oldest)",
            &[node.bind(), node.bind(), Param::Int(i64::from(limits.per_node))],
        )?;
        Ok(Some(id))
    }
}

fn log(row: &dyn Row) -> Result<AgentLog, Error> {
    Ok(AgentLog {
        id: field(row, 0, TABLE, "uuid")?,
        node_id: field(row, 1, TABLE, "node_uuid")?,
        created_at: field(row, 2, TABLE, "created_at")?,
        kind: field(row, 3, TABLE, "kind")?,
        why: field(row, 4, TABLE, "why")?,
        size: field(row, 5, TABLE, "size")?,
    })
}
