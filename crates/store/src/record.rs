// SPDX-License-Identifier: Apache-2.0
//! One table of columns per record, from which every SELECT, INSERT, UPDATE and decoding is made.

use std::marker::PhantomData;

use node_model::Timestamp;
use uuid::Uuid;

use crate::engine::Row;
use crate::error::Error;
use crate::query::Where;
use crate::value::{Damaged, Param, Value};
use crate::vault::{Vault, VaultError};

/// A column and the field of `R` it stands for.
pub struct Column<R: 'static> {
    /// Its name in the database, which is also the API's name of the field.
    pub name: &'static str,
    /// Whether saving the record writes it. The lease has its own statements.
    pub saved: bool,
    /// The field as a value to store.
    pub bind: for<'a> fn(&'a R) -> Param<'a>,
    /// Puts the stored value into the field.
    pub load: fn(&mut R, Value<'_>) -> Result<(), Damaged>,
}

/// Something that is a row of a table.
pub trait Record: Sized + Send + 'static {
    /// Names the columns.
    type Column: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static;
    /// The table.
    const TABLE: &'static str;
    /// The columns, in the order of `Self::Column`'s variants.
    const COLUMNS: &'static [Column<Self>];
    /// Columns with an index of their own, if rewriting the indexes is worth avoiding.
    const INDEXED: &'static [&'static str];

    /// The place of a column in `COLUMNS`.
    fn index(column: Self::Column) -> usize;
    /// A record to decode into, every field at its default.
    fn blank() -> Self;
    /// The statements about whole records, made once.
    fn statements() -> &'static Statements;
}

/// A record with an id of its own.
///
/// Implemented by the store for everything it keeps; not meant to be implemented elsewhere.
pub trait Resource: Record {
    /// The type of its id.
    type Id: Identifies<Of = Self>;
    /// What a list of it can be narrowed by.
    type Filter: Filter + Default + Clone + std::fmt::Debug + Send + Sync;

    /// Its id.
    fn uuid(&self) -> Uuid;
    /// Notes that it changes now.
    fn touch(&mut self, now: Timestamp);

    /// How it is written, if it must not be written as it is.
    fn sealed(&self, _vault: &Vault) -> Option<Self> {
        None
    }

    /// Turns what was written into what it means.
    fn unseal(&mut self, _vault: &Vault) -> Result<(), VaultError> {
        Ok(())
    }
}

/// An id, which knows what it identifies: `get(port_id)` can only give a port.
pub trait Identifies: Copy + Send {
    /// The resource.
    type Of: Resource<Id = Self>;

    /// The plain id.
    fn uuid(self) -> Uuid;
}

/// What a list is narrowed by.
pub trait Filter {
    /// Adds its conditions to a statement.
    fn conditions<'a>(&'a self, to: &mut Where<'a>);
}

/// A set of a record's columns: what a list needs, and therefore loads.
pub struct Columns<R> {
    bits: u128,
    of: PhantomData<fn() -> R>,
}

/// Statements about whole records.
pub struct Statements {
    /// `SELECT every column FROM the table`.
    pub select: String,
    /// The same for one id.
    pub select_by_id: String,
    /// The same, locking the row.
    pub select_by_id_locked: String,
    /// Insert a record.
    pub insert: String,
    /// Change the record with an id.
    pub update: String,
    /// Change its columns without an index.
    pub update_plain: String,
    /// Change its columns with an index, if any of them differs. SQLite only.
    pub update_indexed: String,
    /// Remove the record with an id.
    pub delete: String,
}

// === impl Column ===

impl<R: Record> Column<R> {
    pub(crate) fn is_indexed(&self) -> bool {
        R::INDEXED.contains(&self.name)
    }
}

// === impl Columns ===

impl<R: Record> Columns<R> {
    /// Every column.
    pub const ALL: Self = Self { bits: u128::MAX, of: PhantomData };

    /// These columns.
    #[must_use]
    pub fn of(columns: &[R::Column]) -> Self {
        columns.iter().fold(Self { bits: 0, of: PhantomData }, |set, column| set.with(*column))
    }

    /// These and one more.
    #[must_use]
    pub fn with(self, column: R::Column) -> Self {
        Self { bits: self.bits | 1 << R::index(column), of: PhantomData }
    }

    /// Whether `column` is among them.
    #[must_use]
    pub fn contains(self, column: R::Column) -> bool {
        self.bits & 1 << R::index(column) != 0
    }

