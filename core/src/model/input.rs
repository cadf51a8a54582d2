// SPDX-License-Identifier: MPL-2.0
//! What goes into a model: the tensor that it wants for a frame, and what the other inputs hold.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{FileContents, InputValues, ModelInfo, unusable};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::heads::{self, HeadFormat};
use crate::image::clip::{MAX_FRAMES, USUAL_FRAMES};
use crate::image::transform::{InputSpec, InputTransform, MAX_PIXELS};
use crate::onnx::tables;
use crate::tensor::{DType, Dims, Element, Tensor, TensorDesc};

/// Widths and heights of inputs that can be served.
const SIDES: RangeInclusive<u32> = 1..=16384;

impl ModelInfo {
    /// The input that takes the picture.
    #[doc(hidden)]
    pub fn image_input(&self) -> &TensorDesc {
        &self.inputs[self.image]
    }

    /// The place of that input among all of them.
    pub(crate) fn image_index(&self) -> usize {
        self.image
    }

    /// Which dimension of that input has the channels, where the file leaves their number open. Of `inputs` it has the number that is
    /// known otherwise.
    pub(crate) fn open_channels(&self) -> Option<usize> {
        self.has_open_channels.then_some(self.order.channels())
    }

    /// For each input, the rows of the table that its numbers choose from, such as the embedding of tokens; `None` where the graph
    /// of the file shows none.
    pub(crate) fn tables(&self, file: &FileContents) -> Result<Vec<Option<u64>>> {
        let rows = tables::rows(file.graph()?, self.inputs.iter().map(|input| &*input.name));
        Ok(self.inputs.iter().map(|input| rows.get(&*input.name).copied()).collect())
    }

    /// What the model wants of a picture's tensor, where that one does not fit.
    #[doc(hidden)]
    pub fn misfit(&self, tensor: &TensorDesc) -> Option<&TensorDesc> {
        let wanted = self.image_input();
        let mut dims = wanted.dims.clone();
        dims.0[0] = 1;
        (tensor.dtype != wanted.dtype || !tensor.dims.fits(&dims)).then_some(wanted)
    }

