// SPDX-License-Identifier: MPL-2.0
//! Conversions between GStreamer's video and [`image`](gsttrt_core::image): formats, colorimetry, mapped frames.

use std::ops::Range;
use std::sync::LazyLock;

use gst::prelude::*;
use gst_video::{VideoChromaSite, VideoColorMatrix, VideoColorRange, VideoInfo};
use gsttrt_core::cuda::driver::{Context, Fence, Stream};
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::image::device::{DevicePlane, DevicePlanes};
use gsttrt_core::image::frame::{Colorimetry, Frame, FrameMut, Matrix, PixelFormat, Plane, PlaneMut};
use gsttrt_core::image::overlay::Target;
use smallvec::SmallVec;

use crate::gst::memory::nvmm::{self, NvmmFrame, NvmmOnGpu};
use crate::gst::meta;
use crate::gst::{caps, cuda};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("trt-video", gst::DebugColorFlags::empty(), Some("Frames that are copied"))
});

/// A negotiated video format, in both vocabularies.
#[derive(Clone, Debug)]
pub struct Format {
    pub info: VideoInfo,
    pub pixels: PixelFormat,
    pub color: Colorimetry,
    /// Frames lie in NVMM memory. Whether others lie in CUDA memory or on the host is seen of each.
    is_nvmm: bool,
}

impl Format {
    pub fn from_caps(caps: &gst::CapsRef) -> Result<Self> {
        let unusable = |cause: String| {
            Error::new(ErrorKind::Negotiation, format!("Cannot use frames of {caps}"))
                .cause(cause)
                .remedy("Put videoconvert before trtpreprocess")
        };
        let info = VideoInfo::from_caps(caps).map_err(|error| unusable(error.to_string()))?;
        let name = info.format().to_str();
        let pixels = PixelFormat::ALL.into_iter().find(|format| format.name() == name);
        let pixels = pixels.ok_or_else(|| unusable(format!("the format {name} is not supported in system memory")))?;
        Ok(Format { color: colorimetry(&info), pixels, info, is_nvmm: caps::is_nvmm(caps) })
    }

    /// Checks that what reads such frames is there.
    ///
    /// # Errors
    /// `Library`, with what is missing.
    pub fn check_readable(&self) -> Result<()> {
        if self.is_nvmm { nvmm::available() } else { Ok(()) }
    }

    /// Checks that such frames can be drawn on.
    ///
    /// # Errors
    /// `Negotiation`, for frames in NVMM memory.
    pub fn check_drawable(&self) -> Result<()> {
        if self.is_nvmm { Err(nvmm::not_drawable()) } else { Ok(()) }
    }

