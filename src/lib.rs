//! GStreamer elements that detect objects: `trtpreprocess ! trtinfer ! trtnms`.

pub mod error;
pub mod tensor;
pub mod vision;
