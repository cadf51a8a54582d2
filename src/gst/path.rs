// SPDX-License-Identifier: MPL-2.0
//! Checks that the elements between trtpreprocess and trtnms only scale the picture.
//!
//! The tensor on a frame contains where it lies in the picture that trtpreprocess saw. trtnms has to know where that is in
//! the picture that it gets. Elements tell the frame's [`geometry`] what they do to it. Some make new frames and tell
//! nothing, most of them before GStreamer 1.28: their kind decides then. All is looked at with the first frame, and again
//! once a frame says something else; other frames cost a comparison.

use gst::glib;
use gst::prelude::*;
use gst_base::prelude::*;
use gst_video::VideoInfo;
use gsttrt_core::error::{Error, ErrorKind, Result};

use crate::gst::meta::geometry::{self, Change, Geometry, TensorSource};

/// Width and height.
type Size = (u32, u32);

/// What is known of the path from trtpreprocess to trtnms.
#[derive(Default)]
pub struct PathCheck {
    last: Option<CheckedPath>,
}

/// A path that was checked: it only scales.
struct CheckedPath {
    source: TensorSource,
    told: Option<Geometry>,
    watched: WatchedElements,
}

/// Elements between that may do something else with the next frame.
#[derive(Default)]
struct WatchedElements {
    /// Where nothing is told: those that may begin to change frames, and what they do now.
    silent: Vec<(gst_base::BaseTransform, Work)>,
    /// Where something is told: those that may flip or rotate, and how they do it.
    turners: Vec<(gst_base::BaseTransform, i32)>,
}

impl PathCheck {
    /// Checks that the picture of this frame, which arrives at `pad` with such caps, is the one that its tensors were made
    /// of, scaled at most.
    ///
    /// # Errors
    /// `Negotiation`, where the picture was not only scaled in between; `WrongType`, where it is another one.
    pub fn check_frame(
        &mut self,
        pad: &gst::Pad,
        frame: &gst::BufferRef,
        info: &VideoInfo,
        source: &TensorSource,
    ) -> Result<()> {
        let told = geometry::told(frame, source);
        if let Some(last) = self.last.as_ref().filter(|last| (last.source, last.told) == (*source, told)) {
            // GStreamer's videoflip tells what it did to the frame before, and then begins to turn.
            if let Some((element, _)) = last.watched.turners.iter().find(|(element, way)| way_of(element) != Some(*way))
            {
                return Err(moved(element.upcast_ref(), "flips or rotates the picture"));
            }
            if last.watched.silent.iter().all(|(element, work)| Work::of(element) == *work) {
                return Ok(());
            }
        }
        let watched = check(pad, told.as_ref(), info, source)?;
        self.last = Some(CheckedPath { source: *source, told, watched });
        Ok(())
    }

    /// The elements before may be others from now on.
    pub fn forget(&mut self) {
        self.last = None;
    }
}

fn check(pad: &gst::Pad, told: Option<&Geometry>, info: &VideoInfo, source: &TensorSource) -> Result<WatchedElements> {
    let size = (info.width(), info.height());
    let path = ElementPath::to(pad, |element| element.as_ptr().addr() == source.element);
    // From 1.28 on these keep the tensors of the frames that they get.
    if let Some(other) = path.elements.iter().find(|element| element.is::<gst_base::Aggregator>()) {
        return Err(another(other));
    }
    let may_have_borders = match told {
        Some(told) if told.size != size => return Err(unknown(source.size, size)),
        Some(told) => match told.change() {
            Change::Scaled => told.may_have_borders,
            Change::Cropped => return Err(path.moved("crops the picture or adds borders to it")),
            Change::Turned => return Err(path.moved("flips, rotates or distorts the picture")),
        },
        None => {
            path.elements.iter().try_for_each(check_kind)?;
            let may_scale = path.is_complete && path.elements.iter().any(|element| is_of(element, "Scaler"));
            if size != source.size && !may_scale {
                return Err(unknown(source.size, size));
            }
            !source.has_shape_of(info)
        }
    };
    let adds = |element: &&gst::Element| adds_borders(element) && changes_shape(element);
    if may_have_borders && let Some(scaler) = path.elements.iter().find(adds) {
        return Err(moved(scaler, "adds borders to the picture"));
    }
    let others = path.foreign().into_iter().filter_map(|element| element.downcast_ref::<gst_base::BaseTransform>());
    let mut watched = WatchedElements::default();
    match told {
        None => watched.silent.extend(others.map(|element| (element.clone(), Work::of(element)))),
        Some(_) => watched.turners.extend(others.filter_map(|element| Some((element.clone(), way_of(element)?)))),
    }
    Ok(watched)
}