    pub(crate) fn columns(self) -> impl Iterator<Item = &'static Column<R>> {
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

impl Statements {
    /// The statements of `R`.
    pub fn of<R: Record>() -> Self {
        let table = R::TABLE;
        let select = format!("SELECT {} FROM {table}", names(R::COLUMNS.iter()));
        let select_by_id = format!("{select} WHERE uuid = ?");
        let places = vec!["?"; written::<R>().count()].join(", ");
        let update = |columns: &mut dyn Iterator<Item = &'static Column<R>>| {
            let set: Vec<_> = columns.map(|column| format!("{} = ?", column.name)).collect();
            format!("UPDATE {table} SET {} WHERE uuid = ?", set.join(", "))
        };
        let indexed = vec!["?"; R::INDEXED.len()].join(", ");
        Self {
            update_plain: update(&mut saved::<R>().filter(|column| !column.is_indexed())),
            update_indexed: format!(
                "{} AND ({}) IS NOT ({indexed})",
                update(&mut saved::<R>().filter(|column| column.is_indexed())),
                R::INDEXED.join(", "),
            ),
            select_by_id_locked: format!("{select_by_id} FOR UPDATE"),
            insert: format!("INSERT INTO {table} ({}) VALUES ({places})", names(written::<R>())),
            update: update(&mut saved::<R>()),
            delete: format!("DELETE FROM {table} WHERE uuid = ?"),
            select_by_id,
            select,
        }
    }
}

/// The columns that adding a record writes: not the lease.
pub(crate) fn written<R: Record>() -> impl Iterator<Item = &'static Column<R>> {
    R::COLUMNS.iter().filter(|column| column.saved)
}

/// The columns that saving a record writes: neither the lease nor what never changes.
pub(crate) fn saved<R: Record>() -> impl Iterator<Item = &'static Column<R>> {
    written::<R>().filter(|column| column.name != "uuid")
}

/// Column names with commas between.
pub(crate) fn names<R: 'static>(columns: impl Iterator<Item = &'static Column<R>>) -> String {
    let mut text = String::with_capacity(1024);
    for column in columns {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(column.name);
    }
    text
}

/// Decodes the columns of `row`, starting at its `first` one, into `record`.
pub(crate) fn load<R: Record>(
    record: &mut R,
    columns: impl Iterator<Item = &'static Column<R>>,
    row: &dyn Row,
    first: usize,
) -> Result<(), Error> {
    for (index, column) in columns.enumerate() {
        let value = row.value(first + index);
        value
            .and_then(|value| (column.load)(record, value))
            .map_err(|Damaged| Error::Corrupt { table: R::TABLE, column: column.name })?;
    }
    Ok(())
}

/// Declares the columns of a record.
///
/// Each line is: variant, name, then the field, or `(saved-elsewhere field)` for one that saving
/// leaves alone, or `(interface Kind)`.
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
            /// Every column.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its name, in the database and in the API.
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

        impl crate::record::Record for node_model::$record {
            type Column = $columns;
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [crate::record::Column<Self>] = &[$(crate::record::Column {
                name: $name,
                saved: crate::record::access!(saved $access),
                bind: |record| crate::record::access!(bind record, $access),
                load: |record, value| crate::record::access!(load record, value, $access),
            }),*];
            const INDEXED: &'static [&'static str] = {
                let none: &[&str] = &[];
                $(let none: &[&str] = { let _ = none; $indexed };)?
                none
            };

            fn index(column: $columns) -> usize {
                column as usize
            }

            fn blank() -> Self {
                $blank
            }

            fn statements() -> &'static crate::record::Statements {
                static MADE: std::sync::LazyLock<crate::record::Statements> =
                    std::sync::LazyLock::new(crate::record::Statements::of::<node_model::$record>);
                &MADE
            }
        }
    };
}
pub(crate) use columns;

/// How one line of [`columns!`] is read and written.
macro_rules! access {
    (saved (saved_elsewhere $field:ident)) => {
        false
    };
    (saved $access:tt) => {
        true
    };
    (bind $record:ident, (saved_elsewhere $field:ident)) => {
        crate::value::Field::bind(&$record.$field)
    };
    (bind $record:ident, (interface $kind:ident)) => {
        $record
            .interfaces
            .get(node_model::InterfaceKind::$kind)
            .map_or(crate::value::Param::Null, crate::value::Param::Text)
    };
    (bind $record:ident, $field:ident) => {
        crate::value::Field::bind(&$record.$field)
    };
    (load $record:ident, $value:ident, (saved_elsewhere $field:ident)) => {
        crate::value::Field::load(&mut $record.$field, $value)
    };
    (load $record:ident, $value:ident, (interface $kind:ident)) => {{
        let implementation = match $value {
            crate::value::Value::Null => None,
            crate::value::Value::Int(_) | crate::value::Value::Bytes(_) => Some($value.text()?),
        };
        // Mostly the same from row to row of a list.
        if $record.interfaces.get(node_model::InterfaceKind::$kind) != implementation {
            $record.interfaces.set(node_model::InterfaceKind::$kind, implementation);
        }
        Ok(())
    }};
    (load $record:ident, $value:ident, $field:ident) => {
        crate::value::Field::load(&mut $record.$field, $value)
    };
}
pub(crate) use access;

/// Makes a record a resource: its id, its filter, and whether it remembers when it changed.
macro_rules! resource {
    ($record:ident, $id:ident, $filter:ident $(, $sealing:item)*) => {
        impl crate::record::Resource for node_model::$record {
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

        impl crate::record::Identifies for node_model::$id {
            type Of = node_model::$record;

            fn uuid(self) -> uuid::Uuid {
                self.0
            }
        }
    };
}
pub(crate) use resource;
