// SPDX-License-Identifier: MPL-2.0
//! GstStructures as bytes, for other processes of this machine. GStreamer's own text for them does not hold all texts: it cannot read
//! back a backslash within structures in lists.

use gst::glib;
use gst::prelude::*;

use crate::gst::property;

/// What follows, in one byte. Numbers are as this machine has them.
mod tag {
    pub const FALSE: u8 = 0;
    pub const TRUE: u8 = 1;
    pub const INT: u8 = 2;
    pub const UINT: u8 = 3;
    pub const INT64: u8 = 4;
    pub const UINT64: u8 = 5;
    pub const FLOAT: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const TEXT: u8 = 8;
    pub const ARRAY: u8 = 9;
    pub const STRUCTURE: u8 = 10;
    pub const BYTES: u8 = 11;
}

/// Lists and structures in each other; ours are four.
const MAX_DEPTH: u32 = 16;

/// A structure. Fields of other types, such as objects, are left out.
pub fn pack(structure: &gst::StructureRef) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack_structure(&mut bytes, structure);
    bytes
}

fn pack_structure(to: &mut Vec<u8>, structure: &gst::StructureRef) {
    pack_text(to, structure.name());
    counted(to, |to| {
        let fields = structure.iter().filter(|(name, value)| {
            let before = to.len();
            pack_text(to, name);
            let is_packed = pack_value(to, value);
            if !is_packed {
                to.truncate(before);
            }
            is_packed
        });
        fields.count()
    });
}

/// How many there are, and then those.
fn counted(to: &mut Vec<u8>, pack: impl FnOnce(&mut Vec<u8>) -> usize) {
    let at = to.len();
    to.extend([0; 4]);
    let count = pack(to) as u32;
    to[at..at + 4].copy_from_slice(&count.to_ne_bytes());
}

fn pack_text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u32).to_ne_bytes());
    to.extend(text.as_bytes());
}

/// Whether it is one of these types.
fn pack_value(to: &mut Vec<u8>, value: &glib::Value) -> bool {
    macro_rules! number {
        ($($kind:ty => $tag:ident),*) => {$(
            if let Ok(number) = value.get::<$kind>() {
                to.push(tag::$tag);
                to.extend(number.to_ne_bytes());
                return true;
            }
        )*};
    }
    number!(f64 => DOUBLE, i32 => INT, u32 => UINT, i64 => INT64, u64 => UINT64, f32 => FLOAT);
    if let Ok(is) = value.get::<bool>() {
        to.push(if is { tag::TRUE } else { tag::FALSE });
    } else if let Some(text) = property::text_of(value) {
        to.push(tag::TEXT);
        pack_text(to, &text);
    } else if let Ok(array) = value.get::<gst::ArrayRef>() {
        to.push(tag::ARRAY);
        counted(to, |to| array.iter().filter(|value| pack_value(to, value)).count());
    } else if let Ok(structure) = value.get::<gst::Structure>() {
        to.push(tag::STRUCTURE);
        pack_structure(to, &structure);
    } else if let Ok(buffer) = value.get::<gst::Buffer>()
        && let Ok(bytes) = buffer.map_readable()
    {
        to.push(tag::BYTES);
        to.extend((bytes.len() as u32).to_ne_bytes());
        to.extend(&*bytes);
    } else {
        return false;
    }
    true
}

/// The structure of all these bytes; `None` where they are none.
pub fn unpack(bytes: &[u8]) -> Option<gst::Structure> {
    let mut from = Unpacker(bytes);
    from.structure(0).filter(|_| from.0.is_empty())
}

/// What is left to read.
struct Unpacker<'a>(&'a [u8]);

