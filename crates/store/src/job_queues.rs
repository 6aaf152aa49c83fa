// SPDX-License-Identifier: Apache-2.0
//! Counts and order of the jobs in limited queues, from columns of the `nodes` table.
//!
//! The index on `job_queue` and `queued_at` is sufficient for the counts and the order. Jobs that were
//! queued at the same time are ordered by row id, which is part of the index on SQLite and MariaDB.

use node_model::{JobCounts, JobQueue, Node, NodeId, QueuePosition};

use crate::error::StoreError;
use crate::query::SqlBuilder;
use crate::reader::StoreReader;
use crate::tables::node::DueFilter;
use crate::value::{ColumnType as _, SqlParam};

impl StoreReader<'_> {
    /// The number of jobs of a queue.
    pub fn job_counts(&mut self, queue: JobQueue) -> Result<JobCounts, StoreError> {
        Ok(JobCounts { running: self.running_jobs(queue)?, queued: self.queued_jobs(queue)? })
    }

    /// The number of jobs of a queue that wait.
    fn queued_jobs(&mut self, queue: JobQueue) -> Result<u64, StoreError> {
        let sql = "SELECT COUNT(*) FROM nodes WHERE job_queue = ? AND queued_at IS NOT NULL";
        self.query_count(sql, &[queue.bind()], "nodes")
    }

    /// The number of jobs of a queue that were started. Those of nodes in maintenance have no timeout, so they
    /// would keep their places for ever; they are not counted.
    pub fn running_jobs(&mut self, queue: JobQueue) -> Result<u64, StoreError> {
        let sql = "SELECT COUNT(*) FROM nodes \
                   WHERE job_queue = ? AND queued_at IS NULL AND maintenance = ?";
        self.query_count(sql, &[queue.bind(), false.bind()], "nodes")
    }

    /// The nodes of `filter` whose jobs start next, in order. Nodes in maintenance keep their position but are not
    /// started.
    pub fn next_queued_nodes(
        &mut self,
        queue: JobQueue,
        filter: &DueFilter,
        limit: u64,
    ) -> Result<Vec<NodeId>, StoreError> {
        let sql = "SELECT uuid FROM nodes".to_owned();
        let mut statement = SqlBuilder::new(self.session.dialect(), sql);
        statement.and("job_queue = ?").and("queued_at IS NOT NULL").and("maintenance = ?");
        statement.params.extend([queue.bind(), false.bind()]);
        filter.add_conditions(&mut statement);
        statement.sql.push_str(" ORDER BY queued_at, id LIMIT ?");
        statement.params.push(SqlParam::Int(i64::try_from(limit).unwrap_or(i64::MAX)));
        self.query_column(&statement.sql, &statement.params, "nodes", "uuid")
    }

    /// The position of a job that waits in a queue.
    pub fn queue_position(&mut self, node: &Node) -> Result<Option<QueuePosition>, StoreError> {
        let (Some(queue), Some(since)) = (node.job_queue, node.queued_at) else { return Ok(None) };
        let earlier = self.query_count(
            "SELECT COUNT(*) FROM nodes WHERE job_queue = ? AND queued_at < ?",
            &[queue.bind(), since.bind()],
            "nodes",
        )?;
        let same_time = self.query_count(
            "SELECT COUNT(*) FROM nodes WHERE job_queue = ? AND queued_at = ? \
             AND id < (SELECT id FROM nodes WHERE uuid = ?)",
            &[queue.bind(), since.bind(), node.id.bind()],
            "nodes",
        )?;
        let (position, length) = (earlier + same_time + 1, self.queued_jobs(queue)?);
        Ok(Some(QueuePosition { queue, position, length: length.max(position), since }))
    }

    /// Nodes that count in a queue although they have no job. A process of an earlier version leaves them behind
    /// when it ends a job.
    pub fn nodes_with_ended_jobs(&mut self, limit: u64) -> Result<Vec<NodeId>, StoreError> {
        let sql = "SELECT uuid FROM nodes WHERE job_queue IS NOT NULL AND work IS NULL LIMIT ?";
        let limit = SqlParam::Int(i64::try_from(limit).unwrap_or(i64::MAX));
        self.query_column(sql, &[limit], "nodes", "uuid")
    }
}