    /// The tensor that the model wants for a frame, on that device, if it can be run on `batch` frames at once.
    ///
    /// `size` is the user's width and height, needed where the file leaves them open and has no metadata on the size
    /// it was made for. Where it leaves the frames of a clip open, there are [`USUAL_FRAMES`] of them.
    #[doc(hidden)]
    pub fn input_spec(&self, size: Option<(u32, u32)>, batch: usize, device: Device) -> Result<InputSpec> {
        let input = self.image_input();
        let Some((h, w)) = self.order.sides() else { return self.sequence_spec(size, batch, device) };
        let fixed = |i: usize| (input.dims[i] != Dims::DYNAMIC).then_some(input.dims[i]);
        let wanted = size.or(self.image_size);
        let width = fixed(w).or(wanted.map(|(width, _)| width.into()));
        let height = fixed(h).or(wanted.map(|(_, height)| height.into()));
        let (Some(width), Some(height)) = (width, height) else {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("The model leaves the size of its input open ({input})"),
            )
            .remedy({
                // A side that is fixed stays what it is.
                let [width, height] = [width, height].map(|side| side.unwrap_or(640));
                format!("Set input-size, such as input-size={width}x{height}")
            }));
        };
        let side = |length: i64| u32::try_from(length).ok().filter(|length| SIDES.contains(length));
        let (Some(width), Some(height)) = (side(width), side(height)) else {
            return Err(Error::new(ErrorKind::Model, format!("it wants an input of {width}x{height} ({input})"))
                .remedy(format!("Export it with a width and a height from {} to {}", SIDES.start(), SIDES.end()))
                .about(&unusable(&self.path)));
        };
        let frames = self.order.frames().map_or(1, |at| fixed(at).unwrap_or(USUAL_FRAMES as i64));
        check_frames(frames).map_err(|error| error.about(&unusable(&self.path)))?;
        if u64::from(width) * u64::from(height) * frames as u64 > MAX_PIXELS {
            let of_clips = if self.order.frames().is_some() { " in all frames of a clip" } else { "" };
            return Err(Error::new(ErrorKind::Model, format!("it wants an input of {width}x{height} ({input})"))
                .cause(format!("no input may have more than {MAX_PIXELS} pixels{of_clips}"))
                .remedy("Set input-size where the model leaves its size open, or export it with a smaller one")
                .about(&unusable(&self.path)));
        }
        if let Some(wish) = size.filter(|&wish| wish != (width, height)) {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("input-size is {}x{}, but the model's input is fixed ({input})", wish.0, wish.1),
            )
            .remedy(match fixed(w).and(fixed(h)) {
                Some(_) => {
                    "Leave input-size unset, or export the model with that size or with dynamic dimensions".into()
                }
                None => format!("Set input-size={width}x{height}, or export the model with dynamic dimensions"),
            }));
        }
        // A size that is fixed in the graph suits the graph.
        let stride = self.stride.filter(|&stride| stride > 0 && fixed(w).and(fixed(h)).is_none()).unwrap_or(1);
        if !width.is_multiple_of(stride) || !height.is_multiple_of(stride) {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("An input of {width}x{height} does not suit the model, whose stride is {stride}"),
            )
            .remedy("Set input-size to multiples of the stride"));
        }
        let mut dims = input.dims.clone();
        (dims.0[0], dims.0[h], dims.0[w]) = (1, height.into(), width.into());
        if let Some(at) = self.order.frames() {
            dims.0[at] = frames;
        }
        self.spec_of(dims, (width, height), batch, device)
    }

    /// The same for a sequence of vectors, which has no width and height.
    fn sequence_spec(&self, size: Option<(u32, u32)>, batch: usize, device: Device) -> Result<InputSpec> {
        let input = self.image_input();
        if let Some((width, height)) = size {
            let what = format!("input-size is {width}x{height}, but the model takes vectors, not pictures ({input})");
            return Err(Error::new(ErrorKind::Settings, what).remedy("Leave input-size unset"));
        }
        let mut dims = input.dims.clone();
        dims.0[0] = 1;
        if let Some(at) = self.order.frames() {
            let steps = if dims[at] == Dims::DYNAMIC { USUAL_FRAMES as i64 } else { dims[at] };
            check_steps(steps, input).map_err(|error| error.about(&unusable(&self.path)))?;
            dims.0[at] = steps;
        }
        let numbers = dims.iter().fold(1i64, |all, &dim| all.saturating_mul(dim));
        if u64::try_from(numbers).is_ok_and(|numbers| numbers <= MAX_PIXELS) {
            return self.spec_of(dims, (1, 1), batch, device);
        }
        Err(Error::new(ErrorKind::Model, format!("it wants vectors of too many numbers ({input})"))
            .cause(format!("no input may have more than {MAX_PIXELS} numbers in all vectors of a sequence"))
            .remedy("Export it for shorter sequences or vectors")
            .about(&unusable(&self.path)))
    }

    /// That with these dimensions, whose width and height are known to be right.
    fn spec_of(&self, dims: Dims, size: (u32, u32), batch: usize, device: Device) -> Result<InputSpec> {
        let input = self.image_input();
        let batches = input.dims[0];
        if batches != Dims::DYNAMIC && usize::try_from(batches) != Ok(batch) {
            return Err(Error::new(
                ErrorKind::Settings,
                format!("batch-size is {batch}, but the model takes batches of {batches} ({input})"),
            )
            .remedy(format!("Set batch-size={batches} on trtinfer, or export the model with a dynamic batch"))
            .about(&unusable(&self.path)));
        }
        // What fits no head is for trtnms to complain about, with its properties; the tensors may have another reader.
        let mut outputs = self.outputs.clone();
        let rows = outputs.iter_mut().filter_map(|output| output.dims.0.first_mut());
        // As trtnms gets them.
        rows.filter(|rows| batch > 1 && **rows == batches).for_each(|rows| *rows = 1);
        let head = heads::recognise(None, &outputs, &self.hints(size)).ok();
        Ok(InputSpec {
            device,
            desc: TensorDesc { name: input.name.clone(), dtype: input.dtype, dims },
            order: self.order,
            transform: self.transform(head),
            widest: 0,
        })
    }

    /// The same for lines of text that become tensors of up to that width; 0 for one width.
    ///
    /// # Errors
    /// `Settings`, where the model does not take several widths, or not these.
    #[doc(hidden)]
    pub fn with_widths(&self, spec: InputSpec, widest: u32) -> Result<InputSpec> {
        if widest == 0 {
            return Ok(spec);
        }
        let input = self.image_input();
        let (_, height, width) = spec.chw();
        let refused = |cause: String, remedy: &str| {
            let what = format!("max-input-width is {widest}, which the model does not take");
            Err(Error::new(ErrorKind::Settings, what).cause(cause).remedy(remedy).about(&unusable(&self.path)))
        };
        let sides = self.order.sides().filter(|_| self.order.frames().is_none());
        let Some((_, w)) = sides else {
            let what = if self.order.sides().is_some() { "clips" } else { "sequences of vectors" };
            return refused(format!("it takes {what}, and no lines of text ({input})"), "Leave max-input-width unset");
        };
        if input.dims[w] != Dims::DYNAMIC {
            return refused(
                format!("the width of its input is fixed ({input})"),
                "Leave max-input-width unset, or export the model with a dynamic width",
            );
        }
        if self.inputs.len() > 1 {
            return refused("it has other inputs besides the picture".into(), "Leave max-input-width unset");
        }
        if (widest as usize) < width {
            return refused(format!("the least width, that of input-size, is {width}"), "Set max-input-width to more");
        }
        if u64::from(widest) * height as u64 > MAX_PIXELS {
            return refused(format!("no input may have more than {MAX_PIXELS} pixels"), "Set max-input-width to less");
        }
        Ok(InputSpec { widest, ..spec })
    }

    /// The number of pictures that it takes at once, where the file fixes that.
    #[doc(hidden)]
    pub fn fixed_batch(&self) -> Option<usize> {
        usize::try_from(self.image_input().dims[0]).ok()
    }

    /// Whether it takes vectors in place of pictures.
    #[doc(hidden)]
    pub fn takes_vectors(&self) -> bool {
        self.order.sides().is_none()
    }

    /// Whether it takes clips or sequences, and leaves their number of frames or vectors open.
    #[doc(hidden)]
    pub fn has_open_frames(&self) -> bool {
        self.order.frames().is_some_and(|at| self.image_input().dims[at] == Dims::DYNAMIC)
    }

    /// What the sides of its input must be multiples of, where it takes any width and height, and so the smallest that
    /// a frame needs. The file must say so: models that it does not describe may only work at the size they were
    /// trained for.
    #[doc(hidden)]
    pub fn adaptive_stride(&self) -> Option<u32> {
        let (h, w) = self.order.sides()?;
        let dims = &self.image_input().dims;
        let open = self.inputs.len() == 1 && [h, w].iter().all(|&side| dims[side] == Dims::DYNAMIC);
        self.stride.filter(|&stride| open && stride > 0)
    }

    /// How the picture is prepared for this model, should it have that head.
    #[doc(hidden)]
    pub fn transform(&self, head: Option<&HeadFormat>) -> InputTransform {
        let input = self.image_input();
        let channels = input.dims[self.order.channels()];
        let usual = head.map_or_else(InputTransform::default, |head| head.input);
        usual.of_tensor(input.dtype, usize::try_from(channels).unwrap_or(0))
    }

    /// The same model with the names of classes that come with these values for its inputs.
    ///
    /// # Errors
    /// `Settings`, where it does not have such inputs.
    #[doc(hidden)]
    pub fn with_values(self: &Arc<Self>, values: &InputValues) -> Result<Arc<Self>> {
        values.check(&self.inputs, self.image).map_err(|error| error.about(&unusable(&self.path)))?;
        Ok(match values.labels() {
            [] => self.clone(),
            labels => Arc::new(ModelInfo { labels: labels.to_vec(), ..ModelInfo::clone(self) }),
        })
    }

    /// Tensors for the inputs other than the picture, for so many pictures, in the order of `inputs`; `None` for the picture.
    #[doc(hidden)]
    pub fn side_inputs(&self, spec: &InputSpec, rows: usize, values: &InputValues) -> Result<Vec<Option<Tensor>>> {
        let (_, height, width) = spec.chw();
        let tensor = |(i, input): (usize, &TensorDesc)| {
            if i == self.image {
                return Ok(None);
            }
            match values.tensor(input, has_picture_rows(input).then_some(rows))? {
                None => side_input(input, rows, width, height).map(Some),
                given => Ok(given),
            }
        };
        let tensors: Result<Vec<_>> = self.inputs.iter().enumerate().map(tensor).collect();
        tensors.and_then(|tensors| self.agreeing(tensors)).map_err(|error| error.about(&unusable(&self.path)))
    }

    /// Its inputs that need values of the user, such as words.
    #[doc(hidden)]
    pub fn unknown_inputs(&self) -> impl Iterator<Item = &TensorDesc> {
        let others = self.inputs.iter().enumerate().filter(move |(i, _)| *i != self.image).map(|(_, input)| input);
        others.filter(|input| !KNOWN.contains(&&*input.name))
    }

    /// Whether an input has as many rows as there are pictures in a batch.
    #[doc(hidden)]
    pub fn follows_batch(input: &TensorDesc) -> bool {
        has_picture_rows(input) && input.dims[0] == Dims::DYNAMIC
    }
}