    /// Where a buffer's frame lies. Caps do not tell of CUDA memory: elements that download pass it on as system memory
    /// where they can.
    ///
    /// # Errors
    /// `WrongType`, where a frame in NVMM memory is not what its caps say.
    pub fn locate<'a>(&self, buffer: &'a gst::BufferRef) -> Result<FrameLocation<'a>> {
        if self.is_nvmm {
            return NvmmFrame::of(buffer, self.pixels, self.size()).map(FrameLocation::Nvmm);
        }
        Ok(cuda::memory(buffer).map_or(FrameLocation::Host, FrameLocation::Cuda))
    }

    /// What is painted on.
    pub fn target(&self) -> Target {
        let (width, height) = self.size();
        Target { format: self.pixels, width, height, color: self.color }
    }

    /// The caps of such frames in system memory, and the bytes of one.
    fn caps(&self) -> Result<(gst::Caps, u32)> {
        let caps = self.info.to_caps().map_err(|error| no_pool(error.to_string()))?;
        Ok((caps, u32::try_from(self.info.size()).map_err(|error| no_pool(error.to_string()))?))
    }

    pub fn size(&self) -> (u32, u32) {
        (self.info.width(), self.info.height())
    }

    /// Maps a buffer to read its picture on the host.
    pub fn read<T>(
        &self,
        buffer: &gst::BufferRef,
        location: &FrameLocation,
        read: impl FnOnce(&Frame) -> Result<T>,
    ) -> Result<T> {
        if let FrameLocation::Nvmm(nvmm) = location {
            return nvmm.read(|planes| read(&self.frame(planes)));
        }
        let layouts = self.layouts(buffer)?;
        let mapped = layouts.iter().map(|layout| map(buffer, &layout.bytes)).collect::<Result<SmallVec<[_; 3]>>>()?;
        let planes = layouts.iter().zip(&mapped).map(|(layout, (memory, skip))| Plane {
            data: &memory[*skip..][..layout.bytes.len()],
            stride: layout.stride,
        });
        read(&self.frame(planes.collect()))
    }

    fn frame<'a>(&self, planes: SmallVec<[Plane<'a>; 3]>) -> Frame<'a> {
        let (width, height) = self.size();
        Frame { format: self.pixels, width: width as usize, height: height as usize, planes }
    }

    /// Maps a buffer to draw on its picture.
    pub fn draw(&self, buffer: &mut gst::BufferRef, draw: impl FnOnce(&mut FrameMut)) -> Result<()> {
        let layouts = self.layouts(buffer)?;
        let bytes = [0, 1, 2].map(|plane| layouts.get(plane).map_or(0..0, |layout| layout.bytes.clone()));
        let mut mapped = buffer.map_writable().map_err(|error| unmappable(error.to_string()))?;
        let planes = mapped.get_disjoint_mut(bytes).map_err(|_| unmappable("its planes overlap".into()))?;
        draw(&mut FrameMut {
            format: self.pixels,
            width: self.info.width() as usize,
            height: self.info.height() as usize,
            color: self.color,
            planes: layouts.iter().zip(planes).map(|(layout, data)| PlaneMut { data, stride: layout.stride }).collect(),
        });
        Ok(())
    }

    /// The picture of a buffer in GPU memory, mapped to be read in that context; `None` where it lies on the host.
    pub fn read_on_gpu<'a>(
        &self,
        buffer: &'a gst::BufferRef,
        location: &'a FrameLocation,
        context: &Context,
    ) -> Result<Option<GpuFrame<'a>>> {
        let nvmm = match location {
            FrameLocation::Host => return Ok(None),
            FrameLocation::Cuda(memory) => return self.map_cuda(buffer, memory, false).map(Some),
            FrameLocation::Nvmm(nvmm) => nvmm,
        };
        let frame = |mut mapped: NvmmOnGpu<'a>| GpuFrame {
            planes: std::mem::take(&mut mapped.planes),
            context: context.clone(),
            mapped: GpuMapping::Nvmm(Box::new(mapped)),
            _buffer: buffer,
        };
        Ok(nvmm.on_gpu(context)?.map(frame))
    }

    /// The picture of a buffer in CUDA memory, mapped for the GPU; `None` where it lies elsewhere.
    pub fn on_gpu<'a>(&self, buffer: &'a gst::BufferRef, write: bool) -> Result<Option<GpuFrame<'a>>> {
        cuda::memory(buffer).map(|memory| self.map_cuda(buffer, &memory, write)).transpose()
    }

    fn map_cuda<'a>(
        &self,
        buffer: &'a gst::BufferRef,
        memory: &cuda::CudaMemoryRef<'a>,
        write: bool,
    ) -> Result<GpuFrame<'a>> {
        let layouts = self.layouts(buffer)?;
        let context = memory.context()?;
        let mapped = memory.map(write)?;
        let plane = |layout: &PlaneLayout| DevicePlane {
            address: mapped.address + layout.bytes.start as u64,
            stride: layout.stride,
        };
        let planes = layouts.iter().map(plane).collect();
        Ok(GpuFrame { planes, context, mapped: GpuMapping::Cuda(mapped), _buffer: buffer })
    }

    /// Where the planes lie in a buffer: from its GstVideoMeta, which may be wrong and is checked, else from the caps.
    fn layouts(&self, buffer: &gst::BufferRef) -> Result<SmallVec<[PlaneLayout; 3]>> {
        let (format, width, height) = (self.info.format(), self.info.width(), self.info.height());
        let meta = buffer.meta::<gst_video::VideoMeta>();
        let (offsets, strides) = match &meta {
            Some(meta) if meta.format() != format || meta.width() < width || meta.height() < height => {
                let is = format!("{} {}x{}", meta.format(), meta.width(), meta.height());
                return Err(unmappable(format!("its GstVideoMeta has {is}, and its caps {format} {width}x{height}")));
            }
            Some(meta) => (meta.offset(), meta.stride()),
            None => (self.info.offset(), self.info.stride()),
        };
        let planes = self.pixels.planes(width as usize, height as usize);
        let layouts = planes.iter().enumerate().map(|(plane, &(row, rows))| {
            let start = *offsets.get(plane)?;
            let stride = usize::try_from(*strides.get(plane)?).ok().filter(|&stride| stride >= row)?;
            let end = stride.checked_mul(rows - 1)?.checked_add(row)?.checked_add(start)?;
            (end <= buffer.size()).then_some(PlaneLayout { bytes: start..end, stride })
        });
        layouts.collect::<Option<_>>().ok_or_else(|| {
            let size = buffer.size();
            unmappable(format!(
                "its {size} bytes do not hold {format} {width}x{height} at strides {strides:?} and offsets {offsets:?}"
            ))
        })
    }
}

