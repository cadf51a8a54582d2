// SPDX-License-Identifier: MPL-2.0
//! What the properties of trtpreprocess mean: which tensor is made of which tiling of a frame.

use gsttrt_core::device::Device;
use gsttrt_core::error::{Error, ErrorKind, Result};
use gsttrt_core::image::align::Align;
use gsttrt_core::image::clip::{frames_of, no_clips};
use gsttrt_core::image::geometry::{Rect, ResizeMode};
use gsttrt_core::image::motion::MotionOptions;
use gsttrt_core::image::options::{MEAN, STD, check_std, parse_channels};
use gsttrt_core::image::region_list::RegionList;
use gsttrt_core::image::slices::{Division, Slices};
use gsttrt_core::image::transform::{Chroma, Colors, InputSpec, InputTransform, TensorLayout, parse_grid, parse_size};
use gsttrt_core::tensor::{DType, Dims, TensorDesc};

use super::objects::ObjectOptions;
use super::settings::{PreprocessSettings, Regions};

/// What the settings change; `None` is left to the model.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    fit: Option<ResizeMode>,
    shortest_edge: Option<u32>,
    pad: Option<u8>,
    colors: Option<Colors>,
    chroma: Chroma,
    scale: Option<f32>,
    mean: Option<[f32; 3]>,
    std: Option<[f32; 3]>,
    order: Option<TensorLayout>,
    dtype: Option<DType>,
    size: Option<(u32, u32)>,
    /// Of a clip; 0 is left to the model.
    frames: u32,
    pub frame_step: u32,
    pub tiling: Tiling,
    /// `None` where all frames are inferred.
    pub motion: Option<MotionOptions>,
}

/// Which parts of a frame become tensors.
#[derive(Clone, Debug, Default)]
pub enum Tiling {
    #[default]
    Frame,
    Slices(Slices),
    List(RegionList),
    Objects(ObjectOptions),
}

impl Tiling {
    /// The size of a part of a frame of that width and height; of objects, which have any, the shape is a square.
    pub fn size(&self, frame: (u32, u32)) -> (u32, u32) {
        match self {
            Tiling::Frame => frame,
            Tiling::Slices(slices) => slices.size(frame),
            Tiling::List(list) => {
                let first = list.of(frame).ok().and_then(|list| Some((list.first()?.width(), list.first()?.height())));
                first.unwrap_or(frame)
            }
            Tiling::Objects(_) => (frame.0, frame.0),
        }
    }

    /// The parts that are the same in each frame of that size; `None` for the whole frame and for objects.
    pub fn fixed(&self, frame: (u32, u32)) -> Result<Option<Vec<Rect>>> {
        match self {
            Tiling::Frame | Tiling::Objects(_) => Ok(None),
            Tiling::Slices(slices) => slices.of(frame).map(Some),
            Tiling::List(list) => list.of(frame).map(Some),
        }
    }
}

impl PreprocessSettings {
    pub fn read(&self) -> Result<Overrides> {
        let std = parse_channels(STD.name, &self.std)?;
        check_std(std)?;
        Ok(Overrides {
            fit: self.resize,
            shortest_edge: (self.shortest_edge != 0).then_some(self.shortest_edge),
            pad: u8::try_from(self.pad_value).ok(),
            colors: self.colors,
            chroma: self.chroma_sampling,
            scale: (self.scale != 0.0).then_some(self.scale),
            mean: parse_channels(MEAN.name, &self.mean)?,
            std,
            order: self.order,
            dtype: self.dtype,
            size: parse_size("tensor-size", &self.size)?,
            frames: self.frames,
            frame_step: self.frame_step,
            tiling: self.tiling()?,
            motion: (self.motion_gate > 0.0).then_some(MotionOptions {
                gate: self.motion_gate,
                threshold: self.motion_threshold,
                refresh: self.motion_refresh,
            }),
        })
    }

