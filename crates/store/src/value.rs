// SPDX-License-Identifier: Apache-2.0
//! Conversion between model fields and column values, the same on all engines.
//!
//! Timestamps and numbers are 64-bit integers, booleans are 1 and 0, ids are in their usual text
//! form (readable with any SQL tool), and structured values are JSON text. Empty JSON is NULL.

use node_model::{
    AgentInfo, AgentLogKind, AllocationState, AuditOutcome, DeploymentState, Fault, Health,
    IdentitySource, JobQueue, JsonArray, JsonObject, LeaseEndAction, Mac, PowerRequest, PowerState,
    ProvisionState, RunbookStep, Secret, Sensitive, Severity, TemplateStep, Timestamp, UserKind,
    Wait, Work,
};
use uuid::Uuid;

/// A parameter of a statement.
#[derive(Debug, Clone)]
pub enum SqlParam<'a> {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// Borrowed text.
    Text(&'a str),
    /// Owned text.
    Owned(String),
    /// A UUID in text form, without an allocation.
    Id([u8; 36]),
    /// Bytes.
    Blob(&'a [u8]),
}

/// A value of a result row. Text and bytes are distinguished by the field type.
#[derive(Debug, Clone, Copy)]
pub enum SqlValue<'a> {
    /// NULL.
    Null,
    /// An integer.
    Int(i64),
    /// Text or bytes.
    Bytes(&'a [u8]),
}

/// The column contains an unexpected value.
#[derive(Debug)]
pub struct CorruptValue;

/// A type that can be stored in a column.
pub(crate) trait ColumnType: Sized {
    /// Returns the value as a parameter.
    fn bind(&self) -> SqlParam<'_>;
    /// Decodes a stored value.
    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue>;
    /// Decodes into `self`, reusing its allocations: lists decode every row into the same record.
    fn load(&mut self, value: SqlValue<'_>) -> Result<(), CorruptValue> {
        *self = Self::read(value)?;
        Ok(())
    }
}

impl SqlParam<'_> {
    /// A UUID parameter.
    pub fn id(id: Uuid) -> Self {
        let mut text = [0; 36];
        id.hyphenated().encode_lower(&mut text);
        Self::Id(text)
    }

    /// The text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Owned(text) => Some(text),
            Self::Id(text) => Some(std::str::from_utf8(text).expect("an encoded uuid is ASCII")),
            Self::Null | Self::Int(_) | Self::Blob(_) => None,
        }
    }
}

impl<'a> SqlValue<'a> {
    /// The value as text.
    pub fn text(self) -> Result<&'a str, CorruptValue> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).map_err(|_| CorruptValue),
            Self::Null | Self::Int(_) => Err(CorruptValue),
        }
    }

    /// The value as an integer.
    pub fn int(self) -> Result<i64, CorruptValue> {
        match self {
            Self::Int(number) => Ok(number),
            Self::Null | Self::Bytes(_) => Err(CorruptValue),
        }
    }

    /// An owned copy that can be bound to another statement.
    pub fn to_param(self) -> Result<SqlParam<'static>, CorruptValue> {
        Ok(match self {
            Self::Null => SqlParam::Null,
            Self::Int(number) => SqlParam::Int(number),
            Self::Bytes(_) => SqlParam::Owned(self.text()?.to_owned()),
        })
    }
}

impl<T: ColumnType> ColumnType for Option<T> {
    fn bind(&self) -> SqlParam<'_> {
        self.as_ref().map_or(SqlParam::Null, T::bind)
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        match value {
            SqlValue::Null => Ok(None),
            SqlValue::Int(_) | SqlValue::Bytes(_) => T::read(value).map(Some),
        }
    }

    fn load(&mut self, value: SqlValue<'_>) -> Result<(), CorruptValue> {
        match (self.as_mut(), value) {
            (_, SqlValue::Null) => *self = None,
            (Some(present), _) => present.load(value)?,
            (None, _) => *self = Some(T::read(value)?),
        }
        Ok(())
    }
}

impl ColumnType for String {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::Text(self)
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        value.text().map(str::to_owned)
    }

    fn load(&mut self, value: SqlValue<'_>) -> Result<(), CorruptValue> {
        value.text()?.clone_into(self);
        Ok(())
    }
}

/// For values that are stored as they are because they are one-way hashes.
impl ColumnType for Secret<String> {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::Text(self.reveal())
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        String::read(value).map(Self::new)
    }
}

impl ColumnType for bool {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::Int(i64::from(*self))
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        value.int().map(|number| number != 0)
    }
}