/// Where a buffer's frame lies: found once, by [`Format::locate`].
pub enum FrameLocation<'a> {
    /// In memory that only the host reads.
    Host,
    Cuda(cuda::CudaMemoryRef<'a>),
    Nvmm(NvmmFrame<'a>),
}

/// A picture in GPU memory, mapped until this is dropped.
pub struct GpuFrame<'a> {
    pub context: Context,
    pub planes: DevicePlanes,
    mapped: GpuMapping<'a>,
    _buffer: &'a gst::BufferRef,
}

enum GpuMapping<'a> {
    Cuda(cuda::MappedCudaMemory<'a>),
    Nvmm(Box<NvmmOnGpu<'a>>),
}

impl GpuFrame<'_> {
    /// Lets the stream wait until the picture is there.
    pub fn order(&self, stream: &Stream) -> Result<()> {
        match &self.mapped {
            GpuMapping::Cuda(mapped) => mapped.order(stream),
            GpuMapping::Nvmm(_) => Ok(()), // it is there
        }
    }

    /// Ends the mapping of a picture that was read by the time of the fence. It is waited for where the picture is gone
    /// with the mapping; others stay with their buffer.
    pub fn end(self, read: Option<&Fence>) -> Result<()> {
        match self.mapped {
            GpuMapping::Cuda(_) => Ok(()),
            GpuMapping::Nvmm(mapped) => mapped.end(read),
        }
    }
}

/// Where a plane lies in a buffer: from its first byte to the last one of its last row.
struct PlaneLayout {
    bytes: Range<usize>,
    stride: usize,
}

/// Maps the memory that holds `bytes` of a buffer, which may consist of several; and where in it they begin.
fn map(buffer: &gst::BufferRef, bytes: &Range<usize>) -> Result<(gst::MappedMemory<gst::memory::Readable>, usize)> {
    let found = buffer.find_memory(bytes.clone());
    let memory = found.and_then(|(memories, skip)| Some((buffer.memory_range(memories)?, skip)));
    let (memory, skip) = memory.ok_or_else(|| unmappable(format!("it has no memory at bytes {bytes:?}")))?;
    let mapped = memory.into_mapped_memory_readable();
    let mapped = mapped.map_err(|_| unmappable("its memory cannot be read".into()))?;
    Ok((mapped, skip))
}

/// Buffers to copy frames into, used again.
pub struct FramePool {
    pool: gst::BufferPool,
    format: Format,
    context: Option<Context>,
}

impl FramePool {
    /// In system memory.
    pub fn new(format: &Format) -> Result<Self> {
        let (caps, size) = format.caps()?;
        let pool = gst_video::VideoBufferPool::new().upcast::<gst::BufferPool>();
        let mut config = pool.config();
        config.set_params(Some(&caps), size, 0, 0);
        pool.set_config(config).map_err(|error| no_pool(error.to_string()))?;
        FramePool::start(pool, format, None)
    }

