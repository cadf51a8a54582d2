// SPDX-License-Identifier: MPL-2.0
//! The question as a server of OpenAI's API for chats takes it, and what it answers.

use gst::glib;
use gsttrt_core::redact::printable;
use gsttrt_publish::web;
use serde_json::{Value, json};

use crate::serve::config::AskConfig;
use crate::terminal::plain;

/// Characters of what a server says about a failure.
const MAX_REASON: usize = 200;

/// The body of a request with a picture in JPEG.
pub fn request(config: &AskConfig, picture: &[u8]) -> String {
    let url = format!("data:image/jpeg;base64,{}", glib::base64_encode(picture));
    let mut body = json!({
        "model": config.model,
        "stream": false,
        "messages": [{
            "role": "user",
            "content": [
                {"type": "text", "text": config.question},
                {"type": "image_url", "image_url": {"url": url}},
            ],
        }],
    });
    if config.max_tokens > 0 {
        body["max_tokens"] = config.max_tokens.into();
    }
    body.to_string()
}

/// The text of an answer, in which nothing moves the cursor of a terminal.
///
/// # Errors
/// There is none in it.
pub fn answer(body: &[u8]) -> Result<String, String> {
    let found: Value = serde_json::from_slice(body).map_err(|_| {
        // Events, or a JSON text in each line.
        let begin = body.trim_ascii_start();
        let is_streamed = begin.starts_with(b"data:") || begin.starts_with(b"event:") || begin.starts_with(b"{");
        if is_streamed {
            "it answers in parts, which it was not asked for, or its answer is cut off. Check url, and switch streaming off in \
             the server"
        } else {
            "what it answers is no JSON. Check url: it is that of an API like OpenAI's"
        }
    })?;
    let content = &found["choices"][0]["message"]["content"];
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null if found["choices"][0]["message"].is_object() => String::new(),
        _ => return Err("what it answers is no answer of a chat. Check url: it is that of an API like OpenAI's".into()),
    };
    match text.trim() {
        "" => Err("the answer is empty. Ask for a word in question, or set a larger max-tokens".into()),
        text => Ok(plain(text).into_owned()),
    }
}

/// Why a server does not answer, by its status and what it says.
pub fn refusal(status: u16, body: &[u8]) -> String {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let places = [&said["error"]["message"], &said["error"], &said["message"], &said["detail"]];
    let reason = places.into_iter().find_map(Value::as_str).map(|text| printable(text, MAX_REASON));
    let reason = reason.filter(|reason| !reason.is_empty()).map_or_else(String::new, |reason| format!(": {reason}"));
    let remedy = match status {
        401 | 403 => "Check api-key or api-key-file in [[ask]]",
        404 => "Check url and model in [[ask]]",
        429 => "Set a lower at-most in [[ask]]",
        300..=399 => "Write the address that it leads to as url in [[ask]]",
        _ => "The log of the server tells more",
    };
    format!("the server answers {}{}. {remedy}", web::shown(status), reason.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_answer_is_found() {
        for (body, expected) in [
            (r#"{"choices": [{"message": {"content": " A van. "}}]}"#, Ok("A van.")),
            (
                r#"{"choices": [{"message": {"content": [{"type": "text", "text": "A "}, {"text": "van."}]}}]}"#,
                Ok("A van."),
            ),
            (
                r#"{"choices": [{"message": {"content": "a\u001b[2J\u009b\nb\u202e"}}]}"#,
                Ok("a\\u001b[2J\\u009b\nb\\u202e"),
            ),
            (r#"{"choices": [{"message": {"content": ""}}]}"#, Err("empty")),
            (r#"{"choices": [{"message": {"content": null}}]}"#, Err("empty")),
            (r#"{"choices": []}"#, Err("no answer of a chat")),
            (r#"{"choices": [{"message": {"content": 7}}]}"#, Err("no answer of a chat")),
            ("[]", Err("no answer of a chat")),
            ("7", Err("no answer of a chat")),
            (r#"{"choices": 7}"#, Err("no answer of a chat")),
            (r#"{"choices": [{"text": "A van."}]}"#, Err("no answer of a chat")),
            (r#"{"choices": [{"delta": {"content": "A van."}}]}"#, Err("no answer of a chat")),
            (r#"{"choices": [{"message": {"content": [7, {"text": 7}, {"image": 1}]}}]}"#, Err("empty")),
            (r#"{"choices": [{"message": {"content": " \n\t "}}]}"#, Err("empty")),
            (r#"{"choices": [{"message": {"content": "007 of 1e999: -0"}}]}"#, Ok("007 of 1e999: -0")),
            ("data: {\"choices\": []}\n\ndata: [DONE]\n", Err("in parts")),
            ("{\"message\": {\"content\": \"A\"}}\n{\"message\": {\"content\": \" van\"}}\n", Err("in parts")),
            (r#"{"choices": [{"message": {"content": "A va"#, Err("cut off")),
            ("<html>", Err("no JSON")),
            ("", Err("no JSON")),
        ] {
            match (answer(body.as_bytes()), expected) {
                (Ok(text), Ok(expected)) => assert_eq!(text, expected),
                (Err(text), Err(part)) => assert!(text.contains(part), "{body}: {text}"),
                (found, _) => panic!("{body}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        for (status, body, said) in [
            (401, r#"{"error": {"message": "No key.\u001b[2J"}}"#, "401 Unauthorized: No key. [2J. Check api-key"),
            (404, r#"{"error": "model \"x\" not found"}"#, "404 Not Found: model \"x\" not found. Check url and model"),
            (500, "<html>", "500 Internal Server Error. The log of the server"),
            (302, "", "302 Found. Write the address"),
            (422, r#"{"detail": "too long"}"#, "422 Unprocessable Entity: too long. The log"),
        ] {
            let text = refusal(status, body.as_bytes());
            assert!(text.starts_with("the server answers ") && text.contains(said), "{text}");
        }
    }
}
