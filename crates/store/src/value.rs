// SPDX-License-Identifier: Apache-2.0
//! How a field of the model becomes a column and back, the same on every engine.
//!
//! Text is text, moments and numbers are 64-bit integers, yes and no are 1 and 0, ids are their
//! usual text (so that an operator can read them with any SQL tool), and everything structured is
//! JSON text. Empty JSON is NULL, which costs nothing to write, store or read.

use node_model::{
    Agent, AllocationState, Fault, Health, JsonArray, JsonObject, LogKind, Mac, PowerRequest,
    PowerState, ProvisionState, RunbookStep, Sensitive, Severity, TemplateStep, Timestamp, Wait,
    Work,
};
use uuid::Uuid;

/// A value on its way into a statement.
#[derive(Debug, Clone)]
pub enum Param<'a> {
    /// NULL.
    Null,
    /// Any whole number.
    Int(i64),
    /// Text kept elsewhere.
    Text(&'a str),
    /// Text made for the occasion.
    Owned(String),
    /// An id in its text form, without an allocation.
    Id([u8; 36]),
    /// Bytes.
    Blob(&'a [u8]),
}

/// A value on its way out of a row. Text and bytes are told apart by who reads them.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// Any whole number.
    Int(i64),
    /// Text or bytes.
    Bytes(&'a [u8]),
}

/// The column does not hold what it should.
#[derive(Debug)]
pub struct Damaged;

/// A type that can be a column.
pub(crate) trait Field: Sized {
    /// The value to store.
    fn bind(&self) -> Param<'_>;
    /// The value as stored.
    fn read(value: Value<'_>) -> Result<Self, Damaged>;
    /// Overwrites `self`, reusing its memory where that is possible: lists decode every row into
    /// the same record.
    fn load(&mut self, value: Value<'_>) -> Result<(), Damaged> {
        *self = Self::read(value)?;
        Ok(())
    }
}

impl Param<'_> {
    /// An id.
    pub fn id(id: Uuid) -> Self {
        let mut text = [0; 36];
        id.hyphenated().encode_lower(&mut text);
        Self::Id(text)
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Owned(text) => Some(text),
            Self::Id(text) => Some(std::str::from_utf8(text).expect("an encoded uuid is ASCII")),
            Self::Null | Self::Int(_) | Self::Blob(_) => None,
        }
    }
}

impl<'a> Value<'a> {
    /// As text.
    pub fn text(self) -> Result<&'a str, Damaged> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).map_err(|_| Damaged),
            Self::Null | Self::Int(_) => Err(Damaged),
        }
    }

    /// As a number.
    pub fn int(self) -> Result<i64, Damaged> {
        match self {
            Self::Int(number) => Ok(number),
            Self::Null | Self::Bytes(_) => Err(Damaged),
        }
    }

    /// A copy that outlives the row, fit to be bound to another statement.
    pub fn to_param(self) -> Result<Param<'static>, Damaged> {
        Ok(match self {
            Self::Null => Param::Null,
            Self::Int(number) => Param::Int(number),
            Self::Bytes(_) => Param::Owned(self.text()?.to_owned()),
        })
    }
}

impl<T: Field> Field for Option<T> {
    fn bind(&self) -> Param<'_> {
        self.as_ref().map_or(Param::Null, T::bind)
    }

    fn read(value: Value<'_>) -> Result<Self, Damaged> {
        match value {
            Value::Null => Ok(None),
            Value::Int(_) | Value::Bytes(_) => T::read(value).map(Some),
        }
    }

    fn load(&mut self, value: Value<'_>) -> Result<(), Damaged> {
        match (self.as_mut(), value) {
            (_, Value::Null) => *self = None,
            (Some(present), _) => present.load(value)?,
            (None, _) => *self = Some(T::read(value)?),
        }
        Ok(())
    }
}

impl Field for String {
    fn bind(&self) -> Param<'_> {
        Param::Text(self)
    }

    fn read(value: Value<'_>) -> Result<Self, Damaged> {
        value.text().map(str::to_owned)
    }

    fn load(&mut self, value: Value<'_>) -> Result<(), Damaged> {
        value.text()?.clone_into(self);
        Ok(())
    }
}

impl Field for bool {
    fn bind(&self) -> Param<'_> {
        Param::Int(i64::from(*self))
    }

    fn read(value: Value<'_>) -> Result<Self, Damaged> {
        value.int().map(|number| number != 0)
    }
}

impl Field for i64 {
    fn bind(&self) -> Param<'_> {
        Param::Int(*self)
    }

    fn read(value: Value<'_>) -> Result<Self, Damaged> {
        value.int()
    }
}