    /// In CUDA memory.
    pub fn on_gpu(format: &Format, context: &Context) -> Result<Self> {
        let (caps, size) = format.caps()?;
        let (pool, _) = cuda::pool(context, &caps, size, 0)?;
        FramePool::start(pool, format, Some(context.clone()))
    }

    fn start(pool: gst::BufferPool, format: &Format, context: Option<Context>) -> Result<Self> {
        pool.set_active(true).map_err(|error| no_pool(error.to_string()))?;
        let place = if context.is_some() { "CUDA" } else { "system" };
        gst::debug!(CAT, "frames are copied into {place} memory, {:?}", format.info);
        Ok(FramePool { pool, format: format.clone(), context })
    }

    /// The context of its memory, unless that is the system's.
    pub fn context(&self) -> Option<&Context> {
        self.context.as_ref()
    }

    /// A buffer of a pool in system memory with the same picture, times, flags and metas.
    pub fn copy(&self, buffer: &gst::BufferRef) -> Result<gst::Buffer> {
        self.copy_by(buffer, |target| {
            self.format
                .read(buffer, &self.format.locate(buffer)?, |from| self.format.draw(target, |to| copy_planes(from, to)))
        })
    }

    /// The same in CUDA memory; the picture is there once what is queued on the stream is done.
    ///
    /// # Safety
    /// Both buffers stay until then, `buffer` also where this fails.
    pub unsafe fn queue_copy(&self, buffer: &gst::BufferRef, stream: &Stream) -> Result<gst::Buffer> {
        // SAFETY: both buffers stay until the copy is done.
        self.copy_by(buffer, |target| unsafe { self.copy_on_gpu(buffer, target, stream) })
    }

    fn copy_by(
        &self,
        buffer: &gst::BufferRef,
        copy_picture: impl FnOnce(&mut gst::BufferRef) -> Result<()>,
    ) -> Result<gst::Buffer> {
        let failed = |error: gst::glib::BoolError| unmappable(error.to_string());
        let mut copy =
            self.pool.acquire_buffer(None).map_err(|flow| unmappable(format!("no buffer in the pool: {flow}")))?;
        let target = copy.get_mut().expect("a buffer from a pool is writable");
        gst::trace!(CAT, "copying the frame of {:?}", buffer.pts());
        copy_picture(target)?;
        meta::copy(buffer, target).map_err(failed)?;
        // Without a GstVideoMeta of the pool, the layout is that of the caps.
        meta::remove(target, meta::is_copied_layout);
        Ok(copy)
    }

    /// Not gst_buffer_copy(), which takes the pitch of one memory for that of another.
    ///
    /// # Safety
    /// Both buffers stay until what is queued on the stream is done.
    unsafe fn copy_on_gpu(&self, buffer: &gst::BufferRef, target: &mut gst::BufferRef, stream: &Stream) -> Result<()> {
        let elsewhere = || unmappable("it is not in CUDA memory".into());
        let from = self.format.on_gpu(buffer, false)?.ok_or_else(elsewhere)?;
        let to = self.format.on_gpu(target, true)?.ok_or_else(elsewhere)?;
        from.order(stream)?;
        to.order(stream)?;
        let sizes = self.format.pixels.planes(self.format.info.width() as usize, self.format.info.height() as usize);
        for ((from, to), (row, rows)) in from.planes.iter().zip(&to.planes).zip(sizes) {
            // SAFETY: both were checked to have such rows, and stay until the work is done, as this function requires.
            unsafe { stream.copy_rows((from.address, from.stride), (to.address, to.stride), row, rows) }?;
        }
        Ok(())
    }
}

fn no_pool(cause: String) -> Error {
    Error::new(ErrorKind::Negotiation, "Cannot make a pool of frames")
        .cause(cause)
        .remedy("Check the size of the frames")
}

fn copy_planes(from: &Frame, to: &mut FrameMut) {
    let planes = from.format.planes(from.width, from.height);
    for ((from, to), (row, _)) in from.planes.iter().zip(&mut to.planes).zip(planes) {
        for (from, to) in from.data.chunks(from.stride).zip(to.data.chunks_mut(to.stride)) {
            to[..row].copy_from_slice(&from[..row]);
        }
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        let _ = self.pool.set_active(false); // buffers still in use return and are freed
    }
}

