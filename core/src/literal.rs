// SPDX-License-Identifier: MPL-2.0
//! The literals in which exporters write metadata: those of Python in ONNX files, those of JSON before engines.
//!
//! Numbers, texts, true, false and nothing, in lists and dictionaries. Keys become texts, as JSON has them. Each
//! character is read once, and neither the length nor the depth is without limit.

use std::str::Chars;

use serde_json::{Map, Number, Value};

/// More than the names of 20,000 classes take.
pub const MAX_LENGTH: usize = 4 << 20;

/// Exporters nest two levels.
const MAX_DEPTH: usize = 16;

/// The value of a literal; `None` where the text is none, or is over the limits.
pub fn parse(text: &str) -> Option<Value> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let mut parser = Parser { rest: text };
    let value = parser.value(MAX_DEPTH)?;
    parser.skip_space();
    parser.rest.is_empty().then_some(value)
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    /// The next character that is no space, without taking it.
    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.rest.chars().next()
    }

    /// Takes the next character that is no space if it is this one.
    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        found
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        match self.peek()? {
            '{' => self.dictionary(depth.checked_sub(1)?),
            '[' => self.list(depth.checked_sub(1)?, '[', ']').map(|(values, _)| Value::Array(values)),
            '(' => {
                let (mut values, comma) = self.list(depth.checked_sub(1)?, '(', ')')?;
                // (1) is a number, and (1,) a tuple.
                if values.len() == 1 && !comma { values.pop() } else { Some(Value::Array(values)) }
            }
            '\'' | '"' => self.text().map(Value::String),
            _ => self.word(),
        }
    }

    /// The values, and whether a comma follows the last one.
    fn list(&mut self, depth: usize, open: char, close: char) -> Option<(Vec<Value>, bool)> {
        self.take(open);
        let (mut values, mut comma) = (Vec::new(), false);
        while !self.take(close) {
            if !values.is_empty() && !comma {
                return None;
            }
            values.push(self.value(depth)?);
            comma = self.take(',');
        }
        Some((values, comma))
    }

    fn dictionary(&mut self, depth: usize) -> Option<Value> {
        self.take('{');
        let (mut entries, mut comma) = (Map::new(), true);
        while !self.take('}') {
            let key = match self.value(0).filter(|_| comma)? {
                Value::String(key) => key,
                Value::Number(key) if key.is_i64() || key.is_u64() => key.to_string(),
                _ => return None,
            };
            if !self.take(':') || entries.insert(key, self.value(depth)?).is_some() {
                return None;
            }
            comma = self.take(',');
        }
        Some(Value::Object(entries))
    }

    /// A number or the name of a value.
    fn word(&mut self) -> Option<Value> {
        let end =
            self.rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-._".contains(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "True" | "true" => return Some(Value::Bool(true)),
            "False" | "false" => return Some(Value::Bool(false)),
            "None" | "null" => return Some(Value::Null),
            _ => {}
        }
        // Rust takes “inf” and “nan” for numbers too.
        let digits = word.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        let integer = || word.parse::<i64>().ok().map(Number::from);
        let float = || word.parse::<f64>().ok().and_then(Number::from_f64);
        if digits { integer().or_else(float).map(Value::Number) } else { None }
    }

    fn text(&mut self) -> Option<String> {
        let mut chars = self.rest.chars();
        let quote = chars.next()?;
        let mut text = String::new();
        loop {
            match chars.next()? {
                '\\' => escape(&mut chars, &mut text)?,
                c if c == quote => break,
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        // Which texts of C cannot hold.
        Some(text).filter(|text| !text.contains('\0'))
    }
}

/// What follows a backslash.
fn escape(chars: &mut Chars, text: &mut String) -> Option<()> {
    let c = chars.next()?;
    let digits = match c {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => {
            match c {
                'n' => text.push('\n'),
                'r' => text.push('\r'),
                't' => text.push('\t'),
                'b' => text.push('\u{8}'),
                'f' => text.push('\u{c}'),
                '0' => text.push('\0'),
                '\\' | '\'' | '"' | '/' => text.push(c),
                // Python keeps the backslash of what it does not know.
                _ => text.extend(['\\', c]),
            }
            return Some(());
        }
    };
    let mut code = hex(chars, digits)?;
    // JSON writes what is beyond 16 bits as two halves.
    if (0xd800..0xdc00).contains(&code) && chars.as_str().starts_with("\\u") {
        chars.nth(1);
        let low = hex(chars, 4)?.checked_sub(0xdc00).filter(|&low| low < 0x400)?;
        code = 0x10000 + ((code - 0xd800) << 10) + low;
    }
    text.push(char::from_u32(code)?);
    Some(())
}

fn hex(chars: &mut Chars, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0u32, |code, _| code.checked_mul(16)?.checked_add(chars.next()?.to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn python_and_json_give_the_same_values() {
        for (text, value) in [
            ("{0: 'person', 1: \"it's\"}", json!({"0": "person", "1": "it's"})),
            (r#"{"0": "person", "1": "it's"}"#, json!({"0": "person", "1": "it's"})),
            ("[480, 640]", json!([480, 640])),
            ("(480, 640,)", json!([480, 640])),
            ("(7)", json!(7)),
            ("(7,)", json!([7])),
            ("()", json!([])),
            ("{}", json!({})),
            (" { 'nms' : True , } ", json!({"nms": true})),
            ("{'a': None, 'b': [0.5, -1]}", json!({"a": null, "b": [0.5, -1]})),
            (r"'\'\x41\u00e4\U0001f600\d'", json!("'Aä😀\\d")),
            (r#""\ud83d\ude00""#, json!("😀")),
            ("true", json!(true)),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_literal_is_refused() {
        for text in [
            "",
            "{",
            "[1",
            "[1 2]",
            "[,]",
            "{0 'a'}",
            "{0: 'a' 1: 'b'}",
            "{0: 'a', 0: 'b'}",
            "{[]: 1}",
            "1+1",
            "0x20",
            "nan",
            "inf",
            "1e999",
            "'open",
            r"'\ud83d'",
            r"'\x4'",
            r"{0: 'a\0b'}",
            r#"{"0": "a\u0000b"}"#,
            "a",
            "1 2",
            "{1.5: 2}",
            "__import__('os')",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    /// Each of these once did not end, or would take the stack.
    #[test]
    fn depth_and_length_are_limited() {
        assert!(parse(&format!("{}1{}", "[".repeat(16), "]".repeat(16))).is_some());
        for (open, close) in [("[", "]"), ("(", ")"), ("{0:", "}"), ("[1,", "]"), ("[", ""), ("{", "")] {
            for depth in [17, 62, 100_000] {
                assert_eq!(parse(&format!("{}1{}", open.repeat(depth), close.repeat(depth))), None);
            }
        }
        assert!(parse(&format!("'{}'", "x".repeat(MAX_LENGTH - 2))).is_some());
        assert_eq!(parse(&format!("'{}'", "x".repeat(MAX_LENGTH - 1))), None);
        assert!(parse(&format!("[{}]", "1,".repeat(1 << 20))).is_some());
    }

    fn literal() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            r"[^\x00]*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::vec((r"[^\x00]*", inner), 0..8).prop_map(|entries| entries.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>()) {
            parse(&text);
        }

        #[test]
        fn what_looks_like_a_literal_does_not_panic(text in r#"[\[\](){}:,'"\\xuU0-9a-f .eTrueNon+-]{0,80}"#) {
            parse(&text);
        }

        #[test]
        fn what_json_writes_is_read(value in literal()) {
            prop_assert_eq!(parse(&value.to_string()), Some(value));
        }
    }
}
