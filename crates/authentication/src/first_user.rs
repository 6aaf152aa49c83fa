// SPDX-License-Identifier: Apache-2.0
//! The first administrator of an installation with users in the store.

use std::path::Path;

use node_model::{Secret, UserAccount, UserId, UserKind};
use store::{Store, StoreError, UserColumn};

use crate::error::AuthSetupError;
use crate::htpasswd::{
    FIRST_USER, FirstPassword, first_password_file, generate_password, write_private,
};
use crate::password::hash_password;

/// Creates the user `admin` with the role `admin@system` if the store has no users. The password in
/// clear text is written to `password_file`, or to another file beside it if that may have the password of a
/// user in the htpasswd file.
pub(crate) async fn ensure(
    store: &Store,
    password_file: &Path,
) -> Result<Option<FirstPassword>, AuthSetupError> {
    if !has_no_users(store).await? {
        return Ok(None);
    }
    let has_htpasswd = password_file.with_file_name("htpasswd").exists();
    let password_file = &first_password_file(password_file, "local", has_htpasswd);
    let password = generate_password()?;
    let hash = hash_password(&password)?;
    // Password first: after a crash in between, the next start generates both again.
    write_private(password_file, &format!("{}\n", password.reveal()))
        .map_err(|source| AuthSetupError::Create { path: password_file.to_owned(), source })?;
    if insert_admin(store, hash).await? {
        return Ok(Some(FirstPassword { user: FIRST_USER, path: password_file.to_owned() }));
    }
    // Another replica was faster, and its data directory has the password.
    let _ = std::fs::remove_file(password_file);
    Ok(None)
}

pub(crate) async fn has_no_users(store: &Store) -> Result<bool, StoreError> {
    store.read(|reader| Ok(reader.count::<UserAccount>(&store::UserFilter)? == 0)).await
}

/// Returns false if the user exists.
async fn insert_admin(store: &Store, hash: Secret<String>) -> Result<bool, StoreError> {
    let inserted = store
        .write(move |writer| {
            if writer.find::<UserAccount>(UserColumn::Name, FIRST_USER)?.is_some() {
                return Ok(false);
            }
            let user = UserAccount {
                id: UserId::random(),
                name: FIRST_USER.to_owned(),
                kind: UserKind::Human,
                created_at: writer.now(),
                updated_at: None,
                description: Some("Created on first start".to_owned()),
                enabled: true,
                password_hash: Some(hash.clone()),
                default_project: None,
            };
            writer.insert(&user)?;
            let role = node_model::RoleAssignment {
                role: "admin".to_owned(),
                scope: node_model::AccessScope::System,
            };
            writer.set_role_assignments(user.id, &[role])?;
            Ok(true)
        })
        .await;
    match inserted {
        Err(StoreError::Duplicate { .. }) => Ok(false),
        other => other,
    }
}