/// Why a frame that arrives at `pad` has no tensors, where an element on the way has lost them.
pub fn lost_tensors(pad: &gst::Pad) -> Option<Error> {
    let path = ElementPath::to(pad, |element| element.type_().name() == "GstTrtPreprocess");
    let others = path.foreign();
    // An earlier trtnms takes them, which is another matter.
    let is_taken = path.elements.iter().any(|element| element.type_().name() == "GstTrtNms");
    if !path.is_complete || is_taken || others.is_empty() {
        return None;
    }
    if let Some(other) = others.iter().find(|element| element.is::<gst_base::Aggregator>()) {
        return Some(another(other));
    }
    let names: Vec<String> = others.iter().map(|element| names(element).1).collect();
    let which = if names.len() == 1 { "makes" } else { "are there, and one of them makes" };
    Some(
        Error::new(ErrorKind::WrongType, "trtnms got a frame without tensors")
            .cause(format!("between trtpreprocess and trtnms {} {which} new frames without them", names.join(", ")))
            .remedy(format!("Put elements that make new frames {REMEDY}")),
    )
}

/// The elements before a pad.
struct ElementPath {
    /// The nearest to their end first.
    elements: Vec<gst::Element>,
    /// Whether the end was found. Where the path is hidden, as between two pipelines, it ends early.
    is_complete: bool,
}

impl ElementPath {
    /// Those up to the first that is the end.
    fn to(pad: &gst::Pad, is_end: impl Fn(&gst::Element) -> bool) -> ElementPath {
        let mut path = ElementPath { elements: Vec::new(), is_complete: false };
        let mut next = Some(pad.clone());
        while let Some(source) = next.as_ref().and_then(real_peer)
            && let Some(element) = source.parent_element()
        {
            if is_end(&element) {
                path.is_complete = true;
                break;
            }
            next = source.iterate_internal_links().next().ok().flatten();
            path.elements.push(element);
        }
        path.elements.reverse();
        path
    }

    /// Those that are not ours.
    fn foreign(&self) -> Vec<&gst::Element> {
        self.elements.iter().filter(|element| !element.type_().name().starts_with("GstTrt")).collect()
    }

    /// An error with the name of the element that does this, as far as that can be seen: of those that make new frames, the
    /// first that is no converter.
    fn moved(&self, does: &str) -> Error {
        let others = self.foreign();
        let mut makers = others.iter().filter(|element| work_of(element).is_some_and(|work| work.makes_frames));
        let found = makers.clone().find(|element| !is_of(element, "Converter")).or(makers.next());
        match found.or(others.first()) {
            Some(element) => moved(element, does),
            None => Error::new(ErrorKind::Negotiation, "Boxes cannot be placed in this frame")
                .cause(format!("an element between trtpreprocess and trtnms {does}"))
                .remedy(format!("Put elements that change the picture {REMEDY}")),
        }
    }
}

/// The pad of an element that is linked with `pad`, also across the ghost pads of bins.
fn real_peer(pad: &gst::Pad) -> Option<gst::Pad> {
    let mut peer = pad.peer()?;
    loop {
        peer = match peer.downcast::<gst::ProxyPad>() {
            Err(peer) => return Some(peer),
            Ok(proxy) => match proxy.downcast::<gst::GhostPad>() {
                Ok(ghost) => ghost.target()?,
                Err(proxy) => proxy.internal()?.peer()?,
            },
        };
    }
}

/// Whether its classification has that word.
fn is_of(element: &gst::Element, kind: &str) -> bool {
    let class = element.factory().and_then(|factory| factory.metadata("klass").map(String::from));
    class.is_some_and(|class| class.contains(kind))
}

