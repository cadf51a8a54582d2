//! Frame to tensor in one pass.