    fn tiling(&self) -> Result<Tiling> {
        let slices = self.slices()?;
        if slices.is_some() && self.regions != Regions::Frame {
            return Err(Error::new(ErrorKind::Settings, "Slices are tiling of the whole frame")
                .cause("regions is objects or list")
                .remedy("Set regions=frame, or leave slices and slice-size unset"));
        }
        Ok(match self.regions {
            Regions::Frame => slices.map_or(Tiling::Frame, Tiling::Slices),
            Regions::List => Tiling::List(RegionList::parse(&self.region_list)?),
            Regions::Objects => {
                let classes = self.object_classes.split(',').map(str::trim).filter(|class| !class.is_empty());
                Tiling::Objects(ObjectOptions {
                    classes: classes.map(String::from).collect(),
                    min_size: self.min_object_size,
                    padding: self.object_padding,
                    limit: self.max_objects as usize,
                    interval: self.reclassify_interval,
                    align: self.align,
                })
            }
        })
    }

    fn slices(&self) -> Result<Option<Slices>> {
        let division = match (parse_grid("slices", &self.slices)?, parse_size("slice-size", &self.slice_size)?) {
            (None, None) => return Ok(None),
            (Some((columns, rows)), None) => Division::Count(columns, rows),
            (None, Some((width, height))) => Division::Size(width, height),
            (Some(_), Some(_)) => {
                return Err(Error::new(ErrorKind::Settings, "slices and slice-size exclude each other")
                    .remedy("Set slices to how many there are to be, or slice-size to how large they are to be"));
            }
        };
        let overlap = self.slice_overlap;
        if !(0.0..1.0).contains(&overlap) {
            let what = format!("slice-overlap={overlap} leaves no distance between slices");
            return Err(Error::new(ErrorKind::Settings, what)
                .remedy("Set it to a part of a slice from 0 to below 1, such as 0.2"));
        }
        Ok(Some(Slices { division, overlap, with_frame: self.slice_frame }))
    }
}

impl Overrides {
    /// Whether the user has set mean or std, whatever to.
    pub fn is_normalised(&self) -> bool {
        self.mean.is_some() || self.std.is_some()
    }

    /// The tensor to make: what trtinfer wants where there is one, changed by the user's properties. Without trtinfer
    /// it is made on that device.
    pub fn apply(&self, wanted: Option<&InputSpec>, device: Device) -> Result<InputSpec> {
        let mut spec = match (wanted, self.size) {
            (Some(wanted), _) => wanted.clone(),
            (None, Some((width, height))) => {
                let usual = if self.frames > 0 { TensorLayout::Ncthw } else { TensorLayout::Nchw };
                let order = self.order.unwrap_or(usual);
                let dims = order.dims(Dims::DYNAMIC, [3, height.into(), width.into()]);
                let desc = TensorDesc { name: "images".into(), dtype: DType::F32, dims };
                InputSpec { device, desc, order, transform: InputTransform::default(), widest: 0 }
            }
            (None, None) => {
                return Err(Error::new(ErrorKind::Settings, "trtpreprocess does not know which tensor to make")
                    .remedy("Put trtinfer behind it, which knows from the model, or set tensor-size"));
            }
        };

        let frames = self.frames_for(&spec)?;
        if spec.is_of_vectors() {
            self.check_vectors(&spec)?;
            return Ok(spec.with_frames(frames));
        }
        let order = self.order_for(&spec)?;
        let (_, height, width) = spec.chw();
        let (width, height) = self.size.unwrap_or((width as u32, height as u32));
        let transform = &mut spec.transform;
        transform.colors = self.colors.unwrap_or(transform.colors);
        transform.chroma = self.chroma;
        transform.fit = self.fit.unwrap_or(transform.fit);
        transform.shortest_edge = self.shortest_edge.unwrap_or(transform.shortest_edge);
        transform.pad = self.pad.unwrap_or(transform.pad);
        transform.scale = self.scale.unwrap_or(transform.scale);
        transform.mean = self.mean.unwrap_or(transform.mean);
        transform.std = self.std.unwrap_or(transform.std);
        spec.order = order;
        spec.desc.dtype = self.dtype.unwrap_or(spec.desc.dtype);

        // A model with one channel wants luma; asking for gray makes one channel.
        let channels = transform.colors.channels() as i64;
        spec.desc.dims = order.dims(frames, [channels, height.into(), width.into()]);
        Ok(spec)
    }

