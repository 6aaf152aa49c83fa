// SPDX-License-Identifier: Apache-2.0
//! The format of backup files: JSON lines with a checksum at the end.
//!
//! ```text
//! {"format":"ferrite backup","version":1,"ferrite":"0.4.0","schema":15,…}
//! {"table":"chassis","columns":["id","uuid",…]}
//! [1,"0f4c…",1800000000000000,null,…]
//! {"table":"nodes","columns":[…]}
//! …
//! {"rows":4711,"sha256":"…"}
//! ```
//!
//! A value is a number, a text, null, or `{"base64":"…"}` for bytes. The checksum is that of all lines
//! before the last one. Files are written and read one line at a time.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::schema_tables::{SchemaTable, tables_of_schema};
use super::{BackupError, BackupSummary, TABLES_WITHOUT_ROWS, file_error};
use crate::engine::DatabaseRow;
use crate::migrate::newest_schema;
use crate::value::{CorruptValue, SqlParam, SqlValue};

const FORMAT: &str = "ferrite backup";
const FORMAT_VERSION: i64 = 1;

/// Longest accepted line. The largest values are inventories and parts of logs, some MiB.
const MAX_LINE_BYTES: u64 = 256 << 20;

/// The first line.
#[derive(Serialize, Deserialize)]
pub(super) struct BackupHeader {
    format: String,
    version: i64,
    ferrite: String,
    pub(super) schema: i64,
    created_at: String,
    engine: String,
    sealing_keys: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableLine {
    table: String,
    columns: Vec<String>,
}

/// The last line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndLine {
    rows: u64,
    sha256: String,
}

/// A value of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum BackupValue {
    Null,
    Int(i64),
    Text(String),
    Binary(Vec<u8>),
}

/// What a line after the header contains.
pub(super) enum BackupLine {
    /// The rows of this table follow. It is the index in the tables of the schema.
    Table(usize),
    Row(Vec<BackupValue>),
    End,
}

// === impl BackupHeader ===

impl BackupHeader {
    pub(super) fn new(
        schema: i64,
        created_at: Timestamp,
        engine: &str,
        sealing_keys: Vec<String>,
    ) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            ferrite: env!("CARGO_PKG_VERSION").to_owned(),
            schema,
            created_at: created_at.to_string(),
            engine: engine.to_owned(),
            sealing_keys,
        }
    }

    /// When the snapshot was taken, as text.
    pub(super) fn created_at(&self) -> &str {
        &self.created_at
    }
}

// === impl BackupValue ===

impl BackupValue {
    /// The value as a parameter of a statement.
    pub(super) fn param(&self) -> SqlParam<'_> {
        match self {
            Self::Null => SqlParam::Null,
            Self::Int(number) => SqlParam::Int(*number),
            Self::Text(text) => SqlParam::Text(text),
            Self::Binary(bytes) => SqlParam::Blob(bytes),
        }
    }

    /// The size in a statement, roughly.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Null | Self::Int(_) => 8,
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }

    fn parse(value: Value, is_binary: bool) -> Option<Self> {
        match value {
            Value::Null => Some(Self::Null),
            Value::Number(number) => number.as_i64().map(Self::Int),
            Value::String(text) if !is_binary => Some(Self::Text(text)),
            Value::Object(fields) if is_binary && fields.len() == 1 => {
                let bytes = STANDARD.decode(fields.get("base64")?.as_str()?).ok()?;
                Some(Self::Binary(bytes))
            }
            Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

// === Writing ===

/// Writes a backup.
pub(super) struct BackupWriter {
    output: BufWriter<File>,
    path: PathBuf,
    hash: Sha256,
    line: Vec<u8>,
    rows: u64,
}

impl BackupWriter {
    /// Starts with the header.
    pub(super) fn start(
        file: File,
        path: &Path,
        header: &BackupHeader,
    ) -> Result<Self, BackupError> {
        let mut writer = Self {
            output: BufWriter::with_capacity(1 << 18, file),
            path: path.to_owned(),
            hash: Sha256::new(),
            line: Vec::new(),
            rows: 0,
        };
        writer.json(header)?;
        Ok(writer)
    }

    /// Announces the rows of a table.
    pub(super) fn table(&mut self, table: &SchemaTable) -> Result<(), BackupError> {
        let columns = table.columns.iter().map(|column| column.name.clone()).collect();
        self.json(&TableLine { table: table.name.clone(), columns })
    }

    /// Writes a row with the columns of the table.
    pub(super) fn row(
        &mut self,
        table: &SchemaTable,
        row: &dyn DatabaseRow,
    ) -> Result<(), BackupError> {
        self.line.clear();
        self.line.push(b'[');
        for (index, column) in table.columns.iter().enumerate() {
            if index > 0 {
                self.line.push(b',');
            }
            let value = row.value(index);
            let encoded = value.and_then(|value| encode(value, column.is_binary, &mut self.line));
            encoded.map_err(|CorruptValue| BackupError::CorruptColumn {
                table: table.name.clone(),
                column: column.name.clone(),
            })?;
        }
        self.line.push(b']');
        self.rows += 1;
        self.write_line()
    }

    /// Writes the last line and waits until all is on the disk.
    pub(super) fn finish(mut self) -> Result<(), BackupError> {
        let sha256 = hex::encode(self.hash.clone().finalize());
        let end = EndLine { rows: self.rows, sha256 };
        self.json(&end)?;
        self.output.flush().map_err(file_error(&self.path))?;
        self.output.get_ref().sync_all().map_err(file_error(&self.path))
    }

    fn json(&mut self, value: &impl Serialize) -> Result<(), BackupError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value)
            .map_err(std::io::Error::from)
            .map_err(file_error(&self.path))?;
        self.write_line()
    }

    fn write_line(&mut self) -> Result<(), BackupError> {
        self.line.push(b'\n');
        self.hash.update(&self.line);
        self.output.write_all(&self.line).map_err(file_error(&self.path))
    }
}

