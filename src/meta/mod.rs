//! What our elements hang on buffers: tensors for each other, detections for everybody.

pub mod detection;
pub mod gst_tensor;
pub mod slots;
pub mod tensor;
