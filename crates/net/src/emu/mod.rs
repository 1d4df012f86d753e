//! Links, namespaces.