/// What an element does with frames now, as far as others can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    /// It writes its results into new frames. Others pass frames on, and change at most what is in them.
    makes_frames: bool,
    /// By a property for that it leaves the picture as it is, or flips or rotates it.
    turns: Option<bool>,
}

impl Work {
    fn of(transform: &gst_base::BaseTransform) -> Self {
        let makes_frames = !transform.is_passthrough() && !transform.is_in_place();
        // The first value of each such type leaves the picture as it is.
        Work { makes_frames, turns: way_of(transform).filter(|_| makes_frames).map(|way| way != 0) }
    }
}

/// How it is set to flip or to rotate; nothing where it has no property for that.
fn way_of(element: &gst_base::BaseTransform) -> Option<i32> {
    ["video-direction", "flip-method"].into_iter().find_map(|name| {
        element.find_property(name).filter(|property| property.value_type().is_a(glib::Type::ENUM))?;
        glib::EnumValue::from_value(&element.property_value(name)).map(|(_, way)| way.value())
    })
}

fn work_of(element: &gst::Element) -> Option<Work> {
    element.downcast_ref().map(Work::of)
}

/// Checks by its kind that an element which has told nothing leaves the picture where it is, but for scaling.
fn check_kind(element: &gst::Element) -> Result<()> {
    let Some(Work { turns, .. }) = work_of(element).filter(|work| work.makes_frames) else { return Ok(()) };
    // Converters convert and scale; what is neither effect nor transformation moves frames from memory to memory.
    let may_move = is_of(element, "Transform") || is_of(element, "Effect") && !is_of(element, "Converter");
    match turns {
        Some(true) => Err(moved(element, "flips or rotates the picture")),
        None if may_move => Err(moved(element, "makes new frames, and does not tell where the picture is in them")),
        _ => Ok(()),
    }
}

/// Whether it adds borders to keep the aspect ratio of the picture where that of the frame changes.
fn adds_borders(element: &gst::Element) -> bool {
    let property = element.find_property("add-borders");
    property.is_some_and(|property| property.value_type() == glib::Type::BOOL)
        && element.property::<bool>("add-borders")
}

/// Whether frames have another display aspect ratio behind it, as far as its pads know.
fn changes_shape(element: &gst::Element) -> bool {
    let info = |pads: Vec<gst::Pad>| VideoInfo::from_caps(pads.first()?.current_caps()?.as_ref()).ok();
    match (info(element.sink_pads()), info(element.src_pads())) {
        (Some(before), Some(after)) => !TensorSource::new(0, &before).has_shape_of(&after),
        _ => true,
    }
}

const REMEDY: &str = "before trtpreprocess or behind trtnms";

/// The element's factory and its name.
fn names(element: &gst::Element) -> (String, String) {
    let factory = element.factory().map(|factory| factory.name().to_string()).unwrap_or_default();
    let name = format!("{} ({factory})", element.name());
    (factory, name)
}

fn another(element: &gst::Element) -> Error {
    let (factory, name) = names(element);
    Error::new(ErrorKind::WrongType, "The tensor on this frame was made of another frame")
        .cause(format!("{name} makes new frames between trtpreprocess and trtnms"))
        .remedy(format!("Put {factory} {REMEDY}"))
}

fn moved(element: &gst::Element, does: &str) -> Error {
    let (factory, name) = names(element);
    let remedy = if does.starts_with("adds") {
        format!("Set add-borders=false on {factory}, or put it {REMEDY}")
    } else {
        format!("Put {factory} {REMEDY}")
    };
    Error::new(ErrorKind::Negotiation, "Boxes cannot be placed in this frame")
        .cause(format!("{name} {does} between trtpreprocess and trtnms, and boxes would no longer fit the objects"))
        .remedy(remedy)
}

fn unknown(made_of: Size, size: Size) -> Error {
    Error::new(ErrorKind::Negotiation, "Boxes cannot be placed in this frame")
        .cause(format!(
            "trtpreprocess saw a picture of {}x{}, trtnms gets one of {}x{}, and no element has told how it was changed",
            made_of.0, made_of.1, size.0, size.1
        ))
        .remedy(format!("Put the elements that change the picture {REMEDY}"))
}