fn unmappable(cause: String) -> Error {
    Error::new(ErrorKind::WrongType, "Cannot map a frame")
        .cause(cause)
        .remedy("Look for an element upstream that sends buffers that contradict its caps")
}

fn colorimetry(info: &VideoInfo) -> Colorimetry {
    let color = info.colorimetry();
    let site = info.chroma_site();
    Colorimetry {
        matrix: match color.matrix() {
            // SMPTE 240M's weights are within 0.02 of those.
            VideoColorMatrix::Bt709 | VideoColorMatrix::Smpte240m => Matrix::Bt709,
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
    use gst_video::VideoFormat;

    use super::*;

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

    fn nv12() -> Format {
        gst::init().unwrap();
        let caps: gst::Caps = "video/x-raw,format=NV12,width=7,height=3,framerate=1/1".parse().unwrap();
        Format::from_caps(&caps).unwrap()
    }

    /// The ends of its planes, as the host reads them.
    fn read(format: &Format, buffer: &gst::BufferRef) -> Result<[u8; 4]> {
        format.read(buffer, &format.locate(buffer)?, ends)
    }

    /// 200 bytes that count up, read as NV12 7x3 in that layout.
    fn buffer(offsets: [usize; 2], strides: [i32; 2]) -> gst::Buffer {
        let mut buffer = gst::Buffer::from_mut_slice((0..200).collect::<Vec<u8>>());
        let meta = buffer.get_mut().unwrap();
        let flags = gst_video::VideoFrameFlags::empty();
        gst_video::VideoMeta::add_full(meta, flags, VideoFormat::Nv12, 7, 3, &offsets, &strides).unwrap();
        buffer
    }

    /// First and last bytes of the two planes.
    fn ends(frame: &Frame) -> Result<[u8; 4]> {
        let [y, uv] = &frame.planes[..] else { unreachable!() };
        assert_eq!((y.data.len(), uv.data.len()), (2 * y.stride + 7, uv.stride + 8));
        Ok([y.data[0], y.data[2 * y.stride + 6], uv.data[0], uv.data[uv.stride + 7]])
    }

    #[test]
    fn copies_have_the_same_picture_in_the_layout_of_the_caps() {
        let format = nv12();
        let copy = FramePool::new(&format).unwrap().copy(&buffer([10, 100], [20, 30])).unwrap();
        assert_eq!(read(&format, &copy).unwrap(), [10, 10 + 2 * 20 + 6, 100, 100 + 30 + 7]);
        assert!(copy.meta::<gst_video::VideoMeta>().is_none());
    }

    #[test]
    fn drawing_follows_the_video_meta() {
        let format = nv12();
        let mut drawn = buffer([100, 3], [20, 30]);
        format
            .draw(drawn.get_mut().unwrap(), |frame| frame.planes.iter_mut().for_each(|plane| plane.data[0] = 255))
            .unwrap();
        let bytes = drawn.map_readable().unwrap();
        let changed: Vec<usize> = (0..200).filter(|&i| bytes[i] != i as u8).collect();
        assert_eq!(changed, [3, 100]);
    }

    #[test]
    fn absurd_layouts_are_errors_everywhere() {
        let format = nv12();
        let pool = FramePool::new(&format).unwrap();
        for (offsets, strides, readable) in [
            ([0, 100], [-20, 30], false),
            ([0, 100], [20, i32::MAX], false),
            ([usize::MAX, 100], [20, 30], false),
            ([0, 163], [20, 30], false),
            // Overlapping planes can be read.
            ([0, 46], [20, 30], true),
        ] {
            let mut absurd = buffer(offsets, strides);
            assert_eq!(read(&format, &absurd).is_ok(), readable, "{offsets:?} {strides:?}");
            assert_eq!(pool.copy(&absurd).is_ok(), readable, "{offsets:?} {strides:?}");
            let drawn = format.draw(absurd.get_mut().unwrap(), |_| panic!("{offsets:?} {strides:?}"));
            assert_eq!(drawn.unwrap_err().kind(), ErrorKind::WrongType);
        }
    }
}
