// SPDX-License-Identifier: Apache-2.0
//! Macro that defines a namespaced kind and implements `kube_core::Resource` for it.

/// Defines the struct of a kind with `metadata`, `spec` and, if given, `status`.
///
/// `kube_core::Resource` is not derived: the derive macro would also generate a CRD, and ours are
/// data. A missing `metadata`, `spec` or `status` is read as its default.
macro_rules! namespaced_kind {
    (
        $(#[$documentation:meta])*
        pub struct $name:ident in $group:literal / $version:literal, plural $plural:literal {
            spec: $spec:ty
            $(, status: $status:ty)? $(,)?
        }
    ) => {
        $(#[$documentation])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            /// Name, namespace, labels, annotations, finalizers and owners.
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// Requested state.
            pub spec: $spec,
            $(
                /// Observed state; `None` until a controller writes it.
                pub status: Option<$status>,
            )?
        }

        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = kube_core::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        // Server-side apply needs `apiVersion` and `kind`, which a derived implementation would not
        // write.
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut object = serializer.serialize_map(None)?;
                object.serialize_entry("apiVersion", concat!($group, "/", $version))?;
                object.serialize_entry("kind", stringify!($name))?;
                object.serialize_entry("metadata", &self.metadata)?;
                object.serialize_entry("spec", &self.spec)?;
                $(
                    if let Some(status) = &self.status {
                        let status: &$status = status;
                        object.serialize_entry("status", status)?;
                    }
                )?
                object.end()
            }
        }
    };
}

pub(crate) use namespaced_kind;
