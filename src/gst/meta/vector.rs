// SPDX-License-Identifier: MPL-2.0
//! Vectors, in metas: of an object in a parameter [`PARAM`] of its region, of the whole frame in a `GstCustomMeta` called [`NAME`],
//! whose structure has an array `vectors` of such structures, one for each model.
//!
//! A structure has `dims`, how many numbers there are, and `values`, a GstBuffer with f32, the lower bytes first. The length of
//! the vector is 1. Of an object there is also the `model`. `held` is there where it is that of an earlier frame.

use std::borrow::Cow;
use std::sync::Once;

use gst::glib;
use gst::glib::translate::IntoGlib;
use gst::meta::CustomMeta;
use gst_video::VideoRegionOfInterestMeta;
use gsttrt_core::postprocess::Instances;
use gsttrt_core::vector::to_bytes;

use super::read;
use crate::gst::meta::tensor::ObjectRegion;

/// The name of the parameter.
pub const PARAM: &str = "vector";

pub const NAME: &str = "GstTrtVectorMeta";

/// Registers the meta of frames, once in a program.
pub fn register() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // Without tags: it stays on the frame through all elements that change the picture.
        if !CustomMeta::is_registered(NAME) {
            CustomMeta::register_simple(NAME);
        }
    });
}

fn structure(vector: &[f32], is_held: bool) -> gst::Structure {
    let mut structure = gst::Structure::builder(PARAM)
        .field("dims", vector.len() as u32)
        .field("values", gst::Buffer::from_slice(to_bytes(vector)))
        .build();
    if is_held {
        structure.set("held", true);
    }
    structure
}

/// Attaches the vector of an object. Nothing is attached where its region is gone, or there is none.
pub fn attach(buffer: &mut gst::BufferRef, object: &ObjectRegion, vector: &[f32], model: &str, is_held: bool) {
    let region = object.region.and_then(|index| buffer.iter_meta_mut::<VideoRegionOfInterestMeta>().nth(index));
    if let Some(mut region) = region.filter(|_| !vector.is_empty()) {
        let mut param = structure(vector, is_held);
        param.set("model", model);
        region.add_param(param);
    }
}

/// Attaches the vector of a frame behind those of other models.
pub fn attach_to_frame(buffer: &mut gst::BufferRef, instances: &Instances, is_held: bool) {
    let Some(vector) = instances.frame_vector() else { return };
    register();
    let is_there = CustomMeta::from_buffer(buffer, NAME).is_ok();
    let meta = if is_there { CustomMeta::from_mut_buffer(buffer, NAME) } else { CustomMeta::add(buffer, NAME) };
    let Ok(mut meta) = meta else { return };
    let all = meta.mut_structure();
    let before = all.get::<gst::Array>("vectors").unwrap_or_default();
    let before = before.iter().filter_map(|value| value.get::<gst::Structure>().ok());
    all.set("vectors", gst::Array::new(before.chain([structure(vector, is_held)])));
}

/// A vector of an object, as some element has attached it.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachedVector {
    pub values: Vec<f32>,
    /// The quark of the model's name; 0 where none is given.
    pub model: u32,
    /// It is that of an earlier frame.
    pub is_held: bool,
}

impl AttachedVector {
    /// The name of the model; empty where none is given.
    pub fn model_name(&self) -> Cow<'static, str> {
        read::text_of(self.model)
    }
}

/// The vectors of an object, one for each model, in their order. What is not as described above is left out.
pub fn of_region(meta: &gst::MetaRef<VideoRegionOfInterestMeta>) -> Vec<AttachedVector> {
    meta.params().filter(|param| param.name() == PARAM).filter_map(vector).collect()
}

/// The vectors of a frame, one for each model.
pub fn of_frame(buffer: &gst::BufferRef) -> Vec<AttachedVector> {
    register();
    let meta = CustomMeta::from_buffer(buffer, NAME).ok();
    let all = meta.and_then(|meta| meta.structure().get::<gst::Array>("vectors").ok()).unwrap_or_default();
    let vectors = all.iter().filter_map(|value| value.get::<gst::Structure>().ok());
    vectors.filter_map(|structure| vector(&structure)).collect()
}

/// Whether [`of_frame`] has some. Reads no numbers.
pub fn are_of_frame(buffer: &gst::BufferRef) -> bool {
    register();
    CustomMeta::from_buffer(buffer, NAME).is_ok()
}

