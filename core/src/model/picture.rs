// SPDX-License-Identifier: MPL-2.0
//! Which input of a model takes the picture, and how its channels lie.

use super::uses::InputUse;
use crate::error::{Error, ErrorKind, Result};
use crate::image::transform::TensorLayout;
use crate::tensor::{self, DType, Dims, TensorDesc};

/// What exporters call the input of a text.
const TOKENS: &str = "input_ids";

/// What exporters of Hugging Face call the input of a picture, whose channels come first.
const PIXEL_VALUES: &str = "pixel_values";

/// What they call the dimension of its channels.
const CHANNELS: [&str; 2] = ["num_channels", "channels"];

/// An input that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PicturePlace {
    /// Among all inputs.
    pub index: usize,
    pub order: TensorLayout,
    /// Whether the file leaves the number of channels open.
    pub has_open_channels: bool,
}

/// Finds the input that takes a picture, or else a clip: 4 or 5 dimensions, of which one is 1 or 3 channels. Or else a picture whose
/// channels are open and known otherwise, which becomes one of that number. Or else a sequence of vectors, of 3 dimensions: their
/// batch, how many there are, and how many numbers each has.
pub(super) fn of_pictures(inputs: &mut [TensorDesc], uses: &[InputUse]) -> Result<PicturePlace> {
    let (index, order, known) = find(inputs, uses).ok_or_else(|| no_picture(inputs, uses))?;
    if let Some(channels) = known {
        inputs[index].dims.0[order.channels()] = channels;
    }
    match inputs.iter().find(|desc| desc.dims.contains(&0)) {
        Some(empty) => Err(Error::new(ErrorKind::Model, format!("its input {empty} has no elements"))
            .remedy("Export it with the size of real pictures, or with dynamic dimensions")),
        None => Ok(PicturePlace { index, order, has_open_channels: known.is_some() }),
    }
}

/// Its place, how its channels lie, and how many there are where the file leaves that open.
fn find(inputs: &[TensorDesc], uses: &[InputUse]) -> Option<(usize, TensorLayout, Option<i64>)> {
    let picture = |desc: &TensorDesc| {
        let channels = |i: usize| matches!(desc.dims[i], 1 | 3);
        match is_picture(desc) {
            true if channels(1) => Some(TensorLayout::Nchw),
            true if channels(3) => Some(TensorLayout::Nhwc),
            _ => None,
        }
    };
    let clip =
        |desc: &TensorDesc| if desc.dims.len() == 5 && has_samples(desc) { order_of_clips(&desc.dims) } else { None };
    // Of a picture without a batch the first is a number of channels.
    let sequence = |desc: &TensorDesc| {
        let [batch, _, numbers] = desc.dims[..] else { return None };
        let is_one = matches!(batch, 1 | Dims::DYNAMIC) && numbers != Dims::DYNAMIC;
        (is_one && matches!(desc.dtype, DType::F32 | DType::F16)).then_some(TensorLayout::Ntd)
    };
    let first = |order: &dyn Fn(&TensorDesc) -> Option<TensorLayout>| {
        inputs.iter().enumerate().find_map(|(i, desc)| Some((i, order(desc)?, None)))
    };
    let open = || {
        inputs.iter().enumerate().find_map(|(i, desc)| {
            let (order, channels) = open_channels(desc, uses.get(i))?;
            Some((i, order, Some(channels)))
        })
    };
    first(&picture).or_else(|| first(&clip)).or_else(open).or_else(|| first(&sequence))
}

fn has_samples(desc: &TensorDesc) -> bool {
    matches!(desc.dtype, DType::F32 | DType::F16 | DType::U8)
}

fn is_picture(desc: &TensorDesc) -> bool {
    desc.dims.len() == 4 && has_samples(desc)
}

