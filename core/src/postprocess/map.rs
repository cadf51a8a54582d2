// SPDX-License-Identifier: MPL-2.0
//! Maps of a frame: from the output of a model for semantic segmentation or depth.

mod device;

use std::sync::Arc;

use crate::cuda::driver::Stream;
use crate::error::{Error, ErrorKind, Result};
use crate::heads::{Decoder, Task, Thresholds};
use crate::image::bilinear::Floats;
use crate::image::geometry::Letterbox;
use crate::image::map::{ClassFilter, MapKind, PixelMap};
use crate::tensor::{DType, Tensor};
use device::DeviceMapFinder;

/// Finds the map of a frame, on the host or on a GPU.
pub(super) struct MapFinder {
    task: Task,
    /// Number, width and height of the planes of the output.
    planes: [usize; 3],
    filter: ClassFilter,
    device: Option<DeviceMapFinder>,
}

impl MapFinder {
    /// `None` for heads without maps. `labels` is the number of labels.
    ///
    /// # Errors
    /// `Model`, for more classes than a map can have.
    pub fn new(decoder: &Decoder, labels: usize) -> Result<Option<Self>> {
        let Some(planes) = decoder.map_shape() else { return Ok(None) };
        let output = decoder.first_output();
        let is_ids = !matches!(output.dtype, DType::F32 | DType::F16);
        let all = if output.dtype == DType::U8 { 255 } else { PixelMap::MAX_CLASSES as usize };
        let count = match (is_ids, labels) {
            (true, 0) => all,
            (true, labels) => labels,
            (false, _) => planes[0],
        };
        if count > PixelMap::MAX_CLASSES as usize {
            let what = format!("{count} classes in {output} are more than the {} of a map", PixelMap::MAX_CLASSES);
            return Err(Error::new(ErrorKind::Model, what).remedy("Use a model with fewer classes"));
        }
        // Ultralytics: of one class the map says where it is.
        let first = u32::from(is_ids && labels == 1);
        let filter = ClassFilter { first, count: count as u32, beyond: true, ..ClassFilter::default() };
        Ok(Some(MapFinder { task: decoder.format().task, planes, filter, device: None }))
    }

    /// A map as it is found, without a pixel.
    pub fn map(&self) -> PixelMap {
        PixelMap::new(match self.task {
            Task::Depth => MapKind::Depth { minimum: 0.0, maximum: 0.0 },
            _ => MapKind::Classes,
        })
    }

    /// The number of classes.
    pub fn classes(&self) -> u32 {
        self.filter.count
    }

    /// Keeps the classes that any score passes; of a single class the pixels with more than `threshold`.
    pub fn keep(&mut self, thresholds: &Thresholds, threshold: f32) {
        self.filter.threshold = threshold;
        let keeps = |threshold: f32| threshold != Thresholds::NEVER;
        self.filter.kept = thresholds.per_class().iter().copied().map(keeps).collect();
        self.filter.beyond = keeps(thresholds.beyond());
    }

    /// Finds the map of the batch's first frame, whose tensor exists, in host memory.
    ///
    /// # Errors
    /// `WrongType` for a tensor that this was not made for.
    pub fn find(&self, output: &Tensor, letterbox: &Letterbox, map: &mut PixelMap) -> Result<()> {
        let [_, width, height] = self.planes;
        if let Some(floats) = Floats::of(output) {
            match self.task {
                Task::Depth => map.find_depths(&floats, [width, height], letterbox),
                _ => map.find_greatest(&floats, self.planes, letterbox, &self.filter),
            }
        } else if let Some(ids) = output.as_slice::<u8>() {
            map.take_ids(|at| ids[at].into(), [width, height], letterbox, &self.filter);
        } else if let Some(ids) = output.as_slice::<i32>() {
            map.take_ids(|at| ids[at].into(), [width, height], letterbox, &self.filter);
        } else if let Some(ids) = output.as_slice::<i64>() {
            map.take_ids(|at| ids[at], [width, height], letterbox, &self.filter);
        } else {
            return Err(Error::new(ErrorKind::WrongType, format!("A map cannot be read from {}", output.desc())));
        }
        Ok(())
    }

    /// Queues the search in GPU memory, and returns the address of the map's values once the stream has reached this
    /// point. Of the map only its place and size are known then.
    ///
    /// # Errors
    /// As [`DeviceMapFinder::launch`].
    pub fn queue(
        &mut self,
        stream: &Arc<Stream>,
        output: &Tensor,
        letterbox: &Letterbox,
        map: &mut PixelMap,
    ) -> Result<u64> {
        map.begin(letterbox);
        let device = match &mut self.device {
            Some(device) if device.context() == stream.context() => device,
            other => other.insert(DeviceMapFinder::new(stream.context(), self.task, self.planes, self.filter.count)?),
        };
        device.launch(stream, output, letterbox, &self.filter, !map.is_hidden)
    }

    /// Completes the map once that work is done.
    pub fn finish(&self, map: &mut PixelMap) {
        if let Some(device) = &self.device {
            device.take(map);
        }
    }

    /// Copies values to the host that are only on the GPU.
    ///
    /// # Errors
    /// `Run`, where CUDA fails.
    pub fn fetch(&self, map: &mut PixelMap) -> Result<()> {
        match &self.device {
            Some(device) if map.values().is_empty() => device.read(map),
            _ => Ok(()),
        }
    }
}
