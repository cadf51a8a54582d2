// SPDX-License-Identifier: MPL-2.0
//! A model's outputs as GstTensorMeta, which GStreamer has since 1.26, for its own tensor decoders and for applications.

use TensorDimOrder::{ColMajor, RowMajor};
use gst::glib;
use gst::glib::translate::{IntoGlib, IntoGlibPtr};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::heads;
use gsttrt_core::memory::HostBlock;
use gsttrt_core::model::ModelInfo;
use gsttrt_core::tensor::{DType, Dims, TensorDesc, Tensors};

use crate::gst::analytics::{self, GstTensor, TensorFunctions};
use crate::gst::caps;

/// GStreamer's names of a model's outputs.
pub struct PublishedOutputs {
    functions: &'static TensorFunctions,
    /// The outputs whose id is not their name, or whose order is not row-major.
    named: Vec<NamedOutput>,
    /// Caps with nothing but the field `tensors`.
    tensors: Option<gst::Caps>,
    /// An output that a decoder would read if it were float32.
    unreadable: Option<TensorDesc>,
}

/// GstTensorDimOrder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum TensorDimOrder {
    RowMajor = 0,
    ColMajor = 1,
}

/// What a decoder of GStreamer reads: it recognises a tensor by its id, and from 1.28 on a head by the group in the
/// caps.
struct DecoderInput {
    /// The head that it decodes.
    head: &'static str,
    /// The first GStreamer of which this is true.
    since: (u32, u32, u32),
    /// `None` where caps do not name the tensors yet.
    group: Option<&'static str>,
    /// In the order of the head's outputs.
    ids: &'static [&'static str],
    order: TensorDimOrder,
    /// Whether caps must leave the number of boxes open.
    open_rows: bool,
}

/// The later of two rows for a head replaces the earlier.
const DECODERS: [DecoderInput; 5] = [
    DecoderInput {
        head: "yolov8",
        since: (1, 26, 0),
        group: Some("yolo-v8-out"),
        ids: &["yolo-v8-out"],
        order: RowMajor,
        open_rows: false,
    },
    // The bytes are the same: yolov8tensordec uses this id since 1.28.1.
    DecoderInput {
        head: "yolov8",
        since: (1, 28, 1),
        group: Some("yolo-v8-out"),
        ids: &["yolo-v8-out"],
        order: ColMajor,
        open_rows: false,
    },
    DecoderInput {
        head: "end-to-end",
        since: (1, 26, 0),
        group: Some("yolo-26-end2end-out"),
        ids: &["yolo-26-end2end-out"],
        order: RowMajor,
        open_rows: false,
    },
    DecoderInput {
        head: "ssd",
        since: (1, 26, 0),
        group: None,
        ids: &[
            "Gst.Model.ObjectDetector.Boxes",
            "Gst.Model.ObjectDetector.Classes",
            "Gst.Model.ObjectDetector.Scores",
            "Gst.Model.ObjectDetector.NumDetections",
        ],
        order: RowMajor,
        open_rows: false,
    },
    DecoderInput {
        head: "ssd",
        since: (1, 28, 0),
        group: Some("ssd-mobilenet-v1-variant-1-out"),
        ids: &[
            "ssd-mobilenet-v1-variant-1-out-boxes",
            "ssd-mobilenet-v1-variant-1-out-classes",
            "ssd-mobilenet-v1-variant-1-out-scores",
            "generic-variant-1-out-count",
        ],
        order: RowMajor,
        // ssdtensordec takes no other caps until 1.28.8.
        open_rows: true,
    },
];

/// What the decoder of a head reads in that version of GStreamer.
fn decoder_of(head: &str, version: (u32, u32, u32)) -> Option<&'static DecoderInput> {
    DECODERS.iter().rev().find(|decoder| decoder.head == head && decoder.since <= version)
}

/// GstTensorDataType.
fn data_type(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 11,
        DType::F16 => 10,
        DType::U8 | DType::Bool => 6,
        DType::I8 => 1,
        DType::I32 => 3,
        DType::I64 => 4,
        _ => unreachable!("the core of this release has no other types"),
    }
}

/// The same in caps.
fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F16 => "float16",
        DType::U8 | DType::Bool => "uint8",
        DType::I8 => "int8",
        DType::I32 => "int32",
        DType::I64 => "int64",
        _ => unreachable!("the core of this release has no other types"),
    }
}