/// How the channels of a picture lie, and how many there are, where the file leaves that open: as its first convolution has it, or else
/// as names say.
fn open_channels(desc: &TensorDesc, of: Option<&InputUse>) -> Option<(TensorLayout, i64)> {
    const OF_COLORS: i64 = 3;
    if !is_picture(desc) {
        return None;
    }
    let found = match (of.and_then(InputUse::channels), of.and_then(|of| of.place_of(&CHANNELS))) {
        // Convolutions have channels first.
        (Some(channels), _) => (TensorLayout::Nchw, channels),
        (None, Some(1)) => (TensorLayout::Nchw, OF_COLORS),
        (None, Some(3)) => (TensorLayout::Nhwc, OF_COLORS),
        (None, None) if desc.name == PIXEL_VALUES => (TensorLayout::Nchw, OF_COLORS),
        _ => return None,
    };
    let (order, channels) = found;
    (desc.dims[order.channels()] == Dims::DYNAMIC && matches!(channels, 1 | 3)).then_some(found)
}

fn no_picture(inputs: &[TensorDesc], uses: &[InputUse]) -> Error {
    let found = if inputs.is_empty() { "and no other".to_string() } else { format!("only {}", tensor::list(inputs)) };
    let error = Error::new(ErrorKind::Model, format!("it has no input for a picture, {found}"));
    if inputs.iter().any(|input| input.name == TOKENS) {
        return error.remedy("It is a model of texts: gst-trt embed-text makes a gallery of words with it");
    }
    let is_open_clip = |desc: &TensorDesc| {
        let are_channels = [TensorLayout::Ncthw, TensorLayout::Ntchw, TensorLayout::Nthwc].map(TensorLayout::channels);
        desc.dims.len() == 5 && has_samples(desc) && are_channels.iter().any(|&place| desc.dims[place] == Dims::DYNAMIC)
    };
    if inputs.iter().any(is_open_clip) {
        let cause = "the file leaves dimensions of a clip open, and none of them has 1 or 3 channels";
        return error.cause(cause).remedy("Export it with the number of channels, such as 1x3xTxHxW or 1xTx3xHxW");
    }
    let is_open = |desc: &TensorDesc| is_picture(desc) && desc.dims[1] == Dims::DYNAMIC;
    let Some(open) = inputs.iter().position(is_open) else {
        return error.remedy(
            "It needs one of f32, f16 or u8 with 4 dimensions, 1x3xHxW or 1xHxWx3, or with 5 for clips of T frames, 1x3xTxHxW, \
             1xTx3xHxW or 1xTxHxWx3, or with 3 for sequences of T vectors, 1xTxD",
        );
    };
    match uses.get(open).and_then(InputUse::channels) {
        Some(channels) => {
            let what = format!("its first convolution takes {channels} channels, and pictures have 1 or 3");
            error.cause(what).remedy("Give a model of pictures in gray or colors")
        }
        None => error.cause("the file leaves the number of channels open, and does not tell which dimension has them").remedy(
            "Export it with 1 or 3 channels, such as 1x3xHxW, or with num_channels as the name of that dimension; docs/models.md says how \
             to set them in the file",
        ),
    }
}

