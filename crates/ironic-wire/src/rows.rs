// SPDX-License-Identifier: Apache-2.0
//! Rows that many field tables share, as macros because each names a member of another type.

/// `uuid`: given on creation, or random.
macro_rules! uuid_row {
    ($resource:ty, $since:literal, |$draft:ident| $id:expr) => {
        Field::<$resource>::new("uuid", $since, Shape::Uuid, |w, it, _| w.uuid(it.id.0))
            .needs(&["uuid"])
            .sortable()
            .listed()
            .created(|$draft, value, _| {
                if let Some(id) = $crate::value::uuid(&value)? {
                    $id = id;
                }
                Ok(())
            })
    };
}

/// `created_at`.
macro_rules! created_at_row {
    ($resource:ty, $since:literal) => {
        Field::<$resource>::new("created_at", $since, Shape::Moment, |w, it, _| {
            w.timestamp(it.created_at);
        })
        .needs(&["created_at"])
        .sortable()
    };
}

/// `updated_at`.
macro_rules! updated_at_row {
    ($resource:ty, $since:literal) => {
        Field::<$resource>::new("updated_at", $since, Shape::Moment, |w, it, _| {
            w.optional_timestamp(it.updated_at);
        })
        .nullable()
        .needs(&["updated_at"])
        .sortable()
    };
}

/// `links`.
macro_rules! links_row {
    ($resource:ty, $since:literal) => {
        Field::<$resource>::new("links", $since, Shape::Links, |w, it, context| {
            context.links(w, <$resource>::PATH, it.identity(), "");
        })
        .needs(&["uuid"])
        .listed()
    };
}

/// A nullable text member of the same name.
macro_rules! text_row {
    ($resource:ty, $name:literal, $since:literal, $member:ident) => {
        Field::<$resource>::new($name, $since, Shape::Text, |w, it, _| {
            w.optional_string(it.$member.as_deref());
        })
        .nullable()
        .needs(&[$name])
        .sortable()
    };
}

/// A text member that is never null.
macro_rules! whole_text_row {
    ($resource:ty, $name:literal, $since:literal, $member:ident) => {
        Field::<$resource>::new($name, $since, Shape::Text, |w, it, _| w.string(&it.$member))
            .needs(&[$name])
            .sortable()
    };
}

/// A flag of the same name.
macro_rules! flag_row {
    ($resource:ty, $name:literal, $since:literal, $member:ident) => {
        Field::<$resource>::new($name, $since, Shape::Flag, |w, it, _| w.boolean(it.$member))
            .needs(&[$name])
            .sortable()
    };
}

/// A free-form object of the same name.
macro_rules! object_row {
    ($resource:ty, $name:literal, $since:literal, $member:ident) => {
        Field::<$resource>::new($name, $since, Shape::Object, |w, it, _| w.object(&it.$member))
            .needs(&[$name])
    };
}

/// `node_uuid`, which must be given.
macro_rules! node_uuid_row {
    ($resource:ty, $since:literal, |$draft:ident| $id:expr) => {
        Field::<$resource>::new("node_uuid", $since, Shape::Uuid, |w, it, _| w.uuid(it.node_id.0))
            .needs(&["node_uuid"])
            .written(|$draft, value, _| {
                $id = $crate::value::mandatory_uuid(&value)?;
                Ok(())
            })
    };
}

pub(crate) use {
    created_at_row, flag_row, links_row, node_uuid_row, object_row, text_row, updated_at_row,
    uuid_row, whole_text_row,
};
