// SPDX-License-Identifier: Apache-2.0
//! The certificate authority is stored with a sealed key.

use node_model::{Secret, Timestamp};
use store::{SealError, StoreOpenError, StoredAuthority};

use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! { authority_is_stored_and_replaced key_file_of_an_authority_is_required }

pub(crate) fn authority(certificate: &str, key: &str) -> StoredAuthority {
    StoredAuthority {
        certificate: certificate.to_owned(),
        key: Secret::new(key.to_owned()),
        expires_at: Timestamp(7),
    }
}

fn authority_is_stored_and_replaced(db: &TestDatabase) {
    assert_eq!(db.read(|r| r.certificate_authority()).unwrap(), None);
    let first = authority("a", "key");
    for given in [first.clone(), authority("ignored", "other key")] {
        db.write(move |w| w.add_certificate_authority(&given)).unwrap();
        assert_eq!(db.read(|r| r.certificate_authority()).unwrap(), Some(first.clone()));
    }
    for stored in [authority("first", "first key"), authority("second", "second key")] {
        let given = stored.clone();
        db.write(move |w| w.set_certificate_authority(&given)).unwrap();
        assert_eq!(db.read(|r| r.certificate_authority()).unwrap(), Some(stored));
    }
}

fn key_file_of_an_authority_is_required(db: &TestDatabase) {
    db.write(|w| w.set_certificate_authority(&authority("ca", "key"))).unwrap();
    std::fs::remove_file(db.settings.data_dir.join("secrets.key")).unwrap();
    match db.open_again() {
        Err(StoreOpenError::Key { source: SealError::Missing, .. }) => {}
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("opened"),
    }
}
