// SPDX-License-Identifier: MPL-2.0
//! Checks that the elements between trtpreprocess and trtnms only scale the picture.
//!
//! The tensor on a frame contains where it lies in the picture that trtpreprocess saw. trtnms has to know where that is
//! in the picture that it gets. Metas do not contain that: videoflip and videobox copy them as videoconvert does. But
//! elements that change the geometry translate the coordinates of a pointer in navigation events, so that a click on
//! the screen arrives at the point of the source that was clicked on. So trtnms sends two points upstream with each
//! frame, and trtpreprocess answers with where they arrived. Scaling alone leaves both at the same fractions of the
//! picture. Where only queues are between our elements nothing is sent.
//!
//! Where an answer is new, each element between is tested by itself. That finds the element that changes the picture,
//! and what the sum of all cannot show: borders that a scaler adds, and scalers that do not translate coordinates.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gst::glib;
use gst::prelude::*;
use gst_video::VideoInfo;
use gsttrt_core::error::{Error, ErrorKind, Result};

use crate::gst::meta::tensor::TensorSource;

type Point = (f64, f64);
/// Width and height.
type Size = (u32, u32);

const FIELD: &str = "trt-arrival";
/// The address of the trtpreprocess that is to answer.
const ELEMENT: &str = "trt-element";

/// Where a point arrived, once it has.
#[derive(Clone, Debug, Default, glib::Boxed)]
#[boxed_type(name = "GstTrtArrival")]
struct Arrival(Arc<Mutex<Option<Point>>>);

/// Sends a point of the picture at a sink pad upstream to that trtpreprocess, and returns where it arrived.
fn send(pad: &gst::Pad, element: usize, (x, y): Point) -> Option<Point> {
    let arrival = Arrival::default();
    let structure = gst::Structure::builder("application/x-gst-navigation")
        .field("event", "mouse-move")
        .field("pointer_x", x)
        .field("pointer_y", y)
        .field(FIELD, &arrival)
        .field(ELEMENT, element as u64)
        .build();
    pad.push_event(gst::event::Navigation::new(structure));
    let arrived = arrival.0.lock().unwrap();
    *arrived
}

/// Notes where a point of trtnms arrived, if it was sent to this trtpreprocess; `false` for other events.
pub fn answer(event: &gst::EventRef, element: &gst::Element) -> bool {
    let gst::EventView::Navigation(navigation) = event.view() else { return false };
    let sent_to = navigation.structure().and_then(|structure| structure.get::<u64>(ELEMENT).ok());
    sent_to == Some(address(element) as u64) && note(event)
}

/// The same for any trtpreprocess.
fn note(event: &gst::EventRef) -> bool {
    let gst::EventView::Navigation(navigation) = event.view() else { return false };
    let Some(structure) = navigation.structure() else { return false };
    let Ok(arrival) = structure.get::<Arrival>(FIELD) else { return false };
    let coordinates = ["pointer_x", "pointer_y"].map(|field| structure.get::<f64>(field));
    if let [Ok(x), Ok(y)] = coordinates {
        *arrival.0.lock().unwrap() = Some((x, y));
    }
    true
}

/// Two points. Every crop, border, flip or rotation moves at least one of them elsewhere than scaling does.
fn points((width, height): Size) -> [Point; 2] {
    [(0.0, 0.0), (f64::from(width), f64::from(height) / 2.0)]
}

fn are_near(a: &[Point; 2], b: &[Point; 2]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a.0 - b.0).abs() < 0.01 && (a.1 - b.1).abs() < 0.01)
}

/// What is known of the path from trtpreprocess to trtnms.
#[derive(Default)]
pub struct PathCheck {
    last: Option<CheckedPath>,
}

/// A path that was checked: it only scales.
#[derive(PartialEq)]
struct CheckedPath {
    source: TensorSource,
    size: Size,
    arrived: [Point; 2],
}

impl PathCheck {
    /// Checks that the picture of that size that arrives at `pad` is the one that its tensors were made from, scaled at
    /// most.
    ///
    /// # Errors
    /// `Negotiation`, where the picture was not only scaled in between; `WrongType`, where it is another one.
    pub fn check_frame(&mut self, pad: &gst::Pad, size: Size, source: &TensorSource) -> Result<()> {
        let &TensorSource { element: preprocess, size: made_of } = source;
        if size == made_of && keeps_geometry(pad, preprocess) {
            return Ok(());
        }
        let (elements, is_complete) = elements(pad, preprocess);
        // From 1.28 on these keep the tensors of the frames that they get.
        if let Some(other) = elements.iter().find(|one| one.element.is::<gst_base::Aggregator>()) {
            return Err(another(&other.element));
        }
        let [Some(first), Some(second)] = points(size).map(|point| send(pad, preprocess, point)) else {
            // The pads are flushing, or frames take another path than events.
            let is_known = self.last.as_ref().is_some_and(|checked| (checked.source, checked.size) == (*source, size));
            return if size == made_of || is_known { Ok(()) } else { Err(unknown(made_of, size)) };
        };
        let checked = CheckedPath { source: *source, size, arrived: [first, second] };
        if self.last.as_ref() != Some(&checked) {
            // Each element is tested by itself: together a crop and a scaler may look like no change.
            for element in &elements {
                element.check()?;
            }
            if !is_complete && !are_near(&checked.arrived, &points(made_of)) {
                return Err(unknown(made_of, size));
            }
            self.last = Some(checked);
        }
        Ok(())
    }
}