    /// The frames of a clip; 1 for a picture.
    fn frames_for(&self, wanted: &InputSpec) -> Result<i64> {
        match wanted.frames() {
            Some(frames) => {
                self.check_clips()?;
                frames_of(frames, self.frames, wanted)
            }
            None if self.frames > 0 => Err(no_clips("frames", self.frames, wanted)),
            None if self.frame_step > 1 => Err(no_clips("frame-step", self.frame_step, wanted)),
            None => Ok(1),
        }
    }

    fn order_for(&self, wanted: &InputSpec) -> Result<TensorLayout> {
        let is_clip = |order: TensorLayout| order.frames().is_some();
        let Some(order) = self.order else { return Ok(wanted.order) };
        if is_clip(order) == is_clip(wanted.order) {
            return Ok(order);
        }
        let (name, orders) =
            (order.name(), if is_clip(wanted.order) { "ncthw, ntchw or nthwc" } else { "nchw or nhwc" });
        Err(Error::new(ErrorKind::Settings, format!("tensor-order={name} does not suit the model"))
            .cause(format!("its input is {}", wanted.desc))
            .remedy(format!("Leave tensor-order unset, or set {orders}")))
    }

    /// Refuses what is said of pictures where the model takes vectors.
    fn check_vectors(&self, wanted: &InputSpec) -> Result<()> {
        let (is_aligned, is_padded) = match &self.tiling {
            Tiling::Objects(ObjectOptions { align, padding, .. }) => (*align != Align::None, *padding > 0.0),
            _ => (false, false),
        };
        let properties = [
            ("resize", self.fit.is_some()),
            ("shortest-edge", self.shortest_edge.is_some()),
            ("pad-value", self.pad.is_some()),
            ("tensor-colors", self.colors.is_some()),
            ("scale", self.scale.is_some()),
            ("mean", self.mean.is_some()),
            ("std", self.std.is_some()),
            ("tensor-order", self.order.is_some()),
            ("tensor-type", self.dtype.is_some()),
            ("tensor-size", self.size.is_some()),
            ("chroma-sampling", self.chroma != Chroma::default()),
            ("align", is_aligned),
            ("object-padding", is_padded),
        ];
        let Some((property, _)) = properties.into_iter().find(|(_, is_set)| *is_set) else { return Ok(()) };
        Err(Error::new(ErrorKind::Settings, format!("{property} is for pictures, and the model takes vectors"))
            .cause(format!("its input is {}", wanted.desc))
            .remedy(format!("Leave {property} unset")))
    }