/// Where the channels of clips are: 3 of them, or else one of gray. Three frames of three channels are taken for channels first.
fn order_of_clips(dims: &Dims) -> Option<TensorLayout> {
    let orders = [TensorLayout::Ncthw, TensorLayout::Ntchw, TensorLayout::Nthwc];
    [3, 1].into_iter().find_map(|channels| orders.into_iter().find(|order| dims[order.channels()] == channels))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::device::Device;
    use crate::model::ModelInfo;
    use crate::onnx_files::{F16, F32, Graph, int};
    use crate::test::scratch;

    /// What is found where the file says nothing of how inputs are used.
    fn of_pictures(inputs: &[TensorDesc]) -> Result<(usize, TensorLayout)> {
        super::of_pictures(&mut inputs.to_vec(), &[]).map(|place| (place.index, place.order))
    }

    #[test]
    fn the_picture_is_found_among_inputs() {
        let sizes = TensorDesc::new("orig_target_sizes", DType::I64, &[-1, 2]);
        let nchw = TensorDesc::new("images", DType::F32, &[1, 3, 64, 64]);
        let nhwc = TensorDesc::new("image", DType::U8, &[-1, 64, 64, 3]);
        assert_eq!(of_pictures(&[sizes.clone(), nchw]).unwrap(), (1, TensorLayout::Nchw));
        assert_eq!(of_pictures(&[nhwc]).unwrap(), (0, TensorLayout::Nhwc));
        assert!(of_pictures(std::slice::from_ref(&sizes)).unwrap_err().message().contains("orig_target_sizes i64 ?x2"));
        let tokens = TensorDesc::new("input_ids", DType::I64, &[-1, 77]);
        assert!(of_pictures(&[tokens]).unwrap_err().message().contains("gst-trt embed-text"));
        let rank3 = TensorDesc::new("images", DType::F32, &[3, 64, 64]);
        assert!(of_pictures(&[rank3]).is_err());
        let empty = TensorDesc::new("images", DType::F32, &[1, 3, 0, 64]);
        assert!(of_pictures(&[empty]).unwrap_err().message().contains("no elements"));
    }

    #[test]
    fn clips_are_found_by_their_channels() {
        for (dims, wanted) in [
            ([1, 3, 16, 112, 112], Some(TensorLayout::Ncthw)),
            ([-1, 16, 3, 224, 224], Some(TensorLayout::Ntchw)),
            ([-1, -1, 3, 224, 224], Some(TensorLayout::Ntchw)),
            ([1, 16, 224, 224, 3], Some(TensorLayout::Nthwc)),
            ([1, 1, 16, 64, 64], Some(TensorLayout::Ncthw)),
            ([1, 16, 1, 64, 64], Some(TensorLayout::Ntchw)),
            ([1, 1, 3, 64, 64], Some(TensorLayout::Ntchw)),
            ([1, 3, 3, 64, 64], Some(TensorLayout::Ncthw)),
            ([1, 16, 2, 64, 64], None),
        ] {
            let clip = TensorDesc::new("clip", DType::F32, &dims);
            assert_eq!(of_pictures(&[clip]).ok().map(|(_, order)| order), wanted, "{dims:?}");
        }
        let clip = TensorDesc::new("clip", DType::F32, &[1, 3, 16, 64, 64]);
        let picture = TensorDesc::new("images", DType::F32, &[1, 3, 64, 64]);
        assert_eq!(of_pictures(&[clip, picture]).unwrap(), (1, TensorLayout::Nchw), "a picture comes first");
        let ids = TensorDesc::new("ids", DType::I64, &[1, 3, 16, 64, 64]);
        assert!(of_pictures(&[ids]).unwrap_err().message().contains("1xTx3xHxW"));
        for dims in [[-1; 5], [-1, -1, -1, 64, 64]] {
            let said = of_pictures(&[TensorDesc::new("pixel_values", DType::F32, &dims)]).unwrap_err().message();
            assert!(said.contains("leaves dimensions of a clip open"), "{said}");
        }
    }

    /// Of engines and servers only the names of tensors are known.
    #[test]
    fn open_channels_are_known_by_the_name_of_the_input() {
        let open = |name: &str| TensorDesc::new(name, DType::F32, &[-1; 4]);
        let mut inputs = [TensorDesc::new("pixel_mask", DType::I64, &[-1; 3]), open("pixel_values")];
        let place = super::of_pictures(&mut inputs, &[]).unwrap();
        assert_eq!(place, PicturePlace { index: 1, order: TensorLayout::Nchw, has_open_channels: true });
        assert_eq!(inputs[1].to_string(), "pixel_values f32 ?x3x?x?");
        let words = TensorDesc::new("text_embeds", DType::F32, &[-1, -1, 512]);
        assert_eq!(of_pictures(&[words, open("pixel_values")]).unwrap(), (1, TensorLayout::Nchw), "no sequence");
        let picture = TensorDesc::new("images", DType::F32, &[1, 3, 64, 64]);
        assert_eq!(
            of_pictures(&[open("pixel_values"), picture]).unwrap(),
            (1, TensorLayout::Nchw),
            "what is sure comes first"
        );
        let last = TensorDesc::new("pixel_values", DType::F32, &[-1, -1, -1, 3]);
        assert_eq!(of_pictures(&[last]).unwrap(), (0, TensorLayout::Nhwc));
        for dims in [&[-1, 4, -1, -1][..], &[-1, 64, 64, 4]] {
            let other = TensorDesc::new("pixel_values", DType::F32, dims);
            assert!(of_pictures(&[other]).unwrap_err().message().contains("It needs one of f32"), "{dims:?}");
        }
        let said = of_pictures(&[open("x")]).unwrap_err().message();
        assert!(said.contains("only x f32 ?x?x?x?: the file leaves the number of channels open"), "{said}");
        assert!(said.contains("num_channels as the name of that dimension"), "{said}");
    }

    /// A file whose picture goes into a convolution with such weights, or into none.
    fn read(input: &str, dims: [&str; 4], weights: Option<(&[i64], i64)>, is_cast: bool) -> Result<ModelInfo> {
        let graph = Graph::new().input(input, if is_cast { F16 } else { F32 }, &dims);
        let taken = if is_cast { "samples" } else { input };
        let graph =
            if is_cast { graph.node("Cast", &[input], &["samples"], vec![int("to", F32.into())]) } else { graph };
        let graph = match weights {
            Some((sizes, group)) => {
                let numbers = sizes.iter().product::<i64>() as usize;
                graph.weight("w", F32, sizes, vec![0; 4 * numbers]).node(
                    "Conv",
                    &[taken, "w"],
                    &["y"],
                    vec![int("group", group)],
                )
            }
            None => graph.node("Relu", &[taken], &["y"], vec![]),
        };
        let folder = scratch("open-channels");
        ModelInfo::read(Path::new(&graph.output("y", F32, &["n", "c", "h", "w"]).save(&folder.join("m.onnx"))))
    }

    #[test]
    fn open_channels_are_known_by_the_graph() {
        let hugging_face = ["batch_size", "num_channels", "height", "width"];
        let plain = ["n", "c", "h", "w"];
        let colors = Some((&[4, 3, 2, 2][..], 1));
        for (input, dims, weights, is_cast, wanted) in [
            ("pixel_values", hugging_face, colors, false, "pixel_values f32 ?x3x?x?"),
            ("pixel_values", hugging_face, None, false, "pixel_values f32 ?x3x?x?"),
            ("pixel_values", ["", "", "", ""], None, false, "pixel_values f32 ?x3x?x?"),
            ("image", ["1", "channels", "64", "32"], None, false, "image f32 1x3x64x32"),
            ("image", ["n", "h", "w", "Num_Channels"], None, false, "image f32 ?x?x?x3"),
            ("pixel_values", ["n", "h", "w", "channels"], None, false, "pixel_values f32 ?x?x?x3"),
            ("x", plain, colors, false, "x f32 ?x3x?x?"),
            ("x", plain, colors, true, "x f16 ?x3x?x?"),
            ("x", plain, Some((&[3, 1, 2, 2][..], 3)), false, "x f32 ?x3x?x?"),
            ("pixel_values", hugging_face, Some((&[4, 1, 2, 2][..], 1)), false, "pixel_values f32 ?x1x?x?"),
        ] {
            let info = read(input, dims, weights, is_cast).unwrap();
            let has_channels_last = wanted.ends_with("x3");
            assert_eq!(info.image_input().to_string(), wanted);
            assert_eq!(info.open_channels(), Some(if has_channels_last { 3 } else { 1 }), "{wanted}");
            let spec = info.input_spec(Some((32, 64)), 1, Device::Host).unwrap();
            assert_eq!((spec.desc.dims.is_static(), spec.chw().1, spec.chw().2), (true, 64, 32), "{spec}");
        }
        let said =
            |dims: [&str; 4], weights: Option<(&[i64], i64)>| read("x", dims, weights, false).unwrap_err().message();
        let four = said(hugging_face, Some((&[4, 4, 2, 2][..], 1)));
        assert!(four.contains("its first convolution takes 4 channels, and pictures have 1 or 3"), "{four}");
        for text in [said(plain, None), said(["n", "c", "num_channels", "w"], None)] {
            assert!(
                text.starts_with("Cannot use the model file ") && text.contains("does not tell which dimension"),
                "{text}"
            );
        }
        let open = read("pixel_values", hugging_face, colors, false).unwrap();
        let said = open.input_spec(None, 1, Device::Host).unwrap_err().message();
        assert!(
            said.contains("leaves the size of its input open (pixel_values f32 ?x3x?x?). Set input-size"),
            "{said}"
        );
        assert_eq!(read("images", ["n", "3", "h", "w"], colors, false).unwrap().open_channels(), None);
    }
}
