// SPDX-License-Identifier: MPL-2.0
//! A server of OpenAI's API for chats, which answers each question with the same.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

/// What it was asked.
pub struct Asked {
    /// The first line and the headers.
    pub head: String,
    pub body: Value,
}

impl Asked {
    /// The bytes of the picture.
    pub fn picture(&self) -> Vec<u8> {
        let url = self.body["messages"][0]["content"][1]["image_url"]["url"].as_str().unwrap();
        gst::glib::base64_decode(url.strip_prefix("data:image/jpeg;base64,").unwrap())
    }
}

pub struct ChatServer {
    pub url: String,
    pub asked: Receiver<Asked>,
}

impl ChatServer {
    pub fn answering(answer: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, asked) = channel();
        let body = json!({"choices": [{"message": {"role": "assistant", "content": answer}}]}).to_string();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (sender, body) = (sender.clone(), body.clone());
                thread::spawn(move || {
                    while let Some(asked) = hear(&stream) {
                        // Nobody may listen any more.
                        let _ = sender.send(asked);
                        let length = body.len();
                        let head = format!(
                            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
                        );
                        (&stream).write_all([head, body.clone()].concat().as_bytes()).ok()?;
                    }
                    Some(())
                });
            }
        });
        ChatServer { url, asked }
    }
}

/// The next request of a connection.
fn hear(mut stream: &TcpStream) -> Option<Asked> {
    let mut read = Vec::new();
    let mut part = [0; 1 << 16];
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(read[..end].to_vec()).unwrap();
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
            let length: usize = length.parse().unwrap();
            if read.len() >= end + 4 + length {
                let body = serde_json::from_slice(&read[end + 4..]).unwrap();
                return Some(Asked { head, body });
            }
        }
        match stream.read(&mut part) {
            Ok(count) if count > 0 => read.extend(&part[..count]),
            _ => return None,
        }
    }
}