/// The id of an output.
struct NamedOutput {
    name: String,
    id: glib::Quark,
    order: TensorDimOrder,
}

impl PublishedOutputs {
    /// Of a model with an input of that size.
    ///
    /// An id is what the file's metadata has under the output's name, as for GStreamer's onnxinference in 1.26;
    /// else what the decoder of the model's head asks for; else the name.
    ///
    /// # Errors
    /// `Settings`, where this GStreamer has no GstTensorMeta.
    pub fn new(model: &ModelInfo, input: (u32, u32)) -> Result<Self> {
        let functions = analytics::library().and_then(|library| library.tensors.as_ref()).ok_or_else(|| {
            let (major, minor, ..) = gst::version();
            Error::new(ErrorKind::Settings, format!("GStreamer {major}.{minor} here has no GstTensorMeta"))
                .cause("libgstanalytics-1.0.so.0 of 1.26 or later is not there")
                .remedy("Use GStreamer 1.26 or later with its “bad” libraries, or leave tensor-meta unset")
        })?;
        let (major, minor, micro, _) = gst::version();
        let version = (major, minor, micro);
        let found = heads::recognise_outputs(&model.outputs, &model.hints(input)).ok();
        let decoder = found.as_ref().and_then(|(head, _)| decoder_of(head.name, version));
        // The outputs that the decoder reads, with its ids for them.
        let of_head: Vec<(&TensorDesc, &str)> = match (&found, decoder) {
            (Some((_, places)), Some(decoder)) => {
                places.iter().map(|&place| &model.outputs[place]).zip(decoder.ids.iter().copied()).collect()
            }
            _ => Vec::new(),
        };
        let named = model.outputs.iter().filter_map(|output| {
            let registered = of_head.iter().find(|(desc, _)| desc.name == output.name).map(|&(_, id)| id);
            let id = model.metadata.get(&output.name).map(String::as_str).or(registered)?;
            let is_registered = registered == Some(id);
            let order = decoder.filter(|_| is_registered).map_or(RowMajor, |decoder| decoder.order);
            Some(NamedOutput { name: output.name.clone(), id: glib::Quark::from_str(id), order })
        });
        let named: Vec<NamedOutput> = named.collect();
        let has_registered_ids =
            of_head.iter().all(|(desc, id)| named.iter().any(|n| n.name == desc.name && n.id.as_str() == *id));
        let tensors = decoder
            .filter(|_| has_registered_ids && version >= (1, 28, 0))
            .and_then(|decoder| tensor_caps(decoder, &of_head));
        let unreadable = of_head.iter().map(|(desc, _)| *desc).find(|desc| desc.dtype != DType::F32).cloned();
        Ok(PublishedOutputs { functions, named, tensors, unreadable })
    }

    /// Why GStreamer's decoders cannot read outputs whose ids they know.
    pub fn warning(&self) -> Option<Error> {
        self.unreadable.as_ref().map(|desc| {
            Error::new(ErrorKind::WrongType, "GStreamer's tensor decoders cannot read this model's outputs")
                .cause(format!("they read float32, and there is {desc}"))
                .remedy("Use a model with float32 outputs, or read the tensors in the application")
        })
    }

    /// `caps` with the tensors that come with each frame, as GStreamer's decoders require them from 1.28 on.
    pub fn describe(&self, caps: &gst::Caps) -> gst::Caps {
        let mut caps = caps.clone();
        let tensors = self.tensors.as_ref().and_then(|caps| caps.structure(0)?.value(caps::TENSORS_FIELD).ok());
        if let Some(tensors) = tensors {
            for structure in caps.make_mut().iter_mut() {
                structure.set_value(caps::TENSORS_FIELD, tensors.clone());
            }
        }
        caps
    }