fn address(element: &gst::Element) -> usize {
    element.as_ptr().addr()
}

/// Elements that leave the picture where it is.
const KEEPS_GEOMETRY: [&str; 5] = ["GstTrtInfer", "GstQueue", "GstTrtPreprocess", "GstTrtNms", "GstTrtOverlay"];

/// Whether there are only our elements and queues up to that trtpreprocess, as usual. This check takes a tenth of the
/// time that events take.
fn keeps_geometry(pad: &gst::Pad, preprocess: usize) -> bool {
    let mut next = pad.clone();
    while let Some(element) = next.peer().and_then(|source| source.parent_element()) {
        if address(&element) == preprocess {
            return true;
        }
        let passes = KEEPS_GEOMETRY.contains(&element.type_().name());
        match element.static_pad("sink").filter(|_| passes) {
            Some(sink) => next = sink,
            None => return false,
        }
    }
    false
}

/// An element on the path.
struct PathElement {
    element: gst::Element,
    /// The pad where the picture goes in.
    sink: gst::Pad,
    /// The pad at which its output arrives.
    next: gst::Pad,
}

/// The elements before `pad` up to that trtpreprocess, the nearest to it first, and whether it was found. Where the path is
/// hidden, the list ends.
fn elements(pad: &gst::Pad, preprocess: usize) -> (Vec<PathElement>, bool) {
    let (mut elements, mut next, mut is_found) = (Vec::new(), pad.clone(), false);
    while let Some(source) = real_peer(&next)
        && let Some(element) = source.parent_element()
    {
        is_found = address(&element) == preprocess;
        match source.iterate_internal_links().next() {
            Ok(Some(sink)) if !is_found => {
                elements.push(PathElement { element, sink: sink.clone(), next: std::mem::replace(&mut next, sink) });
            }
            _ => break,
        }
    }
    elements.reverse();
    (elements, is_found)
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

impl PathElement {
    /// Checks that it scales the picture at most. Another thread may be in the middle of a change of its caps, so what fails is
    /// looked at again.
    fn check(&self) -> Result<()> {
        const TIMES: usize = 20;
        for _ in 0..TIMES {
            if self.check_now().is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.check_now()
    }

    fn check_now(&self) -> Result<()> {
        let picture = |pad: &gst::Pad| VideoInfo::from_caps(pad.current_caps()?.as_ref()).ok();
        let (Some(before), Some(after)) = (picture(&self.sink), picture(&self.next)) else { return Ok(()) };
        let size = |info: &VideoInfo| (info.width(), info.height());
        let (sent, scaled) = (points(size(&after)), points(size(&before)));
        let arrived = sent.map(|point| self.arrival(point));
        let [Some(first), Some(second)] = arrived else { return Ok(()) };
        let arrived = [first, second];
        let class = self.element.factory().and_then(|factory| factory.metadata("klass").map(String::from));
        let is_of = |kind: &str| class.as_ref().is_some_and(|class| class.contains(kind));
        // Some scalers translate no coordinates, and a queue may hold pictures of another size than it takes.
        let translates_none = is_of("Scaler") || !self.element.is::<gst_base::BaseTransform>();
        let only_scales = are_near(&arrived, &scaled) || translates_none && are_near(&arrived, &sent);
        let does = if is_of("Transform") {
            "may move what is in the picture"
        } else if only_scales && (have_one_shape(&before, &after) || !self.adds_borders()) {
            return Ok(());
        } else if only_scales {
            "adds borders to the picture"
        } else if second.0 > first.0 && second.1 > first.1 {
            "crops the picture or adds borders to it"
        } else {
            "flips or rotates the picture"
        };
        Err(moved(&self.element, does))
    }

    /// Where a point of the output is in the input.
    fn arrival(&self, point: Point) -> Option<Point> {
        let end = self.sink.add_probe(gst::PadProbeType::EVENT_UPSTREAM, |_, info| match info.event() {
            Some(event) if note(event) => gst::PadProbeReturn::Handled,
            _ => gst::PadProbeReturn::Ok,
        })?;
        let arrived = send(&self.next, 0, point);
        self.sink.remove_probe(end);
        arrived
    }

    /// Whether it adds borders to keep the aspect ratio of the picture where that of the frame changes.
    fn adds_borders(&self) -> bool {
        let property = self.element.find_property("add-borders");
        property.is_some_and(|property| property.value_type() == glib::Type::BOOL)
            && self.element.property::<bool>("add-borders")
    }
}

/// Whether both have the same display aspect ratio.
fn have_one_shape(a: &VideoInfo, b: &VideoInfo) -> bool {
    let shape = |info: &VideoInfo| {
        let aspect = info.par();
        let side = |pixels: u32, part: i32| i128::from(pixels) * i128::from(part);
        (side(info.width(), aspect.numer()), side(info.height(), aspect.denom()))
    };
    let ((a_width, a_height), (b_width, b_height)) = (shape(a), shape(b));
    a_width * b_height == b_width * a_height
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
            "trtpreprocess saw a picture of {}x{}, trtnms gets one of {}x{}, and cannot ask how it was changed",
            made_of.0, made_of.1, size.0, size.1
        ))
        .remedy(format!("Put the elements that change the picture {REMEDY}"))
}
