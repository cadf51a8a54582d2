//! One typed launch per kernel. Each has its Rust twin in [`vision`](crate::vision), to which it is equal in every bit.
//!
//! A kernel takes one structure by value, mirrored here field by field. The sources are in `kernels/`; `kernels/build.sh`
//! compiles them to the PTX that is embedded here.
