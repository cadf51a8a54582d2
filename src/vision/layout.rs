//! Head layouts.
