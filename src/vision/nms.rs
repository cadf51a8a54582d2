//! Suppression.
