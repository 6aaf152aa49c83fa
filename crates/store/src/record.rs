// SPDX-License-Identifier: Apache-2.0
//! Column tables, from which SELECT, INSERT and UPDATE statements and row decoding are generated.

use std::marker::PhantomData;

use node_model::Timestamp;
use uuid::Uuid;

use crate::engine::DatabaseRow;
use crate::error::StoreError;
use crate::key_ring::KeyRing;
use crate::query::SqlBuilder;
use crate::sealing_key::SealError;
use crate::value::{CorruptValue, SqlParam, SqlValue};

/// A column and how to bind and load its field.
pub struct TableColumn<R: 'static> {
    /// Name in the database, which is also the field name in the API.
    pub name: &'static str,
    /// Whether saving the record writes it. The lease columns have their own statements.
    pub saved: bool,
    /// Returns the field as a parameter.
    pub bind: for<'a> fn(&'a R) -> SqlParam<'a>,
    /// Decodes the stored value into the field.
    pub load: fn(&mut R, SqlValue<'_>) -> Result<(), CorruptValue>,
}

/// A type stored as a row of a table.
pub trait StoredRecord: Sized + Send + 'static {
    /// Enum of the columns.
    type Column: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static;
    /// Table name.
    const TABLE: &'static str;
    /// The columns, in the order of the variants of `Self::Column`.
    const COLUMNS: &'static [TableColumn<Self>];
    /// Indexed columns, where updating the indexes is worth avoiding.
    const INDEXED: &'static [&'static str];

    /// Index of a column in `COLUMNS`.
    fn index(column: Self::Column) -> usize;
    /// A record with default values, to decode into.
    fn blank() -> Self;
    /// The statements for whole records, generated once.
    fn statements() -> &'static RecordStatements;
}

/// A record with a UUID.
///
/// Implemented by this crate only.
pub trait StoredResource: StoredRecord {
    /// The type of its id.
    type Id: ResourceId<Resource = Self>;
    /// The filter of its lists.
    type Filter: ResourceFilter + Default + Clone + std::fmt::Debug + Send + Sync;

    /// Its id.
    fn uuid(&self) -> Uuid;
    /// Sets the time of the last change.
    fn touch(&mut self, now: Timestamp);

    /// The record with its secrets sealed, or `None` if it has none.
    fn sealed(&self, _key: &KeyRing) -> Option<Self> {
        None
    }

    /// Replaces sealed secrets by their plain values after loading.
    fn unseal(&mut self, _key: &KeyRing) -> Result<(), SealError> {
        Ok(())
    }
}

/// An id that determines the type of its resource: `get(port_id)` returns a port.
pub trait ResourceId: Copy + Send {
    /// The resource.
    type Resource: StoredResource<Id = Self>;

    /// The UUID.
    fn uuid(self) -> Uuid;
}

/// The filter of a list.
pub trait ResourceFilter {
    /// Adds its conditions to a statement.
    fn add_conditions<'a>(&'a self, to: &mut SqlBuilder<'a>);
}

/// A set of columns to load.
pub struct Columns<R> {
    bits: u128,
    record: PhantomData<fn() -> R>,
}

/// The statements for whole records of a table.
pub struct RecordStatements {
    /// `SELECT <all columns> FROM <table>`.
    pub select: String,
    /// SELECT by UUID.
    pub select_by_id: String,
    /// SELECT by UUID, with a row lock.
    pub select_by_id_locked: String,
    /// INSERT.
    pub insert: String,
    /// UPDATE by UUID.
    pub update: String,
    /// UPDATE of the columns without an index.
    pub update_plain: String,
    /// UPDATE of the indexed columns, if any of them differs. SQLite only.
    pub update_indexed: String,
    /// DELETE by UUID.
    pub delete: String,
}

// === impl Column ===

impl<R: StoredRecord> TableColumn<R> {
    pub(crate) fn is_indexed(&self) -> bool {
        R::INDEXED.contains(&self.name)
    }
}

// === impl Columns ===

impl<R: StoredRecord> Columns<R> {
    /// All columns.
    pub const ALL: Self = Self { bits: u128::MAX, record: PhantomData };