// Inputs whose content is known by their names.
const TARGET_SIZES: &str = "orig_target_sizes";
const IMAGE_SHAPE: &str = "im_shape";
const SCALE_FACTOR: &str = "scale_factor";
pub(super) const KNOWN: [&str; 3] = [TARGET_SIZES, IMAGE_SHAPE, SCALE_FACTOR];

/// Whether the first dimension of an input is that of the pictures of a batch. All of them share a table of two dimensions, such as
/// words with their vectors.
fn has_picture_rows(input: &TensorDesc) -> bool {
    input.dims.len() >= if KNOWN.contains(&&*input.name) { 2 } else { 3 }
}

/// Refuses sequences that are too long.
fn check_steps(steps: i64, input: &TensorDesc) -> Result<()> {
    if has_frames(steps) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Model, format!("it wants sequences of {steps} vectors ({input})")).remedy(format!(
        "Export it for sequences of at most {MAX_FRAMES} vectors; or with 4 dimensions, such as 1x1xHxW, if these are pictures"
    )))
}

/// Whether a clip may have so many frames.
fn has_frames(frames: i64) -> bool {
    usize::try_from(frames).is_ok_and(|frames| frames <= MAX_FRAMES)
}

/// Refuses clips that are too long.
fn check_frames(frames: i64) -> Result<()> {
    if has_frames(frames) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Model, format!("it wants clips of {frames} frames"))
        .remedy(format!("Export it for clips of at most {MAX_FRAMES} frames")))
}

