// SPDX-License-Identifier: MPL-2.0
//! Where the keys of a file are, as its parser saw them.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file and its keys.
pub struct Places<'a> {
    /// The bytes at which lines begin.
    lines: Vec<usize>,
    /// `None` where the file is no TOML.
    root: Option<Spanned<DeTable<'a>>>,
}

type Entry<'t, 'a> = (&'t Spanned<std::borrow::Cow<'a, str>>, &'t Spanned<DeValue<'a>>);

fn entry<'t, 'a>(table: &'t DeTable<'a>, key: &str) -> Option<Entry<'t, 'a>> {
    table.iter().find(|(name, _)| name.get_ref() == key)
}

/// The line of a byte.
pub fn line_at(text: &str, byte: usize) -> usize {
    1 + text.as_bytes()[..byte.min(text.len())].iter().filter(|c| **c == b'\n').count()
}

impl<'a> Places<'a> {
    pub fn new(text: &'a str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Places { lines: std::iter::once(0).chain(ends).collect(), root: DeTable::parse(text).ok() }
    }

    /// The line of a byte, of which there may be one for each source.
    pub fn line(&self, byte: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= byte)
    }

    /// The line of a key of a table, or of a table in it, and whether the key is there; else the line of the table. Of several
    /// tables of that name it is the one of that number. A name may be that of a table in another: `rtsp.tiles`.
    pub fn line_of(&self, table: &str, number: usize, key: &str) -> Option<(usize, bool)> {
        let mut names = table.split('.');
        let outermost = entry(self.root.as_ref()?.get_ref(), names.next()?)?;
        let (name, value) = names.try_fold(outermost, |(_, outer), name| entry(outer.get_ref().as_table()?, name))?;
        let (keys, begin) = match value.get_ref() {
            DeValue::Table(keys) => (keys, name.span().start),
            DeValue::Array(tables) => match tables.get(number) {
                Some(value) => (value.get_ref().as_table()?, value.span().start),
                None => return Some((self.line(name.span().start), false)),
            },
            _ => return Some((self.line(name.span().start), false)),
        };
        let of_inner = || keys.iter().find_map(|(_, value)| entry(value.get_ref().as_table()?, key));
        let found = entry(keys, key).or_else(of_inner).map(|(name, _)| name.span().start);
        Some((self.line(found.unwrap_or(begin)), found.is_some()))
    }

    /// The name of the tables whose first one is on that line, in double brackets.
    pub fn repeated_at(&self, line: usize) -> Option<&str> {
        self.root.as_ref()?.get_ref().iter().find_map(|(name, value)| {
            let DeValue::Array(tables) = value.get_ref() else { return None };
            let first = tables.first().filter(|first| first.get_ref().is_table())?;
            (self.line(first.span().start) == line).then(|| &**name.get_ref())
        })
    }

    /// The key at a byte, or whose value is there.
    pub fn key_at(&self, byte: usize) -> Option<&str> {
        fn find<'t>(table: &'t DeTable<'_>, byte: usize) -> Option<&'t str> {
            table.iter().find_map(|(name, value)| match value.get_ref() {
                DeValue::Table(keys) => find(keys, byte),
                DeValue::Array(values) if values.iter().all(|value| value.get_ref().is_table()) => {
                    values.iter().find_map(|value| find(value.get_ref().as_table()?, byte))
                }
                _ => (name.span().start..value.span().end).contains(&byte).then(|| name.get_ref().as_ref()),
            })
        }
        find(self.root.as_ref()?.get_ref(), byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_however_they_are_written() {
        let text = "title = '''\n[source]\nname = 1\n'''\n[[source]]\nname = \"a\"\nrecord.folder = \"r\"\n\n  [[ \"source\" ]]\n\
                    \"address\" = \"\"\"\nx\"\"\"\ntrack = {tracker = \"iou\"}\n[source.analytics]\nconfig = \"\"\nhttp.listen = 1\n\
                    [[rtsp.tiles]]\nname = \"x\"\n[[rtsp.tiles]]\nname = \"y\"\ncolumns = 2\n";
        let places = Places::new(text);
        for ((table, number, key), expected) in [
            (("source", 0, "name"), Some((6, true))),
            (("source", 0, "folder"), Some((7, true))),
            (("source", 0, "address"), Some((5, false))),
            (("source", 1, "address"), Some((10, true))),
            (("source", 1, "tracker"), Some((12, true))),
            (("source", 1, "config"), Some((14, true))),
            (("source", 1, "name"), Some((9, false))),
            (("model", 0, "name"), None),
            (("rtsp.tiles", 0, "name"), Some((17, true))),
            (("rtsp.tiles", 1, "columns"), Some((20, true))),
            (("rtsp.tiles", 0, "columns"), Some((16, false))),
            (("rtsp.more", 0, "name"), None),
        ] {
            assert_eq!(places.line_of(table, number, key), expected, "{table} {number} {key}");
        }
        for byte in 0..text.len() {
            assert_eq!(places.line(byte), line_at(text, byte), "{byte}");
        }
        assert_eq!([5, 8, 9, 1].map(|line| places.repeated_at(line)), [Some("source"), None, None, None]);
        assert_eq!(places.key_at(text.find("x\"\"\"").unwrap()), Some("address"));
        assert_eq!(places.key_at(text.find("iou").unwrap()), Some("tracker"));
        assert_eq!(places.key_at(text.find("[source]").unwrap()), Some("title"));
    }
}
