// SPDX-License-Identifier: MPL-2.0
//! The module's arithmetic, word for word.

use super::*;

fn lerp(a: f32, b: f32, w: f32) -> f32 {
    a + (b - a) * w
}

fn position(i: u32, (start, end): (u32, u32), scaled: u32, (s, c): (u32, u32)) -> (usize, usize, f32) {
    let (first, last) = (start / s, (end - 1) / s);
    let den = 2 * s * scaled;
    let num = ((2 * i + 1) * (end - start) + 2 * start * scaled).saturating_sub(c * scaled).max(first * den);
    let near = (num / den).min(last);
    let far = (near + 1).min(last);
    let weight = if near == far { 0.0 } else { (num % den) as f32 / den as f32 };
    (near as usize, far as usize, weight)
}

/// The samples that position `i` of the resized axis is made of, with their weights.
fn taps(i: u32, (start, end): (u32, u32), whole: u32, site: (u32, u32), in_common: bool) -> Vec<(usize, f32)> {
    let pixels = end - start;
    let scale = f64::from(pixels) / f64::from(whole);
    let reach = scale.max(1.0);
    let center = (f64::from(i) + 0.5) * scale;
    let pixels_in_reach = || {
        let low = (center - reach + 0.5).trunc().max(0.0) as u32;
        low..((center + reach + 0.5).trunc() as u32).min(pixels)
    };
    let triangle = |pixel: u32| (1.0 - ((f64::from(pixel) - center + 0.5) / reach).abs()).max(0.0);
    let sum: f64 = pixels_in_reach().map(triangle).sum();
    let mut weights = std::collections::BTreeMap::<usize, f64>::new();
    for pixel in pixels_in_reach() {
        let (near, far, share) = if in_common {
            ((start + pixel) as usize / 2, (start + pixel) as usize / 2, 0.0)
        } else {
            position(pixel, (start, end), pixels, site)
        };
        let weight = triangle(pixel) / sum;
        let far = if share > 0.0 { far } else { near };
        *weights.entry(near).or_default() += weight * (1.0 - f64::from(share));
        *weights.entry(far).or_default() += weight * f64::from(share);
    }
    weights.into_iter().map(|(sample, weight)| (sample, weight as f32)).collect()
}

/// RGB, before clamping, at column `i` and row `j` of the scaled frame.
fn rgb(
    frame: &Frame,
    color: Colorimetry,
    transform: &InputTransform,
    letterbox: &Letterbox,
    i: u32,
    j: u32,
) -> [f32; 3] {
    let gray = transform.colors == Colors::Gray;
    let sites = |first| if first { (2, 1) } else { (2, 2) };
    let chroma = (sites(color.chroma_left), sites(color.chroma_top));
    let sample = |plane: usize, pixel: usize, offset: usize, (x, y): ((u32, u32), (u32, u32))| {
        let Rect { left, top, right, bottom } = letterbox.source;
        let along = |i, source, scaled, site| match (plane, transform.chroma) {
            (1.., Chroma::Nearest) => {
                // Of each pixel that luma is interpolated between, the sample that it shares.
                let (near, far, weight) = position(i, source, scaled, (1, 1));
                (near / 2, far / 2, weight)
            }
            _ => position(i, source, scaled, site),
        };
        let Plane { data, stride } = frame.planes[plane];
        let at = |x: usize, y: usize| {
            let bytes = &data[y * stride + x * pixel + offset..];
            match frame.format {
                PixelFormat::P010 => f32::from(u16::from_le_bytes([bytes[0], bytes[1]])) / 256.0,
                _ => f32::from(bytes[0]),
            }
        };
        if transform.fit == ResizeMode::CenterCrop {
            let in_common = plane > 0 && transform.chroma == Chroma::Nearest;
            let (x_offset, y_offset) = letterbox.crop_offset();
            let rows = taps(j + y_offset, (top, bottom), letterbox.whole.1, y, in_common);
            let down = |x| rows.iter().map(|&(y, w)| at(x, y) * w).reduce(|sum, next| sum + next).unwrap();
            let columns = taps(i + x_offset, (left, right), letterbox.whole.0, x, in_common);
            return columns.iter().map(|&(x, w)| down(x) * w).reduce(|sum, next| sum + next).unwrap();
        }
        let (x0, x1, wx) = along(i, (left, right), letterbox.width, x);
        let (y0, y1, wy) = along(j, (top, bottom), letterbox.height, y);
        lerp(lerp(at(x0, y0), at(x1, y0), wx), lerp(at(x0, y1), at(x1, y1), wx), wy)
    };
    let full = ((1, 1), (1, 1));
    let k = YuvToRgb::new(frame.format, color);
    if let Some(offsets) = frame.format.rgb_offsets() {
        let [r, g, b] = offsets.map(|offset| sample(0, frame.format.pixel_bytes(), offset, full));
        return if gray { [(r * GRAY[0] + g * GRAY[1]) + b * GRAY[2]; 3] } else { [r, g, b] };
    }
    let l = (sample(0, frame.format.pixel_bytes(), 0, full) - k.black) * k.gain;
    let (u, v) = match frame.format {
        _ if gray => return [l; 3],
        PixelFormat::Nv12 => (sample(1, 2, 0, chroma), sample(1, 2, 1, chroma)),
        PixelFormat::P010 => (sample(1, 4, 0, chroma), sample(1, 4, 2, chroma)),
        PixelFormat::I420 => (sample(1, 1, 0, chroma), sample(2, 1, 0, chroma)),
        _ => return [l; 3],
    };
    let (cb, cr) = (u - 128.0, v - 128.0);
    [l + cr * k.r_cr, (l + cb * k.g_cb) + cr * k.g_cr, l + cb * k.b_cb]
}

pub fn preprocess(frame: &Frame, source: Rect, color: Colorimetry, spec: &InputSpec) -> Vec<u8> {
    let letterbox = spec.letterbox(source);
    let InputTransform { colors, pad, .. } = spec.transform;
    let (channels, height, width) = spec.chw();
    let mut tensor = vec![0; spec.desc.bytes().unwrap()];
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let (i, j) = ((x as u32).wrapping_sub(letterbox.x), (y as u32).wrapping_sub(letterbox.y));
        let mut pixel = [f32::from(pad); 3];
        if i < letterbox.width && j < letterbox.height {
            pixel = rgb(frame, color, &spec.transform, &letterbox, i, j);
        }
        if colors == Colors::Bgr {
            pixel.reverse();
        }
        let normalised = pixel.into_iter().zip(spec.transform.normalisation());
        for (c, (sample, (factor, addend))) in normalised.enumerate().take(channels) {
            let element = sample.clamp(0.0, 255.0) * factor + addend;
            let at = match spec.order {
                TensorLayout::Nchw => (c * height + y) * width + x,
                TensorLayout::Nhwc => (y * width + x) * channels + c,
                order => unreachable!("{} is of clips", order.name()),
            };
            match spec.desc.dtype {
                DType::F16 => tensor[2 * at..][..2].copy_from_slice(&f16::from_f32(element).to_ne_bytes()),
                DType::U8 => tensor[at] = element.round_ties_even().clamp(0.0, 255.0) as u8,
                _ => tensor[4 * at..][..4].copy_from_slice(&element.to_ne_bytes()),
            }
        }
    }
    tensor
}
