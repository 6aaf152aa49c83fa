// SPDX-License-Identifier: Apache-2.0
//! `GET`, `POST`, `PATCH` and `DELETE` of resources that only change the database.
//!
//! A change is checked and made in one transaction. Changes of a node's resources are recorded in the
//! node's journal.

use std::sync::Arc;

use ironic_wire::{Patch, QueryParams, ResourceDraft, WireError, WritableResource, params};
use node_model::NodeId;
use store::{StoreWriter, StoredResource};

use super::node_resources::record_change;
use super::resource::{self, ApiResource, ResourceIdent};
use crate::server::access::CallerAccess;
use crate::server::{ApiError, ApiRequest, ApiResponse, ReplaceDuplicate};

/// The rules of a resource that is created, changed and deleted by this module.
pub(crate) trait CrudResource: ApiResource + WritableResource<Draft: Send> {
    /// Name of its path parameter.
    const PATH_PARAM: &'static str;
    /// The query parameters of `GET` of one resource.
    const SHOW_PARAMS: QueryParams = params::ONE_WITH_FIELDS;
    /// Whether the fields of a patch are checked before the resource is looked up, so that 400 and
    /// 406 take precedence over 404, as in Ironic.
    const CHECKS_PATCH_FIRST: bool = false;

    /// The resource to insert. Fails if the request conflicts with other records.
    fn to_insert(
        writer: &mut StoreWriter<'_>,
        drafted: &ResourceDraft<Self>,
        request: &ApiRequest,
    ) -> Result<Self, ApiError>;

    /// The draft that a patch is applied to.
    fn to_draft(&self, writer: &mut StoreWriter<'_>) -> Result<Self::Draft, ApiError>;

    /// The resource to save. Fails if the change conflicts with other records or with its state.
    fn to_save(
        writer: &mut StoreWriter<'_>,
        before: Self,
        drafted: ResourceDraft<Self>,
        patch: &Patch,
        request: &ApiRequest,
    ) -> Result<Self, ApiError>;

    /// Fails with 403 if the caller may not change one of the fields. For resources whose fields have
    /// policy rules of their own.
    fn check_patch(&self, _patch: &Patch, _access: &CallerAccess) -> Result<(), WireError> {
        Ok(())
    }

    /// Fails if the resource must not be deleted.
    fn check_delete(&self, _writer: &mut StoreWriter<'_>) -> Result<(), ApiError> {
        Ok(())
    }

    /// The error for a value of `field` that another record already has.
    fn already_exists(&self, field: &str) -> WireError;

    /// The node whose journal records changes, and the field recorded there.
    fn journal_field(&self) -> Option<(NodeId, &'static str)> {
        None
    }
}

/// `GET` of a resource.
pub(crate) async fn show<R: CrudResource>(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    resource::show::<R>(request, R::PATH_PARAM, R::SHOW_PARAMS).await
}

/// `POST` to a collection.
pub(crate) async fn create<R: CrudResource>(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let drafted = ironic_wire::create::<R>(&request.body, request.version, request.now())?;
    let request = Arc::new(request);
    let context = Arc::clone(&request);
    let resource = request
        .app
        .store
        .write(move |writer| {
            let resource = R::to_insert(writer, &drafted, &context)?;
            writer.insert(&resource).on_duplicate(|field| resource.already_exists(field))?;
            record(writer, &resource, &context);
            Ok::<_, ApiError>(resource)
        })
        .await?;
    Ok(resource::created(&request, &resource))
}

/// `PATCH` of a resource.
pub(crate) async fn update<R: CrudResource>(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let patch = Patch::parse(&request.body)?;
    if R::CHECKS_PATCH_FIRST {
        patch.check::<R>(request.version)?;
    }
    let ident = ResourceIdent::from_path(&request, R::PATH_PARAM);
    let request = Arc::new(request);
    let context = Arc::clone(&request);
    let resource = request
        .app
        .store
        .write(move |writer| {
            let before: R = ident.find(writer)?;
            before.check_patch(&patch, &context.access)?;
            let drafted = patch.apply::<R>(before.to_draft(writer)?, context.version)?;
            let mut resource = R::to_save(writer, before, drafted, &patch, &context)?;
            writer.save(&mut resource).on_duplicate(|field| resource.already_exists(field))?;
            record(writer, &resource, &context);
            Ok::<_, ApiError>(resource)
        })
        .await?;
    Ok(resource::changed(&request, &resource))
}

/// `DELETE` of a resource.
pub(crate) async fn delete<R: CrudResource>(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, R::PATH_PARAM);
    let store = request.app.store.clone();
    store
        .write(move |writer| {
            let resource: R = ident.find(writer)?;
            resource.check_delete(writer)?;
            writer.delete(R::id(StoredResource::uuid(&resource)))?;
            record(writer, &resource, &request);
            Ok::<_, ApiError>(())
        })
        .await?;
    Ok(ApiResponse::no_content())
}

fn record<R: CrudResource>(writer: &mut StoreWriter<'_>, resource: &R, request: &ApiRequest) {
    if let Some((node_id, field)) = resource.journal_field() {
        record_change(writer, node_id, field, request);
    }
}
