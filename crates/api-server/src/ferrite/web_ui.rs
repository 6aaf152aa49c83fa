// SPDX-License-Identifier: Apache-2.0
//! Files of the web UI. They contain no secrets and need no authentication.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use ironic_wire::WireError;
use web_ui::{AssetCaching, WebUiAsset};

use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, RouteAccess, UNVERSIONED};

/// Only our own files, no inline scripts or styles, no frames.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";

const HEADERS: &[(HeaderName, &str)] = &[
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (VARY, "Accept-Encoding"),
];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/ui", "Show the web UI", handler!(index))
        .since(UNVERSIONED)
        .access(RouteAccess::Public),
    ApiRoute::get("/ui/{*file}", "Show a file or a page of the web UI", handler!(file))
        .since(UNVERSIONED)
        .access(RouteAccess::Public),
];

async fn index(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    Ok(asset_response(&request, web_ui::index(), AssetCaching::Revalidate))
}

/// Serves a file. All other paths are pages of the web UI, which routes them itself; missing files fail
/// with 404.
async fn file(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let path = request.param("file");
    if let Some((asset, caching)) = web_ui::asset(path) {
        return Ok(asset_response(&request, asset, caching));
    }
    let is_file = path.starts_with('@')
        || ["app/", "style/", "vendor/"].iter().any(|folder| path.starts_with(folder));
    if is_file {
        return Err(WireError::router(404, "The web UI has no such file.").into());
    }
    Ok(asset_response(&request, web_ui::index(), AssetCaching::Revalidate))
}

fn asset_response(
    request: &ApiRequest,
    asset: &'static WebUiAsset,
    caching: AssetCaching,
) -> ApiResponse {
    let cache_control = match caching {
        AssetCaching::Immutable => "public, max-age=31536000, immutable",
        AssetCaching::Revalidate => "no-cache",
    };
    let is_current =
        request.browser.if_none_match.as_deref().is_some_and(|etags| etags.contains(&asset.etag));
    let mut response = if is_current {
        ApiResponse::empty(StatusCode::NOT_MODIFIED)
    } else if request.browser.accepts_gzip {
        full_response(asset, Bytes::from_static(&asset.gzip))
            .with_header(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
    } else {
        full_response(asset, Bytes::from_static(&asset.plain))
    };
    response.headers.extend(
        HEADERS.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))),
    );
    let etag = HeaderValue::try_from(&asset.etag).expect("quoted digits are a valid header value");
    response
        .with_header(ETAG, etag)
        .with_header(CACHE_CONTROL, HeaderValue::from_static(cache_control))
}

fn full_response(asset: &WebUiAsset, body: Bytes) -> ApiResponse {
    ApiResponse::with_bytes(StatusCode::OK, HeaderValue::from_static(asset.content_type), body)
}
