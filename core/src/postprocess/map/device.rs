// SPDX-License-Identifier: MPL-2.0
//! Maps of a frame, found on a GPU: `kernels/map.cu`. The reference implementation is [`PixelMap`].

use bytemuck::cast_slice;

use crate::counters;
use crate::cuda::driver::{Context, Function, Launch, Stream};
use crate::cuda::kernels::MAP;
use crate::error::{Error, ErrorKind, Result};
use crate::heads::Task;
use crate::image::geometry::Letterbox;
use crate::image::map::{ClassFilter, PixelMap};
use crate::memory::{DeviceBlock, DevicePool, Mapped};
use crate::tensor::{DType, Tensor};

/// Threads of a block, as in the kernels.
const THREADS: u32 = 256;
/// The counts of a map of depths: minimum and maximum.
const RANGE: usize = 2;

/// Of `map.cu`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct MapParams {
    data: u64,
    values: u64,
    host_values: u64,
    counts: u64,
    host_counts: u64,
    kept: u64,
    dtype: u32,
    planes: u32,
    width: u32,
    height: u32,
    input: [u32; 2],
    left: u32,
    top: u32,
    map_width: u32,
    map_height: u32,
    first: u32,
    count: u32,
    threshold: f32,
    _unused: u32,
}

const _: () = assert!(size_of::<MapParams>() == 104);

/// Owns the memory for it; nothing is allocated from frame to frame. Work on one frame at a time.
pub struct DeviceMapFinder {
    /// In the order in which they run.
    functions: Vec<Function>,
    give: Function,
    is_depth: bool,
    params: MapParams,
    counts: DeviceBlock,
    host_counts: Mapped,
    values: Option<DeviceBlock>,
    host_values: Option<Mapped>,
    /// Which classes are kept, on the host and on the GPU.
    kept: (Vec<u8>, DeviceBlock),
    pool: DevicePool,
}

impl DeviceMapFinder {
    pub fn new(context: &Context, task: Task, [planes, width, height]: [usize; 3], classes: u32) -> Result<Self> {
        let (pool, module) = (DevicePool::new(context), context.module(MAP)?);
        let is_depth = task == Task::Depth;
        let names: &[&str] = if is_depth { &["find_depths", "map_depths"] } else { &["map_classes"] };
        let count = if is_depth { RANGE } else { classes as usize };
        // Behind them is how many scores are not finite.
        let counts = pool.take((count + 1) * size_of::<u32>())?;
        let host_counts = Mapped::new(context, (count + 1) * size_of::<u32>())?;
        let params = MapParams {
            counts: counts.address(),
            host_counts: host_counts.address(),
            planes: planes as u32,
            width: width as u32,
            height: height as u32,
            count: count as u32,
            ..MapParams::default()
        };
        Ok(DeviceMapFinder {
            functions: names.iter().map(|name| module.function(name)).collect::<Result<_>>()?,
            give: module.function("give_map")?,
            is_depth,
            params,
            counts,
            host_counts,
            values: None,
            host_values: None,
            kept: (Vec::new(), pool.take(count)?),
            pool,
        })
    }

    pub fn context(&self) -> &Context {
        self.pool.context()
    }

    /// Queues the search, and returns the address of the values once the stream has reached this point. The host gets
    /// them only where it wants them.
    ///
    /// Earlier work is done. The tensor must stay as it is until this work is.
    ///
    /// # Errors
    /// `WrongType` for a tensor that is not on this GPU, `Run` where CUDA fails.
    pub fn launch(
        &mut self,
        stream: &Stream,
        output: &Tensor,
        letterbox: &Letterbox,
        filter: &ClassFilter,
        is_wanted: bool,
    ) -> Result<u64> {
        let block = output.device().filter(|block| block.context() == stream.context());
        let data = block.map(DeviceBlock::address).ok_or_else(|| {
            Error::new(ErrorKind::WrongType, format!("{} is not in the memory of this GPU", output.desc()))
        })?;
        let bytes = letterbox.width as usize * letterbox.height as usize * size_of::<u16>();
        self.values.take_if(|values| values.bytes() < bytes);
        let values = match &self.values {
            Some(values) => values.address(),
            None => self.values.insert(self.pool.take(bytes)?).address(),
        };
        if is_wanted && self.host_values.as_ref().is_none_or(|host| host.bytes() < bytes) {
            self.host_values = None; // frees its memory before more is allocated
            self.host_values = Some(Mapped::new(stream.context(), bytes)?);
        }
        if !self.is_depth {
            let kept: Vec<u8> = (0..filter.count).map(|class| filter.keeps(class).into()).collect();
            if kept != self.kept.0 {
                self.kept.1.write(&kept)?;
                self.kept.0 = kept;
            }
        }
        self.params = MapParams {
            data,
            values,
            host_values: self.host_values.as_ref().filter(|_| is_wanted).map_or(0, Mapped::address),
            kept: self.kept.1.address(),
            dtype: match output.desc().dtype {
                DType::F32 => 0,
                DType::F16 => 1,
                DType::U8 => 2,
                DType::I32 => 3,
                _ => 4,
            },
            input: [letterbox.tensor_width, letterbox.tensor_height],
            left: letterbox.x,
            top: letterbox.y,
            map_width: letterbox.width,
            map_height: letterbox.height,
            first: filter.first,
            threshold: filter.threshold,
            ..self.params
        };
        let pixels = letterbox.width * letterbox.height;
        let shape = |of: u32| Launch { grid: (of.div_ceil(THREADS), 1, 1), block: (THREADS, 1, 1), shared: 0 };
        // SAFETY: the kernels take these parameters. Their addresses are of memory that `self` keeps until the work is
        // done, or of a tensor that the caller keeps.
        unsafe {
            stream.clear(self.counts.address(), (self.params.count as usize + 1) * size_of::<u32>())?;
            for function in &self.functions {
                stream.launch(function, shape(pixels), &self.params)?;
            }
            stream.launch(&self.give, shape(self.params.count + 1), &self.params)?;
        }
        Ok(values)
    }

    /// Completes a map that was [begun](PixelMap::begin) for the frame, once the work is done.
    pub fn take(&self, map: &mut PixelMap) {
        let all: &[u32] = cast_slice(self.host_counts.host());
        let (counts, lost) = (&all[..self.params.count as usize], all[self.params.count as usize]);
        map.note_not_finite(lost as usize);
        match (self.is_depth, counts) {
            (true, &[low, high, ..]) => {
                let value = |bits: u32| f32::from_bits(if bits >> 31 == 1 { bits & 0x7FFF_FFFF } else { !bits });
                map.take_range(if high == 0 { [0.0; 2] } else { [value(!low), value(high)] });
            }
            _ => map.take_counts(counts),
        }
        let values: &[u16] = match &self.host_values {
            Some(host) if self.params.host_values != 0 => &cast_slice(host.host())[..map.pixels()],
            _ => &[],
        };
        counters::downloaded(size_of_val(all) + size_of_val(values));
        map.take_values(values);
    }

    /// Copies the values of a map to the host, which did not want them before, and waits for the copy.
    pub fn read(&self, map: &mut PixelMap) -> Result<()> {
        let Some(block) = &self.values else { return Ok(()) };
        let mut values = vec![0u16; map.pixels()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        block.read_into(bytes)?;
        map.take_values(&values);
        Ok(())
    }
}
