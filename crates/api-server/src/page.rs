// SPDX-License-Identifier: Apache-2.0
//! The web page's files, for whoever asks: they hold nothing secret.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use ironic_wire::WireError;
use web_ui::{Asset, Keep};

use crate::call::Call;
use crate::handler;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Access, Route, UNVERSIONED};

/// Nothing from elsewhere, no script or style but our files, and nobody may put us in a frame.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";

const HEADERS: &[(HeaderName, &str)] = &[
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (VARY, "Accept-Encoding"),
];

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/ui", "Show the web page", handler!(index))
        .since(UNVERSIONED)
        .access(Access::Public),
    Route::get("/ui/{*file}", "Show a file of the web page, or the page itself", handler!(file))
        .since(UNVERSIONED)
        .access(Access::Public),
];

async fn index(call: Call) -> Result<Reply, Refusal> {
    Ok(sent(&call, web_ui::index(), Keep::AskAgain))
}

/// Addresses of views are the page's own business; what looks like a file and is none is missing.
async fn file(call: Call) -> Result<Reply, Refusal> {
    let path = call.param("file");
    if let Some((asset, keep)) = web_ui::asset(path) {
        return Ok(sent(&call, asset, keep));
    }
    let is_files = path.starts_with('@')
        || ["app/", "style/", "vendor/"].iter().any(|folder| path.starts_with(folder));
    if is_files {
        return Err(WireError::router(404, "The web page has no such file.").into());
    }
    Ok(sent(&call, web_ui::index(), Keep::AskAgain))
}

fn sent(call: &Call, asset: &'static Asset, keep: Keep) -> Reply {
    let keep = match keep {
        Keep::ForGood => "public, max-age=31536000, immutable",
        Keep::AskAgain => "no-cache",
    };
    let known = call.page.if_none_match.as_deref().is_some_and(|known| known.contains(&asset.etag));
    let mut reply = if known {
        Reply::empty(StatusCode::NOT_MODIFIED)
    } else if call.page.accepts_gzip {
        whole(asset, Bytes::from_static(&asset.gzip))
            .with_header(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
    } else {
        whole(asset, Bytes::from_static(&asset.plain))
    };
    reply.headers.extend(
        HEADERS.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))),
    );
    let etag = HeaderValue::try_from(&asset.etag).expect("quoted digits are a valid header value");
    reply.with_header(ETAG, etag).with_header(CACHE_CONTROL, HeaderValue::from_static(keep))
}

fn whole(asset: &Asset, body: Bytes) -> Reply {
    Reply::with_bytes(StatusCode::OK, HeaderValue::from_static(asset.content_type), body)
}