    /// Attaches a frame's tensors in system memory: those on the host as they are, those on a GPU as copies.
    ///
    /// # Errors
    /// `Run`, where the GPU fails.
    pub fn attach(&self, buffer: &mut gst::BufferRef, tensors: &Tensors) -> Result<()> {
        /// Keeps the tensor's memory as long as GStreamer's exists.
        struct Bytes(HostBlock);
        impl AsRef<[u8]> for Bytes {
            fn as_ref(&self) -> &[u8] {
                self.0.bytes()
            }
        }

        tensors.wait()?;
        let functions = self.functions;
        let published = tensors.iter().map(|tensor| {
            let desc = tensor.desc();
            let data = match (tensor.host(), tensor.device()) {
                (Some(block), _) => gst::Buffer::from_slice(Bytes(block.clone())),
                (_, Some(block)) => gst::Buffer::from_slice(block.read()?),
                (None, None) => unreachable!("a tensor is somewhere"),
            };
            let mut dims: Vec<usize> = desc.dims.iter().map(|&dim| dim as usize).collect();
            let (id, order) = match self.named.iter().find(|output| output.name == desc.name) {
                Some(output) => (output.id, output.order),
                None => (glib::Quark::from_str(&desc.name), RowMajor),
            };
            let (id, dtype, data) = (id.into_glib(), data_type(desc.dtype), data.into_glib_ptr());
            // SAFETY: it takes over the buffer and copies the dimensions. It fails where the buffer is too small, which is a
            // mistake of the backend.
            let made = unsafe {
                (functions.gst_tensor_new_simple)(id, dtype, data, order as i32, dims.len(), dims.as_mut_ptr())
            };
            assert!(!made.is_null(), "{desc} has all its bytes");
            Ok::<_, Error>(made)
        });
        let published = published.collect::<Result<Vec<_>>>()?;
        // SAFETY: the buffer is writable. The meta takes over the tensors and their array, which is of GLib's memory.
        unsafe {
            let bytes = size_of_val(&*published);
            let array = glib::ffi::g_malloc(bytes).cast::<*mut GstTensor>();
            array.copy_from_nonoverlapping(published.as_ptr(), published.len());
            let meta = (functions.gst_buffer_add_tensor_meta)(buffer.as_mut_ptr());
            (functions.gst_tensor_meta_set)(meta, published.len() as u32, array);
        }
        Ok(())
    }
}

/// A head's tensors for caps; `None` where a dimension of the model is dynamic, since caps on a pad must be fixed.
fn tensor_caps(decoder: &DecoderInput, outputs: &[(&TensorDesc, &str)]) -> Option<gst::Caps> {
    let group = decoder.group?;
    let order = if decoder.order == ColMajor { "col-major" } else { "row-major" };
    let tensors = outputs.iter().map(|(desc, id)| {
        let dims: Option<Vec<String>> = (0..desc.dims.len())
            .map(|place| match (place, desc.dims[place]) {
                // The frames of a batch have separate buffers.
                (0, _) => Some("(int)1".into()),
                (1, _) if decoder.open_rows => Some("(int)0".into()),
                (_, Dims::DYNAMIC) => None,
                (_, size) => Some(format!("(int){size}")),
            })
            .collect();
        let (dims, dtype) = (dims?.join(","), type_name(desc.dtype));
        Some(format!(
            "(GstCaps)[tensor/strided, tensor-id=(string){id}, dims=<{dims}>, dims-order=(string){order}, \
             type=(string){dtype}]"
        ))
    });
    let tensors = tensors.collect::<Option<Vec<_>>>()?.join(", ");
    let text = format!("video/x-raw, tensors=(structure)[tensorgroups, {group}=(/uniquelist){{{tensors}}}]");
    Some(text.parse().expect("GStreamer 1.28 reads lists of unique values"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_of_gstreamer_has_its_decoders() {
        let order = |version| decoder_of("yolov8", version).map(|decoder| decoder.order);
        assert_eq!(order((1, 24, 0)), None);
        assert_eq!(order((1, 28, 0)), Some(RowMajor));
        assert_eq!(order((1, 28, 1)), Some(ColMajor));
        assert_eq!(order((2, 0, 0)), Some(ColMajor));
        let boxes = |version| decoder_of("ssd", version).unwrap().ids[0];
        assert_eq!(boxes((1, 26, 9)), "Gst.Model.ObjectDetector.Boxes");
        assert_eq!(boxes((1, 28, 0)), "ssd-mobilenet-v1-variant-1-out-boxes");
        assert!(decoder_of("detr", (1, 28, 8)).is_none());
    }

    #[test]
    fn decoders_name_heads_that_there_are() {
        for decoder in &DECODERS {
            assert!(heads::HEADS.iter().any(|head| head.name == decoder.head), "{}", decoder.head);
        }
    }
}