impl<'a> Unpacker<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn count(&mut self) -> Option<usize> {
        Some(u32::from_ne_bytes(self.number()?) as usize)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.count()?;
        std::str::from_utf8(self.take(length)?).ok().filter(|text| !text.contains('\0'))
    }

    /// Of a structure or a field. GStreamer takes no other ones.
    fn name(&mut self) -> Option<&'a str> {
        let is_first = |c: char| c.is_ascii_alphabetic();
        let is_later = |c: char| c.is_ascii_alphanumeric() || "/-_.:+".contains(c);
        self.text().filter(|name| name.starts_with(is_first) && name.chars().all(is_later))
    }

    fn structure(&mut self, depth: u32) -> Option<gst::Structure> {
        let mut structure = gst::Structure::new_empty(self.name()?);
        for _ in 0..self.count()? {
            let name = self.name()?;
            structure.set_value(name, self.value(depth)?);
        }
        Some(structure)
    }

    fn value(&mut self, depth: u32) -> Option<glib::SendValue> {
        let [tag] = self.number()?;
        let depth = Some(depth + 1).filter(|depth| *depth <= MAX_DEPTH)?;
        Some(match tag {
            tag::FALSE => false.to_send_value(),
            tag::TRUE => true.to_send_value(),
            tag::INT => i32::from_ne_bytes(self.number()?).to_send_value(),
            tag::UINT => u32::from_ne_bytes(self.number()?).to_send_value(),
            tag::INT64 => i64::from_ne_bytes(self.number()?).to_send_value(),
            tag::UINT64 => u64::from_ne_bytes(self.number()?).to_send_value(),
            tag::FLOAT => f32::from_ne_bytes(self.number()?).to_send_value(),
            tag::DOUBLE => f64::from_ne_bytes(self.number()?).to_send_value(),
            tag::TEXT => self.text()?.to_send_value(),
            tag::ARRAY => {
                let count = self.count()?;
                let values = (0..count).map(|_| self.value(depth)).collect::<Option<Vec<glib::SendValue>>>()?;
                // GStreamer has no others.
                let is_of_one_type = values.windows(2).all(|pair| pair[0].type_() == pair[1].type_());
                is_of_one_type.then(|| gst::Array::from_values(values).to_send_value())?
            }
            tag::STRUCTURE => self.structure(depth)?.to_send_value(),
            tag::BYTES => {
                let count = self.count()?;
                gst::Buffer::from_slice(self.take(count)?.to_vec()).to_send_value()
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use gst::glib::translate::ToGlibPtrMut;

    use super::*;

    fn structure() -> gst::Structure {
        gst::init().unwrap();
        let inner =
            gst::Structure::builder("inner").field("text", "a \\\"b\\134<[{;,\u{e9}\n").field("none", f64::NAN).build();
        gst::Structure::builder("outer")
            .field("yes", true)
            .field("int", -5i32)
            .field("uint", u32::MAX)
            .field("int64", i64::MIN)
            .field("uint64", u64::MAX)
            .field("float", 0.1f32)
            .field("double", 0.1f64 + 0.2)
            .field("list", gst::Array::new([inner.clone(), inner]))
            .field("empty", gst::Array::default())
            .field("bytes", gst::Buffer::from_slice([1u8, 2, 3]))
            .build()
    }

    #[test]
    fn structures_are_the_same_from_their_bytes() {
        let given = structure();
        let found = unpack(&pack(&given)).unwrap();
        assert_eq!(found.to_string(), given.to_string());
        assert_eq!(found.get::<f64>("double"), Ok(0.1 + 0.2));
        let bytes = found.get::<gst::Buffer>("bytes").unwrap();
        assert_eq!(bytes.map_readable().unwrap().to_vec(), [1, 2, 3]);
        let text = |of: &gst::Structure| {
            of.get::<gst::Array>("list").unwrap()[1].get::<gst::Structure>().unwrap().get::<String>("text")
        };
        assert_eq!(text(&found), text(&given));
    }

    /// GStreamer looks at the texts of fields, and not at those of lists.
    #[test]
    fn texts_in_lists_may_have_any_bytes() {
        gst::init().unwrap();
        let mut text = "".to_send_value();
        // SAFETY: the value has a text, which is replaced by a copy of this one.
        unsafe { glib::gobject_ffi::g_value_set_string(text.to_glib_none_mut().0, c"Caf\xe9".as_ptr()) };
        let given = gst::Structure::builder("a").field("b", gst::Array::from_values([text])).build();
        let found = unpack(&pack(&given)).unwrap().get::<gst::Array>("b").unwrap();
        assert_eq!(found[0].get::<String>().unwrap(), "Caf\u{fffd}");
    }

    #[test]
    fn what_no_other_process_can_have_is_left_out() {
        let mut given = structure();
        given.set("bin", gst::Bin::new().upcast::<gst::Object>());
        let found = unpack(&pack(&given)).unwrap();
        assert!(!found.has_field("bin") && found.n_fields() == given.n_fields() - 1);
    }

    #[test]
    fn any_bytes_are_taken() {
        let whole = pack(&structure());
        for end in 0..whole.len() {
            assert!(unpack(&whole[..end]).is_none(), "cut off after {end} bytes");
        }
        // Each byte changed: some are still structures, and none does harm.
        for at in 0..whole.len() {
            for by in [1, 0x80, 0xff] {
                let mut wrong = whole.clone();
                wrong[at] ^= by;
                let _ = unpack(&wrong);
            }
        }
        let list = pack(&gst::Structure::builder("a").field("b", gst::Array::new([1i32, 2])).build());
        let mut mixed = list.clone();
        *mixed.iter_mut().rev().nth(4).unwrap() = tag::UINT;
        assert!(unpack(&list).is_some() && unpack(&mixed).is_none());
        let mut deep = Vec::new();
        pack_text(&mut deep, "a");
        for _ in 0..100_000 {
            deep.extend(1u32.to_ne_bytes());
            pack_text(&mut deep, "b");
            deep.push(tag::STRUCTURE);
            pack_text(&mut deep, "a");
        }
        deep.extend([0; 4]);
        assert!(unpack(&deep).is_none());
    }
}