    /// Refuses what leaves out frames, or parts of them.
    fn check_clips(&self) -> Result<()> {
        let property = match (&self.tiling, &self.motion) {
            // The trtpreprocess of the first model has the gate.
            (Tiling::Frame, None) | (Tiling::Objects(_), _) => return Ok(()),
            (Tiling::Frame, Some(_)) => "motion-gate",
            (Tiling::Slices(_), _) => "slices or slice-size",
            (Tiling::List(_), _) => "regions=list",
        };
        Err(Error::new(
            ErrorKind::Settings,
            "Clips are made of whole frames, also of those without motion, or of objects",
        )
        .cause(format!("{property} is set, and the model sees several frames at once"))
        .remedy(format!("Leave {property} unset; interval of trtinfer says how often the model sees a clip")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_override_shows() {
        let wanted: InputSpec = "cpu f32 1x3x32x64 nchw rgb letterbox:114 scale:0.003921569 images".parse().unwrap();
        assert_eq!(PreprocessSettings::default().read().unwrap().apply(Some(&wanted), Device::Host).unwrap(), wanted);
        let all = PreprocessSettings {
            resize: Some(ResizeMode::CenterCrop),
            shortest_edge: 150,
            pad_value: 0,
            colors: Some(Colors::Bgr),
            chroma_sampling: Chroma::Sited,
            scale: 1.0,
            mean: "1,2,3".into(),
            std: "2".into(),
            order: Some(TensorLayout::Nhwc),
            dtype: Some(DType::F16),
            size: "128x96".into(),
            ..PreprocessSettings::default()
        };
        let spec = all.read().unwrap().apply(Some(&wanted), Device::Host).unwrap();
        assert_eq!(
            spec.to_string(),
            "cpu f16 1x96x128x3 nhwc bgr center-crop:0 scale:1 chroma:sited shortest-edge:150 mean:1/2/3 std:2/2/2 images"
        );
    }

    #[test]
    fn without_trtinfer_a_size_is_enough() {
        let settings = PreprocessSettings { size: "64x32".into(), ..PreprocessSettings::default() };
        let spec = settings.read().unwrap().apply(None, Device::Host).unwrap();
        assert_eq!(spec.desc.to_string(), "images f32 1x3x32x64");
        assert_eq!(spec.transform.fit, ResizeMode::Letterbox);
        let error = PreprocessSettings::default().read().unwrap().apply(None, Device::Host).unwrap_err();
        assert!(error.message().contains("trtinfer"), "{error}");
    }

    #[test]
    fn clips_are_as_the_model_wants_them() {
        let clip = |dims: &str| -> InputSpec {
            format!("cpu f32 {dims} rgb letterbox:114 scale:0.003921569 clip").parse().unwrap()
        };
        let apply = |settings: &PreprocessSettings, wanted: Option<&InputSpec>| {
            settings
                .read()
                .unwrap()
                .apply(wanted, Device::Host)
                .map(|spec| format!("{} {}", spec.desc, spec.order.name()))
        };
        let settings = PreprocessSettings::default;
        let (fixed, open) = (clip("1x3x16x32x64 ncthw"), clip("1x?x3x32x64 ntchw"));
        for (settings, wanted, made) in [
            (settings(), Some(&fixed), "clip f32 1x3x16x32x64 ncthw"),
            (
                PreprocessSettings { frames: 16, frame_step: 2, ..settings() },
                Some(&fixed),
                "clip f32 1x3x16x32x64 ncthw",
            ),
            (settings(), Some(&open), "clip f32 1x16x3x32x64 ntchw"),
            (PreprocessSettings { frames: 8, ..settings() }, Some(&open), "clip f32 1x8x3x32x64 ntchw"),
            (
                PreprocessSettings { frames: 8, regions: Regions::Objects, motion_gate: 0.5, ..settings() },
                Some(&open),
                "clip f32 1x8x3x32x64 ntchw",
            ),
            (
                PreprocessSettings { order: Some(TensorLayout::Nthwc), ..settings() },
                Some(&fixed),
                "clip f32 1x16x32x64x3 nthwc",
            ),
            (
                PreprocessSettings { frames: 4, size: "64x32".into(), colors: Some(Colors::Gray), ..settings() },
                None,
                "images f32 1x1x4x32x64 ncthw",
            ),
            (
                PreprocessSettings { order: Some(TensorLayout::Ntchw), size: "64x32".into(), ..settings() },
                None,
                "images f32 1x16x3x32x64 ntchw",
            ),
        ] {
            assert_eq!(apply(&settings, wanted).unwrap(), made);
        }
        let picture = clip("1x3x32x64 nchw");
        let list = "0,0,1,1".to_string();
        for (settings, wanted, says) in [
            (PreprocessSettings { frames: 8, ..settings() }, &fixed, "Leave frames unset, or set frames=16"),
            (
                PreprocessSettings { frames: 8, ..settings() },
                &picture,
                "frames=8 is for models that see several frames",
            ),
            (
                PreprocessSettings { frame_step: 2, regions: Regions::Objects, ..settings() },
                &picture,
                "frame-step=2 is for models that see several",
            ),
            (PreprocessSettings { order: Some(TensorLayout::Nchw), ..settings() }, &fixed, "set ncthw, ntchw or nthwc"),
            (PreprocessSettings { order: Some(TensorLayout::Ncthw), ..settings() }, &picture, "set nchw or nhwc"),
            (PreprocessSettings { slices: "2x1".into(), ..settings() }, &fixed, "slices or slice-size is set"),
            (
                PreprocessSettings { regions: Regions::List, region_list: list, ..settings() },
                &fixed,
                "regions=list is set",
            ),
            (
                PreprocessSettings { motion_gate: 0.5, ..settings() },
                &fixed,
                "Leave motion-gate unset; interval of trtinfer",
            ),
        ] {
            let error = apply(&settings, Some(wanted)).unwrap_err();
            assert!(error.kind() == ErrorKind::Settings && error.message().contains(says), "{error}");
        }
    }

    #[test]
    fn sequences_are_as_the_model_wants_them() {
        let sequence = |dims: &str| -> InputSpec {
            format!("cpu f32 {dims} ntd rgb letterbox:114 scale:0.003921569 steps").parse().unwrap()
        };
        let settings = PreprocessSettings::default;
        let apply = |settings: PreprocessSettings, wanted: &InputSpec| {
            settings.read().unwrap().apply(Some(wanted), Device::Host).map(|spec| spec.desc.to_string())
        };
        let (fixed, open) = (sequence("1x16x512"), sequence("1x?x512"));
        assert_eq!(apply(settings(), &fixed).unwrap(), "steps f32 1x16x512");
        assert_eq!(apply(settings(), &open).unwrap(), "steps f32 1x16x512");
        let objects = PreprocessSettings { frames: 8, frame_step: 2, regions: Regions::Objects, ..settings() };
        assert_eq!(apply(objects, &open).unwrap(), "steps f32 1x8x512");
        for (settings, says) in [
            (PreprocessSettings { frames: 8, ..settings() }, "Leave frames unset, or set frames=16"),
            (
                PreprocessSettings { mean: "0.5".into(), ..settings() },
                "mean is for pictures, and the model takes vectors",
            ),
            (PreprocessSettings { order: Some(TensorLayout::Ncthw), ..settings() }, "Leave tensor-order unset"),
            (PreprocessSettings { chroma_sampling: Chroma::Sited, ..settings() }, "chroma-sampling is for pictures"),
            (
                PreprocessSettings { regions: Regions::Objects, align: Align::Face, ..settings() },
                "align is for pictures, and the model takes vectors",
            ),
            (
                PreprocessSettings { regions: Regions::Objects, object_padding: 0.5, ..settings() },
                "Leave object-padding unset",
            ),
            (PreprocessSettings { slices: "2x1".into(), ..settings() }, "slices or slice-size is set"),
        ] {
            let said = apply(settings, &fixed).unwrap_err().message();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for settings in [
            PreprocessSettings { size: "640".into(), ..PreprocessSettings::default() },
            PreprocessSettings { size: "0x640".into(), ..PreprocessSettings::default() },
            PreprocessSettings { size: "640x16385".into(), ..PreprocessSettings::default() },
            PreprocessSettings { mean: "a".into(), ..PreprocessSettings::default() },
            PreprocessSettings { std: "0".into(), ..PreprocessSettings::default() },
            PreprocessSettings { std: "1,2".into(), ..PreprocessSettings::default() },
            PreprocessSettings { regions: Regions::List, ..PreprocessSettings::default() },
            PreprocessSettings { regions: Regions::Objects, slices: "3x2".into(), ..PreprocessSettings::default() },
            PreprocessSettings { slices: "3".into(), ..PreprocessSettings::default() },
            PreprocessSettings { slices: "0x2".into(), ..PreprocessSettings::default() },
            PreprocessSettings { slices: "3x2".into(), slice_overlap: 1.0, ..PreprocessSettings::default() },
            PreprocessSettings { slices: "3x2".into(), slice_overlap: f32::NAN, ..PreprocessSettings::default() },
            PreprocessSettings { slices: "3x2".into(), slice_size: "64x64".into(), ..PreprocessSettings::default() },
        ] {
            assert_eq!(settings.read().unwrap_err().kind(), ErrorKind::Settings, "{settings:?}");
        }
        for slices in ["3", "0x2", "lots", "2x3x4", "-1x2", "3x99999"] {
            let settings = PreprocessSettings { slices: slices.into(), ..PreprocessSettings::default() };
            let said = settings.read().unwrap_err().message();
            let wanted = format!("slices={slices} is not columns and rows. Write them like 3x2, each from 1 to 16384.");
            assert!(said.contains(&wanted), "{said}");
        }
    }
}