fn encode(value: SqlValue<'_>, is_binary: bool, line: &mut Vec<u8>) -> Result<(), CorruptValue> {
    let json = match value {
        SqlValue::Null => Value::Null,
        SqlValue::Int(number) => number.into(),
        SqlValue::Bytes(bytes) if is_binary => json!({"base64": STANDARD.encode(bytes)}),
        SqlValue::Bytes(_) => value.text()?.into(),
    };
    serde_json::to_writer(line, &json).map_err(|_| CorruptValue)
}

// === Reading ===

/// Reads a backup and checks each line.
pub(super) struct BackupReader {
    input: BufReader<File>,
    path: PathBuf,
    hash: Sha256,
    line: Vec<u8>,
    /// The number of the last line.
    pub(super) number: u64,
    rows: u64,
    pub(super) header: BackupHeader,
    /// The tables of the schema of the backup.
    pub(super) tables: Vec<SchemaTable>,
    /// The table of the next rows.
    current: Option<usize>,
}

impl BackupReader {
    /// Reads the header.
    pub(super) fn open(path: &Path) -> Result<Self, BackupError> {
        let file = File::open(path).map_err(file_error(path))?;
        let mut reader = Self {
            input: BufReader::with_capacity(1 << 18, file),
            path: path.to_owned(),
            hash: Sha256::new(),
            line: Vec::new(),
            number: 0,
            rows: 0,
            header: BackupHeader::new(0, Timestamp(0), "", Vec::new()),
            tables: Vec::new(),
            current: None,
        };
        reader.read_line()?;
        let value: Value = serde_json::from_slice(&reader.line).unwrap_or_default();
        if value["format"] != FORMAT {
            return Err(reader.invalid("it does not start with the header of a backup"));
        }
        // Before the other fields, which a newer format may have changed.
        let newer = |what, found, known| BackupError::NewerVersion {
            ferrite_version: value["ferrite"].as_str().unwrap_or("(unknown)").to_owned(),
            what,
            found,
            known,
        };
        match value["version"].as_i64() {
            Some(version) if version > FORMAT_VERSION => {
                return Err(newer("format", version, FORMAT_VERSION));
            }
            Some(_) | None => {}
        }
        let header = serde_json::from_slice::<BackupHeader>(&reader.line);
        let header = header.map_err(|error| reader.invalid(format!("invalid header: {error}")))?;
        if header.schema > newest_schema() {
            return Err(newer("schema", header.schema, newest_schema()));
        }
        reader.tables = tables_of_schema(header.schema);
        reader.header = header;
        reader.hash.update(&reader.line);
        Ok(reader)
    }

