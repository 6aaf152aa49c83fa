// SPDX-License-Identifier: Apache-2.0
//! Rows shared by several field tables. Macros, because each accesses a member of another type.

/// `uuid`: given on creation, random by default.
macro_rules! uuid_row {
    ($resource:ty, $since:literal, |$draft:ident| $id:expr) => {
        ResourceField::<$resource>::new("uuid", $since, FieldShape::Uuid, |w, it, _| {
            w.uuid(it.id.0)
        })
        .columns(&["uuid"])
        .sortable()
        .listed()
        .creatable(|$draft, value, _| {
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
        ResourceField::<$resource>::new("created_at", $since, FieldShape::Timestamp, |w, it, _| {
            w.timestamp(it.created_at);
        })
        .columns(&["created_at"])
        .sortable()
    };
}

/// `updated_at`.
macro_rules! updated_at_row {
    ($resource:ty, $since:literal) => {
        ResourceField::<$resource>::new("updated_at", $since, FieldShape::Timestamp, |w, it, _| {
            w.optional_timestamp(it.updated_at);
        })
        .nullable()
        .columns(&["updated_at"])
        .sortable()
    };
}

/// `links`.
macro_rules! links_row {
    ($resource:ty, $since:literal) => {
        ResourceField::<$resource>::new("links", $since, FieldShape::Links, |w, it, context| {
            context.links(w, <$resource>::PATH, it.identity(), "");
        })
        .columns(&["uuid"])
        .listed()
    };
}

/// A nullable text with the name of its struct field.
macro_rules! text_row {
    ($resource:ty, $name:literal, $since:literal, $member:ident) => {
        ResourceField::<$resource>::new($name, $since, FieldShape::Text, |w, it, _| {
            w.optional_string(it.$member.as_deref());
        })
        .nullable()
        .columns(&[$name])
        .sortable()
    };
}

/// A text that is never null.
macro_rules! non_null_text_row {
    ($resource:ty, $name:literal, $since:literal, $member:ident) => {
        ResourceField::<$resource>::new($name, $since, FieldShape::Text, |w, it, _| {
            w.string(&it.$member)
        })
        .columns(&[$name])
        .sortable()
    };
}

/// A boolean with the name of its struct field.
macro_rules! flag_row {
    ($resource:ty, $name:literal, $since:literal, $member:ident) => {
        ResourceField::<$resource>::new($name, $since, FieldShape::Boolean, |w, it, _| {
            w.boolean(it.$member)
        })
        .columns(&[$name])
        .sortable()
    };
}

/// A free-form object with the name of its struct field.
macro_rules! object_row {
    ($resource:ty, $name:literal, $since:literal, $member:ident) => {
        ResourceField::<$resource>::new($name, $since, FieldShape::Object, |w, it, _| {
            // Secrets are rejected, but an older process may have stored them in plain text.
            w.object(&node_model::mask_secrets(&it.$member))
        })
        .columns(&[$name])
    };
}

/// `node_uuid`, which cannot be null.
macro_rules! node_uuid_row {
    ($resource:ty, $since:literal, |$draft:ident| $id:expr) => {
        ResourceField::<$resource>::new("node_uuid", $since, FieldShape::Uuid, |w, it, _| {
            w.uuid(it.node_id.0)
        })
        .columns(&["node_uuid"])
        .writable(|$draft, value, _| {
            $id = $crate::value::mandatory_uuid(&value)?;
            Ok(())
        })
    };
}

pub(crate) use {
    created_at_row, flag_row, links_row, node_uuid_row, non_null_text_row, object_row, text_row,
    updated_at_row, uuid_row,
};