/// Adds the numbers of an object's first vector, that of [`of_region`], to the end of others. Returns the quark of its model's name, and
/// whether it is that of an earlier frame.
pub fn append_first(meta: &gst::MetaRef<VideoRegionOfInterestMeta>, values: &mut Vec<f32>) -> Option<(u32, bool)> {
    let mut params = meta.params().filter(|param| param.name() == PARAM);
    params.find_map(|param| read_values(param, values).map(|()| model_and_held(param)))
}

fn vector(param: &gst::StructureRef) -> Option<AttachedVector> {
    let mut values = Vec::new();
    read_values(param, &mut values)?;
    let (model, is_held) = model_and_held(param);
    Some(AttachedVector { values, model, is_held })
}

/// Adds the numbers of a vector to the end of others. `None` where they are not as described above.
fn read_values(param: &gst::StructureRef, values: &mut Vec<f32>) -> Option<()> {
    let buffer = param.get::<gst::Buffer>("values").ok()?;
    let bytes = buffer.map_readable().ok()?;
    let (numbers, []) = bytes.as_chunks::<4>() else { return None };
    let is_whole = param.get::<u32>("dims").is_ok_and(|dims| dims as usize == numbers.len());
    is_whole.then(|| values.extend(numbers.iter().map(|&bytes| f32::from_le_bytes(bytes))))
}

/// The quark of its model's name, and whether it is that of an earlier frame.
fn model_and_held(param: &gst::StructureRef) -> (u32, bool) {
    (param.get::<&str>("model").map_or(0, quark), param.get("held") == Ok(true))
}

fn quark(model: &str) -> u32 {
    glib::Quark::from_str(model).into_glib()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> ObjectRegion {
        ObjectRegion { region: Some(0), analytics: None, track_id: None, input: None, is_expected: true }
    }

    #[test]
    fn vectors_are_read_as_they_were_attached() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let buffer = buffer.get_mut().unwrap();
        VideoRegionOfInterestMeta::add(buffer, "a", (0, 0, 1, 1));
        attach(buffer, &object(), &[0.6, -0.8], "reid", false);
        attach(buffer, &object(), &[1.0], "face", true);
        attach(buffer, &object(), &[], "none", false);
        attach(buffer, &ObjectRegion { region: Some(1), ..object() }, &[1.0], "gone", false);
        let region = buffer.meta::<VideoRegionOfInterestMeta>().unwrap();
        let wanted = [("reid", vec![0.6, -0.8], false), ("face", vec![1.0], true)];
        let wanted = wanted.map(|(model, values, is_held)| AttachedVector { values, model: quark(model), is_held });
        assert_eq!(of_region(&region), wanted);
        let models: Vec<String> = region.params().map(|param| param.get("model").unwrap()).collect();
        assert_eq!(models, ["reid", "face"]);
        assert_eq!(of_region(&region)[1].model_name(), "face");
        let mut values = vec![7.0];
        assert_eq!(append_first(&region, &mut values), Some((quark("reid"), false)));
        assert_eq!(values, [7.0, 0.6, -0.8]);
    }

    #[test]
    fn what_is_no_vector_is_left_out() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let mut region = VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), "a", (0, 0, 1, 1));
        for (dims, bytes) in [(2u32, 4), (1, 3), (0, 5), (u32::MAX, 4)] {
            let values = gst::Buffer::from_slice(vec![0u8; bytes]);
            region.add_param(gst::Structure::builder(PARAM).field("dims", dims).field("values", values).build());
        }
        region.add_param(gst::Structure::builder(PARAM).field("values", "AAAA").build());
        region.add_param(gst::Structure::new_empty(PARAM));
        let region = buffer.meta::<VideoRegionOfInterestMeta>().unwrap();
        assert_eq!(of_region(&region), []);
        let mut values = Vec::new();
        assert_eq!((append_first(&region, &mut values), values), (None, Vec::new()));
    }

    #[test]
    fn frames_have_the_vectors_of_their_models() {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let buffer = buffer.get_mut().unwrap();
        for vector in [None, Some(vec![]), Some(vec![1.0f32]), Some(vec![0.6, -0.8])] {
            attach_to_frame(buffer, &Instances { vector, ..Instances::default() }, false);
        }
        let found: Vec<Vec<f32>> = of_frame(buffer).into_iter().map(|vector| vector.values).collect();
        assert_eq!(found, [vec![1.0], vec![0.6, -0.8]]);
    }
}