    /// The next line. At the end, the number of rows and the checksum are correct.
    pub(super) fn next_line(&mut self) -> Result<BackupLine, BackupError> {
        self.read_line()?;
        let parsed = match serde_json::from_slice(&self.line) {
            Ok(Value::Array(values)) => {
                self.hash.update(&self.line);
                return self.row(values).map(BackupLine::Row);
            }
            Ok(value) => value,
            Err(error) => return Err(self.invalid(format!("not JSON: {error}"))),
        };
        if parsed.get("sha256").is_some() {
            let end = serde_json::from_value(parsed).map_err(|error| self.invalid(error))?;
            self.check_end(&end)?;
            return Ok(BackupLine::End);
        }
        self.hash.update(&self.line);
        let line: TableLine =
            serde_json::from_value(parsed).map_err(|error| self.invalid(error))?;
        let index = self.tables.iter().position(|table| table.name == line.table);
        let Some(index) = index else {
            return Err(self.invalid(format!("unknown table {:?}", line.table)));
        };
        if self.current.is_some_and(|current| current >= index)
            || TABLES_WITHOUT_ROWS.contains(&line.table.as_str())
        {
            return Err(self.invalid(format!("unexpected table {:?}", line.table)));
        }
        let known = self.tables[index].columns.iter().map(|column| &column.name);
        if !known.eq(&line.columns) {
            let schema = self.header.schema;
            let why =
                format!("table {:?} does not have the columns of schema {schema}", line.table);
            return Err(self.invalid(why));
        }
        self.current = Some(index);
        Ok(BackupLine::Table(index))
    }

    /// An error about the last line.
    pub(super) fn invalid(&self, why: impl ToString) -> BackupError {
        BackupError::Invalid { path: self.path.clone(), line: self.number, why: why.to_string() }
    }

    fn row(&mut self, values: Vec<Value>) -> Result<Vec<BackupValue>, BackupError> {
        let Some(table) = self.current.and_then(|index| self.tables.get(index)) else {
            return Err(self.invalid("a row before the first table"));
        };
        if values.len() != table.columns.len() {
            return Err(
                self.invalid(format!("the row does not have all columns of {}", table.name))
            );
        }
        let columns = table.columns.iter().zip(values);
        let row: Option<Vec<_>> =
            columns.map(|(column, value)| BackupValue::parse(value, column.is_binary)).collect();
        self.rows += 1;
        row.ok_or_else(|| self.invalid("a value has the wrong type"))
    }

    fn check_end(&mut self, end: &EndLine) -> Result<(), BackupError> {
        if end.rows != self.rows {
            let why = format!("there are {} rows instead of {}", self.rows, end.rows);
            return Err(self.invalid(why));
        }
        if end.sha256 != hex::encode(self.hash.clone().finalize()) {
            return Err(self.invalid("the checksum differs: the file was changed or damaged"));
        }
        let mut more = [0];
        match self.input.read(&mut more) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.invalid("there are lines after the end")),
            Err(error) => Err(file_error(&self.path)(error)),
        }
    }

    fn read_line(&mut self) -> Result<(), BackupError> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.input).take(MAX_LINE_BYTES);
        limited.read_until(b'\n', &mut self.line).map_err(file_error(&self.path))?;
        if self.line.last() == Some(&b'\n') {
            return Ok(());
        }
        let is_too_long = self.line.len() as u64 == MAX_LINE_BYTES;
        Err(self.invalid(if is_too_long {
            "the line is too long"
        } else {
            "the file is truncated"
        }))
    }
}

/// Reads a backup to its end.
pub(super) fn check(path: &Path) -> Result<BackupSummary, BackupError> {
    let mut reader = BackupReader::open(path)?;
    let (mut nodes, mut unfinished_nodes) = (0, 0);
    let mut job_columns: Option<[usize; 2]> = None;
    loop {
        match reader.next_line()? {
            BackupLine::End => break,
            BackupLine::Table(index) => {
                let table = &reader.tables[index];
                let columns = (table.position("work"), table.position("power_request"));
                job_columns = match columns {
                    (Some(work), Some(power)) if table.name == "nodes" => Some([work, power]),
                    _ => None,
                };
            }
            BackupLine::Row(row) => {
                if let Some(columns) = job_columns {
                    nodes += 1;
                    let is_set = |column: usize| row.get(column) != Some(&BackupValue::Null);
                    unfinished_nodes += u64::from(columns.into_iter().any(is_set));
                }
            }
        }
    }
    let created_at = reader.header.created_at.parse();
    Ok(BackupSummary {
        created_at: created_at.map_err(|_| reader.invalid("created_at is not a time"))?,
        rows: reader.rows,
        nodes,
        unfinished_nodes,
        ferrite_version: reader.header.ferrite,
        schema: reader.header.schema,
        engine: reader.header.engine,
        sealing_key_ids: reader.header.sealing_keys,
    })
}