/// The few other inputs that exported detectors have. Sizes are those of the model's input, so that boxes come back in its
/// pixels and are mapped to the frame like any others.
fn side_input(desc: &TensorDesc, rows: usize, width: usize, height: usize) -> Result<Tensor> {
    let values = match desc.name.as_str() {
        TARGET_SIZES => [width, height], // RT-DETR, D-FINE
        IMAGE_SHAPE => [height, width],  // PaddleDetection
        SCALE_FACTOR => [1, 1],
        _ => {
            let name = &desc.name;
            return Err(Error::new(ErrorKind::Model, format!("it has an input whose content is not known, {desc}"))
                .remedy(format!(
                    "Set input-values to a file with it, like input-values={name}=words.npy, or export the model with the picture as its \
                     only input"
                )));
        }
    };
    if !matches!(desc.dims.first(), Some(&first) if first == Dims::DYNAMIC || usize::try_from(first) == Ok(rows)) {
        return Err(Error::new(ErrorKind::Model, format!("its input {desc} is not for batches of {rows}"))
            .remedy("Export it with a dynamic batch in all of its inputs, or set batch-size=1"));
    }
    fn fill<T: Element>(name: &str, rows: usize, row: [T; 2]) -> Result<Tensor> {
        Ok(Tensor::from_slice(name, &[rows as i64, 2], &row.repeat(rows)))
    }
    match desc.dtype {
        DType::I64 => fill(&desc.name, rows, values.map(|value| value as i64)),
        DType::I32 => fill(&desc.name, rows, values.map(|value| value as i32)),
        DType::F32 => fill(&desc.name, rows, values.map(|value| value as f32)),
        _ => Err(Error::new(ErrorKind::Model, format!("its input {desc} is of an unexpected type"))
            .remedy("Export it with i64, i32 or f32 there")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::test::npy::save_floats;
    use crate::test::scratch;

    #[test]
    fn values_fill_inputs_and_name_classes() {
        let folder = scratch("values-of-a-model");
        let words = save_floats(&folder.join("words.npy"), &[2, 3], &[0.5; 6]);
        std::fs::write(folder.join("words.txt"), "red car\ndog\n").unwrap();
        let inputs = vec![
            TensorDesc::new("images", DType::F32, &[-1, 3, 64, 64]),
            TensorDesc::new("tpe", DType::F32, &[-1, -1, 3]),
            TensorDesc::new("orig_target_sizes", DType::I64, &[-1, 2]),
        ];
        let outputs = vec![TensorDesc::new("output0", DType::F32, &[-1, 6, 84])];
        let info = ModelInfo::of_server(Path::new("m"), String::new(), inputs, outputs, BTreeMap::new());
        let info = Arc::new(info.unwrap());
        let spec = info.input_spec(None, 2, Device::Host).unwrap();
        let nothing = InputValues::default();
        let error = info.side_inputs(&spec, 2, &nothing).unwrap_err().message();
        assert!(error.contains("like input-values=tpe=words.npy"), "{error}");
        assert!(Arc::ptr_eq(&info, &info.with_values(&nothing).unwrap()));

        let values = InputValues::read(&format!("tpe={words}")).unwrap();
        let named = info.with_values(&values).unwrap();
        assert_eq!((info.labels.len(), &named.labels[..]), (0, &["red car", "dog"].map(String::from)[..]));
        let sides = named.side_inputs(&spec, 2, &values).unwrap();
        let sides: Vec<String> = sides.iter().flatten().map(|side| side.desc().to_string()).collect();
        assert_eq!(sides, ["tpe f32 2x2x3", "orig_target_sizes i64 2x2"]);

        let values = InputValues::read(&format!("txt={words}")).unwrap();
        let error = info.with_values(&values).unwrap_err().message();
        assert!(error.starts_with("Cannot use the model file m: input-values has a file for txt"), "{error}");
    }

    #[test]
    fn widths_are_those_that_the_model_takes() {
        let model = |inputs: &[(&str, &[i64])]| {
            let inputs = inputs.iter().map(|(name, dims)| TensorDesc::new(*name, DType::F32, dims)).collect();
            let outputs = vec![TensorDesc::new("o", DType::F32, &[-1, -1, 97])];
            ModelInfo::of_server(Path::new("m"), String::new(), inputs, outputs, BTreeMap::new()).unwrap()
        };
        let widths = |model: &ModelInfo, widest: u32| {
            let spec = model.input_spec(Some((320, 48)), 1, Device::Host).unwrap();
            model.with_widths(spec, widest).map(|spec| (spec.widest, spec.has_widths()))
        };
        let reader = model(&[("x", &[-1, 3, 48, -1])]);
        assert_eq!(widths(&reader, 0).unwrap(), (0, false));
        assert_eq!(widths(&reader, 320).unwrap(), (320, false));
        assert_eq!(widths(&reader, 1280).unwrap(), (1280, true));
        let (fixed, high) = (model(&[("x", &[-1, 3, 48, 320])]), model(&[("x", &[-1, 3, -1, -1])]));
        let two = model(&[("x", &[-1, 3, 48, -1]), ("y", &[-1, 7, 7])]);
        let clips = model(&[("x", &[-1, 3, -1, 48, -1])]);
        for (model, widest, says) in [
            (&reader, 319, "the least width, that of input-size, is 320"),
            (&fixed, 640, "the width of its input is fixed (x f32 ?x3x48x320)"),
            (&two, 640, "it has other inputs besides the picture"),
            (&clips, 640, "it takes clips, and no lines of text (x f32 ?x3x?x48x?)"),
        ] {
            let error = widths(model, widest).unwrap_err().message();
            assert!(
                error.starts_with("Cannot use the model file m: max-input-width is") && error.contains(says),
                "{error}"
            );
        }
        let tall = high.input_spec(Some((320, 16384)), 1, Device::Host).unwrap();
        assert!(high.with_widths(tall, 16384).unwrap_err().message().contains("no input may have more than"));
    }

    #[test]
    fn clips_have_as_many_frames_as_the_file_says_or_16() {
        let info = |dims: &[i64]| {
            let (inputs, outputs) = (
                vec![TensorDesc::new("clip", DType::F32, dims)],
                vec![TensorDesc::new("output0", DType::F32, &[-1, 5])],
            );
            ModelInfo::of_server(Path::new("m"), String::new(), inputs, outputs, BTreeMap::new()).unwrap()
        };
        for (dims, is_open, wanted) in [
            ([-1, 3, 8, 64, 32], false, "cpu f32 1x3x8x64x32 ncthw rgb"),
            ([-1, 3, -1, 64, 32], true, "cpu f32 1x3x16x64x32 ncthw rgb"),
            ([-1, -1, 3, 64, 32], true, "cpu f32 1x16x3x64x32 ntchw rgb"),
            ([-1, 1, 8, 64, 32], false, "cpu f32 1x1x8x64x32 ncthw gray"),
        ] {
            let info = info(&dims);
            let spec = info.input_spec(None, 1, Device::Host).unwrap().to_string();
            assert!(spec.starts_with(wanted) && info.has_open_frames() == is_open, "{spec}");
        }
        let said = |dims: &[i64]| info(dims).input_spec(None, 1, Device::Host).unwrap_err().message();
        assert!(
            said(&[1, 3, 300, 64, 64]).contains("it wants clips of 300 frames. Export it for clips of at most 256")
        );
        assert!(said(&[1, 3, 256, 1024, 1024]).contains("more than 33554432 pixels in all frames of a clip"));
    }

    #[test]
    fn sequences_have_as_many_vectors_as_the_file_says_or_16() {
        let info = |dims: &[i64]| {
            let (inputs, outputs) = (
                vec![TensorDesc::new("steps", DType::F32, dims)],
                vec![TensorDesc::new("output0", DType::F32, &[-1, 5])],
            );
            ModelInfo::of_server(Path::new("m"), String::new(), inputs, outputs, BTreeMap::new())
        };
        for (dims, is_open, wanted) in
            [([-1, 8, 512], false, "cpu f32 1x8x512 ntd "), ([1, -1, 3], true, "cpu f32 1x16x3 ntd ")]
        {
            let info = info(&dims).unwrap();
            let spec = info.input_spec(None, 1, Device::Host).unwrap();
            assert!(spec.to_string().starts_with(wanted) && info.has_open_frames() == is_open, "{spec}");
            assert_eq!(spec.to_string().parse::<InputSpec>().unwrap(), spec);
            assert_eq!((spec.chw(), spec.is_of_vectors()), ((dims[2] as usize, 1, 1), true));
            assert_eq!(spec.of_frame().desc.to_string(), format!("steps f32 1x{}", dims[2]));
            assert_eq!((spec.resized((7, 8)), info.adaptive_stride()), (spec.clone(), None));
            let said = info.with_widths(spec, 640).unwrap_err().message();
            assert!(said.contains("it takes sequences of vectors, and no lines of text"), "{said}");
        }
        let said = |dims: &[i64], size, batch| {
            info(dims).unwrap().input_spec(size, batch, Device::Host).unwrap_err().message()
        };
        assert!(said(&[1, 8, 512], Some((64, 64)), 1).contains("input-size is 64x64, but the model takes vectors"));
        assert!(said(&[1, 8, 512], None, 4).contains("batch-size is 4, but the model takes batches of 1"));
        let wanted = "it wants sequences of 1000000 vectors (steps f32 1x1000000x4). Export it for sequences of at most 256 vectors";
        assert!(said(&[1, 1_000_000, 4], None, 1).contains(wanted));
        assert!(said(&[1, 480, 640], None, 1).contains("with 4 dimensions, such as 1x1xHxW, if these are pictures"));
        assert!(said(&[1, 256, i64::MAX], None, 1).contains("vectors of too many numbers"));
        for dims in [&[1, 8, -1][..], &[1, 512], &[3, 64, 64]] {
            assert!(info(dims).unwrap_err().message().contains("for sequences of T vectors, 1xTxD"), "{dims:?}");
        }
        assert!(info(&[1, 0, 512]).unwrap_err().message().contains("has no elements"));
    }

    #[test]
    fn side_inputs_hold_the_input_size() {
        let sizes = TensorDesc::new("orig_target_sizes", DType::I64, &[-1, 2]);
        assert_eq!(side_input(&sizes, 1, 640, 480).unwrap().as_slice::<i64>().unwrap(), [640, 480]);
        let fixed = TensorDesc::new("orig_target_sizes", DType::I64, &[1, 2]);
        assert!(side_input(&fixed, 1, 640, 480).is_ok());
        let error = side_input(&fixed, 4, 640, 480).unwrap_err();
        assert!(error.message().contains("i64 1x2 is not for batches of 4"), "{error}");
        assert_eq!(side_input(&sizes, 2, 640, 480).unwrap().as_slice::<i64>().unwrap(), [640, 480, 640, 480]);
        assert!(side_input(&TensorDesc::new("prompt", DType::I64, &[1, 7]), 1, 1, 1).is_err());
    }
}