impl Field for Timestamp {
    fn bind(&self) -> Param<'_> {
        Param::Int(self.0)
    }

    fn read(value: Value<'_>) -> Result<Self, Damaged> {
        value.int().map(Self)
    }
}

impl Field for Uuid {
    fn bind(&self) -> Param<'_> {
        Param::id(*self)
    }

    fn read(value: Value<'_>) -> Result<Self, Damaged> {
        match value {
            Value::Bytes(text) => Self::try_parse_ascii(text).map_err(|_| Damaged),
            Value::Null | Value::Int(_) => Err(Damaged),
        }
    }
}

impl Field for Mac {
    fn bind(&self) -> Param<'_> {
        Param::Text(self.as_str())
    }

    fn read(value: Value<'_>) -> Result<Self, Damaged> {
        value.text()?.parse().map_err(|_| Damaged)
    }
}

impl Field for Vec<u8> {
    fn bind(&self) -> Param<'_> {
        if self.is_empty() { Param::Null } else { Param::Blob(self) }
    }

    fn read(value: Value<'_>) -> Result<Self, Damaged> {
        match value {
            Value::Null => Ok(Self::new()),
            Value::Bytes(bytes) => Ok(bytes.to_vec()),
            Value::Int(_) => Err(Damaged),
        }
    }
}

impl Field for Sensitive {
    fn bind(&self) -> Param<'_> {
        Param::Int(match self {
            Self::No => 0,
            Self::Yes => 1,
        })
    }

    fn read(value: Value<'_>) -> Result<Self, Damaged> {
        Ok(if value.int()? == 0 { Self::No } else { Self::Yes })
    }
}

macro_rules! id_fields {
    ($($id:ident)*) => {$(
        impl Field for node_model::$id {
            fn bind(&self) -> Param<'_> {
                Param::id(self.0)
            }

            fn read(value: Value<'_>) -> Result<Self, Damaged> {
                Uuid::read(value).map(Self)
            }
        }
    )*};
}
id_fields! {
    AgentLogId AllocationId ChassisId DeployTemplateId FlavourId HistoryId NodeId PortId PortgroupId
    ReportId RuleId RunbookId
    VolumeConnectorId VolumeTargetId
}

macro_rules! named_fields {
    ($($name:ident)*) => {$(
        impl Field for $name {
            fn bind(&self) -> Param<'_> {
                Param::Text(self.as_str())
            }

            fn read(value: Value<'_>) -> Result<Self, Damaged> {
                value.text()?.parse().map_err(|()| Damaged)
            }
        }
    )*};
}
named_fields! { AllocationState Fault Health LogKind PowerState ProvisionState Severity }

macro_rules! json_text_fields {
    ($($name:ident)*) => {$(
        impl Field for $name {
            fn bind(&self) -> Param<'_> {
                if self.is_empty() { Param::Null } else { Param::Text(self.as_str()) }
            }

            fn read(value: Value<'_>) -> Result<Self, Damaged> {
                match value {
                    Value::Null => Ok(Self::empty()),
                    Value::Bytes(_) => Ok(Self::from_stored(value.text()?)),
                    Value::Int(_) => Err(Damaged),
                }
            }
        }
    )*};
}
json_text_fields! { JsonObject JsonArray }

/// Types with an empty value, stored as NULL when they have it.
macro_rules! json_fields_with_default {
    ($($name:ty)*) => {$(
        impl Field for $name {
            fn bind(&self) -> Param<'_> {
                if *self == Self::default() { Param::Null } else { to_json(self) }
            }

            fn read(value: Value<'_>) -> Result<Self, Damaged> {
                match value {
                    Value::Null => Ok(Self::default()),
                    Value::Bytes(text) => serde_json::from_slice(text).map_err(|_| Damaged),
                    Value::Int(_) => Err(Damaged),
                }
            }
        }
    )*};
}
json_fields_with_default! {
    Vec<String> Vec<node_model::NodeId> Vec<TemplateStep> Vec<RunbookStep> Agent
}

macro_rules! json_fields {
    ($($name:ty)*) => {$(
        impl Field for $name {
            fn bind(&self) -> Param<'_> {
                to_json(self)
            }

            fn read(value: Value<'_>) -> Result<Self, Damaged> {
                match value {
                    Value::Bytes(text) => serde_json::from_slice(text).map_err(|_| Damaged),
                    Value::Null | Value::Int(_) => Err(Damaged),
                }
            }
        }
    )*};
}
json_fields! { Work PowerRequest Wait node_model::Actor node_model::Happening }

fn to_json<T: serde::Serialize>(value: &T) -> Param<'static> {
    Param::Owned(serde_json::to_string(value).expect("the model's types serialize to JSON"))
}
