//! The door between GStreamer's video and [`vision`](crate::vision): caps, formats, colorimetry, mapped frames.

use std::sync::LazyLock;

use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoChromaSite, VideoColorMatrix, VideoColorRange, VideoFormat, VideoInfo};

use crate::error::{Error, Kind, Result};
use crate::vision::frame::{Colorimetry, Frame, FrameMut, Matrix, PixelFormat, Plane, PlaneMut};
use crate::vision::recipe::InputSpec;

/// Caps field that carries the [`InputSpec`] from trtinfer to trtpreprocess.
pub const TENSOR_FIELD: &str = "tensor";

const CUDA_MEMORY: &str = "memory:CUDAMemory";

/// Formats in CUDA memory, best first; system memory has [`PixelFormat::ALL`].
const CUDA_FORMATS: [VideoFormat; 7] = [
    VideoFormat::Nv12,
    VideoFormat::P01010le,
    VideoFormat::I420,
    VideoFormat::Rgba,
    VideoFormat::Bgra,
    VideoFormat::Rgb,
    VideoFormat::Bgr,
];

/// Caps of every pad of the three elements: CUDA memory first, then system memory.
pub fn template_caps() -> gst::Caps {
    static CAPS: LazyLock<gst::Caps> = LazyLock::new(|| {
        let system = PixelFormat::ALL.map(|format| VideoFormat::from_string(format.name()));
        let mut caps = gst_video::VideoCapsBuilder::new().features([CUDA_MEMORY]).format_list(CUDA_FORMATS).build();
        caps.merge(gst_video::VideoCapsBuilder::new().format_list(system).build());
        caps
    });
    CAPS.clone()
}

/// One always-present pad of each direction, both with [`template_caps`].
pub fn pad_templates() -> Vec<gst::PadTemplate> {
    let template = |name, direction| {
        gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &template_caps()).expect("valid template")
    };
    vec![template("sink", gst::PadDirection::Sink), template("src", gst::PadDirection::Src)]
}

/// The structures of `caps` whose memory can be used on this machine: system memory only, until there is CUDA.
pub fn usable(caps: &gst::Caps) -> gst::Caps {
    let usable = |features: Option<&gst::CapsFeaturesRef>| {
        features.is_none_or(|features| features.is_any() || !features.contains(CUDA_MEMORY))
    };
    caps.iter_with_features()
        .filter(|(_, features)| usable(Some(features)))
        .map(|(structure, features)| (structure.to_owned(), features.to_owned()))
        .collect()
}

/// `caps` as they are without a tensor.
pub fn without_tensor(caps: &gst::Caps) -> gst::Caps {
    let mut caps = caps.clone();
    for structure in caps.make_mut().iter_mut() {
        structure.remove_field(TENSOR_FIELD);
    }
    caps
}

/// `caps` as they are with the tensor that `spec` says, whatever they said before.
pub fn with_tensor(caps: &gst::Caps, spec: &InputSpec) -> gst::Caps {
    let mut caps = caps.clone();
    caps.make_mut().set(TENSOR_FIELD, spec.to_string());
    caps
}

/// The tensor that fixed caps name.
pub fn tensor_of(caps: &gst::CapsRef) -> Result<Option<InputSpec>> {
    let text = caps.structure(0).and_then(|structure| structure.get::<&str>(TENSOR_FIELD).ok());
    text.map(str::parse).transpose()
}

/// A negotiated video format, in both vocabularies.
#[derive(Clone, Debug)]
pub struct Format {
    pub info: VideoInfo,
    pub pixels: PixelFormat,
    pub color: Colorimetry,
}

impl Format {
    pub fn from_caps(caps: &gst::CapsRef) -> Result<Self> {
        let unusable = |cause: String| {
            Error::new(Kind::Negotiation, format!("Cannot use frames of {caps}"))
                .cause(cause)
                .remedy("Put videoconvert before trtpreprocess")
        };
        let info = VideoInfo::from_caps(caps).map_err(|error| unusable(error.to_string()))?;
        let name = info.format().to_str();
        let pixels = PixelFormat::ALL.into_iter().find(|format| format.name() == name);
        let pixels = pixels.ok_or_else(|| unusable(format!("the format {name} is not supported in system memory")))?;
        Ok(Format { color: colorimetry(&info), pixels, info })
    }

    pub fn size(&self) -> (u32, u32) {
        (self.info.width(), self.info.height())
    }

    /// Maps a buffer to read its picture.
    pub fn read<T>(&self, buffer: &gst::BufferRef, read: impl FnOnce(&Frame) -> Result<T>) -> Result<T> {
        let mapped = gst_video::VideoFrameRef::from_buffer_ref_readable(buffer, &self.info)
            .map_err(|error| unmappable(error.to_string()))?;
        let strides = self.strides(mapped.plane_stride(), mapped.plane_offset(), buffer.size())?;
        let planes = mapped.planes_data();
        let planes = planes.into_iter().zip(strides).map(|(data, stride)| Plane { data, stride }).collect();
        read(&Frame {
            format: self.pixels,
            width: self.info.width() as usize,
            height: self.info.height() as usize,
            planes,
        })
    }