impl ColumnType for i64 {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::Int(*self)
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        value.int()
    }
}

impl ColumnType for Timestamp {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::Int(self.0)
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        value.int().map(Self)
    }
}

impl ColumnType for Uuid {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::id(*self)
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        match value {
            SqlValue::Bytes(text) => Self::try_parse_ascii(text).map_err(|_| CorruptValue),
            SqlValue::Null | SqlValue::Int(_) => Err(CorruptValue),
        }
    }
}

impl ColumnType for Mac {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::Text(self.as_str())
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        value.text()?.parse().map_err(|_| CorruptValue)
    }
}

impl ColumnType for Vec<u8> {
    fn bind(&self) -> SqlParam<'_> {
        if self.is_empty() { SqlParam::Null } else { SqlParam::Blob(self) }
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        match value {
            SqlValue::Null => Ok(Self::new()),
            SqlValue::Bytes(bytes) => Ok(bytes.to_vec()),
            SqlValue::Int(_) => Err(CorruptValue),
        }
    }
}

impl ColumnType for Sensitive {
    fn bind(&self) -> SqlParam<'_> {
        SqlParam::Int(match self {
            Self::No => 0,
            Self::Yes => 1,
        })
    }

    fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
        Ok(if value.int()? == 0 { Self::No } else { Self::Yes })
    }
}

macro_rules! id_fields {
    ($($id:ident)*) => {$(
        impl ColumnType for node_model::$id {
            fn bind(&self) -> SqlParam<'_> {
                SqlParam::id(self.0)
            }

            fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
                Uuid::read(value).map(Self)
            }
        }
    )*};
}
id_fields! {
    AgentLogId AllocationId ApiTokenId AuditEntryId ChassisId DeployTemplateId DeploymentId FlavourId
    HistoryId NodeId PortId PortgroupId ProjectId QuotaId ReportId RuleId RunbookId SessionId UserId
    VolumeConnectorId VolumeTargetId
}

macro_rules! named_fields {
    ($($name:ident)*) => {$(
        impl ColumnType for $name {
            fn bind(&self) -> SqlParam<'_> {
                SqlParam::Text(self.as_str())
            }

            fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
                value.text()?.parse().map_err(|()| CorruptValue)
            }
        }
    )*};
}
named_fields! {
    AllocationState AuditOutcome DeploymentState Fault Health AgentLogKind IdentitySource JobQueue LeaseEndAction
    PowerState ProvisionState Severity UserKind
}

macro_rules! json_text_fields {
    ($($name:ident)*) => {$(
        impl ColumnType for $name {
            fn bind(&self) -> SqlParam<'_> {
                if self.is_empty() { SqlParam::Null } else { SqlParam::Text(self.as_str()) }
            }

            fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
                match value {
                    SqlValue::Null => Ok(Self::empty()),
                    SqlValue::Bytes(_) => Ok(Self::from_stored(value.text()?)),
                    SqlValue::Int(_) => Err(CorruptValue),
                }
            }
        }
    )*};
}
json_text_fields! { JsonObject JsonArray }

/// Types whose default value is stored as NULL.
macro_rules! json_fields_with_default {
    ($($name:ty)*) => {$(
        impl ColumnType for $name {
            fn bind(&self) -> SqlParam<'_> {
                if *self == Self::default() { SqlParam::Null } else { to_json(self) }
            }

            fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
                match value {
                    SqlValue::Null => Ok(Self::default()),
                    SqlValue::Bytes(text) => serde_json::from_slice(text).map_err(|_| CorruptValue),
                    SqlValue::Int(_) => Err(CorruptValue),
                }
            }
        }
    )*};
}
json_fields_with_default! {
    Vec<String> Vec<node_model::NodeId> Vec<TemplateStep> Vec<RunbookStep> AgentInfo
}

macro_rules! json_fields {
    ($($name:ty)*) => {$(
        impl ColumnType for $name {
            fn bind(&self) -> SqlParam<'_> {
                to_json(self)
            }

            fn read(value: SqlValue<'_>) -> Result<Self, CorruptValue> {
                match value {
                    SqlValue::Bytes(text) => serde_json::from_slice(text).map_err(|_| CorruptValue),
                    SqlValue::Null | SqlValue::Int(_) => Err(CorruptValue),
                }
            }
        }
    )*};
}
json_fields! { Work PowerRequest Wait node_model::Actor node_model::JournalEvent }

fn to_json<T: serde::Serialize>(value: &T) -> SqlParam<'static> {
    SqlParam::Owned(serde_json::to_string(value).expect("the model's types serialize to JSON"))
}