    /// A set of the given columns.
    #[must_use]
    pub fn only(columns: &[R::Column]) -> Self {
        columns.iter().fold(Self { bits: 0, record: PhantomData }, |set, column| set.with(*column))
    }

    /// Adds a column.
    #[must_use]
    pub fn with(self, column: R::Column) -> Self {
        Self { bits: self.bits | 1 << R::index(column), record: PhantomData }
    }

    /// Whether the set contains `column`.
    #[must_use]
    pub fn contains(self, column: R::Column) -> bool {
        self.bits & 1 << R::index(column) != 0
    }

    pub(crate) fn columns(self) -> impl Iterator<Item = &'static TableColumn<R>> {
        R::COLUMNS
            .iter()
            .enumerate()
            .filter(move |(index, _)| self.bits & 1 << index != 0)
            .map(|(_, column)| column)
    }
}

impl<R> Clone for Columns<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Columns<R> {}

impl<R> std::fmt::Debug for Columns<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Columns({:#x})", self.bits)
    }
}

// === impl Statements ===

impl RecordStatements {
    /// Generates the statements of `R`.
    pub fn of<R: StoredRecord>() -> Self {
        let table = R::TABLE;
        let select = format!("SELECT {} FROM {table}", column_list(R::COLUMNS.iter()));
        let select_by_id = format!("{select} WHERE uuid = ?");
        let places = vec!["?"; inserted_columns::<R>().count()].join(", ");
        let update = |columns: &mut dyn Iterator<Item = &'static TableColumn<R>>| {
            let set: Vec<_> = columns.map(|column| format!("{} = ?", column.name)).collect();
            format!("UPDATE {table} SET {} WHERE uuid = ?", set.join(", "))
        };
        let indexed = vec!["?"; R::INDEXED.len()].join(", ");
        Self {
            update_plain: update(&mut updated_columns::<R>().filter(|column| !column.is_indexed())),
            update_indexed: format!(
                "{} AND ({}) IS NOT ({indexed})",
                update(&mut updated_columns::<R>().filter(|column| column.is_indexed())),
                R::INDEXED.join(", "),
            ),
            select_by_id_locked: format!("{select_by_id} FOR UPDATE"),
            insert: format!(
                "INSERT INTO {table} ({}) VALUES ({places})",
                column_list(inserted_columns::<R>())
            ),
            update: update(&mut updated_columns::<R>()),
            delete: format!("DELETE FROM {table} WHERE uuid = ?"),
            select_by_id,
            select,
        }
    }
}

/// The columns of an INSERT: all except the lease columns.
pub(crate) fn inserted_columns<R: StoredRecord>() -> impl Iterator<Item = &'static TableColumn<R>> {
    R::COLUMNS.iter().filter(|column| column.saved)
}

/// The columns of an UPDATE: neither the lease columns nor the UUID.
pub(crate) fn updated_columns<R: StoredRecord>() -> impl Iterator<Item = &'static TableColumn<R>> {
    inserted_columns::<R>().filter(|column| column.name != "uuid")
}

/// Column names separated by commas.
pub(crate) fn column_list<R: 'static>(
    columns: impl Iterator<Item = &'static TableColumn<R>>,
) -> String {
    let mut text = String::with_capacity(1024);
    for column in columns {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(column.name);
    }
    text
}

/// Decodes the columns of `row`, starting at index `first`, into `record`.
pub(crate) fn decode_row<R: StoredRecord>(
    record: &mut R,
    columns: impl Iterator<Item = &'static TableColumn<R>>,
    row: &dyn DatabaseRow,
    first: usize,
) -> Result<(), StoreError> {
    for (index, column) in columns.enumerate() {
        let value = row.value(first + index);
        value
            .and_then(|value| (column.load)(record, value))
            .map_err(|CorruptValue| StoreError::Corrupt { table: R::TABLE, column: column.name })?;
    }
    Ok(())
}

