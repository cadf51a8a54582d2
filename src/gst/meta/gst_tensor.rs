//! A model's outputs as GstTensorMeta, which GStreamer has since 1.26, for its own tensor decoders and whoever else reads it.

use crate::core::error::{Error, Result};
use crate::core::tensor::Tensors;
use crate::model::ModelInfo;

/// What `tensor-meta` says where it cannot be had.
#[cfg(not(feature = "v1_26"))]
pub fn check() -> Result<()> {
    Err(Error::new(crate::core::error::ErrorKind::Settings, "This plugin was built without GstTensorMeta")
        .remedy("Build it with --features v1_26, for GStreamer 1.26 or later, or leave tensor-meta unset"))
}

#[cfg(feature = "v1_26")]
pub fn check() -> Result<()> {
    Ok(())
}

#[cfg(not(feature = "v1_26"))]
pub fn attach(_buffer: &mut gst::BufferRef, _tensors: &Tensors, _model: &ModelInfo) -> Result<()> {
    check()
}

/// Attaches a model's tensors in system memory: those on the host as they are, those on a GPU as copies.
///
/// Decoders know a tensor by its id. As for GStreamer's onnxinference, it is what the file's metadata has under the tensor's name,
/// such as `Gst.ModelInfo.ObjectDetector.Boxes`; else the name itself.
///
/// # Errors
/// `Run`, where the GPU fails.
#[cfg(feature = "v1_26")]
pub fn attach(buffer: &mut gst::BufferRef, tensors: &Tensors, model: &ModelInfo) -> Result<()> {
    use gst::glib;
    use gst_analytics::{Tensor, TensorDataType, TensorDimOrder, TensorMeta};

    use crate::core::memory::HostBlock;
    use crate::core::tensor::DType;

    /// Keeps the tensor's memory as long as GStreamer's is there.
    struct Bytes(HostBlock);
    impl AsRef<[u8]> for Bytes {
        fn as_ref(&self) -> &[u8] {
            self.0.bytes()
        }
    }

    tensors.wait()?;
    let published = tensors.iter().map(|tensor| {
        let desc = tensor.desc();
        let dtype = match desc.dtype {
            DType::F32 => TensorDataType::Float32,
            DType::F16 => TensorDataType::Float16,
            DType::U8 | DType::Bool => TensorDataType::Uint8,
            DType::I8 => TensorDataType::Int8,
            DType::I32 => TensorDataType::Int32,
            DType::I64 => TensorDataType::Int64,
        };
        let data = match (tensor.host(), tensor.device()) {
            (Some(block), _) => gst::Buffer::from_slice(Bytes(block.clone())),
            (_, Some(block)) => gst::Buffer::from_slice(block.read()?),
            (None, None) => unreachable!("a tensor is somewhere"),
        };
        let dims: Vec<usize> = desc.dims.iter().map(|&dim| dim as usize).collect();
        let id = glib::Quark::from_str(model.metadata.get(&desc.name).unwrap_or(&desc.name));
        Ok::<_, Error>(Tensor::new_simple(id, dtype, data, TensorDimOrder::RowMajor, &dims))
    });
    let published = published.collect::<Result<Vec<_>>>()?;
    TensorMeta::add(buffer).set(published.into());
    Ok(())
}