    /// Maps a buffer to draw on its picture.
    pub fn draw(&self, buffer: &mut gst::BufferRef, draw: impl FnOnce(&mut FrameMut)) -> Result<()> {
        let size = buffer.size();
        let mut mapped = gst_video::VideoFrameRef::from_buffer_ref_writable(buffer, &self.info)
            .map_err(|error| unmappable(error.to_string()))?;
        let strides = self.strides(mapped.plane_stride(), mapped.plane_offset(), size)?;
        let planes = mapped.planes_data_mut();
        let planes = planes.into_iter().zip(strides).map(|(data, stride)| PlaneMut { data, stride }).collect();
        draw(&mut FrameMut {
            format: self.pixels,
            width: self.info.width() as usize,
            height: self.info.height() as usize,
            color: self.color,
            planes,
        });
        Ok(())
    }

    /// Strides of the planes, checked: a GstVideoMeta may say anything.
    fn strides(&self, strides: &[i32], offsets: &[usize], buffer_size: usize) -> Result<Vec<usize>> {
        let planes = self.pixels.planes(self.info.width() as usize, self.info.height() as usize);
        let strides = planes.iter().zip(strides).zip(offsets).map(|((&(width, rows), &stride), &offset)| {
            let stride = usize::try_from(stride).ok().filter(|&stride| stride >= width)?;
            (offset + stride * (rows - 1) + width <= buffer_size).then_some(stride)
        });
        strides.collect::<Option<_>>().ok_or_else(|| {
            unmappable(format!(
                "its strides or offsets do not hold a {}x{} picture",
                self.info.width(),
                self.info.height()
            ))
        })
    }
}

/// Buffers to copy frames into, used again.
pub struct FramePool {
    pool: gst::BufferPool,
    info: VideoInfo,
}

impl FramePool {
    pub fn new(format: &Format) -> Result<Self> {
        let failed = |cause: String| {
            Error::new(Kind::Negotiation, "Cannot make a pool of frames")
                .cause(cause)
                .remedy("Check the size of the frames")
        };
        let pool = gst_video::VideoBufferPool::new().upcast::<gst::BufferPool>();
        let caps = format.info.to_caps().map_err(|error| failed(error.to_string()))?;
        let mut config = pool.config();
        let size = u32::try_from(format.info.size()).map_err(|error| failed(error.to_string()))?;
        config.set_params(Some(&caps), size, 0, 0);
        pool.set_config(config).map_err(|error| failed(error.to_string()))?;
        pool.set_active(true).map_err(|error| failed(error.to_string()))?;
        Ok(FramePool { pool, info: format.info.clone() })
    }

    /// A buffer of its own with the same picture, times, flags and metas.
    pub fn copy(&self, buffer: &gst::BufferRef) -> Result<gst::Buffer> {
        let failed = |error: gst::glib::BoolError| unmappable(error.to_string());
        let mut copy =
            self.pool.acquire_buffer(None).map_err(|flow| unmappable(format!("no buffer in the pool: {flow}")))?;
        let target = copy.get_mut().expect("a buffer from a pool is writable");
        {
            let from = gst_video::VideoFrameRef::from_buffer_ref_readable(buffer, &self.info).map_err(failed)?;
            let mut to = gst_video::VideoFrameRef::from_buffer_ref_writable(target, &self.info).map_err(failed)?;
            from.copy(&mut to).map_err(failed)?;
        }
        buffer.copy_into(target, gst::BUFFER_COPY_METADATA, ..).map_err(failed)?;
        // The copied GstVideoMeta describes the memory of the other buffer; ours is laid out as the caps say.
        while let Some(meta) = target.meta_mut::<gst_video::VideoMeta>() {
            meta.remove().map_err(failed)?;
        }
        Ok(copy)
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        let _ = self.pool.set_active(false); // buffers still in use return and are freed
    }
}

fn unmappable(cause: String) -> Error {
    Error::new(Kind::WrongType, "Cannot map a frame")
        .cause(cause)
        .remedy("Look for an element upstream that sends buffers other than its caps say")
}

fn colorimetry(info: &VideoInfo) -> Colorimetry {
    let color = info.colorimetry();
    let site = info.chroma_site();
    Colorimetry {
        matrix: match color.matrix() {
            VideoColorMatrix::Bt709 => Matrix::Bt709,
            VideoColorMatrix::Bt2020 => Matrix::Bt2020,
            _ => Matrix::Bt601,
        },
        full_range: color.range() == VideoColorRange::Range0_255,
        chroma_left: site.contains(VideoChromaSite::H_COSITED),
        chroma_top: site.contains(VideoChromaSite::V_COSITED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_memory_is_listed_first_and_not_used_here() {
        gst::init().unwrap();
        let caps = template_caps();
        assert!(caps.features(0).unwrap().contains(CUDA_MEMORY));
        let usable = usable(&caps);
        assert_eq!(usable.size(), 1);
        assert!(!usable.features(0).unwrap().contains(CUDA_MEMORY));
    }

    #[test]
    fn colorimetry_comes_from_the_caps() {
        gst::init().unwrap();
        let format = |extra: &str| {
            let caps: gst::Caps =
                format!("video/x-raw,format=NV12,width=64,height=32,framerate=1/1{extra}").parse().unwrap();
            Format::from_caps(&caps).unwrap().color
        };
        let bt709 = format(",colorimetry=bt709,chroma-site=mpeg2");
        assert_eq!(
            (bt709.matrix, bt709.full_range, bt709.chroma_left, bt709.chroma_top),
            (Matrix::Bt709, false, true, false)
        );
        let jpeg = format(",colorimetry=1:4:0:0,chroma-site=jpeg");
        assert_eq!((jpeg.matrix, jpeg.full_range, jpeg.chroma_left), (Matrix::Bt601, true, false));
    }
}