/// Declares the columns of a record.
///
/// Each line is: variant, name, then the field, `(saved_elsewhere field)` for one that saving does
/// not write, or `(interface Kind)`.
macro_rules! columns {
    ($record:ident, $columns:ident, $table:literal, $blank:expr, {
        $($variant:ident $name:literal $access:tt;)*
    } $(, indexed $indexed:expr)?) => {
        #[doc = concat!("The columns of [`", stringify!($record), "`](node_model::", stringify!($record), ").")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $columns {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl $columns {
            /// All columns.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Name in the database and in the API.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The column with this name.
            #[must_use]
            pub fn by_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }

        impl crate::record::StoredRecord for node_model::$record {
            type Column = $columns;
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [crate::record::TableColumn<Self>] = &[$(crate::record::TableColumn {
                name: $name,
                saved: crate::record::access!(saved $access),
                bind: |record| crate::record::access!(bind record, $access),
                load: |record, value| crate::record::access!(load record, value, $access),
            }),*];
            const INDEXED: &'static [&'static str] = {
                let indexed: &[&str] = &[];
                $(let indexed: &[&str] = { let _ = indexed; $indexed };)?
                indexed
            };

            fn index(column: $columns) -> usize {
                column as usize
            }

            fn blank() -> Self {
                $blank
            }

            fn statements() -> &'static crate::record::RecordStatements {
                static STATEMENTS: std::sync::LazyLock<crate::record::RecordStatements> =
                    std::sync::LazyLock::new(crate::record::RecordStatements::of::<node_model::$record>);
                &STATEMENTS
            }
        }
    };
}
pub(crate) use columns;

/// Generates the accessors of one line of [`columns!`].
macro_rules! access {
    (saved (saved_elsewhere $field:ident)) => {
        false
    };
    (saved $access:tt) => {
        true
    };
    (bind $record:ident, (saved_elsewhere $field:ident)) => {
        crate::value::ColumnType::bind(&$record.$field)
    };
    (bind $record:ident, (interface $kind:ident)) => {
        $record
            .interfaces
            .get(node_model::InterfaceKind::$kind)
            .map_or(crate::value::SqlParam::Null, crate::value::SqlParam::Text)
    };
    (bind $record:ident, $field:ident) => {
        crate::value::ColumnType::bind(&$record.$field)
    };
    (load $record:ident, $value:ident, (saved_elsewhere $field:ident)) => {
        crate::value::ColumnType::load(&mut $record.$field, $value)
    };
    (load $record:ident, $value:ident, (interface $kind:ident)) => {{
        let implementation = match $value {
            crate::value::SqlValue::Null => None,
            crate::value::SqlValue::Int(_) | crate::value::SqlValue::Bytes(_) => {
                Some($value.text()?)
            }
        };
        // Rarely changes between the rows of a list.
        if $record.interfaces.get(node_model::InterfaceKind::$kind) != implementation {
            $record.interfaces.set(node_model::InterfaceKind::$kind, implementation);
        }
        Ok(())
    }};
    (load $record:ident, $value:ident, $field:ident) => {
        crate::value::ColumnType::load(&mut $record.$field, $value)
    };
}
pub(crate) use access;

/// Implements `StoredResource` for a record and `ResourceId` for its id.
macro_rules! resource {
    ($record:ident, $id:ident, $filter:ident, sealed_steps) => {
        crate::record::resource!(
            $record,
            $id,
            $filter,
            fn sealed(&self, key: &crate::key_ring::KeyRing) -> Option<Self> {
                crate::sealed_steps::HasStepArguments::with_sealed_steps(self, key)
            },
            fn unseal(
                &mut self,
                key: &crate::key_ring::KeyRing,
            ) -> Result<(), crate::sealing_key::SealError> {
                crate::sealed_steps::HasStepArguments::unseal_steps(self, key)
            }
        );
    };
    ($record:ident, $id:ident, $filter:ident $(, $sealing:item)*) => {
        impl crate::record::StoredResource for node_model::$record {
            type Id = node_model::$id;
            type Filter = $filter;

            fn uuid(&self) -> uuid::Uuid {
                self.id.0
            }

            fn touch(&mut self, now: node_model::Timestamp) {
                self.updated_at = Some(now);
            }

            $($sealing)*
        }

        impl crate::record::ResourceId for node_model::$id {
            type Resource = node_model::$record;

            fn uuid(self) -> uuid::Uuid {
                self.0
            }
        }
    };
}
pub(crate) use resource;
